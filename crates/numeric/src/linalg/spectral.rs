//! Eigenvalues of Hermitian matrices, and singular values.

use super::factor::Reflection;
use super::{Field, add_scaled, adjoint, inner_product, qr};

/// Rounds per value before giving up; a few are usual.
const MAX_ROUNDS: usize = 100;

/// Returns the eigenvalues of a Hermitian matrix in ascending order and, with `vectors`, the eigenvectors as columns. Reads the
/// lower triangle only. Returns `None` if the matrix is not finite.
pub fn self_adjoint_eigen<F: Field>(matrix: &[F], size: usize, vectors: bool) -> Option<(Vec<f64>, Vec<F>)> {
    assert_eq!(matrix.len(), size * size);
    if matrix.iter().any(|value| !value.square().is_finite()) {
        return None;
    }
    let mut full = matrix.to_vec();
    for row in 0..size {
        full[row * size + row] = F::from_real(full[row * size + row].real());
        for column in row + 1..size {
            full[row * size + column] = full[column * size + row].conjugate();
        }
    }
    let (mut diagonal, mut beside, reflections) = tridiagonal(&mut full, size);
    let mut columns = Vec::new();
    if vectors {
        let mut basis = super::identity(size, size);
        for (step, reflection) in reflections.iter().enumerate().rev() {
            reflection.apply(&mut basis[(step + 1) * size..], size, 0, true);
        }
        columns = transpose(&basis, size, size);
    }
    rotate_to_diagonal(&mut diagonal, &mut beside, &mut columns, size)?;
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&a, &b| diagonal[a].total_cmp(&diagonal[b]));
    let values = order.iter().map(|&index| diagonal[index]).collect();
    let mut sorted = Vec::new();
    if vectors {
        let rows: Vec<F> =
            order.iter().flat_map(|&index| columns[index * size..(index + 1) * size].iter().copied()).collect();
        sorted = transpose(&rows, size, size);
    }
    Some((values, sorted))
}

/// Reduces a Hermitian matrix to a real tridiagonal one. Returns its diagonal, the diagonal beside it, and the reflections;
/// the one at `step` acts on the rows after `step`.
fn tridiagonal<F: Field>(matrix: &mut [F], size: usize) -> (Vec<f64>, Vec<f64>, Vec<Reflection<F>>) {
    let mut beside = Vec::with_capacity(size);
    let mut reflections = Vec::with_capacity(size);
    for step in 0..size.saturating_sub(1) {
        let column: Vec<F> = (step + 1..size).map(|row| matrix[row * size + step]).collect();
        let (reflection, beta) = Reflection::of(column);
        beside.push(beta);
        if !reflection.tau.is_zero() {
            let (vector, tau) = (&reflection.vector, reflection.tau);
            let from = step + 1;
            let rows = |matrix: &[F], row: usize| matrix[(from + row) * size + from..(from + row + 1) * size].to_vec();
            let mut weights: Vec<F> = (0..size - from)
                .map(|row| {
                    let conjugated: Vec<F> = rows(matrix, row).iter().map(|value| value.conjugate()).collect();
                    tau.conjugate() * inner_product(&conjugated, vector)
                })
                .collect();
            // The part that both updates would subtract is halved.
            let half = (tau * inner_product(vector, &weights)).real() / 2.0;
            add_scaled(&mut weights, vector, F::from_real(-half));
            for row in 0..size - from {
                let target = &mut matrix[(from + row) * size + from..(from + row + 1) * size];
                let (v, w) = (vector[row], weights[row]);
                for ((target, &v_other), &w_other) in target.iter_mut().zip(vector).zip(&weights) {
                    *target -= v * w_other.conjugate() + w * v_other.conjugate();
                }
            }
        }
        reflections.push(reflection);
    }
    let diagonal = (0..size).map(|index| matrix[index * size + index].real()).collect();
    beside.push(0.0);
    (diagonal, beside, reflections)
}

/// Diagonalizes by implicit QL rotations, and applies them to the rows of `vectors` unless it is empty.
fn rotate_to_diagonal<F: Field>(d: &mut [f64], e: &mut [f64], vectors: &mut [F], size: usize) -> Option<()> {
    for low in 0..size {
        let mut rounds = 0;
        loop {
            let mut high = low;
            while high + 1 < size && e[high].abs() > f64::EPSILON * (d[high].abs() + d[high + 1].abs()) {
                high += 1;
            }
            if high == low {
                break;
            }
            rounds += 1;
            if rounds > MAX_ROUNDS {
                return None;
            }
            let mut g = (d[low + 1] - d[low]) / (2.0 * e[low]);
            let r = g.hypot(1.0);
            g = d[high] - d[low] + e[low] / (g + r.copysign(g));
            let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
            let mut split = false;
            for index in (low..high).rev() {
                let f = sine * e[index];
                let b = cosine * e[index];
                let r = f.hypot(g);
                e[index + 1] = r;
                if r == 0.0 {
                    d[index + 1] -= shift;
                    e[high] = 0.0;
                    split = true;
                    break;
                }
                sine = f / r;
                cosine = g / r;
                g = d[index + 1] - shift;
                let r = (d[index] - g) * sine + 2.0 * cosine * b;
                shift = sine * r;
                d[index + 1] = g + shift;
                g = cosine * r - b;
                if !vectors.is_empty() {
                    let (first, second) = vectors[index * size..(index + 2) * size].split_at_mut(size);
                    for (a, b) in first.iter_mut().zip(second) {
                        let old = *b;
                        *b = a.scaled(sine) + old.scaled(cosine);
                        *a = a.scaled(cosine) - old.scaled(sine);
                    }
                }
            }
            if split {
                continue;
            }
            d[low] -= shift;
            e[low] = g;
            e[high] = 0.0;
        }
    }
    Some(())
}

/// Returns the singular values of a matrix in descending order and, with `vectors`, the left and right singular vectors as
/// columns; with `full`, these are square. Returns `None` if the matrix is not finite.
pub fn singular_values<F: Field>(
    matrix: &[F],
    rows: usize,
    columns: usize,
    vectors: bool,
    full: bool,
) -> Option<(Vec<f64>, Vec<F>, Vec<F>)> {
    assert_eq!(matrix.len(), rows * columns);
    if rows < columns {
        let (values, left, right) = singular_values(&adjoint(matrix, rows, columns), columns, rows, vectors, full)?;
        return Some((values, right, left));
    }
    if matrix.iter().any(|value| !value.square().is_finite()) {
        return None;
    }
    // A tall matrix has the singular values of its triangular factor.
    let reduced = (rows > columns).then(|| qr(matrix, rows, columns, false));
    let core = reduced.as_ref().map_or(matrix, |(_, triangle)| triangle);
    let mut work = transpose(core, columns, columns);
    let mut right = if vectors { super::identity(columns, columns) } else { Vec::new() };
    orthogonalize(&mut work, &mut right, columns);
    let norms: Vec<f64> = (0..columns)
        .map(|index| inner_product(row(&work, columns, index), row(&work, columns, index)).real().sqrt())
        .collect();
    let mut order: Vec<usize> = (0..columns).collect();
    order.sort_by(|&a, &b| norms[b].total_cmp(&norms[a]));
    let values: Vec<f64> = order.iter().map(|&index| norms[index]).collect();
    if !vectors {
        return Some((values, Vec::new(), Vec::new()));
    }
    // Vectors of values that are only rounding errors are chosen afterwards, orthogonal to the others.
    let smallest = values.first().copied().unwrap_or(0.0) * f64::EPSILON * columns as f64;
    let rank = values.iter().take_while(|&&value| value > smallest).count();
    let mut left_rows: Vec<F> = Vec::with_capacity(rank * columns);
    for &index in &order[..rank] {
        left_rows.extend(row(&work, columns, index).iter().map(|value| value.scaled(1.0 / norms[index])));
    }
    let mut left = transpose(&left_rows, rank, columns);
    let mut height = columns;
    if let Some((orthogonal, _)) = &reduced {
        left = super::product(orthogonal, &left, rows, columns, rank);
        height = rows;
    }
    let width = if full { rows } else { columns };
    let left = completed(&left, height, rank, width);
    let right_rows: Vec<F> = order.iter().flat_map(|&index| row(&right, columns, index).iter().copied()).collect();
    Some((values, left, transpose(&right_rows, columns, columns)))
}

fn row<F>(matrix: &[F], columns: usize, row: usize) -> &[F] {
    &matrix[row * columns..(row + 1) * columns]
}

/// Rotates pairs of rows until all are orthogonal, and the rows of `right` with them.
fn orthogonalize<F: Field>(work: &mut [F], right: &mut [F], size: usize) {
    for _ in 0..MAX_ROUNDS {
        let mut turned = false;
        for first in 0..size {
            for second in first + 1..size {
                let (p, q) = (row(work, size, first), row(work, size, second));
                let (p_square, q_square) = (inner_product(p, p).real(), inner_product(q, q).real());
                let overlap = inner_product(p, q);
                let magnitude = overlap.magnitude();
                if magnitude <= f64::EPSILON * (p_square * q_square).sqrt() || magnitude < f64::MIN_POSITIVE {
                    continue;
                }
                turned = true;
                let zeta = (q_square - p_square) / (2.0 * magnitude);
                let tangent = 1f64.copysign(zeta) / (zeta.abs() + zeta.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let phase = overlap.conjugate().scaled(1.0 / magnitude);
                turn(work, size, (first, second), cosine, cosine * tangent, phase);
                if !right.is_empty() {
                    turn(right, size, (first, second), cosine, cosine * tangent, phase);
                }
            }
        }
        if !turned {
            return;
        }
    }
}

fn turn<F: Field>(matrix: &mut [F], size: usize, (first, second): (usize, usize), cosine: f64, sine: f64, phase: F) {
    let (before, after) = matrix.split_at_mut(second * size);
    for (p, q) in before[first * size..(first + 1) * size].iter_mut().zip(&mut after[..size]) {
        let turned = *q * phase;
        *q = p.scaled(sine) + turned.scaled(cosine);
        *p = p.scaled(cosine) - turned.scaled(sine);
    }
}

/// Returns orthonormal columns, extended by further ones to the given width.
fn completed<F: Field>(columns: &[F], rows: usize, count: usize, width: usize) -> Vec<F> {
    if count == width {
        return columns.to_vec();
    }
    let (orthogonal, _) = qr(columns, rows, count, true);
    let mut all = Vec::with_capacity(rows * width);
    for index in 0..rows {
        all.extend_from_slice(row(columns, count, index));
        all.extend_from_slice(&row(&orthogonal, rows, index)[count..width]);
    }
    all
}

fn transpose<F: Field>(matrix: &[F], rows: usize, columns: usize) -> Vec<F> {
    let mut turned = Vec::with_capacity(matrix.len());
    for column in 0..columns {
        turned.extend((0..rows).map(|row| matrix[row * columns + column]));
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::super::{identity, product};
    use super::*;
    use num_complex::Complex64;

    fn numbers<F: Field>(count: usize) -> Vec<F> {
        let wave = |index: usize| ((index * index * 7 + index * 3) % 17) as f64 / 8.0 - 1.0;
        (0..count).map(|index| F::from_parts(wave(index), wave(index + 5))).collect()
    }

    fn close<F: Field>(a: &[F], b: &[F]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((*a - *b).magnitude() < 1e-11);
        }
    }

    fn scaled_columns<F: Field>(matrix: &[F], values: &[f64], width: usize) -> Vec<F> {
        matrix
            .iter()
            .enumerate()
            .map(|(at, value)| value.scaled(values.get(at % width).copied().unwrap_or(0.0)))
            .collect()
    }

    fn decompositions<F: Field>() {
        for size in [0, 1, 2, 7] {
            let numbers = numbers::<F>(size * size);
            let hermitian: Vec<F> = numbers.iter().zip(adjoint(&numbers, size, size)).map(|(a, b)| *a + b).collect();
            let (values, vectors) = self_adjoint_eigen(&hermitian, size, true).unwrap();
            assert!(values.is_sorted());
            let back = product(
                &scaled_columns(&vectors, &values, size.max(1)),
                &adjoint(&vectors, size, size),
                size,
                size,
                size,
            );
            close(&back, &hermitian);
            let (alone, none) = self_adjoint_eigen(&hermitian, size, false).unwrap();
            assert!(none.is_empty() && alone.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-11));
        }
        for (rows, columns) in [(5, 3), (3, 5), (4, 4), (1, 1), (6, 1), (0, 3), (3, 0)] {
            for matrix in
                [numbers::<F>(rows * columns), vec![F::one(); rows * columns], vec![F::zero(); rows * columns]]
            {
                for full in [false, true] {
                    let (values, u, v) = singular_values(&matrix, rows, columns, true, full).unwrap();
                    assert!(values.is_sorted_by(|a, b| a >= b));
                    let small = rows.min(columns);
                    let (u_width, v_width) = if full { (rows, columns) } else { (small, small) };
                    close(
                        &product(&adjoint(&u, rows, u_width), &u, u_width, rows, u_width),
                        &identity::<F>(u_width, u_width),
                    );
                    close(
                        &product(&adjoint(&v, columns, v_width), &v, v_width, columns, v_width),
                        &identity::<F>(v_width, v_width),
                    );
                    if !full {
                        let back = product(
                            &scaled_columns(&u, &values, small.max(1)),
                            &adjoint(&v, columns, small),
                            rows,
                            small,
                            columns,
                        );
                        close(&back, &matrix);
                    }
                }
            }
        }
    }

    #[test]
    fn real_and_complex_decompositions() {
        decompositions::<f64>();
        decompositions::<Complex64>();
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        assert!(self_adjoint_eigen(&[f64::NAN], 1, true).is_none());
        assert!(singular_values(&[f64::INFINITY], 1, 1, true, false).is_none());
    }
}
