//! Elementary functions of `f32` without branches or calls, so that loops around them vectorise.
//!
//! Functions that are hard to compute in single precision use those of `double`.

use super::double;
use super::polynomial;

/// Adding this rounds to an integer, which is then in the low bits.
const ROUND: f32 = 12_582_912.0;
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `(exp(r) - 1 - r) / r²` for |r| ≤ ln 2 / 2, with an error of 3e-9 in `exp`.
const EXP: [f32; 5] = [0.499_999_93, 0.166_665_2, 0.041_668_387, 0.008_368_71, 0.001_381_465_3];

/// `(log(1 + f) - f + f² / 2) / f³` between √½ - 1 and √2 - 1.
const LOG: [f32; 9] = [
    0.333_333_1,
    -0.249_999_87,
    0.200_022_26,
    -0.166_692_52,
    0.142_186_66,
    -0.123_843_37,
    0.118_729_16,
    -0.117_898_48,
    0.069_155_4,
];

/// Splits `x = n ln 2 + r` and returns `n` and `exp(r) - 1`.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let less_one = (r * r).mul_add(polynomial(r, &EXP), r);
    (shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32, less_one)
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `eˣ`, within 1 ulp.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let low = if x < -104.0 { -104.0 } else { x };
    let clamped = if low > 89.0 { 89.0 } else { low };
    let (n, less_one) = reduce(clamped);
    // Scales by two factors, since 2ⁿ may be out of range where the result is not.
    let half = n >> 1;
    (less_one + 1.0) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `eˣ - 1`, within 2 ulp.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let low = if x < -20.0 { -20.0 } else { x };
    let clamped = if low > 89.0 { 89.0 } else { low };
    let (n, less_one) = reduce(clamped);
    let half_scale = power_of_two(n.wrapping_sub(1));
    let result = 2.0 * half_scale.mul_add(less_one, half_scale - 0.5);
    if x.abs() < 1e-7 { x } else { result }
}

/// Natural logarithm, within 2 ulp.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    const SUBNORMAL_SCALE: f32 = 33_554_432.0;
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * SUBNORMAL_SCALE } else { x };
    let bits = scaled.to_bits() as i32;
    let exponent = bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(exponent << 23) as u32) - 1.0;
    let k = exponent as f32 - if subnormal { 25.0 } else { 0.0 };
    let square = f * f;
    let tail = (square * f).mul_add(polynomial(f, &LOG), k * LN2_LOW);
    let result = k.mul_add(LN2_HIGH, square.mul_add(-0.5, tail) + f);
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    let result = if x < 0.0 { f32::NAN } else { result };
    // Infinity and NaN are their own logarithm.
    if x < f32::INFINITY { result } else { x }
}

/// `log(1 + x)`, within 2 ulp.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let sum = 1.0 + x;
    // The rounding error of the addition, which near zero is most of the result.
    let lost = (x - (sum - 1.0)) / sum;
    let result = log(sum) + if sum > 0.0 && sum < f32::INFINITY { lost } else { 0.0 };
    // Keeps the sign of zero, and subnormals.
    if x.abs() < 1e-10 { x } else { result }
}

/// Hyperbolic tangent, within 3 ulp.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let magnitude = x.abs();
    let clamped = if magnitude > 9.02 { 9.02 } else { magnitude };
    let grown = expm1(2.0 * clamped);
    (grown / (grown + 2.0)).copysign(x)
}

/// `1 / (1 + e⁻ˣ)`, within 3 ulp.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let small = exp(-x.abs());
    let positive = 1.0 / (1.0 + small);
    if x < 0.0 { small * positive } else { positive }
}

/// `log(1 + eˣ)`, within 2 ulp.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let positive = if x < 0.0 { 0.0 } else { x };
    // NaN passes through `positive`.
    positive + log1p(exp(-x.abs()))
}

/// The error function, within 2 ulp.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let near_zero = x.mul_add(polynomial(x * x, &ERF_LESS_ONE), x);
    // Beyond 4 the result is one in single precision.
    let magnitude = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let far = (1.0 - exp(-magnitude * magnitude) * polynomial(magnitude, &SCALED_ERFC)).copysign(x);
    if magnitude < 0.75 { near_zero } else { far }
}

/// `erf(x) / x - 1` as a polynomial of `x²` for |x| ≤ 0.75. Subtracting the one, whose product with `x` is exact, reduces the
/// rounding error.
const ERF_LESS_ONE: [f32; 6] =
    [0.128_379_15, -0.376_125_8, 0.112_828_38, -0.026_807_904, 0.005_060_663, -0.000_637_435_6];

/// `erfc(x) exp(x²)` as a polynomial for x between 0.75 and 4, as accurate as its product with `exp(-x²)` needs.
const SCALED_ERFC: [f32; 10] = [
    0.998_154,
    -1.113_708,
    0.947_656_04,
    -0.640_856_9,
    0.341_085,
    -0.138_198_32,
    0.040_617_85,
    -0.008_079_132,
    0.000_965_130_4,
    -5.1975727e-05,
];

/// The complement of the error function, within 1 ulp.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    let wide = f64::from(x);
    let near_zero = 1.0 - wide * polynomial(wide * wide, &ERF);
    let positive = erfc_of_positive(wide.abs());
    let far = if wide < 0.0 { 2.0 - positive } else { positive };
    (if wide.abs() < 0.75 { near_zero } else { far }) as f32
}

/// `erf(x) / x` as a polynomial of `x²` for |x| ≤ 0.75.
const ERF: [f64; 8] = [
    1.128_379_167_095_083_7,
    -0.376_126_388_935_636_3,
    0.112_837_913_150_333_64,
    -0.026_866_120_255_372_67,
    0.005_223_625_665_824_322,
    -0.000_853_489_599_015_991,
    0.000_117_684_649_067_987_9,
    -0.000_011_659_532_876_381_658,
];

/// `log(erfc(x) exp(x²) / t)` as a polynomial of `t = 2 / (2 + x)` for x between 0.5 and 10.5.
const LOG_ERFC: [f64; 12] = [
    -1.265_510_774_661_840_5,
    0.999_942_168_217_571_1,
    0.376_073_996_848_559_87,
    0.071_843_331_608_447_64,
    -0.006_835_986_976_178_073,
    -0.513_014_827_083_569_5,
    1.102_634_267_093_487_8,
    -2.640_552_640_085_417_4,
    4.128_164_196_410_837,
    -3.546_648_932_445_109,
    1.589_116_834_756_928_9,
    -0.295_227_847_000_051_3,
];

#[inline(always)]
fn erfc_of_positive(x: f64) -> f64 {
    // Beyond 10.5 the result is zero in single precision.
    let x = if x > 10.5 { 10.5 } else { x };
    let t = 2.0 / (2.0 + x);
    t * double::exp((-x).mul_add(x, polynomial(t, &LOG_ERFC)))
}

/// `xʸ`, within 1 ulp, with the special cases of C's `pow`.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let magnitude = double::exp(f64::from(y) * double::log(f64::from(x.abs()))) as f32;
    let magnitude = if x.abs() == 1.0 && !y.is_nan() { 1.0 } else { magnitude };
    // Adding 2²³ rounds to an integer; every float of that size is one, and every float of 2²⁴ and more is even. No conversion to
    // integers, which would have to be checked lane by lane.
    const ROUND_MAGNITUDE: f32 = 8_388_608.0;
    let size = y.abs();
    let half = 0.5 * size;
    let is_integer = size >= ROUND_MAGNITUDE || (size + ROUND_MAGNITUDE) - ROUND_MAGNITUDE == size;
    let is_half_integer = half >= ROUND_MAGNITUDE || (half + ROUND_MAGNITUDE) - ROUND_MAGNITUDE == half;
    let is_odd = is_integer & !is_half_integer;
    let signed = if x.is_sign_negative() & is_odd { -magnitude } else { magnitude };
    let is_undefined = x < 0.0 && x > f32::NEG_INFINITY && !is_integer;
    let result = if is_undefined { f32::NAN } else { signed };
    if y == 0.0 || x == 1.0 { 1.0 } else { result }
}

/// The largest magnitude that [`sin`] and [`cos`] reduce accurately.
pub(super) const TRIGONOMETRIC_RANGE: f32 = 1e9;

/// Sine, within 1 ulp for |x| ≤ 1e9.
#[inline(always)]
pub(super) fn sin(x: f32) -> f32 {
    let (quadrant, sine, cosine) = sine_and_cosine(f64::from(x));
    let value = if quadrant & 1 == 0 { sine } else { cosine } as f32;
    let signed = if quadrant & 2 == 0 { value } else { -value };
    // Keeps the sign of zero.
    if x == 0.0 { x } else { signed }
}

/// Cosine, within 1 ulp for |x| ≤ 1e9.
#[inline(always)]
pub(super) fn cos(x: f32) -> f32 {
    let (quadrant, sine, cosine) = sine_and_cosine(f64::from(x));
    let value = if quadrant & 1 == 0 { cosine } else { sine } as f32;
    if quadrant.wrapping_add(1) & 2 == 0 { value } else { -value }
}

/// Reduces to |r| ≤ π/4 and returns the quadrant and both functions of `r`, with errors below 1e-11.
#[inline(always)]
fn sine_and_cosine(x: f64) -> (u64, f64, f64) {
    const SIN: [f64; 4] =
        [-0.166_666_666_416_175_07, 0.008_333_329_384_776_131, -0.000_198_393_344_668_047_27, 2.718_307_906_041_028e-6];
    const COS: [f64; 4] = [
        0.041_666_666_622_810_82,
        -0.001_388_888_375_190_904,
        0.000_024_799_519_607_560_232,
        -2.721_020_417_300_851e-7,
    ];
    const HALF_PI_LOW: f64 = 6.123_233_995_736_766e-17;
    let shifted = x.mul_add(std::f64::consts::FRAC_2_PI, double::ROUND);
    let n = shifted - double::ROUND;
    let r = n.mul_add(-HALF_PI_LOW, n.mul_add(-std::f64::consts::FRAC_PI_2, x));
    let square = r * r;
    let sine = (r * square).mul_add(polynomial(square, &SIN), r);
    let cosine = (square * square).mul_add(polynomial(square, &COS), square.mul_add(-0.5, 1.0));
    (shifted.to_bits(), sine, cosine)
}
