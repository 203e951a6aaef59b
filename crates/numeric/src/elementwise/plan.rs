//! Plans of broadcast loops: how operands of different shapes line up, with their dimensions merged.

use smallvec::SmallVec;

/// Adjacent dimensions that are merged because every operand allows it. The last group is the inner loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group<const N: usize> {
    pub len: usize,
    /// How far each operand moves per step of this group: 0 where it is broadcast.
    pub steps: [usize; N],
}

/// The plan of a loop over `N` operands whose shapes broadcast to one.
#[derive(Clone, Debug)]
pub struct Broadcast<const N: usize> {
    out_dims: SmallVec<[usize; 8]>,
    out_len: usize,
    operand_lens: [usize; N],
    pub(super) groups: SmallVec<[Group<N>; 6]>,
}

/// The plan of a binary loop.
pub type BroadcastPlan = Broadcast<2>;

impl BroadcastPlan {
    /// Plans a loop over two shapes, or returns `None` when they do not broadcast.
    pub fn new(a_dims: &[usize], b_dims: &[usize]) -> Option<Self> {
        Broadcast::of([a_dims, b_dims])
    }

    /// Plans a loop over two operands of one shape.
    pub fn same_shape(len: usize) -> Self {
        Broadcast::of_same_len(len)
    }

    /// Returns whether the first operand has the shape of the output, so that it can hold it.
    pub fn left_holds_output(&self) -> bool {
        self.operand_lens[0] == self.out_len
    }

    /// Returns whether the second operand has the shape of the output, so that it can hold it.
    pub fn right_holds_output(&self) -> bool {
        self.operand_lens[1] == self.out_len
    }
}

impl<const N: usize> Broadcast<N> {
    /// Plans a loop over `N` shapes, or returns `None` when they do not broadcast.
    pub fn of(shapes: [&[usize]; N]) -> Option<Self> {
        let rank = shapes.iter().map(|dims| dims.len()).max().unwrap_or(0);
        let mut out_dims: SmallVec<[usize; 8]> = SmallVec::with_capacity(rank);
        let dim_of = |dims: &[usize], axis: usize| {
            let missing = rank - dims.len();
            if axis < missing { 1 } else { dims[axis - missing] }
        };
        for axis in 0..rank {
            let mut size = 1;
            for dims in shapes {
                let own = dim_of(dims, axis);
                if own != 1 {
                    if size != 1 && size != own {
                        return None;
                    }
                    size = own;
                }
            }
            out_dims.push(size);
        }
        let operand_lens = shapes.map(|dims| dims.iter().product());
        // From the innermost dimension outwards: an axis joins the group inside it if each operand moves along both, or is
        // broadcast along both.
        let mut reversed: SmallVec<[Group<N>; 6]> = SmallVec::new();
        let mut moved = [1usize; N];
        for axis in (0..rank).rev() {
            let size = out_dims[axis];
            if size == 1 {
                continue;
            }
            let steps: [usize; N] =
                std::array::from_fn(|operand| if dim_of(shapes[operand], axis) == 1 { 0 } else { moved[operand] });
            for operand in 0..N {
                if steps[operand] != 0 {
                    moved[operand] *= size;
                }
            }
            match reversed.last_mut() {
                Some(group) if (0..N).all(|operand| (group.steps[operand] == 0) == (steps[operand] == 0)) => {
                    group.len *= size;
                }
                _ => reversed.push(Group { len: size, steps }),
            }
        }
        if reversed.is_empty() {
            reversed.push(Group { len: 1, steps: [1; N] });
        }
        reversed.reverse();
        let out_len = out_dims.iter().product();
        Some(Broadcast { out_dims, out_len, operand_lens, groups: reversed })
    }

    /// Plans a loop over operands of one shape.
    pub fn of_same_len(len: usize) -> Self {
        let group = Group { len, steps: [1; N] };
        Broadcast {
            out_dims: SmallVec::from_slice(&[len]),
            out_len: len,
            operand_lens: [len; N],
            groups: SmallVec::from_slice(&[group]),
        }
    }

    /// Returns the shape of the output.
    pub fn out_dims(&self) -> &[usize] {
        &self.out_dims
    }

    /// Returns the number of elements of the output.
    pub fn out_len(&self) -> usize {
        self.out_len
    }

    /// Returns whether every operand has the shape of the output.
    pub fn is_same_shape(&self) -> bool {
        self.operand_lens.iter().all(|&len| len == self.out_len)
    }

    pub(super) fn operand_len(&self, operand: usize) -> usize {
        self.operand_lens[operand]
    }
}

/// Walks over the rows of a plan (all groups but the last), keeping the offset of each operand.
pub(super) struct RowWalk<'a, const N: usize> {
    outer: &'a [Group<N>],
    indices: SmallVec<[usize; 6]>,
    pub offsets: [usize; N],
}

impl<'a, const N: usize> RowWalk<'a, N> {
    pub(super) fn at(plan: &'a Broadcast<N>, mut row: usize) -> Self {
        let outer = &plan.groups[..plan.groups.len() - 1];
        let mut indices: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
        let mut offsets = [0; N];
        for (position, group) in outer.iter().enumerate().rev() {
            indices[position] = row % group.len;
            row /= group.len;
            for operand in 0..N {
                offsets[operand] += indices[position] * group.steps[operand];
            }
        }
        RowWalk { outer, indices, offsets }
    }

    #[inline(always)]
    pub(super) fn next_row(&mut self) {
        for (position, group) in self.outer.iter().enumerate().rev() {
            self.indices[position] += 1;
            if self.indices[position] < group.len {
                for operand in 0..N {
                    self.offsets[operand] += group.steps[operand];
                }
                return;
            }
            self.indices[position] = 0;
            for operand in 0..N {
                self.offsets[operand] -= (group.len - 1) * group.steps[operand];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(a: &[usize], b: &[usize]) -> Vec<(usize, [usize; 2])> {
        BroadcastPlan::new(a, b).unwrap().groups.iter().map(|group| (group.len, group.steps)).collect()
    }

    #[test]
    fn dimensions_are_merged() {
        assert_eq!(groups(&[2, 3, 4], &[2, 3, 4]), [(24, [1, 1])]);
        assert_eq!(groups(&[2, 3, 4], &[]), [(24, [1, 0])]);
        assert_eq!(groups(&[1, 1], &[5, 6]), [(30, [0, 1])]);
        assert_eq!(groups(&[2, 3, 4], &[4]), [(6, [4, 0]), (4, [1, 1])]);
        assert_eq!(groups(&[2, 3, 4], &[2, 3, 1]), [(6, [4, 1]), (4, [1, 0])]);
        assert_eq!(groups(&[2, 1, 4], &[1, 3, 1]), [(2, [4, 0]), (3, [0, 1]), (4, [1, 0])]);
        assert_eq!(groups(&[], &[]), [(1, [1, 1])]);
    }

    #[test]
    fn shapes_follow_the_rules() {
        let plan = BroadcastPlan::new(&[7, 1, 3], &[2, 1]).unwrap();
        assert_eq!(plan.out_dims(), [7, 2, 3]);
        assert!(!plan.left_holds_output() && !plan.right_holds_output());
        assert!(BroadcastPlan::new(&[2, 3], &[3, 2]).is_none());
        assert!(BroadcastPlan::new(&[0, 3], &[2, 3]).is_none());
        assert_eq!(BroadcastPlan::new(&[0, 3], &[1, 3]).unwrap().out_len(), 0);
        assert_eq!(BroadcastPlan::new(&[1, 3], &[0, 1]).unwrap().out_dims(), [0, 3]);
    }
}
