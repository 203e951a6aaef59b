//! Asking for rows of a table before they are needed.
//!
//! Rows that indices name lie anywhere in a table that is larger than the cache. The processor sees no pattern and waits for
//! each of them, unless it is told some rows ahead.

/// How many rows to ask ahead: enough for memory to answer, and few enough to stay in the cache until they are used.
pub(crate) const ROWS_AHEAD: usize = 4;

/// The part of a row that is asked for. What comes after it the processor expects by itself.
const ROW_BYTES_MAX: usize = 1024;

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for the row of `row_len` elements that starts at `start`. Nothing is read: any address will do.
#[inline(always)]
pub(crate) fn ask_for_row<T>(start: *const T, row_len: usize) {
    let bytes = (row_len * size_of::<T>()).min(ROW_BYTES_MAX);
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is in every x86-64, and an address that is not mapped is passed over.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.cast::<i8>().wrapping_add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
