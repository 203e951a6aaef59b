//! The inverse cosine transform of a block in integer arithmetic: accurate, fast, and for smaller sizes.
//!
//! The arithmetic is that of the two integer methods that TensorFlow offers, so the results are bit-identical: thirteen bits of
//! fraction with rounding in the accurate one; eight bits without rounding in the fast one, which has part of its factors in the
//! quantization table.

/// The precomputed factors of a component.
pub(super) struct Factors {
    values: [i32; 64],
    size: usize,
    fast: bool,
}

/// A cosine factor with thirteen bits of fraction.
const fn fixed(value: f64) -> i32 {
    (value * 8192.0 + 0.5) as i32
}

/// The scale of the fast transform's input rows and columns.
const SCALES: [f64; 8] = [1.0, 1.387039845, 1.306562965, 1.175875602, 1.0, 0.785694958, 0.541196100, 0.275899379];

impl Factors {
    /// Returns the factors for blocks of this many samples per side: 1, 2, 4 or 8.
    pub(super) fn new(quantization: &[u16; 64], size: usize, fast: bool) -> Factors {
        let fast = fast && size == 8;
        let mut values = [0; 64];
        for (index, value) in values.iter_mut().enumerate() {
            let step = i64::from(quantization[index]);
            *value = match fast {
                false => step as i32,
                true => {
                    let scale = (SCALES[index / 8] * SCALES[index % 8] * 16384.0).round() as i64;
                    ((step * scale + (1 << 11)) >> 12) as i32
                }
            };
        }
        Factors { values, size, fast }
    }

    /// Writes the samples of a block to rows that are `stride` apart.
    pub(super) fn apply(&self, block: &[i16; 64], to: &mut [u8], stride: usize) {
        // Normal files stay well within this; invalid ones must not overflow.
        let most = if self.fast { 1 << 15 } else { 1 << 13 };
        if block[1..].iter().all(|&value| value == 0) {
            let dc = i32::from(block[0]).saturating_mul(self.values[0]).clamp(-most, most - 1);
            let value = if self.fast { sample(dc, 5) } else { rounded_sample(dc, 3) };
            for row in to.chunks_mut(stride).take(self.size) {
                row[..self.size].fill(value);
            }
            return;
        }
        let mut work = [0i32; 64];
        for (index, value) in work.iter_mut().enumerate() {
            *value = i32::from(block[index]).saturating_mul(self.values[index]).clamp(-most, most - 1);
        }
        match (self.size, self.fast) {
            (8, true) => self.two_passes::<8>(&mut work, to, stride, quick, (0, 0), 5),
            (8, false) => self.two_passes::<8>(&mut work, to, stride, exact, (11, 1 << 10), 18),
            (4, _) => self.two_passes::<4>(&mut work, to, stride, four, (12, 1 << 11), 19),
            (2, _) => self.two_passes::<2>(&mut work, to, stride, two, (13, 1 << 12), 20),
            _ => to[0] = rounded_sample(work[0], 3),
        }
    }

    /// Transforms columns, then rows, each from eight numbers to `N`.
    fn two_passes<const N: usize>(
        &self,
        work: &mut [i32; 64],
        to: &mut [u8],
        stride: usize,
        transform: fn([i32; 8]) -> [i32; N],
        (shift, half): (u32, i32),
        last_shift: u32,
    ) {
        let most = if self.fast { 1 << 15 } else { 1 << 14 };
        for column in 0..8 {
            let from: [i32; 8] = std::array::from_fn(|row| work[8 * row + column]);
            for (row, value) in transform(from).into_iter().enumerate() {
                work[8 * row + column] = ((value + half) >> shift).clamp(-most, most - 1);
            }
        }
        for (row, to) in to.chunks_mut(stride).take(N).enumerate() {
            let from: [i32; 8] = std::array::from_fn(|column| work[8 * row + column]);
            for (to, value) in to.iter_mut().zip(transform(from)) {
                *to = if self.fast { sample(value, last_shift) } else { rounded_sample(value, last_shift) };
            }
        }
    }
}

fn sample(value: i32, shift: u32) -> u8 {
    ((value >> shift) + 128).clamp(0, 255) as u8
}

fn rounded_sample(value: i32, shift: u32) -> u8 {
    sample(value + (1 << (shift - 1)), shift)
}

fn exact(x: [i32; 8]) -> [i32; 8] {
    let shared = (x[2] + x[6]) * fixed(0.541196100);
    let (low, high) = (shared - x[6] * fixed(1.847759065), shared + x[2] * fixed(0.765366865));
    let (sum, difference) = ((x[0] + x[4]) << 13, (x[0] - x[4]) << 13);
    let even = [sum + high, difference + low, difference - low, sum - high];
    let all = (x[7] + x[3] + x[5] + x[1]) * fixed(1.175875602);
    let outer = (x[7] + x[1]) * -fixed(0.899976223);
    let inner = (x[5] + x[3]) * -fixed(2.562915447);
    let left = all - (x[7] + x[3]) * fixed(1.961570560);
    let right = all - (x[5] + x[1]) * fixed(0.390180644);
    let odd = [
        x[1] * fixed(1.501321110) + outer + right,
        x[3] * fixed(3.072711026) + inner + left,
        x[5] * fixed(2.053119869) + inner + right,
        x[7] * fixed(0.298631336) + outer + left,
    ];
    butterfly(even, odd)
}

fn quick(x: [i32; 8]) -> [i32; 8] {
    let times = |value: i32, factor: i32| (value * factor) >> 8;
    let (sum, difference) = (x[0] + x[4], x[0] - x[4]);
    let high = x[2] + x[6];
    let low = times(x[2] - x[6], 362) - high;
    let even = [sum + high, difference + low, difference - low, sum - high];
    let (z13, z10) = (x[5] + x[3], x[5] - x[3]);
    let (z11, z12) = (x[1] + x[7], x[1] - x[7]);
    let shared = times(z10 + z12, 473);
    let first = z11 + z13;
    let second = times(z10, -669) + shared - first;
    let third = times(z11 - z13, 362) - second;
    let fourth = times(z12, 277) - shared + third;
    // The last of the four has the opposite sign here.
    butterfly(even, [first, second, third, -fourth])
}

fn butterfly(even: [i32; 4], odd: [i32; 4]) -> [i32; 8] {
    std::array::from_fn(|index| match index {
        0..4 => even[index] + odd[index],
        _ => even[7 - index] - odd[7 - index],
    })
}

fn four(x: [i32; 8]) -> [i32; 4] {
    let even = x[2] * fixed(1.847759065) - x[6] * fixed(0.765366865);
    let (sum, difference) = ((x[0] << 14) + even, (x[0] << 14) - even);
    let inner =
        x[5] * fixed(1.451774981) - x[7] * fixed(0.211164243) - x[3] * fixed(2.172734803) + x[1] * fixed(1.061594337);
    let outer =
        x[3] * fixed(0.899976223) - x[7] * fixed(0.509795579) - x[5] * fixed(0.601344887) + x[1] * fixed(2.562915447);
    [sum + outer, difference + inner, difference - inner, sum - outer]
}

fn two(x: [i32; 8]) -> [i32; 2] {
    let odd =
        x[5] * fixed(0.850430095) - x[7] * fixed(0.720959822) - x[3] * fixed(1.272758580) + x[1] * fixed(3.624509785);
    [(x[0] << 15) + odd, (x[0] << 15) - odd]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The transform by its definition.
    fn slow(block: &[i16; 64]) -> [f64; 64] {
        let cosine = |frequency: usize, place: usize| {
            let norm = if frequency == 0 { 0.5f64.sqrt() } else { 1.0 };
            norm * ((2 * place + 1) as f64 * frequency as f64 * std::f64::consts::PI / 16.0).cos() / 2.0
        };
        std::array::from_fn(|at| {
            let terms = block.iter().enumerate();
            128.0 + terms.map(|(f, &v)| f64::from(v) * cosine(f / 8, at / 8) * cosine(f % 8, at % 8)).sum::<f64>()
        })
    }

    fn a_block() -> [i16; 64] {
        std::array::from_fn(|index| match index {
            0 => 200,
            _ if index % 7 == 0 => 31 - index as i16,
            _ => (index as i16 * 37 % 11) - 5,
        })
    }

    #[test]
    fn whole_blocks_are_those_of_the_definition() {
        let block = a_block();
        let expected = slow(&block);
        // The fast one keeps two fractional bits, which matters if all steps are 1.
        for (fast, bound) in [(false, 1.0), (true, 10.0)] {
            let mut samples = [0u8; 64];
            Factors::new(&[1; 64], 8, fast).apply(&block, &mut samples, 8);
            for (got, expected) in samples.iter().zip(expected) {
                assert!((f64::from(*got) - expected).abs() <= bound, "{fast}: {got} instead of {expected}");
            }
        }
    }

    #[test]
    fn smaller_blocks_are_means() {
        let mut block = a_block();
        // High frequencies don't contribute to a smaller image.
        for (index, value) in block.iter_mut().enumerate() {
            if index / 8 > 1 || index % 8 > 1 {
                *value = 0;
            }
        }
        let whole = slow(&block);
        for size in [1, 2, 4] {
            let mut samples = [0u8; 64];
            Factors::new(&[1; 64], size, true).apply(&block, &mut samples, 8);
            let step = 8 / size;
            for (row, column) in (0..size * size).map(|at| (at / size, at % size)) {
                let covered =
                    (0..step * step).map(|at| whole[(row * step + at / step) * 8 + column * step + at % step]);
                let mean = covered.sum::<f64>() / (step * step) as f64;
                assert!((f64::from(samples[row * 8 + column]) - mean).abs() < 3.0);
            }
        }
    }

    #[test]
    fn broken_numbers_do_no_harm() {
        for extreme in [i16::MIN, i16::MAX] {
            for size in [1, 2, 4, 8] {
                for fast in [false, true] {
                    let mut samples = [0u8; 64];
                    Factors::new(&[u16::MAX; 64], size, fast).apply(&[extreme; 64], &mut samples, 8);
                }
            }
        }
    }
}
