//! The layout of rings: the number of a tensor's parts, where each begins, and the order in which members pass them on. It is the
//! same as that of TensorFlow's tasks, so that both kinds can be members of one ring.

use super::group::Group;
use std::ops::Range;
use tensor::{Result, Status};

/// The alignment of parts in bytes, which TensorFlow requires.
const ALIGNMENT_BYTES: usize = 64;

/// The largest part in bytes that the number of subdivisions aims for.
const PART_BYTES_MAX: usize = 4 << 20;

/// The most subdivisions per device if the op doesn't set their number.
const SUBDIVS_PER_DEVICE_DEFAULT: usize = 2;

/// The most parts of one op.
const PARTS_MAX: usize = 1 << 16;

/// The positions of a tensor's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    num_elements: usize,
    part_elements: usize,
}

impl Parts {
    /// Splits elements into aligned parts; the last ones may be short or empty.
    pub fn aligned(num_elements: usize, element_bytes: usize, num_parts: usize) -> Parts {
        let per_part = num_elements.div_ceil(num_parts.max(1));
        // A size that is already a multiple is rounded up to the next one, as in TensorFlow.
        let missing_bytes = ALIGNMENT_BYTES - (per_part * element_bytes) % ALIGNMENT_BYTES;
        Parts { num_elements, part_elements: per_part + missing_bytes / element_bytes.max(1) }
    }

    /// Splits elements into parts of the same size.
    pub fn even(num_elements: usize, num_parts: usize) -> Parts {
        Parts { num_elements, part_elements: num_elements / num_parts.max(1) }
    }

    /// Returns the elements of a part.
    pub fn range(&self, index: usize) -> Range<usize> {
        let start = self.part_elements.saturating_mul(index).min(self.num_elements);
        start..start.saturating_add(self.part_elements).min(self.num_elements)
    }
}

/// A ring: the members in the order in which they pass parts on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// The members, by their rank in the ring.
    pub members: Vec<usize>,
    /// The rank of this member.
    pub rank: usize,
}

impl Ring {
    /// Returns a ring in which the devices of each task are rotated by an offset, and reversed if it is negative.
    pub fn new(group: &Group, own: usize, offset: i32) -> Ring {
        let (shift, is_reversed) = (offset.unsigned_abs() as usize, offset < 0);
        let mut members = Vec::with_capacity(group.members.len());
        for task in group.tasks() {
            let (first, count) = (task.start, task.len());
            for index in 0..count {
                let shifted = (index + shift) % count;
                members.push(first + if is_reversed { count - 1 - shifted } else { shifted });
            }
        }
        let rank = members.iter().position(|&member| member == own).unwrap_or_default();
        Ring { members, rank }
    }

    /// Returns the previous rank, from which this one receives parts.
    pub fn previous_rank(&self) -> usize {
        (self.rank + self.members.len() - 1) % self.members.len()
    }

    /// Returns the previous member, from which this one receives parts.
    pub fn previous(&self) -> usize {
        self.members[self.previous_rank()]
    }

    /// Returns whether this member is the last to add to a part in the first round, which begins with the rank of the part's
    /// number.
    pub fn is_last_for(&self, part: usize) -> bool {
        let size = self.members.len();
        self.rank == (part + size - 1) % size
    }

    /// Returns whether this member is the last to receive a part in the second round.
    pub fn ends_second_round_of(&self, part: usize) -> bool {
        let size = self.members.len();
        self.rank == (part + 2 * size - 2) % size
    }
}

/// Returns the offsets of the rings of a reduction.
pub(super) fn subdiv_offsets(group: &Group, given: &[i32], max_per_device: i32, num_bytes: usize) -> Result<Vec<i32>> {
    let size = group.members.len();
    if given.len().saturating_mul(size) > PARTS_MAX {
        return Err(Status::invalid_argument(format!(
            "{} subdivisions among {size} members are more than {PARTS_MAX} parts",
            given.len()
        )));
    }
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    if max_per_device == -1 || num_bytes == 0 {
        return Ok(vec![0]);
    }
    let devices_per_task = size / group.tasks().len().max(1);
    let per_device = usize::try_from(max_per_device).ok().filter(|&max| max > 0).unwrap_or(SUBDIVS_PER_DEVICE_DEFAULT);
    let max = per_device.saturating_mul(devices_per_task).clamp(1, (PARTS_MAX / size).max(1));
    let mut count = 1;
    while num_bytes / (size * count) > PART_BYTES_MAX && count < max {
        count += 1;
    }
    let stride = (devices_per_task / count).max(1) as i32;
    Ok((0..count as i32).map(|index| if index % 2 == 1 { -stride * index } else { stride * index }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::collective::group::tests::group_of;

    #[test]
    fn parts_are_aligned_as_tensorflow_aligns_them() {
        let lengths = |elements, bytes, parts| -> Vec<usize> {
            let layout = Parts::aligned(elements, bytes, parts);
            (0..parts).map(|part| layout.range(part).len()).collect()
        };
        assert_eq!(lengths(10, 4, 2), [10, 0], "16 elements are 64 bytes");
        assert_eq!(lengths(100, 4, 2), [64, 36]);
        assert_eq!(lengths(128, 4, 2), [80, 48], "64 elements fit, and get 16 more");
        assert_eq!(lengths(7, 8, 3), [7, 0, 0]);
        assert_eq!(lengths(0, 4, 2), [0, 0]);
        assert_eq!(Parts::even(6, 3).range(1), 2..4);
    }

    #[test]
    fn rings_are_turned_within_each_task() {
        let group = group_of(&[2, 3]);
        let ring = |offset| Ring::new(&group, 3, offset);
        assert_eq!(ring(0), Ring { members: vec![0, 1, 2, 3, 4], rank: 3 });
        assert_eq!(ring(1), Ring { members: vec![1, 0, 3, 4, 2], rank: 2 });
        assert_eq!(ring(-1), Ring { members: vec![0, 1, 3, 2, 4], rank: 2 });
        assert_eq!((ring(1).previous_rank(), ring(1).previous()), (1, 0));
        Ring::new(&group, 0, i32::MIN);
    }

    #[test]
    fn a_part_goes_round_twice_less_one() {
        let group = group_of(&[1, 1, 1]);
        let rings: Vec<Ring> = (0..3).map(|own| Ring::new(&group, own, 0)).collect();
        let last: Vec<bool> = rings.iter().map(|ring| ring.is_last_for(0)).collect();
        assert_eq!(last, [false, false, true]);
        let ends: Vec<bool> = rings.iter().map(|ring| ring.ends_second_round_of(0)).collect();
        assert_eq!(ends, [false, true, false]);
    }

    #[test]
    fn large_tensors_have_more_rings_if_they_may() {
        let group = group_of(&[2, 2]);
        let offsets = |given: &[i32], max, bytes| subdiv_offsets(&group, given, max, bytes).unwrap();
        assert_eq!(offsets(&[], -1, 1 << 30), [0]);
        assert_eq!(offsets(&[0, -1], -1, 8), [0, -1]);
        assert_eq!(offsets(&[], 0, 1 << 20), [0]);
        assert_eq!(offsets(&[], 0, 32 << 20), [0, -1]);
        assert_eq!(offsets(&[], 0, 1 << 30), [0, -1, 2, -3]);
        assert_eq!(offsets(&[], 1, 1 << 30), [0, -1]);
        assert!(subdiv_offsets(&group, &[0; 1 << 15], -1, 8).is_err());
    }
}
