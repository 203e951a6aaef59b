//! Reductions over any set of axes: sums, products, extremes, truth values and their positions.
//!
//! ```
//! use numeric::reduce::{ReducePlan, Sum, reduce};
//! let mut columns = [0.0f32; 3];
//! reduce::<Sum, f32>(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut columns, &ReducePlan::new(&[2, 3], &[0]));
//! assert_eq!(columns, [5.0, 7.0, 9.0]);
//! ```

mod arg;
mod plan;
mod reducer;

pub use arg::{ArgElement, argmax, argmin};
pub use plan::ReducePlan;
pub use reducer::{All, Any, EuclideanNorm, Max, Mean, Min, Product, Reducer, Sum, SumOfSquares};

use crate::parallel;
use plan::Group;

/// Lanes that accumulate in parallel along a contiguous run.
const LANES: usize = 32;
/// Elements of a block, after which the lanes are added to the total.
const BLOCK: usize = LANES * 128;
/// Columns that accumulate in parallel where whole rows are summed.
const COLUMNS: usize = 256;
/// Rows of a block where whole rows are summed.
const ROWS: usize = 128;
/// Elements of a part of a reduction that is split among threads. Fixed, so that the result does not depend on their number.
const PART: usize = 1 << 16;
/// Nanoseconds per element.
const COST_NS: f64 = 0.25;

/// Reduces `a` into `out`, as the plan says.
pub fn reduce<R: Reducer<T>, T: Copy + Send + Sync>(a: &[T], out: &mut [T], plan: &ReducePlan) {
    assert_eq!(a.len(), plan.in_len(), "the input has another size than the plan");
    assert_eq!(out.len(), plan.out_len(), "the output has another size than the plan");
    let count = plan.reduced_len();
    if a.is_empty() {
        out.fill(R::finish(R::TOTAL, count));
        return;
    }
    match plan.groups.last() {
        None | Some(Group { reduced: true, .. }) => runs::<R, T>(a, out, plan),
        Some(Group { reduced: false, .. }) => rows::<R, T>(a, out, plan),
    }
}

/// Reduces all of `a` to one value.
pub fn reduce_all<R: Reducer<T>, T: Copy + Send + Sync>(a: &[T]) -> T {
    let mut out = [R::finish(R::TOTAL, 0)];
    reduce::<R, T>(a, &mut out, &ReducePlan::full(a.len()));
    out[0]
}

/// Reduces where the innermost group is reduced, so that every result comes from contiguous runs.
fn runs<R: Reducer<T>, T: Copy + Send + Sync>(a: &[T], out: &mut [T], plan: &ReducePlan) {
    let run_len = plan.groups.last().map_or(1, |group| group.len);
    let runs = plan.reduced_len() / run_len;
    let count = plan.reduced_len();
    if out.len() == 1 && runs == 1 && parallel::pays(count, COST_NS) {
        let mut totals = vec![R::TOTAL; count.div_ceil(PART)];
        parallel::for_each_chunk_mut(&mut totals, 1, COST_NS * PART as f64, |first, totals| {
            for (offset, total) in totals.iter_mut().enumerate() {
                let start = (first + offset) * PART;
                *total = run::<R, T>(R::TOTAL, &a[start..(start + PART).min(count)]);
            }
        });
        out[0] = R::finish(totals.into_iter().fold(R::TOTAL, R::merge), count);
        return;
    }
    parallel::for_each_chunk_mut(out, 1, 2.0 + COST_NS * count as f64, |first, out| {
        if runs == 1 && plan.groups.len() <= 2 {
            // The kept rows are contiguous.
            return many_runs::<R, T>(&a[first * run_len..], run_len, out);
        }
        for (offset, out) in out.iter_mut().enumerate() {
            let base = plan.offset(false, false, first + offset);
            let mut total = R::TOTAL;
            for index in 0..runs {
                let start = base + plan.offset(true, true, index);
                total = run::<R, T>(total, &a[start..start + run_len]);
            }
            *out = R::finish(total, count);
        }
    });
}

/// Reduces contiguous rows, one after the other.
fn many_runs<R: Reducer<T>, T: Copy>(a: &[T], run_len: usize, out: &mut [T]) {
    if cpu::is_wide() {
        // SAFETY: the processor has the features that the loop is compiled for.
        return unsafe { many_runs_wide::<R, T>(a, run_len, out) };
    }
    for (row, out) in a.chunks_exact(run_len).zip(out) {
        *out = R::finish(run_plain::<R, T>(R::TOTAL, row), run_len);
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn many_runs_wide<R: Reducer<T>, T: Copy>(a: &[T], run_len: usize, out: &mut [T]) {
    for (row, out) in a.chunks_exact(run_len).zip(out) {
        *out = R::finish(run_inline::<R, T>(R::TOTAL, row), run_len);
    }
}

/// Accumulates a contiguous run in `total`.
fn run<R: Reducer<T>, T: Copy>(total: R::Total, a: &[T]) -> R::Total {
    match cpu::is_wide() {
        // SAFETY: the processor has the features that the loop is compiled for.
        true => unsafe { run_wide::<R, T>(total, a) },
        false => run_plain::<R, T>(total, a),
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn run_wide<R: Reducer<T>, T: Copy>(total: R::Total, a: &[T]) -> R::Total {
    run_inline::<R, T>(total, a)
}

/// The loop for processors without AVX2. It is not vectorised, since vector loops for the dozens of types would make up a third
/// of the machine code of all reductions.
#[inline(never)]
fn run_plain<R: Reducer<T>, T: Copy>(total: R::Total, a: &[T]) -> R::Total {
    a.iter().fold(total, |total, &value| R::gather(total, R::step(R::LANE, value)))
}

#[inline(always)]
fn run_inline<R: Reducer<T>, T: Copy>(mut total: R::Total, a: &[T]) -> R::Total {
    for block in a.chunks(BLOCK) {
        let (chunks, rest) = block.as_chunks::<LANES>();
        if !chunks.is_empty() {
            let mut lanes = [R::LANE; LANES];
            for chunk in chunks {
                for lane in 0..LANES {
                    lanes[lane] = R::step(lanes[lane], chunk[lane]);
                }
            }
            for lane in lanes {
                total = R::gather(total, lane);
            }
        }
        let mut lane = R::LANE;
        for &value in rest {
            lane = R::step(lane, value);
        }
        total = R::gather(total, lane);
    }
    total
}

/// Reduces where the innermost group is kept: sums whole rows, column by column.
fn rows<R: Reducer<T>, T: Copy + Send + Sync>(a: &[T], out: &mut [T], plan: &ReducePlan) {
    let columns = plan.groups[plan.groups.len() - 1].len;
    let count = plan.reduced_len();
    // The reduced group next to the columns; there is none when nothing is reduced.
    let near_rows = plan.groups.len().checked_sub(2).map_or(1, |position| plan.groups[position].len);
    let outer_rows = count / near_rows;
    let tiles = columns.div_ceil(COLUMNS);
    let units = out.len() / columns * tiles;
    let near_stride = columns;
    let tile_totals = |unit: usize, near: std::ops::Range<usize>, totals: &mut [R::Total]| {
        let first_column = unit % tiles * COLUMNS;
        let base = plan.offset(false, true, unit / tiles) + first_column;
        for outer in 0..outer_rows {
            // The near group varies fastest among the reduced ones.
            let start = base + plan.offset(true, false, outer * near_rows) + near.start * near_stride;
            add_rows::<R, T>(&a[start..], near.len(), near_stride, totals);
        }
    };
    let tile_width = |unit: usize| COLUMNS.min(columns - unit % tiles * COLUMNS);
    if units < 2 * parallel::threads() && parallel::pays(a.len(), COST_NS) && outer_rows == 1 {
        // There are too few columns for the threads, so the rows are split into parts.
        let part_rows = (PART / columns.min(COLUMNS)).max(ROWS);
        let parts = near_rows.div_ceil(part_rows);
        let mut totals = vec![R::TOTAL; units * parts * COLUMNS];
        let cost = COST_NS * (part_rows * columns.min(COLUMNS)) as f64;
        parallel::for_each_chunk_mut(&mut totals, COLUMNS, cost, |first, totals| {
            for (offset, totals) in totals.chunks_exact_mut(COLUMNS).enumerate() {
                let (unit, part) = ((first + offset) / parts, (first + offset) % parts);
                let near = part * part_rows..((part + 1) * part_rows).min(near_rows);
                tile_totals(unit, near, &mut totals[..tile_width(unit)]);
            }
        });
        for unit in 0..units {
            let width = tile_width(unit);
            let start = unit / tiles * columns + unit % tiles * COLUMNS;
            for (column, out) in out[start..start + width].iter_mut().enumerate() {
                let of_part = |part: usize| totals[(unit * parts + part) * COLUMNS + column];
                *out = R::finish((0..parts).map(of_part).fold(R::TOTAL, R::merge), count);
            }
        }
        return;
    }
    let out = parallel::SharedMut::new(out);
    let cost = COST_NS * (count * columns.min(COLUMNS)) as f64;
    parallel::for_each_chunk(units, cost, |range| {
        for unit in range {
            let width = tile_width(unit);
            let mut totals = [R::TOTAL; COLUMNS];
            tile_totals(unit, 0..near_rows, &mut totals[..width]);
            // SAFETY: units are disjoint runs of columns.
            let out = unsafe { out.slice(unit / tiles * columns + unit % tiles * COLUMNS, width) };
            for (out, total) in out.iter_mut().zip(totals) {
                *out = R::finish(total, count);
            }
        }
    });
}

/// Accumulates `rows` rows, `stride` apart, in the totals of the columns.
fn add_rows<R: Reducer<T>, T: Copy>(a: &[T], rows: usize, stride: usize, totals: &mut [R::Total]) {
    if cpu::is_wide() {
        // SAFETY: the processor has the features that the loop is compiled for.
        return unsafe { add_rows_wide::<R, T>(a, rows, stride, totals) };
    }
    for row in 0..rows {
        add_row::<R, T>(&a[row * stride..], totals);
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn add_rows_wide<R: Reducer<T>, T: Copy>(a: &[T], rows: usize, stride: usize, totals: &mut [R::Total]) {
    let columns = totals.len();
    // Several adjacent narrow rows are processed together, as if they were one.
    let together = if stride == columns { (COLUMNS / 4 / columns).clamp(1, rows.max(1)) } else { 1 };
    let width = columns * together;
    let mut row = 0;
    while row + together <= rows {
        let block = ROWS.min((rows - row) / together);
        let mut lanes = [R::LANE; COLUMNS];
        let lanes = &mut lanes[..width];
        for step in 0..block {
            let values = &a[(row + step * together) * stride..][..width];
            for (lane, &value) in lanes.iter_mut().zip(values) {
                *lane = R::step(*lane, value);
            }
        }
        for lanes in lanes.chunks_exact(columns) {
            for (total, &lane) in totals.iter_mut().zip(lanes) {
                *total = R::gather(*total, lane);
            }
        }
        row += block * together;
    }
    while row < rows {
        add_row::<R, T>(&a[row * stride..], totals);
        row += 1;
    }
}

/// Accumulates one row in the totals of the columns.
#[inline(never)]
fn add_row<R: Reducer<T>, T: Copy>(a: &[T], totals: &mut [R::Total]) {
    for (total, &value) in totals.iter_mut().zip(a) {
        *total = R::gather(*total, R::step(R::LANE, value));
    }
}

#[cfg(test)]
mod tests;
