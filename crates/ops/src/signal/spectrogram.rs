//! AudioSpectrogram: the strength of each frequency of an audio signal over time.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::fft::Transform;
use tensor::{Complex64, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "AudioSpectrogram",
        inputs: &["input: float"],
        outputs: &["spectrogram: float"],
        attrs: &["window_size: int", "stride: int", "magnitude_squared: bool = false"],
        flags: OpFlags::NONE,
    },
    shape: spectrogram_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(Spectrogram::create)],
}];

/// Returns the strengths of the frequencies in windows of audio `[samples, channels]`: `[channels, windows, frequencies]`.
#[track_caller]
pub fn audio_spectrogram(input: &Output, window_size: i64, stride: i64, magnitude_squared: bool) -> Output {
    let op = input.graph().op("AudioSpectrogram").input(input).attr("window_size", window_size).attr("stride", stride);
    op.attr("magnitude_squared", magnitude_squared).output()
}

/// The windows, and the number of outputs of each.
#[derive(Clone, Copy)]
struct Windows {
    size: usize,
    stride: usize,
    /// The length of the transform: the next power of two.
    padded: usize,
}

impl Windows {
    fn new(attrs: &graph::AttrMap) -> Result<Windows> {
        // TensorFlow keeps both in 32 bits.
        let get = |name: &str| Ok(attrs.int(name)? as i32);
        let (size, stride) = (get("window_size")?, get("stride")?);
        if size < 2 || stride < 1 || size > 1 << 30 {
            return Err(Status::invalid_argument(format!(
                "Spectrogram initialization failed for window size {size} and stride {stride}"
            )));
        }
        let size = size as usize;
        Ok(Windows { size, stride: stride as usize, padded: size.next_power_of_two() })
    }

    fn count(self, samples: usize) -> usize {
        if samples < self.size { 0 } else { 1 + (samples - self.size) / self.stride }
    }

    fn frequencies(self) -> usize {
        1 + self.padded / 2
    }
}

fn spectrogram_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 2)?;
    let windows = Windows::new(c.attrs)?;
    let count = input.dim(0).map(|samples| windows.count(samples as usize) as i64);
    c.set_output(0, PartialShape::new(&[input.dim(1), count, Some(windows.frequencies() as i64)]));
    Ok(())
}

struct Spectrogram {
    windows: Windows,
    squared: bool,
}

impl Spectrogram {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let squared = builder.attrs().bool("magnitude_squared")?;
        BoxedKernel::new(Spectrogram { windows: Windows::new(builder.attrs())?, squared })
    }
}

impl Kernel for Spectrogram {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (windows, squared) = (self.windows, self.squared);
        let input = context.input(0)?;
        let [samples, channels] = input.shape().to_usize()[..] else {
            return Err(Status::invalid_argument(format!("input must be 2-dimensional{}", input.shape())));
        };
        let values = input.as_slice::<f32>()?;
        let (count, frequencies) = (windows.count(samples), windows.frequencies());
        let shape = Shape::from_usize(&[channels, count, frequencies])?;
        let output = Tensor::build(shape, |out: &mut [f32]| {
            if out.is_empty() {
                return;
            }
            let turn = std::f64::consts::TAU / windows.size as f64;
            // Hann's window, which fades out the ends.
            let weights: Vec<f64> = (0..windows.size).map(|at| 0.5 - 0.5 * (turn * at as f64).cos()).collect();
            let transform = Transform::new(windows.padded, false);
            let mut line = vec![Complex64::default(); windows.padded];
            for (row, out) in out.chunks_exact_mut(frequencies).enumerate() {
                let (channel, start) = (row / count, row % count * windows.stride);
                line.fill(Complex64::default());
                for (at, (line, weight)) in line.iter_mut().zip(&weights).enumerate() {
                    *line = Complex64::from(f64::from(values[(start + at) * channels + channel]) * weight);
                }
                transform.run(&mut line, 1);
                for (out, value) in out.iter_mut().zip(&line) {
                    let power = value.norm_sqr() as f32;
                    *out = if squared { power } else { power.sqrt() };
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
    fn values_and_shapes() {
        let sound = Tensor::from_slice(&[8, 1], &[-1f32, 0.0, 1.0, 0.0, -1.0, 0.0, 1.0, 0.0]).unwrap();
        let attrs = |size: i64| attrs![("window_size", size), ("stride", 1i64)];
        let out = run_op("AudioSpectrogram", attrs(8), &[sound.clone()]).unwrap();
        assert_eq!(out[0].dims(), [1, 1, 5]);
        for (got, expected) in out[0].as_slice::<f32>().unwrap().iter().zip([0f32, 1.0, 2.0, 1.0, 0.0]) {
            assert!((got - expected).abs() < 1e-3, "{got} instead of {expected}");
        }
        assert_eq!(run_op("AudioSpectrogram", attrs(9), &[sound.clone()]).unwrap()[0].dims(), [1, 0, 9]);
        assert_eq!(run_op("AudioSpectrogram", attrs(1), &[sound]).unwrap_err().code(), Code::InvalidArgument);
        check_shape("AudioSpectrogram", attrs![("window_size", 6i64), ("stride", 3i64)], "[20,2]", "[2,5,5]");
        check_shape("AudioSpectrogram", attrs![("window_size", 6i64), ("stride", 3i64)], "[?,?]", "[?,?,5]");
    }
}
