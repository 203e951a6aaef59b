//! [`Recycler`]: the free list of large blocks of memory. Fresh pages cost more than the arithmetic done on them.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;

/// Blocks of at least this size are recycled.
pub(crate) const RECYCLED_BYTES_MIN: usize = 32 << 10;

/// The free list may hold this much even if little memory is in use.
const RECYCLED_BYTES_FLOOR: usize = 16 << 20;

/// The free list of large blocks.
///
/// Successive steps need the same blocks, so the list may hold twice the recent swing of memory in use, or a small floor: enough
/// for all blocks of a step, and little in comparison with long-lived tables. The block that has been free the longest is freed
/// first. [`Recycler::trim_if_idle`] frees everything after a while without allocations.
pub struct Recycler {
    free: BTreeMap<usize, VecDeque<FreeBlock>>,
    free_bytes: usize,
    used_bytes: usize,
    /// The least and the most memory in use, in this window and in the one before.
    windows: [(usize, usize); 2],
    /// The number of blocks given back in this window.
    num_given: u32,
    /// Counts the blocks that were taken: the age of a free block.
    clock: u64,
    /// The clock at the last check for activity.
    idle_since: u64,
}

struct FreeBlock {
    block: SpareBlock,
    since: u64,
}

/// A free block. Dropping it frees its memory.
pub(crate) struct SpareBlock {
    address: NonNull<u8>,
    capacity: usize,
    free: unsafe fn(NonNull<u8>, usize),
}

// SAFETY: the caller of `new` hands over the only reference.
unsafe impl Send for SpareBlock {}

impl SpareBlock {
    /// Returns a free block; `free` is called with the address and the capacity to free it.
    ///
    /// # Safety
    /// The block has no other reference, and `free` may be called with this address and capacity once, on any thread.
    pub(crate) unsafe fn new(address: NonNull<u8>, capacity: usize, free: unsafe fn(NonNull<u8>, usize)) -> SpareBlock {
        SpareBlock { address, capacity, free }
    }

    /// Returns the address; the block is the caller's from now on.
    pub(crate) fn into_address(self) -> NonNull<u8> {
        let address = self.address;
        std::mem::forget(self);
        address
    }
}

impl Drop for SpareBlock {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` has guaranteed that.
        unsafe { (self.free)(self.address, self.capacity) }
    }
}

/// The number of blocks given back until earlier use is forgotten.
const WINDOW_BLOCKS: u32 = 2048;

static RECYCLER: Mutex<Recycler> = Mutex::new(Recycler {
    free: BTreeMap::new(),
    free_bytes: 0,
    used_bytes: 0,
    windows: [(0, 0); 2],
    num_given: 0,
    clock: 0,
    idle_since: 0,
});

impl Recycler {
    /// Returns the bytes of large blocks in use, and those of free blocks.
    pub fn stats() -> (usize, usize) {
        let recycler = RECYCLER.lock();
        (recycler.used_bytes, recycler.free_bytes)
    }

    /// Returns all free blocks to the allocator.
    pub fn trim() {
        let free = {
            let mut recycler = RECYCLER.lock();
            recycler.free_bytes = 0;
            recycler.windows = [(recycler.used_bytes, recycler.used_bytes); 2];
            std::mem::take(&mut recycler.free)
        };
        drop(free);
    }

    /// Trims if no block was requested since the last call, and returns whether that is so. A timer calls this every few seconds.
    pub fn trim_if_idle() -> bool {
        let (is_idle, has_blocks) = {
            let mut recycler = RECYCLER.lock();
            let clock = recycler.clock;
            (std::mem::replace(&mut recycler.idle_since, clock) == clock, recycler.free_bytes > 0)
        };
        if is_idle && has_blocks {
            Recycler::trim();
        }
        is_idle
    }

    /// Returns a free block of a capacity, if there is one. Counts the capacity as in use in both cases.
    pub(crate) fn take(capacity: usize) -> Option<SpareBlock> {
        let mut recycler = RECYCLER.lock();
        recycler.clock += 1;
        recycler.used_bytes += capacity;
        let used = recycler.used_bytes;
        recycler.windows[0].1 = recycler.windows[0].1.max(used);
        let blocks = recycler.free.get_mut(&capacity)?;
        // The one that was used last: it may still be in the processor's cache.
        let block = blocks.pop_back();
        if blocks.is_empty() {
            recycler.free.remove(&capacity);
        }
        let block = block?;
        recycler.free_bytes -= capacity;
        Some(block.block)
    }

    /// Counts a capacity as no longer in use, because no block for it was allocated.
    pub(crate) fn forget(capacity: usize) {
        if capacity >= RECYCLED_BYTES_MIN {
            RECYCLER.lock().used_bytes -= capacity;
        }
    }

    /// Adds a block to the free list, and frees those that are beyond its bound.
    pub(crate) fn give(block: SpareBlock) {
        let capacity = block.capacity;
        let mut recycler = RECYCLER.lock();
        recycler.used_bytes -= capacity;
        let used = recycler.used_bytes;
        recycler.windows[0].0 = recycler.windows[0].0.min(used);
        recycler.num_given += 1;
        if recycler.num_given == WINDOW_BLOCKS {
            recycler.num_given = 0;
            recycler.windows = [(used, used), recycler.windows[0]];
        }
        let since = recycler.clock;
        recycler.free_bytes += capacity;
        recycler.free.entry(capacity).or_default().push_back(FreeBlock { block, since });
        if recycler.free_bytes <= recycler.bound() {
            return;
        }
        let surplus = recycler.take_surplus();
        // Blocks are freed without the lock.
        drop(recycler);
        drop(surplus);
    }

    /// Returns the bound of the free list.
    fn bound(&self) -> usize {
        let least = self.windows[0].0.min(self.windows[1].0);
        let most = self.windows[0].1.max(self.windows[1].1);
        (2 * most.saturating_sub(least)).max(RECYCLED_BYTES_FLOOR)
    }

    /// Removes the blocks that have been free the longest until the rest is within the bound.
    fn take_surplus(&mut self) -> Vec<SpareBlock> {
        let bound = self.bound();
        let mut surplus = Vec::new();
        while self.free_bytes > bound {
            let oldest = |(&capacity, blocks): (&usize, &VecDeque<FreeBlock>)| Some((blocks.front()?.since, capacity));
            let Some((_, capacity)) = self.free.iter().filter_map(oldest).min() else { break };
            let Some(blocks) = self.free.get_mut(&capacity) else { break };
            surplus.extend(blocks.pop_front().map(|block| block.block));
            if blocks.is_empty() {
                self.free.remove(&capacity);
            }
            self.free_bytes -= capacity;
        }
        surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_used_waits_for_the_next_and_the_oldest_goes_first() {
        fn block(address: usize) -> FreeBlock {
            unsafe fn leave(_address: NonNull<u8>, _capacity: usize) {}
            let since = address as u64;
            let address = NonNull::new(std::ptr::without_provenance_mut(address)).unwrap();
            // SAFETY: nothing is freed.
            FreeBlock { block: unsafe { SpareBlock::new(address, 0, leave) }, since }
        }
        let mib = 1 << 20;
        let mut recycler = Recycler {
            free: BTreeMap::from([(30 * mib, VecDeque::from([block(2), block(3)])), (20 * mib, [block(1)].into())]),
            free_bytes: 80 * mib,
            used_bytes: 100 * mib,
            windows: [(100 * mib, 140 * mib), (100 * mib, 120 * mib)],
            num_given: 0,
            clock: 3,
            idle_since: 0,
        };
        assert_eq!(recycler.bound(), 80 * mib);
        assert!(recycler.take_surplus().is_empty());
        recycler.windows[0].1 = 125 * mib;
        let surplus: Vec<usize> = recycler.take_surplus().iter().map(|block| block.address.as_ptr() as usize).collect();
        assert_eq!(surplus, [1, 2]);
        assert_eq!(recycler.free_bytes, 30 * mib);
        recycler.windows = [(100 * mib, 100 * mib); 2];
        assert_eq!(recycler.bound(), RECYCLED_BYTES_FLOOR);
        recycler.take_surplus();
        assert!(recycler.free.is_empty() && recycler.free_bytes == 0);
    }
}
