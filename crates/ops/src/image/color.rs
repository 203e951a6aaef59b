//! Colors: RGBToHSV, HSVToRGB, AdjustContrastv2, AdjustHue, AdjustSaturation.

use super::pixels::{load, store};
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, shape};
use tensor::{DType, PartialShape, Result, Status, Tensor};

const SPACES: &[&str] = &["T: {half, bfloat16, float, double} = DT_FLOAT"];
const FLOATS: &[&str] = &["T: {half, float} = DT_FLOAT"];

macro_rules! color_kernels {
    ([$($dtype:ident),*] => $kernel:expr) => {
        &[$(KernelDef { types: &[("T", DType::$dtype)], create: |_| BoxedKernel::new($kernel) },)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RGBToHSV",
            inputs: &["images: T"],
            outputs: &["output: T"],
            attrs: SPACES,
            flags: OpFlags::NONE,
        },
        shape: color_shape,
        gradient: Gradient::Unsupported,
        kernels: color_kernels!([Half, BFloat16, Float, Double] => Recolor(|pixel, _| {
            let Hsv { hue, saturation, value } = Hsv::of(pixel);
            [hue, saturation, value]
        })),
    },
    Op {
        def: OpDef {
            name: "HSVToRGB",
            inputs: &["images: T"],
            outputs: &["output: T"],
            attrs: SPACES,
            flags: OpFlags::NONE,
        },
        shape: color_shape,
        gradient: Gradient::Unsupported,
        kernels: color_kernels!([Half, BFloat16, Float, Double] => Recolor(|[hue, saturation, value], _| {
            Hsv { hue, saturation, value }.to_rgb()
        })),
    },
    Op {
        def: OpDef {
            name: "AdjustHue",
            inputs: &["images: T", "delta: float"],
            outputs: &["output: T"],
            attrs: FLOATS,
            flags: OpFlags::NONE,
        },
        shape: adjust_shape,
        gradient: Gradient::Unsupported,
        kernels: color_kernels!([Float] => Recolor(|pixel, delta| {
            let hsv = Hsv::of(pixel);
            let turned = Hsv { hue: (hsv.hue + delta).rem_euclid(1.0), ..hsv };
            // The range of the results is fixed, whatever sign the values have.
            turned.between(pixel[0].min(pixel[1]).min(pixel[2]), hsv.value)
        })),
    },
    Op {
        def: OpDef {
            name: "AdjustSaturation",
            inputs: &["images: T", "scale: float"],
            outputs: &["output: T"],
            attrs: FLOATS,
            flags: OpFlags::NONE,
        },
        shape: adjust_shape,
        gradient: Gradient::Unsupported,
        kernels: color_kernels!([Float] => Recolor(|pixel, scale| {
            let hsv = Hsv::of(pixel);
            Hsv { saturation: (hsv.saturation * scale).clamp(0.0, 1.0), ..hsv }.to_rgb()
        })),
    },
    Op {
        def: OpDef {
            name: "AdjustContrastv2",
            inputs: &["images: T", "contrast_factor: float"],
            outputs: &["output: T"],
            attrs: FLOATS,
            flags: OpFlags::NONE,
        },
        shape: adjust_shape,
        gradient: Gradient::Unsupported,
        kernels: color_kernels!([Float] => Contrast),
    },
];

fn color_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank_at_least(0, 1)?;
    if let Some(rank) = images.rank() {
        images.slice(rank - 1, rank).merge(&PartialShape::from_dims(&[3]))?;
    }
    c.set_output(0, images);
    Ok(())
}

fn adjust_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank_at_least(0, 3)?;
    c.with_rank(1, 0)?;
    shape::unchanged(c)
}

struct Hsv {
    hue: f64,
    saturation: f64,
    value: f64,
}

impl Hsv {
    fn of([red, green, blue]: [f64; 3]) -> Hsv {
        let value = red.max(green).max(blue);
        let range = value - red.min(green).min(blue);
        let norm = 1.0 / (6.0 * range);
        let hue = if range <= 0.0 {
            0.0
        } else if red == value {
            norm * (green - blue)
        } else if green == value {
            norm * (blue - red) + 2.0 / 6.0
        } else {
            norm * (red - green) + 4.0 / 6.0
        };
        let saturation = if value > 0.0 { range / value } else { 0.0 };
        Hsv { hue: if hue < 0.0 { hue + 1.0 } else { hue }, saturation, value }
    }

    fn to_rgb(&self) -> [f64; 3] {
        self.shares().map(|share| (1.0 - self.saturation + self.saturation * share) * self.value)
    }

    /// Returns the color of this hue between the smallest and the largest value of a channel.
    fn between(&self, low: f64, high: f64) -> [f64; 3] {
        self.shares().map(|share| low + share * (high - low))
    }

    /// Returns how much of each channel the hue has.
    fn shares(&self) -> [f64; 3] {
        let sixths = self.hue * 6.0;
        [(sixths - 3.0).abs() - 1.0, 2.0 - (sixths - 2.0).abs(), 2.0 - (sixths - 4.0).abs()]
            .map(|share| share.clamp(0.0, 1.0))
    }
}

/// Changes pixels one by one; adjustments take a number as their second input.
struct Recolor(fn([f64; 3], f64) -> [f64; 3]);

impl Kernel for Recolor {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let images = context.input(0)?;
        let number = match context.num_inputs() {
            1 => 0.0,
            _ => f64::from(context.scalar::<f32>(1, "the adjustment")?),
        };
        if images.dims().last() != Some(&3) {
            return Err(Status::invalid_argument(format!(
                "input must have 3 channels but instead has shape {}.",
                images.shape()
            )));
        }
        if context.num_inputs() > 1 && images.shape().rank() < 3 {
            return Err(Status::invalid_argument(format!("input must be at least 3-D, got shape{}", images.shape())));
        }
        let mut values = wide(images)?;
        for pixel in values.as_chunks_mut::<3>().0 {
            *pixel = (self.0)(*pixel, number);
        }
        context.set_output(0, store(images.dtype(), images.shape().clone(), &values)?);
        Ok(())
    }
}

fn wide(images: &Tensor) -> Result<Vec<f64>> {
    match images.dtype() {
        DType::Double => Ok(images.as_slice::<f64>()?.to_vec()),
        _ => Ok(load(images)?.iter().map(|&value| f64::from(value)).collect()),
    }
}

struct Contrast;

impl Kernel for Contrast {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let images = context.input(0)?;
        let factor = f64::from(context.scalar::<f32>(1, "contrast_factor")?);
        let rank = images.shape().rank();
        if rank < 3 {
            return Err(Status::invalid_argument(format!("input must be at least 3-D, got shape{}", images.shape())));
        }
        let channels = images.shape().size(rank - 1);
        let pixels = images.shape().size(rank - 3) * images.shape().size(rank - 2);
        let mut values = wide(images)?;
        if !values.is_empty() {
            for image in values.chunks_exact_mut(pixels * channels) {
                for channel in 0..channels {
                    let mean = image.iter().skip(channel).step_by(channels).sum::<f64>() / pixels as f64;
                    for value in image.iter_mut().skip(channel).step_by(channels) {
                        *value = (*value - mean) * factor + mean;
                    }
                }
            }
        }
        context.set_output(0, store(images.dtype(), images.shape().clone(), &values)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    fn close(op: &str, inputs: &[Tensor], expected: &[f32]) {
        let outputs = run_op(op, attrs![], inputs).unwrap();
        let values = outputs[0].as_slice::<f32>().unwrap();
        assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{op}: {values:?}");
    }

    #[test]
    fn values() {
        let image = Tensor::from_slice(&[1, 1, 3], &[0.2f32, 0.4, 0.8]).unwrap();
        close("RGBToHSV", &[image.clone()], &[0.6111111, 0.75, 0.8]);
        let hsv = Tensor::from_slice(&[1, 1, 3], &[0.6111111f32, 0.75, 0.8]).unwrap();
        close("HSVToRGB", &[hsv], &[0.2, 0.4, 0.8]);
        close("AdjustHue", &[image.clone(), Tensor::scalar(1.0f32)], &[0.2, 0.4, 0.8]);
        close("AdjustSaturation", &[image.clone(), Tensor::scalar(0.0f32)], &[0.8, 0.8, 0.8]);
        let two = Tensor::from_slice(&[1, 2, 1], &[1f32, 3.0]).unwrap();
        close("AdjustContrastv2", &[two, Tensor::scalar(2.0f32)], &[0.0, 4.0]);
        let gray = Tensor::from_slice(&[1, 1, 1], &[0.2f32]).unwrap();
        assert!(run_op("RGBToHSV", attrs![], &[gray]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("RGBToHSV", attrs![], "[?,4,3]", "[?,4,3]");
        check_shape("AdjustHue", attrs![], "[?,4,3];[]", "[?,4,3]");
    }
}
