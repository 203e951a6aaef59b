//! Where random numbers come from: a stateful op's generator, its seeds, and the arguments that random ops share.

use kernel::{KernelBuilder, ShapeContext};
use numeric::philox::{GuardedPhilox, Philox, WORDS};
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hasher};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The generator of a node, which lives as long as its session.
pub(super) struct Generator {
    state: Mutex<GuardedPhilox>,
}

impl Generator {
    /// Makes the generator of a node's `seed` and `seed2`.
    pub(super) fn new(builder: &KernelBuilder<'_>) -> Result<Generator> {
        let philox = seeded((builder.attrs().int("seed")?, builder.attrs().int("seed2")?));
        Ok(Generator { state: Mutex::new(GuardedPhilox::from_philox(philox)) })
    }

    /// Reserves what TensorFlow reserves for `count` outputs.
    pub(super) fn reserve_outputs(&self, count: usize) -> Philox {
        self.state.lock().reserve_outputs(count as u64)
    }

    /// Reserves samples of 32 bits.
    pub(super) fn reserve_samples32(&self, samples: usize) -> Philox {
        self.state.lock().reserve_samples32(samples as u64)
    }
}

/// Returns the stream of an op's `seed` and `seed2`; without both it is a new one every time.
fn seeded((seed, seed2): (i64, i64)) -> Philox {
    match (seed, seed2) {
        (0, 0) => Philox::from_seeds(random_bits(), random_bits()),
        _ => Philox::from_seeds(seed as u64, seed2 as u64),
    }
}

/// A stream that gives one number at a time.
pub(crate) struct SingleSample {
    stream: Philox,
    sample: [u32; WORDS],
    used: usize,
}

impl SingleSample {
    /// Starts the stream of an op's `seed` and `seed2`.
    pub(crate) fn new(seeds: (i64, i64)) -> SingleSample {
        SingleSample { stream: seeded(seeds), sample: [0; WORDS], used: WORDS }
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

/// Returns bits that nobody can foresee: the keys that the standard library draws for its hash maps.
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

/// The output has the shape that the first input holds.
pub(super) fn output_of_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?;
    c.set_output(0, shape);
    Ok(())
}
