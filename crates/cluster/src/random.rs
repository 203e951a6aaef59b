//! [`RandomIds`]: the one source of step ids, request ids, incarnations and session handles.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Draws ids that no other task draws. The generator is SplitMix64, whose state is a counter.
pub struct RandomIds {
    state: AtomicU64,
}

/// Step ids leave the upper bits free, as TensorFlow's do.
const STEP_ID_BITS: u32 = 56;

impl RandomIds {
    /// Makes a source with a seed of its own, for tests that must repeat.
    pub fn with_seed(seed: u64) -> RandomIds {
        RandomIds { state: AtomicU64::new(seed) }
    }

    /// Makes a source that is seeded by the operating system.
    pub fn from_system() -> RandomIds {
        // The standard library's hash keys come from the system's random source; two draws make 64 good bits.
        RandomIds::with_seed(RandomState::new().hash_one(RandomState::new().hash_one(std::process::id())))
    }

    /// Returns 64 random bits.
    pub fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bits = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a step id: positive, and random because several masters share a worker.
    pub fn next_step_id(&self) -> i64 {
        loop {
            let id = (self.next() >> (64 - STEP_ID_BITS)) as i64;
            if id != 0 {
                return id;
            }
        }
    }

    /// Returns a request id, which isn't 0.
    pub fn next_request_id(&self) -> i64 {
        loop {
            let id = self.next() as i64;
            if id != 0 {
                return id;
            }
        }
    }

    /// Returns a handle of 16 hexadecimal digits.
    pub fn next_handle(&self) -> String {
        format!("{:016x}", self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positive_and_differ() {
        let ids = RandomIds::from_system();
        let mut drawn: Vec<i64> = (0..1000).map(|_| ids.next_step_id()).collect();
        assert!(drawn.iter().all(|&id| id > 0 && id < 1 << STEP_ID_BITS));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 1000);
        assert_eq!(RandomIds::with_seed(1).next_handle(), RandomIds::with_seed(1).next_handle());
        assert_eq!(ids.next_handle().len(), 16);
    }
}
