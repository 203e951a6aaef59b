//! [`Element`]: the Rust types that stand for plain [`DType`]s.

use crate::DType;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

/// A Rust type whose values are a tensor's elements, byte for byte.
///
/// `NoUninit` lets us view a slice as bytes and `CheckedBitPattern` lets us look at bytes as values: every type but `bool`
/// takes any bits, and buffers of `bool` are checked when they come from outside.
pub trait Element:
    bytemuck::NoUninit + bytemuck::CheckedBitPattern + Default + PartialEq + std::fmt::Debug + Send + Sync + 'static
{
    /// The element type on the wire.
    const DTYPE: DType;
}

/// An [`Element`] that takes any bit pattern; everything but `bool`.
pub trait Numeric: Element + bytemuck::Pod {}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $rust { const DTYPE: DType = DType::$dtype; }
        impl Numeric for $rust {}
    )*};
}

elements! {
    f32 => Float, f64 => Double, f16 => Half, bf16 => BFloat16,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
    Complex32 => Complex64, Complex64 => Complex128,
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
}
