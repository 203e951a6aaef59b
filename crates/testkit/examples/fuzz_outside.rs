//! Feeds mutated bytes to a target that reads input from outside, and prints its findings: `fuzz_outside TARGET
//! [--seconds N | --executions N] [--seed N] [--corpus DIR] [--keep DIR]`.
//!
//! With `--keep`, writes inputs with new outcomes, and findings, to a directory.

use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::fuzz::Until;
use testkit::outside::run;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let target = arguments.next().expect("the first argument is a target");
    let mut until = Until::Elapsed(Duration::from_secs(60));
    let (mut seed, mut corpus, mut keep) = (1, PathBuf::from("crates/testkit/corpus"), None);
    while let Some(flag) = arguments.next() {
        let text = arguments.next().expect("the flag has a value");
        let number = || text.parse::<u64>().expect("the value is a number");
        match flag.as_str() {
            "--seconds" => until = Until::Elapsed(Duration::from_secs(number())),
            "--executions" => until = Until::Executions(number()),
            "--seed" => seed = number(),
            "--corpus" => corpus = text.into(),
            "--keep" => keep = Some(PathBuf::from(text)),
            unknown => panic!("unknown flag {unknown}"),
        }
    }
    if let Some(directory) = &keep {
        std::fs::create_dir_all(directory).expect("a directory can be made");
    }
    // In memory where possible, since files are written for each input.
    let shared = Path::new("/dev/shm");
    let directory = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let under_way = directory.join(format!("ferroflow-outside-{target}-{}", std::process::id()));
    println!("{target}: the input that is being taken is in {}", under_way.display());
    let mut num_new = 0;
    let mut kept = |input: &[u8]| {
        if let Some(directory) = &keep {
            write(&directory.join(format!("{num_new:04}")), input);
            num_new += 1;
        }
    };
    let tally = run(&target, &corpus, seed, &until, |input| write(&under_way, input), &mut kept);
    let _ = std::fs::remove_file(&under_way);
    let tally = match tally {
        Ok(tally) => tally,
        Err(message) => {
            eprintln!("{message}");
            std::process::exit(2);
        }
    };
    println!(
        "{target}: {} inputs, {} accepted, {} outcomes, the longest took {} ms, {} findings, {}",
        tally.executions,
        tally.accepted,
        tally.outcomes,
        tally.longest_ms,
        tally.findings.len(),
        peak_memory()
    );
    for (number, (finding, input)) in tally.findings.iter().enumerate() {
        println!("FINDING {number}: {finding}");
        match &keep {
            Some(directory) => write(&directory.join(format!("finding-{number}")), input),
            None => println!("    {input:?}"),
        }
    }
    std::process::exit(i32::from(!tally.findings.is_empty()));
}

fn write(path: &Path, input: &[u8]) {
    if let Err(error) = std::fs::write(path, input) {
        eprintln!("{}: {error}", path.display());
    }
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
