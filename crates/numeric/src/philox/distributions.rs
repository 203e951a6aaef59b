//! Uniform, normal and truncated normal numbers, filled in parallel: each group of outputs has its own position in the stream.

use super::{Philox, RESERVED_PER_OUTPUT, WORDS, Words};
use crate::parallel;
use cpu_macros::each_level;
use half::{bf16, f16};

/// Samples that are generated side by side.
const LANES: usize = 16;

/// A floating-point type with random numbers.
pub trait RandomFloat: Copy + Send + Sync {
    /// The number of outputs of one sample.
    const GROUP: usize;
    /// Writes the numbers between 0 and 1 of a sample.
    fn uniform(sample: [u32; WORDS], out: &mut [Self]);
    /// Writes the standard normal numbers of a sample.
    fn normal(sample: [u32; WORDS], out: &mut [Self]);
}

/// An integer type with random numbers.
pub trait RandomInteger: Copy + Send + Sync {
    /// The number of outputs of one sample.
    const GROUP: usize;
    /// Writes integers from `low` to `high`, exclusive.
    fn uniform(sample: [u32; WORDS], low: Self, high: Self, out: &mut [Self]);
    /// Writes integers from the whole range of the type.
    fn full_range(sample: [u32; WORDS], out: &mut [Self]);
}

/// Fills `out` with numbers between 0 (included) and 1 (excluded).
pub fn fill_uniform<T: RandomFloat>(philox: Philox, out: &mut [T]) {
    fill(philox, out, T::GROUP, 1.5, T::uniform);
}

/// Fills `out` with standard normal numbers.
pub fn fill_standard_normal<T: RandomFloat>(philox: Philox, out: &mut [T]) {
    fill(philox, out, T::GROUP, 15.0, T::normal);
}

/// Fills `out` with integers from `low` to `high`, exclusive. Panics unless `low < high`.
pub fn fill_uniform_integers<T: RandomInteger + PartialOrd>(philox: Philox, low: T, high: T, out: &mut [T]) {
    assert!(low < high, "an empty range has no random integers");
    fill(philox, out, T::GROUP, 3.0, |sample, out: &mut [T]| T::uniform(sample, low, high, out));
}

/// Fills `out` with integers from the whole range of the type.
pub fn fill_full_range_integers<T: RandomInteger>(philox: Philox, out: &mut [T]) {
    fill(philox, out, T::GROUP, 1.5, T::full_range);
}

/// Fills `out` with standard normal numbers between -2 and 2; others are drawn again.
pub fn fill_truncated_normal<T: RandomFloat + TruncatedNormal>(philox: Philox, out: &mut [T]) {
    let groups = out.len().div_ceil(T::GROUP);
    // Each group of outputs has its own part of the stream, however often it redraws.
    let samples_per_group = T::GROUP as u64 * RESERVED_PER_OUTPUT / WORDS as u64;
    let len = out.len();
    let out = parallel::SharedMut::new(out);
    parallel::for_each_chunk(groups, 20.0 * T::GROUP as f64, |range| {
        for group in range {
            let start = group * T::GROUP;
            // SAFETY: groups are disjoint.
            let out = unsafe { out.slice(start, T::GROUP.min(len - start)) };
            let mut own = philox;
            own.skip((group as u64).wrapping_mul(samples_per_group));
            T::truncated_normal(&mut TruncatedWords(Words::from(own)), out);
        }
    });
}

/// Runs `of_sample` for each group of outputs; the last group may be incomplete.
fn fill<T: Copy + Send>(
    philox: Philox,
    out: &mut [T],
    group: usize,
    cost_ns: f64,
    of_sample: impl Fn([u32; WORDS], &mut [T]) + Sync,
) {
    let groups = out.len().div_ceil(group);
    let len = out.len();
    let out = parallel::SharedMut::new(out);
    parallel::for_each_chunk(groups, cost_ns * group as f64, |range| {
        let start = range.start * group;
        // SAFETY: ranges of groups are disjoint.
        let out = unsafe { out.slice(start, (range.end * group).min(len) - start) };
        let first = range.start as u64;
        match group {
            2 => fill_groups::<T, _, 2>(philox, first, out, &of_sample),
            _ => fill_groups::<T, _, 4>(philox, first, out, &of_sample),
        }
    });
}

#[each_level]
fn fill_groups<T: Copy, F: Fn([u32; WORDS], &mut [T]), const GROUP: usize>(
    philox: Philox,
    first: u64,
    out: &mut [T],
    of_sample: &F,
) {
    let mut ahead = first;
    for block in out.chunks_mut(GROUP * LANES) {
        let samples = philox.samples::<LANES>(ahead);
        ahead = ahead.wrapping_add(LANES as u64);
        let sample = |lane: usize| [samples[0][lane], samples[1][lane], samples[2][lane], samples[3][lane]];
        let (groups, rest) = block.as_chunks_mut::<GROUP>();
        if groups.len() == LANES {
            // A loop of constant length over arrays, which the compiler vectorises.
            for lane in 0..LANES {
                of_sample(sample(lane), &mut groups[lane]);
            }
            continue;
        }
        let whole_groups = groups.len();
        for (lane, group) in groups.iter_mut().enumerate() {
            of_sample(sample(lane), group);
        }
        if let Some(&any) = rest.first() {
            let mut whole = [any; GROUP];
            of_sample(sample(whole_groups), &mut whole);
            rest.copy_from_slice(&whole[..rest.len()]);
        }
    }
}

/// The words that a group of truncated normal numbers draws from.
pub struct TruncatedWords(Words);

/// A floating-point type with truncated normal numbers.
pub trait TruncatedNormal: Sized {
    /// Fills a group of outputs.
    fn truncated_normal(words: &mut TruncatedWords, out: &mut [Self]);
}

/// Draws pairs, and keeps the numbers between -2 and 2, until `out` is full.
#[inline(always)]
fn keep_short<T: Copy, F: Copy + PartialOrd + num_traits::Signed + From<f32>>(
    out: &mut [T],
    mut pair: impl FnMut() -> [F; 2],
    convert: impl Fn(F) -> T,
) {
    let limit = F::from(2.0f32);
    let mut filled = 0;
    loop {
        for value in pair() {
            if filled == out.len() {
                return;
            }
            if value.abs() < limit {
                out[filled] = convert(value);
                filled += 1;
            }
        }
        if filled == out.len() {
            return;
        }
    }
}

/// Returns 23 random bits as a float between 0 and 1.
#[inline(always)]
fn unit_f32(word: u32) -> f32 {
    f32::from_bits(127 << 23 | (word & 0x7f_ffff)) - 1.0
}

/// Returns 52 random bits as a float between 0 and 1.
#[inline(always)]
pub(super) fn unit_f64(high: u32, low: u32) -> f64 {
    f64::from_bits(1023 << 52 | u64::from(high & 0xf_ffff) << 32 | u64::from(low)) - 1.0
}

/// Returns the Box-Muller transform of two words. Uses the standard library's functions, as TensorFlow does, so that the
/// numbers are equal.
#[inline(always)]
fn normal_pair_f32(first: u32, second: u32) -> [f32; 2] {
    let uniform = unit_f32(first).max(1.0e-7);
    let angle = (std::f64::consts::TAU * f64::from(unit_f32(second))) as f32;
    let radius = (-2.0 * uniform.ln()).sqrt();
    [angle.sin() * radius, angle.cos() * radius]
}

#[inline(always)]
pub(super) fn normal_pair_f64(words: [u32; WORDS]) -> [f64; 2] {
    let uniform = unit_f64(words[0], words[1]).max(1.0e-7);
    let angle = std::f64::consts::TAU * unit_f64(words[2], words[3]);
    let radius = (-2.0 * uniform.ln()).sqrt();
    [angle.sin() * radius, angle.cos() * radius]
}

macro_rules! impl_by_single {
    ($($scalar:ty, $uniform:expr, $convert:expr;)*) => {$(
        impl RandomFloat for $scalar {
            const GROUP: usize = 4;
            #[inline(always)]
            fn uniform(sample: [u32; WORDS], out: &mut [Self]) {
                for (out, word) in out.iter_mut().zip(sample) {
                    *out = ($uniform)(word);
                }
            }
            #[inline(always)]
            fn normal(sample: [u32; WORDS], out: &mut [Self]) {
                let [a, b] = normal_pair_f32(sample[0], sample[1]);
                let [c, d] = normal_pair_f32(sample[2], sample[3]);
                for (out, value) in out.iter_mut().zip([a, b, c, d]) {
                    *out = ($convert)(value);
                }
            }
        }
        impl TruncatedNormal for $scalar {
            fn truncated_normal(words: &mut TruncatedWords, out: &mut [Self]) {
                keep_short(out, || normal_pair_f32(words.0.next(), words.0.next()), $convert);
            }
        }
    )*};
}
impl_by_single! {
    f32, unit_f32, |value: f32| value;
    f16, |word: u32| f16::from_bits(15 << 10 | (word as u16 & 0x3ff)) - f16::ONE, f16::from_f32;
    bf16, |word: u32| bf16::from_bits(127 << 7 | (word as u16 & 0x7f)) - bf16::ONE, bf16::from_f32;
}

impl RandomFloat for f64 {
    const GROUP: usize = 2;
    #[inline(always)]
    fn uniform(sample: [u32; WORDS], out: &mut [Self]) {
        out[0] = unit_f64(sample[0], sample[1]);
        out[1] = unit_f64(sample[2], sample[3]);
    }
    #[inline(always)]
    fn normal(sample: [u32; WORDS], out: &mut [Self]) {
        out.copy_from_slice(&normal_pair_f64(sample));
    }
}

impl TruncatedNormal for f64 {
    fn truncated_normal(words: &mut TruncatedWords, out: &mut [Self]) {
        keep_short(out, || normal_pair_f64(std::array::from_fn(|_| words.0.next())), |value| value);
    }
}

macro_rules! impl_integers {
    ($($signed:ty, $unsigned:ty, $group:literal, $bits:expr;)*) => {$(
        impl RandomInteger for $signed {
            const GROUP: usize = $group;
            #[inline(always)]
            fn uniform(sample: [u32; WORDS], low: Self, high: Self, out: &mut [Self]) {
                let range = (high as $unsigned).wrapping_sub(low as $unsigned);
                for (index, out) in out.iter_mut().enumerate() {
                    let bits: $unsigned = ($bits)(sample, index);
                    *out = (low as $unsigned).wrapping_add(bits % range) as $signed;
                }
            }
            #[inline(always)]
            fn full_range(sample: [u32; WORDS], out: &mut [Self]) {
                for (index, out) in out.iter_mut().enumerate() {
                    let bits: $unsigned = ($bits)(sample, index);
                    *out = bits as $signed;
                }
            }
        }
    )*};
}

#[inline(always)]
fn word(sample: [u32; WORDS], index: usize) -> u32 {
    sample[index]
}

#[inline(always)]
fn two_words(sample: [u32; WORDS], index: usize) -> u64 {
    u64::from(sample[2 * index]) | u64::from(sample[2 * index + 1]) << 32
}

impl_integers! {
    i32, u32, 4, word;
    u32, u32, 4, word;
    i64, u64, 2, two_words;
    u64, u64, 2, two_words;
}
