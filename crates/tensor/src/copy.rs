//! [`copy_bytes`]: copies between buffers, as fast wherever they lie.

/// Shorter copies are left to the C library, whose moves of small blocks are as good as any.
#[cfg(target_arch = "x86_64")]
const WIDE_BYTES_MIN: usize = 2 << 10;

/// Copies all bytes of `from` to `to`, which are equally long.
///
/// C libraries copy large blocks with one string instruction. Some processors are ten times slower at it when the target lies
/// a few bytes further into its page than the source, which happens to parts of network frames all the time.
///
/// # Panics
/// When the lengths differ.
pub fn copy_bytes(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "the source and the target of a copy differ in length");
    #[cfg(target_arch = "x86_64")]
    if from.len() >= WIDE_BYTES_MIN && cpu::level() >= cpu::Level::Avx2 {
        // SAFETY: the level is never above what the processor has.
        unsafe { copy_wide(to, from) };
        return;
    }
    to.copy_from_slice(from);
}

/// # Safety
/// The processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_wide(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    const STEP: usize = 4 * size_of::<__m256i>();
    let (to_steps, to_rest) = to.as_chunks_mut::<STEP>();
    let (from_steps, from_rest) = from.as_chunks::<STEP>();
    for (to, from) in to_steps.iter_mut().zip(from_steps) {
        let (to, from): (*mut __m256i, *const __m256i) = (to.as_mut_ptr().cast(), from.as_ptr().cast());
        // SAFETY: both hold four registers, and these moves need no alignment.
        unsafe {
            let registers = [0, 1, 2, 3].map(|index| _mm256_loadu_si256(from.add(index)));
            for (index, register) in registers.into_iter().enumerate() {
                _mm256_storeu_si256(to.add(index), register);
            }
        }
    }
    to_rest.copy_from_slice(from_rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_it_lies() {
        let source: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in [0, 1, 127, 2047, 2048, 2049, 4095, 4096, 5000, 8191] {
            for offset in [0, 1, 16, 31] {
                let mut target = vec![0xeeu8; 9000];
                copy_bytes(&mut target[offset..offset + len], &source[3..3 + len]);
                assert_eq!(target[offset..offset + len], source[3..3 + len], "{len} bytes at {offset}");
                let around = target[..offset].iter().chain(&target[offset + len..]);
                assert!(around.copied().all(|byte| byte == 0xee), "{len} bytes at {offset} touch others");
            }
        }
    }

    #[test]
    #[should_panic(expected = "differ in length")]
    fn lengths_must_agree() {
        copy_bytes(&mut [0; 3], &[0; 4]);
    }
}
