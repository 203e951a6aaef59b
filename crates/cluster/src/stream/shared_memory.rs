//! Memory that tasks on one machine share: large tensors go to another task without being copied.
//!
//! Every process has one [`SharedHeap`], a file in memory from which all its large buffers come. A peer gets the file when a
//! stream over a Unix socket begins and maps it for reading ([`PeerMemory`]). From then on a large tensor is sent as its
//! place in the heap: the sender keeps it alive until the receiver has said that it needs it no longer ([`SharedRegion`]).

use super::connection::Connection;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};
use tensor::{Buffer, LargeBlocks, Result, Status};

/// The size of a heap. It is address space only: memory is used where blocks are written.
const HEAP_BYTES: usize = 1 << 40;

/// Blocks begin at pages, so that the memory of a free one can be given back.
const PAGE_BYTES: usize = 4096;

/// Where tensors may begin.
const ALIGNMENT: usize = 64;

/// What a heap's file must not allow: a peer that made it smaller would make us fault.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The large buffers of this process, in memory that peers can map.
pub(crate) struct SharedHeap {
    file: OwnedFd,
    base: NonNull<u8>,
    state: Mutex<HeapState>,
}

struct HeapState {
    /// Where nothing has been given out yet.
    next: usize,
    /// The places of free blocks by size; their memory has been given back.
    free: BTreeMap<usize, Vec<usize>>,
}

// SAFETY: the mapping lasts as long as the process, and blocks are given out under a lock.
unsafe impl Send for SharedHeap {}
// SAFETY: as above.
unsafe impl Sync for SharedHeap {}

impl SharedHeap {
    /// Returns the heap of this process, from which large buffers come from now on; `None` where there can't be one.
    pub fn of_process() -> Option<&'static SharedHeap> {
        static HEAP: OnceLock<Option<SharedHeap>> = OnceLock::new();
        let heap = HEAP.get_or_init(|| match SharedHeap::new() {
            Ok(heap) => Some(heap),
            Err(error) => {
                tracing::debug!("tensors can't be shared with other tasks on this machine: {error}");
                None
            }
        });
        if let Some(heap) = heap {
            tensor::set_large_blocks(heap);
        }
        heap.as_ref()
    }

    fn new() -> rustix::io::Result<SharedHeap> {
        let file = rustix::fs::memfd_create("ferroflow", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, HEAP_BYTES as u64)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let base = map(file.as_fd(), HEAP_BYTES, ProtFlags::READ | ProtFlags::WRITE)?;
        Ok(SharedHeap { file, base, state: Mutex::new(HeapState { next: 0, free: BTreeMap::new() }) })
    }

    /// Returns the file, for peers.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns where a buffer lies in the heap; `None` when it lies elsewhere, or begins where a tensor can't, as a view
    /// of some rows may.
    pub fn offset_of(&self, buffer: &Buffer) -> Option<u64> {
        let offset = buffer.bytes().as_ptr().addr().checked_sub(self.base.as_ptr().addr())?;
        (offset < HEAP_BYTES && offset.is_multiple_of(ALIGNMENT)).then_some(offset as u64)
    }
}

fn size_of_block(layout: Layout) -> Option<usize> {
    layout.size().checked_next_multiple_of(PAGE_BYTES).filter(|_| layout.align() <= PAGE_BYTES)
}

// SAFETY: a block is given out once, at a page's beginning; its memory is fresh or was given back, which makes it zero.
unsafe impl LargeBlocks for SharedHeap {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let size = size_of_block(layout)?;
        let mut state = self.state.lock();
        let reused = state.free.get_mut(&size).and_then(Vec::pop);
        let offset = match reused {
            Some(offset) => offset,
            None => {
                let offset = state.next;
                state.next = offset.checked_add(size).filter(|&end| end <= HEAP_BYTES)?;
                offset
            }
        };
        // SAFETY: the block lies within the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let Some(size) = size_of_block(layout) else { return };
        let offset = block.as_ptr().addr() - self.base.as_ptr().addr();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A block whose memory can't be given back isn't used again, because it isn't zero.
        if rustix::fs::fallocate(&self.file, flags, offset as u64, size as u64).is_ok() {
            self.state.lock().free.entry(size).or_default().push(offset);
        }
    }

    unsafe fn discard(&self, part: NonNull<u8>, len: usize) {
        let offset = part.as_ptr().addr() - self.base.as_ptr().addr();
        let start = offset.next_multiple_of(PAGE_BYTES);
        let end = (offset + len) / PAGE_BYTES * PAGE_BYTES;
        if start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Memory that can't be given back now is when its block is freed.
            let _ = rustix::fs::fallocate(&self.file, flags, start as u64, (end - start) as u64);
        }
    }
}

/// The heap of a peer, mapped for reading.
pub(crate) struct PeerMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is only read, and lasts as long as this.
unsafe impl Send for PeerMemory {}
// SAFETY: as above.
unsafe impl Sync for PeerMemory {}

impl PeerMemory {
    /// Maps the file of a peer's heap.
    pub fn map(file: &OwnedFd) -> Result<PeerMemory> {
        let unusable = |error: rustix::io::Errno| Status::internal(format!("a peer's memory can't be used: {error}"));
        if !rustix::fs::fcntl_get_seals(file).map_err(unusable)?.contains(SEALS) {
            return Err(Status::permission_denied("a peer's memory could become smaller"));
        }
        let len = rustix::fs::fstat(file).map_err(unusable)?.st_size;
        let len = usize::try_from(len).map_err(|_| Status::internal("a peer's memory has no size"))?;
        let base = map(file.as_fd(), len, ProtFlags::READ).map_err(unusable)?;
        Ok(PeerMemory { base, len })
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and all regions of it hold this.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn map(file: BorrowedFd<'_>, len: usize, access: ProtFlags) -> rustix::io::Result<NonNull<u8>> {
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file, 0) }?;
    NonNull::new(base.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)
}

/// A tensor's contents in a peer's heap. Dropping it tells the peer that it isn't needed any more.
pub(super) struct SharedRegion {
    memory: Arc<PeerMemory>,
    offset: usize,
    len: usize,
    token: u64,
    connection: Weak<Connection>,
}

impl SharedRegion {
    /// Makes a region; one that lies outside of the peer's memory is an error.
    pub fn new(
        memory: Arc<PeerMemory>,
        offset: u64,
        len: usize,
        token: u64,
        connection: &Arc<Connection>,
    ) -> Result<SharedRegion> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.checked_add(len).is_none_or(|end| end > memory.len) || !offset.is_multiple_of(ALIGNMENT) {
            return Err(super::frame::malformed());
        }
        Ok(SharedRegion { memory, offset, len, token, connection: Arc::downgrade(connection) })
    }
}

impl AsRef<[u8]> for SharedRegion {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping, whose file can't shrink, and the peer doesn't write there before it
        // has been told that we are done.
        unsafe { std::slice::from_raw_parts(self.memory.base.as_ptr().add(self.offset), self.len) }
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.release(self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let heap = SharedHeap::new().unwrap();
        let layout = Layout::from_size_align(300_000, 64).unwrap();
        let block = heap.allocate(layout).unwrap();
        let other = heap.allocate(layout).unwrap();
        // SAFETY: the blocks are ours and this large.
        unsafe {
            block.write_bytes(7, 300_000);
            other.write_bytes(8, 300_000);
        }
        let peer = Arc::new(PeerMemory::map(&heap.file.try_clone().unwrap()).unwrap());
        let connection = Arc::new(Connection::connecting("a peer"));
        let region = SharedRegion::new(peer.clone(), 64, 299_000, 1, &connection).unwrap();
        assert!(region.as_ref().iter().all(|&byte| byte == 7));
        for (offset, len) in [(HEAP_BYTES as u64 - 64, 65), (u64::MAX, 1), (1, 10)] {
            assert!(SharedRegion::new(peer.clone(), offset, len, 1, &connection).is_err());
        }
        // SAFETY: nobody uses the block any more.
        unsafe { heap.free(block, layout) };
        let again = heap.allocate(layout).unwrap();
        assert_eq!(again, block);
        // SAFETY: the block is ours and this large.
        assert_eq!(unsafe { again.as_ptr().add(1000).read() }, 0);
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        assert!(PeerMemory::map(&file).is_err());
    }
}
