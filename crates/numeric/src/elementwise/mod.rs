//! Element-wise loops: a closure mapped over one, two or three slices, with broadcasting, run-time SIMD and threads.
//!
//! Each closure is compiled into a loop for AVX2, or for the baseline of other architectures; unary closures also into one
//! for AVX-512, since functions such as `exp` compute more than they move. On x86-64 processors without AVX2, all closures
//! of the same types share one loop that calls them by pointer: a second copy of thousands of loops would double the build
//! time.
//!
//! The output may be one of the operands (the `_in_place` forms). All forms of a closure share one compiled loop: it reads a
//! block of each operand before it writes the block of the output, so they may be the same memory.
//!
//! ```
//! use numeric::elementwise::{BroadcastPlan, binary};
//! let plan = BroadcastPlan::new(&[2, 3], &[3]).unwrap();
//! let mut out = [0.0f32; 6];
//! binary(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[10.0, 20.0, 30.0], &mut out, &plan, |x, y| x + y);
//! assert_eq!(out, [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
//! ```

mod plan;

pub use plan::{Broadcast, BroadcastPlan};

use crate::parallel;
use plan::RowWalk;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Nanoseconds per element of a loop that does little more than read and write.
pub const CHEAP: f64 = 0.5;

/// The elements that an inner loop reads before it writes.
const BLOCK: usize = 16;

/// Computes `out[i] = f(a[i])`.
pub fn unary<A: Copy + Sync, R: Copy + Send>(a: &[A], out: &mut [R], f: impl Fn(A) -> R + Sync) {
    unary_with_cost(CHEAP, a, out, f);
}

/// As [`unary`], for a function that takes `cost_ns` nanoseconds.
pub fn unary_with_cost<A: Copy + Sync, R: Copy + Send>(
    cost_ns: f64,
    a: &[A],
    out: &mut [R],
    f: impl Fn(A) -> R + Sync,
) {
    assert_eq!(a.len(), out.len(), "operand and output differ in length");
    unary_at(cost_ns, Pointer(a.as_ptr().cast_mut()), Pointer(out.as_mut_ptr()), out.len(), f);
}

/// Computes `a[i] = f(a[i])`.
pub fn unary_in_place<A: Copy + Send + Sync>(a: &mut [A], f: impl Fn(A) -> A + Sync) {
    unary_in_place_with_cost(CHEAP, a, f);
}

/// As [`unary_in_place`], for a function that takes `cost_ns` nanoseconds.
pub fn unary_in_place_with_cost<A: Copy + Send + Sync>(cost_ns: f64, a: &mut [A], f: impl Fn(A) -> A + Sync) {
    let data = Pointer(a.as_mut_ptr());
    unary_at(cost_ns, data, data, a.len(), f);
}

/// Computes `out = f(a, b)` with broadcasting.
pub fn binary<A: Copy + Sync, B: Copy + Sync, R: Copy + Send>(
    a: &[A],
    b: &[B],
    out: &mut [R],
    plan: &BroadcastPlan,
    f: impl Fn(A, B) -> R + Sync,
) {
    binary_with_cost(CHEAP, a, b, out, plan, f);
}

/// As [`binary`], for a function that takes `cost_ns` nanoseconds.
pub fn binary_with_cost<A: Copy + Sync, B: Copy + Sync, R: Copy + Send>(
    cost_ns: f64,
    a: &[A],
    b: &[B],
    out: &mut [R],
    plan: &BroadcastPlan,
    f: impl Fn(A, B) -> R + Sync,
) {
    check_operands(plan, [a.len(), b.len()]);
    assert_eq!(out.len(), plan.out_len(), "the output has another size than the plan");
    let (a, b) = (Pointer(a.as_ptr().cast_mut()), Pointer(b.as_ptr().cast_mut()));
    binary_at(cost_ns, a, b, Pointer(out.as_mut_ptr()), plan, f);
}

/// Computes `a = f(a, b)`, where `a` has the shape of the result.
pub fn binary_in_place_left<A: Copy + Send + Sync, B: Copy + Sync>(
    a: &mut [A],
    b: &[B],
    plan: &BroadcastPlan,
    f: impl Fn(A, B) -> A + Sync,
) {
    check_operands(plan, [a.len(), b.len()]);
    assert!(plan.left_holds_output(), "the first operand is broadcast and can't hold the result");
    let data = Pointer(a.as_mut_ptr());
    binary_at(CHEAP, data, Pointer(b.as_ptr().cast_mut()), data, plan, f);
}

/// Computes `b = f(a, b)`, where `b` has the shape of the result.
pub fn binary_in_place_right<A: Copy + Sync, B: Copy + Send + Sync>(
    a: &[A],
    b: &mut [B],
    plan: &BroadcastPlan,
    f: impl Fn(A, B) -> B + Sync,
) {
    check_operands(plan, [a.len(), b.len()]);
    assert!(plan.right_holds_output(), "the second operand is broadcast and can't hold the result");
    let data = Pointer(b.as_mut_ptr());
    binary_at(CHEAP, Pointer(a.as_ptr().cast_mut()), data, data, plan, f);
}

/// Computes `out = f(a, b, c)` with broadcasting.
pub fn ternary<A: Copy + Sync, B: Copy + Sync, C: Copy + Sync, R: Copy + Send>(
    a: &[A],
    b: &[B],
    c: &[C],
    out: &mut [R],
    plan: &Broadcast<3>,
    f: impl Fn(A, B, C) -> R + Sync,
) {
    check_operands(plan, [a.len(), b.len(), c.len()]);
    assert_eq!(out.len(), plan.out_len(), "the output has another size than the plan");
    let (a, b, c) = (Pointer(a.as_ptr().cast_mut()), Pointer(b.as_ptr().cast_mut()), Pointer(c.as_ptr().cast_mut()));
    let out = Pointer(out.as_mut_ptr());
    parallel::for_each_chunk(plan.out_len(), CHEAP, |range| {
        // SAFETY: the lengths were checked against the plan, and ranges are disjoint.
        unsafe {
            match cpu::is_wide() {
                true => ternary_wide(plan, range, a, b, c, out, &f),
                false => ternary_shared(plan, range, a, b, c, out, &f),
            }
        }
    });
}

/// Computes `out = if condition { a } else { b }` with broadcasting.
pub fn select<T: Copy + Send + Sync>(condition: &[bool], a: &[T], b: &[T], out: &mut [T], plan: &Broadcast<3>) {
    ternary(condition, a, b, out, plan, |condition, a, b| if condition { a } else { b });
}

fn check_operands<const N: usize>(plan: &Broadcast<N>, lens: [usize; N]) {
    for operand in 0..N {
        assert_eq!(lens[operand], plan.operand_len(operand), "operand {operand} has another size than the plan");
    }
}

/// A pointer that the threads of a loop share; each thread writes only its own range of the output.
struct Pointer<T>(*mut T);

impl<T> Clone for Pointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Pointer<T> {}
// SAFETY: the loops below read operands and write disjoint ranges of the output.
unsafe impl<T> Sync for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Pointer<T> {}

fn unary_at<A: Copy, R: Copy>(cost_ns: f64, a: Pointer<A>, out: Pointer<R>, len: usize, f: impl Fn(A) -> R + Sync) {
    parallel::for_each_chunk(len, cost_ns, |range| {
        // SAFETY: both pointers are valid for `len` elements and ranges are disjoint.
        unsafe {
            if cpu::is_widest() {
                unary_widest(range, a, out, &f)
            } else if cpu::is_wide() {
                unary_wide(range, a, out, &f)
            } else {
                unary_shared(range, a, out, &f)
            }
        }
    });
}

#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c")
)]
unsafe fn unary_widest<A: Copy, R: Copy, F: Fn(A) -> R>(range: Range<usize>, a: Pointer<A>, out: Pointer<R>, f: &F) {
    // SAFETY: as the caller promises.
    unsafe { unary_range::<A, R, F, true>(range, a, out, f) }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn unary_wide<A: Copy, R: Copy, F: Fn(A) -> R>(range: Range<usize>, a: Pointer<A>, out: Pointer<R>, f: &F) {
    // SAFETY: as the caller promises.
    unsafe { unary_range::<A, R, F, true>(range, a, out, f) }
}

#[inline(never)]
unsafe fn unary_shared<A: Copy, R: Copy>(range: Range<usize>, a: Pointer<A>, out: Pointer<R>, f: &dyn Fn(A) -> R) {
    // SAFETY: as the caller promises.
    unsafe { unary_range::<A, R, _, false>(range, a, out, f) }
}

#[inline(always)]
unsafe fn unary_range<A: Copy, R: Copy, F: Fn(A) -> R + ?Sized, const WIDE: bool>(
    range: Range<usize>,
    a: Pointer<A>,
    out: Pointer<R>,
    f: &F,
) {
    // SAFETY: the caller guarantees the range.
    unsafe {
        let (a, out) = (a.0.add(range.start), out.0.add(range.start));
        blocks::<_, _, WIDE>(
            range.len(),
            out,
            #[inline(always)]
            |offset| a.add(offset).cast::<[A; BLOCK]>().read_unaligned(),
            #[inline(always)]
            |a, i| f(a[i]),
            #[inline(always)]
            |i| f(*a.add(i)),
        );
    }
}

fn binary_at<A: Copy, B: Copy, R: Copy>(
    cost_ns: f64,
    a: Pointer<A>,
    b: Pointer<B>,
    out: Pointer<R>,
    plan: &BroadcastPlan,
    f: impl Fn(A, B) -> R + Sync,
) {
    parallel::for_each_chunk(plan.out_len(), cost_ns, |range| {
        // SAFETY: the callers checked the operands against the plan, and ranges are disjoint.
        unsafe {
            match cpu::is_wide() {
                true => binary_wide(plan, range, a, b, out, &f),
                false => binary_shared(plan, range, a, b, out, &f),
            }
        }
    });
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn binary_wide<A: Copy, B: Copy, R: Copy, F: Fn(A, B) -> R>(
    plan: &BroadcastPlan,
    range: Range<usize>,
    a: Pointer<A>,
    b: Pointer<B>,
    out: Pointer<R>,
    f: &F,
) {
    // SAFETY: as the caller promises.
    unsafe { binary_range::<A, B, R, F, true>(plan, range, a, b, out, f) }
}

#[inline(never)]
unsafe fn binary_shared<A: Copy, B: Copy, R: Copy>(
    plan: &BroadcastPlan,
    range: Range<usize>,
    a: Pointer<A>,
    b: Pointer<B>,
    out: Pointer<R>,
    f: &dyn Fn(A, B) -> R,
) {
    // SAFETY: as the caller promises.
    unsafe { binary_range::<A, B, R, _, false>(plan, range, a, b, out, f) }
}

#[inline(always)]
unsafe fn binary_range<A: Copy, B: Copy, R: Copy, F: Fn(A, B) -> R + ?Sized, const WIDE: bool>(
    plan: &BroadcastPlan,
    range: Range<usize>,
    a: Pointer<A>,
    b: Pointer<B>,
    out: Pointer<R>,
    f: &F,
) {
    let inner = plan.groups[plan.groups.len() - 1];
    let mut walk = RowWalk::at(plan, range.start / inner.len);
    let mut column = range.start % inner.len;
    let mut position = range.start;
    while position < range.end {
        let len = (inner.len - column).min(range.end - position);
        // SAFETY: the walk stays inside the operands, whose lengths match the plan.
        unsafe {
            let a = a.0.add(walk.offsets[0] + column * inner.steps[0]).cast_const();
            let b = b.0.add(walk.offsets[1] + column * inner.steps[1]).cast_const();
            let out = out.0.add(position);
            // A broadcast operand is read from a block of copies, so that one loop serves all three cases.
            let (mut copies_of_a, mut copies_of_b) = (MaybeUninit::<[A; BLOCK]>::uninit(), MaybeUninit::uninit());
            let [a_step, b_step] = inner.steps;
            let a = if a_step == 0 { copies_of_a.write([*a; BLOCK]).as_ptr() } else { a };
            let b = if b_step == 0 { copies_of_b.write([*b; BLOCK]).as_ptr() } else { b };
            blocks::<_, _, WIDE>(
                len,
                out,
                #[inline(always)]
                |offset| {
                    (
                        a.add(offset * a_step).cast::<[A; BLOCK]>().read_unaligned(),
                        b.add(offset * b_step).cast::<[B; BLOCK]>().read_unaligned(),
                    )
                },
                #[inline(always)]
                |(a, b), i| f(a[i], b[i]),
                #[inline(always)]
                |i| f(*a.add(i * a_step), *b.add(i * b_step)),
            );
        }
        position += len;
        column = 0;
        walk.next_row();
    }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,f16c"))]
unsafe fn ternary_wide<A: Copy, B: Copy, C: Copy, R: Copy, F: Fn(A, B, C) -> R>(
    plan: &Broadcast<3>,
    range: Range<usize>,
    a: Pointer<A>,
    b: Pointer<B>,
    c: Pointer<C>,
    out: Pointer<R>,
    f: &F,
) {
    // SAFETY: as the caller promises.
    unsafe { ternary_range::<A, B, C, R, F>(plan, range, a, b, c, out, f) }
}

#[inline(never)]
unsafe fn ternary_shared<A: Copy, B: Copy, C: Copy, R: Copy>(
    plan: &Broadcast<3>,
    range: Range<usize>,
    a: Pointer<A>,
    b: Pointer<B>,
    c: Pointer<C>,
    out: Pointer<R>,
    f: &dyn Fn(A, B, C) -> R,
) {
    // SAFETY: as the caller promises.
    unsafe { ternary_range(plan, range, a, b, c, out, f) }
}

#[inline(always)]
unsafe fn ternary_range<A: Copy, B: Copy, C: Copy, R: Copy, F: Fn(A, B, C) -> R + ?Sized>(
    plan: &Broadcast<3>,
    range: Range<usize>,
    a: Pointer<A>,
    b: Pointer<B>,
    c: Pointer<C>,
    out: Pointer<R>,
    f: &F,
) {
    let inner = plan.groups[plan.groups.len() - 1];
    let mut walk = RowWalk::at(plan, range.start / inner.len);
    let mut column = range.start % inner.len;
    let mut position = range.start;
    while position < range.end {
        let len = (inner.len - column).min(range.end - position);
        // SAFETY: the walk stays inside the operands, whose lengths match the plan.
        unsafe {
            let a = a.0.add(walk.offsets[0] + column * inner.steps[0]);
            let b = b.0.add(walk.offsets[1] + column * inner.steps[1]);
            let c = c.0.add(walk.offsets[2] + column * inner.steps[2]);
            let out = out.0.add(position);
            match inner.steps {
                [0, 1, 1] => {
                    let a = *a;
                    for i in 0..len {
                        out.add(i).write(f(a, *b.add(i), *c.add(i)));
                    }
                }
                [1, 1, 1] => {
                    for i in 0..len {
                        out.add(i).write(f(*a.add(i), *b.add(i), *c.add(i)));
                    }
                }
                [a_step, b_step, c_step] => {
                    for i in 0..len {
                        out.add(i).write(f(*a.add(i * a_step), *b.add(i * b_step), *c.add(i * c_step)));
                    }
                }
            }
        }
        position += len;
        column = 0;
        walk.next_row();
    }
}

/// Writes `len` elements: whole blocks with `read` and `of_block`, the rest one by one with `single`. Without `WIDE`, writes
/// all of them one by one.
///
/// # Safety
/// `out` is valid for `len` elements; `read(offset)` and `single(index)` are sound below it.
#[inline(always)]
unsafe fn blocks<R: Copy, S, const WIDE: bool>(
    len: usize,
    out: *mut R,
    read: impl Fn(usize) -> S,
    of_block: impl Fn(&S, usize) -> R,
    single: impl Fn(usize) -> R,
) {
    let mut offset = 0;
    while WIDE && offset + BLOCK <= len {
        let operands = read(offset);
        // The compiler vectorises a plain loop even where the function is long.
        let mut results = [const { MaybeUninit::<R>::uninit() }; BLOCK];
        for i in 0..BLOCK {
            results[i].write(of_block(&operands, i));
        }
        // SAFETY: the block is below `len`, and every result was written.
        unsafe { out.add(offset).cast::<[MaybeUninit<R>; BLOCK]>().write_unaligned(results) };
        offset += BLOCK;
    }
    for i in offset..len {
        // SAFETY: as above.
        unsafe { out.add(i).write(single(i)) };
    }
}

#[cfg(test)]
mod tests;
