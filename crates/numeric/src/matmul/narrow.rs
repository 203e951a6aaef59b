//! Products in which one operand has so few rows or columns that packing would cost more than multiplying.

use super::kernel::HasMicrokernel;
use super::{MatMulElement, MatMulShape, Operand};
use crate::parallel::{self, SharedMut};
use cpu_macros::each_level;

/// The ways of products that are narrow.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A few rows times a row-major matrix.
    Rows,
    /// A column-major matrix times a column.
    Column,
    /// Dot products: both operands have their depth contiguous, and one of them is narrow.
    Dots,
}

impl Way {
    fn of(shape: MatMulShape) -> Option<Way> {
        let MatMulShape { m, k, n, .. } = shape;
        let a_is_plain = shape.a == Operand::Plain || m == 1 || k == 1;
        let b_is_transposed = shape.b != Operand::Plain || n == 1 || k == 1;
        if m * n == 0 || k == 0 {
            None
        } else if m <= 2 && a_is_plain && shape.b == Operand::Plain && n > 1 {
            Some(Way::Rows)
        } else if n == 1 && shape.a != Operand::Plain && m > 1 {
            Some(Way::Column)
        } else if a_is_plain && b_is_transposed && (n <= 2 || m <= 8) {
            Some(Way::Dots)
        } else {
            None
        }
    }
}

/// Returns whether a product is narrow.
pub(super) fn is_narrow(shape: MatMulShape) -> bool {
    Way::of(shape).is_some()
}

/// Computes the product if it is narrow, and returns whether it was.
pub(super) fn matmul_narrow<T: HasMicrokernel + MatMulElement>(
    shape: MatMulShape,
    a: &[T],
    b: &[T],
    out: &mut [T],
) -> bool {
    let MatMulShape { m, k, n, .. } = shape;
    let nanoseconds_per_element = k as f64 * size_of::<T>() as f64 / 32.0;
    match Way::of(shape) {
        None => return false,
        Some(Way::Rows) => {
            // Each thread computes some columns of every row.
            let out = SharedMut::new(out);
            parallel::for_each_chunk(n, m as f64 * nanoseconds_per_element, |columns| {
                for row in 0..m {
                    // SAFETY: column ranges are disjoint.
                    let part = unsafe { out.slice(row * n + columns.start, columns.len()) };
                    row_times_matrix(&a[row * k..][..k], &b[columns.start..], n, part);
                }
            });
        }
        Some(Way::Column) => {
            // The transposed problem: one row times a row-major matrix.
            parallel::for_each_chunk_mut(out, 1, nanoseconds_per_element, |first, part| {
                row_times_matrix(b, &a[first..], m, part);
            });
        }
        Some(Way::Dots) => {
            parallel::for_each_chunk_mut(out, 1, nanoseconds_per_element, |first, part| {
                dot_products(first, a, b, k, n, part);
            });
        }
    }
    true
}

/// Computes `out = row × matrix` for a row-major matrix with the given stride.
#[each_level]
fn row_times_matrix<T: HasMicrokernel>(row: &[T], matrix: &[T], stride: usize, out: &mut [T]) {
    const STEPS: usize = 4;
    let columns = out.len();
    out.fill(T::ZERO);
    let mut step = 0;
    while step + STEPS <= row.len() {
        let lines: [&[T]; STEPS] = std::array::from_fn(|i| &matrix[(step + i) * stride..][..columns]);
        let factors: [T; STEPS] = std::array::from_fn(|i| row[step + i]);
        for column in 0..columns {
            let mut sum = out[column];
            for i in 0..STEPS {
                sum = factors[i].times_plus(lines[i][column], sum);
            }
            out[column] = sum;
        }
        step += STEPS;
    }
    while step < row.len() {
        let line = &matrix[step * stride..][..columns];
        for column in 0..columns {
            out[column] = row[step].times_plus(line[column], out[column]);
        }
        step += 1;
    }
}

/// Computes elements of `a × bᵀ` from the one at `first`, where the rows of both have `k` elements.
#[each_level]
fn dot_products<T: HasMicrokernel>(first: usize, a: &[T], b: &[T], k: usize, n: usize, out: &mut [T]) {
    const LANES: usize = 16;
    for (offset, out) in out.iter_mut().enumerate() {
        let a = &a[(first + offset) / n * k..][..k];
        let b = &b[(first + offset) % n * k..][..k];
        let mut sums = [T::ZERO; LANES];
        let (a_chunks, a_rest) = a.as_chunks::<LANES>();
        let (b_chunks, b_rest) = b.as_chunks::<LANES>();
        for (a, b) in a_chunks.iter().zip(b_chunks) {
            for lane in 0..LANES {
                sums[lane] = a[lane].times_plus(b[lane], sums[lane]);
            }
        }
        let mut total = T::ZERO;
        for lane in 0..LANES {
            total = total.plus(sums[lane]);
        }
        for (&a, &b) in a_rest.iter().zip(b_rest) {
            total = a.times_plus(b, total);
        }
        *out = total;
    }
}
