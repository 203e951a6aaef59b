//! `cargo xtask fuzz`: runs random graphs, and mutated graphs of the real client, on an embedded server; with a target, feeds
//! mutated bytes to that.

use crate::{interop, process, venv};

/// The targets, as in `testkit::outside::TARGETS`.
const TARGETS: [&str; 9] =
    ["tensor-proto", "graph-def", "text-format", "checkpoint", "records", "events", "rpc", "stream", "saved-model"];

/// Builds the fuzzer and runs it for the given time from a seed on: half of it with graphs made from the definitions of ops, half
/// with mutated graphs of the interop tests. Without Python, only the former. Each named target, or each of `all`, runs for the
/// given time.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut seconds, mut seed, mut targets) = (60u64, "1".to_owned(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        match flag.as_str() {
            "all" => {
                targets.extend(TARGETS);
                continue;
            }
            name if TARGETS.contains(&name) => {
                targets.push(name);
                continue;
            }
            _ => {}
        }
        let value = rest.next().ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--seconds" => seconds = value.parse().map_err(|_| format!("{value} is no number of seconds"))?,
            "--seed" => seed = value.clone(),
            unknown => {
                let known = TARGETS.join(", ");
                return Err(format!(
                    "unknown argument `{unknown}`: fuzz [TARGET | all] [--seconds N] [--seed N]; targets: {known}"
                ));
            }
        }
    }
    if !targets.is_empty() {
        return run_targets(&targets, seconds, &seed);
    }
    let corpus = process::target().join("fuzz-corpus");
    let half = (seconds / 2).to_string();
    let fuzz = |more: &[&str]| {
        let arguments =
            ["run", "--package", "ferroflow-testkit", "--example", "fuzz", "--", "--seconds", &half, "--seed", &seed];
        process::run(process::cargo(&arguments).args(more))
    };
    fuzz(&[])?;
    match venv::python() {
        Ok(_) => {
            interop::run_script("ops/corpus.py", &[corpus.display().to_string()])?;
            fuzz(&["--corpus", &corpus.display().to_string()])
        }
        Err(missing) => {
            println!("no graphs of the real client: {}", missing.into_message());
            Ok(())
        }
    }
}

/// Fuzzes each target for the given time. Keeps findings, and inputs with new outcomes, below `target/fuzz`.
fn run_targets(targets: &[&str], seconds: u64, seed: &str) -> Result<(), String> {
    let mut failed = Vec::new();
    for target in targets {
        let kept = process::target().join("fuzz").join(target).display().to_string();
        let corpus = process::root().join("crates/testkit/corpus").display().to_string();
        let seconds = seconds.to_string();
        let mut command =
            process::cargo(&["run", "--package", "ferroflow-testkit", "--example", "fuzz_outside", "--", target]);
        command.args(["--seconds", &seconds, "--seed", seed, "--corpus", &corpus, "--keep", &kept]);
        if let Err(message) = process::run(&mut command) {
            failed.push(format!("{target} (inputs are in {kept}): {message}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_those_of_the_loop() {
        let source = std::fs::read_to_string(process::root().join("crates/testkit/src/outside/mod.rs")).unwrap();
        let listed = source.split("pub const TARGETS").nth(1).and_then(|rest| rest.split(';').nth(1)).unwrap();
        let listed: Vec<&str> = listed.split('"').skip(1).step_by(2).collect();
        assert_eq!(listed, TARGETS);
    }
}
