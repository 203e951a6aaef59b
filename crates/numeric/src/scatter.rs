//! Writes to rows named by indices: scatter updates and segment reductions, which are scatters with an operation.
//!
//! Updates of the same row are applied in the order of the indices, whatever the number of threads.

use crate::float::{Float, WideFloat};
use crate::parallel::{self, SharedMut};
use crate::prefetch;
use cpu_macros::each_level;

/// Combines row `i` of `updates` into row `indices[i]` of `target`: `target = combine(target, update)`. With `skip_negative`,
/// negative indices are skipped. Panics on any other index outside of the target, so the caller checks them.
pub fn scatter_rows<T: Copy + Send + Sync, U: Copy + Sync, I: Copy + Sync + TryInto<usize>>(
    target: &mut [T],
    row_len: usize,
    indices: &[I],
    updates: &[U],
    skip_negative: bool,
    combine: impl Fn(T, U) -> T + Sync,
) {
    assert_eq!(updates.len(), indices.len() * row_len, "there must be a row of updates for each index");
    for_each_index(target, row_len, indices, skip_negative, |position, row| {
        combine_row(row, &updates[position * row_len..][..row_len], &combine);
    });
}

/// Combines one value into every element of the rows that `indices` names.
pub fn scatter_scalar<T: Copy + Send + Sync, I: Copy + Sync + TryInto<usize>>(
    target: &mut [T],
    row_len: usize,
    indices: &[I],
    update: T,
    combine: impl Fn(T, T) -> T + Sync,
) {
    for_each_index(target, row_len, indices, false, |_, row| {
        row.iter_mut().for_each(|value| *value = combine(*value, update));
    });
}

/// Reduces rows of `data` with equal segment ids: each row of `out` starts as `initial`, and rows are combined into it in
/// order. Rows with negative ids are skipped.
pub fn segment_combine<T: Copy + Send + Sync, I: Copy + Sync + TryInto<usize>>(
    data: &[T],
    row_len: usize,
    segment_ids: &[I],
    initial: T,
    out: &mut [T],
    combine: impl Fn(T, T) -> T + Sync,
) {
    parallel::for_each_chunk_mut(out, 1, 0.1 * size_of::<T>() as f64, |_, out| out.fill(initial));
    scatter_rows(out, row_len, segment_ids, data, true, combine);
}

/// How the sum of a segment is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentScale {
    /// Not scaled.
    Sum,
    /// The sum divided by the number of rows.
    Mean,
    /// The sum divided by the square root of the number of rows.
    SqrtN,
}

impl SegmentScale {
    fn factor(self, count: usize) -> f64 {
        match self {
            SegmentScale::Sum => 1.0,
            SegmentScale::Mean => 1.0 / count.max(1) as f64,
            SegmentScale::SqrtN => 1.0 / (count.max(1) as f64).sqrt(),
        }
    }
}

/// Sums the rows `data[indices[i]]` (or `data[i]` without indices) by segment, and scales the sums. Rows of `out` whose segment
/// is empty are zero.
pub fn sparse_segment_reduce<T: Float, I: Copy + Sync + TryInto<usize>, S: Copy + Sync + TryInto<usize>>(
    data: &[T],
    row_len: usize,
    indices: Option<&[I]>,
    segment_ids: &[S],
    scale: SegmentScale,
    out: &mut [T],
) {
    out.fill(T::default());
    if row_len == 0 {
        return;
    }
    let rows = data.len() / row_len;
    let source = |position: usize| {
        let row = indices.map_or(position, |indices| index_of(indices[position]));
        assert!(row < rows, "a segment names a row outside of the data");
        &data[row * row_len..][..row_len]
    };
    if let Some(indices) = indices {
        assert_eq!(indices.len(), segment_ids.len(), "indices and segment ids differ in length");
    }
    for_each_index(out, row_len, segment_ids, true, |position, row| {
        combine_row(row, source(position), &|sum: T, value: T| T::narrow(sum.widen() + value.widen()));
    });
    let segments = out.len() / row_len;
    if scale != SegmentScale::Sum {
        for (row, count) in out.chunks_exact_mut(row_len).zip(counts(segment_ids, segments)) {
            let factor = T::Wide::of(scale.factor(count));
            row.iter_mut().for_each(|value| *value = T::narrow(value.widen() * factor));
        }
    }
}

/// Writes the gradient of [`sparse_segment_reduce`] with respect to its data: adds row `segment_ids[i]` of the gradient,
/// scaled, to row `indices[i]` of `out`.
pub fn sparse_segment_grad<T: Float, I: Copy + Sync + TryInto<usize>, S: Copy + Sync + TryInto<usize>>(
    gradient: &[T],
    row_len: usize,
    indices: &[I],
    segment_ids: &[S],
    scale: SegmentScale,
    out: &mut [T],
) {
    assert_eq!(indices.len(), segment_ids.len(), "indices and segment ids differ in length");
    out.fill(T::default());
    if row_len == 0 {
        return;
    }
    let segments = gradient.len() / row_len;
    let factors: Vec<f64> = counts(segment_ids, segments).into_iter().map(|count| scale.factor(count)).collect();
    for_each_index(out, row_len, indices, false, |position, row| {
        let segment = index_of(segment_ids[position]);
        assert!(segment < segments, "a segment id outside of the gradient");
        let factor = T::Wide::of(factors[segment]);
        let source = &gradient[segment * row_len..][..row_len];
        combine_row(row, source, &|sum: T, value: T| T::narrow(sum.widen() + value.widen() * factor));
    });
}

/// Returns the number of rows of each of `segments` segments.
pub fn counts<S: Copy + TryInto<usize>>(segment_ids: &[S], segments: usize) -> Vec<usize> {
    let mut counts = vec![0; segments];
    for &id in segment_ids {
        if let Some(count) = id.try_into().ok().and_then(|id: usize| counts.get_mut(id)) {
            *count += 1;
        }
    }
    counts
}

fn index_of<I: TryInto<usize>>(index: I) -> usize {
    index.try_into().unwrap_or(usize::MAX)
}

/// Calls `body(position, row)` for each index, in order for each row. The rows are divided among the threads.
fn for_each_index<T: Copy + Send + Sync, I: Copy + Sync + TryInto<usize>>(
    target: &mut [T],
    row_len: usize,
    indices: &[I],
    skip_negative: bool,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    if row_len == 0 {
        return;
    }
    let rows = target.len() / row_len;
    let cost = 10.0 + 0.2 * (row_len * size_of::<T>()) as f64;
    let table = Rows { first: target.as_ptr().addr(), bytes: row_len * size_of::<T>(), count: rows };
    let target = SharedMut::new(target);
    deal_rows(table, cost, indices, skip_negative, &|position, row| {
        // SAFETY: the row lies in the target, and no other thread has it.
        body(position, unsafe { target.slice(row * row_len, row_len) });
    });
}

/// The rows of a table in memory.
#[derive(Clone, Copy)]
struct Rows {
    /// The address of the first one.
    first: usize,
    /// The size of each.
    bytes: usize,
    count: usize,
}

/// Calls `body(position, row)` for each index. Each row is in the table and belongs to one thread, which has one row at a time.
/// Not generic over the body, of which there are hundreds.
fn deal_rows<I: Copy + Sync + TryInto<usize>>(
    table: Rows,
    cost: f64,
    indices: &[I],
    skip_negative: bool,
    body: &(dyn Fn(usize, usize) + Sync),
) {
    let parts = if parallel::pays(indices.len(), cost) { parallel::threads() } else { 1 };
    let part = |part: usize| {
        for (position, &index) in indices.iter().enumerate() {
            let Ok(row) = index.try_into() else {
                assert!(skip_negative, "a scattered row lies outside of the target");
                continue;
            };
            assert!(row < table.count, "a scattered row lies outside of the target");
            if let Some(Ok(next)) = indices.get(position + prefetch::ROWS_AHEAD).map(|&next| next.try_into())
                && parallel::part_of_row(next, parts) == part
            {
                let address = table.first.wrapping_add(next.wrapping_mul(table.bytes));
                prefetch::ask_for_row(std::ptr::without_provenance::<u8>(address), table.bytes);
            }
            if parallel::part_of_row(row, parts) == part {
                body(position, row);
            }
        }
    };
    if parts == 1 {
        part(0);
    } else {
        parallel::run_tasks(parts, indices.len() as f64 * cost, &part);
    }
}

#[inline(always)]
fn combine_row<T: Copy, U: Copy>(row: &mut [T], update: &[U], combine: &impl Fn(T, U) -> T) {
    if let ([value], [update]) = (&mut *row, update) {
        *value = combine(*value, *update);
        return;
    }
    combine_long_row(row, update, combine);
}

#[each_level]
fn combine_long_row<T: Copy, U: Copy, F: Fn(T, U) -> T>(row: &mut [T], update: &[U], combine: &F) {
    for (value, &update) in row.iter_mut().zip(update) {
        *value = combine(*value, update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_combined_in_order() {
        let mut target = [0i32; 8];
        scatter_rows(&mut target, 2, &[3i64, 0, 3], &[1, 2, 3, 4, 5, 6], false, |old, new| old * 10 + new);
        assert_eq!(target, [3, 4, 0, 0, 0, 0, 15, 26]);
        scatter_scalar(&mut target, 2, &[1i32, 1], 7, |old, new| old + new);
        assert_eq!(target, [3, 4, 14, 14, 0, 0, 15, 26]);
    }

    #[test]
    fn many_rows_equal_the_plain_loop() {
        let (rows, row_len) = (97, 40);
        let indices: Vec<i64> = (0..5000).map(|i| (i * 7919) % rows).collect();
        let updates: Vec<f64> = (0..indices.len() * row_len).map(|i| (i % 13) as f64).collect();
        let mut target = vec![1.0f64; rows as usize * row_len];
        let mut expected = target.clone();
        for (position, &row) in indices.iter().enumerate() {
            for column in 0..row_len {
                let value = &mut expected[row as usize * row_len + column];
                *value = 0.5 * *value + updates[position * row_len + column];
            }
        }
        scatter_rows(&mut target, row_len, &indices, &updates, false, |old, new| 0.5 * old + new);
        assert!(target == expected);
    }

    #[test]
    #[should_panic(expected = "outside of the target")]
    fn rows_outside_are_refused() {
        scatter_rows(&mut [0; 4], 2, &[2], &[1, 1], false, |_, new: i32| new);
    }

    #[test]
    fn segments() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut out = [0; 6];
        segment_combine(&data, 2, &[2i32, 0, 2, -1], 0, &mut out, |sum: i32, x| sum + x);
        assert_eq!(out, [3, 4, 0, 0, 6, 8]);
        segment_combine(&data, 2, &[2i32, 0, 2, -1], i32::MIN, &mut out, |most: i32, x| most.max(x));
        assert_eq!(out, [3, 4, i32::MIN, i32::MIN, 5, 6]);
    }

    #[test]
    fn sparse_segments_and_their_gradient() {
        let data = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let (indices, ids) = ([2i32, 0, 1, 1], [0i64, 0, 2, 2]);
        let mut out = [9.0f32; 8];
        sparse_segment_reduce(&data, 2, Some(&indices), &ids, SegmentScale::Sum, &mut out);
        assert_eq!(out, [6.0, 8.0, 0.0, 0.0, 6.0, 8.0, 0.0, 0.0]);
        sparse_segment_reduce(&data, 2, Some(&indices), &ids, SegmentScale::Mean, &mut out);
        assert_eq!(out, [3.0, 4.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0]);
        sparse_segment_reduce(&data, 2, None::<&[i32]>, &[1i32, 1, 1], SegmentScale::SqrtN, &mut out);
        let root = 3f32.sqrt();
        assert!((out[2] - 9.0 / root).abs() < 1e-6 && (out[3] - 12.0 / root).abs() < 1e-6 && out[0] == 0.0);
        let gradient = [1.0f32, 10.0, 0.0, 0.0, 3.0, 30.0];
        let mut data_grad = [9.0f32; 6];
        sparse_segment_grad(&gradient, 2, &indices, &ids, SegmentScale::Mean, &mut data_grad);
        assert_eq!(data_grad, [0.5, 5.0, 3.0, 30.0, 0.5, 5.0]);
    }
}
