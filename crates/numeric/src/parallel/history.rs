//! Records how long loops took with helpers and without, to learn whether helpers pay.
//!
//! They do not where two cores are hyper-threads of one, or are busy with other processes: then a split loop takes as long as
//! an unsplit one, and waking the helpers costs the other threads' time.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of histories. Loops of about the same cost share one; others share one only if their hashes collide.
const HISTORIES: usize = 256;

/// The number of loops at the start of a history of which every other one is split.
const TRIALS: u32 = 8;

/// One loop in this many runs the way that was slower, in case that has changed. Odd, so that a step of a few loops does not
/// always try the same one.
const RETRY: u32 = 31;

/// Helpers pay if a loop takes at most this fraction of its time without them.
const WORTH: f32 = 0.8;

static TABLE: [History; HISTORIES] = [const { History::new() }; HISTORIES];

/// The history of loops of one cost. Concurrent writes may overwrite each other, which matters little.
pub(super) struct History {
    loops: AtomicU32,
    /// The time that a loop takes relative to its estimated cost, as the bits of a float; 0 before the first loop.
    alone: AtomicU32,
    split: AtomicU32,
}

impl History {
    const fn new() -> History {
        History { loops: AtomicU32::new(0), alone: AtomicU32::new(0), split: AtomicU32::new(0) }
    }

    /// Returns the history of loops of about this cost.
    pub(super) fn of(cost_ns: f64) -> &'static History {
        // The exponent and a few bits of the fraction: costs within three percent of each other are equal.
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

    /// Records how long a loop took.
    pub(super) fn note(&self, was_split: bool, cost_ns: f64, took_ns: f64) {
        let cell = if was_split { &self.split } else { &self.alone };
        let before = f32::from_bits(cell.load(Ordering::Relaxed));
        let sample = (took_ns / cost_ns) as f32;
        // Moves towards the sample by a bounded step, so that an interrupted loop counts no more than any other.
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
