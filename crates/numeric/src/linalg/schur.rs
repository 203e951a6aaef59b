//! The Schur form of a complex matrix: a triangular matrix and the unitary one that transforms to it.

use super::identity;
use num_complex::Complex64;

/// More QR steps per eigenvalue than any finite matrix needs.
const TURNS_PER_VALUE: usize = 60;

/// Returns `(t, q)` with `matrix = q · t · qᴴ`, `t` upper triangular and `q` unitary, or `None` if the matrix is not finite or
/// the iteration does not converge.
///
/// Householder reflections make the matrix Hessenberg; QR steps with Wilkinson shifts then make the elements of the
/// subdiagonal vanish, from the bottom up.
pub(super) fn schur(matrix: &[Complex64], size: usize) -> Option<(Vec<Complex64>, Vec<Complex64>)> {
    if matrix.iter().any(|value| !value.re.is_finite() || !value.im.is_finite()) {
        return None;
    }
    let (mut t, mut q) = (matrix.to_vec(), identity::<Complex64>(size, size));
    to_hessenberg(&mut t, &mut q, size);
    let norm = t.iter().map(|value| value.norm()).fold(0.0, f64::max);
    let mut end = size;
    let mut turns = 0;
    while end > 1 {
        // The block from `start` to `end` is the last one without a zero on its subdiagonal.
        let mut start = end - 1;
        while start > 0 {
            let neighbours = t[(start - 1) * size + start - 1].norm() + t[start * size + start].norm();
            let small = f64::EPSILON * if neighbours > 0.0 { neighbours } else { norm };
            if t[start * size + start - 1].norm() <= small {
                t[start * size + start - 1] = Complex64::ZERO;
                break;
            }
            start -= 1;
        }
        if start == end - 1 {
            end -= 1;
            turns = 0;
            continue;
        }
        turns += 1;
        if turns > TURNS_PER_VALUE {
            return None;
        }
        let shift = match turns % 10 {
            // An exceptional shift breaks a cycle.
            0 => t[(end - 1) * size + end - 1] + t[(end - 1) * size + end - 2].norm(),
            _ => wilkinson(&t, size, end),
        };
        turn(&mut t, &mut q, size, start, end, shift);
    }
    for row in 1..size {
        t[row * size..row * size + row].fill(Complex64::ZERO);
    }
    Some((t, q))
}

/// Returns the eigenvalue of the last 2x2 block that is nearer to its last element.
fn wilkinson(t: &[Complex64], size: usize, end: usize) -> Complex64 {
    let at = |row: usize, column: usize| t[(end - 2 + row) * size + end - 2 + column];
    let (half_trace, determinant) = ((at(0, 0) + at(1, 1)) * 0.5, at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0));
    let root = (half_trace * half_trace - determinant).sqrt();
    let (one, other) = (half_trace + root, half_trace - root);
    if (one - at(1, 1)).norm() < (other - at(1, 1)).norm() { one } else { other }
}

fn to_hessenberg(t: &mut [Complex64], q: &mut [Complex64], size: usize) {
    for column in 0..size.saturating_sub(2) {
        let mut vector: Vec<Complex64> = (column + 1..size).map(|row| t[row * size + column]).collect();
        let norm = vector.iter().map(|value| value.norm_sqr()).sum::<f64>().sqrt();
        if norm == 0.0 {
            continue;
        }
        let direction = if vector[0].norm() > 0.0 { vector[0] / vector[0].norm() } else { Complex64::ONE };
        vector[0] += direction * norm;
        let square = vector.iter().map(|value| value.norm_sqr()).sum::<f64>();
        if square == 0.0 {
            continue;
        }
        let first = column + 1;
        for other in 0..size {
            let dot: Complex64 =
                vector.iter().enumerate().map(|(at, v)| v.conj() * t[(first + at) * size + other]).sum();
            let factor = dot * (2.0 / square);
            for (at, v) in vector.iter().enumerate() {
                t[(first + at) * size + other] -= *v * factor;
            }
        }
        for matrix in [&mut *t, &mut *q] {
            for row in matrix.chunks_exact_mut(size) {
                let dot: Complex64 = vector.iter().zip(&row[first..]).map(|(v, x)| x * v).sum();
                let factor = dot * (2.0 / square);
                for (v, x) in vector.iter().zip(&mut row[first..]) {
                    *x -= v.conj() * factor;
                }
            }
        }
    }
}

/// Does one QR step on the block from `start` to `end`.
fn turn(t: &mut [Complex64], q: &mut [Complex64], size: usize, start: usize, end: usize, shift: Complex64) {
    let (mut x, mut y) = (t[start * size + start] - shift, t[(start + 1) * size + start]);
    for plane in start..end - 1 {
        let norm = x.norm().hypot(y.norm());
        if norm > 0.0 {
            let (c, s) = (x / norm, y / norm);
            // From the left: rotates (x, y) onto the plane's first row.
            for column in plane.saturating_sub(1)..size {
                let (a, b) = (t[plane * size + column], t[(plane + 1) * size + column]);
                t[plane * size + column] = c.conj() * a + s.conj() * b;
                t[(plane + 1) * size + column] = c * b - s * a;
            }
            for matrix in [&mut *t, &mut *q] {
                for row in matrix.chunks_exact_mut(size) {
                    let (a, b) = (row[plane], row[plane + 1]);
                    row[plane] = a * c + b * s;
                    row[plane + 1] = b * c.conj() - a * s.conj();
                }
            }
        }
        if plane + 2 < end {
            (x, y) = (t[(plane + 1) * size + plane], t[(plane + 2) * size + plane]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{adjoint, product};

    #[test]
    fn the_parts_make_the_matrix_again() {
        let parts = [0.3, -1.2, 2.5, 0.0, 4.0, -3.3, 1.0, 0.7, -0.2, 5.1, 0.01, -7.0, 2.0, 2.0, 1.5, -0.5];
        for size in 1..=4usize {
            for twist in [0.0, 0.4, 1e6] {
                let matrix: Vec<Complex64> =
                    (0..size * size).map(|index| Complex64::new(parts[index], twist * parts[15 - index])).collect();
                let (t, q) = schur(&matrix, size).unwrap();
                let back = product(&product(&q, &t, size, size, size), &adjoint(&q, size, size), size, size, size);
                let scale = matrix.iter().map(|value| value.norm()).fold(0.0, f64::max);
                for (found, expected) in back.iter().zip(&matrix) {
                    assert!((found - expected).norm() < 1e-13 * scale * 10.0, "{size} {twist}: {found} {expected}");
                }
                for row in 0..size {
                    assert!(t[row * size..row * size + row].iter().all(|value| *value == Complex64::ZERO));
                }
            }
        }
        assert!(schur(&[Complex64::new(f64::NAN, 0.0)], 1).is_none());
    }
}
