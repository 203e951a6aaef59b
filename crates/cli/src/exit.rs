//! The exit codes by which a cluster manager decides whether to start a task again: codes up to 127 mean that another start would fail
//! the same way, those above that it may help.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Code, Status};

/// Another start would fail the same way; the parser of flags uses 2 for the same.
pub const FAILED: u8 = 1;

/// Another task was lost: a start may help.
pub const PEER_LOST: u8 = 138;

/// SIGTERM ended the process, as a shell counts signals.
const TERMINATED: u8 = 143;

/// Whether SIGTERM was received.
static IS_TERMINATED: AtomicBool = AtomicBool::new(false);

/// Records that SIGTERM was received, so that the exit code says so even after an orderly stop.
pub fn note_sigterm() {
    IS_TERMINATED.store(true, Ordering::Relaxed);
}

/// Returns the code of a process that has succeeded.
pub fn code_of_success() -> ExitCode {
    if IS_TERMINATED.load(Ordering::Relaxed) { ExitCode::from(TERMINATED) } else { ExitCode::SUCCESS }
}

/// Returns the code for an error.
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
