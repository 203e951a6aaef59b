//! Every function against `f64` from the standard library, over all exponents, and at the special values.

use super::*;

/// The distance of `value` from `exact` in units in the last place of `f32`.
fn ulps(value: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if value.is_nan() && rounded.is_nan() || value == rounded {
        return 0.0;
    }
    if !value.is_finite() || !rounded.is_finite() {
        return f64::INFINITY;
    }
    let exponent = rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23;
    let unit = 2f64.powi(exponent as i32 - 150);
    (f64::from(value) - exact).abs() / unit
}

/// Floats of every exponent and sign, and all special values.
fn samples() -> Vec<f32> {
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-45, -1e-45];
    (0..=u32::MAX)
        .step_by(4001)
        .map(f32::from_bits)
        .chain(special)
        .chain((-2000..2000).map(|i| i as f32 / 97.0))
        .collect()
}

fn check(name: &str, most_ulps: f64, function: impl Fn(&[f32], &mut [f32]), exact: impl Fn(f64) -> f64) {
    let x = samples();
    let mut y = vec![0.0; x.len()];
    function(&x, &mut y);
    let mut worst = (0.0, 0.0);
    for (&x, &y) in x.iter().zip(&y) {
        let error = ulps(y, exact(f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    assert!(worst.0 <= most_ulps, "{name} is off by {} ulp at {:e}", worst.0, worst.1);
    let zeros = [0.0f32, -0.0];
    let mut at_zeros = [1.0f32; 2];
    function(&zeros, &mut at_zeros);
    for (zero, value) in zeros.iter().zip(at_zeros) {
        assert_eq!(value.to_bits(), (exact(f64::from(*zero)) as f32).to_bits(), "{name} of {zero:?}");
    }
}

#[test]
fn single_precision_functions_are_accurate() {
    check("exp", 1.1, exp, f64::exp);
    check("expm1", 2.0, expm1, f64::exp_m1);
    check("log", 1.5, log, f64::ln);
    check("log1p", 2.0, log1p, f64::ln_1p);
    check("tanh", 3.0, tanh, f64::tanh);
    check("sigmoid", 3.0, sigmoid, |x| 1.0 / (1.0 + (-x).exp()));
    check("softplus", 2.0, softplus, |x| if x > 30.0 { x } else { x.exp().ln_1p() });
    check("rsqrt", 1.5, rsqrt, |x| 1.0 / x.sqrt());
    check("sqrt", 0.51, sqrt, f64::sqrt);
    check("erf", 2.0, erf, libm::erf);
    check("erfc", 1.0, erfc, libm::erfc);
    check("sin", 1.0, sin, f64::sin);
    check("cos", 1.0, cos, f64::cos);
}

#[test]
fn power_follows_c() {
    let bases = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        1.7,
        1e30,
        1e-40,
        -3.3,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let exponents = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        1e-3,
        33.3,
        1e9,
        16_777_215.0,
        -16_777_215.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for x in bases {
        for y in exponents {
            let value = x.simd_pow(y);
            let exact = f64::from(x).powf(f64::from(y));
            assert!(ulps(value, exact) <= 1.0, "{x:e} to the {y:e} is {value:e}");
            assert!(
                value.is_nan() || value.is_sign_negative() == exact.is_sign_negative(),
                "sign of {x:e} to the {y:e}"
            );
        }
    }
    for i in 1..5000 {
        let (x, y) = (i as f32 * 0.0173, ((i * 37) % 200) as f32 * 0.11 - 11.0);
        let error = ulps(x.simd_pow(y), f64::from(x).powf(f64::from(y)));
        assert!(error <= 1.0, "{x} to the {y} is off by {error} ulp");
    }
}

/// The distance in units in the last place of `f64`, from a value that is itself rounded.
fn ulps_of_double(value: f64, expected: f64) -> u64 {
    if value.is_nan() && expected.is_nan() || value == expected {
        return 0;
    }
    if value.is_nan() || expected.is_nan() || value.is_sign_negative() != expected.is_sign_negative() {
        return u64::MAX;
    }
    value.to_bits().abs_diff(expected.to_bits())
}

#[test]
fn double_precision_functions_are_accurate() {
    let functions: &[(&str, u64, fn(f64) -> f64, fn(f64) -> f64)] = &[
        ("exp", 2, double::exp, f64::exp),
        ("expm1", 3, double::expm1, f64::exp_m1),
        ("log", 2, double::log, f64::ln),
        ("log1p", 4, double::log1p, f64::ln_1p),
        ("tanh", 4, double::tanh, f64::tanh),
        ("sigmoid", 4, double::sigmoid, |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }),
        ("softplus", 5, double::softplus, |x| if x > 40.0 { x } else { x.exp().ln_1p() }),
    ];
    let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MIN_POSITIVE, 5e-324];
    let step = u64::MAX / 400_000;
    for (name, most, function, expected) in functions {
        let spread = (0..400_000u64).map(|i| f64::from_bits(i * step));
        let near = (-40_000..40_000).map(|i| f64::from(i) / 1731.0);
        for x in spread.chain(near).chain(special) {
            let error = ulps_of_double(function(x), expected(x));
            assert!(error <= *most, "{name} of {x:e} is {:e}, off by {error} ulp", function(x));
        }
    }
}

#[test]
fn halves_go_through_single_precision() {
    let x = [f16::from_f32(0.5), f16::from_f32(-2.0)];
    let mut y = x;
    tanh_in_place(&mut y);
    assert_eq!(y, x.map(|x| f16::from_f32(x.to_f32().tanh())));
    assert_eq!(bf16::from_f32(3.0).simd_log(), bf16::from_f32(3f32.ln()));
}
