//! Skips zeros in the first operand: the steps of the depth in which a group of rows has only zeros.
//!
//! Images have black borders, and words, categories and clicks are often one-hot. The skipped steps would only have added
//! zeros, and the others keep their order, so the product is the same to the last bit. If the second operand has a number that
//! is not finite, nothing is skipped, since zero times that number is NaN.

use super::block::MatrixView;
use super::kernel::{ChosenSteps, HasMicrokernel, group_rows};
use crate::scratch::with_scratch;
use bytemuck::Pod;
use cpu_macros::each_level;

/// The number of multiplications below which inspecting the operands would take longer than it can save.
const LEAST_MULTIPLICATIONS: usize = 1 << 19;
/// The fewest panels of B that must share a choice of steps.
const LEAST_PANELS: usize = 3;
/// The number of groups, and of steps in each, that are sampled to decide whether skipping pays.
const SAMPLED_GROUPS: usize = 4;
const SAMPLED_STEPS: usize = 96;
/// Marks that are tested together.
const WORD: usize = size_of::<u64>();

/// Returns whether to skip zeros of A: whether there are enough of them and B is finite.
pub(super) fn pays<T: HasMicrokernel + Pod>(
    m: usize,
    n: usize,
    k: usize,
    a: MatrixView<'_, T>,
    group: usize,
    panel_columns: usize,
    b_is_finite: impl FnOnce() -> bool,
) -> bool {
    m >= group
        && n >= LEAST_PANELS * panel_columns
        && m.saturating_mul(n).saturating_mul(k) >= LEAST_MULTIPLICATIONS
        && has_many_zeros(a, m, k, group)
        && b_is_finite()
}

/// Samples steps all over the matrix, and returns whether at least a quarter of them have only zeros.
fn has_many_zeros<T: HasMicrokernel>(a: MatrixView<'_, T>, m: usize, k: usize, group: usize) -> bool {
    let groups = SAMPLED_GROUPS.min(m / group);
    let steps = SAMPLED_STEPS.min(k);
    let mut zeros = 0;
    for sample in 0..groups {
        // The middle of each part, since the borders of an image are darker than the rest.
        let first_row = (2 * sample + 1) * (m - group) / (2 * groups);
        for step in 0..steps {
            let first = first_row * a.row_stride + (2 * step + 1) * k / (2 * steps) * a.column_stride;
            zeros += usize::from((0..group).all(|row| a.data[first + row * a.row_stride].is_zero()));
        }
    }
    4 * zeros >= groups * steps
}

/// Returns whether a matrix, whose lines are contiguous, has only finite numbers.
pub(super) fn is_finite<T: HasMicrokernel + Pod>(b: MatrixView<'_, T>, depth: usize, columns: usize) -> bool {
    let (lines, len, line_stride) = match (b.column_stride, b.row_stride) {
        (1, row_stride) => (depth, columns, row_stride),
        (column_stride, 1) => (columns, depth, column_stride),
        _ => return false,
    };
    (0..lines).all(|line| all_finite(&b.data[line * line_stride..][..len]))
}

#[each_level]
fn all_finite<T: HasMicrokernel + Pod>(values: &[T]) -> bool {
    values.iter().fold(true, |all, value| all & value.is_finite())
}

/// How a block of A is stored.
#[derive(Clone, Copy)]
pub(super) enum Block<'a, T> {
    /// Row by row, with this many elements from one row to the next.
    Rows { data: &'a [T], row_stride: usize },
    /// As `pack_rows` writes it: group by group.
    Packed(&'a [T]),
}

/// Finds the steps to compute for each group of rows of a block of A. `steps` has room for `depth` steps per group.
pub(super) fn choose<T: HasMicrokernel + Pod>(
    a: Block<'_, T>,
    rows: usize,
    depth: usize,
    most_rows: usize,
    steps: &mut [u32],
    counts: &mut [u32],
) -> ChosenSteps {
    let mut row = 0;
    with_scratch(depth * most_rows + WORD, |marks: &mut [u8]| {
        for (steps, count) in steps.chunks_exact_mut(depth).zip(counts.iter_mut()) {
            let group = group_rows(rows - row, most_rows);
            let found = match a {
                Block::Rows { data, row_stride } => of_rows(&data[row * row_stride..], row_stride, group, marks, steps),
                Block::Packed(data) => of_packed(&data[row * depth..][..group * depth], group, marks, steps),
            };
            *count = found as u32;
            row += group;
            if row == rows {
                break;
            }
        }
    });
    ChosenSteps { steps: steps.as_ptr(), counts: counts.as_ptr() }
}

/// Finds the steps of a group that is stored row by row, and returns their number.
#[each_level]
fn of_rows<T: HasMicrokernel>(
    rows: &[T],
    row_stride: usize,
    group: usize,
    marks: &mut [u8],
    steps: &mut [u32],
) -> usize {
    let marks = &mut marks[..steps.len()];
    marks.fill(0);
    for row in 0..group {
        for (mark, value) in marks.iter_mut().zip(&rows[row * row_stride..][..steps.len()]) {
            *mark |= u8::from(!value.is_zero());
        }
    }
    // Each step is written to the next free entry, which advances only past steps that count: no branch to mispredict.
    let mut count = 0;
    for (step, &mark) in marks.iter().enumerate() {
        steps[count] = step as u32;
        count += usize::from(mark);
    }
    count
}

/// Finds the steps of a packed group, and returns their number.
#[each_level]
fn of_packed<T: HasMicrokernel>(packed: &[T], group: usize, marks: &mut [u8], steps: &mut [u32]) -> usize {
    let marks = &mut marks[..packed.len() + WORD];
    for (mark, value) in marks.iter_mut().zip(packed) {
        *mark = u8::from(!value.is_zero());
    }
    let mut count = 0;
    for step in 0..steps.len() {
        steps[count] = step as u32;
        count += usize::from(any_marked(&marks[step * group..], group));
    }
    count
}

/// Returns whether one of the first `len` marks is set; a word of marks follows them.
#[inline(always)]
fn any_marked(marks: &[u8], len: usize) -> bool {
    let word = |from: usize, len: usize| {
        let bytes = marks[from..].first_chunk::<WORD>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        bytes << (8 * (WORD - len))
    };
    if len <= WORD { word(0, len) != 0 } else { word(0, WORD) | word(len - WORD, WORD) != 0 }
}
