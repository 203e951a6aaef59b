//! Matrix products on row-major slices, with transposed operands, batches, and a fused bias and activation.
//!
//! Written by hand, since no crate has all of this: the epilogue applied while a part is in the cache, the steps that
//! `zeros` skips, a micro-kernel that convolutions share, all element types of TensorFlow, and results that do not depend on
//! the number of threads.
//!
//! [`matmul`] is the entry point for every element type. Half-precision operands are widened and accumulated in `f32`.
//! Integers wrap.

mod block;
mod epilogue;
mod kernel;
mod narrow;
mod packed;
mod zeros;

pub use epilogue::Activation;
pub(crate) use epilogue::EpilogueElement;

use crate::parallel;
use crate::scratch::with_scratch;
use block::multiply_parallel;
pub(crate) use block::{MatrixView, Panels, RightOperand, multiply, pack_columns};
use bytemuck::Pod;
use half::{bf16, f16};
pub(crate) use kernel::{HasMicrokernel, Microkernel, Panel, RowsOfA, Segment};
use num_complex::Complex;
pub use packed::{KEPT_BYTES_MAX, KeptPanels, PackedOperand};

/// How the slice of an operand stores its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Operand {
    /// Row-major.
    #[default]
    Plain,
    /// Column-major: the rows of the slice are the columns of the matrix.
    Transposed,
    /// As `Transposed`, with each element conjugated.
    Adjoint,
}

/// The sizes of a product: `m` by `k` times `k` by `n`, and how the operands are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMulShape {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the first operand and rows of the second.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// Storage of the first operand.
    pub a: Operand,
    /// Storage of the second operand.
    pub b: Operand,
}

impl MatMulShape {
    /// Returns the product of two row-major matrices.
    pub fn new(m: usize, k: usize, n: usize) -> Self {
        MatMulShape { m, k, n, a: Operand::Plain, b: Operand::Plain }
    }

    /// Returns the same product with the operands stored in another way.
    pub fn stored(self, a: Operand, b: Operand) -> Self {
        MatMulShape { a, b, ..self }
    }
}

/// What is applied to each element of the product: `activation(product + bias)`.
#[derive(Clone, Copy)]
pub struct Epilogue<'a, T> {
    /// One value for each column.
    pub bias: Option<&'a [T]>,
    /// Applied last.
    pub activation: Activation,
}

impl<T> Epilogue<'_, T> {
    /// Leaves the product as it is.
    pub const NONE: Self = Epilogue { bias: None, activation: Activation::Identity };
}

/// The panels of the second operand, if they are there.
#[doc(hidden)]
pub type Packed<'a, T> = Option<&'a PackedOperand<T>>;

/// An element type of [`matmul`].
pub trait MatMulElement: Pod + Send + Sync {
    /// Whether [`KeptPanels`] keeps panels of this type.
    const PACKS: bool = false;
    #[doc(hidden)]
    fn matmul(shape: MatMulShape, a: &[Self], b: &[Self], packed: Packed<'_, Self>, out: &mut [Self]);
    #[doc(hidden)]
    fn pack(_: MatMulShape, _: &[Self], _: Option<PackedOperand<Self>>) -> Option<PackedOperand<Self>> {
        None
    }
    /// Returns the complex conjugate; a real number is its own.
    fn conjugate(self) -> Self {
        self
    }
}

/// An element type of [`matmul_bias_activation`].
pub trait FusedMatMulElement: MatMulElement {
    #[doc(hidden)]
    fn matmul_fused(
        shape: MatMulShape,
        a: &[Self],
        b: &[Self],
        packed: Packed<'_, Self>,
        out: &mut [Self],
        epilogue: Epilogue<'_, Self>,
    );
}

/// Computes `out = a × b`.
pub fn matmul<T: MatMulElement>(shape: MatMulShape, a: &[T], b: &[T], out: &mut [T]) {
    matmul_with(shape, a, b, None, out);
}

/// Computes `out = a × b` with the panels of `b`, if there are any.
pub fn matmul_with<T: MatMulElement>(
    shape: MatMulShape,
    a: &[T],
    b: &[T],
    packed: Option<&PackedOperand<T>>,
    out: &mut [T],
) {
    check_lengths(shape, a, b, out);
    T::matmul(shape, a, b, packed, out);
}

/// Computes `out = activation(a × b + bias)`, with one bias for each column of the result.
pub fn matmul_bias_activation<T: FusedMatMulElement>(
    shape: MatMulShape,
    a: &[T],
    b: &[T],
    out: &mut [T],
    epilogue: Epilogue<'_, T>,
) {
    matmul_bias_activation_with(shape, a, b, None, out, epilogue);
}

/// As [`matmul_bias_activation`], with the panels of `b`, if there are any.
pub fn matmul_bias_activation_with<T: FusedMatMulElement>(
    shape: MatMulShape,
    a: &[T],
    b: &[T],
    packed: Option<&PackedOperand<T>>,
    out: &mut [T],
    epilogue: Epilogue<'_, T>,
) {
    check_lengths(shape, a, b, out);
    if let Some(bias) = epilogue.bias {
        assert_eq!(bias.len(), shape.n, "the bias has another length than the rows of the product");
    }
    T::matmul_fused(shape, a, b, packed, out, epilogue);
}

/// Computes a product for each item of a batch. `a_item` and `b_item` map an item of the output to the matrix of each operand,
/// so that a broadcast operand is not copied; for equal batches both are `|i| i`.
pub fn batch_matmul<T: MatMulElement>(
    shape: MatMulShape,
    a: &[T],
    b: &[T],
    out: &mut [T],
    a_item: impl Fn(usize) -> usize + Sync,
    b_item: impl Fn(usize) -> usize + Sync,
) {
    let (a_len, b_len, out_len) = (shape.m * shape.k, shape.k * shape.n, shape.m * shape.n);
    if out_len == 0 {
        return;
    }
    let items = out.len() / out_len;
    let cost = 2.0 * out_len as f64 * shape.k as f64 / 40.0;
    let one = |item: usize, out: &mut [T]| {
        matmul(shape, &a[a_item(item) * a_len..][..a_len], &b[b_item(item) * b_len..][..b_len], out);
    };
    if items >= 2 * parallel::threads() || !parallel::pays(2, cost) {
        parallel::for_each_chunk_mut(out, out_len, cost, |first, run| {
            for (offset, out) in run.chunks_exact_mut(out_len).enumerate() {
                one(first + offset, out);
            }
        });
    } else {
        // There are few large products, each of which is split over the threads.
        for (item, out) in out.chunks_exact_mut(out_len).enumerate() {
            one(item, out);
        }
    }
}

fn check_lengths<T>(shape: MatMulShape, a: &[T], b: &[T], out: &[T]) {
    assert_eq!(a.len(), shape.m * shape.k, "the first operand has another size than its shape");
    assert_eq!(b.len(), shape.k * shape.n, "the second operand has another size than its shape");
    assert_eq!(out.len(), shape.m * shape.n, "the output has another size than its shape");
}

/// Computes the product for types that have a micro-kernel. Overwrites `out`.
fn matmul_with_kernel<T: HasMicrokernel + MatMulElement>(
    shape: MatMulShape,
    a: &[T],
    b: &[T],
    packed: Packed<'_, T>,
    out: &mut [T],
    finish: &(dyn Fn(block::Part<'_, T>) + Sync),
) -> bool {
    let MatMulShape { m, k, n, .. } = shape;
    if narrow::matmul_narrow(shape, a, b, out) {
        return false;
    }
    let a = match shape.a {
        Operand::Plain => MatrixView { data: a, row_stride: k, column_stride: 1 },
        Operand::Transposed | Operand::Adjoint => MatrixView { data: a, row_stride: 1, column_stride: m },
    };
    let b = match (packed, shape.b) {
        (Some(packed), _) => RightOperand::Packed { panels: &packed.panels, first_column: 0 },
        (None, Operand::Plain) => RightOperand::View(MatrixView { data: b, row_stride: n, column_stride: 1 }),
        (None, _) => RightOperand::View(MatrixView { data: b, row_stride: 1, column_stride: k }),
    };
    multiply_parallel(m, n, k, a, b, out, false, finish);
    true
}

macro_rules! impl_real {
    ($($scalar:ty),*) => {$(
        impl MatMulElement for $scalar {
            const PACKS: bool = true;
            fn matmul(shape: MatMulShape, a: &[Self], b: &[Self], packed: Packed<'_, Self>, out: &mut [Self]) {
                matmul_with_kernel(shape, a, b, packed, out, &|_| ());
            }
            fn pack(
                shape: MatMulShape,
                b: &[Self],
                before: Option<PackedOperand<Self>>,
            ) -> Option<PackedOperand<Self>> {
                packed::pack(shape, b, before)
            }
        }
    )*};
}
impl_real!(f32, f64, i32, i64);

macro_rules! impl_complex {
    ($($scalar:ty),*) => {$(
        impl MatMulElement for $scalar {
            fn matmul(shape: MatMulShape, a: &[Self], b: &[Self], _: Packed<'_, Self>, out: &mut [Self]) {
                // An adjoint operand is conjugated in a copy; the product itself only transposes.
                conjugated(shape.a, a, |a| conjugated(shape.b, b, |b| {
                    matmul_with_kernel(shape, a, b, None, out, &|_| ());
                }));
            }
            fn conjugate(self) -> Self {
                self.conj()
            }
        }
    )*};
}
impl_complex!(Complex<f32>, Complex<f64>);

fn conjugated<T: MatMulElement, R>(operand: Operand, data: &[T], body: impl FnOnce(&[T]) -> R) -> R {
    if operand != Operand::Adjoint {
        return body(data);
    }
    with_scratch(data.len(), |copy: &mut [T]| {
        for (to, from) in copy.iter_mut().zip(data) {
            *to = from.conjugate();
        }
        body(copy)
    })
}

macro_rules! impl_half {
    ($($scalar:ty),*) => {$(
        impl MatMulElement for $scalar {
            fn matmul(shape: MatMulShape, a: &[Self], b: &[Self], _: Packed<'_, Self>, out: &mut [Self]) {
                Self::matmul_fused(shape, a, b, None, out, Epilogue::NONE);
            }
        }
        impl FusedMatMulElement for $scalar {
            fn matmul_fused(
                shape: MatMulShape,
                a: &[Self],
                b: &[Self],
                _: Packed<'_, Self>,
                out: &mut [Self],
                epilogue: Epilogue<'_, Self>,
            ) {
                with_scratch(a.len() + b.len() + out.len() + shape.n, |wide: &mut [f32]| {
                    let (wide_a, wide) = wide.split_at_mut(a.len());
                    let (wide_b, wide) = wide.split_at_mut(b.len());
                    let (wide_out, wide_bias) = wide.split_at_mut(out.len());
                    widen(a, wide_a);
                    widen(b, wide_b);
                    if let Some(bias) = epilogue.bias {
                        widen(bias, wide_bias);
                    }
                    let bias = epilogue.bias.map(|_| &*wide_bias);
                    let epilogue = Epilogue { bias, activation: epilogue.activation };
                    f32::matmul_fused(shape, wide_a, wide_b, None, wide_out, epilogue);
                    for (to, &from) in out.iter_mut().zip(wide_out.iter()) {
                        *to = <$scalar>::from_f32(from);
                    }
                });
            }
        }
    )*};
}
impl_half!(f16, bf16);

fn widen<T: Copy + Into<f32>>(from: &[T], to: &mut [f32]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = from.into();
    }
}

macro_rules! impl_fused {
    ($($scalar:ty),*) => {$(
        impl FusedMatMulElement for $scalar {
            fn matmul_fused(
                shape: MatMulShape,
                a: &[Self],
                b: &[Self],
                packed: Packed<'_, Self>,
                out: &mut [Self],
                epilogue: Epilogue<'_, Self>,
            ) {
                let finish = |mut part: block::Part<'_, $scalar>| {
                    let first_column = part.first_column;
                    part.for_each_row(|row| <$scalar>::apply(&epilogue, first_column, row));
                };
                let finished = matmul_with_kernel(shape, a, b, packed, out, &finish);
                if !finished && shape.n > 0 {
                    for row in out.chunks_exact_mut(shape.n) {
                        <$scalar>::apply(&epilogue, 0, row);
                    }
                }
            }
        }
    )*};
}
impl_fused!(f32, f64);

#[cfg(test)]
mod tests;
