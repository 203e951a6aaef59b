//! [`LogLimit`]: keeps a log line that input can cause from filling the disk.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Lets one line through in every interval, and counts the others. It is meant for a `static` beside the line.
pub struct LogLimit {
    interval: Duration,
    state: Mutex<State>,
}

struct State {
    last_allowed: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    /// Makes a limit of one line in every interval.
    pub const fn new(interval: Duration) -> LogLimit {
        LogLimit { interval, state: Mutex::new(State { last_allowed: None, suppressed: 0 }) }
    }

    /// Returns how many lines were left out since the last one, if a line may be written now.
    pub fn allow(&self) -> Option<u64> {
        self.allow_at(Instant::now())
    }

    /// Returns what a line ends with that follows some that were left out.
    pub fn left_out(count: u64) -> String {
        if count == 0 { String::new() } else { format!(" (and {count} more such lines since the last one)") }
    }

    fn allow_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last_allowed.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            state.suppressed += 1;
            return None;
        }
        state.last_allowed = Some(now);
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
}
