//! [`FreeSpace`]: the free parts of a heap. Adjacent free parts are merged, so that even a heap that is small, because the
//! address space is limited, serves tensors of all sizes in any order.

use std::collections::{BTreeMap, BTreeSet};

/// The free parts of a heap.
pub(super) struct FreeSpace {
    /// The sizes by position.
    by_place: BTreeMap<usize, usize>,
    /// The same by size, to find the smallest part that is large enough.
    by_size: BTreeSet<(usize, usize)>,
}

impl FreeSpace {
    /// Returns the space of an entirely free heap.
    pub fn new(len: usize) -> FreeSpace {
        let mut space = FreeSpace { by_place: BTreeMap::new(), by_size: BTreeSet::new() };
        space.add(0, len);
        space
    }

    /// Allocates a part of this size; returns its position.
    pub fn take(&mut self, size: usize) -> Option<usize> {
        let &(found, place) = self.by_size.range((size, 0)..).next()?;
        self.remove(place, found);
        if found > size {
            self.add(place + size, found - size);
        }
        Some(place)
    }

    /// Frees an allocated part.
    pub fn give(&mut self, mut place: usize, mut size: usize) {
        let before = self.by_place.range(..place).next_back().map(|(&place, &size)| (place, size));
        if let Some((start, len)) = before.filter(|(start, len)| start + len == place) {
            self.remove(start, len);
            (place, size) = (start, len + size);
        }
        if let Some(&len) = self.by_place.get(&(place + size)) {
            self.remove(place + size, len);
            size += len;
        }
        self.add(place, size);
    }

    fn add(&mut self, place: usize, size: usize) {
        self.by_place.insert(place, size);
        self.by_size.insert((size, place));
    }

    fn remove(&mut self, place: usize, size: usize) {
        self.by_place.remove(&place);
        self.by_size.remove(&(size, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_whole_in_whatever_order_they_are_given() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut space = FreeSpace::new(100);
            let taken: Vec<(usize, usize)> = [10, 20, 30, 40].map(|size| (space.take(size).unwrap(), size)).to_vec();
            assert_eq!(taken, [(0, 10), (10, 20), (30, 30), (60, 40)]);
            assert_eq!(space.take(1), None);
            for index in order {
                let (place, size) = taken[index];
                space.give(place, size);
            }
            assert_eq!(space.take(101), None);
            assert_eq!(space.take(100), Some(0), "{order:?}");
        }
    }

    #[test]
    fn the_smallest_part_that_is_large_enough_is_taken() {
        let mut space = FreeSpace::new(1000);
        let places = [30, 5, 20, 5].map(|size| space.take(size).unwrap());
        space.give(places[0], 30);
        space.give(places[2], 20);
        assert_eq!(space.take(15), Some(places[2]));
        assert_eq!(space.take(5), Some(places[2] + 15));
        assert_eq!(space.take(25), Some(places[0]));
        assert_eq!(space.take(6), Some(60));
    }
}
