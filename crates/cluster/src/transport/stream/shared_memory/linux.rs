//! Shared memory on Linux: an in-memory file whose size is sealed, and which peers can only read.

use super::free_space::FreeSpace;
use crate::transport::stream::frame::malformed;
use crate::transport::stream::releases::Releases;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use std::alloc::Layout;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tensor::{Buffer, LargeBlocks, Result, Status};
use tracing::{info, warn};

/// The size of a heap. It is address space only: memory is used where blocks are written.
const HEAP_BYTES_MAX: usize = 1 << 40;

/// A smaller heap isn't worth having.
const HEAP_BYTES_MIN: usize = 64 << 20;

/// The heaps of all peers together take at most this much address space; a process has 128 TB of it.
const PEERS_BYTES_MAX: usize = 64 << 40;

/// The part of a limited address space (`ulimit -v`) that the own heap may take, and that the peers' heaps may take together: the
/// rest is for everything else.
const LIMITED_SHARE: u64 = 4;

/// Blocks begin at page boundaries, so that the memory of a free one can be returned.
const PAGE_BYTES: usize = 4096;

/// The blocks of a process begin at an offset of its own into its heap, a number of pages below this one. The first blocks of
/// several heaps, which are a multiple of [`HEAP_BYTES_MAX`] apart, then differ in the bits by which a cache distinguishes
/// addresses.
const FIRST_PAGES: u32 = 61;

/// The alignment of tensors.
const ALIGNMENT: usize = 64;

/// The seals that a heap's file must have: if a peer could shrink it, our reads would fault. Writing is not sealed, because the
/// owner frees memory by punching holes; peers can't write because their descriptor is read-only.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The type that `statfs` reports for memory files. Files of huge pages have seals, too, but reading one when there are no huge
/// pages left kills the process.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The large buffers of this process, in memory that peers can map.
pub(crate) struct SharedHeap {
    file: OwnedFd,
    /// The same file, opened read-only, for peers.
    read_only: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    /// The free parts; their memory has been returned.
    free: Mutex<FreeSpace>,
}

// SAFETY: the mapping lasts as long as the process, and blocks are allocated under a lock.
unsafe impl Send for SharedHeap {}
// SAFETY: as above.
unsafe impl Sync for SharedHeap {}

impl SharedHeap {
    /// Returns the heap of this process, from which large buffers are allocated from now on; `None` if there can't be one.
    pub fn of_process() -> Option<&'static SharedHeap> {
        static HEAP: OnceLock<Option<SharedHeap>> = OnceLock::new();
        let heap = HEAP.get_or_init(|| match may_share().and_then(|()| SharedHeap::new(heap_bytes())) {
            Ok(heap) => {
                if heap.len < HEAP_BYTES_MAX {
                    info!(
                        "at most {} MB of tensors are shared with tasks on this machine, because the address space is limited \
                         (`ulimit -v`); what is beyond is copied",
                        heap.len >> 20
                    );
                }
                Some(heap)
            }
            Err(why) => {
                warn!("tensors are copied to tasks on this machine, because memory can't be shared with them: {why}");
                None
            }
        });
        if let Some(heap) = heap {
            tensor::set_large_blocks(heap);
        }
        heap.as_ref()
    }

    /// Creates a heap of at most this many bytes; halves the size until the address space has room for it.
    fn new(bytes_max: usize) -> std::result::Result<SharedHeap, String> {
        let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
        let file = memory_file().map_err(failed("no file in memory"))?;
        // Mapped before it has its size: the range beyond a file's end can be mapped, but not read.
        let (base, len) = map_what_fits(file.as_fd(), bytes_max).map_err(failed("no address space"))?;
        rustix::fs::ftruncate(&file, len as u64).map_err(failed("a file in memory gets no size"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(failed("a file in memory can't be sealed"))?;
        // Nobody else can then reopen it for writing through the descriptor that a peer got.
        rustix::fs::fchmod(&file, Mode::RUSR).map_err(failed("a file in memory can't be protected"))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let read_only = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("/proc does not open a file for reading only"))?;
        let mut free = FreeSpace::new(len);
        let first = (std::process::id() % FIRST_PAGES) as usize * PAGE_BYTES;
        if first > 0 {
            free.take(first);
        }
        Ok(SharedHeap { file, read_only, base, len, free: Mutex::new(free) })
    }

    /// Returns the file for peers, which is read-only.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.read_only.as_fd()
    }

    /// Returns the position of a buffer in the heap; `None` if it isn't there, or begins where a tensor can't, as a view of some
    /// rows may.
    pub fn offset_of(&self, buffer: &Buffer) -> Option<u64> {
        let offset = buffer.bytes().as_ptr().addr().checked_sub(self.base.as_ptr().addr())?;
        (offset < self.len && offset.is_multiple_of(ALIGNMENT)).then_some(offset as u64)
    }
}

/// Returns a vector of ones in the heap. Blocks from before there was a heap may be reused, so the first ones may be elsewhere.
#[cfg(test)]
pub(in crate::transport::stream) fn tensor_in_heap(heap: &SharedHeap, len: usize) -> tensor::Tensor {
    let mut elsewhere = Vec::new();
    loop {
        let tensor = tensor::Tensor::vector(&vec![1f32; len]);
        if tensor.buffer().and_then(|buffer| heap.offset_of(buffer)).is_some() {
            return tensor;
        }
        elsewhere.push(tensor);
    }
}

fn memory_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("ferroflow", flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3 there was no such setting.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create("ferroflow", flags),
        made => made,
    }
}

/// Returns why memory must not be shared on this machine, if that is so.
fn may_share() -> std::result::Result<(), String> {
    // If the system accounts strictly for promised memory, touching a page of a shared file may fail, which kills the process.
    match std::fs::read_to_string("/proc/sys/vm/overcommit_memory") {
        Ok(text) if text.trim() == "2" => {
            Err("the system is set to strict overcommit (vm.overcommit_memory=2)".to_owned())
        }
        _ => Ok(()),
    }
}

/// Returns the size of a heap within this process's limits.
fn heap_bytes() -> usize {
    let limited = getrlimit(Resource::As).current.map(|limit| limit / LIMITED_SHARE);
    // Growing a file beyond its limit raises the signal SIGXFSZ.
    let file = getrlimit(Resource::Fsize).current;
    let limit = limited.unwrap_or(u64::MAX).min(file.unwrap_or(u64::MAX)).min(HEAP_BYTES_MAX as u64);
    // A power of two, or 0.
    if limit == 0 { 0 } else { 1 << limit.ilog2() }
}

/// Maps as much of a file as fits the address space.
fn map_what_fits(file: BorrowedFd<'_>, bytes_max: usize) -> rustix::io::Result<(NonNull<u8>, usize)> {
    let mut len = bytes_max;
    loop {
        if len < HEAP_BYTES_MIN {
            return Err(rustix::io::Errno::NOMEM);
        }
        match map(file, len, ProtFlags::READ | ProtFlags::WRITE) {
            Ok(base) => return Ok((base, len)),
            Err(_) => len /= 2,
        }
    }
}

/// Returns the size of a block: an odd number of pages, the last of which is never touched if the contents need an even number.
///
/// Adjacent gigabyte blocks would otherwise be exactly a gigabyte apart. A loop over two of them reads addresses that differ only
/// in high bits, which some processors (AMD's, whose way prediction uses the lower bits) put into one place of the cache.
fn size_of_block(layout: Layout) -> Option<usize> {
    let size = layout.size().checked_next_multiple_of(PAGE_BYTES).filter(|_| layout.align() <= PAGE_BYTES)?;
    if (size / PAGE_BYTES).is_multiple_of(2) { size.checked_add(PAGE_BYTES) } else { Some(size) }
}

// SAFETY: a block is allocated once, at a page boundary; its memory is fresh or was returned, which makes it zero.
unsafe impl LargeBlocks for SharedHeap {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let size = size_of_block(layout)?;
        let offset = self.free.lock().take(size)?;
        // SAFETY: the block lies within the mapping.
        Some(unsafe { self.base.add(offset) })
    }

    unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let Some(size) = size_of_block(layout) else { return };
        let offset = block.as_ptr().addr() - self.base.as_ptr().addr();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A block whose memory can't be returned isn't used again, because it isn't zero.
        if rustix::fs::fallocate(&self.file, flags, offset as u64, size as u64).is_ok() {
            self.free.lock().give(offset, size);
        }
    }

    unsafe fn discard(&self, part: NonNull<u8>, len: usize) {
        let offset = part.as_ptr().addr() - self.base.as_ptr().addr();
        let start = offset.next_multiple_of(PAGE_BYTES);
        let end = (offset + len) / PAGE_BYTES * PAGE_BYTES;
        if start < end {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Memory that can't be returned now is returned when its block is freed.
            let _ = rustix::fs::fallocate(&self.file, flags, start as u64, (end - start) as u64);
        }
    }
}

/// The heap of a peer, mapped for reading.
pub(crate) struct PeerMemory {
    base: NonNull<u8>,
    len: usize,
    _room: AddressSpace,
}

// SAFETY: the mapping is only read, and lasts as long as this.
unsafe impl Send for PeerMemory {}
// SAFETY: as above.
unsafe impl Sync for PeerMemory {}

impl PeerMemory {
    /// Maps the file of a peer's heap.
    pub fn map(file: &OwnedFd) -> Result<PeerMemory> {
        let unusable = |error: rustix::io::Errno| Status::internal(format!("a peer's memory can't be used: {error}"));
        if rustix::fs::fstatfs(file).map_err(unusable)?.f_type as u64 != TMPFS_MAGIC {
            return Err(Status::permission_denied("a peer's memory is none of ordinary pages"));
        }
        if !rustix::fs::fcntl_get_seals(file).map_err(unusable)?.contains(SEALS) {
            return Err(Status::permission_denied("a peer's memory could become smaller"));
        }
        let len = rustix::fs::fstat(file).map_err(unusable)?.st_size;
        let len = usize::try_from(len).ok().filter(|len| (1..=HEAP_BYTES_MAX).contains(len));
        let len = len.ok_or_else(|| Status::invalid_argument("a peer's memory has no size that a heap can have"))?;
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let room = AddressSpace::take(&TAKEN, len, peers_bytes_max())?;
        let base = map(file.as_fd(), len, ProtFlags::READ).map_err(unusable)?;
        Ok(PeerMemory { base, len, _room: room })
    }
}

/// The address space of a peer's heap, which is counted.
struct AddressSpace {
    taken: &'static AtomicUsize,
    len: usize,
}

impl AddressSpace {
    fn take(taken: &'static AtomicUsize, len: usize, bytes_max: usize) -> Result<AddressSpace> {
        let within = |taken: usize| taken.checked_add(len).filter(|&taken| taken <= bytes_max);
        match taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within) {
            Ok(_) => Ok(AddressSpace { taken, len }),
            Err(_) => Err(Status::resource_exhausted(format!(
                "the memory of all peers would take more than {} MB of address space",
                bytes_max >> 20
            ))),
        }
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Returns the address space that the heaps of all peers may take within this process's limits.
fn peers_bytes_max() -> usize {
    let limited = getrlimit(Resource::As).current.map(|limit| limit / LIMITED_SHARE);
    limited.map_or(PEERS_BYTES_MAX, |limit| usize::try_from(limit).unwrap_or(PEERS_BYTES_MAX))
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
pub(in crate::transport::stream) struct SharedRegion {
    memory: Arc<PeerMemory>,
    offset: usize,
    len: usize,
    token: u64,
    releases: Arc<Releases>,
}

impl SharedRegion {
    /// Returns a region; one outside of the peer's memory is an error.
    pub fn new(
        memory: Arc<PeerMemory>,
        offset: u64,
        len: usize,
        token: u64,
        releases: &Arc<Releases>,
    ) -> Result<SharedRegion> {
        // Reading pages that the peer never wrote takes memory here, so the peer gets no more than a tensor of our own would.
        if len > tensor::tensor_bytes_max() {
            return Err(Status::resource_exhausted(format!("a tensor of {len} bytes in a peer's memory is too large")));
        }
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.checked_add(len).is_none_or(|end| end > memory.len) || !offset.is_multiple_of(ALIGNMENT) {
            return Err(malformed());
        }
        Ok(SharedRegion { memory, offset, len, token, releases: releases.clone() })
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
        self.releases.add(self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 300_000;

    #[test]
    fn what_one_writes_the_other_reads() {
        let heap = SharedHeap::new(1 << 30).unwrap();
        let layout = Layout::from_size_align(LEN, 64).unwrap();
        let block = heap.allocate(layout).unwrap();
        let other = heap.allocate(layout).unwrap();
        // SAFETY: the blocks are ours and this large.
        unsafe {
            block.write_bytes(7, LEN);
            other.write_bytes(8, LEN);
        }
        let peer = Arc::new(PeerMemory::map(&heap.file().try_clone_to_owned().unwrap()).unwrap());
        let releases = Arc::new(Releases::default());
        let offset = block.as_ptr().addr() - heap.base.as_ptr().addr();
        let region = SharedRegion::new(peer.clone(), offset as u64 + 64, 299_000, 1, &releases).unwrap();
        assert!(region.as_ref().iter().all(|&byte| byte == 7));
        for (offset, len) in [(heap.len as u64 - 64, 65), (u64::MAX, 1), (1, 10), (0, usize::MAX)] {
            assert!(SharedRegion::new(peer.clone(), offset, len, 1, &releases).is_err());
        }
        // SAFETY: nobody uses the block any more.
        unsafe { heap.free(block, layout) };
        let again = heap.allocate(layout).unwrap();
        assert_eq!(again, block);
        // SAFETY: the block is ours and this large.
        assert_eq!(unsafe { again.as_ptr().add(1000).read() }, 0);
    }

    #[test]
    fn what_a_peer_gets_can_not_be_written() {
        let heap = SharedHeap::new(1 << 30).unwrap();
        let lent = heap.file().try_clone_to_owned().unwrap();
        assert_eq!(map(lent.as_fd(), PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE), Err(rustix::io::Errno::ACCESS));
        assert!(rustix::io::pwrite(&lent, b"x", 0).is_err());
        let readable = map(lent.as_fd(), PAGE_BYTES, ProtFlags::READ).unwrap();
        let access = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
        // SAFETY: nobody else knows of the mapping.
        let changed = unsafe { rustix::mm::mprotect(readable.as_ptr().cast(), PAGE_BYTES, access) };
        assert_eq!(changed, Err(rustix::io::Errno::ACCESS));
        assert_eq!(rustix::fs::fstat(&lent).unwrap().st_mode & 0o7777, 0o400);
        if !rustix::process::geteuid().is_root() {
            // Root may open everything.
            let path = format!("/proc/self/fd/{}", lent.as_raw_fd());
            assert!(std::fs::OpenOptions::new().write(true).open(path).is_err());
        }
    }

    /// Blocks begin at page boundaries, so contents that do, too, have no header before them that a peer could read.
    #[test]
    fn headers_lie_outside_of_the_heap() {
        let heap = SharedHeap::of_process().expect("this machine shares memory");
        let tensor = tensor_in_heap(heap, LEN);
        let buffer = tensor.buffer().unwrap();
        let offset = heap.offset_of(buffer).expect("a large tensor lies in the heap");
        assert_eq!(offset % PAGE_BYTES as u64, 0, "something lies in front of the contents");
    }

    #[test]
    fn a_heap_is_as_large_as_the_address_space_allows() {
        let file = memory_file().unwrap();
        // No processor has this much address space.
        let (_, len) = map_what_fits(file.as_fd(), 1 << 60).unwrap();
        assert!((HEAP_BYTES_MIN..1 << 60).contains(&len));
        assert!(SharedHeap::new(HEAP_BYTES_MIN / 2).is_err());
    }

    #[test]
    fn neighbours_differ_in_the_low_bits_of_their_addresses() {
        let layout = Layout::from_size_align(64 << 20, ALIGNMENT).unwrap();
        let heap = SharedHeap::new(1 << 30).unwrap();
        let blocks: Vec<_> = (0..3).map(|_| heap.allocate(layout).unwrap().as_ptr().addr() % layout.size()).collect();
        assert!(blocks[0] != blocks[1] && blocks[1] != blocks[2] && blocks[0] != blocks[2], "{blocks:?}");
    }

    #[test]
    fn memory_that_could_end_the_process_is_refused() {
        let refused = |file: OwnedFd| PeerMemory::map(&file).err().expect("it was mapped").to_string();
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        assert!(refused(file).contains("become smaller"));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // The kernel creates such a file even if there are no huge pages, and then kills a process that reads it.
        match rustix::fs::memfd_create("test", flags | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) {
            Ok(file) => {
                rustix::fs::ftruncate(&file, 2 << 20).unwrap();
                rustix::fs::fcntl_add_seals(&file, SEALS).unwrap();
                assert!(refused(file).contains("ordinary pages"));
            }
            Err(error) => eprintln!("skipped for huge pages: this system makes no file of them ({error})"),
        }
        for len in [0, HEAP_BYTES_MAX as u64 + 4096] {
            let file = rustix::fs::memfd_create("test", flags).unwrap();
            rustix::fs::ftruncate(&file, len).unwrap();
            rustix::fs::fcntl_add_seals(&file, SEALS).unwrap();
            assert!(refused(file).contains("size"), "{len}");
        }
        let disk = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(PeerMemory::map(&disk.into()).is_err());
    }

    #[test]
    fn the_address_space_for_peers_is_bounded_and_comes_back() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let first = AddressSpace::take(&TAKEN, 60, 100).unwrap();
        let _second = AddressSpace::take(&TAKEN, 40, 100).unwrap();
        for len in [1, usize::MAX] {
            let status = AddressSpace::take(&TAKEN, len, 100).err().expect("there was room");
            assert_eq!(status.code(), tensor::Code::ResourceExhausted);
        }
        drop(first);
        assert!(AddressSpace::take(&TAKEN, 60, 100).is_ok());
    }
}
