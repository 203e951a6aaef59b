//! The checkpoints that kernels of this process have written lately, for people who want to know what a crash would lose.

use numeric::environment;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How many are remembered.
const SAVES_MAX: usize = 16;

/// How much of a prefix is remembered.
const PREFIX_CHARS_MAX: usize = 256;

/// A checkpoint, or a part of one, that was written.
#[derive(Clone, Debug)]
pub struct Save {
    /// The prefix of its files.
    pub prefix: String,
    /// How many bytes of tensors it has.
    pub bytes: u64,
    /// How long it took to write.
    pub took: Duration,
    /// When it was done.
    pub ended: Instant,
}

/// What was saved by this process.
#[derive(Clone, Debug, Default)]
pub struct SavesSummary {
    /// How many checkpoints and parts were written.
    pub count: u64,
    /// How long that took in all.
    pub total: Duration,
    /// The last ones, the oldest first.
    pub last: Vec<Save>,
}

#[derive(Default)]
struct Saves {
    count: u64,
    total: Duration,
    last: VecDeque<Save>,
}

static SAVES: Mutex<Option<Saves>> = Mutex::new(None);

/// Notes that a checkpoint was written, which began at `started`.
pub fn note_save(prefix: &str, bytes: u64, started: Instant) {
    let (took, ended) = (environment::elapsed(started), environment::now());
    let save = Save { prefix: prefix.chars().take(PREFIX_CHARS_MAX).collect(), bytes, took, ended };
    let mut saves = SAVES.lock();
    let saves = saves.get_or_insert_default();
    saves.count += 1;
    saves.total += took;
    if saves.last.len() >= SAVES_MAX {
        saves.last.pop_front();
    }
    saves.last.push_back(save);
}

/// Returns what was saved.
pub fn saves() -> SavesSummary {
    let saves = SAVES.lock();
    let Some(saves) = saves.as_ref() else { return SavesSummary::default() };
    SavesSummary { count: saves.count, total: saves.total, last: saves.last.iter().cloned().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_saves_are_remembered() {
        let prefix = "x".repeat(2 * PREFIX_CHARS_MAX);
        for bytes in 0..2 * SAVES_MAX as u64 {
            note_save(&prefix, bytes, environment::now());
        }
        let summary = saves();
        assert_eq!((summary.count, summary.last.len()), (2 * SAVES_MAX as u64, SAVES_MAX));
        let last = summary.last.last().expect("there are some");
        assert_eq!((last.bytes, last.prefix.len()), (2 * SAVES_MAX as u64 - 1, PREFIX_CHARS_MAX));
    }
}
