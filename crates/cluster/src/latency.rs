//! [`Latencies`]: a histogram of the latencies of calls that takes little memory and no lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The number of classes in each doubling of the time, so that results are accurate to an eighth.
const CLASSES_PER_DOUBLING: u32 = 4;
const CLASS_BITS: u32 = CLASSES_PER_DOUBLING.trailing_zeros();

/// Up to 2^32 microseconds, more than an hour; longer times count in the last class.
const CLASSES: usize = 32 * CLASSES_PER_DOUBLING as usize;

/// The latencies of calls.
pub(crate) struct Latencies {
    counts: [AtomicU64; CLASSES],
}

/// A summary of the latencies of a client's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySummary {
    /// The number of calls.
    pub count: u64,
    /// The median.
    pub median: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { counts: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Latencies {
    /// Counts a call.
    pub fn record(&self, took: Duration) {
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.counts[class(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a summary; each time is the upper end of its class.
    pub fn summary(&self) -> LatencySummary {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let count: u64 = counts.iter().sum();
        let at = |percent: u64| {
            let wanted = (count * percent).div_ceil(100);
            let mut seen = 0;
            let found = counts.iter().position(|&number| {
                seen += number;
                seen >= wanted
            });
            Duration::from_micros(found.filter(|_| count > 0).map_or(0, upper_end))
        };
        LatencySummary { count, median: at(50), p99: at(99) }
    }
}

impl fmt::Display for LatencySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        write!(f, "{} calls, median {:.2} ms, p99 {:.2} ms", self.count, millis(self.median), millis(self.p99))
    }
}

/// Returns the class of a time: its power of two, and the position between it and the next.
fn class(micros: u32) -> usize {
    let Some(power) = micros.checked_ilog2().filter(|&power| power >= CLASS_BITS) else { return micros as usize };
    let part = (micros >> (power - CLASS_BITS)) & (CLASSES_PER_DOUBLING - 1);
    ((power - CLASS_BITS + 1) * CLASSES_PER_DOUBLING + part) as usize
}

/// Returns the longest time in a class.
fn upper_end(class: usize) -> u64 {
    let (doubling, part) =
        (class as u64 / u64::from(CLASSES_PER_DOUBLING), class as u64 % u64::from(CLASSES_PER_DOUBLING));
    match doubling {
        0 => part,
        _ => ((u64::from(CLASSES_PER_DOUBLING) + part + 1) << (doubling - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_its_class() {
        let mut last = 0;
        for micros in (0..5000).chain([u32::MAX - 1, u32::MAX]) {
            let class = class(micros);
            assert!(class < CLASSES && class >= last);
            assert!(u64::from(micros) <= upper_end(class), "{micros} in {class}");
            assert!(class == 0 || u64::from(micros) > upper_end(class - 1), "{micros} in {class}");
            last = class;
        }
    }

    #[test]
    fn a_hundredth_is_told_from_the_rest() {
        let latencies = Latencies::default();
        assert_eq!(latencies.summary(), LatencySummary { count: 0, median: Duration::ZERO, p99: Duration::ZERO });
        for _ in 0..98 {
            latencies.record(Duration::from_micros(100));
        }
        latencies.record(Duration::from_millis(10));
        latencies.record(Duration::from_secs(7200));
        let summary = latencies.summary();
        assert_eq!((summary.count, summary.median), (100, Duration::from_micros(111)));
        assert!((10_000..12_500).contains(&summary.p99.as_micros()), "{summary}");
    }
}
