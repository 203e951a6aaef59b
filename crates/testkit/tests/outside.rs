//! A fixed number of changed inputs, always the same, for each place at which bytes come in, and the inputs in `corpus/`. `cargo xtask
//! fuzz TARGET` runs more.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use testkit::fuzz::Until;
use testkit::outside::{TARGETS, run};

const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(600);

/// How many inputs a target takes, with those of the corpus; calls may wait for their time limit.
fn executions(target: &str) -> u64 {
    match target {
        "rpc" | "stream" | "graph-def" => 300,
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
        // If all were refused at the door, nothing would be tested.
        assert!(tally.accepted > 2 && tally.outcomes > 2, "{target}: {tally:?}");
    }
    drop(alive);
}
