//! [`LogLimit`]: keeps log lines that input causes from filling the disk.

use crate::clock::now;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Lets one line, or a few, through in every interval, and counts the others. Use it in a `static` beside the line.
pub struct LogLimit {
    interval: Duration,
    lines_max: u32,
    state: Mutex<State>,
}

struct State {
    /// The start of the current interval.
    began: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Returns a limit of one line in every interval.
    pub const fn new(interval: Duration) -> LogLimit {
        LogLimit::several(1, interval)
    }

    /// Returns a limit of several lines in every interval, for lines that belong together.
    pub const fn several(lines_max: u32, interval: Duration) -> LogLimit {
        LogLimit { interval, lines_max, state: Mutex::new(State { began: None, written: 0, suppressed: 0 }) }
    }

    /// Returns the number of lines left out since the last one, if a line may be written now.
    pub fn allow(&self) -> Option<u64> {
        self.allow_at(now())
    }

    /// Returns the suffix for a line after some were left out.
    pub fn left_out(count: u64) -> String {
        if count == 0 { String::new() } else { format!(" (and {count} more such lines since the last one)") }
    }

    fn allow_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.began.is_none_or(|began| now.saturating_duration_since(began) >= self.interval) {
            state.began = Some(now);
            state.written = 0;
        }
        if state.written >= self.lines_max {
            state.suppressed += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_an_interval_says_how_many_were_left_out() {
        let limit = LogLimit::new(Duration::from_secs(10));
        let start = Instant::now();
        assert_eq!(limit.allow_at(start), Some(0));
        assert_eq!(limit.allow_at(start + Duration::from_secs(1)), None);
        assert_eq!(limit.allow_at(start + Duration::from_secs(9)), None);
        assert_eq!(limit.allow_at(start + Duration::from_secs(10)), Some(2));
        assert_eq!(limit.allow_at(start + Duration::from_secs(11)), None);
        assert_eq!(limit.allow_at(start + Duration::from_secs(30)), Some(1));
    }

    #[test]
    fn lines_that_belong_together_may_be_written_together() {
        let limit = LogLimit::several(3, Duration::from_secs(10));
        let start = Instant::now();
        let written = (0..5).filter(|_| limit.allow_at(start).is_some()).count();
        assert_eq!(written, 3);
        assert_eq!(limit.allow_at(start + Duration::from_secs(10)), Some(2));
        assert_eq!(limit.allow_at(start + Duration::from_secs(10)), Some(0));
        assert_eq!(LogLimit::left_out(0), "");
        assert!(LogLimit::left_out(2).contains('2'));
    }
}
