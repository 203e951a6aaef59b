//! Gamma and Poisson samples by rejection. Each output has its own part of the stream.

use super::distributions::{normal_pair_f64, unit_f64};
use super::{Philox, RESERVED_PER_OUTPUT};
use crate::parallel::{self, SharedMut};

/// Writes `samples` gamma numbers for each shape parameter: row `i` of the output holds sample `i` of every parameter.
pub fn random_gamma(philox: Philox, alphas: &[f64], samples: usize, out: &mut [f64]) {
    by_output(philox, alphas, samples, 150.0, out, gamma);
}

/// Writes `samples` Poisson numbers for each rate: row `i` of the output holds sample `i` of every rate.
pub fn random_poisson(philox: Philox, rates: &[f64], samples: usize, out: &mut [f64]) {
    by_output(philox, rates, samples, 300.0, out, poisson);
}

fn by_output(
    philox: Philox,
    parameters: &[f64],
    samples: usize,
    cost_ns: f64,
    out: &mut [f64],
    draw: impl Fn(f64, &mut Source) -> f64 + Sync,
) {
    assert_eq!(out.len(), parameters.len() * samples, "the output has another size than parameters times samples");
    let out = SharedMut::new(out);
    parallel::for_each_chunk(parameters.len() * samples, cost_ns, |range| {
        for index in range {
            let mut own = philox;
            own.skip((index as u64).wrapping_mul(RESERVED_PER_OUTPUT));
            let (parameter, sample) = (index / samples, index % samples);
            let value = draw(parameters[parameter], &mut Source::new(own));
            // SAFETY: each index writes its own element.
            let place = unsafe { out.slice(sample * parameters.len() + parameter, 1) };
            place[0] = value;
        }
    });
}

/// Normal and uniform numbers from one stream; a sample gives two of either kind, and the second one is used first.
pub(super) struct Source {
    philox: Philox,
    normals: Vec2,
    uniforms: Vec2,
}

#[derive(Default)]
struct Vec2 {
    values: [f64; 2],
    remaining: usize,
}

impl Vec2 {
    fn next(&mut self, refill: impl FnOnce() -> [f64; 2]) -> f64 {
        if self.remaining == 0 {
            *self = Vec2 { values: refill(), remaining: 2 };
        }
        self.remaining -= 1;
        self.values[self.remaining]
    }
}

impl Source {
    pub(super) fn new(philox: Philox) -> Self {
        Source { philox, normals: Vec2::default(), uniforms: Vec2::default() }
    }

    fn normal(&mut self) -> f64 {
        self.normals.next(|| normal_pair_f64(self.philox.next_sample()))
    }

    pub(super) fn uniform(&mut self) -> f64 {
        self.uniforms.next(|| {
            let [a, b, c, d] = self.philox.next_sample();
            [unit_f64(a, b), unit_f64(c, d)]
        })
    }
}

/// The method of Marsaglia and Tsang.
fn gamma(alpha: f64, source: &mut Source) -> f64 {
    // For a parameter of 1 the distribution is exponential.
    if alpha == 1.0 {
        return -libm::log1p(-source.uniform());
    }
    let small = alpha < 1.0;
    let d = alpha + if small { 2.0 / 3.0 } else { -1.0 / 3.0 };
    let c = 1.0 / 3.0 / d.sqrt();
    loop {
        let x = source.normal();
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        let u = source.uniform();
        if u < 1.0 - 0.0331 * (x * x) * (x * x) || u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            let boost = if small {
                let b = source.uniform();
                if b == 0.0 { 0.0 } else { b.powf(1.0 / alpha) }
            } else {
                1.0
            };
            return d * v * boost;
        }
        // NaN would never be accepted; TensorFlow returns it instead of looping forever.
        if alpha.is_nan() {
            return f64::NAN;
        }
    }
}

/// Knuth's method for small rates, Hörmann's transformed rejection for others.
fn poisson(rate: f64, source: &mut Source) -> f64 {
    if !rate.is_finite() || rate < 0.0 {
        return f64::NAN;
    }
    if rate < 10.0 {
        let limit = (-rate).exp();
        let mut product = 1.0;
        let mut count = 0.0;
        loop {
            product *= source.uniform();
            if product <= limit {
                return count;
            }
            count += 1.0;
        }
    }
    let log_rate = rate.ln();
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    loop {
        let u = source.uniform() - 0.5;
        let v = source.uniform();
        let shifted = 0.5 - u.abs();
        let k = ((2.0 * a / shifted + b) * u + rate + 0.43).floor();
        if k > f64::from(f32::MAX) {
            continue;
        }
        if shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2.0) {
            return k;
        }
        if k < 0.0 || (shifted < 0.013 && v > shifted) {
            continue;
        }
        let s = (v * inverse_alpha / (a / (shifted * shifted) + b)).ln();
        let t = -rate + k * log_rate - libm::lgamma(k + 1.0);
        if s <= t {
            return k;
        }
    }
}
