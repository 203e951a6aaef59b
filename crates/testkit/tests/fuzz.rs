//! Runs a fixed set of random graphs on an embedded server. `cargo xtask fuzz` runs more.

use std::sync::mpsc::channel;
use std::time::Duration;
use testkit::fuzz::{Source, Until, run};

const EXECUTIONS: u64 = 1500;
const WATCHDOG_TIMEOUT: Duration = Duration::from_secs(600);

#[test]
fn random_graphs_neither_panic_nor_hang() {
    let (alive, gone) = channel::<()>();
    std::thread::spawn(move || {
        if gone.recv_timeout(WATCHDOG_TIMEOUT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("the loop hangs");
            std::process::exit(1);
        }
    });
    let directory = tempfile::tempdir().unwrap();
    std::env::set_current_dir(directory.path()).unwrap();
    let report = run(&Source::Definitions, 1, &Until::Executions(EXECUTIONS), |_| {});
    assert!(report.findings.is_empty(), "{report:#?}");
    assert_eq!(report.executions, EXECUTIONS);
    // Most graphs are invalid, but if all were rejected, nothing would be tested.
    assert!(report.successes > EXECUTIONS / 50, "{report:#?}");
    drop(alive);
}
