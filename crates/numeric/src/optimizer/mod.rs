//! Optimizer steps: one pass over the variable, its slots and the gradient, vectorised, and parallel when large.
//!
//! A [`Rule`] says what happens to one element. [`apply_dense`] runs it over whole tensors, in place or from old values to new
//! ones; [`apply_sparse`] runs it over the rows that a sparse gradient names.
//!
//! ```
//! use numeric::optimizer::{Momentum, apply_dense};
//! let (mut var, mut accum) = ([1.0f32, 2.0], [0.0f32, 0.0]);
//! let rule = Momentum { lr: 0.5, momentum: 0.9, use_nesterov: false };
//! apply_dense(&rule, [(&mut var[..]).into(), (&mut accum[..]).into()], &[1.0, -1.0]);
//! assert_eq!((var, accum), ([0.5, 2.5], [1.0, -1.0]));
//! ```

mod rules;

pub use rules::*;

use crate::float::{Float, WideFloat};
use crate::parallel;
use std::marker::PhantomData;

/// What an optimizer does with one element: new values of the variable and its slots from the old ones and the gradient.
pub trait Rule<W: WideFloat, const N: usize>: Sync {
    /// Returns the new values.
    fn update(&self, slots: [W; N], grad: W) -> [W; N];
}

/// A variable or one of its slots: updated in place, or read here and written there in the same pass.
pub struct Slot<'a, T> {
    read: *const T,
    write: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut T>,
}

impl<'a, T> Slot<'a, T> {
    /// A slot that is updated in place.
    pub fn in_place(data: &'a mut [T]) -> Self {
        Slot { read: data.as_ptr(), write: data.as_mut_ptr(), len: data.len(), lifetime: PhantomData }
    }

    /// A slot whose new values go to another buffer, while someone still reads the old ones.
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

/// Elements that are read before their new values are written, so that reading and writing may share memory.
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

/// Updates whole tensors. All slots have the length of the gradient.
pub fn apply_dense<T: Float, R: Rule<T::Wide, N>, const N: usize>(rule: &R, slots: [Slot<'_, T>; N], grad: &[T]) {
    for slot in &slots {
        assert_eq!(slot.len, grad.len(), "a slot and the gradient differ in length");
    }
    let streams = Streams {
        read: std::array::from_fn(|slot| slots[slot].read),
        write: std::array::from_fn(|slot| slots[slot].write),
        grad: grad.as_ptr(),
    };
    let cost = (2 * N + 1) as f64 * size_of::<T>() as f64 * 0.06;
    parallel::for_each_chunk(grad.len(), cost, |range| {
        // SAFETY: every stream holds `grad.len()` elements, and ranges are disjoint.
        unsafe { update_range(rule, streams, range.start, range.len()) }
    });
}

/// Updates the rows that `indices` names, in their order, with the rows of `grad`. Indices were checked.
pub fn apply_sparse<T: Float, R: Rule<T::Wide, N>, I: Copy + Sync + TryInto<usize>, const N: usize>(
    rule: &R,
    slots: [&mut [T]; N],
    row_len: usize,
    indices: &[I],
    grad: &[T],
) {
    assert_eq!(grad.len(), indices.len() * row_len, "there must be a row of gradient for each index");
    let len = slots[0].len();
    assert!(slots.iter().all(|slot| slot.len() == len), "slots differ in length");
    if row_len == 0 {
        return;
    }
    let rows = len / row_len;
    let write = slots.map(|slot| slot.as_mut_ptr());
    let streams = Streams { read: write.map(|slot| slot.cast_const()), write, grad: grad.as_ptr() };
    let row_cost = 10.0 + (2 * N + 1) as f64 * (row_len * size_of::<T>()) as f64 * 0.1;
    let parts = if parallel::pays(indices.len(), row_cost) { parallel::threads() } else { 1 };
    // Each part owns the rows of its remainder, so repeated indices meet in order on one thread.
    let part = |part: usize| {
        for (position, &index) in indices.iter().enumerate() {
            let row = index.try_into().unwrap_or(usize::MAX);
            assert!(row < rows, "a sparse update names a row outside of the variable");
            if row % parts == part {
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
        parallel::run_tasks(parts, &part);
    }
}

#[multiversion::multiversion(targets("x86_64+avx2+fma+bmi1+bmi2+f16c"))]
unsafe fn update_range<T: Float, R: Rule<T::Wide, N>, const N: usize>(
    rule: &R,
    streams: Streams<T, N>,
    start: usize,
    len: usize,
) {
    // SAFETY: the caller vouches for the range. `wrapping_add` since the gradient may be placed relative to its row.
    unsafe {
        let read = streams.read.map(|slot| slot.add(start));
        let write = streams.write.map(|slot| slot.add(start));
        let grad = streams.grad.wrapping_add(start);
        let mut offset = 0;
        while offset + BLOCK <= len {
            let gradients = grad.add(offset).cast::<[T; BLOCK]>().read_unaligned();
            let old = read.map(|slot| slot.add(offset).cast::<[T; BLOCK]>().read_unaligned());
            let mut new = old;
            for i in 0..BLOCK {
                let values = rule.update(std::array::from_fn(|slot| old[slot][i].widen()), gradients[i].widen());
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
            let old = std::array::from_fn(|slot| (*read[slot].add(offset)).widen());
            let new = rule.update(old, (*grad.add(offset)).widen());
            for slot in 0..N {
                write[slot].add(offset).write(T::narrow(new[slot]));
            }
            offset += 1;
        }
    }
}

#[cfg(test)]
mod tests;
