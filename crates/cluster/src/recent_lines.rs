//! The last log lines of this process, for remote monitoring.

use crate::clock::system_time;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::UNIX_EPOCH;

/// The number of lines kept, and the most characters of each.
const LINES_MAX: usize = 100;
const LINE_CHARS_MAX: usize = 400;

/// A line that was logged.
#[derive(Clone, Debug)]
pub struct RecentLine {
    /// The time, in microseconds since the epoch.
    pub at_micros: u64,
    /// The level, such as `WARN`.
    pub level: &'static str,
    /// The text.
    pub text: String,
}

static LINES: Mutex<VecDeque<RecentLine>> = Mutex::new(VecDeque::new());

/// Adds a line, and drops the oldest one.
pub fn keep_line(level: &'static str, text: &str) {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = text.chars().take(LINE_CHARS_MAX).collect();
    let mut lines = LINES.lock();
    if lines.len() >= LINES_MAX {
        lines.pop_front();
    }
    lines.push_back(RecentLine { at_micros: since.as_micros() as u64, level, text });
}

/// Returns the last lines, at most `count`, oldest first.
pub(crate) fn recent_lines(count: usize) -> Vec<RecentLine> {
    let lines = LINES.lock();
    lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_cut() {
        (0..2 * LINES_MAX).for_each(|number| keep_line("INFO", &format!("{number} {}", "x".repeat(LINE_CHARS_MAX))));
        let lines = recent_lines(usize::MAX);
        assert_eq!(lines.len(), LINES_MAX);
        assert!(lines.iter().all(|line| line.text.len() == LINE_CHARS_MAX));
        assert!(recent_lines(1)[0].text.starts_with(&format!("{} ", 2 * LINES_MAX - 1)));
    }
}
