//! Windows into images: ExtractGlimpse, ExtractGlimpseV2.

use super::pixels::Sizes;
use crate::random::SingleSample;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use tensor::{PartialShape, Result, Status, Tensor};

const INPUTS: &[&str] = &["input: float", "size: int32", "offsets: float"];
const ATTRS: &[&str] =
    &["centered: bool = true", "normalized: bool = true", "uniform_noise: bool = true", "noise: string = 'uniform'"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ExtractGlimpse",
            inputs: INPUTS,
            outputs: &["glimpse: float"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: glimpse_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| Glimpse::create(builder, 1))],
    },
    Op {
        def: OpDef {
            name: "ExtractGlimpseV2",
            inputs: INPUTS,
            outputs: &["glimpse: float"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: glimpse_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| Glimpse::create(builder, 2))],
    },
];

fn glimpse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 4)?;
    c.with_rank(1, 1)?.merge(&PartialShape::from_dims(&[2]))?;
    let offsets = c.with_rank(2, 2)?;
    let batch = input.slice(0, 1).merge(&offsets.slice(0, 1))?.dim(0);
    offsets.slice(1, 2).merge(&PartialShape::from_dims(&[2]))?;
    let (mut height, mut width) = (None, None);
    if let Some(size) = c.constant(1)
        && let &[rows, columns] = size.as_slice::<i32>()?
    {
        (height, width) = (Some(i64::from(rows)), Some(i64::from(columns)));
    }
    c.set_output(0, PartialShape::new(&[batch, height, width, input.dim(3)]));
    Ok(())
}

/// The fill values for parts of a window outside of the image.
#[derive(Clone, Copy, PartialEq)]
enum Noise {
    Uniform,
    Gaussian,
    Zero,
}

struct Glimpse {
    normalized: bool,
    centered: bool,
    noise: Noise,
    version: u8,
}

impl Glimpse {
    fn create(builder: &KernelBuilder<'_>, version: u8) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let (uniform, noise) = (attrs.bool("uniform_noise")?, attrs.string("noise")?);
        if uniform && !noise.is_empty() && noise != "uniform" {
            return Err(Status::invalid_argument(
                "The uniform_noise and noise could not be specified at the same time",
            ));
        }
        let noise = match (noise.as_str(), uniform) {
            ("uniform", _) | ("", true) => Noise::Uniform,
            ("gaussian", _) | ("", false) => Noise::Gaussian,
            ("zero", _) => Noise::Zero,
            (other, _) => {
                return Err(Status::invalid_argument(format!(
                    "The noise could only be uniform, gaussian, or zero, got{other}"
                )));
            }
        };
        BoxedKernel::new(Glimpse {
            normalized: attrs.bool("normalized")?,
            centered: attrs.bool("centered")?,
            noise,
            version,
        })
    }

    /// Returns the start of a window along one axis.
    fn start(&self, offset: f32, size: usize, window: usize) -> i64 {
        let (size, window) = (size as f32, window as f32);
        let mut start = if self.normalized { offset * size } else { offset };
        match self.version {
            1 => {
                if self.centered {
                    start = start / 2.0 + size / 2.0;
                }
                start -= window / 2.0;
            }
            _ if self.centered && self.normalized => start = start / 2.0 + size / 2.0 - window / 2.0,
            _ if self.centered => start += size / 2.0,
            _ => {}
        }
        start as i64
    }

    /// Fills a window with noise in the range of an image.
    fn fill(&self, window: &mut [f32], image: &[f32], channels: usize) {
        match self.noise {
            Noise::Zero => window.fill(0.0),
            Noise::Uniform => {
                let (low, high) = range(image.iter());
                let mut random = SingleSample::new((0, 0));
                for value in window {
                    *value = low + (high - low) * fraction(random.next_u32());
                }
            }
            Noise::Gaussian => {
                let mut random = SingleSample::new((0, 0));
                for channel in 0..channels {
                    let of_channel = || image.iter().skip(channel).step_by(channels);
                    let (low, high) = range(of_channel());
                    let count = (image.len() / channels).max(1) as f32;
                    let mean = of_channel().sum::<f32>() / count;
                    let deviation = (of_channel().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count).sqrt();
                    for value in window.iter_mut().skip(channel).step_by(channels) {
                        let (radius, angle) = (1.0 - fraction(random.next_u32()), fraction(random.next_u32()));
                        let normal = (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * angle).cos();
                        *value = (mean + normal * deviation).min(high).max(low);
                    }
                }
            }
        }
    }
}

fn fraction(bits: u32) -> f32 {
    (bits >> 8) as f32 / (1u32 << 24) as f32
}

fn range<'a>(values: impl Iterator<Item = &'a f32>) -> (f32, f32) {
    values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)))
}

impl Kernel for Glimpse {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let sizes = Sizes::of(input)?;
        let size = context.input(1)?;
        let &[height, width] = size.as_slice::<i32>()? else {
            return Err(Status::invalid_argument(format!(
                "input must be a vector of size 2 (height, width){}",
                size.shape()
            )));
        };
        let (Ok(height), Ok(width)) = (usize::try_from(height), usize::try_from(width)) else {
            return Err(Status::invalid_argument(format!("the glimpse must not be negative: {height}, {width}")));
        };
        let offsets = context.input(2)?;
        if offsets.dims() != [sizes.batch as i64, 2] {
            return Err(Status::invalid_argument(format!(
                "{}{}: offsets must have a row (y,x) for each of {} images",
                match offsets.dims() {
                    [rows, 2] if *rows != sizes.batch as i64 => "first dimension should be batch",
                    [_, _] => "second dimension should be of size 2 (y,x)",
                    _ => "input must be a matrix",
                },
                offsets.shape(),
                sizes.batch
            )));
        }
        let shape = Sizes { height, width, ..sizes }.shape()?;
        let (images, offsets) = (input.as_slice::<f32>()?, offsets.as_slice::<f32>()?);
        let channels = sizes.channels;
        let (image_length, window_length) = (sizes.height * sizes.width * channels, height * width * channels);
        if shape.num_elements() > 0 && image_length == 0 {
            return Err(Status::invalid_argument("input image must be of non-zero size"));
        }
        let output = Tensor::build::<f32>(shape, |to| {
            if window_length == 0 {
                return;
            }
            for (index, window) in to.chunks_exact_mut(window_length).enumerate() {
                let image = &images[index * image_length..(index + 1) * image_length];
                let top = self.start(offsets[2 * index], sizes.height, height);
                let left = self.start(offsets[2 * index + 1], sizes.width, width);
                let whole = |start: i64, window: usize, size: usize| {
                    start >= 0 && start.saturating_add(window as i64) <= size as i64
                };
                if !whole(top, height, sizes.height) || !whole(left, width, sizes.width) {
                    self.fill(window, image, channels);
                }
                for row in 0..height {
                    for column in 0..width {
                        let (y, x) = (top.saturating_add(row as i64), left.saturating_add(column as i64));
                        if (0..sizes.height as i64).contains(&y) && (0..sizes.width as i64).contains(&x) {
                            let from = (y as usize * sizes.width + x as usize) * channels;
                            let to = (row * width + column) * channels;
                            window[to..to + channels].copy_from_slice(&image[from..from + channels]);
                        }
                    }
                }
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    fn glimpse(attrs: graph::AttrMap, offset: [f32; 2]) -> Vec<f32> {
        let image = Tensor::from_slice(&[1, 3, 3, 1], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]).unwrap();
        let inputs = [image, Tensor::vector(&[2, 2]), Tensor::from_slice(&[1, 2], &offset).unwrap()];
        run_op("ExtractGlimpse", attrs, &inputs).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
    }

    #[test]
    fn windows() {
        let zero = || attrs![("normalized", false), ("centered", false), ("uniform_noise", false), ("noise", "zero")];
        assert_eq!(glimpse(zero(), [2.0, 2.0]), [5.0, 6.0, 8.0, 9.0]);
        assert_eq!(glimpse(zero(), [0.0, 0.0]), [0.0, 0.0, 0.0, 1.0]);
        let noisy = glimpse(attrs![("normalized", false), ("centered", false)], [9.0, 9.0]);
        assert!(noisy.iter().all(|x| (1.0..=9.0).contains(x)));
        let gaussian = attrs![("noise", "gaussian"), ("uniform_noise", false)];
        assert!(glimpse(gaussian, [-1.0, -1.0]).iter().all(|x| (1.0..=9.0).contains(x)));
    }

    #[test]
    fn shapes() {
        check_shape("ExtractGlimpse", attrs![], "[2,5,5,3];[2];[?,2]", "[2,?,?,3]");
    }
}
