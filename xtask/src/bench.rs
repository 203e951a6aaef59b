//! `cargo xtask bench`: builds the release binaries and runs the drivers of `bench/` in the venv.

use crate::interop::{self, Profile};
use crate::{after_dashes, chaos, process, venv};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts of the benchmark, each a driver `bench/NAME.py`, in the order in which they are run.
const PARTS: [&str; 7] = ["cluster", "rust", "core", "data", "sessions", "sweep", "bandwidth"];

/// The parts that are run only when they are named: they compare with other libraries, or take long.
const NAMED_PARTS: [&str; 4] = ["allreduce", "network", "peers", "tls"];

/// The part that builds for itself, and writes a page of its own.
const BUILDS_ITSELF: &str = "peers";

/// The peers for which PyTorch is installed.
const TORCH_PEERS: [&str; 2] = ["tch", "PyTorch"];

/// The parts that can be measured against another binary of ours.
const AGAINST_PARTS: [&str; 2] = ["cluster", "core"];

/// Runs the named part, or without a name all of them, and prints a summary at the end.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(comparison) = Comparison::parse(arguments)? {
        return comparison.run();
    }
    let (parts, rest) = chosen(arguments)?;
    let python = venv::python().map_err(venv::Missing::into_message)?;
    let is_named_only = parts.iter().all(|part| NAMED_PARTS.contains(part));
    if parts.iter().any(|part| *part != BUILDS_ITSELF) {
        interop::build(Profile::Release)?;
    }
    let mut failed = Vec::new();
    for part in parts {
        println!("== {part}");
        let mut command = script(&python, &format!("{part}.py"));
        command.args(rest);
        if part == "network" {
            command.arg("--forwarder").arg(chaos::build_forwarder()?);
        }
        if part == "peers" && wants_torch(rest) {
            // Without it, what needs PyTorch is named and left out.
            match venv::torch() {
                Ok(torch) => command.env("FERROFLOW_TORCH_PYTHON", torch),
                Err(missing) => command.env("FERROFLOW_TORCH_MISSING", missing.into_message()),
            };
        }
        // One part that can't be measured doesn't keep the others from it.
        if let Err(message) = process::run(&mut command) {
            eprintln!("xtask: {message}");
            failed.push(part);
        }
    }
    if !is_named_only {
        println!("== results");
        process::run(&mut script(&python, "_report.py"))?;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not all of this could be measured: {}", failed.join(", "))) }
}

/// `--against OLD_BINARY`: compares the current binary with an older one, in pairs of runs.
#[derive(Debug, PartialEq, Eq)]
struct Comparison {
    old: PathBuf,
    parts: Vec<&'static str>,
    cases: Vec<String>,
}

impl Comparison {
    /// Reads `--against OLD_BINARY [PART…] [-- CASE…]`, in any order before the cases. Returns `None` without `--against`.
    fn parse(arguments: &[String]) -> Result<Option<Comparison>, String> {
        let cut = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
        let (own, cases) = (&arguments[..cut], after_dashes(&arguments[cut..]));
        let Some(at) = own.iter().position(|argument| argument == "--against") else { return Ok(None) };
        let Some(old) = own.get(at + 1) else { return Err("--against needs the path of a binary".to_string()) };
        let mut parts = Vec::new();
        for name in own[..at].iter().chain(&own[at + 2..]) {
            match AGAINST_PARTS.iter().find(|part| *part == name) {
                Some(part) => parts.push(*part),
                None => {
                    let known = AGAINST_PARTS.join(", ");
                    return Err(format!("`{name}` can't be measured against another binary; these can: {known}"));
                }
            }
        }
        if parts.is_empty() {
            parts = AGAINST_PARTS.to_vec();
        }
        Ok(Some(Comparison { old: PathBuf::from(old), parts, cases: cases.to_vec() }))
    }

    fn run(&self) -> Result<(), String> {
        let old = self.old.canonicalize().map_err(|error| format!("{}: {error}", self.old.display()))?;
        let python = venv::python().map_err(venv::Missing::into_message)?;
        interop::build(Profile::Release)?;
        let mut failed = Vec::new();
        for part in &self.parts {
            println!("== {part}, against {}", old.display());
            let mut command = script(&python, "_against.py");
            command.env("FERROFLOW_BENCH_AGAINST", &old).arg(part).args(&self.cases);
            if let Err(message) = process::run(&mut command) {
                eprintln!("xtask: {message}");
                failed.push(*part);
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
    }
}

/// Returns the parts to run, and their arguments.
fn chosen(arguments: &[String]) -> Result<(Vec<&str>, &[String]), String> {
    match arguments.split_first() {
        None => Ok((PARTS.to_vec(), &[])),
        Some((name, rest)) if PARTS.contains(&name.as_str()) || NAMED_PARTS.contains(&name.as_str()) => {
            Ok((vec![name.as_str()], after_dashes(rest)))
        }
        Some((name, _)) => {
            Err(format!("there is no part `{name}`; there are: {}, {}", PARTS.join(", "), NAMED_PARTS.join(", ")))
        }
    }
}

/// Returns whether one of the peers that are asked for needs PyTorch; without a name, all of them are.
fn wants_torch(peers: &[String]) -> bool {
    peers.is_empty() || peers.iter().any(|peer| TORCH_PEERS.contains(&peer.as_str()))
}

fn script(python: &Path, name: &str) -> Command {
    let mut command = interop::python_command(python, Profile::Release);
    command.env("FERROFLOW_BENCH_LOGS", process::target().join("bench-logs"));
    command.arg(process::root().join("bench").join(name));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_a_driver_and_every_driver_is_a_part() {
        let mut drivers: Vec<String> = std::fs::read_dir(process::root().join("bench"))
            .expect("bench/ is readable")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".py").map(str::to_string))
            .filter(|name| !name.starts_with('_'))
            .collect();
        drivers.sort();
        let mut parts = [&PARTS[..], &NAMED_PARTS[..]].concat();
        parts.sort();
        assert_eq!(drivers, parts);
    }

    #[test]
    fn a_comparison_names_a_binary_parts_and_cases() {
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let parsed = Comparison::parse(&words("cluster --against old/ferroflow -- MLP CNN"));
        let expected = Comparison { old: "old/ferroflow".into(), parts: vec!["cluster"], cases: words("MLP CNN") };
        assert_eq!(parsed, Ok(Some(expected)));
        let all = Comparison { old: "old".into(), parts: AGAINST_PARTS.to_vec(), cases: Vec::new() };
        assert_eq!(Comparison::parse(&words("--against old")), Ok(Some(all)));
        assert_eq!(Comparison::parse(&words("cluster -- --against old")), Ok(None));
        assert!(Comparison::parse(&words("cluster --against")).is_err());
        assert!(Comparison::parse(&words("--against old sweep")).is_err_and(|message| message.contains("sweep")));
    }

    #[test]
    fn one_part_with_arguments_or_all() {
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let arguments = words("cluster -- MLP CNN");
        assert_eq!(chosen(&arguments), Ok((vec!["cluster"], &words("MLP CNN")[..])));
        assert_eq!(chosen(&[]), Ok((PARTS.to_vec(), &[][..])));
        assert_eq!(chosen(&words("peers -- burn")), Ok((vec!["peers"], &words("burn")[..])));
        assert!(!PARTS.contains(&"peers"));
        assert!(wants_torch(&[]) && wants_torch(&words("burn tch")) && !wants_torch(&words("burn candle")));
        assert!(chosen(&words("-- MLP")).is_err());
        assert!(chosen(&words("clusters")).is_err());
    }
}
