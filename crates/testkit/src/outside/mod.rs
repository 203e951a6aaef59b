//! Input from outside: mutated files, messages, calls and streams. No input may cause a panic, a hang, unbounded use of memory,
//! or an `Internal` error.
//!
//! The loop is guided by outcomes, not by coverage: an input with a new outcome is added to the inputs that are mutated.

mod files;
mod messages;
mod mutate;
mod saved_model;
mod server;
mod stream;

use crate::fuzz::{Until, note_panics, take_panics};
use crate::random_graph::Chooser;
use mutate::mutated;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tensor::{Code, Status};

/// The time limit of an input, even on a busy machine.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);

/// The most bytes of a tensor.
const TENSOR_BYTES_MAX: usize = 16 << 20;

/// The most inputs that are kept for further mutation, and the most bytes of one.
const INPUTS_MAX: usize = 4096;
const INPUT_BYTES_MAX: usize = 32 << 10;

/// The part of a message that distinguishes outcomes.
const OUTCOME_BYTES_MAX: usize = 80;

/// The start of the one error for which TensorFlow's servers, and so ours, use the code `Internal`.
const INTERNAL_IN_TENSORFLOW: &str = "CompleteGroupRequest device_attributes is not set";

/// The names of the targets.
pub const TARGETS: [&str; 9] =
    ["tensor-proto", "graph-def", "text-format", "checkpoint", "records", "events", "rpc", "stream", "saved-model"];

/// Something that reads bytes from outside.
trait Target {
    /// Returns valid inputs.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Processes an input.
    fn take(&mut self, input: &[u8]) -> Outcome;
}

/// The outcome of an input.
struct Outcome {
    /// Whether the input was accepted as valid.
    is_accepted: bool,
    /// Distinguishes it from other outcomes.
    text: String,
    /// The problem, if there was one that must not happen.
    finding: Option<String>,
}

impl Outcome {
    fn accepted(text: impl Into<String>) -> Outcome {
        Outcome { is_accepted: true, text: text.into(), finding: None }
    }

    /// Returns the outcome of a rejected input. `Internal` means a bug of ours.
    fn refused(status: &Status) -> Outcome {
        let is_fault = status.code() == Code::Internal && !status.message().starts_with(INTERNAL_IN_TENSORFLOW);
        let finding = is_fault.then(|| status.message().replace('\n', " "));
        Outcome { is_accepted: false, text: format!("{:?}: {}", status.code(), summary(status.message())), finding }
    }

    fn found(text: impl Into<String>) -> Outcome {
        let text = text.into();
        Outcome { is_accepted: false, text: text.clone(), finding: Some(text) }
    }

    fn of<T>(result: tensor::Result<T>, text: impl FnOnce(T) -> String) -> Outcome {
        match result {
            Ok(value) => Outcome::accepted(text(value)),
            Err(status) => Outcome::refused(&status),
        }
    }
}

/// The results of a fuzzing run.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of inputs.
    pub executions: u64,
    /// The number of accepted inputs.
    pub accepted: u64,
    /// The number of different outcomes.
    pub outcomes: usize,
    /// The time of the slowest input in milliseconds.
    pub longest_ms: u128,
    /// Findings: the message, and the first input that caused it.
    pub findings: BTreeMap<String, Vec<u8>>,
}

/// Feeds a target its seeds, the files of a corpus, and mutations of both. Calls `before` with each input first, so that it is
/// known if the process dies, and `is_new` with inputs that had a new outcome.
pub fn run(
    name: &str,
    corpus: &Path,
    first_seed: u64,
    until: &Until,
    mut before: impl FnMut(&[u8]),
    mut is_new: impl FnMut(&[u8]),
) -> Result<Tally, String> {
    note_panics();
    tensor::set_tensor_bytes_max(TENSOR_BYTES_MAX);
    let mut target = target(name)?;
    let mut inputs = target.seeds();
    inputs.extend(files_of(&corpus.join(name)).map_err(|error| format!("the corpus can't be read: {error}"))?);
    let mut given = inputs.clone().into_iter();
    let mut seen = HashSet::new();
    let mut tally = Tally::default();
    let mut chooser = Chooser::new(first_seed);
    let started = Instant::now();
    loop {
        match until {
            Until::Executions(limit) if tally.executions >= *limit => break,
            Until::Elapsed(limit) if started.elapsed() >= *limit => break,
            _ => {}
        }
        let input = given.next().unwrap_or_else(|| {
            let mut input = mutated(&mut chooser, &inputs);
            input.truncate(INPUT_BYTES_MAX);
            input
        });
        before(&input);
        let begun = Instant::now();
        let outcome = guarded(&mut *target, &input);
        let took = begun.elapsed();
        tally.executions += 1;
        tally.accepted += u64::from(outcome.is_accepted);
        tally.longest_ms = tally.longest_ms.max(took.as_millis());
        let slow = (took > INPUT_TIME_MAX).then(|| "it takes too long".to_owned());
        for finding in take_panics().into_iter().chain(outcome.finding).chain(slow) {
            tally.findings.entry(finding).or_insert_with(|| input.clone());
        }
        if seen.len() < INPUTS_MAX && seen.insert(outcome.text) {
            is_new(&input);
            inputs.push(input);
        }
    }
    tally.outcomes = seen.len();
    Ok(tally)
}

/// Processes an input. The hook records a panic.
fn guarded(target: &mut dyn Target, input: &[u8]) -> Outcome {
    let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target.take(input)));
    taken.unwrap_or_else(|_| Outcome { is_accepted: false, text: "a panic".to_owned(), finding: None })
}

fn target(name: &str) -> Result<Box<dyn Target>, String> {
    Ok(match name {
        "tensor-proto" => Box::new(messages::TensorMessages),
        "graph-def" => Box::new(messages::Graphs::new()),
        "text-format" => Box::new(messages::Texts),
        "checkpoint" => Box::new(files::Checkpoints::new()),
        "records" => Box::new(files::Records::new()),
        "events" => Box::new(files::Events::new()),
        "rpc" => Box::new(server::Calls::new()),
        "stream" => Box::new(stream::Streams::new()),
        "saved-model" => Box::new(saved_model::SavedModels::new()),
        _ => return Err(format!("unknown target `{name}`: {}", TARGETS.join(", "))),
    })
}

/// Returns the contents of a directory's files, sorted by name, or nothing if there is no directory.
fn files_of(directory: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(std::fs::read).collect()
}

/// Returns a message without the parts that come from the input: numbers and quoted text.
fn summary(message: &str) -> String {
    let mut text = String::new();
    let mut quote = None;
    for character in message.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(character),
            (None, '0'..='9') if text.ends_with('#') => {}
            (None, '0'..='9') => text.push('#'),
            (None, _) => text.push(if character.is_ascii() { character } else { '?' }),
        }
        if text.len() >= OUTCOME_BYTES_MAX {
            break;
        }
    }
    text
}

/// Returns a number's magnitude, so that not every number is a new outcome.
fn magnitude(number: usize) -> u32 {
    usize::BITS - number.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_told_apart_by_what_we_say_and_not_by_what_the_input_says() {
        assert_eq!(summary("node 'a7' has 12 inputs, not 3"), "node  has # inputs, not #");
        assert_eq!(summary("é is no name"), "? is no name");
        assert_eq!(summary("x".repeat(500).as_str()).len(), OUTCOME_BYTES_MAX);
    }

    #[test]
    fn what_is_internal_is_a_finding_and_what_is_refused_is_none() {
        assert_eq!(Outcome::refused(&Status::internal("a\nb")).finding.as_deref(), Some("a b"));
        assert_eq!(Outcome::refused(&Status::data_loss("a")).finding, None);
    }

    #[test]
    fn an_unknown_target_is_refused_by_the_names_that_there_are() {
        let refused = run("xyz", Path::new("."), 1, &Until::Executions(1), |_| {}, |_| {});
        assert!(refused.unwrap_err().contains("tensor-proto"));
    }
}
