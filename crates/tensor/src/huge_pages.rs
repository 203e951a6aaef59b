//! Memory in huge pages, for tables of which rows are used here and there.
//!
//! With pages of 4 kB nearly every row of a large table costs a walk through the page tables beside the row itself.

use std::ptr::NonNull;

/// The size of a huge page.
#[cfg(target_os = "linux")]
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The largest size of ordinary pages that Linux has.
#[cfg(target_os = "linux")]
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Smaller blocks fit the processor's TLB with small pages.
pub(crate) const HUGE_BYTES_MIN: usize = 8 << 20;

/// Larger blocks are not moved: that takes seconds, during which other threads wait.
pub(crate) const HUGE_BYTES_MAX: usize = 512 << 20;

/// Returns `len` zero bytes at the beginning of a huge page; `None` where the system has none.
#[cfg(target_os = "linux")]
pub(crate) fn allocate(len: usize) -> Option<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    let size = len.checked_next_multiple_of(HUGE_PAGE_BYTES)?;
    let whole = size.checked_add(HUGE_PAGE_BYTES)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, access, MapFlags::PRIVATE) }.ok()?;
    let before = base.addr().next_multiple_of(HUGE_PAGE_BYTES) - base.addr();
    let after = HUGE_PAGE_BYTES - before;
    // SAFETY: the ends lie within the new mapping, of which nobody knows yet. An end that can't be given back stays mapped and
    // takes no memory; advice that isn't taken leaves small pages.
    unsafe {
        let start = base.byte_add(before);
        if before > 0 {
            let _ = munmap(base, before);
        }
        if after > 0 {
            let _ = munmap(start.byte_add(size), after);
        }
        let _ = madvise(start, size, Advice::LinuxHugepage);
        NonNull::new(start.cast::<u8>())
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allocate(_len: usize) -> Option<NonNull<u8>> {
    None
}

/// Gives memory back.
///
/// # Safety
/// It came from [`allocate`] with this `len`, and nobody uses it any more.
pub(crate) unsafe fn free(start: NonNull<u8>, len: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: as the caller promises.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), len.next_multiple_of(HUGE_PAGE_BYTES)) };
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}

/// Gives the pages that lie wholly within a part of the allocator's memory back to the system; they read as zero afterwards.
///
/// # Safety
/// The memory is private, and nobody uses what is there any more.
pub(crate) unsafe fn discard(start: NonNull<u8>, len: usize) {
    #[cfg(target_os = "linux")]
    {
        let before = start.addr().get().next_multiple_of(PAGE_BYTES_MAX) - start.addr().get();
        let size = len.saturating_sub(before) / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
        if size > 0 {
            // SAFETY: as the caller promises, and the range lies within the part.
            let _ = unsafe {
                rustix::mm::madvise(start.add(before).as_ptr().cast(), size, rustix::mm::Advice::LinuxDontNeed)
            };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, len);
}
