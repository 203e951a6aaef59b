//! Prefetches rows of a table before they are needed.
//!
//! Rows named by indices lie anywhere in a table that is larger than the cache. The processor sees no pattern, and waits for
//! each row unless it was prefetched.

/// How many rows to prefetch: enough to hide the latency of memory, and few enough to stay in the cache until they are used.
pub(crate) const ROWS_AHEAD: usize = 4;

/// The part of a row to prefetch; the processor's own prefetcher recognises the rest.
const ROW_BYTES_MAX: usize = 1024;

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Prefetches the row of `row_len` elements at `start`. Reads nothing, so any address is allowed.
#[inline(always)]
pub(crate) fn ask_for_row<T>(start: *const T, row_len: usize) {
    let bytes = (row_len * size_of::<T>()).min(ROW_BYTES_MAX);
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has the instruction, and it ignores addresses that are not mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
