//! Normal numbers with given mean, standard deviation and bounds.

use super::distributions::RandomFloat;
use super::{Philox, WORDS};
use half::{bf16, f16};
use num_traits::{Float, FromPrimitive, One, Zero};

/// After this many rejected numbers in a row, sampling fails.
const TRIES_MAX: u32 = 1000;

/// If both bounds lie within this many deviations of the mean, sampling from the normal distribution is not tried.
const DEVIATIONS_FOR_NORMAL: f64 = 1.3;

/// The distribution of the numbers of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BoundedNormal<F> {
    /// The mean of the untruncated distribution.
    pub mean: F,
    /// Its standard deviation.
    pub deviation: F,
    /// The lower bound.
    pub low: F,
    /// The upper bound.
    pub high: F,
}

/// Why sampling failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundedNormalError {
    /// The deviation is not positive, or the bounds leave an empty interval.
    Invalid,
    /// The named method rejected too many numbers in a row.
    OutOfReach(&'static str),
}

/// A floating-point type that bounded normal numbers can be drawn in.
pub trait BoundedFloat: RandomFloat {
    /// The type of computations.
    type Wide: Float + FromPrimitive;
    /// Converts to the type of computations.
    fn wide(self) -> Self::Wide;
    /// Rounds to this type.
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! bounded {
    ($($float:ty: $wide:ty, $to:expr, $from:expr;)*) => {$(
        impl BoundedFloat for $float {
            type Wide = $wide;
            fn wide(self) -> $wide {
                $to(self)
            }
            fn narrow(wide: $wide) -> $float {
                $from(wide)
            }
        }
    )*};
}

bounded! {
    f32: f32, |x| x, |x| x;
    f64: f64, |x| x, |x| x;
    f16: f32, f16::to_f32, f16::from_f32;
    bf16: f32, bf16::to_f32, bf16::from_f32;
}

/// Fills each `samples` elements of `out` with the numbers of the next batch. Batches follow each other in the stream.
pub fn fill_bounded_normal<T: BoundedFloat + Default>(
    mut philox: Philox,
    batch: impl Fn(usize) -> BoundedNormal<T>,
    samples: usize,
    out: &mut [T],
) -> Result<(), BoundedNormalError> {
    for (index, out) in out.chunks_mut(samples.max(1)).enumerate() {
        fill_batch(&mut philox, batch(index), out)?;
    }
    Ok(())
}

/// Fills a batch from a stream, and leaves the stream where the next batch starts.
fn fill_batch<T: BoundedFloat + Default>(
    philox: &mut Philox,
    batch: BoundedNormal<T>,
    out: &mut [T],
) -> Result<(), BoundedNormalError> {
    let number = |value: f64| T::Wide::from_f64(value).unwrap_or_else(T::Wide::nan);
    let (zero, half) = (number(0.0), number(0.5));
    let (mean, mut deviation) = (batch.mean.wide(), batch.deviation.wide());
    let (mut low, mut high) = (batch.low.wide(), batch.high.wide());
    if !(deviation > zero && low < high && (low.is_finite() || high.is_finite())) {
        return Err(BoundedNormalError::Invalid);
    }
    // Mirrors the interval so that a single bound is the lower one, and bounds on one side of the mean are positive.
    if (low.is_infinite() && low < zero) || high < mean {
        std::mem::swap(&mut low, &mut high);
        deviation = -deviation;
    }
    let (low, high) = ((low - mean) / deviation, (high - mean) / deviation);
    let root = (low * low + number(4.0)).sqrt();
    let cutoff = number(2.0) * (half + (low * (low - root)) / number(4.0)).exp() / (low + root);
    let width = high - low;
    let reach = number(DEVIATIONS_FOR_NORMAL);
    let mut batch = Batch { philox, out, filled: 0, tries: 0, mean, deviation };
    if (low < -reach && high >= zero) || (high > reach && low <= zero) {
        batch.by_normal(low, high)
    } else if width < cutoff {
        batch.by_uniform(low, width)
    } else {
        batch.by_exponential(low, high, (low + root) / number(2.0))
    }
}

struct Batch<'a, T: BoundedFloat> {
    philox: &'a mut Philox,
    out: &'a mut [T],
    filled: usize,
    /// The numbers rejected in a row.
    tries: u32,
    mean: T::Wide,
    deviation: T::Wide,
}

impl<T: BoundedFloat + Default> Batch<'_, T> {
    fn is_full(&self) -> bool {
        self.filled == self.out.len()
    }

    fn draw(&mut self, of_sample: fn([u32; WORDS], &mut [T])) -> [T::Wide; WORDS] {
        let mut drawn = [T::default(); WORDS];
        of_sample(self.philox.next_sample(), &mut drawn[..T::GROUP]);
        drawn.map(T::wide)
    }

    /// Accepts a number, or counts it as rejected; fails after too many rejections in a row.
    fn take(&mut self, is_taken: bool, value: T::Wide, method: &'static str) -> Result<(), BoundedNormalError> {
        if is_taken {
            self.out[self.filled] = T::narrow(value * self.deviation + self.mean);
            self.filled += 1;
            self.tries = 0;
            return Ok(());
        }
        self.tries += 1;
        if self.tries >= TRIES_MAX { Err(BoundedNormalError::OutOfReach(method)) } else { Ok(()) }
    }

    /// Samples the normal distribution, where much of it lies between the bounds.
    fn by_normal(&mut self, low: T::Wide, high: T::Wide) -> Result<(), BoundedNormalError> {
        while !self.is_full() {
            for value in self.draw(T::normal).into_iter().take(T::GROUP) {
                if self.is_full() {
                    break;
                }
                self.take(value >= low && value <= high, value, "randn")?;
            }
        }
        Ok(())
    }

    /// Samples the interval uniformly, and accepts numbers in proportion to their density.
    fn by_uniform(&mut self, low: T::Wide, width: T::Wide) -> Result<(), BoundedNormalError> {
        let (zero, two) = (T::Wide::zero(), T::Wide::one() + T::Wide::one());
        let highest = if low < zero { zero } else { low * low };
        while !self.is_full() {
            let places = self.draw(T::uniform);
            let chances = self.draw(T::uniform);
            for (place, chance) in places.into_iter().zip(chances).take(T::GROUP) {
                if self.is_full() {
                    break;
                }
                let value = place * width + low;
                self.take(chance <= ((highest - value * value) / two).exp(), value, "uniform")?;
            }
        }
        Ok(())
    }

    /// Samples an exponential distribution that starts at the lower bound.
    fn by_exponential(&mut self, low: T::Wide, high: T::Wide, alpha: T::Wide) -> Result<(), BoundedNormalError> {
        let two = T::Wide::one() + T::Wide::one();
        while !self.is_full() {
            let drawn = self.draw(T::uniform);
            for pair in drawn[..T::GROUP].chunks_exact(2) {
                if self.is_full() {
                    break;
                }
                let value = -pair[0].ln() / alpha + low;
                let distance = if low < alpha { alpha - value } else { low - alpha };
                let is_taken = pair[1] <= (-distance * distance / two).exp() && value < high;
                self.take(is_taken, value, "exponential distribution")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mean: f64, deviation: f64, low: f64, high: f64) -> (f64, f64) {
        let mut out = vec![0.0f64; 50_000];
        let batch = BoundedNormal { mean, deviation, low, high };
        fill_bounded_normal(Philox::new(5), |_| batch, 100, &mut out).unwrap();
        assert!(out.iter().all(|&value| (low..=high).contains(&value)), "{low}..{high}");
        let average = out.iter().sum::<f64>() / out.len() as f64;
        let variance = out.iter().map(|value| (value - average).powi(2)).sum::<f64>() / out.len() as f64;
        (average, variance)
    }

    /// Covers the three methods, each with bounds for which it is used.
    #[test]
    fn the_moments_are_those_of_the_distribution() {
        for (arguments, expected) in [
            ((0.0, 1.0, -2.0, 2.0), (0.0, 0.773741)),
            ((0.0, 1.0, 0.0, 1.0), (0.459862, 0.079884)),
            ((0.0, 1.0, 3.0, f64::INFINITY), (3.283099, 0.070656)),
            ((1.0, 2.0, f64::NEG_INFINITY, -5.0), (1.0 - 2.0 * 3.283099, 4.0 * 0.070656)),
        ] {
            let (mean, deviation, low, high) = arguments;
            let (average, variance) = moments(mean, deviation, low, high);
            assert!((average - expected.0).abs() < 0.02, "{arguments:?}: mean {average}");
            assert!((variance / expected.1 - 1.0).abs() < 0.05, "{arguments:?}: variance {variance}");
        }
    }

    #[test]
    fn parameters_without_numbers_are_refused() {
        let draw = |mean: f32, deviation: f32, low: f32, high: f32| {
            let batch = BoundedNormal { mean, deviation, low, high };
            fill_bounded_normal(Philox::new(5), |_| batch, 4, &mut [0.0f32; 4])
        };
        let unbounded = draw(0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY);
        for result in [draw(0.0, 0.0, -1.0, 1.0), draw(0.0, 1.0, 1.0, 1.0), draw(0.0, f32::NAN, 0.0, 1.0), unbounded] {
            assert_eq!(result, Err(BoundedNormalError::Invalid));
        }
    }
}
