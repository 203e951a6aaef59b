//! Generators whose state is a variable, and unpredictable bits: RngReadAndSkip, RngSkip, the Stateful family,
//! NonDeterministicInts.

use super::fill::{Distribution, FullRange, StandardNormal, TruncatedNormal, Uniform, bound, check_range};
use super::generator::{output_of_shape, random_bits, shape_argument};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, kernels};
use numeric::philox::{self, Philox, RandomInteger};
use std::fmt::Display;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// Lists a kernel of [`StatefulFill`] per type.
macro_rules! stateful_kernels {
    ($distribution:ident, [$($ty:ty),*]) => {
        &[$(KernelDef {
            types: &[("dtype", <$ty as Element>::DTYPE)],
            create: |_| BoxedKernel::new(StatefulFill::<$ty, $distribution>(PhantomData)),
        },)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RngReadAndSkip",
            inputs: &["resource: resource", "alg: int32", "delta: uint64"],
            outputs: &["value: int64"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            for input in 0..3 {
                c.with_rank(input, 0)?;
            }
            c.set_output(0, PartialShape::from_dims(&[STATE_LEN as i64]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(RngReadAndSkip))],
    },
    Op {
        def: OpDef {
            name: "RngSkip",
            inputs: &["resource: resource", "algorithm: int64", "delta: int64"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            c.with_rank(1, 0)?;
            c.with_rank(2, 0)?;
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(RngSkip))],
    },
    Op {
        def: OpDef {
            name: "NonDeterministicInts",
            inputs: &["shape: shape_dtype"],
            outputs: &["output: dtype"],
            attrs: &["dtype: type = DT_INT64", "shape_dtype: type = DT_INT64"],
            flags: OpFlags::STATEFUL,
        },
        shape: output_of_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("dtype": [i32, i64, u32, u64] => NonDeterministicInts),
    },
    stateful("StatefulStandardNormalV2", stateful_kernels!(StandardNormal, [f32, f64, f16, bf16])),
    stateful("StatefulTruncatedNormal", stateful_kernels!(TruncatedNormal, [f32, f64, f16, bf16])),
    stateful("StatefulUniform", stateful_kernels!(Uniform, [f32, f64, f16, bf16])),
    Op {
        def: OpDef {
            attrs: &["dtype: type = DT_UINT64", "shape_dtype: type = DT_INT64"],
            ..stateful_def("StatefulUniformFullInt")
        },
        ..stateful("StatefulUniformFullInt", stateful_kernels!(FullRange, [i32, i64, u32, u64]))
    },
    Op {
        def: OpDef {
            inputs: &["resource: resource", "algorithm: int64", "shape: shape_dtype", "minval: dtype", "maxval: dtype"],
            attrs: &["dtype: type = DT_INT64", "shape_dtype: type = DT_INT64"],
            ..stateful_def("StatefulUniformInt")
        },
        ..stateful("StatefulUniformInt", kernels!("dtype": [i32, i64, u32, u64] => StatefulUniformInt))
    },
];

const fn stateful_def(name: &'static str) -> OpDef {
    OpDef {
        name,
        inputs: &["resource: resource", "algorithm: int64", "shape: shape_dtype"],
        outputs: &["output: dtype"],
        attrs: &["dtype: type = DT_FLOAT", "shape_dtype: type = DT_INT64"],
        flags: OpFlags::STATEFUL,
    }
}

/// The record of an op that draws from the generator of a variable.
const fn stateful(name: &'static str, kernels: &'static [KernelDef]) -> Op {
    Op {
        def: stateful_def(name),
        shape: |c| {
            let shape = c.constant_as_shape(2)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels,
    }
}

/// A 128-bit counter, lower half first, and a key.
const STATE_LEN: usize = 3;
/// The number of counts that TensorFlow reserves for each output of an op, whatever it needs.
const COUNTS_PER_OUTPUT: u64 = 256;

const PHILOX: i64 = 1;
const THREE_FRY: i64 = 2;
const AUTO_SELECT: i64 = 3;

/// Advances the counter of a state, and returns the previous state.
fn read_and_skip(context: &OpContext<'_>, algorithm: i64, delta: u64) -> Result<[i64; STATE_LEN]> {
    match algorithm {
        PHILOX | AUTO_SELECT => {}
        THREE_FRY => return Err(Status::unimplemented("Non-XLA devices don't support the ThreeFry algorithm.")),
        other => return Err(Status::invalid_argument(format!("Unsupported algorithm id: {other}"))),
    }
    context.variable(0)?.update(|state| {
        if state.dtype() != DType::Int64 {
            return Err(Status::invalid_argument(format!(
                "dtype of RNG state variable must be int64, not {}",
                state.dtype()
            )));
        }
        if !state.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "RNG state must have one and only one dimension, not {}",
                state.shape().rank()
            )));
        }
        if state.num_elements() < STATE_LEN {
            return Err(Status::invalid_argument(format!(
                "For the Philox algorithm, the size of state must be at least {STATE_LEN}; got {}",
                state.num_elements()
            )));
        }
        let state = state.make_mut::<i64>()?;
        let before = [state[0], state[1], state[2]];
        let (low, high) = skipped(state[0] as u64, state[1] as u64, delta.wrapping_mul(COUNTS_PER_OUTPUT));
        (state[0], state[1]) = (low as i64, high as i64);
        Ok(before)
    })
}

/// Adds to a 128-bit counter as TensorFlow does: word by word, so that a carry into a word of ones is lost.
fn skipped(low: u64, high: u64, counts: u64) -> (u64, u64) {
    let (first, carry) = (low as u32).overflowing_add(counts as u32);
    let upper_counts = ((counts >> 32) as u32).wrapping_add(u32::from(carry));
    let (second, carry) = ((low >> 32) as u32).overflowing_add(upper_counts);
    (u64::from(first) | u64::from(second) << 32, high.wrapping_add(u64::from(carry)))
}

/// Returns the one element of an input that must be a scalar.
fn scalar<T: Element>(context: &OpContext<'_>, index: usize) -> Result<T> {
    let tensor = context.input(index)?;
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument(format!(
            "input {index} (0-based) must have shape [], not {}",
            tensor.shape()
        )));
    }
    tensor.to_scalar()
}

struct RngReadAndSkip;

impl Kernel for RngReadAndSkip {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (algorithm, delta) = (scalar::<i32>(context, 1)?, scalar::<u64>(context, 2)?);
        let before = read_and_skip(context, i64::from(algorithm), delta)?;
        context.set_output(0, Tensor::vector(&before));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct RngSkip;

impl Kernel for RngSkip {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (algorithm, delta) = (scalar::<i64>(context, 1)?, scalar::<i64>(context, 2)?);
        read_and_skip(context, algorithm, delta as u64).map(|_| ())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Returns the stream of the generator whose variable is the first input and whose algorithm the second, and advances the
/// generator by this many outputs.
pub(super) fn reserve(context: &OpContext<'_>, outputs: usize) -> Result<Philox> {
    let algorithm = scalar::<i64>(context, 1)?;
    let [low, high, key] = read_and_skip(context, algorithm, outputs as u64)?;
    Ok(Philox::from_state([low as u64, high as u64], key as u64))
}

/// Draws from the generator of a variable.
struct StatefulFill<T, D>(PhantomData<fn() -> (T, D)>);

impl<T: Element, D: Distribution<T>> Kernel for StatefulFill<T, D> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(2)?)?;
        let philox = reserve(context, shape.num_elements())?;
        let output = Tensor::build(shape, |out: &mut [T]| D::fill(philox, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

struct StatefulUniformInt<T>(PhantomData<fn() -> T>);

impl<T: Element + RandomInteger + PartialOrd + Display> StatefulUniformInt<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(StatefulUniformInt::<T>(PhantomData))
    }
}

impl<T: Element + RandomInteger + PartialOrd + Display> Kernel for StatefulUniformInt<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(2)?)?;
        let (low, high) = (bound::<T>(context, 3, "minval")?, bound::<T>(context, 4, "maxval")?);
        check_range(low, high)?;
        let philox = reserve(context, shape.num_elements())?;
        let output = Tensor::build(shape, |out: &mut [T]| philox::fill_uniform_integers(philox, low, high, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

struct NonDeterministicInts<T>(PhantomData<T>);

impl<T: Element> NonDeterministicInts<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel>
    where
        T: FromBits,
    {
        BoxedKernel::new(NonDeterministicInts::<T>(PhantomData))
    }
}

/// An integer of a number's lower bits.
trait FromBits: Element {
    fn from_bits(bits: u64) -> Self;
}

macro_rules! from_bits {
    ($($type:ty),*) => {
        $(impl FromBits for $type {
            fn from_bits(bits: u64) -> Self {
                bits as $type
            }
        })*
    };
}

from_bits!(i32, i64, u32, u64);

impl<T: FromBits> Kernel for NonDeterministicInts<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape: Shape = shape_argument(context.input(0)?)?;
        let output = Tensor::build(shape, |output: &mut [T]| output.fill_with(|| T::from_bits(random_bits())))?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestSession, attrs, check_shape, run_op};
    use tensor::{Code, DType, PartialShape, Tensor};

    #[test]
    fn a_generator_moves_on() {
        let session = TestSession::new();
        let handle = session.graph.op("VarHandleOp").attr("dtype", DType::Int64).attr("shared_name", "state");
        let handle = handle.attr("shape", PartialShape::unknown()).output();
        let value = session.placeholder(DType::Int64);
        let assign = session.graph.op("AssignVariableOp").input(&handle).input(&value).build();
        let (alg, delta) = (session.placeholder(DType::Int32), session.placeholder(DType::UInt64));
        let skip = session.graph.op("RngReadAndSkip").input(&handle).input(&alg).input(&delta).output();
        session.run(&assign, &[(&value, Tensor::vector(&[-1i64, 6, 7]))]).unwrap();
        let run =
            |algorithm: i32| session.fetch(&skip, &[(&alg, Tensor::scalar(algorithm)), (&delta, Tensor::scalar(3u64))]);
        assert_eq!(run(1).unwrap().as_slice::<i64>().unwrap(), &[-1, 6, 7]);
        assert_eq!(run(3).unwrap().as_slice::<i64>().unwrap(), &[767, 7, 7]);
        assert_eq!(run(2).unwrap_err().code(), Code::Unimplemented);
        assert_eq!(run(9).unwrap_err().code(), Code::InvalidArgument);
        session.run(&assign, &[(&value, Tensor::vector(&[1i64, 2]))]).unwrap();
        assert_eq!(run(1).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn bits_differ() {
        let bits = run_op("NonDeterministicInts", attrs![], &[Tensor::vector(&[100i64])]).unwrap();
        let mut bits = bits[0].as_slice::<i64>().unwrap().to_vec();
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), 100);
        check_shape("RngReadAndSkip", attrs![], "[];[];[]", "[3]");
    }
}
