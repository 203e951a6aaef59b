//! Runs seeds of the simulation: `simulate [--seeds N] [--from N] [--seed N] [--tally FILE]`. A seed with a finding is printed with
//! everything that was found, and the process ends with an error.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Instant;
use testkit::simulation::{Outcome, run_seed};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut from, mut count, mut is_one, mut tally_file) = (0u64, 1000u64, false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--from" => from = value.parse()?,
            "--seeds" => count = value.parse()?,
            "--seed" => (from, count, is_one) = (value.parse()?, 1, true),
            "--tally" => tally_file = Some(value),
            unknown => return Err(format!("unknown argument {unknown}").into()),
        }
    }
    let start = Instant::now();
    let mut total: BTreeMap<String, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    let (mut trace, mut steps, mut seconds) = (0u64, 0, 0.0);
    for seed in from..from + count {
        let outcome = run_seed(seed);
        trace = trace.rotate_left(1) ^ outcome.trace;
        steps += outcome.steps;
        seconds += outcome.time.as_secs_f64();
        *total.entry(format!("runs: {}", outcome.workload)).or_default() += 1;
        for (what, number) in &outcome.tally {
            *total.entry((*what).to_owned()).or_default() += number;
        }
        if is_one || !outcome.findings.is_empty() {
            show(&outcome);
        }
        if !outcome.findings.is_empty() {
            failed.push(seed);
        }
    }
    let took = start.elapsed();
    for (what, number) in &total {
        println!("{number:>12}  {what}");
    }
    println!(
        "{count} seeds from {from} in {:.1} s ({:.2} ms each; {steps} steps, {:.1} h of simulated time); trace {trace:016x}",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 / count as f64,
        seconds / 3600.0
    );
    if let Some(path) = tally_file {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        let line: Vec<String> = total.iter().map(|(what, number)| format!("{what}={number}")).collect();
        writeln!(file, "from={from}\tseeds={count}\tfailed={failed:?}\ttrace={trace:016x}\t{}", line.join("\t"))?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("{} of {count} seeds found something: {failed:?}", failed.len()).into()),
    }
}

fn show(outcome: &Outcome) {
    println!(
        "seed {} ({}; {} steps, {:.3} s, trace {:016x}): {:?}",
        outcome.seed,
        outcome.workload,
        outcome.steps,
        outcome.time.as_secs_f64(),
        outcome.trace,
        outcome.tally
    );
    for finding in &outcome.findings {
        println!("    {finding}");
    }
}
