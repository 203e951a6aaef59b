//! Sequences of numbers: Range, LinSpace.

use graph::{Graph, Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels};
use num_traits::Float;
use std::cmp::Ordering;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Range",
            inputs: &["start: Tidx", "limit: Tidx", "delta: Tidx"],
            outputs: &["output: Tidx"],
            attrs: &["Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: range_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("Tidx": [f32, f64, f16, bf16, i8, i16, i32, i64, u16, u32] => Range),
    },
    Op {
        def: OpDef {
            name: "LinSpace",
            inputs: &["start: T", "stop: T", "num: Tidx"],
            outputs: &["output: T"],
            attrs: &["T: {bfloat16, half, float, double}", "Tidx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: lin_space_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64, f16, bf16] => LinSpace),
    },
];

/// Returns the integers from `start` up to but not including `limit`, `delta` apart.
#[track_caller]
pub fn range(graph: &Graph, start: i32, limit: i32, delta: i32) -> Output {
    let number = |value: i32| graph.constant_tensor(&Tensor::scalar(value));
    graph.op("Range").input(&number(start)).input(&number(limit)).input(&number(delta)).output()
}

/// Returns `num` evenly spaced numbers from `start` to `stop`.
#[track_caller]
pub fn linspace(start: &Output, stop: &Output, num: i32) -> Output {
    let graph = start.graph();
    graph.op("LinSpace").input(start).input(stop).input(&graph.constant_tensor(&Tensor::scalar(num))).output()
}

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 0..3 {
        c.with_rank(index, 0)
            .map_err(|status| status.context(format!("for '{}'", ["start", "limit", "delta"][index])))?;
    }
    let (Some(start), Some(limit), Some(delta)) = (c.constant(0), c.constant(1), c.constant(2)) else {
        c.set_output(0, PartialShape::unknown_of_rank(1));
        return Ok(());
    };
    macro_rules! length {
        ($($variant:ident => $rust:ty),*) => {
            match start.dtype() {
                $(DType::$variant => {
                    <$rust>::range_length(start.to_scalar()?, limit.to_scalar()?, delta.to_scalar()?)?
                })*
                other => return Err(Status::invalid_argument(format!("no range of type {other}"))),
            }
        };
    }
    let length = length!(
        Float => f32, Double => f64, Half => f16, BFloat16 => bf16, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
        UInt16 => u16, UInt32 => u32
    );
    c.set_output(0, PartialShape::new(&[Some(length)]));
    Ok(())
}

fn lin_space_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 0..3 {
        c.with_rank(index, 0)?;
    }
    let length = match c.constant(2) {
        Some(num) => Some(num.to_index()?),
        None => None,
    };
    if length.is_some_and(|length| length <= 0) {
        return Err(Status::invalid_argument(format!("Requires num > 0: {}", length.unwrap_or(0))));
    }
    c.set_output(0, PartialShape::new(&[length]));
    Ok(())
}

/// A type that ranges can be of.
trait RangeElement: Element + PartialOrd + std::fmt::Display {
    /// Returns the number of elements, or an error in the bounds.
    fn range_length(start: Self, limit: Self, delta: Self) -> Result<i64>;
    /// Writes the numbers.
    fn fill(start: Self, delta: Self, out: &mut [Self]);
}

fn check_bounds<T: PartialOrd + Default + std::fmt::Display>(start: T, limit: T, delta: T) -> Result<()> {
    let zero = T::default();
    if delta == zero {
        return Err(Status::invalid_argument("Requires delta != 0: 0"));
    }
    // What isn't a number is on neither side. TensorFlow writes it in lower case.
    let shown = || format!("{start}/{limit}").to_lowercase();
    let order = start.partial_cmp(&limit);
    if delta > zero && order.is_none_or(Ordering::is_gt) {
        return Err(Status::invalid_argument(format!("Requires start <= limit when delta > 0: {}", shown())));
    }
    if delta < zero && order.is_none_or(Ordering::is_lt) {
        return Err(Status::invalid_argument(format!("Requires start >= limit when delta < 0: {}", shown())));
    }
    Ok(())
}

macro_rules! integer_ranges {
    ($($ty:ty),*) => {$(
        impl RangeElement for $ty {
            fn range_length(start: Self, limit: Self, delta: Self) -> Result<i64> {
                check_bounds(start, limit, delta)?;
                let distance = i128::from(limit) - i128::from(start);
                let step = i128::from(delta);
                let count = (distance + step - step.signum()) / step;
                i64::try_from(count).map_err(|_| {
                    Status::invalid_argument(format!("Requires ((limit - start) / delta) <= {}", i64::MAX))
                })
            }

            fn fill(start: Self, delta: Self, out: &mut [Self]) {
                let mut value = start;
                for out in out {
                    *out = value;
                    value = value.wrapping_add(delta);
                }
            }
        }
    )*};
}

integer_ranges!(i8, i16, i32, i64, u16, u32);

macro_rules! float_ranges {
    ($($ty:ty),*) => {$(
        impl RangeElement for $ty {
            fn range_length(start: Self, limit: Self, delta: Self) -> Result<i64> {
                check_bounds(start, limit, delta)?;
                let (start, limit, delta) = (f64::from(start), f64::from(limit), f64::from(delta));
                let count = ((limit - start) / delta).abs().ceil();
                if count.is_nan() || count >= i64::MAX as f64 {
                    return Err(Status::invalid_argument(format!("Requires ((limit - start) / delta) <= {}", i64::MAX)));
                }
                Ok(count as i64)
            }

            fn fill(start: Self, delta: Self, out: &mut [Self]) {
                // Computed by a product as in TensorFlow, not step by step, so that the last digits agree.
                for (index, out) in out.iter_mut().enumerate() {
                    *out = start + delta * <$ty as num_traits::NumCast>::from(index).unwrap_or(start);
                }
            }
        }
    )*};
}

float_ranges!(f32, f64, f16, bf16);

/// Returns the one element of an input. As in TensorFlow, a vector of one element will do.
fn scalar<T: Element>(context: &OpContext<'_>, index: usize, name: &str) -> Result<T> {
    let tensor = context.input(index)?;
    if tensor.num_elements() != 1 || tensor.shape().rank() > 1 {
        return Err(Status::invalid_argument(format!("{name} must be a scalar, not shape {}", tensor.shape())));
    }
    tensor.to_scalar()
}

struct Range<T> {
    element: PhantomData<fn(T)>,
}

impl<T: RangeElement> Range<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Range::<T> { element: PhantomData })
    }
}

impl<T: RangeElement> Kernel for Range<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let start = scalar::<T>(context, 0, "start")?;
        let limit = scalar::<T>(context, 1, "limit")?;
        let delta = scalar::<T>(context, 2, "delta")?;
        let shape = Shape::new(&[T::range_length(start, limit, delta)?])?;
        let output = Tensor::build(shape, |out: &mut [T]| T::fill(start, delta, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

struct LinSpace<T> {
    element: PhantomData<fn(T)>,
}

impl<T: Element + Float> LinSpace<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(LinSpace::<T> { element: PhantomData })
    }
}

impl<T: Element + Float> Kernel for LinSpace<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (start, stop) = (scalar::<T>(context, 0, "start")?, scalar::<T>(context, 1, "stop")?);
        let num = context.input(2)?;
        if num.num_elements() != 1 {
            return Err(Status::invalid_argument(format!("num must be a scalar, not shape {}", num.shape())));
        }
        let num = num.to_index()?;
        if num <= 0 {
            return Err(Status::invalid_argument(format!("Requires num > 0: {num}")));
        }
        let output = Tensor::build(Shape::new(&[num])?, |out: &mut [T]| {
            let number = |index: usize| <T as num_traits::NumCast>::from(index).unwrap_or_else(T::nan);
            let last = out.len() - 1;
            let step = if last > 0 { (stop - start) / number(last) } else { T::zero() };
            out[0] = start;
            for index in 1..last {
                out[index] = start + step * number(index);
            }
            if last > 0 {
                out[last] = stop;
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, infer, run_op};
    use tensor::{DType, Tensor};

    fn range_of<T: tensor::Element>(start: T, limit: T, delta: T) -> tensor::Result<Tensor> {
        run_op("Range", attrs![], &[Tensor::scalar(start), Tensor::scalar(limit), Tensor::scalar(delta)])
            .map(|mut outputs| outputs.remove(0))
    }

    #[test]
    fn ranges() {
        assert_eq!(range_of(3i32, 18, 3).unwrap().as_slice::<i32>().unwrap(), &[3, 6, 9, 12, 15]);
        assert_eq!(range_of(3i64, 0, -2).unwrap().as_slice::<i64>().unwrap(), &[3, 1]);
        assert_eq!(range_of(0f32, 1.0, 0.25).unwrap().as_slice::<f32>().unwrap(), &[0.0, 0.25, 0.5, 0.75]);
        assert_eq!(range_of(5i32, 5, 1).unwrap().num_elements(), 0);
        assert!(range_of(0i32, 1, 0).is_err());
        assert!(range_of(1i32, 0, 1).is_err());
        assert!(range_of(i64::MIN, i64::MAX, 1).is_err());
        assert!(range_of(0f64, 1.0, f64::NAN).is_err());
    }

    #[test]
    fn evenly_spaced() {
        let run =
            |num: i32| run_op("LinSpace", attrs![], &[Tensor::scalar(1f32), Tensor::scalar(2f32), Tensor::scalar(num)]);
        assert_eq!(run(5).unwrap()[0].as_slice::<f32>().unwrap(), &[1.0, 1.25, 1.5, 1.75, 2.0]);
        assert_eq!(run(1).unwrap()[0].as_slice::<f32>().unwrap(), &[1.0]);
        assert!(run(0).is_err());
    }

    #[test]
    fn shapes() {
        let number = |value: i32| Tensor::scalar(value);
        let attrs = || attrs![("Tidx", DType::Int32)];
        let known = infer("Range", attrs(), "[];[];[]", &[(0, number(0)), (1, number(7)), (2, number(2))]).unwrap();
        assert_eq!(known[0].to_string(), "[4]");
        assert_eq!(infer("Range", attrs(), "[];[];[]", &[]).unwrap()[0].to_string(), "[?]");
    }
}
