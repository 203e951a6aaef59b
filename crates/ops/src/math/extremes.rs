//! Element-wise extremes: Maximum, Minimum, ClipByValue.

use crate::compose::{Gradients, binary, binary_gradient, reduce_broadcast, scalar, select};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, ShapeContext, kernels,
    shape,
};
use numeric::elementwise::{self, Broadcast};
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, Element, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Maximum",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(maximum_gradient),
        kernels: binary_kernels!(
            // NaN wins on either side: it is the only value that differs from itself.
            [f32, f64, f16, bf16] => |x, y| if y > x || y != y { y } else { x },
            [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| if y > x { y } else { x },
        ),
    },
    Op {
        def: OpDef {
            name: "Minimum",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(minimum_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| if y < x || y != y { y } else { x },
            [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| if y < x { y } else { x },
        ),
    },
    Op {
        def: OpDef {
            name: "ClipByValue",
            inputs: &["t: T", "clip_value_min: T", "clip_value_max: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: clip_shape,
        gradient: Gradient::Fn(clip_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64] => Clip),
    },
];

/// Returns the larger of both, element by element.
#[track_caller]
pub fn maximum(x: &Output, y: &Output) -> Output {
    x.graph().op("Maximum").input(x).input(y).output()
}

/// Returns the smaller of both, element by element.
#[track_caller]
pub fn minimum(x: &Output, y: &Output) -> Output {
    x.graph().op("Minimum").input(x).input(y).output()
}

/// Returns `x` with elements limited to the range from `low` to `high`.
#[track_caller]
pub fn clip_by_value(x: &Output, low: &Output, high: &Output) -> Output {
    maximum(&minimum(x, high), low)
}

fn clip_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.input(0);
    for index in 1..3 {
        // The bounds are scalars or have the shape of the data.
        if c.input(index).rank().is_some_and(|rank| rank != 0) {
            data.merge(&c.input(index))?;
        }
    }
    c.set_output(0, data);
    Ok(())
}

fn maximum_gradient(args: &GradientArgs<'_>) -> Gradients {
    extreme_gradient(args, "GreaterEqual")
}

fn minimum_gradient(args: &GradientArgs<'_>) -> Gradients {
    extreme_gradient(args, "LessEqual")
}

fn extreme_gradient(args: &GradientArgs<'_>, comparison: &str) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let first = binary(comparison, x, y)?;
        let zeros = scalar(grad, 0.0)?;
        Ok((Some(select(&first, grad, &zeros)?), Some(select(&first, &zeros, grad)?)))
    })
}

fn clip_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (x, low, high) = (args.input(0), args.input(1), args.input(2));
    let zeros = scalar(&grad, 0.0)?;
    let (below, above) = (binary("Less", &x, &low)?, binary("Greater", &x, &high)?);
    let outside = binary("LogicalOr", &below, &above)?;
    let grad_x = select(&outside, &zeros, &grad)?;
    let (grad_low, _) = reduce_broadcast(&low, &x, Some(select(&below, &grad, &zeros)?), None)?;
    let (grad_high, _) = reduce_broadcast(&high, &x, Some(select(&above, &grad, &zeros)?), None)?;
    Ok(vec![Some(grad_x.into()), grad_low.map(Into::into), grad_high.map(Into::into)])
}

/// Clips its input to a range.
struct Clip<T> {
    element: PhantomData<fn(T)>,
}

/// What has a value between two others.
trait Limited: Element {
    fn limited(self, low: Self, high: Self) -> Self;
}

macro_rules! limited {
    ($($scalar:ty),*) => {$(
        impl Limited for $scalar {
            #[inline]
            fn limited(self, low: Self, high: Self) -> Self {
                let limited = if high < self { high } else { self };
                if limited < low { low } else { limited }
            }
        }
    )*};
}
limited!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! limited_by_parts {
    ($($complex:ty),*) => {$(
        impl Limited for $complex {
            #[inline]
            fn limited(self, low: Self, high: Self) -> Self {
                <$complex>::new(self.re.limited(low.re, high.re), self.im.limited(low.im, high.im))
            }
        }
    )*};
}
limited_by_parts!(Complex32, Complex64);

impl<T: Limited> Clip<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Clip::<T> { element: PhantomData })
    }
}

impl<T: Limited> Kernel for Clip<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (x, low, high) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let fits = |bound: &Tensor| bound.num_elements() == 1 || bound.shape() == x.shape();
        if !fits(low) || !fits(high) {
            return Err(Status::invalid_argument(format!(
                "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. input shape: {}clip_value_min shape: {}clip_value_max shape: {}",
                x.shape(),
                low.shape(),
                high.shape()
            )));
        }
        let count = [x.num_elements()];
        let dims = |bound: &Tensor| if bound.shape() == x.shape() { count } else { [1] };
        let plan = Broadcast::<3>::of([&count, &dims(low), &dims(high)])
            .ok_or_else(|| Status::internal("bounds that were checked don't fit"))?;
        let (values, low, high) = (x.as_slice::<T>()?, low.as_slice::<T>()?, high.as_slice::<T>()?);
        let output = Tensor::build(x.shape().clone(), |out: &mut [T]| {
            elementwise::ternary(values, low, high, out, &plan, T::limited);
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    #[test]
    fn nan_wins() {
        let x = Tensor::vector(&[f32::NAN, 1.0, 2.0]);
        let y = Tensor::vector(&[1.0, f32::NAN, 3.0]);
        for (op, last) in [("Maximum", 3.0), ("Minimum", 2.0)] {
            let z = run_op(op, attrs![], &[x.clone(), y.clone()]).unwrap();
            let z = z[0].as_slice::<f32>().unwrap();
            assert!(z[0].is_nan() && z[1].is_nan() && z[2] == last, "{op}: {z:?}");
        }
    }

    #[test]
    fn clipping() {
        let x = Tensor::vector(&[-5i32, 0, 5]);
        let z = run_op("ClipByValue", attrs![], &[x.clone(), Tensor::scalar(-1i32), Tensor::vector(&[9i32, 9, 3])])
            .unwrap();
        assert_eq!(z[0].as_slice::<i32>().unwrap(), &[-1, 0, 3]);
        assert!(run_op("ClipByValue", attrs![], &[x, Tensor::vector(&[1i32, 2]), Tensor::scalar(1i32)]).is_err());
        check_shape("ClipByValue", attrs![], "[2,?];[];[]", "[2,?]");
        let number = Complex32::new;
        let x = Tensor::vector(&[number(3.0, 1.0), number(-1.0, -4.0), number(1.0, 9.0)]);
        let bounds = [Tensor::scalar(number(1.0, 1.0)), Tensor::scalar(number(2.0, 2.0))];
        let z = run_op("ClipByValue", attrs![], &[x, bounds[0].clone(), bounds[1].clone()]).unwrap();
        let expected = [number(2.0, 1.0), number(1.0, 1.0), number(1.0, 2.0)];
        assert_eq!(z[0].as_slice::<Complex32>().unwrap(), &expected);
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 2], &[1f64, 2.0, 3.0, 4.0]).unwrap();
        let y = Tensor::vector(&[2.5f64, 0.5]);
        check_gradient(&[x.clone(), y.clone()], |_, x| maximum(&x[0], &x[1]));
        check_gradient(&[x.clone(), y], |_, x| minimum(&x[0], &x[1]));
        check_gradient(&[x, Tensor::scalar(1.5f64), Tensor::scalar(3.5f64)], |graph, x| {
            graph.op("ClipByValue").inputs(x).output()
        });
    }
}
