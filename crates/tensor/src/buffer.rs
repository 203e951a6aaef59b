//! [`Buffer`]: reference-counted, 64-byte-aligned memory for plain elements.
//!
//! An owned block is mostly one allocation: a header with the count, then the bytes. Where the bytes lie in memory that other
//! processes can see, the header lies elsewhere, because it holds pointers. A foreign block is a header that keeps somebody
//! else's bytes alive, such as a received network frame or a mapped file. Blocks above a size go back to a bounded free list
//! instead of the allocator, because fresh pages cost more than the arithmetic done on them.
//!
//! The bytes of a block are always initialized: new ones are zero, recycled ones hold what was there before.

use crate::account::{self, Account, Charged, memory_limit};
use crate::copy::copy_bytes;
use crate::huge_pages::{self, HUGE_BYTES_MAX, HUGE_BYTES_MIN};
use crate::recycler::{RECYCLED_BYTES_MIN, Recycler, SpareBlock};
use crate::{Result, Status};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The alignment of owned buffers, and the size of the header in front of them.
const ALIGNMENT: usize = 64;

/// The bytes of a buffer that exist twice while it is moved.
const MOVED_BYTES: usize = 32 << 20;

#[repr(C, align(64))]
struct Header {
    references: AtomicUsize,
    /// The bytes of the block; 0 for a foreign one.
    capacity: usize,
    /// Where the bytes begin: right behind the header, or in memory that other processes can see.
    data: NonNull<u8>,
    /// The owner of a foreign block's bytes.
    foreign: Option<Box<dyn Send + Sync>>,
    source: Source,
    /// The account that an owned block is charged to while it is in use.
    charged: Charged,
    /// The number of the block's contents, or 0 until one is requested ([`Buffer::contents`]).
    contents: AtomicU64,
}

const _: () = assert!(size_of::<Header>() == ALIGNMENT);

/// The number of the next contents. It is never used twice.
static NEXT_CONTENTS: AtomicU64 = AtomicU64::new(1);

/// Where an owned block came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Allocator,
    LargeBlocks,
    HugePages,
}

/// Where blocks that are recycled come from in place of the allocator, such as memory that other processes can see.
///
/// # Safety
/// `allocate` returns memory of the layout that is zero, aligned and nobody else's until it is freed.
pub unsafe trait LargeBlocks: Send + Sync {
    /// Returns memory, or `None` when there is none left: then the allocator is asked.
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Takes memory back.
    ///
    /// # Safety
    /// It came from `allocate` with this layout, and nobody uses it any more.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);

    /// Gives the pages that lie wholly within a part of a block back to the system; they are zero afterwards.
    ///
    /// # Safety
    /// The part lies in a block of this source, and nobody uses what is there any more.
    unsafe fn discard(&self, part: NonNull<u8>, len: usize);
}

static LARGE_BLOCKS: OnceLock<&'static dyn LargeBlocks> = OnceLock::new();

/// Lets large blocks come from a source from now on. The first one that is set stays.
pub fn set_large_blocks(source: &'static dyn LargeBlocks) {
    let _ = LARGE_BLOCKS.set(source);
}

/// The most bytes that one buffer may have; 0 stands for as many as the process may use.
static BYTES_MAX: AtomicUsize = AtomicUsize::new(0);

/// Bounds what one tensor may take from now on. Without it the bound is that of the process.
pub fn set_tensor_bytes_max(bytes: usize) {
    BYTES_MAX.store(bytes, Ordering::Relaxed);
}

/// Returns how many bytes one tensor may have.
pub fn tensor_bytes_max() -> usize {
    match BYTES_MAX.load(Ordering::Relaxed) {
        0 => memory_limit(),
        bytes => bytes.min(memory_limit()),
    }
}

/// Returns an error if this many elements outside of a buffer don't fit into the current account.
pub fn check_elements_fit(count: usize, element_bytes: usize) -> Result<()> {
    let refused = |why: &str| {
        Status::resource_exhausted(format!("OOM when allocating {count} elements of {element_bytes} bytes: {why}"))
    };
    let bytes = count.checked_mul(element_bytes).filter(|&bytes| bytes <= tensor_bytes_max());
    let bytes = bytes.ok_or_else(|| refused(&format!("a tensor has at most {} bytes", tensor_bytes_max())))?;
    account::check_fits(bytes).map_err(|status| refused(status.message()))
}

/// A run of bytes in a reference-counted block; cloning shares the block.
pub struct Buffer {
    header: NonNull<Header>,
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the count is atomic, the bytes are only written through `&mut self` of the sole owner, and foreign owners are
// `Send + Sync`.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared `Buffer` only gives out shared slices.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Returns a buffer of `len` initialized bytes whose values are unspecified.
    pub fn new(len: usize) -> Result<Buffer> {
        let (header, _) = allocate(len)?;
        Ok(Buffer::over_owned(header, len))
    }

    /// Returns a buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Result<Buffer> {
        let (header, dirty) = allocate(len)?;
        let mut buffer = Buffer::over_owned(header, len);
        if dirty && let Some(bytes) = buffer.bytes_mut() {
            bytes.fill(0);
        }
        Ok(buffer)
    }

    /// Returns a copy of bytes that are there already. It is charged, and taken also where it doesn't fit.
    pub(crate) fn copy_of(bytes: &[u8]) -> Buffer {
        let Ok((header, _)) = allocate_charged(bytes.len(), |size| Ok(account::charge_anyway(size))) else {
            return Buffer::foreign(bytes::Bytes::copy_from_slice(bytes));
        };
        let mut buffer = Buffer::over_owned(header, bytes.len());
        if let Some(to) = buffer.bytes_mut() {
            copy_bytes(to, bytes);
        }
        buffer
    }

    /// Returns a buffer that shows `owner`'s bytes without copying them.
    pub fn foreign<O: AsRef<[u8]> + Send + Sync + 'static>(owner: O) -> Buffer {
        // Boxed first, so that the address of the bytes can't change when the owner is moved.
        let owner = Box::new(owner);
        let bytes: &[u8] = (*owner).as_ref();
        let data = NonNull::from(bytes).cast::<u8>();
        let len = bytes.len();
        let header = Box::new(Header {
            references: AtomicUsize::new(1),
            capacity: 0,
            data,
            foreign: Some(owner),
            source: Source::Allocator,
            charged: None,
            contents: AtomicU64::new(0),
        });
        Buffer { header: NonNull::from(Box::leak(header)), data, len }
    }

    /// Moves the bytes to huge pages, if there are enough of them to make a difference: for a long-lived table with random access to
    /// rows. An unshared table frees its old memory piece by piece while it moves, so that it never needs memory for two copies.
    pub fn move_to_huge_pages(&mut self) {
        if !(HUGE_BYTES_MIN..=HUGE_BYTES_MAX).contains(&self.len) || self.header().source == Source::HugePages {
            return;
        }
        let Some(header) = allocate_in_huge_pages(self.len, self.header().charged) else { return };
        let mut moved = Buffer::over_owned(header, self.len);
        let Some(to) = moved.bytes_mut() else { return };
        let is_left = self.is_unique();
        for (piece, to) in self.bytes().chunks(MOVED_BYTES).zip(to.chunks_mut(MOVED_BYTES)) {
            copy_bytes(to, piece);
            if is_left {
                self.discard(NonNull::from(piece).cast::<u8>(), piece.len());
            }
        }
        *self = moved;
    }

    /// Gives a part of the block's memory back; only the sole owner may, who reads it no more.
    fn discard(&self, part: NonNull<u8>, len: usize) {
        // SAFETY: the part is this block's, whose only reference is `self`; what it held was read for the last time.
        unsafe {
            match (self.header().source, LARGE_BLOCKS.get()) {
                (Source::Allocator, _) => huge_pages::discard(part, len),
                (Source::LargeBlocks, Some(source)) => source.discard(part, len),
                _ => {}
            }
        }
    }

    fn over_owned(header: NonNull<Header>, len: usize) -> Buffer {
        // SAFETY: the block was just allocated or taken from the free list, so its header is there.
        let data = unsafe { header.as_ref().data };
        Buffer { header, data, len }
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `data` and `len` lie within the block, whose bytes are initialized and outlive `self`.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// Returns the bytes for writing, if nobody else has this block and it is our own memory.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_unique() {
            return None;
        }
        // Written memory has other contents.
        self.header().contents.store(0, Ordering::Relaxed);
        // SAFETY: the sole reference to the block is `self`, borrowed mutably, and the block is owned memory.
        Some(unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) })
    }

    /// Returns whether this is the only reference to memory of our own.
    pub fn is_unique(&self) -> bool {
        let header = self.header();
        header.foreign.is_none() && header.references.load(Ordering::Acquire) == 1
    }

    /// Has an account hold the charge for the block from now on, if nobody else has the block and it is our own memory. An
    /// account that then holds too much is an error.
    pub fn charge_to(&mut self, account: &Account) -> Result<()> {
        if !self.is_unique() {
            return Ok(());
        }
        // SAFETY: the sole reference to the block is `self`, borrowed mutably.
        let header = unsafe { self.header.as_mut() };
        let bytes = size_of::<Header>() + header.capacity;
        header.charged = Some(account::recharge(header.charged, account, bytes));
        account::check_recharged(account, bytes)
    }

    /// Returns whether both show the same memory.
    pub fn same_memory(&self, other: &Buffer) -> bool {
        self.data == other.data && self.len == other.len
    }

    /// Returns a number and a position that identify the contents: they are equal only for the same memory if nobody has written to it
    /// since. So a cache of something computed from the bytes can tell whether it is still valid, without keeping the bytes.
    pub fn contents(&self) -> [u64; 3] {
        let contents = &self.header().contents;
        let mut number = contents.load(Ordering::Relaxed);
        if number == 0 {
            let fresh = NEXT_CONTENTS.fetch_add(1, Ordering::Relaxed);
            // Another reader may have set the number. Nobody writes in the meantime, since that requires the only reference.
            number = match contents.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => fresh,
                Err(other) => other,
            };
        }
        [number, self.data.as_ptr().addr() as u64, self.len as u64]
    }

    /// Returns whether the bytes start at a multiple of `alignment`.
    pub fn is_aligned_to(&self, alignment: usize) -> bool {
        self.data.as_ptr().addr().is_multiple_of(alignment)
    }

    /// Returns a part of the bytes that shares the block; panics when it is out of range.
    pub fn slice(&self, offset: usize, len: usize) -> Buffer {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "slice out of range");
        let mut part = self.clone();
        // SAFETY: the range was just checked to lie within the block.
        part.data = unsafe { self.data.add(offset) };
        part.len = len;
        part
    }

    /// Returns the bytes as values. `T` must take the bits that are there, which the caller's type tag vouches for.
    pub(crate) fn typed<T: crate::Element>(&self) -> &[T] {
        assert!(self.is_aligned_to(align_of::<T>()) || self.len == 0);
        if self.len == 0 {
            return &[];
        }
        // SAFETY: aligned and in range; the bits are valid for `T`, because a `Tensor` keeps a buffer only beside the type
        // it was made for, every type but `bool` takes any bits, and bytes for `bool` are checked or zeroed on the way in.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast::<T>(), self.len / size_of::<T>()) }
    }

    /// Returns the bytes as values for writing, if nobody else has this block.
    pub(crate) fn typed_mut<T: crate::Element>(&mut self) -> Option<&mut [T]> {
        let bytes = self.aligned_bytes_mut(align_of::<T>())?;
        // SAFETY: as in `typed` and `bytes_mut`; what is written is a valid `T`.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<T>(), bytes.len() / size_of::<T>()) })
    }

    /// What [`typed_mut`](Self::typed_mut) asks whatever the type.
    fn aligned_bytes_mut(&mut self, alignment: usize) -> Option<&mut [u8]> {
        if self.is_aligned_to(alignment) { self.bytes_mut() } else { None }
    }

    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any reference to the block.
        unsafe { self.header.as_ref() }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        self.header().references.fetch_add(1, Ordering::Relaxed);
        Buffer { header: self.header, data: self.data, len: self.len }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.header().references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        if self.header().foreign.is_some() {
            // SAFETY: this was the last reference, and a foreign header comes from `Box::leak`.
            drop(unsafe { Box::from_raw(self.header.as_ptr()) });
        } else {
            release(self.header);
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

fn layout_for(capacity: usize) -> Result<Layout> {
    size_of::<Header>()
        .checked_add(capacity)
        .and_then(|size| Layout::from_size_align(size, ALIGNMENT).ok())
        .ok_or_else(|| Status::resource_exhausted(format!("can't allocate {capacity} bytes")))
}

/// The layout of a block whose header lies elsewhere.
fn layout_of_large_block(capacity: usize) -> Option<Layout> {
    Layout::from_size_align(capacity, ALIGNMENT).ok()
}

/// Returns a block whose bytes come from the source of large blocks; `None` when it has none left.
fn allocate_large_block(capacity: usize, charged: Charged) -> Option<NonNull<Header>> {
    let data = LARGE_BLOCKS.get()?.allocate(layout_of_large_block(capacity)?)?;
    let references = AtomicUsize::new(1);
    let contents = AtomicU64::new(0);
    let header =
        Box::new(Header { references, capacity, data, foreign: None, source: Source::LargeBlocks, charged, contents });
    Some(NonNull::from(Box::leak(header)))
}

/// Writes the header of a block that has one reference and its bytes behind the header.
///
/// # Safety
/// The block has room for the header and `capacity` bytes, is aligned for the header, and nobody else uses it.
unsafe fn write_header(header: NonNull<Header>, capacity: usize, source: Source, charged: Charged) {
    // SAFETY: the bytes behind the header belong to the block, as the caller promises.
    let data = unsafe { header.cast::<u8>().add(size_of::<Header>()) };
    let references = AtomicUsize::new(1);
    // SAFETY: as the caller promises.
    unsafe {
        header.write(Header { references, capacity, data, foreign: None, source, charged, contents: AtomicU64::new(0) })
    };
}

/// Returns a block with one reference, and whether its bytes may be other than zero.
fn allocate(len: usize) -> Result<(NonNull<Header>, bool)> {
    layout_for(len)?;
    if len >= RECYCLED_BYTES_MIN && len > tensor_bytes_max() {
        let max = tensor_bytes_max();
        return Err(Status::resource_exhausted(format!("{len} bytes don't fit: a tensor has at most {max} bytes")));
    }
    allocate_charged(len, account::charge)
}

/// As [`allocate`], with another way to charge the block.
fn allocate_charged(len: usize, charge: impl FnOnce(usize) -> Result<Charged>) -> Result<(NonNull<Header>, bool)> {
    let capacity = if len >= RECYCLED_BYTES_MIN { rounded(len) } else { len };
    let layout = layout_for(capacity)?;
    let charged = charge(layout.size())?;
    if capacity >= RECYCLED_BYTES_MIN
        && let Some(block) = Recycler::take(capacity)
    {
        let mut header = block.into_address().cast::<Header>();
        // SAFETY: nobody else has the block, which is an owned one that was given back.
        let renewed = unsafe { header.as_mut() };
        renewed.charged = charged;
        renewed.references.store(1, Ordering::Relaxed);
        renewed.contents.store(0, Ordering::Relaxed);
        return Ok((header, true));
    }
    if capacity >= account::MACHINE_CHECKED_BYTES
        && let Err(status) = account::check_machine(capacity)
    {
        Recycler::forget(capacity);
        account::discharge(charged, layout.size());
        return Err(status);
    }
    if capacity >= RECYCLED_BYTES_MIN
        && let Some(header) = allocate_large_block(capacity, charged)
    {
        return Ok((header, false));
    }
    // SAFETY: the layout's size is at least the header's, so not zero.
    let block = NonNull::new(unsafe { alloc_zeroed(layout) });
    let Some(header) = block.map(NonNull::cast::<Header>) else {
        Recycler::forget(capacity);
        account::discharge(charged, layout.size());
        return Err(Status::resource_exhausted(format!("{len} bytes don't fit: the system has no more memory")));
    };
    // SAFETY: the block is large enough and aligned for the header.
    unsafe { write_header(header, capacity, Source::Allocator, charged) };
    Ok((header, false))
}

/// Returns a block of zero bytes with one reference, charged to the account of the block that it replaces.
fn allocate_in_huge_pages(capacity: usize, charged: Charged) -> Option<NonNull<Header>> {
    let size = layout_for(capacity).ok()?.size();
    let header = huge_pages::allocate(size)?.cast::<Header>();
    account::charge_to(charged, size);
    // SAFETY: the block is large enough and aligned for the header.
    unsafe { write_header(header, capacity, Source::HugePages, charged) };
    Some(header)
}

fn release(header: NonNull<Header>) {
    // SAFETY: the caller held the last reference to an owned block.
    let Header { capacity, source, charged, .. } = unsafe { header.as_ref() };
    let (capacity, source) = (*capacity, *source);
    account::discharge(*charged, size_of::<Header>() + capacity);
    if capacity >= RECYCLED_BYTES_MIN && source != Source::HugePages {
        // SAFETY: this was the last reference.
        Recycler::give(unsafe { SpareBlock::new(header.cast::<u8>(), capacity, free_spare) });
    } else {
        free(header, capacity);
    }
}

/// Frees a block that was given back.
///
/// # Safety
/// It is the address of an owned block of this capacity without references.
unsafe fn free_spare(address: NonNull<u8>, capacity: usize) {
    free(address.cast::<Header>(), capacity);
}

fn free(header: NonNull<Header>, capacity: usize) {
    let Ok(layout) = layout_for(capacity) else { return };
    // SAFETY: the caller has the only reference.
    let source = unsafe { header.as_ref().source };
    match source {
        Source::LargeBlocks => {
            // SAFETY: the header of such a block comes from `Box::leak`, and this was the last reference.
            let header = unsafe { Box::from_raw(header.as_ptr()) };
            if let (Some(source), Some(layout)) = (LARGE_BLOCKS.get(), layout_of_large_block(capacity)) {
                // SAFETY: the bytes came from this source with this very layout.
                unsafe { source.free(header.data, layout) };
            }
        }
        // SAFETY: the block came from there with this very size, and an owned header holds nothing to drop.
        Source::HugePages => unsafe { huge_pages::free(header.cast::<u8>(), layout.size()) },
        // SAFETY: likewise, from the allocator.
        Source::Allocator => unsafe { dealloc(header.as_ptr().cast::<u8>(), layout) },
    }
}

/// Rounds a large size up to one of eight steps per power of two, so that tensors of like size share blocks.
fn rounded(len: usize) -> usize {
    let step = (len.checked_next_power_of_two().unwrap_or(1 << 62) / 16).max(4096);
    len.checked_next_multiple_of(step).unwrap_or(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_needs_the_only_reference() {
        let mut buffer = Buffer::zeroed(100).unwrap();
        assert!(buffer.is_aligned_to(ALIGNMENT));
        buffer.bytes_mut().unwrap()[3] = 7;
        let view = buffer.slice(3, 2);
        assert!(buffer.bytes_mut().is_none());
        assert_eq!(view.bytes(), &[7, 0]);
        drop(view);
        assert!(buffer.bytes_mut().is_some());
    }

    #[test]
    fn contents_are_told_apart_from_all_that_were_before() {
        // Large enough to be recycled, so that the same memory comes back.
        let mut buffer = Buffer::zeroed(RECYCLED_BYTES_MIN).unwrap();
        let first = buffer.contents();
        assert_eq!(buffer.contents(), first);
        assert_eq!(buffer.clone().contents(), first, "a clone shows the same");
        assert_ne!(buffer.slice(64, 64).contents(), first, "a part is not the whole");
        buffer.bytes_mut().unwrap()[0] = 1;
        let second = buffer.contents();
        assert_ne!(second, first, "written in place");
        let mut seen = vec![first, second];
        for _ in 0..20 {
            drop(buffer);
            buffer = Buffer::new(RECYCLED_BYTES_MIN).unwrap();
            assert!(!seen.contains(&buffer.contents()), "memory that is used again");
            seen.push(buffer.contents());
        }
    }

    #[test]
    fn foreign_bytes_are_shown_and_never_written() {
        let mut buffer = Buffer::foreign(bytes::Bytes::from_static(b"hello"));
        assert_eq!(buffer.bytes(), b"hello");
        assert!(buffer.bytes_mut().is_none());
        let part = buffer.slice(1, 3);
        drop(buffer);
        assert_eq!(part.bytes(), b"ell");
    }

    #[test]
    fn large_blocks_come_back_and_zeroed_means_zero() {
        let len = 5 << 20;
        let mut first = Buffer::new(len).unwrap();
        first.bytes_mut().unwrap().fill(9);
        drop(first);
        assert!(Buffer::zeroed(len).unwrap().bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_table_moves_to_huge_pages_and_keeps_its_bytes() {
        let pattern = |index: usize| (index % 251) as u8;
        let len = MOVED_BYTES + HUGE_BYTES_MIN + 5;
        let mut table = Buffer::new(len).unwrap();
        table.bytes_mut().unwrap().iter_mut().enumerate().for_each(|(index, byte)| *byte = pattern(index));
        // A table that others read is copied, and one that nobody else has is moved.
        let mut copied = table.clone();
        copied.move_to_huge_pages();
        assert!(!copied.same_memory(&table) && copied.is_unique() && copied.bytes() == table.bytes());
        table.move_to_huge_pages();
        assert!(table.bytes().iter().enumerate().all(|(index, &byte)| byte == pattern(index)));
        table.bytes_mut().unwrap()[len - 1] = 1;
        for mut there in
            [table, Buffer::zeroed(HUGE_BYTES_MIN - 1).unwrap(), Buffer::zeroed(HUGE_BYTES_MAX + 1).unwrap()]
        {
            let address = there.bytes().as_ptr();
            there.move_to_huge_pages();
            assert_eq!(there.bytes().as_ptr(), address);
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert!(Buffer::new(usize::MAX - 10).is_err());
        assert!(Buffer::new(isize::MAX as usize).is_err());
    }
}
