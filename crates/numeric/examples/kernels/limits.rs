//! Measures the machine's limits, with which kernels are compared: multiplications and additions per second in a loop of nothing else,
//! and bytes per second of a copy.

use crate::timing::{Threads, best_seconds};
use std::cell::RefCell;
use std::hint::black_box;

/// The steps of one run of the arithmetic loop, a few milliseconds.
const STEPS: usize = 400_000;

/// The measured limits. A copy is measured when a kernel of its size is first run.
pub struct Limits {
    seconds: f64,
    flops: [f64; 2],
    copies: RefCell<Vec<(usize, [f64; 2])>>,
}

impl Limits {
    pub fn measure(seconds: f64) -> Limits {
        let flops = [Threads::One, Threads::All].map(|threads| {
            let workers = threads.count();
            let best = best_seconds(threads, seconds, || {
                numeric::parallel::run_tasks(workers, 1e9, &|_| {
                    black_box(arithmetic(STEPS));
                });
            });
            workers as f64 * flops_per_step() * STEPS as f64 / best
        });
        Limits { seconds, flops, copies: RefCell::default() }
    }

    /// Returns floating-point operations per second.
    pub fn flops(&self, threads: Threads) -> f64 {
        self.flops[threads as usize]
    }

    /// Returns the bytes read and written per second by a copy that reads and writes this many bytes in total.
    pub fn copied_bytes(&self, bytes: f64, threads: Threads) -> f64 {
        // Sizes within a third of each other share a measurement.
        let len = (bytes / 8.0).max(64.0);
        let known = |copies: &[(usize, [f64; 2])]| {
            copies.iter().find(|(size, _)| (len / *size as f64).ln().abs() < 0.15).map(|(_, rates)| *rates)
        };
        let found = known(&self.copies.borrow());
        found.unwrap_or_else(|| self.measure_copy(len as usize))[threads as usize]
    }

    fn measure_copy(&self, len: usize) -> [f64; 2] {
        let from = vec![1.0f32; len];
        let mut to = vec![0.0f32; len];
        let rates = [Threads::One, Threads::All].map(|threads| {
            let best = best_seconds(threads, self.seconds, || {
                numeric::slice_copy::copy_parallel(black_box(&from), &mut to);
                black_box(&mut to);
            });
            8.0 * len as f64 / best
        });
        self.copies.borrow_mut().push((len, rates));
        rates
    }
}

/// Independent sums, enough to hide the latency of the instruction, and few enough for the registers.
const SUMS: usize = 12;

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::SUMS;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    macro_rules! loop_of {
        ($name:ident, $features:literal, $splat:ident, $fused:expr) => {
            #[target_feature(enable = $features)]
            pub fn $name(steps: usize) {
                let (factor, addend) = (black_box($splat(0.999)), black_box($splat(0.001)));
                let mut sums = [addend; SUMS];
                for _ in 0..steps {
                    for sum in &mut sums {
                        *sum = $fused(*sum, factor, addend);
                    }
                }
                black_box(sums);
            }
        };
    }

    loop_of!(avx512, "avx512f", _mm512_set1_ps, |x, y, z| _mm512_fmadd_ps(x, y, z));
    loop_of!(avx2, "avx2,fma", _mm256_set1_ps, |x, y, z| _mm256_fmadd_ps(x, y, z));
    loop_of!(baseline, "sse2", _mm_set1_ps, |x, y, z| _mm_add_ps(_mm_mul_ps(x, y), z));
}

/// Multiplies and adds in registers, with the widest ones of the level.
#[cfg(target_arch = "x86_64")]
fn arithmetic(steps: usize) {
    // SAFETY: the processor has the level.
    unsafe {
        match cpu::level() {
            cpu::Level::Avx512 => arch::avx512(steps),
            cpu::Level::Avx2 => arch::avx2(steps),
            cpu::Level::Baseline => arch::baseline(steps),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn flops_per_step() -> f64 {
    let lanes = match cpu::level() {
        cpu::Level::Avx512 => 16,
        cpu::Level::Avx2 => 8,
        cpu::Level::Baseline => 4,
    };
    (2 * SUMS * lanes) as f64
}

/// The lanes of a register on other architectures.
#[cfg(not(target_arch = "x86_64"))]
const LANES: usize = 4;

#[cfg(not(target_arch = "x86_64"))]
fn arithmetic(steps: usize) {
    let (factor, addend) = (black_box(0.999f32), black_box(0.001f32));
    let mut sums = [[addend; LANES]; SUMS];
    for _ in 0..steps {
        for lanes in &mut sums {
            lanes.iter_mut().for_each(|sum| *sum = sum.mul_add(factor, addend));
        }
    }
    black_box(sums);
}

#[cfg(not(target_arch = "x86_64"))]
fn flops_per_step() -> f64 {
    (2 * SUMS * LANES) as f64
}
