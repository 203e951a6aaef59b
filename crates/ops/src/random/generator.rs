//! Sources of random numbers: a stateful op's generator, its seeds, and the common arguments of random ops.

use kernel::{KernelBuilder, ShapeContext};
use numeric::philox::{GuardedPhilox, Philox, WORDS};
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher};
use tensor::{DType, Result, Shape, Status, Tensor};

/// A node's generator, which lives as long as its session.
pub(crate) struct Generator {
    state: Mutex<GuardedPhilox>,
}

impl Generator {
    /// Returns the generator for a node's `seed` and `seed2`.
    pub(crate) fn new(builder: &KernelBuilder<'_>) -> Result<Generator> {
        let philox = seeded((builder.attrs().int("seed")?, builder.attrs().int("seed2")?));
        Ok(Generator { state: Mutex::new(GuardedPhilox::from_philox(philox)) })
    }

    /// Reserves the same range as TensorFlow for `count` outputs.
    pub(super) fn reserve_outputs(&self, count: usize) -> Philox {
        self.state.lock().reserve_outputs(count as u64)
    }

    /// Reserves samples of 32 bits and returns them one at a time.
    pub(crate) fn reserve_single_samples(&self, samples: usize) -> SingleSample {
        SingleSample::from_stream(self.reserve_samples32(samples))
    }

    /// Reserves samples of 32 bits.
    pub(super) fn reserve_samples32(&self, samples: usize) -> Philox {
        self.state.lock().reserve_samples32(samples as u64)
    }
}

/// Returns the stream of an op's `seed` and `seed2`; if both are unset it is different every time.
fn seeded((seed, seed2): (i64, i64)) -> Philox {
    match (seed, seed2) {
        (0, 0) => Philox::from_seeds(random_bits(), random_bits()),
        _ => Philox::from_seeds(seed as u64, seed2 as u64),
    }
}

/// A stream that returns one number at a time.
pub(crate) struct SingleSample {
    stream: Philox,
    sample: [u32; WORDS],
    used: usize,
}

impl SingleSample {
    /// Starts the stream of an op's `seed` and `seed2`.
    pub(crate) fn new(seeds: (i64, i64)) -> SingleSample {
        SingleSample::from_stream(seeded(seeds))
    }

    /// Starts the stream of a single seed, which may be zero.
    pub(crate) fn of_seed(seed: i64) -> SingleSample {
        SingleSample::from_stream(Philox::new(seed as u64))
    }

    /// Continues a stream of which this many numbers were drawn.
    pub(crate) fn at(seeds: (i64, i64), drawn: u64) -> SingleSample {
        let mut stream = seeded(seeds);
        stream.skip(drawn / WORDS as u64);
        let mut numbers = SingleSample::from_stream(stream);
        for _ in 0..drawn % WORDS as u64 {
            numbers.next_u32();
        }
        numbers
    }

    fn from_stream(stream: Philox) -> SingleSample {
        SingleSample { stream, sample: [0; WORDS], used: WORDS }
    }

    /// Returns a uniform number below `count`.
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        if count.is_power_of_two() {
            return self.next_u32() & (count - 1);
        }
        // The lowest numbers are rejected, so that each remainder is equally likely.
        let left_out = u32::MAX % count + 1;
        loop {
            let number = self.next_u32();
            if number >= left_out {
                return number % count;
            }
        }
    }

    /// Returns a uniform 64-bit number below `count`.
    pub(crate) fn below_u64(&mut self, count: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        if count.is_power_of_two() {
            return self.next_u64() & (count - 1);
        }
        let left_out = u64::MAX % count + 1;
        loop {
            let number = self.next_u64();
            if number >= left_out {
                return number % count;
            }
        }
    }

    /// Returns a number of 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | u64::from(self.next_u32()) << 32
    }

    /// Returns a number from zero up to, but excluding, one, in double precision.
    pub(crate) fn double_fraction(&mut self) -> f64 {
        let (high, low) = (u64::from(self.next_u32() & 0x000f_ffff), u64::from(self.next_u32()));
        f64::from_bits(0x3ff0_0000_0000_0000 | high << 32 | low) - 1.0
    }

    /// Returns a number from zero up to, but excluding, one.
    pub(crate) fn fraction(&mut self) -> f32 {
        f32::from_bits(0x3f80_0000 | (self.next_u32() & 0x007f_ffff)) - 1.0
    }

    /// Returns the next number.
    pub(crate) fn next_u32(&mut self) -> u32 {
        if self.used == WORDS {
            self.sample = self.stream.next_sample();
            self.used = 0;
        }
        let number = self.sample[self.used];
        self.used += 1;
        number
    }
}

/// Returns unpredictable bits: the keys that the standard library draws for its hash maps.
pub(crate) fn random_bits() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Returns the shape that a tensor holds.
pub(super) fn shape_argument(tensor: &Tensor) -> Result<Shape> {
    if !tensor.shape().is_vector() || !matches!(tensor.dtype(), DType::Int32 | DType::Int64) {
        return Err(Status::invalid_argument(format!(
            "shape must be a vector of {{int32,int64}}, got shape {}",
            tensor.shape()
        )));
    }
    Shape::new(&tensor.to_indices()?)
}

/// The output has the shape in the first input.
pub(super) fn output_of_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?;
    c.set_output(0, shape);
    Ok(())
}
