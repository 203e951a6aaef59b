//! Functions of square matrices: the principal square root and logarithm.

use super::schur::schur;
use super::{Field, adjoint, identity, lu, product, solve_triangular};
use num_complex::Complex64;

/// More Newton steps than any matrix with a square root needs.
const MOST_STEPS: usize = 100;
/// More square roots than any finite matrix needs to come near the identity.
const MOST_ROOTS: usize = 120;

/// Points and weights of Gauss-Legendre quadrature on the interval from -1 to 1.
const NODES: [(f64, f64); 8] = [
    (-0.9602898564975363, 0.1012285362903763),
    (-0.7966664774136267, 0.2223810344533745),
    (-0.5255324099163290, 0.3137066458778873),
    (-0.1834346424956498, 0.3626837833783620),
    (0.1834346424956498, 0.3626837833783620),
    (0.5255324099163290, 0.3137066458778873),
    (0.7966664774136267, 0.2223810344533745),
    (0.9602898564975363, 0.1012285362903763),
];

/// Returns the square root whose eigenvalues have a positive real part, or NaN if there is none over this field.
///
/// Uses Newton's method in the form of Denman and Beavers: one sequence converges to the root while the other, of the
/// remaining factor, converges to the identity.
pub fn square_root<F: Field>(matrix: &[F], size: usize) -> Vec<F> {
    assert_eq!(matrix.len(), size * size);
    if matrix.iter().all(|value| value.is_zero()) {
        return matrix.to_vec();
    }
    let one = identity::<F>(size, size);
    let (mut root, mut missing) = (matrix.to_vec(), matrix.to_vec());
    let mut scale_more = true;
    for _ in 0..MOST_STEPS {
        let Some((mut inverse, log_determinant)) = inverted(&missing, size) else { break };
        if scale_more {
            // Scaling the determinant to one saves steps while far from the root.
            let factor = (-log_determinant / size as f64).exp();
            if !(factor.is_finite() && factor > 0.0) {
                break;
            }
            missing.iter_mut().for_each(|value| *value = value.scaled(factor));
            inverse.iter_mut().for_each(|value| *value = value.scaled(1.0 / factor));
            root.iter_mut().for_each(|value| *value = value.scaled(factor.sqrt()));
        }
        let step: Vec<F> = one.iter().zip(&inverse).map(|(&one, &inverse)| (one + inverse).scaled(0.5)).collect();
        root = product(&root, &step, size, size, size);
        for ((missing, &inverse), &one) in missing.iter_mut().zip(&inverse).zip(&one) {
            *missing = (one + (*missing + inverse).scaled(0.5)).scaled(0.5);
        }
        let distance = distance(&missing, &one);
        scale_more &= distance > 1e-2;
        if distance < 1e-14 * size as f64 {
            return root;
        }
        if !distance.is_finite() {
            break;
        }
    }
    // Rounding may keep the sequence from quite reaching the root.
    if distance(&missing, &one) < 1e-9 {
        return root;
    }
    vec![F::from_parts(f64::NAN, f64::NAN); size * size]
}

/// Returns the principal logarithm, or NaN if there is none.
///
/// Takes square roots of the triangular matrix of the Schur form until it is near the identity, where a sum of fractions is
/// accurate; each root halves the result. The logarithms of the eigenvalues on the diagonal are computed directly.
pub fn logarithm(matrix: &[Complex64], size: usize) -> Vec<Complex64> {
    assert_eq!(matrix.len(), size * size);
    let none = || vec![Complex64::new(f64::NAN, f64::NAN); size * size];
    let Some((triangle, unitary)) = schur(matrix, size) else { return none() };
    let one = identity::<Complex64>(size, size);
    let mut near = triangle.clone();
    let mut roots = 0;
    while distance(&near, &one) > 0.25 {
        if roots == MOST_ROOTS {
            return none();
        }
        near = triangular_root(&near, size);
        roots += 1;
        if near.iter().any(|value| !value.norm().is_finite()) {
            return none();
        }
    }
    let rest: Vec<Complex64> = near.iter().zip(&one).map(|(&near, &one)| near - one).collect();
    let mut sum = vec![Complex64::ZERO; size * size];
    for (node, weight) in NODES {
        let place = (node + 1.0) / 2.0;
        let below: Vec<Complex64> = one.iter().zip(&rest).map(|(&one, &rest)| one + rest.scaled(place)).collect();
        let Some((inverse, _)) = inverted(&below, size) else { continue };
        for (sum, part) in sum.iter_mut().zip(product(&rest, &inverse, size, size, size)) {
            *sum += part.scaled(weight / 2.0);
        }
    }
    let whole = 2f64.powi(roots as i32);
    sum.iter_mut().for_each(|value| *value = value.scaled(whole));
    for index in 0..size {
        sum[index * size + index] = triangle[index * size + index].ln();
    }
    product(&product(&unitary, &sum, size, size, size), &adjoint(&unitary, size, size), size, size, size)
}

/// Returns the principal root of a triangular matrix, column by column (Björck and Hammarling).
fn triangular_root(matrix: &[Complex64], size: usize) -> Vec<Complex64> {
    let mut root = vec![Complex64::ZERO; size * size];
    for column in 0..size {
        root[column * size + column] = matrix[column * size + column].sqrt();
        for row in (0..column).rev() {
            let known: Complex64 =
                (row + 1..column).map(|between| root[row * size + between] * root[between * size + column]).sum();
            let scale = root[row * size + row] + root[column * size + column];
            let missing = matrix[row * size + column] - known;
            // With two eigenvalues of zero there is a root only if this element is zero.
            root[row * size + column] = if missing == Complex64::ZERO { missing } else { missing / scale };
        }
    }
    root
}

/// Returns the inverse and the logarithm of the determinant's absolute value, unless the matrix is singular.
fn inverted<F: Field>(matrix: &[F], size: usize) -> Option<(Vec<F>, f64)> {
    let mut factors = matrix.to_vec();
    let (order, _) = lu(&mut factors, size);
    let mut log_determinant = 0.0;
    for index in 0..size {
        let pivot = factors[index * size + index].magnitude();
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        log_determinant += pivot.ln();
    }
    let mut inverse = vec![F::zero(); size * size];
    for (row, &from) in order.iter().enumerate() {
        inverse[row * size + from] = F::one();
    }
    solve_triangular(&factors, size, true, true, &mut inverse, size);
    solve_triangular(&factors, size, false, false, &mut inverse, size);
    Some((inverse, log_determinant))
}

fn distance<F: Field>(a: &[F], b: &[F]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| (a - b).square()).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_times_itself_is_the_matrix() {
        let matrix = [5.0, 1.0, -2.0, 0.5, 4.0, 1.0, 0.3, -0.7, 9.0];
        let root = square_root(&matrix, 3);
        let back = product(&root, &root, 3, 3, 3);
        assert!(distance(&back, &matrix) < 1e-12, "{back:?}");
        assert!(square_root(&[-1.0, 0.0, 0.0, 2.0], 2)[0].is_nan());
        assert_eq!(square_root(&[0.0; 4], 2), [0.0; 4]);
    }

    #[test]
    fn the_logarithm_of_a_rotation_is_its_angle() {
        let (sine, cosine) = 0.7f64.sin_cos();
        let matrix = [cosine, -sine, sine, cosine].map(|value| Complex64::new(value, 0.0));
        let logarithm = logarithm(&matrix, 2);
        let expected = [0.0, -0.7, 0.7, 0.0].map(|value| Complex64::new(value, 0.0));
        assert!(distance(&logarithm, &expected) < 1e-12, "{logarithm:?}");
        let negative = super::logarithm(&[Complex64::new(-2.0, 0.5)], 1);
        assert!((negative[0] - Complex64::new(-2.0, 0.5).ln()).norm() < 1e-12);
    }
}
