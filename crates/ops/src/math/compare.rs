//! Comparisons: Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, ApproximateEqual; and logic: LogicalAnd,
//! LogicalOr, LogicalNot.

use crate::elementwise::{Convert, broadcast_plan};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, shape,
};
use num_traits::Float;
use numeric::elementwise::{self, BroadcastPlan};
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Equal",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: type", "incompatible_shape_error: bool = true"],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: equal_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| create_equality(builder, true))],
    },
    Op {
        def: OpDef {
            name: "NotEqual",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: type", "incompatible_shape_error: bool = true"],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: equal_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| create_equality(builder, false))],
    },
    Op {
        def: OpDef {
            name: "Less",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::NotDifferentiable,
        kernels: compare_kernels!([f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x < y),
    },
    Op {
        def: OpDef {
            name: "LessEqual",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::NotDifferentiable,
        kernels: compare_kernels!([f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x <= y),
    },
    Op {
        def: OpDef {
            name: "Greater",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::NotDifferentiable,
        kernels: compare_kernels!([f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x > y),
    },
    Op {
        def: OpDef {
            name: "GreaterEqual",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
            flags: OpFlags::NONE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::NotDifferentiable,
        kernels: compare_kernels!([f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x >= y),
    },
    Op {
        def: OpDef {
            name: "ApproximateEqual",
            inputs: &["x: T", "y: T"],
            outputs: &["z: bool"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "tolerance: float = 1e-05",
            ],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: shape::merged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[
            approximate::<f32>(),
            approximate::<f64>(),
            approximate::<f16>(),
            approximate::<bf16>(),
            approximate::<i8>(),
            approximate::<i16>(),
            approximate::<i32>(),
            approximate::<i64>(),
            approximate::<u8>(),
            approximate::<u16>(),
            approximate::<u32>(),
            approximate::<u64>(),
            approximate::<Complex32>(),
            approximate::<Complex64>(),
        ],
    },
    Op {
        def: OpDef {
            name: "LogicalAnd",
            inputs: &["x: bool", "y: bool"],
            outputs: &["z: bool"],
            attrs: &[],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| crate::elementwise::Binary::boxed(|x: bool, y: bool| x & y))],
    },
    Op {
        def: OpDef {
            name: "LogicalOr",
            inputs: &["x: bool", "y: bool"],
            outputs: &["z: bool"],
            attrs: &[],
            flags: OpFlags::COMMUTATIVE,
        },
        shape: shape::broadcast_binary,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| crate::elementwise::Binary::boxed(|x: bool, y: bool| x | y))],
    },
    Op {
        def: OpDef {
            name: "LogicalNot",
            inputs: &["x: bool"],
            outputs: &["y: bool"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| Convert::boxed(|x: bool| !x))],
    },
];

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Output, y: &Output) -> Output {
            x.graph().op($op).input(x).input(y).output()
        }
    )*};
}

comparisons! {
    /// Returns whether `x == y`, element by element.
    equal => "Equal";
    /// Returns whether `x != y`, element by element.
    not_equal => "NotEqual";
    /// Returns whether `x < y`, element by element.
    less => "Less";
    /// Returns whether `x <= y`, element by element.
    less_equal => "LessEqual";
    /// Returns whether `x > y`, element by element.
    greater => "Greater";
    /// Returns whether `x >= y`, element by element.
    greater_equal => "GreaterEqual";
    /// Returns whether both are true, element by element.
    logical_and => "LogicalAnd";
    /// Returns whether one or both are true, element by element.
    logical_or => "LogicalOr";
}

/// Returns whether `x` is false, element by element.
#[track_caller]
pub fn logical_not(x: &Output) -> Output {
    x.graph().op("LogicalNot").input(x).output()
}

fn equal_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (x, y) = (c.input(0), c.input(1));
    let result = match shape::broadcast(&x, &y) {
        Ok(shape) if c.attrs.bool("incompatible_shape_error")? => shape,
        Err(status) if c.attrs.bool("incompatible_shape_error")? => return Err(status),
        // A mismatch gives a scalar at run time, so the shape is known only if the inputs certainly match.
        Ok(shape) if x.is_fully_defined() && y.is_fully_defined() => shape,
        Ok(_) => PartialShape::unknown(),
        Err(_) => PartialShape::scalar(),
    };
    c.set_output(0, result);
    Ok(())
}

/// Compares two inputs for equality or inequality.
struct Equality {
    wanted: bool,
    /// Whether shapes that can't be broadcast are an error rather than unequal.
    incompatible_shape_error: bool,
    compare: fn(&Tensor, &Tensor, &BroadcastPlan, &mut [bool], bool) -> Result<()>,
}

fn create_equality(builder: &KernelBuilder<'_>, wanted: bool) -> Result<BoxedKernel> {
    let dtype = builder.input_dtype(0);
    macro_rules! compare {
        ($($variant:ident $(| $other:ident)* => $rust:ty),* $(,)?) => {
            match dtype {
                $(DType::$variant $(| DType::$other)* => compare_plain::<$rust>,)*
                DType::String => compare_strings,
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "No OpKernel was registered to support Op '{}' used by node {} with these attrs: [T={dtype}]",
                        builder.node.op(),
                        builder.name()
                    )));
                }
            }
        };
    }
    let compare = compare!(
        Float => f32, Double => f64, Half => f16, BFloat16 => bf16, Int8 | QInt8 => i8, Int16 | QInt16 => i16,
        Int32 | QInt32 => i32, Int64 => i64, UInt8 | QUInt8 => u8, UInt16 | QUInt16 => u16, UInt32 => u32, UInt64 => u64,
        Bool => bool, Complex64 => Complex32, Complex128 => Complex64,
    );
    let incompatible_shape_error = builder.attrs().bool("incompatible_shape_error")?;
    BoxedKernel::new(Equality { wanted, incompatible_shape_error, compare })
}

impl Kernel for Equality {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = (context.input(0)?, context.input(1)?);
        let output = match broadcast_plan(a, b) {
            Ok((plan, shape)) => {
                let mut result = Ok(());
                let output = Tensor::build(shape, |out: &mut [bool]| {
                    result = (self.compare)(a, b, &plan, out, self.wanted);
                })?;
                result?;
                output
            }
            Err(status) if self.incompatible_shape_error => return Err(status),
            Err(_) => Tensor::scalar(!self.wanted),
        };
        context.set_output(0, output);
        Ok(())
    }
}

fn compare_plain<T: Element>(
    a: &Tensor,
    b: &Tensor,
    plan: &BroadcastPlan,
    out: &mut [bool],
    wanted: bool,
) -> Result<()> {
    let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
    elementwise::binary(a, b, out, plan, |x: T, y: T| (x == y) == wanted);
    Ok(())
}

fn compare_strings(a: &Tensor, b: &Tensor, plan: &BroadcastPlan, out: &mut [bool], wanted: bool) -> Result<()> {
    let (a, b) = (a.strings()?, b.strings()?);
    let positions = |len: usize| -> Vec<usize> { (0..len).collect() };
    let (left, right) = (positions(a.len()), positions(b.len()));
    elementwise::binary(&left, &right, out, plan, |x: usize, y: usize| (a[x] == b[y]) == wanted);
    Ok(())
}

/// Whether two inputs differ by less than a tolerance.
struct Approximate<T> {
    tolerance: f32,
    element: PhantomData<fn(T)>,
}

const fn approximate<T: Element + Distance>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let tolerance = builder.attrs().float("tolerance")?;
            BoxedKernel::new(Approximate { tolerance, element: PhantomData::<fn(T)> })
        },
    }
}

impl<T: Element + Distance> Kernel for Approximate<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = (context.input(0)?, context.input(1)?);
        if a.shape() != b.shape() {
            return Err(Status::invalid_argument(format!(
                "x and y must be of the same shape. x shape: {}. y shape: {}",
                a.shape(),
                b.shape()
            )));
        }
        let plan = BroadcastPlan::same_shape(a.num_elements());
        let (x, y) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        let tolerance = f64::from(self.tolerance);
        let output = Tensor::build(a.shape().clone(), |out: &mut [bool]| {
            elementwise::binary(x, y, out, &plan, |x: T, y: T| x.distance(y) < tolerance);
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// How far apart two values are.
trait Distance {
    fn distance(self, other: Self) -> f64;
}

macro_rules! distances {
    ($([$($ty:ty),*] => $distance:expr;)*) => {$($(
        impl Distance for $ty {
            fn distance(self, other: Self) -> f64 {
                let distance: fn($ty, $ty) -> f64 = $distance;
                distance(self, other)
            }
        }
    )*)*};
}

distances! {
    [f32, f64, f16, bf16] => |x, y| (x - y).abs().into();
    [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x.abs_diff(y) as f64;
    [Complex32, Complex64] => |x, y| (x - y).norm().into();
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Shape, Tensor};

    #[test]
    fn comparisons() {
        let x = Tensor::from_slice(&[2, 2], &[1f32, 2.0, f32::NAN, 4.0]).unwrap();
        let y = Tensor::vector(&[1f32, 3.0]);
        let run =
            |op: &str| run_op(op, attrs![], &[x.clone(), y.clone()]).unwrap()[0].as_slice::<bool>().unwrap().to_vec();
        assert_eq!(run("Equal"), [true, false, false, false]);
        assert_eq!(run("NotEqual"), [false, true, true, true]);
        assert_eq!(run("Less"), [false, true, false, false]);
        assert_eq!(run("GreaterEqual"), [true, false, false, true]);
    }

    #[test]
    fn strings_and_shapes_that_differ() {
        let words = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        let z = run_op("Equal", attrs![], &[words, Tensor::string("b")]).unwrap();
        assert_eq!(z[0].as_slice::<bool>().unwrap(), &[false, true]);
        let (x, y) = (Tensor::vector(&[1i32, 2]), Tensor::vector(&[1i32, 2, 3]));
        assert!(run_op("Equal", attrs![], &[x.clone(), y.clone()]).is_err());
        let z = run_op("NotEqual", attrs![("incompatible_shape_error", false)], &[x, y]).unwrap();
        assert_eq!((z[0].dims().len(), z[0].as_slice::<bool>().unwrap()), (0, &[true][..]));
    }

    #[test]
    fn shapes() {
        check_shape("Less", attrs![], "[2,1];[3]", "[2,3]");
        check_shape("Equal", attrs![("incompatible_shape_error", false)], "[2];[?]", "?");
    }
}
