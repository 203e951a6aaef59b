//! The exit codes by which a cluster manager decides whether to restart a task: after codes up to 127 a restart would fail in the
//! same way, after those above it may help.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Code, Status};

/// A restart would fail in the same way; the flag parser also uses 2.
pub const FAILED: u8 = 1;

/// Another task was lost: a restart may help.
pub const PEER_LOST: u8 = 138;

/// SIGTERM ended the process; 128 plus the signal's number, as in shells.
const TERMINATED: u8 = 143;

/// Whether the process received SIGTERM.
static IS_TERMINATED: AtomicBool = AtomicBool::new(false);

/// Records that the process received SIGTERM, so that the exit code says so even after an orderly stop.
pub fn note_sigterm() {
    IS_TERMINATED.store(true, Ordering::Relaxed);
}

/// Returns the exit code of a process that has succeeded.
pub fn code_of_success() -> ExitCode {
    if IS_TERMINATED.load(Ordering::Relaxed) { ExitCode::from(TERMINATED) } else { ExitCode::SUCCESS }
}

/// Returns the exit code for an error.
pub fn code_of(status: &Status) -> u8 {
    match status.code() {
        Code::Unavailable | Code::Aborted => PEER_LOST,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_task_is_worth_another_start() {
        assert_eq!(code_of(&Status::unavailable("ps 0 is gone")), 138);
        assert_eq!(code_of(&Status::invalid_argument("no port")), 1);
    }
}
