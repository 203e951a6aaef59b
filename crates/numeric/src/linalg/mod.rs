//! Decompositions of dense, row-major matrices over the real and the complex numbers.
//!
//! Written by hand rather than with a crate: the ops need few decompositions, with TensorFlow's conventions for signs, order
//! and matrices that are singular or not finite.
//!
//! Everything is in double precision: ops of narrower types widen their input, which is cheap beside the cubic work, more
//! accurate, and keeps the code to two instances.

mod factor;
mod functions;
mod schur;
mod spectral;

pub use factor::{cholesky, lu, qr, solve_triangular};
pub use functions::{logarithm, square_root};
pub use spectral::{self_adjoint_eigen, singular_values};

use num_complex::Complex64;
use num_traits::NumAssign;
use std::ops::Neg;

/// A field over which matrices are decomposed.
pub trait Field: Copy + NumAssign + Neg<Output = Self> + Send + Sync + 'static {
    /// Returns the number with these parts; real numbers drop the imaginary part.
    fn from_parts(real: f64, imaginary: f64) -> Self;

    /// Returns the real part.
    fn real(self) -> f64;

    /// Returns the imaginary part.
    fn imaginary(self) -> f64;

    /// Returns the number with its imaginary part negated.
    fn conjugate(self) -> Self;

    /// Returns the square of the absolute value.
    fn square(self) -> f64 {
        self.real() * self.real() + self.imaginary() * self.imaginary()
    }

    /// Returns the absolute value.
    fn magnitude(self) -> f64 {
        self.real().hypot(self.imaginary())
    }

    /// Returns the number times a real factor.
    fn scaled(self, factor: f64) -> Self {
        Self::from_parts(self.real() * factor, self.imaginary() * factor)
    }

    /// Returns a real number as an element of the field.
    fn from_real(real: f64) -> Self {
        Self::from_parts(real, 0.0)
    }
}

impl Field for f64 {
    fn from_parts(real: f64, _: f64) -> f64 {
        real
    }

    fn real(self) -> f64 {
        self
    }

    fn imaginary(self) -> f64 {
        0.0
    }

    fn conjugate(self) -> f64 {
        self
    }

    fn square(self) -> f64 {
        self * self
    }

    fn magnitude(self) -> f64 {
        self.abs()
    }
}

impl Field for Complex64 {
    fn from_parts(real: f64, imaginary: f64) -> Complex64 {
        Complex64::new(real, imaginary)
    }

    fn real(self) -> f64 {
        self.re
    }

    fn imaginary(self) -> f64 {
        self.im
    }

    fn conjugate(self) -> Complex64 {
        self.conj()
    }
}

/// Returns the conjugate transpose of a matrix.
pub fn adjoint<F: Field>(matrix: &[F], rows: usize, columns: usize) -> Vec<F> {
    assert_eq!(matrix.len(), rows * columns);
    let mut turned = Vec::with_capacity(matrix.len());
    for column in 0..columns {
        turned.extend((0..rows).map(|row| matrix[row * columns + column].conjugate()));
    }
    turned
}

/// Returns the product of two matrices.
pub fn product<F: Field>(a: &[F], b: &[F], rows: usize, inner: usize, columns: usize) -> Vec<F> {
    assert!(a.len() == rows * inner && b.len() == inner * columns);
    let mut result = vec![F::zero(); rows * columns];
    if inner == 0 || columns == 0 {
        return result;
    }
    for (a_row, to) in a.chunks_exact(inner).zip(result.chunks_exact_mut(columns)) {
        for (&factor, b_row) in a_row.iter().zip(b.chunks_exact(columns)) {
            add_scaled(to, b_row, factor);
        }
    }
    result
}

/// Returns the identity's first `columns` columns.
pub fn identity<F: Field>(rows: usize, columns: usize) -> Vec<F> {
    let mut matrix = vec![F::zero(); rows * columns];
    for index in 0..rows.min(columns) {
        matrix[index * columns + index] = F::one();
    }
    matrix
}

/// Adds a multiple of one row to another.
fn add_scaled<F: Field>(to: &mut [F], from: &[F], factor: F) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

/// Returns the sum of `conj(a) * b`.
fn inner_product<F: Field>(a: &[F], b: &[F]) -> F {
    // Four independent sums, which the processor adds in parallel.
    let mut sums = [F::zero(); 4];
    let (a_fours, a_rest) = a.as_chunks::<4>();
    let (b_fours, b_rest) = b.as_chunks::<4>();
    for (a, b) in a_fours.iter().zip(b_fours) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a.conjugate() * *b;
        }
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        sums[0] += a.conjugate() * *b;
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
