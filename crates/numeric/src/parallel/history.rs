//! Remembers how long loops took with helpers and without, and so whether helpers help.
//!
//! They don't where two cores are threads of one, or are taken by other processes: a loop that was split takes as long as it
//! would have taken alone, and what it cost to wake the helpers and to do small things twice is lost to everybody.

use std::sync::atomic::{AtomicU32, Ordering};

/// Loops of about the same cost share a history; it has room for so many before two costs share one by chance.
const HISTORIES: usize = 256;

/// Loops at the start of a history, of which every other one is split.
const TRIALS: u32 = 8;

/// One loop in so many is run the way that seemed worse, which may have changed. Odd, so that steps of a few loops don't
/// always try the same one.
const RETRY: u32 = 31;

/// Helpers are worth what they cost when a loop takes at most this part of the time that it takes alone.
const WORTH: f32 = 0.8;

static TABLE: [History; HISTORIES] = [const { History::new() }; HISTORIES];

/// What is known about loops of one cost. Threads that write at once may overwrite each other, which matters little.
pub(super) struct History {
    loops: AtomicU32,
    /// How long a loop takes compared to its estimated cost, as the bits of a float; 0 while there was none.
    alone: AtomicU32,
    split: AtomicU32,
}

impl History {
    const fn new() -> History {
        History { loops: AtomicU32::new(0), alone: AtomicU32::new(0), split: AtomicU32::new(0) }
    }

    /// Returns the history of loops of about this cost.
    pub(super) fn of(cost_ns: f64) -> &'static History {
        // The exponent and a few bits of the fraction: costs within three percent of each other.
        let rounded = cost_ns.to_bits() >> 47;
        let mixed = rounded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &TABLE[mixed as usize % HISTORIES]
    }

    /// Returns whether the next loop invites helpers.
    pub(super) fn invites(&self) -> bool {
        let loops = self.loops.fetch_add(1, Ordering::Relaxed);
        let alone = f32::from_bits(self.alone.load(Ordering::Relaxed));
        let split = f32::from_bits(self.split.load(Ordering::Relaxed));
        if loops < TRIALS || alone == 0.0 || split == 0.0 {
            return loops.is_multiple_of(2);
        }
        let helps = split < alone * WORTH;
        helps != loops.is_multiple_of(RETRY)
    }

    /// Notes how long a loop took.
    pub(super) fn note(&self, was_split: bool, cost_ns: f64, took_ns: f64) {
        let cell = if was_split { &self.split } else { &self.alone };
        let before = f32::from_bits(cell.load(Ordering::Relaxed));
        let sample = (took_ns / cost_ns) as f32;
        // Small steps towards the sample: a loop that was interrupted says no more than any other.
        let after = if before == 0.0 { sample } else { before + (sample - before).clamp(-before / 8.0, before / 8.0) };
        cell.store(after.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs loops of a history and returns how many of the last hundred were split.
    fn run(history: &History, loops: usize, took_ns: impl Fn(usize, bool) -> f64) -> usize {
        let mut split = 0;
        for number in 0..loops {
            let invites = history.invites();
            history.note(invites, 1e5, took_ns(number, invites));
            split += usize::from(invites && number + 100 >= loops);
        }
        split
    }

    #[test]
    fn helpers_that_help_are_invited() {
        let split = run(&History::new(), 500, |_, split| if split { 6e4 } else { 1e5 });
        assert!((90..100).contains(&split), "{split}: nearly always, but not always");
    }

    #[test]
    fn helpers_that_bring_nothing_are_left_alone() {
        let split = run(&History::new(), 500, |_, split| if split { 9.5e4 } else { 1e5 });
        assert!((1..10).contains(&split), "{split}: seldom, but now and then");
    }

    #[test]
    fn interruptions_dont_decide() {
        let took = |number: usize, split: bool| match (number % 10, split) {
            (3, _) => 5e7,
            (_, true) => 6e4,
            (_, false) => 1e5,
        };
        let split = run(&History::new(), 2000, took);
        assert!(split > 90, "{split}");
    }

    #[test]
    fn what_changes_is_noticed() {
        let history = History::new();
        assert!(run(&history, 500, |_, split| if split { 1.1e5 } else { 1e5 }) < 10);
        assert!(run(&history, 3000, |_, split| if split { 5.5e4 } else { 1e5 }) > 90);
        assert!(run(&history, 3000, |_, split| if split { 1.1e5 } else { 1e5 }) < 10);
    }

    #[test]
    fn costs_that_differ_have_histories_of_their_own() {
        assert!(std::ptr::eq(History::of(100_000.0), History::of(100_100.0)));
        assert!(!std::ptr::eq(History::of(100_000.0), History::of(200_000.0)));
        assert!(!std::ptr::eq(History::of(100_000.0), History::of(110_000.0)));
    }
}
