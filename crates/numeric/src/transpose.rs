//! Permutations of the axes of a tensor.

use crate::strided::{Axis, copy_strided, row_major_strides};
use smallvec::SmallVec;

/// Writes `a`, of shape `dims`, with its axes permuted: axis `i` of the output is axis `permutation[i]` of the input.
pub fn transpose<T: Copy + Send + Sync>(a: &[T], dims: &[usize], permutation: &[usize], out: &mut [T]) {
    assert_eq!(a.len(), dims.iter().product::<usize>(), "the input has another size than its shape");
    assert_eq!(out.len(), a.len(), "the output has another size than the input");
    copy_strided(a, 0, out, 0, axes(dims, permutation));
}

/// Calls `body` with the input position of each output element, in order, for elements that are not `Copy`.
pub fn for_each_transposed_position(dims: &[usize], permutation: &[usize], mut body: impl FnMut(usize)) {
    let axes: SmallVec<[Axis; 8]> = axes(dims, permutation).collect();
    for index in 0..dims.iter().product() {
        let mut rest: usize = index;
        let mut position = 0;
        for axis in axes.iter().rev() {
            position += rest % axis.len * axis.source as usize;
            rest /= axis.len;
        }
        body(position);
    }
}

/// Returns the shape of the transposed tensor.
pub fn transposed_dims(dims: &[usize], permutation: &[usize]) -> SmallVec<[usize; 8]> {
    permutation.iter().map(|&axis| dims[axis]).collect()
}

fn axes(dims: &[usize], permutation: &[usize]) -> impl Iterator<Item = Axis> {
    assert_eq!(dims.len(), permutation.len(), "a permutation needs every axis");
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, dims.len());
    for &axis in permutation {
        assert!(!std::mem::replace(&mut seen[axis], true), "a permutation names an axis twice");
    }
    let source = row_major_strides(dims);
    let out_dims = transposed_dims(dims, permutation);
    let target = row_major_strides(&out_dims);
    let from: SmallVec<[isize; 8]> = permutation.iter().map(|&axis| source[axis]).collect();
    (0..out_dims.len()).map(move |axis| Axis { len: out_dims[axis], source: from[axis], target: target[axis] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permutations(rank: usize) -> Vec<Vec<usize>> {
        if rank == 0 {
            return vec![vec![]];
        }
        let mut all = Vec::new();
        for shorter in permutations(rank - 1) {
            for place in 0..rank {
                let mut longer = shorter.clone();
                longer.insert(place, rank - 1);
                all.push(longer);
            }
        }
        all
    }

    fn check<T: Copy + Send + Sync + PartialEq + Default>(dims: &[usize], make: impl Fn(usize) -> T) {
        let a: Vec<T> = (0..dims.iter().product()).map(make).collect();
        for permutation in permutations(dims.len()) {
            let mut out = vec![T::default(); a.len()];
            transpose(&a, dims, &permutation, &mut out);
            let mut index = 0;
            for_each_transposed_position(dims, &permutation, |position| {
                assert!(out[index] == a[position], "{dims:?} {permutation:?} at {index}");
                index += 1;
            });
            assert_eq!(index, a.len());
        }
    }

    #[test]
    fn positions_follow_the_permutation() {
        let mut positions = Vec::new();
        for_each_transposed_position(&[2, 3], &[1, 0], |position| positions.push(position));
        assert_eq!(positions, [0, 3, 1, 4, 2, 5]);
        let mut positions = Vec::new();
        for_each_transposed_position(&[2, 1, 2], &[2, 0, 1], |position| positions.push(position));
        assert_eq!(positions, [0, 2, 1, 3]);
    }

    #[test]
    fn every_permutation_moves_every_element() {
        for dims in [
            &[][..],
            &[5],
            &[1, 1],
            &[3, 4],
            &[17, 33],
            &[2, 3, 4],
            &[9, 16, 25],
            &[2, 3, 4, 5],
            &[3, 1, 20, 9],
            &[0, 4],
        ] {
            check(dims, |i| i as u8);
            check(dims, |i| i as u16);
            check(dims, |i| i as f32);
            check(dims, |i| i as u64);
            check(dims, |i| (i as u64, i as u64 + 1));
            check(dims, |i| [i as u8; 3]);
        }
        check(&[300, 400, 3], |i| i as f32);
    }
}
