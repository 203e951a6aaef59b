//! Conversions between element types: Cast.

use crate::compose::{Gradients, cast as cast_output};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
};
use tensor::{Complex32, Complex64, DType, Element, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Cast",
        inputs: &["x: SrcT"],
        outputs: &["y: DstT"],
        attrs: &["SrcT: type", "DstT: type", "Truncate: bool = false"],
        flags: OpFlags::NONE,
    },
    shape: shape::unchanged,
    gradient: Gradient::Fn(cast_gradient),
    kernels: &[KernelDef::any(create)],
}];

/// Returns `x` as another type.
#[track_caller]
pub fn cast(x: &Output, dtype: DType) -> Output {
    if x.dtype() == dtype {
        return x.clone();
    }
    x.graph().op("Cast").input(x).attr("DstT", dtype).output()
}

fn cast_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let flows = |dtype: DType| dtype.is_floating() || dtype.is_complex();
    let (from, to) = (args.input(0).dtype(), grad.dtype());
    if flows(from) && flows(to) { Ok(vec![Some(cast_output(&grad, from)?.into())]) } else { Ok(vec![None]) }
}

type Conversion = fn(&Tensor) -> Result<Tensor>;

struct Cast {
    /// The conversion of elements; `None` if both types are the same.
    conversion: Option<Conversion>,
    to: DType,
}

fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let (from, to) = (attrs.dtype("SrcT")?, attrs.dtype("DstT")?);
    if from == to {
        return BoxedKernel::new(Cast { conversion: None, to });
    }
    let found = if attrs.bool("Truncate")? { truncation(from, to) } else { None };
    let conversion = found
        .or_else(|| conversion(kept_as(from), kept_as(to)))
        .ok_or_else(|| Status::unimplemented(format!("Cast {from} to {to} is not supported")))?;
    BoxedKernel::new(Cast { conversion: Some(conversion), to })
}

/// Returns the integer type with the numbers of a quantized type.
fn kept_as(dtype: DType) -> DType {
    match dtype {
        DType::QInt8 => DType::Int8,
        DType::QUInt8 => DType::UInt8,
        DType::QInt16 => DType::Int16,
        DType::QUInt16 => DType::UInt16,
        DType::QInt32 => DType::Int32,
        other => other,
    }
}

impl Kernel for Cast {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let output = match self.conversion {
            None => context.take_input(0)?,
            Some(conversion) if self.to.is_quantized() => conversion(context.input(0)?)?.with_dtype(self.to)?,
            Some(conversion) => conversion(context.input(0)?)?,
        };
        context.set_output(0, output);
        Ok(())
    }
}

/// Converts one value as TensorFlow does on x86.
trait CastTo<B> {
    fn cast_to(self) -> B;
}

/// A vectorized loop, for the pairs that occur in training.
fn convert_fast<A: Element + CastTo<B>, B: Element>(tensor: &Tensor) -> Result<Tensor> {
    let from = tensor.as_slice::<A>()?;
    Tensor::build(tensor.shape().clone(), |to: &mut [B]| {
        numeric::elementwise::unary(from, to, |value: A| value.cast_to());
    })
}

/// A plain loop, for rare pairs.
fn convert<A: Element + CastTo<B>, B: Element>(tensor: &Tensor) -> Result<Tensor> {
    let from = tensor.as_slice::<A>()?;
    // Indices, since iterator adapters would be compiled for each of two hundred pairs.
    Tensor::build(tensor.shape().clone(), |to: &mut [B]| {
        for index in 0..to.len().min(from.len()) {
            to[index] = from[index].cast_to();
        }
    })
}

macro_rules! conversions {
    ($($variant:ident => $rust:ty),* $(,)?) => {
        /// Returns the conversion from one type to another.
        fn conversion(from: DType, to: DType) -> Option<Conversion> {
            match (from, to) {
                (DType::Float, DType::Double) => return Some(convert_fast::<f32, f64>),
                (DType::Double, DType::Float) => return Some(convert_fast::<f64, f32>),
                (DType::Float, DType::Int32) => return Some(convert_fast::<f32, i32>),
                (DType::Int32, DType::Float) => return Some(convert_fast::<i32, f32>),
                (DType::Int64, DType::Float) => return Some(convert_fast::<i64, f32>),
                (DType::Int64, DType::Int32) => return Some(convert_fast::<i64, i32>),
                (DType::Int32, DType::Int64) => return Some(convert_fast::<i32, i64>),
                (DType::UInt8, DType::Float) => return Some(convert_fast::<u8, f32>),
                (DType::Bool, DType::Float) => return Some(convert_fast::<bool, f32>),
                (DType::Bool, DType::Int32) => return Some(convert_fast::<bool, i32>),
                (DType::Float, DType::Bool) => return Some(convert_fast::<f32, bool>),
                (DType::Half, DType::Float) => return Some(convert_fast::<f16, f32>),
                (DType::Float, DType::Half) => return Some(convert_fast::<f32, f16>),
                (DType::BFloat16, DType::Float) => return Some(convert_fast::<bf16, f32>),
                (DType::Float, DType::BFloat16) => return Some(convert_fast::<f32, bf16>),
                _ => {}
            }
            match from {
                $(DType::$variant => conversions!(@to to, $rust),)*
                _ => None,
            }
        }
    };
    (@to $to:ident, $from:ty) => {
        Some(match $to {
            DType::Float => convert::<$from, f32>,
            DType::Double => convert::<$from, f64>,
            DType::Half => convert::<$from, f16>,
            DType::BFloat16 => convert::<$from, bf16>,
            DType::Int8 => convert::<$from, i8>,
            DType::Int16 => convert::<$from, i16>,
            DType::Int32 => convert::<$from, i32>,
            DType::Int64 => convert::<$from, i64>,
            DType::UInt8 => convert::<$from, u8>,
            DType::UInt16 => convert::<$from, u16>,
            DType::UInt32 => convert::<$from, u32>,
            DType::UInt64 => convert::<$from, u64>,
            DType::Bool => convert::<$from, bool>,
            DType::Complex64 => convert::<$from, Complex32>,
            DType::Complex128 => convert::<$from, Complex64>,
            _ => return None,
        })
    };
}

conversions! {
    Float => f32, Double => f64, Half => f16, BFloat16 => bf16, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
    UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64, Bool => bool, Complex64 => Complex32, Complex128 => Complex64,
}

/// Returns the conversion of a wide float to a narrow one that truncates instead of rounding.
fn truncation(from: DType, to: DType) -> Option<Conversion> {
    fn narrow<A: Element + Into<f64>, B: Element>(tensor: &Tensor, narrow: impl Fn(f32) -> B + Sync) -> Result<Tensor> {
        let from = tensor.as_slice::<A>()?;
        Tensor::build(tensor.shape().clone(), |to: &mut [B]| {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = narrow(from.into() as f32));
        })
    }
    fn to_half(value: f32) -> f16 {
        let rounded = f16::from_f32(value);
        // Rounding away from zero is undone by one step towards it.
        let overshot = rounded.to_f32().abs() > value.abs();
        if overshot { f16::from_bits(rounded.to_bits() - 1) } else { rounded }
    }
    fn to_bfloat16(value: f32) -> bf16 {
        if value.is_nan() { bf16::NAN } else { bf16::from_bits((value.to_bits() >> 16) as u16) }
    }
    Some(match (from, to) {
        (DType::Float, DType::Half) => |tensor| narrow::<f32, _>(tensor, to_half),
        (DType::Double, DType::Half) => |tensor| narrow::<f64, _>(tensor, to_half),
        (DType::Float, DType::BFloat16) => |tensor| narrow::<f32, _>(tensor, to_bfloat16),
        (DType::Double, DType::BFloat16) => |tensor| narrow::<f64, _>(tensor, to_bfloat16),
        (DType::Double, DType::Float) => |tensor| {
            let from = tensor.as_slice::<f64>()?;
            Tensor::build(tensor.shape().clone(), |to: &mut [f32]| {
                to.iter_mut().zip(from).for_each(|(to, &from)| {
                    let rounded = from as f32;
                    let overshot = f64::from(rounded).abs() > from.abs();
                    *to = if overshot { f32::from_bits(rounded.to_bits() - 1) } else { rounded };
                });
            })
        },
        _ => return None,
    })
}

/// Numbers converted by Rust's `as`, which wraps integers as C++ does.
macro_rules! by_as {
    ($([$($from:ty),*] => $to:tt;)*) => {$($(by_as!(@one $from => $to);)*)*};
    (@one $from:ty => [$($to:ty),*]) => {$(
        impl CastTo<$to> for $from {
            #[inline(always)]
            fn cast_to(self) -> $to {
                self as $to
            }
        }
    )*};
}

by_as! {
    [i8, i16, i32, i64, u8, u16, u32, u64] => [i8, i16, i32, i64, u8, u16, u32, u64, f32, f64];
    [f32, f64] => [f32, f64];
}

/// Conversion of floats to integers as on x86: out-of-range values give the smallest `i32` or `i64`, truncated.
macro_rules! float_to_integer {
    ($($float:ty),*) => {$(
        impl CastTo<i32> for $float {
            #[inline(always)]
            fn cast_to(self) -> i32 {
                if self >= -2147483648.0 && self < 2147483648.0 { self as i32 } else { i32::MIN }
            }
        }
        impl CastTo<i64> for $float {
            #[inline(always)]
            fn cast_to(self) -> i64 {
                let fits = self >= -9223372036854775808.0 && self < 9223372036854775808.0;
                if fits { self as i64 } else { i64::MIN }
            }
        }
        impl CastTo<u32> for $float {
            #[inline(always)]
            fn cast_to(self) -> u32 {
                if self < 2147483648.0 {
                    CastTo::<i32>::cast_to(self) as u32
                } else if self < 4294967296.0 {
                    self as u32
                } else {
                    1 << 31
                }
            }
        }
        impl CastTo<u64> for $float {
            #[inline(always)]
            fn cast_to(self) -> u64 {
                if self < 9223372036854775808.0 {
                    CastTo::<i64>::cast_to(self) as u64
                } else if self < 18446744073709551616.0 {
                    self as u64
                } else {
                    1 << 63
                }
            }
        }
        float_to_integer!(@narrow $float: i8, i16, u8, u16);
    )*};
    (@narrow $float:ty: $($to:ty),*) => {$(
        impl CastTo<$to> for $float {
            #[inline(always)]
            fn cast_to(self) -> $to {
                CastTo::<i32>::cast_to(self) as $to
            }
        }
    )*};
}

float_to_integer!(f32, f64);

/// Half-precision types are converted through `f32`.
macro_rules! halves {
    ($($half:ty),*) => {$(
        halves!(@from $half: f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);
        halves!(@to $half: i8, i16, i32, i64, u8, u16, u32, u64);
        impl CastTo<$half> for f32 {
            #[inline(always)]
            fn cast_to(self) -> $half {
                <$half>::from_f32(self)
            }
        }
        impl CastTo<$half> for f64 {
            #[inline(always)]
            fn cast_to(self) -> $half {
                <$half>::from_f32(self as f32)
            }
        }
        impl CastTo<$half> for $half {
            #[inline(always)]
            fn cast_to(self) -> $half {
                self
            }
        }
    )*};
    (@from $half:ty: $($to:ty),*) => {$(
        impl CastTo<$to> for $half {
            #[inline(always)]
            fn cast_to(self) -> $to {
                CastTo::<$to>::cast_to(self.to_f32())
            }
        }
    )*};
    (@to $half:ty: $($from:ty),*) => {$(
        impl CastTo<$half> for $from {
            #[inline(always)]
            fn cast_to(self) -> $half {
                <$half>::from_f32(self as f32)
            }
        }
    )*};
}

halves!(f16, bf16);

impl CastTo<bf16> for f16 {
    fn cast_to(self) -> bf16 {
        bf16::from_f32(self.to_f32())
    }
}

impl CastTo<f16> for bf16 {
    fn cast_to(self) -> f16 {
        f16::from_f32(self.to_f32())
    }
}

/// Booleans are 0 and 1, and anything except 0 is true; complex numbers are converted by their real part.
macro_rules! with_bool_and_complex {
    ($($ty:ty),*) => {$(
        impl CastTo<$ty> for bool {
            #[inline(always)]
            fn cast_to(self) -> $ty {
                CastTo::<$ty>::cast_to(u8::from(self))
            }
        }
        impl CastTo<bool> for $ty {
            #[inline(always)]
            fn cast_to(self) -> bool {
                self != <$ty>::default()
            }
        }
        impl CastTo<$ty> for Complex32 {
            fn cast_to(self) -> $ty {
                CastTo::<$ty>::cast_to(self.re)
            }
        }
        impl CastTo<$ty> for Complex64 {
            fn cast_to(self) -> $ty {
                CastTo::<$ty>::cast_to(self.re)
            }
        }
        impl CastTo<Complex32> for $ty {
            fn cast_to(self) -> Complex32 {
                Complex32::new(CastTo::<f32>::cast_to(self), 0.0)
            }
        }
        impl CastTo<Complex64> for $ty {
            fn cast_to(self) -> Complex64 {
                Complex64::new(CastTo::<f64>::cast_to(self), 0.0)
            }
        }
    )*};
}

with_bool_and_complex!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! remaining {
    ($($from:ty => $to:ty, $value:ident => $convert:expr;)*) => {$(
        impl CastTo<$to> for $from {
            fn cast_to(self) -> $to {
                let $value = self;
                $convert
            }
        }
    )*};
}

remaining! {
    bool => bool, value => value;
    bool => Complex32, value => Complex32::new(f32::from(value), 0.0);
    bool => Complex64, value => Complex64::new(f64::from(value), 0.0);
    Complex32 => bool, value => value.re != 0.0;
    Complex64 => bool, value => value.re != 0.0;
    Complex32 => Complex32, value => value;
    Complex64 => Complex64, value => value;
    Complex32 => Complex64, value => Complex64::new(value.re.into(), value.im.into());
    Complex64 => Complex32, value => Complex32::new(value.re as f32, value.im as f32);
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::{Complex32, DType, Tensor, bf16, f16};

    fn cast(tensor: Tensor, to: DType) -> Tensor {
        run_op("Cast", attrs![("DstT", to)], &[tensor]).unwrap().remove(0)
    }

    #[test]
    fn floats_that_do_not_fit() {
        let odd = || Tensor::vector(&[f32::NAN, f32::INFINITY, -1e10, 300.7, -1.5, 3e9]);
        assert_eq!(
            cast(odd(), DType::Int32).as_slice::<i32>().unwrap(),
            &[i32::MIN, i32::MIN, i32::MIN, 300, -1, i32::MIN]
        );
        assert_eq!(cast(odd(), DType::Int8).as_slice::<i8>().unwrap(), &[0, 0, 0, 44, -1, 0]);
        assert_eq!(cast(odd(), DType::UInt8).as_slice::<u8>().unwrap(), &[0, 0, 0, 44, 255, 0]);
        assert_eq!(
            cast(odd(), DType::UInt32).as_slice::<u32>().unwrap(),
            &[1 << 31, 1 << 31, 1 << 31, 300, u32::MAX, 3000000000]
        );
        assert_eq!(
            cast(odd(), DType::Int64).as_slice::<i64>().unwrap(),
            &[i64::MIN, i64::MIN, -10000000000, 300, -1, 3000000000]
        );
    }

    #[test]
    fn every_pair_has_a_kernel() {
        use DType::*;
        let all = [
            Float, Double, Half, BFloat16, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Bool, Complex64,
            Complex128,
        ];
        for from in all {
            let one = cast(Tensor::vector(&[1u8, 0]), from);
            assert_eq!(one.dtype(), from);
            for to in all {
                let back = cast(cast(one.clone(), to), UInt8);
                assert_eq!(back.as_slice::<u8>().unwrap(), &[1, 0], "{from} to {to}");
            }
        }
    }

    #[test]
    fn complex_and_cut_values() {
        let x = Tensor::vector(&[Complex32::new(2.5, 7.0)]);
        assert_eq!(cast(x, DType::Int32).as_slice::<i32>().unwrap(), &[2]);
        let x = Tensor::vector(&[1.0f32 + 1.9 / 128.0]);
        let cut = run_op("Cast", attrs![("DstT", DType::BFloat16), ("Truncate", true)], &[x.clone()]).unwrap();
        assert_eq!(cut[0].as_slice::<bf16>().unwrap()[0].to_f32(), 1.0 + 1.0 / 128.0);
        let cut = run_op("Cast", attrs![("DstT", DType::Half), ("Truncate", true)], &[x]).unwrap();
        assert_eq!(cut[0].as_slice::<f16>().unwrap()[0].to_f32(), 1.0 + 15.0 / 1024.0);
    }
}
