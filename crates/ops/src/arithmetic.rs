//! [`Arithmetic`]: the operations on numbers that kernels of variables need, for every numeric element type.

use tensor::{Complex32, Complex64, Element, bf16, f16};

/// A number that can be added, subtracted, multiplied and divided. Integers wrap, and division by zero gives zero: kernels that
/// divide integers check for it first.
pub(crate) trait Arithmetic: Element {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn over(self, other: Self) -> Self;
    /// Returns whether dividing by this number is an error rather than an infinity.
    fn forbids_division(self) -> bool;
}

/// An [`Arithmetic`] number with an order.
pub(crate) trait Ordered: Arithmetic {
    fn lesser(self, other: Self) -> Self;
    fn greater(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Arithmetic for $ty {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn over(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            fn forbids_division(self) -> bool {
                self == 0
            }
        }
    )*};
}

macro_rules! floats {
    ($($ty:ty),*) => {$(
        impl Arithmetic for $ty {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }
            fn forbids_division(self) -> bool {
                false
            }
        }
    )*};
}

macro_rules! ordered {
    ($($ty:ty),*) => {$(
        impl Ordered for $ty {
            #[inline(always)]
            fn lesser(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
floats!(f32, f64, f16, bf16, Complex32, Complex64);
ordered!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, f16, bf16);

/// `kernels!` for every number type.
macro_rules! number_kernels {
    ($attr:literal => $kernel:ident) => {
        ::kernel::kernels!($attr: [
            f32, f64, ::tensor::f16, ::tensor::bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            ::tensor::Complex32, ::tensor::Complex64
        ] => $kernel)
    };
    ($attr:literal => $kernel:ident < $($extra:ty),* >) => {
        number_kernels!(@list $attr, $kernel, ($($extra),*), [
            f32, f64, ::tensor::f16, ::tensor::bf16, i8, i16, i32, i64, u8, u16, u32, u64,
            ::tensor::Complex32, ::tensor::Complex64
        ])
    };
    (@list $attr:literal, $kernel:ident, $extra:tt, [$($ty:ty),* $(,)?]) => {
        &[$(number_kernels!(@one $attr, $kernel, $extra, $ty),)*]
    };
    (@one $attr:literal, $kernel:ident, ($($extra:ty),*), $ty:ty) => {
        ::kernel::KernelDef {
            types: &[($attr, <$ty as ::tensor::Element>::DTYPE)],
            create: |builder| $kernel::<$ty, $($extra),*>::create(builder),
        }
    };
}

/// The attribute `T` of ops on numbers.
macro_rules! numbertype {
    ($name:literal) => {
        concat!(
            $name,
            ": {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, \
             quint16, uint16, complex128, half, uint32, uint64}"
        )
    };
}

/// Lists kernels with a second parameter for the real number types that TensorFlow compares.
macro_rules! real_kernels {
    ($attr:literal => $kernel:ident < $($extra:ty),* >) => {
        number_kernels!(@list $attr, $kernel, ($($extra),*), [f32, f64, ::tensor::f16, ::tensor::bf16, i32, i64])
    };
}

/// Lists the kernels of ops that replace elements, for numbers, `bool`, strings and variants.
macro_rules! update_kernels {
    ($attr:literal => $kernel:ident < $operator:ty >, $objects:ident) => {
        update_kernels!(@list $attr, $kernel, $operator, $objects, [
            f32, f64, ::tensor::f16, ::tensor::bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool,
            ::tensor::Complex32, ::tensor::Complex64
        ])
    };
    (@list $attr:literal, $kernel:ident, $operator:ty, $objects:ident, [$($ty:ty),* $(,)?]) => {
        &[
            $(::kernel::KernelDef {
                types: &[($attr, <$ty as ::tensor::Element>::DTYPE)],
                create: |builder| $kernel::<$ty, $operator>::create(builder),
            },)*
            ::kernel::KernelDef {
                types: &[($attr, ::tensor::DType::String)],
                create: |_| ::kernel::BoxedKernel::new($objects),
            },
            ::kernel::KernelDef {
                types: &[($attr, ::tensor::DType::Variant)],
                create: |_| ::kernel::BoxedKernel::new($objects),
            },
        ]
    };
}

/// Runs a body with `T` bound to the number type of a [`DType`](tensor::DType), or fails for types that aren't numbers.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $body:expr) => {
        with_number!(@match $dtype, $T, $body, [
            Float f32, Double f64, Half ::tensor::f16, BFloat16 ::tensor::bf16, Int8 i8, Int16 i16, Int32 i32, Int64 i64,
            UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64, Complex64 ::tensor::Complex32, Complex128 ::tensor::Complex64
        ])
    };
    (@match $dtype:expr, $T:ident, $body:expr, [$($variant:ident $ty:ty),*]) => {
        match $dtype {
            $(::tensor::DType::$variant => {
                type $T = $ty;
                $body
            })*
            other => Err(::tensor::Status::unimplemented(format!("{other} elements are not numbers"))),
        }
    };
}

/// Adds a tensor to another of the same shape, in place if one of them isn't shared.
pub(crate) fn add_to(sum: &mut tensor::Tensor, mut value: tensor::Tensor) -> tensor::Result<()> {
    if !sum.is_unique() && value.is_unique() {
        std::mem::swap(sum, &mut value);
    }
    with_number!(sum.dtype(), T => {
        let value = value.as_slice::<T>()?;
        if let Some(sum) = sum.as_mut_slice::<T>() {
            sum.iter_mut().zip(value).for_each(|(sum, &value)| *sum = sum.plus(value));
            return Ok(());
        }
        let old = sum.as_slice::<T>()?;
        *sum = tensor::Tensor::build(sum.shape().clone(), |new: &mut [T]| {
            new.iter_mut().zip(old.iter().zip(value)).for_each(|(new, (&old, &value))| *new = old.plus(value));
        })?;
        Ok(())
    })
}
