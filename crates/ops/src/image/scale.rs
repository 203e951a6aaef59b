//! ScaleAndTranslate, which resizes and moves images with a choice of filters, and its gradient op.

use super::pixels::{Sizes, load, store, target_size};
use super::resize::{Taps, check_target, give_back, not_empty, resample};
use crate::compose::Gradients;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use std::f32::consts::PI;
use tensor::{DType, PartialShape, Result, Status, Tensor};

const FILTER: &str = "kernel_type: string = 'lanczos3'";
const ANTIALIAS: &str = "antialias: bool = true";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ScaleAndTranslate",
            inputs: &["images: T", "size: int32", "scale: float", "translation: float"],
            outputs: &["resized_images: float"],
            attrs: &["T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}", FILTER, ANTIALIAS],
            flags: OpFlags::NONE,
        },
        shape: scaled_shape,
        gradient: Gradient::Fn(scale_gradient),
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Scale(Filter::new(builder)?)))],
    },
    Op {
        def: OpDef {
            name: "ScaleAndTranslateGrad",
            inputs: &["grads: T", "original_image: T", "scale: float", "translation: float"],
            outputs: &["output: T"],
            attrs: &["T: {float}", FILTER, ANTIALIAS],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let original = c.input(1);
            c.set_output(0, original);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(ScaleGrad(Filter::new(builder)?)))],
    },
];

fn scaled_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, 4)?;
    for pair in 1..4 {
        c.with_rank(pair, 1)?.merge(&PartialShape::from_dims(&[2]))?;
    }
    let (mut height, mut width) = (None, None);
    if let Some(size) = c.constant(1)
        && let &[rows, columns] = size.as_slice::<i32>()?
    {
        (height, width) = (Some(i64::from(rows)), Some(i64::from(columns)));
    }
    c.set_output(0, PartialShape::new(&[images.dim(0), height, width, images.dim(3)]));
    Ok(())
}

fn scale_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None, None]) };
    let attrs = args.op.attrs();
    let op = grad.graph().op("ScaleAndTranslateGrad");
    let op = op.inputs([&grad, &args.input(0), &args.input(2), &args.input(3)]);
    let op = op.attr("kernel_type", attrs.string("kernel_type")?).attr("antialias", attrs.bool("antialias")?);
    Ok(vec![Some(op.try_build()?.output(0).into()), None, None, None])
}

/// A filter: the weight of a pixel by distance, and the filter's radius.
struct Filter {
    weight: fn(f32) -> f32,
    radius: f32,
    antialias: bool,
}

impl Filter {
    fn new(builder: &KernelBuilder<'_>) -> Result<Filter> {
        let name = builder.attrs().string("kernel_type")?;
        let (weight, radius): (fn(f32) -> f32, f32) = match name.to_lowercase().as_str() {
            "lanczos1" => (|x| lanczos(x, 1.0), 1.0),
            "lanczos3" => (|x| lanczos(x, 3.0), 3.0),
            "lanczos5" => (|x| lanczos(x, 5.0), 5.0),
            "gaussian" => (|x| if x >= 1.5 { 0.0 } else { (-2.0 * x * x).exp() }, 1.5),
            "box" => (
                |x| match x.total_cmp(&0.5) {
                    std::cmp::Ordering::Less => 1.0,
                    std::cmp::Ordering::Equal => 0.5,
                    std::cmp::Ordering::Greater => 0.0,
                },
                1.0,
            ),
            "triangle" => (|x| (1.0 - x).max(0.0), 1.0),
            "keyscubic" => (
                |x| match x {
                    2.0.. => 0.0,
                    1.0.. => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
                    _ => (1.5 * x - 2.5) * x * x + 1.0,
                },
                2.0,
            ),
            "mitchellcubic" => (
                |x| match x {
                    2.0.. => 0.0,
                    1.0.. => ((-7.0 / 18.0 * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0,
                    _ => (7.0 / 6.0 * x - 2.0) * x * x + 8.0 / 9.0,
                },
                2.0,
            ),
            _ => return Err(Status::invalid_argument(format!("Unrecognized kernel type: {name}"))),
        };
        Ok(Filter { weight, radius, antialias: builder.attrs().bool("antialias")? })
    }

    /// Returns the taps of each position of the result along an axis.
    fn taps(&self, from: usize, to: usize, scale: f32, translation: f32) -> Vec<Taps> {
        let step = 1.0 / scale;
        let start = -step * translation;
        // Images are blurred before they are reduced, unless antialiasing is off.
        let spread = if self.antialias { step.max(1.0) } else { 1.0 };
        let narrow = 1.0 / spread;
        let reach = self.radius * spread;
        let last = from as i64 - 1;
        let taps = |index: usize| -> Taps {
            let place = (index as f32 + 0.5) * step + start;
            if !(0.0..=from as f32).contains(&place) {
                return Taps::new();
            }
            let first = ((place - reach - 0.5).ceil() as i64).clamp(0, last);
            let end = ((place + reach - 0.5).floor() as i64).clamp(0, last);
            let weight = |source: i64| (self.weight)(((source as f32 + 0.5 - place) * narrow).abs());
            let sum: f32 = (first..=end).map(weight).sum();
            if sum.abs() < 1000.0 * f32::MIN_POSITIVE {
                return Taps::new();
            }
            let share = 1.0 / sum;
            (first..=end).map(|source| (source as usize, weight(source) * share)).collect()
        };
        (0..to).map(taps).collect()
    }

    /// Returns the taps of rows and columns for a kernel's inputs.
    fn both(&self, context: &OpContext<'_>, from: Sizes, to: Sizes) -> Result<(Vec<Taps>, Vec<Taps>)> {
        let pair = |index: usize, name: &str| -> Result<[f32; 2]> {
            let input = context.input(index)?;
            match (input.shape().is_vector(), input.as_slice::<f32>()?) {
                (true, &[rows, columns]) => Ok([rows, columns]),
                _ => Err(Status::invalid_argument(format!(
                    "{} must have two elements{}: {name}",
                    if name == "scale" { "scale" } else { "t" },
                    input.shape()
                ))),
            }
        };
        let (scale, translation) = (pair(2, "scale")?, pair(3, "translation")?);
        if !(scale[0] > 0.0 && scale[1] > 0.0) {
            return Err(Status::invalid_argument("Scale must be greater than zero."));
        }
        let rows = self.taps(from.height, to.height, scale[0], translation[0]);
        Ok((rows, self.taps(from.width, to.width, scale[1], translation[1])))
    }
}

fn lanczos(x: f32, radius: f32) -> f32 {
    if x > radius {
        return 0.0;
    }
    if x <= 1e-3 {
        return 1.0;
    }
    radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)
}

struct Scale(Filter);

impl Kernel for Scale {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let images = context.input(0)?;
        let sizes = Sizes::of(images)?;
        let (height, width) = target_size(context.input(1)?)?;
        if sizes.channels == 0 {
            return Err(Status::invalid_argument("image must have at least one channel"));
        }
        let target = Sizes { height, width, ..not_empty(sizes)? };
        if !check_target(target, size_of::<f32>())? {
            let nothing = Tensor::new(DType::Float, target.shape()?)?;
            context.set_output(0, nothing);
            return Ok(());
        }
        let (rows, columns) = self.0.both(context, sizes, target)?;
        let output = resample(&load(images)?, sizes, target, &rows, &columns)?;
        context.set_output(0, output);
        Ok(())
    }
}

struct ScaleGrad(Filter);

impl Kernel for ScaleGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let grads = context.input(0)?;
        let (from, original) = (Sizes::of(grads)?, not_empty(Sizes::of(context.input(1)?)?)?);
        if from.batch != original.batch || from.channels != original.channels {
            return Err(Status::invalid_argument("grads and original_image must have the same batch and channels"));
        }
        let (rows, columns) = self.0.both(context, original, from)?;
        let sums = give_back(grads.as_slice::<f32>()?, from, original, &rows, &columns)?;
        context.set_output(0, store(DType::Float, original.shape()?, &sums)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn a_picture_of_the_same_size_stays_as_it_is() {
        let image = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        for filter in ["lanczos1", "lanczos3", "lanczos5", "box", "triangle", "keyscubic"] {
            let inputs =
                [image.clone(), Tensor::vector(&[2, 2]), Tensor::vector(&[1f32, 1.0]), Tensor::vector(&[0f32, 0.0])];
            let same = run_op("ScaleAndTranslate", attrs![("kernel_type", filter)], &inputs).unwrap();
            let close = same[0].as_slice::<f32>().unwrap().iter().zip([1f32, 2.0, 3.0, 4.0]);
            assert!(close.into_iter().all(|(a, b)| (a - b).abs() < 1e-5), "{filter}");
        }
        let inputs = [image, Tensor::vector(&[2, 2]), Tensor::vector(&[0f32, 1.0]), Tensor::vector(&[0f32, 0.0])];
        assert!(run_op("ScaleAndTranslate", attrs![], &inputs).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("ScaleAndTranslate", attrs![], "[2,?,4,3];[2];[2];[2]", "[2,?,?,3]");
    }
}
