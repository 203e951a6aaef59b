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

/// A loop also runs the way that was slower if it last did so this long ago, so that what a busy moment taught is forgotten after
/// a few seconds, however seldom the loop runs.
const RETRY_AFTER_MS: u32 = 1000;

/// The largest steps towards a sample, as parts of the estimate. Whatever else the machine does makes a loop slower and never
/// faster: an estimate soon follows a sample below it, and only slowly many above it.
const STEP_DOWN: f32 = 0.25;
const STEP_UP: f32 = 0.0625;

/// Helpers pay if a loop takes at most this fraction of its time without them.
const WORTH: f32 = 0.8;

static TABLE: [History; HISTORIES] = [const { History::new() }; HISTORIES];

/// The history of loops of one cost. Concurrent writes may overwrite each other, which matters little.
pub(super) struct History {
    loops: AtomicU32,
    /// The time that a loop takes relative to its estimated cost, as the bits of a float; 0 before the first loop.
    alone: AtomicU32,
    split: AtomicU32,
    /// When the way that was slower was last tried, in milliseconds of the caller's clock.
    tried_ms: AtomicU32,
}

impl History {
    const fn new() -> History {
        History {
            loops: AtomicU32::new(0),
            alone: AtomicU32::new(0),
            split: AtomicU32::new(0),
            tried_ms: AtomicU32::new(0),
        }
    }

    /// Returns the history of loops of about this cost.
    pub(super) fn of(cost_ns: f64) -> &'static History {
        // The exponent and a few bits of the fraction: costs within three percent of each other are equal.
        let rounded = cost_ns.to_bits() >> 47;
        let mixed = rounded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &TABLE[mixed as usize % HISTORIES]
    }

    /// Returns whether the next loop invites helpers. The clock may wrap.
    pub(super) fn invites(&self, now_ms: u32) -> bool {
        let loops = self.loops.fetch_add(1, Ordering::Relaxed);
        let alone = f32::from_bits(self.alone.load(Ordering::Relaxed));
        let split = f32::from_bits(self.split.load(Ordering::Relaxed));
        if loops < TRIALS || alone == 0.0 || split == 0.0 {
            self.tried_ms.store(now_ms, Ordering::Relaxed);
            return loops.is_multiple_of(2);
        }
        let helps = split < alone * WORTH;
        let tried_ms = self.tried_ms.load(Ordering::Relaxed);
        let is_due = loops.is_multiple_of(RETRY) || now_ms.wrapping_sub(tried_ms) >= RETRY_AFTER_MS;
        // One thread tries, not all that find it due at the same time.
        let tries =
            is_due && self.tried_ms.compare_exchange(tried_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        helps != tries
    }

    /// Records how long a loop took.
    pub(super) fn note(&self, was_split: bool, cost_ns: f64, took_ns: f64) {
        let cell = if was_split { &self.split } else { &self.alone };
        let before = f32::from_bits(cell.load(Ordering::Relaxed));
        let sample = (took_ns / cost_ns) as f32;
        let step = (sample - before).clamp(-before * STEP_DOWN, before * STEP_UP);
        let after = if before == 0.0 { sample } else { before + step };
        cell.store(after.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history, and the clock of those who use it.
    struct Loops {
        history: History,
        now_ms: u32,
    }

    impl Loops {
        fn new() -> Loops {
            Loops { history: History::new(), now_ms: u32::MAX - 50 }
        }

        /// Runs a loop every so many milliseconds, and returns how many of the last hundred were split.
        fn run(&mut self, loops: usize, every_ms: u32, took_ns: impl Fn(usize, bool) -> f64) -> usize {
            let mut split = 0;
            for number in 0..loops {
                self.now_ms = self.now_ms.wrapping_add(every_ms);
                let invites = self.history.invites(self.now_ms);
                self.history.note(invites, 1e5, took_ns(number, invites));
                split += usize::from(invites && number + 100 >= loops);
            }
            split
        }
    }

    /// Times of loops that helpers make shorter.
    fn helped(_: usize, split: bool) -> f64 {
        if split { 6e4 } else { 1e5 }
    }

    /// Times of loops while another process uses the other cores.
    fn busy(_: usize, split: bool) -> f64 {
        if split { 3e5 } else { 1e5 }
    }

    #[test]
    fn helpers_that_help_are_invited() {
        let split = Loops::new().run(500, 1, helped);
        assert!((90..100).contains(&split), "{split}: nearly always, but not always");
    }

    #[test]
    fn helpers_that_bring_nothing_are_left_alone() {
        let split = Loops::new().run(500, 1, |_, split| if split { 9.5e4 } else { 1e5 });
        assert!((1..10).contains(&split), "{split}: seldom, but now and then");
    }

    #[test]
    fn interruptions_dont_decide() {
        let took = |number: usize, split: bool| match (number % 10, split) {
            (3, _) => 5e7,
            (_, true) => 6e4,
            (_, false) => 1e5,
        };
        let split = Loops::new().run(2000, 1, took);
        assert!(split > 90, "{split}");
    }

    #[test]
    fn what_changes_is_noticed() {
        let mut loops = Loops::new();
        assert!(loops.run(500, 1, |_, split| if split { 1.1e5 } else { 1e5 }) < 10);
        assert!(loops.run(3000, 1, |_, split| if split { 5.5e4 } else { 1e5 }) > 90);
        assert!(loops.run(3000, 1, |_, split| if split { 1.1e5 } else { 1e5 }) < 10);
    }

    #[test]
    fn a_busy_moment_is_forgotten_after_a_few_loops() {
        let mut loops = Loops::new();
        assert!(loops.run(500, 0, helped) > 90);
        assert!(loops.run(2000, 0, busy) < 10, "while it lasts, few are split");
        loops.run(300, 0, helped);
        assert!(loops.run(100, 0, helped) > 90);
    }

    #[test]
    fn a_busy_moment_is_forgotten_after_a_few_seconds_by_a_loop_that_seldom_runs() {
        let mut loops = Loops::new();
        loops.run(500, 1, busy);
        // Two loops a second: far fewer than the retries by number need.
        loops.run(20, 500, helped);
        assert!(loops.run(10, 500, helped) >= 5, "after ten seconds most are split");
    }

    #[test]
    fn a_loop_that_begins_in_a_busy_moment_learns_like_any_other() {
        let mut loops = Loops::new();
        assert!(loops.run(TRIALS as usize, 1, busy) <= TRIALS as usize / 2);
        loops.run(300, 1, helped);
        assert!(loops.run(100, 1, helped) > 90);
    }

    #[test]
    fn only_one_of_those_who_find_it_due_tries() {
        let mut loops = Loops::new();
        loops.run(100, 1, helped);
        let later = loops.now_ms.wrapping_add(RETRY_AFTER_MS);
        assert!(!loops.history.invites(later), "the first one tries without helpers");
        assert!(loops.history.invites(later), "the others do as always");
    }

    #[test]
    fn costs_that_differ_have_histories_of_their_own() {
        assert!(std::ptr::eq(History::of(100_000.0), History::of(100_100.0)));
        assert!(!std::ptr::eq(History::of(100_000.0), History::of(200_000.0)));
        assert!(!std::ptr::eq(History::of(100_000.0), History::of(110_000.0)));
    }
}
