//! Scratch memory that a thread keeps between calls, because fresh pages cost more than the arithmetic done in them.

use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};
use std::cell::RefCell;

/// A cache line, to which scratch memory is aligned.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The most buffers that a thread keeps; nested uses need one each.
const KEPT_BUFFERS: usize = 6;

/// The most bytes that a thread keeps.
const KEPT_BYTES: usize = 24 << 20;

/// The sizes of buffers above this many lines are multiples of it, since powers of two would exceed what is kept.
const COARSE_LINES: usize = (1 << 20) / size_of::<Line>();

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<Line>>> = const { RefCell::new(Vec::new()) };
}

/// Memory of its own, aligned as scratch memory is.
pub(crate) struct AlignedMemory {
    lines: Vec<Line>,
}

impl AlignedMemory {
    /// Allocates at least this many bytes, which are zero.
    pub(crate) fn zeroed(bytes: usize) -> AlignedMemory {
        AlignedMemory { lines: vec![Line([0; 64]); bytes.div_ceil(size_of::<Line>())] }
    }

    /// Returns the first `len` elements.
    pub(crate) fn elements<T: AnyBitPattern + NoUninit>(&self, len: usize) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..len]
    }

    pub(crate) fn elements_mut<T: AnyBitPattern + NoUninit>(&mut self, len: usize) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..len]
    }
}

/// Calls `body` with `len` elements of this thread's scratch memory, which hold values of earlier uses.
pub fn with_scratch<T: NoUninit + AnyBitPattern, R>(len: usize, body: impl FnOnce(&mut [T]) -> R) -> R {
    assert!(align_of::<T>() <= align_of::<Line>());
    let bytes = len.checked_mul(size_of::<T>()).expect("a scratch buffer larger than the address space");
    let lines = bytes.div_ceil(size_of::<Line>());
    let mut buffer = take_buffer(lines);
    let all: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer[..lines]);
    let result = body(bytemuck::cast_slice_mut(&mut all[..bytes]));
    keep_buffer(buffer);
    result
}

/// Takes the smallest kept buffer that is large enough, or allocates one.
fn take_buffer(lines: usize) -> Vec<Line> {
    let kept = BUFFERS.with_borrow_mut(|kept| {
        let fitting =
            (0..kept.len()).filter(|&index| kept[index].len() >= lines).min_by_key(|&index| kept[index].len());
        fitting.map(|index| kept.swap_remove(index))
    });
    // A power of two, so that uses of similar size share a buffer.
    let rounded = match lines <= COARSE_LINES {
        true => lines.next_power_of_two(),
        false => lines.next_multiple_of(COARSE_LINES),
    };
    kept.unwrap_or_else(|| vec![Line([0; 64]); rounded])
}

fn keep_buffer(buffer: Vec<Line>) {
    BUFFERS.with_borrow_mut(|kept| {
        kept.push(buffer);
        let total = |kept: &[Vec<Line>]| kept.iter().map(|buffer| buffer.len() * size_of::<Line>()).sum::<usize>();
        while kept.len() > KEPT_BUFFERS {
            // The smallest one is the cheapest to allocate again.
            let smallest = (0..kept.len()).min_by_key(|&index| kept[index].len());
            smallest.map(|index| kept.swap_remove(index));
        }
        while total(kept) > KEPT_BYTES {
            let largest = (0..kept.len()).max_by_key(|&index| kept[index].len());
            largest.map(|index| kept.swap_remove(index));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_buffers_do_not_overlap_and_are_aligned() {
        with_scratch(100, |outer: &mut [f32]| {
            outer.fill(1.0);
            with_scratch(1000, |inner: &mut [f64]| {
                assert_eq!(inner.as_ptr() as usize % 64, 0);
                inner.fill(2.0);
            });
            assert_eq!(outer.len(), 100);
            assert!(outer.iter().all(|&value| value == 1.0));
        });
    }

    #[test]
    fn memory_is_reused() {
        let first = with_scratch(5000, |buffer: &mut [f32]| buffer.as_ptr() as usize);
        let second = with_scratch(4000, |buffer: &mut [f32]| buffer.as_ptr() as usize);
        assert_eq!(first, second);
    }

    #[test]
    fn little_is_kept() {
        with_scratch(KEPT_BYTES, |_: &mut [u64]| ());
        for len in 1..20 {
            with_scratch(1 << len, |_: &mut [u8]| with_scratch(3 << len, |_: &mut [u8]| ()));
        }
        BUFFERS.with_borrow(|kept| {
            assert!(kept.len() <= KEPT_BUFFERS);
            assert!(kept.iter().map(|buffer| buffer.len() * 64).sum::<usize>() <= KEPT_BYTES);
        });
    }
}
