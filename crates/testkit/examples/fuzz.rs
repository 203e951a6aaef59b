//! Runs random graphs for a while and prints what it found: `fuzz [SECONDS [FIRST_SEED]]`; `fuzz --show SEED` prints the
//! graph of a seed.

use std::time::Duration;
use testkit::fuzz::{Until, graph_of, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, seed] = arguments.as_slice()
        && flag == "--show"
    {
        println!("{:#?}", graph_of(seed.parse().expect("a seed is a number")));
        return;
    }
    let number = |index: usize, default: u64| {
        arguments.get(index).map_or(default, |text| text.parse().expect("the arguments are numbers"))
    };
    let (seconds, first_seed) = (number(0, 60), number(1, 1));
    // Files that a graph names are looked for where there are none.
    let directory = std::env::temp_dir().join(format!("ferroflow-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let seed_file = directory.join("seed");
    std::env::set_current_dir(&directory).expect("it can be entered");
    let until = Until::Elapsed(Duration::from_secs(seconds));
    println!("the seed that is being run is in {}", seed_file.display());
    let report = run(first_seed, &until, |seed| {
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
