//! Plans of reductions: dimensions merged into alternating kept and reduced groups.

use smallvec::SmallVec;

/// A run of dimensions that are all kept or all reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub len: usize,
    /// Elements between neighbours along this group.
    pub stride: usize,
    pub reduced: bool,
}

/// The plan of a reduction over a set of axes.
#[derive(Clone, Debug)]
pub struct ReducePlan {
    pub(super) groups: SmallVec<[Group; 6]>,
    in_len: usize,
    out_len: usize,
    reduced_len: usize,
    dims: SmallVec<[usize; 8]>,
    reduced: SmallVec<[bool; 8]>,
}

impl ReducePlan {
    /// Plans a reduction of a tensor of shape `dims` over `axes`, which are less than the rank. Repeated axes count once.
    pub fn new(dims: &[usize], axes: &[usize]) -> Self {
        let mut reduced: SmallVec<[bool; 8]> = SmallVec::from_elem(false, dims.len());
        for &axis in axes {
            reduced[axis] = true;
        }
        let mut groups: SmallVec<[Group; 6]> = SmallVec::new();
        let mut stride = 1;
        for axis in (0..dims.len()).rev() {
            // A dimension of one element joins either neighbour.
            if dims[axis] == 1 {
                continue;
            }
            match groups.last_mut() {
                Some(group) if group.reduced == reduced[axis] => group.len *= dims[axis],
                _ => groups.push(Group { len: dims[axis], stride, reduced: reduced[axis] }),
            }
            stride *= dims[axis];
        }
        groups.reverse();
        let product = |wanted: bool| -> usize {
            dims.iter().zip(&reduced).filter(|&(_, &own)| own == wanted).map(|(&size, _)| size).product()
        };
        ReducePlan {
            groups,
            in_len: dims.iter().product(),
            out_len: product(false),
            reduced_len: product(true),
            dims: SmallVec::from_slice(dims),
            reduced,
        }
    }

    /// Plans a reduction of `len` elements to one.
    pub fn full(len: usize) -> Self {
        ReducePlan::new(&[len], &[0])
    }

    /// Returns the number of elements of the input.
    pub fn in_len(&self) -> usize {
        self.in_len
    }

    /// Returns the number of elements of the output.
    pub fn out_len(&self) -> usize {
        self.out_len
    }

    /// Returns how many elements are reduced to one element of the output.
    pub fn reduced_len(&self) -> usize {
        self.reduced_len
    }

    /// Returns the shape of the output; reduced axes are dropped, or kept with one element.
    pub fn out_dims(&self, keep_dims: bool) -> SmallVec<[usize; 8]> {
        let mut out = SmallVec::new();
        for (&size, &reduced) in self.dims.iter().zip(&self.reduced) {
            if !reduced {
                out.push(size);
            } else if keep_dims {
                out.push(1);
            }
        }
        out
    }

    /// Returns the offset of combination `index` of the kept (or reduced) groups; `skipped` leaves out the last of them.
    pub(super) fn offset(&self, reduced: bool, skipped: bool, mut index: usize) -> usize {
        let mut offset = 0;
        let last = self.groups.len().saturating_sub(1);
        for (position, group) in self.groups.iter().enumerate().rev() {
            if group.reduced == reduced && !(skipped && position == last) {
                offset += index % group.len * group.stride;
                index /= group.len;
            }
        }
        offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(dims: &[usize], axes: &[usize]) -> Vec<(usize, bool)> {
        ReducePlan::new(dims, axes).groups.iter().map(|group| (group.len, group.reduced)).collect()
    }

    #[test]
    fn dimensions_are_merged() {
        assert_eq!(groups(&[2, 3, 4], &[0, 1, 2]), [(24, true)]);
        assert_eq!(groups(&[2, 3, 4], &[2]), [(6, false), (4, true)]);
        assert_eq!(groups(&[2, 3, 4], &[0, 1]), [(6, true), (4, false)]);
        assert_eq!(groups(&[2, 3, 4], &[1]), [(2, false), (3, true), (4, false)]);
        assert_eq!(groups(&[2, 1, 4], &[1]), [(8, false)]);
        assert_eq!(groups(&[1, 1], &[0]), []);
    }

    #[test]
    fn output_shapes() {
        let plan = ReducePlan::new(&[2, 3, 4], &[1, 1]);
        assert_eq!(plan.out_dims(false).as_slice(), [2, 4]);
        assert_eq!(plan.out_dims(true).as_slice(), [2, 1, 4]);
        assert_eq!((plan.in_len(), plan.out_len(), plan.reduced_len()), (24, 8, 3));
    }
}
