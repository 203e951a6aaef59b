//! Where random numbers come from: Philox 4x32-10, seeded and counted as TensorFlow does.

use std::hash::{BuildHasher, Hasher};

/// A stream of blocks of four numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Philox {
    key: [u32; 2],
    counter: [u32; 4],
}

impl Philox {
    /// Starts the stream that belongs to an op's `seed` and `seed2`; without both it is a new one every time.
    pub(crate) fn from_seeds((seed, seed2): (i64, i64)) -> Philox {
        let (low, high) =
            if (seed, seed2) == (0, 0) { (random_bits(), random_bits()) } else { (seed as u64, seed2 as u64) };
        Philox { key: [low as u32, (low >> 32) as u32], counter: [0, 0, high as u32, (high >> 32) as u32] }
    }

    /// Returns the next block.
    pub(crate) fn next_block(&mut self) -> [u32; 4] {
        const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
        const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
        let (mut block, mut key) = (self.counter, self.key);
        for _ in 0..10 {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(block[0]);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(block[2]);
            block = [
                (second >> 32) as u32 ^ block[1] ^ key[0],
                second as u32,
                (first >> 32) as u32 ^ block[3] ^ key[1],
                first as u32,
            ];
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        for digit in &mut self.counter {
            *digit = digit.wrapping_add(1);
            if *digit != 0 {
                break;
            }
        }
        block
    }
}

/// A stream that gives one number at a time.
pub(crate) struct SingleSample {
    stream: Philox,
    block: [u32; 4],
    used: usize,
}

impl SingleSample {
    pub(crate) fn new(seeds: (i64, i64)) -> SingleSample {
        SingleSample { stream: Philox::from_seeds(seeds), block: [0; 4], used: 4 }
    }

    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.used == self.block.len() {
            self.block = self.stream.next_block();
            self.used = 0;
        }
        let number = self.block[self.used];
        self.used += 1;
        number
    }
}

/// Returns bits that nobody can foresee: the keys that the standard library draws for its hash maps.
pub(crate) fn random_bits() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
