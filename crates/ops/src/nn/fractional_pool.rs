//! Pooling with fractional ratios: FractionalAvgPool, FractionalMaxPool and their gradients.

use crate::arithmetic::Arithmetic;
use crate::compose::Gradients;
use crate::random::random_bits;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, ShapeContext, kernels,
};
use num_traits::{AsPrimitive, Bounded, NumAssign};
use numeric::philox::{GuardedPhilox, Philox, shuffle};
use std::marker::PhantomData;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

const OUTPUTS: &[&str] = &["output: T", "row_pooling_sequence: int64", "col_pooling_sequence: int64"];
const ATTRS: &[&str] = &[
    "pooling_ratio: list(float) >= 4",
    "pseudo_random: bool = false",
    "overlapping: bool = false",
    "deterministic: bool = false",
    "seed: int = 0",
    "seed2: int = 0",
    "T: {float, double, int32, int64}",
];
const GRAD_ATTRS: &[&str] = &["overlapping: bool = false", "T: {float, double, int32, int64}"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "FractionalAvgPool",
            inputs: &["value: T"],
            outputs: OUTPUTS,
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: pool_shape,
        gradient: Gradient::Fn(average_gradient),
        kernels: kernels!("T": [f32, f64, i32, i64] => Average),
    },
    Op {
        def: OpDef {
            name: "FractionalMaxPool",
            inputs: &["value: T"],
            outputs: OUTPUTS,
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: pool_shape,
        gradient: Gradient::Fn(maximum_gradient),
        kernels: kernels!("T": [f32, f64, i32, i64] => Maximum),
    },
    Op {
        def: OpDef {
            name: "FractionalAvgPoolGrad",
            inputs: &[
                "orig_input_tensor_shape: int64",
                "out_backprop: T",
                "row_pooling_sequence: int64",
                "col_pooling_sequence: int64",
            ],
            outputs: &["output: T"],
            attrs: GRAD_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: average_grad_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, i32, i64] => AverageGrad),
    },
    Op {
        def: OpDef {
            name: "FractionalMaxPoolGrad",
            inputs: &[
                "orig_input: T",
                "orig_output: T",
                "out_backprop: T",
                "row_pooling_sequence: int64",
                "col_pooling_sequence: int64",
            ],
            outputs: &["output: T"],
            attrs: GRAD_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: maximum_grad_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, i32, i64] => MaximumGrad),
    },
];

fn pool_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 4)?;
    let ratios = c.attrs.floats("pooling_ratio")?;
    if ratios.len() != 4 {
        return Err(Status::invalid_argument("pooling_ratio field must specify 4 dimensions"));
    }
    let mut dims = Vec::with_capacity(4);
    for (axis, &ratio) in ratios.iter().enumerate() {
        dims.push(match input.dim(axis) {
            Some(size) if ratio >= 1.0 => Some((size as f32 / ratio) as i64),
            Some(_) => return Err(Status::invalid_argument(format!("pooling_ratio {ratio} is smaller than 1"))),
            None => None,
        });
    }
    let output = PartialShape::new(&dims);
    for (sequence, axis) in [(1, 1), (2, 2)] {
        c.set_output(sequence, PartialShape::new(&[output.dim(axis).and_then(|size| size.checked_add(1))]));
    }
    c.set_output(0, output);
    Ok(())
}

fn average_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let output = match c.constant(0) {
        Some(_) => c.constant_as_shape(0)?,
        None => PartialShape::unknown_of_rank(4),
    };
    c.set_output(0, output);
    Ok(())
}

fn maximum_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 4)?;
    c.set_output(0, input);
    Ok(())
}

fn average_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let graph = grad.graph();
    let shape = graph.op("Shape").input(&args.input(0)).attr("out_type", tensor::DType::Int64).try_build()?.output(0);
    let op = graph.op("FractionalAvgPoolGrad").input(&shape).input(&grad);
    let op = op.input(&args.output(1)).input(&args.output(2));
    let op = op.attr("overlapping", args.op.attrs().bool("overlapping")?);
    Ok(vec![Some(op.try_build()?.output(0).into())])
}

fn maximum_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let op = grad.graph().op("FractionalMaxPoolGrad").input(&args.input(0)).input(&args.output(0)).input(&grad);
    let op = op.input(&args.output(1)).input(&args.output(2));
    let op = op.attr("overlapping", args.op.attrs().bool("overlapping")?);
    Ok(vec![Some(op.try_build()?.output(0).into())])
}

/// The common part of the kernels of all types.
struct Plan {
    ratios: [f32; 4],
    pseudo_random: bool,
    overlapping: bool,
    seeds: Option<(u64, u64)>,
}

impl Plan {
    fn new(builder: &KernelBuilder<'_>) -> Result<Plan> {
        let attrs = builder.attrs();
        let Ok(ratios) = <[f32; 4]>::try_from(attrs.floats("pooling_ratio")?) else {
            return Err(Status::invalid_argument("pooling_ratio field must specify 4 dimensions"));
        };
        if let Some(ratio) = ratios.iter().find(|ratio| ratio.is_nan() || **ratio < 1.0) {
            return Err(Status::invalid_argument(format!("pooling_ratio cannot be smaller than 1, got: {ratio}")));
        }
        if ratios[0] != 1.0 || ratios[3] != 1.0 {
            return Err(Status::unimplemented(
                "Fractional pooling is not yet supported on the batch nor channel dimension.",
            ));
        }
        let (seed, seed2) = (attrs.int("seed")?, attrs.int("seed2")?);
        let seeds = match (attrs.bool("deterministic")?, seed, seed2) {
            (true, 0, 0) => Some((random_bits(), random_bits())),
            (true, ..) => Some((seed as u64, seed2 as u64)),
            (false, 0, 0) => None,
            (false, ..) => {
                return Err(Status::invalid_argument("Both seed and seed2 should be 0 if deterministic is false."));
            }
        };
        Ok(Plan { ratios, pseudo_random: attrs.bool("pseudo_random")?, overlapping: attrs.bool("overlapping")?, seeds })
    }

    /// Draws the window boundaries of an input.
    fn windows(&self, input: &Tensor) -> Result<Windows> {
        let shape = input.shape();
        if shape.rank() != 4 {
            return Err(Status::invalid_argument("tensor_in must be 4-dimensional"));
        }
        for (axis, &ratio) in self.ratios.iter().enumerate() {
            let size = shape.size(axis);
            if (size as f32) < ratio {
                return Err(Status::invalid_argument(format!(
                    "Pooling ratio is higher than input dimension size for dimension {axis}. Input dim size: {size} \
                     pooling ratio: {ratio}"
                )));
            }
        }
        let (seed, seed2) = self.seeds.unwrap_or_else(|| (random_bits(), random_bits()));
        let mut generator = GuardedPhilox::from_philox(Philox::from_seeds(seed, seed2));
        let mut draw = |axis: usize| {
            let size = shape.size(axis);
            let outputs = ((size as f32 / self.ratios[axis]) as usize).max(1);
            sequence(size, outputs, &mut generator, self.pseudo_random)
        };
        let (rows, columns) = (draw(1), draw(2));
        Ok(Windows::new(shape, rows, columns, self.overlapping))
    }
}

/// Returns the starts of windows, and the end of the last one.
fn sequence(size: usize, outputs: usize, generator: &mut GuardedPhilox, pseudo_random: bool) -> Vec<i64> {
    let (size, count) = (size as i64, outputs as i64);
    let least = size / count;
    let mut lengths: Vec<i64> = (0..count).map(|index| least + i64::from(index < size % count)).collect();
    if pseudo_random {
        let ratio = size as f64 / count as f64;
        let left = (least + 2) as f64 / ratio - 1.0;
        let right = (size + 1 - least) as f64 / ratio - (count - 1) as f64;
        let [high, low, ..] = generator.reserve_samples32(2).next_sample();
        let mantissa = u64::from(high & 0xf_ffff) << 32 | u64::from(low);
        let random = f64::from_bits(1023 << 52 | mantissa) - 1.0;
        let start = random * left.min(right);
        let mut bounds: Vec<i64> = (0..count).map(|index| (ratio * (index as f64 + start)).ceil() as i64).collect();
        bounds[0] = 1;
        bounds.push(size + 1);
        for (length, pair) in lengths.iter_mut().zip(bounds.windows(2)) {
            *length = pair[1] - pair[0];
        }
    } else {
        shuffle(generator.reserve_samples32(count as u64), &mut lengths);
    }
    let mut bounds = vec![0];
    for length in lengths {
        bounds.push(bounds[bounds.len() - 1] + length);
    }
    bounds
}

/// The windows of an input, in rows and columns.
struct Windows {
    input: [usize; 4],
    rows: Vec<i64>,
    columns: Vec<i64>,
    overlapping: bool,
}

impl Windows {
    fn new(shape: &Shape, rows: Vec<i64>, columns: Vec<i64>, overlapping: bool) -> Windows {
        let input = [shape.size(0), shape.size(1), shape.size(2), shape.size(3)];
        Windows { input, rows, columns, overlapping }
    }

    /// Returns the checked windows of a gradient op.
    fn given(shape: &Shape, rows: &Tensor, columns: &Tensor, grad: &Tensor, overlapping: bool) -> Result<Windows> {
        if shape.rank() != 4 || grad.shape().rank() != 4 {
            return Err(Status::invalid_argument("the input and out_backprop must be 4-dimensional"));
        }
        for (axis, sequence) in [(1, rows), (2, columns)] {
            let bounds = sequence.as_slice::<i64>()?;
            let fits = sequence.shape().is_vector()
                && bounds.len() == grad.shape().size(axis) + 1
                && bounds.is_sorted()
                && bounds.first().is_some_and(|&first| first >= 0)
                && bounds.last().is_some_and(|&last| last <= shape.dim(axis));
            if !fits {
                return Err(Status::invalid_argument(format!(
                    "the pooling sequence of dimension {axis} doesn't fit an input of shape {shape} and an output of \
                     shape {}",
                    grad.shape()
                )));
            }
        }
        if grad.dims()[0] != shape.dim(0) || grad.dims()[3] != shape.dim(3) {
            return Err(Status::invalid_argument(format!(
                "out_backprop has shape {}, which doesn't fit an input of shape {shape}",
                grad.shape()
            )));
        }
        let (rows, columns) = (rows.as_slice::<i64>()?.to_vec(), columns.as_slice::<i64>()?.to_vec());
        Ok(Windows::new(shape, rows, columns, overlapping))
    }

    fn output_shape(&self) -> Result<Shape> {
        let [batch, _, _, channels] = self.input;
        Shape::from_usize(&[batch, self.rows.len() - 1, self.columns.len() - 1, channels])
    }

    /// Calls `visit` with the output pixel and the input pixel, for each pixel of each window.
    fn visit(&self, mut visit: impl FnMut(usize, usize)) {
        let [batch, height, width, _] = self.input;
        let range = |bounds: &[i64], index: usize, size: usize| {
            let end = bounds[index + 1] + i64::from(self.overlapping);
            bounds[index] as usize..(end as usize).min(size)
        };
        let (out_height, out_width) = (self.rows.len() - 1, self.columns.len() - 1);
        for image in 0..batch {
            for out_row in 0..out_height {
                for out_column in 0..out_width {
                    let output = (image * out_height + out_row) * out_width + out_column;
                    for row in range(&self.rows, out_row, height) {
                        for column in range(&self.columns, out_column, width) {
                            visit(output, (image * height + row) * width + column);
                        }
                    }
                }
            }
        }
    }

    /// Returns the number of pixels of each window.
    fn counts(&self) -> Result<Vec<usize>> {
        let pixels = self.output_shape()?.slice(0, 3).num_elements();
        let mut counts = vec![0; pixels];
        self.visit(|output, _| counts[output] += 1);
        Ok(counts)
    }

    fn set_outputs(self, context: &mut OpContext<'_>, output: Tensor) {
        context.set_output(0, output);
        context.set_output(1, Tensor::vector(&self.rows));
        context.set_output(2, Tensor::vector(&self.columns));
    }
}

trait Pooled: Arithmetic + NumAssign + PartialOrd + Bounded + AsPrimitive<f64> {}

impl<T: Arithmetic + NumAssign + PartialOrd + Bounded + AsPrimitive<f64>> Pooled for T {}

macro_rules! pool_kernel {
    ($kernel:ident, $plan:ty, $new:expr) => {
        struct $kernel<T> {
            plan: $plan,
            element: PhantomData<fn(T)>,
        }

        impl<T: Pooled> $kernel<T>
        where
            f64: AsPrimitive<T>,
            usize: AsPrimitive<T>,
        {
            fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
                BoxedKernel::new($kernel::<T> { plan: $new(builder)?, element: PhantomData })
            }
        }
    };
}

pool_kernel!(Average, Plan, Plan::new);
pool_kernel!(Maximum, Plan, Plan::new);
pool_kernel!(AverageGrad, bool, overlapping);
pool_kernel!(MaximumGrad, bool, overlapping);

fn overlapping(builder: &KernelBuilder<'_>) -> Result<bool> {
    builder.attrs().bool("overlapping")
}

impl<T: Pooled> Kernel for Average<T>
where
    usize: AsPrimitive<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let windows = self.plan.windows(context.input(0)?)?;
        let from = context.slice::<T>(0)?;
        let channels = windows.input[3];
        let counts = windows.counts()?;
        let output = Tensor::build::<T>(windows.output_shape()?, |to| {
            to.fill(T::zero());
            windows.visit(|output, input| {
                for channel in 0..channels {
                    let to = &mut to[output * channels + channel];
                    *to = to.plus(from[input * channels + channel]);
                }
            });
            for (to, &count) in to.chunks_exact_mut(channels.max(1)).zip(&counts) {
                to.iter_mut().for_each(|to| *to /= count.max(1).as_());
            }
        })?;
        windows.set_outputs(context, output);
        Ok(())
    }
}

impl<T: Pooled> Kernel for Maximum<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let windows = self.plan.windows(context.input(0)?)?;
        let from = context.slice::<T>(0)?;
        let channels = windows.input[3];
        let output = Tensor::build::<T>(windows.output_shape()?, |to| {
            to.fill(T::min_value());
            windows.visit(|output, input| {
                for channel in 0..channels {
                    let (to, from) = (&mut to[output * channels + channel], from[input * channels + channel]);
                    if from > *to {
                        *to = from;
                    }
                }
            });
        })?;
        windows.set_outputs(context, output);
        Ok(())
    }
}

impl<T: Pooled> Kernel for AverageGrad<T>
where
    f64: AsPrimitive<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = context.input(0)?;
        if !shape.shape().is_vector() {
            return Err(Status::invalid_argument("original input tensor shape must be 1-dimensional"));
        }
        let shape = Shape::new(shape.as_slice::<i64>()?)?;
        shape.num_bytes(8)?;
        let grad = context.input(1)?;
        let windows = Windows::given(&shape, context.input(2)?, context.input(3)?, grad, self.plan)?;
        let grad = grad.as_slice::<T>()?;
        let channels = windows.input[3];
        let counts = windows.counts()?;
        let mut sums = vec![0f64; shape.num_elements()];
        windows.visit(|output, input| {
            for channel in 0..channels {
                sums[input * channels + channel] += grad[output * channels + channel].as_() / counts[output] as f64;
            }
        });
        let output = Tensor::build::<T>(shape, |to| to.iter_mut().zip(&sums).for_each(|(to, sum)| *to = sum.as_()))?;
        context.set_output(0, output);
        Ok(())
    }
}

impl<T: Pooled> Kernel for MaximumGrad<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, grad) = (context.input(0)?, context.input(2)?);
        if context.input(1)?.shape() != grad.shape() {
            return Err(Status::invalid_argument("orig_output and out_backprop must have the same shape"));
        }
        let windows = Windows::given(input.shape(), context.input(3)?, context.input(4)?, grad, self.plan)?;
        let (from, grad) = (input.as_slice::<T>()?, grad.as_slice::<T>()?);
        let channels = windows.input[3];
        // Among equal ones the first gets the whole gradient.
        let mut best: Vec<Option<usize>> = vec![None; grad.len()];
        windows.visit(|output, input| {
            for channel in 0..channels {
                let (best, place) = (&mut best[output * channels + channel], input * channels + channel);
                if best.is_none_or(|best| from[place] > from[best]) {
                    *best = Some(place);
                }
            }
        });
        let output = Tensor::build::<T>(input.shape().clone(), |to| {
            to.fill(T::zero());
            for (best, &grad) in best.iter().zip(grad) {
                if let Some(place) = best {
                    to[*place] = to[*place].plus(grad);
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
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    fn image() -> Tensor {
        let values: Vec<f64> = (0..7 * 6).map(|index| f64::from((index * 29) % 43)).collect();
        Tensor::from_slice(&[1, 7, 6, 1], &values).unwrap()
    }

    fn attributes(pseudo_random: bool) -> graph::AttrMap {
        attrs![
            ("pooling_ratio", &[1.0f32, 1.5, 1.4, 1.0][..]),
            ("pseudo_random", pseudo_random),
            ("overlapping", true),
            ("deterministic", true),
            ("seed", 3i64),
            ("seed2", 4i64)
        ]
    }

    #[test]
    fn windows_cover_the_image() {
        for pseudo_random in [false, true] {
            let outputs = run_op("FractionalMaxPool", attributes(pseudo_random), &[image()]).unwrap();
            let rows = outputs[1].as_slice::<i64>().unwrap();
            assert!(rows.len() == 5 && rows[0] == 0 && rows[4] == 7 && rows.is_sorted());
            assert_eq!(outputs[0].dims(), &[1, 4, 4, 1]);
        }
    }

    #[test]
    fn gradients() {
        for op in ["FractionalAvgPool", "FractionalMaxPool"] {
            check_gradient(&[image()], |graph, x| {
                let mut builder = graph.op(op).input(&x[0]);
                for (name, value) in attributes(true) {
                    builder = builder.attr(&name, value);
                }
                builder.build().output(0)
            });
        }
    }

    #[test]
    fn bad_sequences_are_refused() {
        let shape = Tensor::vector(&[1i64, 7, 6, 1]);
        let grad = Tensor::from_slice(&[1, 2, 2, 1], &[1f32; 4]).unwrap();
        for rows in [vec![0, 3, 9], vec![-1, 3, 7], vec![0, 7], vec![5, 3, 7]] {
            let inputs = [shape.clone(), grad.clone(), Tensor::vector(&rows), Tensor::vector(&[0i64, 3, 6])];
            assert!(run_op("FractionalAvgPoolGrad", attrs![], &inputs).is_err());
        }
    }

    #[test]
    fn shapes() {
        check_shape("FractionalAvgPool", attributes(false), "[2,?,6,1]", "[2,?,4,1];[?];[5]");
    }
}
