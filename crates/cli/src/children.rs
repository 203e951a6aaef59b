//! Helpers for commands that start other processes: free ports, a process's output lines, and its exit status.

use crate::Failure;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The most bytes of a line that are kept.
const LINE_BYTES: u64 = 64 << 10;

/// Describes how a process ended.
pub fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended with signal {signal}"),
        (None, code) => format!("ended with exit code {}", code.unwrap_or(-1)),
    }
}

/// Calls `take` with every line until the end, or until it returns false.
pub fn read_lines(from: impl Read, mut take: impl FnMut(String) -> bool) {
    let mut reader = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !take(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned()) {
            return;
        }
    }
}

/// Returns local addresses with ports that are free now.
pub fn free_addresses(count: usize) -> Result<Vec<String>, Failure> {
    cluster::unused_addresses(count).map_err(|error| Failure::new(format!("no free ports: {error}")))
}
