//! Random numbers that equal TensorFlow's: Philox 4x32-10 with the same seeding, the same counter layout and the same
//! distributions, so that the same seeds give the same numbers.
//!
//! A stateful op owns a [`GuardedPhilox`] behind a lock, and reserves samples for each run. It gets a [`Philox`], which any
//! number of threads can read, since a sample is a function of the counter alone.

mod binomial;
mod bounded;
mod discrete;
mod distributions;
mod gamma;

pub use binomial::random_binomial;
pub use bounded::{BoundedFloat, BoundedNormal, BoundedNormalError, fill_bounded_normal};
pub use discrete::{multinomial, shuffle, shuffled_indices};
pub use distributions::{
    RandomFloat, RandomInteger, fill_full_range_integers, fill_standard_normal, fill_truncated_normal, fill_uniform,
    fill_uniform_integers,
};
pub use gamma::{random_gamma, random_poisson};

/// 32-bit words of one sample.
pub const WORDS: usize = 4;

/// The samples that TensorFlow reserves for each output, used or not.
pub const RESERVED_PER_OUTPUT: u64 = 256;

/// A position in a stream of 128-bit samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    counter: [u32; 4],
    key: [u32; 2],
}

impl Philox {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Philox::from_seeds(seed, 0)
    }

    /// Returns the stream of an op's `seed` and `seed2`.
    pub fn from_seeds(seed: u64, seed2: u64) -> Self {
        Philox { counter: [0, 0, seed2 as u32, (seed2 >> 32) as u32], key: [seed as u32, (seed >> 32) as u32] }
    }

    /// Returns the stream at a counter and key, as stateless ops and the state of generators give them.
    pub fn from_state(counter: [u64; 2], key: u64) -> Self {
        Philox {
            counter: [counter[0] as u32, (counter[0] >> 32) as u32, counter[1] as u32, (counter[1] >> 32) as u32],
            key: [key as u32, (key >> 32) as u32],
        }
    }

    /// Returns the stream of a stateless op's two seeds. They are scrambled, so that similar seeds give different streams.
    pub fn from_stateless_seed(seed: [u64; 2]) -> Self {
        let scramble = Philox { key: [0x3ec8_f720, 0x0246_1e29], ..Philox::from_state(seed, 0) };
        let [first, second, third, fourth] = scramble.sample(0);
        Philox { counter: [0, 0, third, fourth], key: [first, second] }
    }

    /// Returns the counter.
    pub fn counter(&self) -> [u64; 2] {
        let [a, b, c, d] = self.counter.map(u64::from);
        [a | b << 32, c | d << 32]
    }

    /// Returns the key.
    pub fn key(&self) -> u64 {
        u64::from(self.key[0]) | u64::from(self.key[1]) << 32
    }

    /// Skips `samples` samples of 128 bits.
    pub fn skip(&mut self, samples: u64) {
        self.counter = self.counter_at(samples);
    }

    /// Returns the next sample.
    pub fn next_sample(&mut self) -> [u32; WORDS] {
        let sample = self.sample(0);
        self.skip(1);
        sample
    }

    /// Returns the sample `ahead` samples after the current one.
    pub fn sample(&self, ahead: u64) -> [u32; WORDS] {
        let lanes = rounds(self.counter_at(ahead).map(|word| [word]), self.key);
        lanes.map(|[word]| word)
    }

    #[inline(always)]
    fn counter_at(&self, ahead: u64) -> [u32; 4] {
        let [low, high] = self.counter();
        let sum = (u128::from(low) | u128::from(high) << 64).wrapping_add(u128::from(ahead));
        [sum as u32, (sum >> 32) as u32, (sum >> 64) as u32, (sum >> 96) as u32]
    }

    /// Returns `N` consecutive samples from `ahead` on, word by word.
    #[inline(always)]
    fn samples<const N: usize>(&self, ahead: u64) -> [[u32; N]; WORDS] {
        let counter = self.counter_at(ahead);
        let mut lanes = counter.map(|word| [word; N]);
        if counter[0] <= u32::MAX - N as u32 {
            for lane in 0..N {
                lanes[0][lane] += lane as u32;
            }
        } else {
            for lane in 0..N {
                let counter = self.counter_at(ahead.wrapping_add(lane as u64));
                for word in 0..WORDS {
                    lanes[word][lane] = counter[word];
                }
            }
        }
        rounds(lanes, self.key)
    }
}

/// Computes the ten rounds for `N` counters side by side. Words are the low halves of 64 bits, as the processors' vector
/// multiplications take them, so that nothing is widened or packed in between.
#[inline(always)]
fn rounds<const N: usize>(words: [[u32; N]; WORDS], mut key: [u32; 2]) -> [[u32; N]; WORDS] {
    const MULTIPLIERS: [u64; 2] = [0xd251_1f53, 0xcd9e_8d57];
    const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    const LOW: u64 = 0xffff_ffff;
    let mut wide = [[0u64; N]; WORDS];
    for word in 0..WORDS {
        for lane in 0..N {
            wide[word][lane] = u64::from(words[word][lane]);
        }
    }
    for _ in 0..10 {
        for lane in 0..N {
            let first = MULTIPLIERS[0] * (wide[0][lane] & LOW);
            let second = MULTIPLIERS[1] * (wide[2][lane] & LOW);
            wide[0][lane] = (second >> 32) ^ wide[1][lane] ^ u64::from(key[0]);
            wide[1][lane] = second;
            wide[2][lane] = (first >> 32) ^ wide[3][lane] ^ u64::from(key[1]);
            wide[3][lane] = first;
        }
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    let mut words = [[0; N]; WORDS];
    for word in 0..WORDS {
        for lane in 0..N {
            words[word][lane] = wide[word][lane] as u32;
        }
    }
    words
}

/// The generator of a stateful op, which hands out disjoint parts of its stream. The owner keeps it behind a lock.
#[derive(Clone, Debug)]
pub struct GuardedPhilox {
    philox: Philox,
}

impl GuardedPhilox {
    /// Returns the generator of an op's `seed` and `seed2`. (An op whose seeds are both 0 draws them at random.)
    pub fn new(seed: i64, seed2: i64) -> Self {
        GuardedPhilox { philox: Philox::from_seeds(seed as u64, seed2 as u64) }
    }

    /// Returns a generator that starts at a given position.
    pub fn from_philox(philox: Philox) -> Self {
        GuardedPhilox { philox }
    }

    /// Reserves samples of 128 bits.
    pub fn reserve_samples128(&mut self, samples: u64) -> Philox {
        let reserved = self.philox;
        self.philox.skip(samples);
        reserved
    }

    /// Reserves samples of 32 bits.
    pub fn reserve_samples32(&mut self, samples: u64) -> Philox {
        self.reserve_samples128(samples.div_ceil(WORDS as u64))
    }

    /// Reserves what TensorFlow reserves for an output of `count` elements of any distribution of this module; shuffling reserves
    /// less.
    pub fn reserve_outputs(&mut self, count: u64) -> Philox {
        self.reserve_samples128(count.wrapping_mul(RESERVED_PER_OUTPUT))
    }
}

/// Hands out the words of a stream one at a time.
struct Words {
    philox: Philox,
    sample: [u32; WORDS],
    used: usize,
}

impl Words {
    #[inline(always)]
    fn from(philox: Philox) -> Self {
        Words { philox, sample: [0; WORDS], used: WORDS }
    }

    #[inline(always)]
    fn next(&mut self) -> u32 {
        if self.used == WORDS {
            self.sample = self.philox.next_sample();
            self.used = 0;
        }
        self.used += 1;
        self.sample[self.used - 1]
    }
}

#[cfg(test)]
mod tests;
