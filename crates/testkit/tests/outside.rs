//! Runs a fixed set of mutated inputs, and those in `corpus/`, on each target. `cargo xtask fuzz TARGET` runs more.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use testkit::fuzz::Until;
use testkit::outside::{TARGETS, run};

const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the number of inputs for a target, including the corpus; calls may wait until their time limit.
fn executions(target: &str) -> u64 {
    match target {
        "rpc" | "stream" | "graph-def" | "saved-model" => 300,
        _ => 800,
    }
}

#[test]
fn bytes_from_outside_neither_panic_nor_hang_nor_count_as_our_bug() {
    let (alive, gone) = channel::<()>();
    std::thread::spawn(move || {
        if gone.recv_timeout(WATCHDOG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("a target hangs");
            std::process::exit(1);
        }
    });
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let executions = executions(target);
        let num_kept = std::fs::read_dir(corpus.join(target)).map_or(0, |entries| entries.count());
        assert!(num_kept > 0 && (num_kept as u64) < executions / 2, "{target} has {num_kept} inputs");
        let tally = run(target, &corpus, 1, &Until::Executions(executions), |_| {}, |_| {}).unwrap();
        assert!(tally.findings.is_empty(), "{target}: {tally:?}");
        assert_eq!(tally.executions, executions);
        // If all were rejected at once, nothing would be tested.
        assert!(tally.accepted > 2 && tally.outcomes > 2, "{target}: {tally:?}");
    }
    drop(alive);
}
