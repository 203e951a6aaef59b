//! Grey-scale dilation: Dilation2D and its gradient ops.

use super::padding::Padding;
use crate::arithmetic::Arithmetic;
use crate::compose::Gradients;
use graph::Output;
use kernel::{
    AttrMap, BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, ShapeContext,
    kernels,
};
use num_traits::Bounded;
use std::marker::PhantomData;
use tensor::{PartialShape, Result, Shape, Status, Tensor, bf16, f16};

const ATTRS: &[&str] = &[
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
    "strides: list(int) >= 4",
    "rates: list(int) >= 4",
    "padding: {'SAME', 'VALID'}",
];
const WITH_GRADIENT: &[&str] = &["input: T", "filter: T", "out_backprop: T"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Dilation2D",
            inputs: &["input: T", "filter: T"],
            outputs: &["output: T"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: dilation_shape,
        gradient: Gradient::Fn(dilation_gradient),
        kernels: kernels!("T": [f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64] => Dilation),
    },
    Op {
        def: OpDef {
            name: "Dilation2DBackpropInput",
            inputs: WITH_GRADIENT,
            outputs: &["in_backprop: T"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let input = c.input(0);
            c.set_output(0, input);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64] => BackpropInput),
    },
    Op {
        def: OpDef {
            name: "Dilation2DBackpropFilter",
            inputs: WITH_GRADIENT,
            outputs: &["filter_backprop: T"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let filter = c.input(1);
            c.set_output(0, filter);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64] => BackpropFilter),
    },
];

/// Returns for each position the maximum of input plus filter within the window; `strides` and `rates` are those of rows and
/// columns.
#[track_caller]
pub fn dilation2d(input: &Output, filter: &Output, strides: [i64; 2], rates: [i64; 2], padding: Padding) -> Output {
    let whole = |[rows, columns]: [i64; 2]| [1, rows, columns, 1];
    let op = input.graph().op("Dilation2D").input(input).input(filter);
    op.attr("strides", &whole(strides)[..]).attr("rates", &whole(rates)[..]).attr("padding", padding.attr()).output()
}

fn dilation_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, filter) = (c.with_rank(0, 4)?, c.with_rank(1, 3)?);
    let steps = Steps::new(c.attrs)?;
    let depth = input.slice(3, 4).merge(&filter.slice(2, 3))?.dim(0);
    let mut dims = vec![input.dim(0)];
    for axis in 0..2 {
        dims.push(match (input.dim(axis + 1), filter.dim(axis)) {
            (Some(input), Some(filter)) => Some(steps.place(axis, input as usize, filter as usize)?.0 as i64),
            _ => None,
        });
    }
    dims.push(depth);
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

fn dilation_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let attrs = args.op.attrs();
    let back = |op: &str| -> Result<Output> {
        let op = grad.graph().op(op).inputs([&args.input(0), &args.input(1), &grad]);
        let op = op.attr("strides", attrs.ints("strides")?).attr("rates", attrs.ints("rates")?);
        Ok(op.attr("padding", attrs.string("padding")?).try_build()?.output(0))
    };
    let (input, filter) = (back("Dilation2DBackpropInput")?, back("Dilation2DBackpropFilter")?);
    Ok(vec![Some(input.into()), Some(filter.into())])
}

/// The window over rows and columns.
struct Steps {
    strides: [usize; 2],
    rates: [usize; 2],
    same: bool,
}

impl Steps {
    fn new(attrs: &AttrMap) -> Result<Steps> {
        let list = |name: &str| -> Result<[usize; 2]> {
            match attrs.ints(name)? {
                &[1, rows, columns, 1] => {
                    match (1..=0x7fff_ffff).contains(&rows) && (1..=0x7fff_ffff).contains(&columns) {
                        true => Ok([rows as usize, columns as usize]),
                        false => Err(Status::out_of_range(format!("{name} is out of range."))),
                    }
                }
                [_, _, _, _] => Err(Status::unimplemented(format!("Only support {name} across space."))),
                other => Err(Status::invalid_argument(format!(
                    "Dilation2D requires the {name} attribute to contain 4 values, but got: {}",
                    other.len()
                ))),
            }
        };
        Ok(Steps { strides: list("strides")?, rates: list("rates")?, same: attrs.string("padding")? == "SAME" })
    }

    /// Returns the number of filter positions along an axis, and how far before the input the first one begins.
    fn place(&self, axis: usize, input: usize, filter: usize) -> Result<(usize, usize)> {
        let (input, stride) = (input as i64, self.strides[axis] as i64);
        let reach = (filter as i64 - 1).saturating_mul(self.rates[axis] as i64).saturating_add(1);
        if self.same {
            let count = (input + stride - 1) / stride;
            let covered = ((count - 1) * stride).saturating_add(reach);
            return Ok((count as usize, (covered.saturating_sub(input).max(0) / 2) as usize));
        }
        let count = input.saturating_sub(reach).saturating_add(stride) / stride;
        let count = usize::try_from(count).map_err(|_| {
            Status::invalid_argument(format!("Computed output size would be negative: {count} [input_size: {input}]"))
        })?;
        Ok((count, 0))
    }
}

/// The sizes of one run.
struct Plan {
    batch: usize,
    depth: usize,
    input: [usize; 2],
    filter: [usize; 2],
    output: [usize; 2],
    before: [usize; 2],
}

impl Plan {
    fn new(steps: &Steps, input: &Tensor, filter: &Tensor) -> Result<Plan> {
        let (from, shape) = (input.shape(), filter.shape());
        if from.rank() != 4 {
            return Err(Status::invalid_argument(format!("input must be 4-dimensional: {from}")));
        }
        if shape.rank() != 3 {
            return Err(Status::invalid_argument(format!("filter must be 3-dimensional: {shape}")));
        }
        let depth = from.size(3);
        if depth != shape.size(2) {
            return Err(Status::invalid_argument(format!(
                "input and filter must have the same depth: {depth} vs {}",
                shape.size(2)
            )));
        }
        let mut plan = Plan {
            batch: from.size(0),
            depth,
            input: [from.size(1), from.size(2)],
            filter: [shape.size(0), shape.size(1)],
            output: [0; 2],
            before: [0; 2],
        };
        for axis in 0..2 {
            (plan.output[axis], plan.before[axis]) = steps.place(axis, plan.input[axis], plan.filter[axis])?;
        }
        Ok(plan)
    }

    fn output_shape(&self) -> Result<Shape> {
        Shape::from_usize(&[self.batch, self.output[0], self.output[1], self.depth])
    }

    /// Calls `found` for each element of the output with its index, the maximum, and the elements of the input and of the filter
    /// that it comes from; without one within the image these are at the filter's beginning.
    fn each<T: Arithmetic + PartialOrd + Bounded>(
        &self,
        steps: &Steps,
        input: &[T],
        filter: &[T],
        found: &mut dyn FnMut(usize, T, Option<usize>, Option<usize>),
    ) {
        let [rows, columns] = self.input;
        let mut index = 0;
        for batch in 0..self.batch {
            for out_row in 0..self.output[0] {
                for out_column in 0..self.output[1] {
                    let start = [out_row * steps.strides[0], out_column * steps.strides[1]];
                    for channel in 0..self.depth {
                        let place = |row: usize, column: usize| {
                            ((batch * rows + row) * columns + column) * self.depth + channel
                        };
                        let first = [0, 1].map(|axis: usize| start[axis].saturating_sub(self.before[axis]));
                        let mut best = (T::min_value(), None, Some(channel));
                        if first[0] < rows && first[1] < columns {
                            best.1 = Some(place(first[0], first[1]));
                        }
                        for tap in 0..self.filter[0] * self.filter[1] {
                            let at = [tap / self.filter[1], tap % self.filter[1]];
                            let source = |axis: usize| {
                                (start[axis] + at[axis] * steps.rates[axis]).checked_sub(self.before[axis])
                            };
                            let (Some(row), Some(column)) = (source(0), source(1)) else { continue };
                            if row >= rows || column >= columns {
                                continue;
                            }
                            let (from, weight) = (place(row, column), tap * self.depth + channel);
                            let sum = input[from].plus(filter[weight]);
                            if sum > best.0 {
                                best = (sum, Some(from), Some(weight));
                            }
                        }
                        found(index, best.0, best.1, best.2.filter(|&weight| weight < filter.len()));
                        index += 1;
                    }
                }
            }
        }
    }
}

fn checked_gradient<'a>(context: &'a OpContext<'_>, plan: &Plan) -> Result<&'a Tensor> {
    let gradient = context.input(2)?;
    match *gradient.shape() == plan.output_shape()? {
        true => Ok(gradient),
        false => Err(Status::invalid_argument("out_backprop has incompatible size.")),
    }
}

macro_rules! dilation_kernel {
    ($name:ident) => {
        struct $name<T> {
            steps: Steps,
            element: PhantomData<T>,
        }

        impl<T: Arithmetic + PartialOrd + Bounded> $name<T> {
            fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
                BoxedKernel::new($name::<T> { steps: Steps::new(builder.attrs())?, element: PhantomData })
            }
        }
    };
}

dilation_kernel!(Dilation);
dilation_kernel!(BackpropInput);
dilation_kernel!(BackpropFilter);

impl<T: Arithmetic + PartialOrd + Bounded> Kernel for Dilation<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let plan = Plan::new(&self.steps, input, filter)?;
        let (from, weights) = (input.as_slice::<T>()?, filter.as_slice::<T>()?);
        let output = Tensor::build::<T>(plan.output_shape()?, |to| {
            plan.each(&self.steps, from, weights, &mut |index, sum, _, _| to[index] = sum);
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

impl<T: Arithmetic + PartialOrd + Bounded> Kernel for BackpropInput<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let plan = Plan::new(&self.steps, input, filter)?;
        let gradient = checked_gradient(context, &plan)?.as_slice::<T>()?;
        let mut output = Tensor::zeros(T::DTYPE, input.shape().clone())?;
        let to = output.make_mut::<T>()?;
        plan.each(&self.steps, input.as_slice::<T>()?, filter.as_slice::<T>()?, &mut |index, _, source, _| {
            if let Some(source) = source {
                to[source] = to[source].plus(gradient[index]);
            }
        });
        context.set_output(0, output);
        Ok(())
    }
}

impl<T: Arithmetic + PartialOrd + Bounded> Kernel for BackpropFilter<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let plan = Plan::new(&self.steps, input, filter)?;
        let gradient = checked_gradient(context, &plan)?.as_slice::<T>()?;
        let mut output = Tensor::zeros(T::DTYPE, filter.shape().clone())?;
        let to = output.make_mut::<T>()?;
        plan.each(&self.steps, input.as_slice::<T>()?, filter.as_slice::<T>()?, &mut |index, _, _, weight| {
            if let Some(weight) = weight {
                to[weight] = to[weight].plus(gradient[index]);
            }
        });
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    fn steps() -> AttrMap {
        let ones: &[i64] = &[1; 4];
        attrs![("strides", ones), ("rates", ones), ("padding", "VALID")]
    }

    #[test]
    fn values() {
        let input = Tensor::from_slice(&[1, 2, 2, 1], &[0.1f32, 0.2, 0.3, 0.4]).unwrap();
        let filter = Tensor::from_slice(&[2, 2, 1], &[0.4f32, 0.3, 0.1, 0.0]).unwrap();
        let output = run_op("Dilation2D", steps(), &[input, filter]).unwrap();
        assert_eq!(output[0].as_slice::<f32>().unwrap(), [0.2f32 + 0.3]);
    }

    #[test]
    fn gradients() {
        let input = Tensor::from_slice(&[1, 2, 3, 1], &[0.1f64, 0.75, 0.3, 0.4, 0.9, 0.2]).unwrap();
        let filter = Tensor::from_slice(&[2, 2, 1], &[0.4f64, 0.33, 0.1, 0.01]).unwrap();
        check_gradient(&[input, filter], |_, x| dilation2d(&x[0], &x[1], [1, 1], [1, 1], Padding::Same));
    }

    #[test]
    fn shapes() {
        check_shape("Dilation2D", steps(), "[?,4,?,3];[2,2,?]", "[?,3,?,3]");
    }
}
