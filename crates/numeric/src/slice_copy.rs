//! Copies parts of tensors: slices, concatenation, splitting, padding, tiling, reversing, gathering rows.

use crate::parallel;
use crate::prefetch;
use crate::strided::{Axis, copy_strided, row_major_strides};
use smallvec::SmallVec;

/// One axis of a strided slice: `len` elements from `begin`, `stride` apart (negative: backwards).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceAxis {
    /// The first element.
    pub begin: usize,
    /// The distance to the next element, not 0.
    pub stride: isize,
    /// The number of elements.
    pub len: usize,
}

/// Copies a strided slice of `a`, of shape `dims`, to `out`, which has the lengths of the axes as its shape.
pub fn strided_slice<T: Copy + Send + Sync>(a: &[T], dims: &[usize], slice: &[SliceAxis], out: &mut [T]) {
    check_slice(a.len(), dims, slice, out.len());
    let Some((start, strides)) = view(dims, slice) else { return };
    let dense = row_major_strides(&slice_dims(slice));
    let axes = (0..dims.len()).map(|axis| Axis { len: slice[axis].len, source: strides[axis], target: dense[axis] });
    copy_strided(a, start, out, 0, axes);
}

/// Copies `a`, whose shape is the lengths of the axes, into a strided slice of `out`, of shape `dims`.
pub fn strided_slice_assign<T: Copy + Send + Sync>(a: &[T], out: &mut [T], dims: &[usize], slice: &[SliceAxis]) {
    check_slice(out.len(), dims, slice, a.len());
    let Some((start, strides)) = view(dims, slice) else { return };
    let dense = row_major_strides(&slice_dims(slice));
    let axes = (0..dims.len()).map(|axis| Axis { len: slice[axis].len, source: dense[axis], target: strides[axis] });
    copy_strided(a, 0, out, start, axes);
}

/// Copies the box of shape `size` that starts at `begin`.
pub fn slice<T: Copy + Send + Sync>(a: &[T], dims: &[usize], begin: &[usize], size: &[usize], out: &mut [T]) {
    let axes: SmallVec<[SliceAxis; 8]> =
        begin.iter().zip(size).map(|(&begin, &len)| SliceAxis { begin, stride: 1, len }).collect();
    strided_slice(a, dims, &axes, out);
}

/// Concatenates inputs along an axis: each consists of `outer` rows of its own length, and a row of the output is those of the
/// inputs side by side.
pub fn concat<T: Copy + Send + Sync>(inputs: &[(&[T], usize)], outer: usize, out: &mut [T]) {
    let row_len: usize = inputs.iter().map(|&(_, len)| len).sum();
    assert_eq!(out.len(), outer * row_len, "the output has another size than the inputs together");
    for &(input, len) in inputs {
        assert_eq!(input.len(), outer * len, "an input has another size than its rows");
    }
    if outer == 1 {
        let mut rest = out;
        for (input, _) in inputs {
            let (part, after) = rest.split_at_mut(input.len());
            copy_parallel(input, part);
            rest = after;
        }
        return;
    }
    if row_len == 0 {
        return;
    }
    parallel::for_each_chunk_mut(out, row_len, bytes_cost::<T>(row_len) + 5.0, |first, out| {
        for (offset, row) in out.chunks_exact_mut(row_len).enumerate() {
            let mut at = 0;
            for &(input, len) in inputs {
                row[at..at + len].copy_from_slice(&input[(first + offset) * len..][..len]);
                at += len;
            }
        }
    });
}

/// Splits along an axis: `a` consists of `outer` rows, and each output gets the next part of every row, of its own length.
pub fn split<T: Copy + Send + Sync>(a: &[T], outer: usize, outputs: &mut [(&mut [T], usize)]) {
    let row_len: usize = outputs.iter().map(|(_, len)| *len).sum();
    assert_eq!(a.len(), outer * row_len, "the input has another size than the outputs together");
    let mut at = 0;
    for (output, len) in outputs {
        assert_eq!(output.len(), outer * *len, "an output has another size than its rows");
        if outer == 1 {
            copy_parallel(&a[at..at + *len], output);
        } else if *len > 0 {
            parallel::for_each_chunk_mut(output, *len, bytes_cost::<T>(*len) + 2.0, |first, out| {
                for (offset, row) in out.chunks_exact_mut(*len).enumerate() {
                    row.copy_from_slice(&a[(first + offset) * row_len + at..][..*len]);
                }
            });
        }
        at += *len;
    }
}

/// Pads `a`, of shape `dims`, with `value`; `paddings` are the numbers of elements before and after on each axis.
pub fn pad<T: Copy + Send + Sync>(a: &[T], dims: &[usize], paddings: &[(usize, usize)], value: T, out: &mut [T]) {
    let out_dims: SmallVec<[usize; 8]> =
        dims.iter().zip(paddings).map(|(&size, &(before, after))| before + size + after).collect();
    assert_eq!(out.len(), out_dims.iter().product::<usize>(), "the output has another size than its shape");
    parallel::for_each_chunk_mut(out, 1, bytes_cost::<T>(1), |_, out| out.fill(value));
    let axes: SmallVec<[SliceAxis; 8]> =
        dims.iter().zip(paddings).map(|(&len, &(begin, _))| SliceAxis { begin, stride: 1, len }).collect();
    strided_slice_assign(a, out, &out_dims, &axes);
}

/// Pads `a` with its own reflection. `offset` is 1 if the edge is not repeated (REFLECT), and 0 if it is (SYMMETRIC). A padding
/// is at most the length of its axis less `offset`.
pub fn mirror_pad<T: Copy + Send + Sync>(
    a: &[T],
    dims: &[usize],
    paddings: &[(usize, usize)],
    offset: usize,
    out: &mut [T],
) {
    let out_dims: SmallVec<[usize; 8]> =
        dims.iter().zip(paddings).map(|(&size, &(before, after))| before + size + after).collect();
    let strides = row_major_strides(dims);
    assert_eq!(a.len(), dims.iter().product::<usize>(), "the input has another size than its shape");
    assert_eq!(out.len(), out_dims.iter().product::<usize>(), "the output has another size than its shape");
    for (index, out) in out.iter_mut().enumerate() {
        let mut rest = index;
        let mut position = 0;
        for axis in (0..dims.len()).rev() {
            let (before, size) = (paddings[axis].0, dims[axis]);
            let at = rest % out_dims[axis];
            rest /= out_dims[axis];
            let inside = if at < before {
                before - at - 1 + offset
            } else if at - before < size {
                at - before
            } else {
                2 * size - 1 - (at - before) - offset
            };
            position += inside * strides[axis] as usize;
        }
        *out = a[position];
    }
}

/// Repeats `a`, of shape `dims`, `multiples` times along each axis.
pub fn tile<T: Copy + Send + Sync>(a: &[T], dims: &[usize], multiples: &[usize], out: &mut [T]) {
    assert_eq!(a.len(), dims.iter().product::<usize>(), "the input has another size than its shape");
    let out_dims: SmallVec<[usize; 8]> = dims.iter().zip(multiples).map(|(&size, &times)| size * times).collect();
    assert_eq!(out.len(), out_dims.iter().product::<usize>(), "the output has another size than its shape");
    let (source, target) = (row_major_strides(dims), row_major_strides(&out_dims));
    let axes = (0..dims.len()).flat_map(|axis| {
        let repeat = Axis { len: multiples[axis], source: 0, target: target[axis] * dims[axis] as isize };
        [repeat, Axis { len: dims[axis], source: source[axis], target: target[axis] }]
    });
    copy_strided(a, 0, out, 0, axes);
}

/// Broadcasts `a` from the shape `dims` to the shape `out_dims`.
pub fn broadcast_to<T: Copy + Send + Sync>(a: &[T], dims: &[usize], out_dims: &[usize], out: &mut [T]) {
    assert_eq!(a.len(), dims.iter().product::<usize>(), "the input has another size than its shape");
    assert_eq!(out.len(), out_dims.iter().product::<usize>(), "the output has another size than its shape");
    let missing = out_dims.len() - dims.len();
    let (source, target) = (row_major_strides(dims), row_major_strides(out_dims));
    let axes = (0..out_dims.len()).map(|axis| {
        let moves = axis >= missing && dims[axis - missing] != 1;
        Axis { len: out_dims[axis], source: if moves { source[axis - missing] } else { 0 }, target: target[axis] }
    });
    copy_strided(a, 0, out, 0, axes);
}

/// Reverses `a`, of shape `dims`, along the axes that `reversed` marks.
pub fn reverse<T: Copy + Send + Sync>(a: &[T], dims: &[usize], reversed: &[bool], out: &mut [T]) {
    let axes: SmallVec<[SliceAxis; 8]> = dims
        .iter()
        .zip(reversed)
        .map(|(&len, &reversed)| {
            let begin = if reversed { len.saturating_sub(1) } else { 0 };
            SliceAxis { begin, stride: if reversed { -1 } else { 1 }, len }
        })
        .collect();
    strided_slice(a, dims, &axes, out);
}

/// Gathers along the middle axis of a shape `[outer, axis, inner]`: row `i` of each outer part of the output is row
/// `indices[i]` of the same part of `a`. Panics on an index outside of the axis.
pub fn gather_rows<T: Copy + Send + Sync, I: Copy + Sync + TryInto<usize>>(
    a: &[T],
    [outer, axis, inner]: [usize; 3],
    indices: &[I],
    out: &mut [T],
) {
    assert_eq!(a.len(), outer * axis * inner, "the input has another size than its shape");
    assert_eq!(out.len(), outer * indices.len() * inner, "the output has another size than its shape");
    if out.is_empty() {
        return;
    }
    // A row is probably not in the cache, so even a short one costs a cache miss.
    let cost = 10.0 + bytes_cost::<T>(inner);
    parallel::for_each_chunk_mut(out, inner, cost, |first, out| {
        for (offset, row) in out.chunks_exact_mut(inner).enumerate() {
            let (part, place) = ((first + offset) / indices.len(), (first + offset) % indices.len());
            let index = indices[place].try_into().unwrap_or(usize::MAX);
            assert!(index < axis, "a gathered row lies outside of the axis");
            if let Some(Ok(next)) = indices.get(place + prefetch::ROWS_AHEAD).map(|&next| next.try_into()) {
                let next: usize = next;
                prefetch::ask_for_row(a.as_ptr().wrapping_add((part * axis + next).wrapping_mul(inner)), inner);
            }
            let start = (part * axis + index) * inner;
            if inner == 1 {
                row[0] = a[start];
            } else {
                row.copy_from_slice(&a[start..start + inner]);
            }
        }
    });
}

/// Copies a slice, on several threads if it is large.
pub fn copy_parallel<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "source and target differ in length");
    parallel::for_each_chunk_mut(to, 1, bytes_cost::<T>(1), |first, to| {
        to.copy_from_slice(&from[first..first + to.len()]);
    });
}

fn bytes_cost<T>(elements: usize) -> f64 {
    (elements * size_of::<T>()) as f64 * 0.08
}

fn slice_dims(slice: &[SliceAxis]) -> SmallVec<[usize; 8]> {
    slice.iter().map(|axis| axis.len).collect()
}

fn check_slice(whole_len: usize, dims: &[usize], slice: &[SliceAxis], part_len: usize) {
    assert_eq!(dims.len(), slice.len(), "a slice needs every axis");
    assert_eq!(whole_len, dims.iter().product::<usize>(), "a tensor has another size than its shape");
    assert_eq!(
        part_len,
        slice.iter().map(|axis| axis.len).product::<usize>(),
        "a part has another size than its slice"
    );
    for (&size, axis) in dims.iter().zip(slice) {
        if axis.len > 0 {
            let last = axis.begin as i128 + (axis.len as i128 - 1) * axis.stride as i128;
            assert!(axis.begin < size && last >= 0 && last < size as i128, "a slice leaves its axis");
            assert!(axis.stride != 0 || axis.len == 1, "a slice does not move");
        }
    }
}

/// Returns the start and the strides of the slice, or `None` if it is empty.
fn view(dims: &[usize], slice: &[SliceAxis]) -> Option<(usize, SmallVec<[isize; 8]>)> {
    if slice.iter().any(|axis| axis.len == 0) {
        return None;
    }
    let mut strides = row_major_strides(dims);
    let mut start = 0;
    for (stride, axis) in strides.iter_mut().zip(slice) {
        start += axis.begin * *stride as usize;
        *stride *= axis.stride;
    }
    Some((start, strides))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(dims: &[usize]) -> Vec<i32> {
        (0..dims.iter().product::<usize>() as i32).collect()
    }

    /// Returns the positions of a slice, computed by plain loops.
    fn positions(dims: &[usize], slice: &[SliceAxis]) -> Vec<usize> {
        let mut all = vec![0usize];
        for (&size, axis) in dims.iter().zip(slice) {
            all = all
                .iter()
                .flat_map(|&base| {
                    (0..axis.len).map(move |i| base * size + (axis.begin as isize + i as isize * axis.stride) as usize)
                })
                .collect();
        }
        all
    }

    #[test]
    fn strided_slices_and_their_assignment() {
        let axis = |begin, stride, len| SliceAxis { begin, stride, len };
        let cases: &[(&[usize], &[SliceAxis])] = &[
            (&[10], &[axis(2, 3, 3)]),
            (&[10], &[axis(9, -2, 5)]),
            (&[4, 6], &[axis(1, 1, 2), axis(0, 1, 6)]),
            (&[4, 6], &[axis(3, -1, 4), axis(5, -5, 2)]),
            (&[4, 6], &[axis(0, 2, 2), axis(1, 1, 4)]),
            (&[3, 4, 5], &[axis(2, -2, 2), axis(0, 3, 2), axis(4, -1, 5)]),
            (&[3, 4, 5], &[axis(1, 1, 1), axis(1, 1, 0), axis(0, 1, 5)]),
            (&[500, 600], &[axis(0, 1, 500), axis(1, 2, 300)]),
            (&[], &[]),
        ];
        for (dims, slice) in cases {
            let a = counted(dims);
            let expected = positions(dims, slice);
            let mut out = vec![-1; expected.len()];
            strided_slice(&a, dims, slice, &mut out);
            assert!(out.iter().zip(&expected).all(|(&value, &at)| value == a[at]), "{dims:?} {slice:?}");
            let mut whole = vec![-1; a.len()];
            strided_slice_assign(&out, &mut whole, dims, slice);
            let mut in_slice = vec![false; a.len()];
            expected.iter().for_each(|&at| in_slice[at] = true);
            for at in 0..a.len() {
                assert_eq!(whole[at], if in_slice[at] { a[at] } else { -1 }, "{dims:?} {slice:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a slice leaves its axis")]
    fn a_slice_outside_is_refused() {
        strided_slice(&[1, 2, 3], &[3], &[SliceAxis { begin: 1, stride: 1, len: 3 }], &mut [0; 3]);
    }

    #[test]
    fn concat_and_split_are_inverse() {
        for outer in [1, 3, 1000] {
            let lens = [2usize, 0, 5, 1];
            let parts: Vec<Vec<i32>> = lens
                .iter()
                .enumerate()
                .map(|(i, &len)| (0..outer * len).map(|j| (i * 100_000 + j) as i32).collect())
                .collect();
            let inputs: Vec<(&[i32], usize)> =
                parts.iter().zip(lens).map(|(part, len)| (part.as_slice(), len)).collect();
            let mut out = vec![0; outer * 8];
            concat(&inputs, outer, &mut out);
            for row in 0..outer {
                let expected: Vec<i32> =
                    parts.iter().zip(lens).flat_map(|(part, len)| part[row * len..][..len].to_vec()).collect();
                assert_eq!(out[row * 8..][..8], expected);
            }
            let mut back: Vec<Vec<i32>> = lens.iter().map(|&len| vec![0; outer * len]).collect();
            let mut outputs: Vec<(&mut [i32], usize)> =
                back.iter_mut().zip(lens).map(|(part, len)| (part.as_mut_slice(), len)).collect();
            split(&out, outer, &mut outputs);
            assert_eq!(back, parts);
        }
    }

    #[test]
    fn padding() {
        let mut out = [0; 20];
        pad(&[1, 2, 3, 4, 5, 6], &[2, 3], &[(1, 1), (0, 2)], 9, &mut out);
        assert_eq!(out, [9, 9, 9, 9, 9, 1, 2, 3, 9, 9, 4, 5, 6, 9, 9, 9, 9, 9, 9, 9]);
        let mut out = [0; 7];
        mirror_pad(&[1, 2, 3], &[3], &[(2, 2)], 1, &mut out);
        assert_eq!(out, [3, 2, 1, 2, 3, 2, 1]);
        mirror_pad(&[1, 2, 3], &[3], &[(2, 2)], 0, &mut out);
        assert_eq!(out, [2, 1, 1, 2, 3, 3, 2]);
    }

    #[test]
    fn tiling_and_broadcasting() {
        let mut out = [0; 12];
        tile(&[1, 2, 3], &[1, 3], &[2, 2], &mut out);
        assert_eq!(out, [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]);
        let mut out = [0; 8];
        tile(&[1, 2, 3, 4], &[2, 2], &[1, 2], &mut out);
        assert_eq!(out, [1, 2, 1, 2, 3, 4, 3, 4]);
        let mut out = [0; 12];
        broadcast_to(&[1, 2], &[2, 1], &[2, 2, 3], &mut out);
        assert_eq!(out, [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
        tile(&[1, 2], &[2], &[0], &mut [0; 0]);
    }

    #[test]
    fn reversing() {
        let a = counted(&[2, 3, 2]);
        let mut out = [0; 12];
        reverse(&a, &[2, 3, 2], &[false, true, false], &mut out);
        assert_eq!(out, [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7]);
        reverse(&a, &[2, 3, 2], &[true, true, true], &mut out);
        assert_eq!(out, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn gathering() {
        let a = counted(&[2, 3, 2]);
        let mut out = [0; 16];
        gather_rows(&a, [2, 3, 2], &[2i64, 0, 2, 1], &mut out);
        assert_eq!(out, [4, 5, 0, 1, 4, 5, 2, 3, 10, 11, 6, 7, 10, 11, 8, 9]);
    }

    #[test]
    #[should_panic(expected = "outside of the axis")]
    fn gathering_outside_is_refused() {
        gather_rows(&[1, 2, 3], [1, 3, 1], &[-1i32], &mut [0]);
    }
}
