//! Bitwise operations: BitwiseAnd, BitwiseOr, BitwiseXor, Invert, LeftShift, RightShift, PopulationCount.

use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape};
use num_traits::PrimInt;
use numeric::elementwise;
use std::marker::PhantomData;
use tensor::{Element, Result, Tensor};

/// Returns the record of an op on two integers.
macro_rules! binary_op {
    ($name:literal, $flags:expr, |$x:ident, $y:ident| $value:expr) => {
        Op {
            def: OpDef {
                name: $name,
                inputs: &["x: T", "y: T"],
                outputs: &["z: T"],
                attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"],
                flags: $flags,
            },
            shape: shape::broadcast_binary,
            gradient: Gradient::NotDifferentiable,
            kernels: binary_kernels!([i8, i16, i32, i64, u8, u16, u32, u64] => |$x, $y| $value),
        }
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    binary_op!("BitwiseAnd", OpFlags::COMMUTATIVE, |x, y| x & y),
    binary_op!("BitwiseOr", OpFlags::COMMUTATIVE, |x, y| x | y),
    binary_op!("BitwiseXor", OpFlags::COMMUTATIVE, |x, y| x ^ y),
    binary_op!("LeftShift", OpFlags::NONE, |x, y| x.unsigned_shl(shift(x, y))),
    binary_op!("RightShift", OpFlags::NONE, |x, y| x >> shift(x, y)),
    Op {
        def: OpDef {
            name: "Invert",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: unary_kernels!([i8, i16, i32, i64, u8, u16, u32, u64] => |x| !x),
    },
    Op {
        def: OpDef {
            name: "PopulationCount",
            inputs: &["x: T"],
            outputs: &["y: uint8"],
            attrs: &["T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [i8, i16, i32, i64, u8, u16, u32, u64] => PopulationCount),
    },
];

/// Returns the bitwise and.
#[track_caller]
pub fn bitwise_and(x: &Output, y: &Output) -> Output {
    x.graph().op("BitwiseAnd").input(x).input(y).output()
}

/// Returns the bitwise or.
#[track_caller]
pub fn bitwise_or(x: &Output, y: &Output) -> Output {
    x.graph().op("BitwiseOr").input(x).input(y).output()
}

/// Returns the bitwise exclusive or.
#[track_caller]
pub fn bitwise_xor(x: &Output, y: &Output) -> Output {
    x.graph().op("BitwiseXor").input(x).input(y).output()
}

/// Returns the shift distance, clamped to the valid range.
#[inline(always)]
fn shift<T: PrimInt>(_: T, by: T) -> u32 {
    let most = T::zero().count_zeros() - 1;
    if by < T::zero() { 0 } else { by.to_u32().unwrap_or(most).min(most) }
}

struct PopulationCount<T>(PhantomData<fn(T)>);

impl<T: Element + PrimInt> PopulationCount<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(PopulationCount::<T>(PhantomData))
    }
}

impl<T: Element + PrimInt> Kernel for PopulationCount<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let from = input.as_slice::<T>()?;
        let output = Tensor::build(input.shape().clone(), |to: &mut [u8]| {
            elementwise::unary(from, to, |x: T| x.count_ones() as u8)
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    /// The numbers come from TensorFlow.
    #[test]
    fn bits() {
        let run = |op: &str, x: &[i8], y: &[i8]| -> Vec<i8> {
            let z = run_op(op, attrs![], &[Tensor::vector(x), Tensor::vector(y)]).unwrap();
            z[0].as_slice().unwrap().to_vec()
        };
        assert_eq!(run("BitwiseAnd", &[-1, 12, 5], &[7, 10, 3]), [7, 8, 1]);
        assert_eq!(run("BitwiseOr", &[-1, 12, 5], &[7, 10, 3]), [-1, 14, 7]);
        assert_eq!(run("BitwiseXor", &[-1, 12, 5], &[7, 10, 3]), [-8, 6, 6]);
        assert_eq!(run("LeftShift", &[-1, -5, 1, 3], &[1, -9, 7, 100]), [-2, -5, -128, -128]);
        assert_eq!(run("RightShift", &[-1, -5, 64, 3], &[1, -9, 5, 100]), [-1, -5, 2, 0]);
        let counted = run_op("PopulationCount", attrs![], &[Tensor::vector(&[0i32, -1, 6])]).unwrap();
        assert_eq!(counted[0].as_slice::<u8>().unwrap(), [0, 32, 2]);
        let inverted = run_op("Invert", attrs![], &[Tensor::vector(&[0u8, 0xf0])]).unwrap();
        assert_eq!(inverted[0].as_slice::<u8>().unwrap(), [0xff, 0x0f]);
    }
}
