//! The checkpoints that kernels of this process have written lately, to show what a crash would lose.

use numeric::environment;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of checkpoints that are remembered.
const SAVES_MAX: usize = 16;

/// The part of a prefix that is remembered.
const PREFIX_CHARS_MAX: usize = 256;

/// A written checkpoint, or a shard of one.
#[derive(Clone, Debug)]
pub struct Save {
    /// The prefix of its files.
    pub prefix: String,
    /// The bytes of its tensors.
    pub bytes: u64,
    /// The time that writing took.
    pub took: Duration,
    /// The time when it was complete.
    pub ended: Instant,
}

/// The checkpoints that this process has written.
#[derive(Clone, Debug, Default)]
pub struct SavesSummary {
    /// The number of checkpoints and shards.
    pub count: u64,
    /// The total time that writing took.
    pub total: Duration,
    /// The last ones, oldest first.
    pub last: Vec<Save>,
}

#[derive(Default)]
struct Saves {
    count: u64,
    total: Duration,
    last: VecDeque<Save>,
}

static SAVES: Mutex<Option<Saves>> = Mutex::new(None);

/// Records a checkpoint that has been written since `started`.
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

/// Returns the checkpoints that this process has written.
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
