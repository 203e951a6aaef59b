//! `cargo xtask simulate`: runs seeds of the simulation on all cores, and keeps their results below `target/simulation`.

use crate::process;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of seeds that a process runs before it writes its results: these are lost when a run is interrupted.
const SEEDS_PER_PROCESS: u64 = 500;

/// Runs seeds, by default beginning after the last one that was run.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut count, mut from, mut one) = (1000u64, None, None);
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a number"))?;
        let number = value.parse::<u64>().map_err(|_| format!("{value} is no number of seeds"))?;
        match flag.as_str() {
            "--seeds" => count = number,
            "--from" => from = Some(number),
            "--seed" => one = Some(number),
            unknown => return Err(format!("unknown argument `{unknown}`: simulate [--seeds N] [--from N] [--seed N]")),
        }
    }
    process::run(&mut process::cargo(&["build", "--release", "--package", "ferroflow-testkit", "--bin", "simulate"]))?;
    let program = process::target().join("release/simulate");
    if let Some(seed) = one {
        return process::run(Command::new(program).args(["--seed", &seed.to_string()]));
    }
    let folder = process::target().join("simulation");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let tally = folder.join("tally.tsv");
    let ranges = Ranges::read(&tally);
    let from = from.unwrap_or(ranges.end);
    let num_processes = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failures) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..num_processes {
            scope.spawn(|| {
                loop {
                    let begin = next.fetch_add(SEEDS_PER_PROCESS, Ordering::Relaxed);
                    if begin >= from + count {
                        return;
                    }
                    let seeds = SEEDS_PER_PROCESS.min(from + count - begin);
                    let mut command = Command::new(&program);
                    command.args(["--from", &begin.to_string(), "--seeds", &seeds.to_string(), "--tally"]).arg(&tally);
                    if let Err(message) = process::run(&mut command) {
                        failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(message);
                    }
                }
            });
        }
    });
    let ranges = Ranges::read(&tally);
    println!("\n{}", ranges.table());
    match failures.into_inner() {
        Ok(failures) if failures.is_empty() => Ok(()),
        _ => Err(format!(
            "some seeds found something; `cargo xtask simulate --seed N` runs one of them again: {:?}",
            ranges.failed
        )),
    }
}

/// The results of all runs so far.
#[derive(Default)]
struct Ranges {
    /// The seed after the last.
    end: u64,
    seeds: u64,
    failed: BTreeSet<u64>,
    counts: BTreeMap<String, u64>,
}

impl Ranges {
    /// Reads the results that processes have written, if there are any.
    fn read(path: &Path) -> Ranges {
        let mut ranges = Ranges::default();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            ranges.add(line);
        }
        ranges
    }

    fn add(&mut self, line: &str) {
        let fields: Vec<(&str, &str)> = line.split('\t').filter_map(|field| field.split_once('=')).collect();
        let number = |name: &str| fields.iter().find(|(known, _)| *known == name)?.1.parse::<u64>().ok();
        let (Some(from), Some(seeds)) = (number("from"), number("seeds")) else { return };
        self.end = self.end.max(from + seeds);
        self.seeds += seeds;
        for (name, value) in fields {
            match name {
                "from" | "seeds" | "trace" => {}
                "failed" => {
                    let numbers = value.trim_matches(['[', ']']).split(", ");
                    self.failed.extend(numbers.filter_map(|number| number.parse::<u64>().ok()));
                }
                what => *self.counts.entry(what.to_owned()).or_default() += value.parse::<u64>().unwrap_or_default(),
            }
        }
    }

    /// Returns the counts as a table for `docs/faults.md`.
    fn table(&self) -> String {
        let mut table = format!("| what | how often |\n|---|---|\n| seeds | {} |\n", self.seeds);
        for (what, count) in &self.counts {
            table += &format!("| {what} | {count} |\n");
        }
        table + &format!("| seeds with a finding | {} |\n", self.failed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_wrote_down_is_added_up() {
        let mut ranges = Ranges::default();
        ranges.add("from=0\tseeds=500\tfailed=[]\ttrace=00\tcalls=10");
        ranges.add("from=500\tseeds=100\tfailed=[501, 502]\ttrace=00\tcalls=5\tprocess killed=2");
        ranges.add("a broken line");
        assert_eq!((ranges.end, ranges.seeds), (600, 600));
        assert_eq!(ranges.failed, BTreeSet::from([501, 502]));
        let table = ranges.table();
        assert!(table.contains("| calls | 15 |") && table.contains("| seeds with a finding | 2 |"), "{table}");
    }
}
