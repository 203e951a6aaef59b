//! Sums, differences and products: Add, AddV2, Sub, Mul, MulNoNan, SquaredDifference, Neg, Square.

use crate::compose::{Gradients, binary, binary_gradient, conj, times, unary, unary_gradient};
use crate::elementwise::broadcast_plan;
use bytes::{Bytes, BytesMut};
use graph::Output;
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use num_traits::Zero;
use tensor::{Complex32, Complex64, DType, Result, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Add",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, string}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(add_gradient),
        kernels: ADD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "AddV2",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, complex64, complex128}",
            ],
            flags: OpFlags::COMMUTATIVE.union(OpFlags::AGGREGATE),
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(add_gradient),
        kernels: ADD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "Sub",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, complex128, uint32, uint64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(sub_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| x - y,
            [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x.wrapping_sub(y),
        ),
    },
    Op {
        def: OpDef {
            name: "Mul",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, complex64, complex128}",
            ],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(mul_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| x * y,
            [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x.wrapping_mul(y),
        ),
    },
    Op {
        def: OpDef {
            name: "MulNoNan",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(mul_no_nan_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| if y.is_zero() { y - y } else { x * y },
        ),
    },
    Op {
        def: OpDef {
            name: "SquaredDifference",
            inputs: &["x: T", "y: T"],
            outputs: &["z: T"],
            attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::Fn(squared_difference_gradient),
        kernels: binary_kernels!(
            [f32, f64, f16, bf16] => |x, y| (x - y) * (x - y),
            [i32, i64] => |x, y| x.wrapping_sub(y).wrapping_mul(x.wrapping_sub(y)),
            [Complex32, Complex64] => |x, y| (x - y) * (x - y).conj(),
        ),
    },
    Op {
        def: OpDef {
            name: "Neg",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(neg_gradient),
        kernels: unary_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => |x| -x,
            [i8, i16, i32, i64] => |x| x.wrapping_neg(),
        ),
    },
    Op {
        def: OpDef {
            name: "Square",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(square_gradient),
        kernels: unary_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => |x| x * x,
            [i8, i16, i32, i64, u8, u16, u32, u64] => |x| x.wrapping_mul(x),
        ),
    },
];

/// The kernels of both versions. Strings are concatenated.
const ADD_KERNELS: &[KernelDef] = binary_kernels!(
    [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| x + y,
    [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x.wrapping_add(y);
    KernelDef { types: &[("T", DType::String)], create: |_| BoxedKernel::new(StringAdd) },
);

/// Returns `x + y`.
#[track_caller]
pub fn add(x: &Output, y: &Output) -> Output {
    x + y
}

/// Returns `x - y`.
#[track_caller]
pub fn subtract(x: &Output, y: &Output) -> Output {
    x - y
}

/// Returns `x * y`.
#[track_caller]
pub fn multiply(x: &Output, y: &Output) -> Output {
    x * y
}

/// Returns `-x`.
#[track_caller]
pub fn negative(x: &Output) -> Output {
    -x
}

/// Returns `x * x`.
#[track_caller]
pub fn square(x: &Output) -> Output {
    x.graph().op("Square").input(x).output()
}

/// Returns `(x - y)²`; for complex values the square of the distance.
#[track_caller]
pub fn squared_difference(x: &Output, y: &Output) -> Output {
    x.graph().op("SquaredDifference").input(x).input(y).output()
}

fn add_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, _, _| Ok((Some(grad.clone()), Some(grad.clone()))))
}

fn sub_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, _, _| Ok((Some(grad.clone()), Some(unary("Neg", grad)?))))
}

fn mul_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        Ok((Some(binary("Mul", grad, &conj(y)?)?), Some(binary("Mul", &conj(x)?, grad)?)))
    })
}

fn mul_no_nan_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| Ok((Some(binary("MulNoNan", grad, y)?), Some(binary("MulNoNan", x, grad)?))))
}

fn squared_difference_gradient(args: &GradientArgs<'_>) -> Gradients {
    binary_gradient(args, |grad, x, y| {
        let grad_x = binary("Mul", &times(grad, 2.0)?, &binary("Sub", x, y)?)?;
        let grad_y = unary("Neg", &grad_x)?;
        Ok((Some(grad_x), Some(grad_y)))
    })
}

fn neg_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, _| unary("Neg", grad))
}

fn square_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| binary("Mul", grad, &times(&conj(x)?, 2.0)?))
}

/// Concatenates strings element by element.
struct StringAdd;

impl Kernel for StringAdd {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = (context.input(0)?, context.input(1)?);
        let (plan, shape) = broadcast_plan(a, b)?;
        let (a, b) = (a.strings()?, b.strings()?);
        let mut pairs = vec![(0u32, 0u32); plan.out_len()];
        let positions = |len: usize| -> Vec<u32> { (0..len as u32).collect() };
        let (left, right) = (positions(a.len()), positions(b.len()));
        numeric::elementwise::binary(&left, &right, &mut pairs, &plan, |left, right| (left, right));
        let joined = pairs.into_iter().map(|(left, right)| concat(&a[left as usize], &b[right as usize]));
        let output = Tensor::from_strings(shape, joined.collect())?;
        context.set_output(0, output);
        Ok(())
    }
}

fn concat(a: &Bytes, b: &Bytes) -> Bytes {
    let mut joined = BytesMut::with_capacity(a.len() + b.len());
    joined.extend_from_slice(a);
    joined.extend_from_slice(b);
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Shape, Tensor};

    #[test]
    fn values_broadcast_and_wrap() {
        let x = Tensor::from_slice(&[2, 2], &[1i32, 2, i32::MAX, 4]).unwrap();
        let y = Tensor::vector(&[1i32, 10]);
        let z = run_op("AddV2", attrs![], &[x.clone(), y.clone()]).unwrap();
        assert_eq!(z[0].as_slice::<i32>().unwrap(), &[2, 12, i32::MIN, 14]);
        let z = run_op("Mul", attrs![], &[x, y]).unwrap();
        assert_eq!(z[0].as_slice::<i32>().unwrap(), &[1, 20, i32::MAX, 40]);
        let x = Tensor::vector(&[f32::NAN, f32::INFINITY, 2.0]);
        let y = Tensor::vector(&[0f32, 0.0, 3.0]);
        let z = run_op("MulNoNan", attrs![], &[x, y]).unwrap();
        assert_eq!(z[0].as_slice::<f32>().unwrap(), &[0.0, 0.0, 6.0]);
    }

    #[test]
    fn strings_are_joined() {
        let text = |values: &[&'static str]| {
            Tensor::from_strings(Shape::vector(values.len()), values.iter().map(|&text| text.into()).collect()).unwrap()
        };
        let z = run_op("Add", attrs![], &[text(&["a", "b"]), Tensor::string("!")]).unwrap();
        assert_eq!(z[0].strings().unwrap(), &["a!", "b!"]);
    }

    #[test]
    fn shapes() {
        check_shape("AddV2", attrs![], "[2,?];[?,3]", "[2,3]");
        check_shape("Square", attrs![], "[2,?]", "[2,?]");
        let x = Tensor::vector(&[1f32, 2.0]);
        let y = Tensor::vector(&[1f32, 2.0, 3.0]);
        let status = run_op("Sub", attrs![], &[x, y]).unwrap_err();
        assert!(status.message().starts_with("Incompatible shapes: [2] vs. [3]"), "{status}");
    }
}
