//! How often the tasks of `train --processes` are restarted, and when.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most restarts of all tasks together within [`PERIOD`].
pub const RESTARTS_MAX: usize = 10;

/// The period in which restarts are counted.
pub const PERIOD: Duration = Duration::from_secs(3600);

/// The number of ends in a row without progress after which another start won't help.
pub const FUTILE_MAX: u32 = 3;

/// Counts restarts.
#[derive(Default)]
pub struct Restarts {
    at: VecDeque<Instant>,
}

impl Restarts {
    /// Counts a restart. Returns its number within the last hour, or `None` if it is one too many.
    pub fn count(&mut self, now: Instant) -> Option<usize> {
        while self.at.front().is_some_and(|&at| now.saturating_duration_since(at) >= PERIOD) {
            self.at.pop_front();
        }
        if self.at.len() >= RESTARTS_MAX {
            return None;
        }
        self.at.push_back(now);
        Some(self.at.len())
    }
}

/// Returns the delay before the restart of a task that has ended this many times in a row without progress.
pub fn pause(futile: u32) -> Duration {
    match futile {
        0 => Duration::ZERO,
        // The cause may pass, such as a port that another program uses for a moment.
        _ => Duration::from_secs(1 << futile.saturating_sub(1).min(5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_within_any_hour() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let minute = Duration::from_secs(60);
        for index in 0..10 {
            assert_eq!(restarts.count(start + index * minute), Some(index as usize + 1));
        }
        assert_eq!(restarts.count(start + 59 * minute), None);
        assert_eq!(restarts.count(start + 60 * minute), Some(10));
        assert_eq!(restarts.count(start + 60 * minute), None);
        assert_eq!(restarts.count(start + 61 * minute), Some(10));
        assert_eq!(restarts.count(start + 200 * minute), Some(1));
    }

    #[test]
    fn the_first_one_is_at_once() {
        assert_eq!([0, 1, 2, 3, 40].map(|futile| pause(futile).as_secs()), [0, 1, 2, 4, 32]);
    }
}
