//! Arithmetic on outputs as Rust operators: `&a + &b`, `a * 2.0`, `-x`.
//!
//! A number takes the type of the other operand. `/` is true division: integers become floating-point first, as in Python. `%`
//! takes the sign of the divisor. A mistake, such as incompatible shapes, is kept in the graph with the caller's line.

use super::Output;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use tensor::{Complex32, Complex64, DType, Result, Status, Tensor, bf16, f16};

/// Returns a scalar of type `dtype`, or an error if that is not a numeric type or the value is out of its range.
pub fn scalar_tensor(dtype: DType, value: f64) -> Result<Tensor> {
    macro_rules! integers {
        ($($variant:ident => $rust:ty),*) => {
            match dtype {
                $(DType::$variant => {
                    let converted = value as $rust;
                    if converted as f64 != value {
                        return Err(Status::invalid_argument(format!("{value} is not a value of type {dtype}")));
                    }
                    Ok(Tensor::scalar(converted))
                })*
                DType::Float => Ok(Tensor::scalar(value as f32)),
                DType::Double => Ok(Tensor::scalar(value)),
                DType::Half => Ok(Tensor::scalar(f16::from_f64(value))),
                DType::BFloat16 => Ok(Tensor::scalar(bf16::from_f64(value))),
                DType::Complex64 => Ok(Tensor::scalar(Complex32::new(value as f32, 0.0))),
                DType::Complex128 => Ok(Tensor::scalar(Complex64::new(value, 0.0))),
                DType::Bool => Ok(Tensor::scalar(value != 0.0)),
                _ => Err(Status::invalid_argument(format!("{value} can't become a {dtype} tensor"))),
            }
        };
    }
    integers!(Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64)
}

impl Output {
    /// Returns a constant scalar of this output's type.
    #[track_caller]
    pub fn scalar_like(&self, value: f64) -> Output {
        match scalar_tensor(self.dtype(), value) {
            Ok(tensor) => self.graph().constant_tensor(&tensor),
            Err(status) => self.graph().mistaken_output("Const", status),
        }
    }
}

impl Output {
    #[track_caller]
    fn cast_to(&self, dtype: DType) -> Output {
        self.graph().op("Cast").input(self).attr("DstT", dtype).output()
    }
}

/// The second operand of an operator: an output, or a number that takes the type of the first operand.
pub trait IntoOperand {
    /// Returns the operand as an output; a number takes the type of `first`.
    #[track_caller]
    fn operand(self, first: &Output) -> Output;
}

impl IntoOperand for &Output {
    fn operand(self, _: &Output) -> Output {
        self.clone()
    }
}

impl IntoOperand for Output {
    fn operand(self, _: &Output) -> Output {
        self
    }
}

macro_rules! numbers {
    ($($ty:ty)*) => {$(
        impl IntoOperand for $ty {
            #[track_caller]
            fn operand(self, first: &Output) -> Output {
                first.scalar_like(f64::from(self))
            }
        }
    )*};
}

numbers!(f32 f64 i32);

/// The ops behind the operators.
#[derive(Clone, Copy)]
enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

#[track_caller]
fn apply(operator: Operator, a: &Output, b: &Output) -> Output {
    let op = match operator {
        // Strings are concatenated by the older op.
        Operator::Add if a.dtype() == DType::String => "Add",
        Operator::Add => "AddV2",
        Operator::Sub => "Sub",
        Operator::Mul => "Mul",
        Operator::Div => return true_division(a, b),
        Operator::Rem => "FloorMod",
    };
    a.graph().op(op).input(a).input(b).output()
}

#[track_caller]
fn true_division(a: &Output, b: &Output) -> Output {
    use DType::*;
    let wider = match a.dtype() {
        Int8 | Int16 | UInt8 | UInt16 => Some(Float),
        Int32 | Int64 | UInt32 | UInt64 => Some(Double),
        _ => None,
    };
    let (a, b) = match wider {
        Some(dtype) if a.dtype() == b.dtype() => (a.cast_to(dtype), b.cast_to(dtype)),
        _ => (a.clone(), b.clone()),
    };
    a.graph().op("RealDiv").input(&a).input(&b).output()
}

macro_rules! operators {
    ($($operator:ident $method:ident),*) => {$(
        // One impl for all right operands, so that the type of `x * 2.0` is known before the type of the number.
        impl<R: IntoOperand> $operator<R> for &Output {
            type Output = Output;
            #[track_caller]
            fn $method(self, other: R) -> Output {
                apply(Operator::$operator, self, &other.operand(self))
            }
        }
        impl<R: IntoOperand> $operator<R> for Output {
            type Output = Output;
            #[track_caller]
            fn $method(self, other: R) -> Output {
                apply(Operator::$operator, &self, &other.operand(&self))
            }
        }
        operators!(@scalar $operator $method f32 f64 i32);
    )*};
    (@scalar $operator:ident $method:ident $($scalar:ty)*) => {$(
        impl $operator<&Output> for $scalar {
            type Output = Output;
            #[track_caller]
            fn $method(self, other: &Output) -> Output {
                apply(Operator::$operator, &other.scalar_like(f64::from(self)), other)
            }
        }
        impl $operator<Output> for $scalar {
            type Output = Output;
            #[track_caller]
            fn $method(self, other: Output) -> Output {
                apply(Operator::$operator, &other.scalar_like(f64::from(self)), &other)
            }
        }
    )*};
}

operators!(Add add, Sub sub, Mul mul, Div div, Rem rem);

impl Neg for &Output {
    type Output = Output;
    #[track_caller]
    fn neg(self) -> Output {
        self.graph().op("Neg").input(self).output()
    }
}

impl Neg for Output {
    type Output = Output;
    #[track_caller]
    fn neg(self) -> Output {
        -&self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_type_beside_them() {
        assert_eq!(scalar_tensor(DType::Int32, 3.0).unwrap().to_scalar::<i32>().unwrap(), 3);
        assert_eq!(scalar_tensor(DType::Half, 0.5).unwrap().dtype(), DType::Half);
        assert!(scalar_tensor(DType::Int32, 0.5).is_err());
        assert!(scalar_tensor(DType::UInt8, -1.0).is_err());
        assert!(scalar_tensor(DType::String, 1.0).is_err());
    }
}
