//! Runs random graphs for a while and prints what it found: `fuzz [--seconds N | --executions N] [--seed N] [--corpus FILE]
//! [--show]`. With a corpus, it runs mutated graphs of the real client; with `--show`, it prints the graph of the seed instead.

use std::path::Path;
use std::time::Duration;
use testkit::fuzz::{Source, Until, run};
use testkit::mutated_graph::Corpus;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut until = Until::Elapsed(Duration::from_secs(60));
    let (mut first_seed, mut source, mut show) = (1, Source::Definitions, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let mut text = || arguments.next().expect("the flag has a value");
        let number = |text: String| text.parse::<u64>().expect("the value is a number");
        match flag.as_str() {
            "--seconds" => until = Until::Elapsed(Duration::from_secs(number(text()))),
            "--executions" => until = Until::Executions(number(text())),
            "--seed" => first_seed = number(text()),
            "--corpus" => source = Source::Corpus(Corpus::read(Path::new(&text())).expect("the corpus can be read")),
            "--show" => show = true,
            unknown => panic!("unknown flag {unknown}"),
        }
    }
    if show {
        println!("{:#?}", source.graph(first_seed));
        return;
    }
    // Relative paths in graphs are resolved in an empty directory.
    let directory = std::env::temp_dir().join(format!("ferroflow-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let seed_file = directory.join("seed");
    std::env::set_current_dir(&directory).expect("it can be entered");
    println!("the seed that is being run is in {}", seed_file.display());
    let report = run(&source, first_seed, &until, |seed| {
        let _ = std::fs::write(&seed_file, seed.to_string());
    });
    println!("{report:#?}");
    println!("peak memory: {}", peak_memory());
    let _ = std::fs::remove_dir_all(&directory);
    std::process::exit(i32::from(!report.findings.is_empty()));
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("unknown").to_owned()
}
