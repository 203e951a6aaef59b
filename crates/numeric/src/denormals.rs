//! [`FlushDenormals`]: treats denormal numbers as zero while kernels run.
//!
//! TensorFlow does the same, for a reason: an optimizer's moments decay towards zero where there is no gradient, and many
//! processors are a hundred times slower with the denormal numbers on the way.

use std::marker::PhantomData;

/// While it lives, floating-point operations of this thread treat denormal operands as zero and return zero for denormal
/// results.
///
/// It has no effect on processors other than x86-64.
pub struct FlushDenormals {
    before: u32,
    /// The mode belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl FlushDenormals {
    /// Turns the mode on for this thread.
    #[must_use = "dropped, it changes the mode back"]
    pub fn begin() -> FlushDenormals {
        FlushDenormals::begin_as(true)
    }

    /// Sets the mode of this thread to that of another one, as [`is_on`](Self::is_on) returned it there.
    #[must_use = "dropped, it changes the mode back"]
    pub(crate) fn begin_as(is_on: bool) -> FlushDenormals {
        let before = mode::get();
        let now = if is_on { before | mode::FLUSH } else { before & !mode::FLUSH };
        if now != before {
            mode::set(now);
        }
        FlushDenormals { before, _thread: PhantomData }
    }

    /// Returns whether this thread treats denormal numbers as zero.
    pub(crate) fn is_on() -> bool {
        mode::get() & mode::FLUSH == mode::FLUSH
    }
}

impl Drop for FlushDenormals {
    fn drop(&mut self) {
        if self.before & mode::FLUSH != mode::get() & mode::FLUSH {
            mode::set(self.before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod mode {
    use std::arch::asm;

    /// Flush results (bit 15) and operands (bit 6).
    pub(super) const FLUSH: u32 = 1 << 15 | 1 << 6;

    pub(super) fn get() -> u32 {
        let mut mode = 0u32;
        // SAFETY: writes the register to the four bytes of `mode`.
        unsafe { asm!("stmxcsr [{}]", in(reg) &mut mode, options(nostack, preserves_flags)) };
        mode
    }

    pub(super) fn set(mode: u32) {
        // SAFETY: only the bits of `FLUSH` differ from what `get` returned, so rounding and exceptions stay as the compiler
        // expects. Constants that it folds may still be denormal, which only changes their value.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &mode, options(nostack, preserves_flags, readonly)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod mode {
    pub(super) const FLUSH: u32 = 0;

    pub(super) fn get() -> u32 {
        0
    }

    pub(super) fn set(_: u32) {}
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    fn half(x: f32) -> f32 {
        black_box(x) * black_box(0.5)
    }

    #[test]
    fn denormal_numbers_are_zero_while_it_lives() {
        assert_eq!(half(1e-39), 5e-40);
        let outer = FlushDenormals::begin();
        assert_eq!(half(1e-39), 0.0, "an operand");
        assert_eq!(half(f32::MIN_POSITIVE), 0.0, "a result");
        assert_eq!(half(3.0), 1.5);
        drop(FlushDenormals::begin());
        assert_eq!(half(1e-39), 0.0, "an inner one leaves what the outer one has set");
        let like_others = FlushDenormals::begin_as(false);
        assert_eq!(half(1e-39), 5e-40, "as a thread computes that is in no kernel");
        drop(like_others);
        assert_eq!(half(1e-39), 0.0);
        drop(outer);
        assert_eq!(half(1e-39), 5e-40);
    }

    #[test]
    fn helpers_compute_as_their_caller_does() {
        for is_on in [false, true, false] {
            let _mode = FlushDenormals::begin_as(is_on);
            let mut halves = vec![1e-39f32; 10_000];
            crate::parallel::for_each_chunk_mut(&mut halves, 1, 1e6, |_, run| {
                run.iter_mut().for_each(|x| *x = half(*x));
            });
            let expected = if is_on { 0 } else { 5e-40f32.to_bits() };
            assert!(halves.iter().all(|x| x.to_bits() == expected), "on: {is_on}");
        }
    }
}
