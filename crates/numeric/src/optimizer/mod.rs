//! Optimizer updates: one vectorised pass over the variable, its slots and the gradient, parallel when large.
//!
//! A [`Rule`] updates one element. [`apply_dense`] applies it to whole tensors, in place or from an old buffer to a new one;
//! [`apply_sparse`] applies it to the rows of a sparse gradient.
//!
//! ```
//! use numeric::optimizer::{Momentum, apply_dense};
//! let (mut var, mut accum) = ([1.0f32, 2.0], [0.0f32, 0.0]);
//! let rule = Momentum { lr: 0.5, momentum: 0.9, use_nesterov: false };
//! apply_dense(&rule, &mut [(&mut var[..]).into(), (&mut accum[..]).into()], &[1.0, -1.0]);
//! assert_eq!((var, accum), ([0.5, 2.5], [1.0, -1.0]));
//! ```

mod rules;

pub use rules::*;

use crate::float::{Float, WideFloat};
use crate::{parallel, prefetch};
use std::marker::PhantomData;

/// An optimizer's update of one element: computes new values of the variable and its slots from the old ones and the gradient.
pub trait Rule<W: WideFloat, const N: usize>: Sync {
    /// Returns the new values.
    fn update(&self, slots: [W; N], grad: W) -> [W; N];
}

/// A variable or one of its slots, updated in place, or read from one buffer and written to another in the same pass.
pub struct Slot<'a, T> {
    read: *const T,
    write: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut T>,
}

impl<'a, T> Slot<'a, T> {
    /// Returns a slot that is updated in place.
    pub fn in_place(data: &'a mut [T]) -> Self {
        Slot { read: data.as_ptr(), write: data.as_mut_ptr(), len: data.len(), lifetime: PhantomData }
    }

    /// Returns a slot whose new values go to another buffer, because someone still reads the old ones.
    pub fn copied(old: &'a [T], new: &'a mut [T]) -> Self {
        assert_eq!(old.len(), new.len(), "old and new values differ in length");
        Slot { read: old.as_ptr(), write: new.as_mut_ptr(), len: old.len(), lifetime: PhantomData }
    }
}

impl<'a, T> From<&'a mut [T]> for Slot<'a, T> {
    fn from(data: &'a mut [T]) -> Self {
        Slot::in_place(data)
    }
}

/// The elements that are read before their new values are written, so that both may share memory.
const BLOCK: usize = 16;

/// Read and write positions of every slot.
#[derive(Clone, Copy)]
struct Streams<T, const N: usize> {
    read: [*const T; N],
    write: [*mut T; N],
    grad: *const T,
}

// SAFETY: threads work on disjoint ranges of the streams.
unsafe impl<T: Send, const N: usize> Sync for Streams<T, N> {}
// SAFETY: as above.
unsafe impl<T: Send, const N: usize> Send for Streams<T, N> {}

impl<T, const N: usize> Streams<T, N> {
    fn new(slots: &mut [Slot<'_, T>], len: usize, grad: &[T]) -> Self {
        assert_eq!(slots.len(), N, "the rule has another number of slots");
        let mut streams =
            Streams { read: [std::ptr::null(); N], write: [std::ptr::null_mut(); N], grad: grad.as_ptr() };
        for (index, slot) in slots.iter_mut().enumerate() {
            assert_eq!(slot.len, len, "slots and gradient differ in length");
            (streams.read[index], streams.write[index]) = (slot.read, slot.write);
        }
        streams
    }
}

/// Updates whole tensors. All slots have the length of the gradient.
pub fn apply_dense<T: Float, R: Rule<T::Wide, N>, const N: usize>(rule: &R, slots: &mut [Slot<'_, T>], grad: &[T]) {
    let streams = Streams::<T, N>::new(slots, grad.len(), grad);
    let cost = (2 * N + 1) as f64 * size_of::<T>() as f64 * 0.06;
    parallel::for_each_chunk(grad.len(), cost, |range| {
        // SAFETY: every stream holds `grad.len()` elements, and ranges are disjoint.
        unsafe { update_range(rule, streams, range.start, range.len()) }
    });
}

/// Updates the rows that `indices` names, in that order, with the rows of `grad`. The caller has checked the indices.
pub fn apply_sparse<T: Float, R: Rule<T::Wide, N>, const N: usize>(
    rule: &R,
    slots: &mut [Slot<'_, T>],
    row_len: usize,
    indices: &[usize],
    grad: &[T],
) {
    assert_eq!(grad.len(), indices.len() * row_len, "there must be a row of gradient for each index");
    let len = slots.first().map_or(0, |slot| slot.len);
    let streams = Streams::<T, N>::new(slots, len, grad);
    assert!(slots.iter().all(|slot| std::ptr::eq(slot.read, slot.write)), "rows are updated in place");
    if row_len == 0 {
        return;
    }
    let rows = len / row_len;
    let row_cost = 10.0 + (2 * N + 1) as f64 * (row_len * size_of::<T>()) as f64 * 0.1;
    let parts = if parallel::pays(indices.len(), row_cost) { parallel::threads() } else { 1 };
    // Each part owns some rows, so repeated indices are applied in order by one thread.
    let part = |part: usize| {
        for (position, &row) in indices.iter().enumerate() {
            assert!(row < rows, "a sparse update names a row outside of the variable");
            if let Some(&next) = indices.get(position + prefetch::ROWS_AHEAD)
                && parallel::part_of_row(next, parts) == part
            {
                for slot in streams.read {
                    prefetch::ask_for_row(slot.wrapping_add(next.wrapping_mul(row_len)), row_len);
                }
            }
            if parallel::part_of_row(row, parts) == part {
                // SAFETY: the row lies inside every slot, the gradient row inside the gradient, and no other part has
                // this row.
                unsafe {
                    let mut own = streams;
                    own.grad = streams.grad.add(position * row_len).wrapping_sub(row * row_len);
                    update_range(rule, own, row * row_len, row_len);
                }
            }
        }
    };
    if parts == 1 {
        part(0);
    } else {
        parallel::run_tasks(parts, indices.len() as f64 * row_cost, &part);
    }
}

/// Updates a range with the loop for this processor: one per rule where there is AVX2, else one for all rules.
unsafe fn update_range<T: Float, R: Rule<T::Wide, N>, const N: usize>(
    rule: &R,
    streams: Streams<T, N>,
    start: usize,
    len: usize,
) {
    // SAFETY: as the caller promises; the wide loop runs where the processor has it.
    unsafe {
        match cpu::is_wide() {
            true => update_range_wide(rule, streams, start, len),
            false => update_range_shared(rule, streams, start, len),
        }
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn update_range_wide<T: Float, R: Rule<T::Wide, N>, const N: usize>(
    rule: &R,
    streams: Streams<T, N>,
    start: usize,
    len: usize,
) {
    // SAFETY: as the caller promises.
    unsafe { update_elements(rule, streams, start, len) }
}

#[inline(never)]
unsafe fn update_range_shared<T: Float, const N: usize>(
    rule: &dyn Rule<T::Wide, N>,
    streams: Streams<T, N>,
    start: usize,
    len: usize,
) {
    // SAFETY: as the caller promises.
    unsafe { update_elements(rule, streams, start, len) }
}

#[inline(always)]
unsafe fn update_elements<T: Float, R: Rule<T::Wide, N> + ?Sized, const N: usize>(
    rule: &R,
    streams: Streams<T, N>,
    start: usize,
    len: usize,
) {
    // SAFETY: the caller guarantees the range. `wrapping_add` because the gradient's pointer may be offset by its row.
    unsafe {
        let (mut read, mut write) = (streams.read, streams.write);
        for slot in 0..N {
            read[slot] = read[slot].add(start);
            write[slot] = write[slot].add(start);
        }
        let grad = streams.grad.wrapping_add(start);
        let mut offset = 0;
        while offset + BLOCK <= len {
            let gradients = grad.add(offset).cast::<[T; BLOCK]>().read_unaligned();
            // Plain loops: the adapters of arrays are compiled again for every rule.
            let mut new = [gradients; N];
            for slot in 0..N {
                new[slot] = read[slot].add(offset).cast::<[T; BLOCK]>().read_unaligned();
            }
            for i in 0..BLOCK {
                let gradient = gradients[i].widen();
                let mut values = [gradient; N];
                for slot in 0..N {
                    values[slot] = new[slot][i].widen();
                }
                let values = rule.update(values, gradient);
                for slot in 0..N {
                    new[slot][i] = T::narrow(values[slot]);
                }
            }
            for slot in 0..N {
                write[slot].add(offset).cast::<[T; BLOCK]>().write_unaligned(new[slot]);
            }
            offset += BLOCK;
        }
        while offset < len {
            let gradient = (*grad.add(offset)).widen();
            let mut old = [gradient; N];
            for slot in 0..N {
                old[slot] = (*read[slot].add(offset)).widen();
            }
            let new = rule.update(old, gradient);
            for slot in 0..N {
                write[slot].add(offset).write(T::narrow(new[slot]));
            }
            offset += 1;
        }
    }
}

#[cfg(test)]
mod tests;
