//! Copies between two strided views of memory, the common core of slicing, padding, tiling, reversing and transposing.
//!
//! Elements are copied as byte arrays, so one loop serves all types of the same size.

use crate::parallel::{self, SharedMut};
use cpu_macros::each_level;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// One axis of a copy: its length, and how far source and target move per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub len: usize,
    pub source: isize,
    pub target: isize,
}

type Axes = SmallVec<[Axis; 8]>;

/// An element of `N` bytes of any kind, padding included.
type Bytes<const N: usize> = MaybeUninit<[u8; N]>;

/// Copies elements along the axes, from `source_start` to `target_start`. No two elements may have the same target.
pub(crate) fn copy_strided<T: Copy + Send + Sync>(
    source: &[T],
    source_start: usize,
    target: &mut [T],
    target_start: usize,
    axes: impl IntoIterator<Item = Axis>,
) {
    let axes = merge(axes);
    if axes.iter().any(|axis| axis.len == 0) {
        return;
    }
    check_bounds(source.len(), source_start, axes.iter().map(|axis| (axis.len, axis.source)));
    check_bounds(target.len(), target_start, axes.iter().map(|axis| (axis.len, axis.target)));
    assert!(axes.iter().all(|axis| axis.target != 0), "several elements would go to one place");
    // SAFETY: `MaybeUninit` of the same size holds any value of `T`, its alignment is 1, and the lengths are kept.
    macro_rules! as_bytes {
        ($size:literal) => {{
            let source = unsafe { std::slice::from_raw_parts(source.as_ptr().cast::<Bytes<$size>>(), source.len()) };
            let target =
                unsafe { std::slice::from_raw_parts_mut(target.as_mut_ptr().cast::<Bytes<$size>>(), target.len()) };
            copy(source, source_start, target, target_start, &axes)
        }};
    }
    match size_of::<T>() {
        1 => as_bytes!(1),
        2 => as_bytes!(2),
        4 => as_bytes!(4),
        8 => as_bytes!(8),
        16 => as_bytes!(16),
        _ => copy(source, source_start, target, target_start, &axes),
    }
}

/// Returns the row-major strides of a shape.
pub(crate) fn row_major_strides(dims: &[usize]) -> SmallVec<[isize; 8]> {
    let mut strides: SmallVec<[isize; 8]> = SmallVec::from_elem(1, dims.len());
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis] as isize;
    }
    strides
}

/// Drops axes of one element, and merges adjacent axes that are contiguous in both source and target.
fn merge(axes: impl IntoIterator<Item = Axis>) -> Axes {
    let mut merged = Axes::new();
    for axis in axes {
        if axis.len == 1 {
            continue;
        }
        match merged.last_mut() {
            Some(outer)
                if outer.source == axis.source * axis.len as isize
                    && outer.target == axis.target * axis.len as isize =>
            {
                *outer = Axis { len: outer.len * axis.len, ..axis };
            }
            _ => merged.push(axis),
        }
    }
    if merged.is_empty() {
        merged.push(Axis { len: 1, source: 1, target: 1 });
    }
    merged
}

/// Panics unless every position that the axes reach from `start` is inside `len` elements.
fn check_bounds(len: usize, start: usize, axes: impl Iterator<Item = (usize, isize)>) {
    let (mut lowest, mut highest) = (start as i128, start as i128);
    for (steps, stride) in axes {
        let reach = (steps as i128 - 1) * stride as i128;
        if reach < 0 { lowest += reach } else { highest += reach }
    }
    assert!(lowest >= 0 && highest < len as i128, "a strided copy leaves its slice");
}

fn copy<T: Copy + Send + Sync>(
    source: &[T],
    source_start: usize,
    target: &mut [T],
    target_start: usize,
    axes: &[Axis],
) {
    let inner = axes[axes.len() - 1];
    let outer = &axes[..axes.len() - 1];
    // If the inner loop would jump in the source and the next one in the target, the copy goes tile by tile.
    let tiled = inner.source != 1 && outer.iter().any(|axis| axis.source == 1);
    let rows: usize = outer.iter().map(|axis| axis.len).product();
    let shared = SharedMut::new(target);
    let per_element = 0.2 + size_of::<T>() as f64 * 0.05 + if inner.source == 1 { 0.0 } else { 0.4 };
    if tiled {
        let position = outer.iter().position(|axis| axis.source == 1).unwrap_or(0);
        let across = outer[position];
        let rest: Axes = outer.iter().enumerate().filter(|&(at, _)| at != position).map(|(_, &axis)| axis).collect();
        let planes: usize = rest.iter().map(|axis| axis.len).product();
        const STRIP: usize = 16;
        let strips = across.len.div_ceil(STRIP);
        let cost = per_element * (inner.len * across.len.min(STRIP)) as f64;
        parallel::for_each_chunk(planes * strips, cost, |range| {
            for unit in range {
                let (source_at, target_at) = offsets(&rest, unit / strips, source_start, target_start);
                let first = unit % strips * STRIP;
                let width = STRIP.min(across.len - first);
                // SAFETY: the bounds of all axes were checked, and units write different elements.
                unsafe {
                    let from = source.as_ptr().offset(source_at + first as isize);
                    let to = shared.as_mut_ptr().offset(target_at + first as isize * across.target);
                    transpose_strip(from, inner.source, to, inner.target, across.target, inner.len, width);
                }
            }
        });
        return;
    }
    if rows == 1 {
        parallel::for_each_chunk(inner.len, per_element, |range| {
            let first = range.start as isize;
            // SAFETY: the bounds were checked and ranges are disjoint.
            unsafe {
                let from = source.as_ptr().offset(source_start as isize + first * inner.source);
                let to = shared.as_mut_ptr().offset(target_start as isize + first * inner.target);
                copy_row(from, inner.source, to, inner.target, range.len());
            }
        });
        return;
    }
    parallel::for_each_chunk(rows, 2.0 + per_element * inner.len as f64, |range| {
        let mut walk = Walk::at(outer, range.start, source_start, target_start);
        for _ in range {
            // SAFETY: the bounds of all axes were checked, and rows are disjoint.
            unsafe {
                let from = source.as_ptr().offset(walk.source);
                let to = shared.as_mut_ptr().offset(walk.target);
                copy_row(from, inner.source, to, inner.target, inner.len);
            }
            walk.next();
        }
    });
}

#[inline(always)]
unsafe fn copy_row<T: Copy>(from: *const T, from_step: isize, to: *mut T, to_step: isize, len: usize) {
    // SAFETY: the caller checked the bounds of the whole copy.
    unsafe {
        if to_step == 1 && from_step == 1 {
            std::ptr::copy_nonoverlapping(from, to, len);
        } else if to_step == 1 && from_step == 0 {
            std::slice::from_raw_parts_mut(to, len).fill(*from);
        } else {
            for step in 0..len as isize {
                *to.offset(step * to_step) = *from.offset(step * from_step);
            }
        }
    }
}

/// Copies `len` lines of `width` adjacent source elements, each to a column of the target.
#[each_level]
unsafe fn transpose_strip<T: Copy>(
    from: *const T,
    from_step: isize,
    to: *mut T,
    to_step: isize,
    to_line: isize,
    len: usize,
    width: usize,
) {
    const TILE: usize = 8;
    // SAFETY: the caller checked the bounds of the whole copy.
    unsafe {
        let mut line = 0;
        if to_step == 1 {
            while line + TILE <= len {
                let mut column = 0;
                while column + TILE <= width {
                    let mut tile = [[const { MaybeUninit::<T>::uninit() }; TILE]; TILE];
                    for i in 0..TILE {
                        let row = from.offset((line + i) as isize * from_step + column as isize);
                        for j in 0..TILE {
                            tile[j][i].write(*row.add(j));
                        }
                    }
                    for j in 0..TILE {
                        let place = to.offset((column + j) as isize * to_line + line as isize);
                        place.cast::<[MaybeUninit<T>; TILE]>().write_unaligned(tile[j]);
                    }
                    column += TILE;
                }
                while column < width {
                    for i in 0..TILE {
                        *to.offset(column as isize * to_line + (line + i) as isize) =
                            *from.offset((line + i) as isize * from_step + column as isize);
                    }
                    column += 1;
                }
                line += TILE;
            }
        }
        while line < len {
            for column in 0..width as isize {
                *to.offset(column * to_line + line as isize * to_step) =
                    *from.offset(line as isize * from_step + column);
            }
            line += 1;
        }
    }
}

/// Returns the offsets of source and target at combination `index` of the axes.
fn offsets(axes: &[Axis], mut index: usize, source_start: usize, target_start: usize) -> (isize, isize) {
    let (mut source, mut target) = (source_start as isize, target_start as isize);
    for axis in axes.iter().rev() {
        let position = (index % axis.len) as isize;
        index /= axis.len;
        source += position * axis.source;
        target += position * axis.target;
    }
    (source, target)
}

struct Walk<'a> {
    axes: &'a [Axis],
    positions: SmallVec<[usize; 8]>,
    source: isize,
    target: isize,
}

impl<'a> Walk<'a> {
    fn at(axes: &'a [Axis], index: usize, source_start: usize, target_start: usize) -> Self {
        let (source, target) = offsets(axes, index, source_start, target_start);
        let mut positions: SmallVec<[usize; 8]> = SmallVec::from_elem(0, axes.len());
        let mut rest = index;
        for (position, axis) in positions.iter_mut().zip(axes).rev() {
            *position = rest % axis.len;
            rest /= axis.len;
        }
        Walk { axes, positions, source, target }
    }

    #[inline(always)]
    fn next(&mut self) {
        for (position, axis) in self.positions.iter_mut().zip(self.axes).rev() {
            *position += 1;
            if *position < axis.len {
                self.source += axis.source;
                self.target += axis.target;
                return;
            }
            *position = 0;
            self.source -= (axis.len as isize - 1) * axis.source;
            self.target -= (axis.len as isize - 1) * axis.target;
        }
    }
}
