//! Mfcc: the features of a spectrogram for speech recognition.
//!
//! Frequencies are summed in bands whose widths follow human hearing (mel), and the cosine transform of the bands' logarithms is
//! truncated to its first coefficients.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The minimum energy of a band, so that it has a logarithm.
const WEAKEST: f64 = 1e-12;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Mfcc",
        inputs: &["spectrogram: float", "sample_rate: int32"],
        outputs: &["output: float"],
        attrs: &[
            "upper_frequency_limit: float = 4000.0",
            "lower_frequency_limit: float = 20.0",
            "filterbank_channel_count: int = 40",
            "dct_coefficient_count: int = 13",
        ],
        flags: OpFlags::NONE,
    },
    shape: mfcc_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(Mfcc::create)],
}];

/// Returns the mel-frequency cepstral coefficients of a squared spectrogram, 13 for each window, from 40 bands of 20 to 4000 Hz.
#[track_caller]
pub fn mfcc(spectrogram: &Output, sample_rate: &Output) -> Output {
    spectrogram.graph().op("Mfcc").input(spectrogram).input(sample_rate).output()
}

fn mfcc_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let spectrogram = c.with_rank(0, 3)?;
    c.with_rank(1, 0)?;
    let count = c.attrs.int("dct_coefficient_count")?;
    c.set_output(0, PartialShape::new(&[spectrogram.dim(0), spectrogram.dim(1), Some(count)]));
    Ok(())
}

fn mel(frequency: f64) -> f64 {
    1127.0 * (frequency / 700.0).ln_1p()
}

/// Bands whose weights rise from the centre of the previous band and fall to the centre of the next.
struct Bands {
    count: usize,
    /// For each used frequency: its index, the band in whose falling half it is, if any, and the weight there. The rest of it
    /// belongs to the next band.
    parts: Vec<(usize, Option<usize>, f64)>,
}

impl Bands {
    /// Returns the bands for a spectrum of `len` frequencies, or `None` if there can't be any.
    fn new(len: usize, sample_rate: f64, count: usize, lower: f64, upper: f64) -> Option<Bands> {
        if count < 1 || sample_rate <= 0.0 || len < 2 || lower < 0.0 || upper <= lower {
            return None;
        }
        let (low, high) = (mel(lower), mel(upper));
        let spacing = (high - low) / (count + 1) as f64;
        let middle = |band: usize| low + spacing * (band + 1) as f64;
        let step = 0.5 * sample_rate / (len - 1) as f64;
        // The constant component is never part of a band.
        let (first, last) = ((1.5 + lower / step) as usize, (upper / step) as usize);
        if last >= len {
            // TensorFlow logs this case and leaves the bands empty.
            return Some(Bands { count, parts: Vec::new() });
        }
        let mut next = 0;
        let mut parts = Vec::new();
        for place in first..=last {
            let at = mel(place as f64 * step);
            while next < count && middle(next) < at {
                next += 1;
            }
            let begin = if next == 0 { low } else { middle(next - 1) };
            parts.push((place, next.checked_sub(1), (middle(next) - at) / (middle(next) - begin)));
        }
        Some(Bands { count, parts })
    }

    /// Sums the square roots of a spectrum in the bands.
    fn strengths(&self, spectrum: &[f32], bands: &mut [f64]) {
        bands.fill(0.0);
        for &(place, falling, weight) in &self.parts {
            let value = f64::from(spectrum[place]).sqrt();
            if let Some(band) = falling {
                bands[band] += value * weight;
            }
            let rising = falling.map_or(0, |band| band + 1);
            if rising < self.count {
                bands[rising] += value - value * weight;
            }
        }
    }
}

struct Mfcc {
    upper: f32,
    lower: f32,
    bands: i64,
    coefficients: i64,
}

impl Mfcc {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(Mfcc {
            upper: attrs.float("upper_frequency_limit")?,
            lower: attrs.float("lower_frequency_limit")?,
            bands: attrs.int("filterbank_channel_count")?,
            coefficients: attrs.int("dct_coefficient_count")?,
        })
    }

    /// Returns the bands of a spectrum, and the number of coefficients.
    fn plan(&self, len: usize, sample_rate: i32) -> Option<(Bands, usize)> {
        let count = usize::try_from(self.coefficients).ok().filter(|&count| count >= 1)?;
        let bands = usize::try_from(self.bands).ok().filter(|&bands| bands >= count && bands <= i32::MAX as usize)?;
        let (lower, upper) = (f64::from(self.lower), f64::from(self.upper));
        Some((Bands::new(len, f64::from(sample_rate), bands, lower, upper)?, count))
    }
}

impl Kernel for Mfcc {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (spectrogram, rate) = (context.input(0)?, context.input(1)?);
        let [channels, windows, len] = spectrogram.shape().to_usize()[..] else {
            let shape = spectrogram.shape();
            return Err(Status::invalid_argument(format!("spectrogram must be 3-dimensional{shape}")));
        };
        if !rate.shape().is_scalar() {
            return Err(Status::invalid_argument(format!(
                "Input sample_rate should be a scalar tensor, got {} instead.",
                rate.shape()
            )));
        }
        let rate = rate.to_scalar::<i32>()?;
        let Some((bands, coefficients)) = self.plan(len, rate) else {
            return Err(Status::invalid_argument(format!(
                "Mfcc initialization failed for channel count {len}, sample rate {rate} and filterbank_channel_count {}",
                self.bands
            )));
        };
        let values = spectrogram.as_slice::<f32>()?;
        let shape = Shape::from_usize(&[channels, windows, coefficients])?;
        let count = bands.count as f64;
        let (scale, turn) = ((2.0 / count).sqrt(), std::f64::consts::PI / count);
        let output = Tensor::build(shape, |out: &mut [f32]| {
            let mut logarithms = vec![0.0; bands.count];
            for (spectrum, out) in values.chunks_exact(len).zip(out.chunks_exact_mut(coefficients)) {
                bands.strengths(spectrum, &mut logarithms);
                logarithms.iter_mut().for_each(|value| *value = value.max(WEAKEST).ln());
                for (index, out) in out.iter_mut().enumerate() {
                    let term =
                        |(at, value): (usize, &f64)| scale * (index as f64 * turn * (at as f64 + 0.5)).cos() * value;
                    *out = logarithms.iter().enumerate().map(term).sum::<f64>() as f32;
                }
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Tensor};

    /// The numbers are those of TensorFlow's own test.
    #[test]
    fn values_and_mistakes() {
        let spectrum: Vec<f32> = (1..=513).map(|value| value as f32).collect();
        let input = Tensor::from_slice(&[1, 1, 513], &spectrum).unwrap();
        let out = run_op("Mfcc", attrs![], &[input.clone(), Tensor::scalar(22050i32)]).unwrap();
        let expected = [
            29.13970072,
            -6.41568601,
            -0.61903012,
            -0.96778652,
            -0.26819878,
            -0.40907028,
            -0.15614748,
            -0.23203119,
            -0.10481487,
            -0.1543029,
            -0.0769791,
            -0.10806114,
            -0.06047613,
        ];
        for (got, expected) in out[0].as_slice::<f32>().unwrap().iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} instead of {expected}");
        }
        for (attrs, rate) in [
            (attrs![], 0),
            (attrs![("dct_coefficient_count", 0i64)], 22050),
            (attrs![("dct_coefficient_count", 41i64)], 22050),
            (attrs![("lower_frequency_limit", 5000f32)], 22050),
        ] {
            let status = run_op("Mfcc", attrs, &[input.clone(), Tensor::scalar(rate)]).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
        }
        check_shape("Mfcc", attrs![], "[2,?,9];[]", "[2,?,13]");
    }
}
