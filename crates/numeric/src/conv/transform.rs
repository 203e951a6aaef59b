//! The transforms of Winograd's convolution on 6x6 tiles, for windows of side 3 (4x4 outputs) and 5 (2x2 outputs). Both use
//! the points 0, ±1, ±2 and infinity, so they share the transform of the image.
//!
//! Each function transforms one line of a tile; a tile is transformed along both axes. A line is an array of registers,
//! each holding the same position of several channels.

use crate::simd::Lanes;

/// The side of a transformed tile.
pub(super) const SIDE: usize = 6;
/// Elements of a transformed tile.
pub(super) const CELLS: usize = SIDE * SIDE;

/// A line before or after one of the transforms. A line shorter than six uses only the first entries.
pub(super) type Line<V> = [V; SIDE];

/// Returns `x * factor`.
#[inline(always)]
unsafe fn scaled<V: Lanes<Scalar = f32>>(x: V, factor: f32) -> V {
    // SAFETY: the caller has the instruction set.
    unsafe { x.mul(V::splat(factor)) }
}

/// Returns `x * factor + y`.
#[inline(always)]
unsafe fn scaled_plus<V: Lanes<Scalar = f32>>(x: V, factor: f32, y: V) -> V {
    // SAFETY: the caller has the instruction set.
    unsafe { x.mul_add(V::splat(factor), y) }
}

/// Transforms a line of the image.
///
/// # Safety
/// The processor has the instruction set of `V`, as for all functions here.
#[inline(always)]
pub(super) unsafe fn image_line<V: Lanes<Scalar = f32>>(x: Line<V>) -> Line<V> {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let even = scaled_plus(x[2], -4.0, x[4]);
        let odd = scaled_plus(x[1], -4.0, x[3]);
        let even_two = x[4].sub(x[2]);
        let odd_two = scaled(x[3].sub(x[1]), 2.0);
        [
            scaled_plus(x[0], 4.0, scaled_plus(x[2], -5.0, x[4])),
            even.add(odd),
            even.sub(odd),
            even_two.add(odd_two),
            even_two.sub(odd_two),
            scaled_plus(x[1], 4.0, scaled_plus(x[3], -5.0, x[5])),
        ]
    }
}

/// Transforms a line of the products back to outputs: two for a window of five, four for one of three.
#[inline(always)]
pub(super) unsafe fn output_line<V: Lanes<Scalar = f32>>(window: usize, x: Line<V>) -> Line<V> {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let (sum, difference) = (x[1].add(x[2]), x[1].sub(x[2]));
        let (sum_two, difference_two) = (x[3].add(x[4]), x[3].sub(x[4]));
        let first = x[0].add(sum).add(sum_two);
        let second = scaled_plus(difference_two, 2.0, difference);
        if window == 5 {
            let second = second.add(x[5]);
            [first, second, first, first, first, first]
        } else {
            let third = scaled_plus(sum_two, 4.0, sum);
            let fourth = scaled_plus(difference_two, 8.0, difference).add(x[5]);
            [first, second, third, fourth, first, first]
        }
    }
}

/// Transforms a line of the output's gradient: the transpose of [`output_line`].
#[inline(always)]
pub(super) unsafe fn gradient_line<V: Lanes<Scalar = f32>>(window: usize, x: Line<V>) -> Line<V> {
    // SAFETY: the caller has the instruction set.
    unsafe {
        if window == 5 {
            let two = scaled(x[1], 2.0);
            [x[0], x[0].add(x[1]), x[0].sub(x[1]), x[0].add(two), x[0].sub(two), x[1]]
        } else {
            let (even, odd) = (x[0].add(x[2]), x[1].add(x[3]));
            let even_two = scaled_plus(x[2], 4.0, x[0]);
            let odd_two = scaled_plus(x[3], 8.0, scaled(x[1], 2.0));
            [x[0], even.add(odd), even.sub(odd), even_two.add(odd_two), even_two.sub(odd_two), x[3]]
        }
    }
}

/// Transforms a line of the filter.
#[inline(always)]
pub(super) unsafe fn filter_line<V: Lanes<Scalar = f32>>(window: usize, x: Line<V>) -> Line<V> {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let mut even = x[0].add(x[2]);
        let mut odd = x[1];
        let mut even_two = scaled_plus(x[2], 4.0, x[0]);
        let mut odd_two = scaled(x[1], 2.0);
        let mut last = x[2];
        if window == 5 {
            even = even.add(x[4]);
            odd = odd.add(x[3]);
            even_two = scaled_plus(x[4], 16.0, even_two);
            odd_two = scaled_plus(x[3], 8.0, odd_two);
            last = x[4];
        }
        [
            scaled(x[0], 0.25),
            scaled(even.add(odd), -1.0 / 6.0),
            scaled(even.sub(odd), -1.0 / 6.0),
            scaled(even_two.add(odd_two), 1.0 / 24.0),
            scaled(even_two.sub(odd_two), 1.0 / 24.0),
            last,
        ]
    }
}

/// Transforms a line of six back to a line of the filter's gradient: the transpose of [`filter_line`].
#[inline(always)]
pub(super) unsafe fn filter_gradient_line<V: Lanes<Scalar = f32>>(window: usize, x: Line<V>) -> Line<V> {
    // SAFETY: the caller has the instruction set.
    unsafe {
        let even = scaled(x[1].add(x[2]), -1.0 / 6.0);
        let odd = scaled(x[1].sub(x[2]), -1.0 / 6.0);
        let even_two = scaled(x[3].add(x[4]), 1.0 / 24.0);
        let odd_two = scaled(x[3].sub(x[4]), 1.0 / 24.0);
        let first = scaled_plus(x[0], 0.25, even.add(even_two));
        let second = scaled_plus(odd_two, 2.0, odd);
        let third = scaled_plus(even_two, 4.0, even);
        if window == 5 {
            let fourth = scaled_plus(odd_two, 8.0, odd);
            let fifth = scaled_plus(even_two, 16.0, even).add(x[5]);
            [first, second, third, fourth, fifth, first]
        } else {
            [first, second, third.add(x[5]), first, first, first]
        }
    }
}

/// Transforms a tile of `from` by `from` registers along both axes and hands the `to` by `to` results to `store(row,
/// column, value)`.
#[inline(always)]
pub(super) unsafe fn both_axes<V: Lanes<Scalar = f32>>(
    from: usize,
    to: usize,
    load: impl Fn(usize, usize) -> V,
    line: impl Fn(Line<V>) -> Line<V>,
    mut store: impl FnMut(usize, usize, V),
) {
    // SAFETY: the caller has the instruction set.
    let zero = unsafe { V::splat(0.0) };
    let mut half = [[zero; SIDE]; SIDE];
    for column in 0..from {
        let mut x = [zero; SIDE];
        for row in 0..from {
            x[row] = load(row, column);
        }
        let y = line(x);
        for row in 0..to {
            half[row][column] = y[row];
        }
    }
    for row in 0..to {
        let y = line(half[row]);
        for column in 0..to {
            store(row, column, y[column]);
        }
    }
}
