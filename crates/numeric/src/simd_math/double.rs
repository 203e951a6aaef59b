//! Elementary functions of `f64` without branches or calls, so that loops around them vectorise.

use super::polynomial;

/// Adding this rounds to an integer, which is then in the low bits.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// `(exp(r) - 1 - r) / r²` for |r| ≤ ln 2 / 2.
const EXP: [f64; 11] = [
    0.5,
    0.166_666_666_666_666_83,
    0.041_666_666_666_666_095,
    0.008_333_333_333_317_047,
    0.001_388_888_888_911_545_4,
    0.000_198_412_698_963_517_83,
    0.000_024_801_586_926_857_887,
    2.755_723_489_444_384e-6,
    2.755_758_173_552_349e-7,
    2.511_202_531_775_660_5e-8,
    2.082_664_121_353_635_7e-9,
];

/// `(2 atanh(s) - 2s) / s³` as a polynomial of `s²`, for the `s` of a number between √½ and √2.
const LOG: [f64; 7] = [
    0.666_666_666_666_673_4,
    0.399_999_999_994_143_3,
    0.285_714_287_424_738,
    0.222_221_985_635_743_7,
    0.181_835_648_625_557_43,
    0.153_140_359_305_577_92,
    0.147_961_045_970_948_4,
];

/// Splits `x = n ln 2 + r` and returns `n` and `exp(r) - 1`.
#[inline(always)]
fn reduce(x: f64) -> (i64, f64) {
    let shifted = x.mul_add(std::f64::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let less_one = (r * r).mul_add(polynomial(r, &EXP), r);
    (shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i64, less_one)
}

#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) as u64) << 52)
}

/// Returns half of a small integer, rounded down. AVX2 has no arithmetic shift of 64 bits.
#[inline(always)]
fn half_of(n: i64) -> i64 {
    (n.wrapping_add(4096) as u64 >> 1) as i64 - 2048
}

/// `eˣ`, within 1 ulp.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    let low = if x < -746.0 { -746.0 } else { x };
    let clamped = if low > 710.0 { 710.0 } else { low };
    let (n, less_one) = reduce(clamped);
    let half = half_of(n);
    (less_one + 1.0) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `eˣ - 1`, within 2 ulp.
#[inline(always)]
pub fn expm1(x: f64) -> f64 {
    let low = if x < -45.0 { -45.0 } else { x };
    let clamped = if low > 710.0 { 710.0 } else { low };
    let (n, less_one) = reduce(clamped);
    let half_scale = power_of_two(n.wrapping_sub(1));
    let result = 2.0 * half_scale.mul_add(less_one, half_scale - 0.5);
    if x.abs() < 1e-16 { x } else { result }
}

/// Natural logarithm, within 2 ulp.
#[inline(always)]
pub fn log(x: f64) -> f64 {
    const SUBNORMAL_SCALE: f64 = 18_014_398_509_481_984.0;
    let subnormal = x < f64::MIN_POSITIVE;
    let scaled = if subnormal { x * SUBNORMAL_SCALE } else { x };
    // Moves √½ to a power of two, so that the exponent field counts from there.
    const SHIFT: u64 = 1.0f64.to_bits() - std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let moved = scaled.to_bits().wrapping_add(SHIFT);
    let field = moved >> 52;
    let mantissa =
        f64::from_bits((moved & 0x000f_ffff_ffff_ffff).wrapping_add(std::f64::consts::FRAC_1_SQRT_2.to_bits()));
    // Put into the mantissa of 2⁵², the field becomes a float by a subtraction.
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let k = f64::from_bits(field | TWO_52.to_bits()) - (TWO_52 + 1023.0) - if subnormal { 54.0 } else { 0.0 };
    let f = mantissa - 1.0;
    let s = f / (2.0 + f);
    let square = s * s;
    let half_square = 0.5 * f * f;
    let series = s * (half_square + square * polynomial(square, &LOG));
    let result = k.mul_add(LN2_HIGH, f - (half_square - k.mul_add(LN2_LOW, series)));
    let result = if x == 0.0 { f64::NEG_INFINITY } else { result };
    let result = if x < 0.0 { f64::NAN } else { result };
    if x < f64::INFINITY { result } else { x }
}

/// `log(1 + x)`, within 3 ulp.
#[inline(always)]
pub fn log1p(x: f64) -> f64 {
    let sum = 1.0 + x;
    // The rounding error of the addition, which near zero is most of the result.
    let lost = (x - (sum - 1.0)) / sum;
    let result = log(sum) + if sum > 0.0 && sum < f64::INFINITY { lost } else { 0.0 };
    if x.abs() < 1e-16 { x } else { result }
}

/// Hyperbolic tangent, within 3 ulp.
#[inline(always)]
pub fn tanh(x: f64) -> f64 {
    let magnitude = x.abs();
    let clamped = if magnitude > 19.1 { 19.1 } else { magnitude };
    let grown = expm1(2.0 * clamped);
    (grown / (grown + 2.0)).copysign(x)
}

/// `1 / (1 + e⁻ˣ)`, within 3 ulp.
#[inline(always)]
pub fn sigmoid(x: f64) -> f64 {
    let small = exp(-x.abs());
    let positive = 1.0 / (1.0 + small);
    if x < 0.0 { small * positive } else { positive }
}

/// `log(1 + eˣ)`, within 3 ulp.
#[inline(always)]
pub fn softplus(x: f64) -> f64 {
    let positive = if x < 0.0 { 0.0 } else { x };
    positive + log1p(exp(-x.abs()))
}
