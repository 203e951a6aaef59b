//! Triangular factorizations: Cholesky, LU with pivots, QR by reflections, and triangular systems.

use super::{Field, add_scaled, identity, inner_product};

/// Replaces a Hermitian matrix by its Cholesky factor, and returns whether it is positive definite. Reads the lower triangle
/// only.
pub fn cholesky<F: Field>(matrix: &mut [F], size: usize) -> bool {
    assert_eq!(matrix.len(), size * size);
    for row in 0..size {
        let (above, rest) = matrix.split_at_mut(row * size);
        let current = &mut rest[..size];
        for column in 0..row {
            let other = &above[column * size..(column + 1) * size];
            let known = inner_product(&other[..column], &current[..column]);
            current[column] = (current[column] - known) / other[column];
        }
        let square = current[row].real() - current[..row].iter().map(|value| value.square()).sum::<f64>();
        if square.is_nan() || square <= 0.0 {
            return false;
        }
        current[row] = F::from_real(square.sqrt());
        current[row + 1..].fill(F::zero());
    }
    true
}

/// Replaces a matrix by its triangular factors; the unit diagonal of the lower one is not stored. Returns the row of the
/// matrix that each row of the product is, and the sign of that permutation.
pub fn lu<F: Field>(matrix: &mut [F], size: usize) -> (Vec<usize>, f64) {
    assert_eq!(matrix.len(), size * size);
    let mut order: Vec<usize> = (0..size).collect();
    let mut sign = 1.0;
    for step in 0..size {
        let mut pivot = step;
        let mut largest = matrix[step * size + step].magnitude();
        for row in step + 1..size {
            let candidate = matrix[row * size + step].magnitude();
            if candidate > largest {
                (pivot, largest) = (row, candidate);
            }
        }
        if pivot != step {
            let (above, below) = matrix.split_at_mut(pivot * size);
            above[step * size..(step + 1) * size].swap_with_slice(&mut below[..size]);
            order.swap(step, pivot);
            sign = -sign;
        }
        let (above, below) = matrix.split_at_mut((step + 1) * size);
        let pivot_row = &above[step * size..];
        if pivot_row[step].is_zero() {
            continue;
        }
        let inverse = F::one() / pivot_row[step];
        for row in below.chunks_exact_mut(size) {
            let factor = row[step] * inverse;
            row[step] = factor;
            add_scaled(&mut row[step + 1..], &pivot_row[step + 1..], -factor);
        }
    }
    (order, sign)
}

/// Replaces `rhs`, which has `columns` columns, by the solution of a triangular system. With `unit`, the diagonal counts as
/// ones. A zero on the diagonal gives infinities.
pub fn solve_triangular<F: Field>(triangle: &[F], size: usize, lower: bool, unit: bool, rhs: &mut [F], columns: usize) {
    assert!(triangle.len() == size * size && rhs.len() == size * columns);
    for step in 0..size {
        let row = if lower { step } else { size - 1 - step };
        let (before, rest) = rhs.split_at_mut(row * columns);
        let (current, after) = rest.split_at_mut(columns);
        let coefficients = &triangle[row * size..(row + 1) * size];
        let (known, known_coefficients) =
            if lower { (&*before, &coefficients[..row]) } else { (&*after, &coefficients[row + 1..]) };
        if columns > 0 {
            for (&coefficient, solved) in known_coefficients.iter().zip(known.chunks_exact(columns)) {
                add_scaled(current, solved, -coefficient);
            }
        }
        if !unit {
            for value in current {
                *value /= coefficients[row];
            }
        }
    }
}

/// Returns the orthogonal and the triangular factor of a matrix; with `full`, the orthogonal one is square. The signs of the
/// triangle's diagonal are those that the reflections produce.
pub fn qr<F: Field>(matrix: &[F], rows: usize, columns: usize, full: bool) -> (Vec<F>, Vec<F>) {
    assert_eq!(matrix.len(), rows * columns);
    let mut triangle = matrix.to_vec();
    let steps = rows.min(columns);
    let mut reflections = Vec::with_capacity(steps);
    for step in 0..steps {
        let column: Vec<F> = (step..rows).map(|row| triangle[row * columns + step]).collect();
        let (reflection, beta) = Reflection::of(column);
        reflection.apply(&mut triangle[step * columns..], columns, step + 1, false);
        triangle[step * columns + step] = F::from_real(beta);
        for row in step + 1..rows {
            triangle[row * columns + step] = F::zero();
        }
        reflections.push(reflection);
    }
    let width = if full { rows } else { steps };
    let mut orthogonal = identity(rows, width);
    for (step, reflection) in reflections.iter().enumerate().rev() {
        reflection.apply(&mut orthogonal[step * width..], width, step, true);
    }
    triangle.truncate(width * columns);
    (orthogonal, triangle)
}

/// `I - tau v vᴴ`, which reflects a vector onto the first axis.
pub(super) struct Reflection<F> {
    pub vector: Vec<F>,
    pub tau: F,
}

impl<F: Field> Reflection<F> {
    /// Returns the reflection for a non-empty vector, and the first element of the reflected vector, which is real.
    pub(super) fn of(mut vector: Vec<F>) -> (Reflection<F>, f64) {
        let first = vector[0];
        let tail: f64 = vector[1..].iter().map(|value| value.square()).sum();
        if tail <= f64::MIN_POSITIVE && first.imaginary() * first.imaginary() <= f64::MIN_POSITIVE {
            vector.fill(F::zero());
            vector[0] = F::one();
            return (Reflection { vector, tau: F::zero() }, first.real());
        }
        let norm = (first.square() + tail).sqrt();
        let beta = if first.real() >= 0.0 { -norm } else { norm };
        let scale = F::one() / (first - F::from_real(beta));
        for value in &mut vector[1..] {
            *value *= scale;
        }
        vector[0] = F::one();
        let tau = ((F::from_real(beta) - first).scaled(1.0 / beta)).conjugate();
        (Reflection { vector, tau }, beta)
    }

    /// Applies the reflection, or its adjoint, to the columns of a matrix from `from` on.
    pub(super) fn apply(&self, matrix: &mut [F], columns: usize, from: usize, adjoint: bool) {
        let tau = if adjoint { self.tau.conjugate() } else { self.tau };
        if tau.is_zero() || from >= columns {
            return;
        }
        let mut projection = vec![F::zero(); columns - from];
        for (&factor, row) in self.vector.iter().zip(matrix.chunks_exact(columns)) {
            add_scaled(&mut projection, &row[from..], factor.conjugate());
        }
        for (&factor, row) in self.vector.iter().zip(matrix.chunks_exact_mut(columns)) {
            add_scaled(&mut row[from..], &projection, -(tau * factor));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{adjoint, product};
    use super::*;
    use num_complex::Complex64;

    fn numbers<F: Field>(count: usize) -> Vec<F> {
        let wave = |index: usize| ((index * index * 7 + index * 3) % 17) as f64 / 8.0 - 1.0;
        (0..count).map(|index| F::from_parts(wave(index), wave(index + 5))).collect()
    }

    fn close<F: Field>(a: &[F], b: &[F]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((*a - *b).magnitude() < 1e-12, "{:?} {:?}", (a.real(), a.imaginary()), (b.real(), b.imaginary()));
        }
    }

    fn factors<F: Field>() {
        let size = 6;
        let matrix = numbers::<F>(size * size);
        let hermitian = {
            let mut square = product(&matrix, &adjoint(&matrix, size, size), size, size, size);
            (0..size).for_each(|index| square[index * size + index] += F::one());
            square
        };
        let mut root = hermitian.clone();
        assert!(cholesky(&mut root, size));
        close(&product(&root, &adjoint(&root, size, size), size, size, size), &hermitian);

        let mut triangles = matrix.clone();
        let (order, _) = lu(&mut triangles, size);
        let rhs = numbers::<F>(size * 2);
        let mut solution: Vec<F> = order.iter().flat_map(|&row| rhs[row * 2..row * 2 + 2].to_vec()).collect();
        solve_triangular(&triangles, size, true, true, &mut solution, 2);
        solve_triangular(&triangles, size, false, false, &mut solution, 2);
        close(&product(&matrix, &solution, size, size, 2), &rhs);

        for (rows, columns) in [(6, 4), (4, 6), (5, 5), (1, 3), (3, 1), (0, 2)] {
            let matrix = numbers::<F>(rows * columns);
            for full in [false, true] {
                let (q, r) = qr(&matrix, rows, columns, full);
                let width = if full { rows } else { rows.min(columns) };
                close(&product(&q, &r, rows, width, columns), &matrix);
                close(&product(&adjoint(&q, rows, width), &q, width, rows, width), &identity::<F>(width, width));
            }
        }
    }

    #[test]
    fn real_and_complex_factors() {
        factors::<f64>();
        factors::<Complex64>();
    }

    #[test]
    fn what_is_not_definite_is_refused() {
        assert!(!cholesky(&mut [1.0, 0.0, 2.0, 1.0], 2));
        assert!(!cholesky(&mut [f64::NAN], 1));
    }
}
