//! Binomial samples: by inversion where few successes are expected, else by Hörmann's transformed rejection.

use super::Philox;
use super::gamma::Source;
use crate::parallel::{self, SharedMut};

/// The number of expected successes from which rejection is used.
const REJECTION_FROM: f64 = 10.0;

/// The samples of the stream that TensorFlow reserves for an output, by either method.
const BY_REJECTION: u64 = 256;
const BY_INVERSION: u64 = 42;

/// Writes binomial numbers: output `sample * pairs + pair` is a sample of the pair of a count and a probability.
///
/// `expected(count, probability)` multiplies in the precision of the parameters; the result selects the method.
pub fn random_binomial(
    philox: Philox,
    pairs: &[(f64, f64)],
    samples: usize,
    expected: impl Fn(f64, f64) -> f64 + Sync,
    out: &mut [f64],
) {
    assert_eq!(out.len(), pairs.len() * samples, "the output has another size than parameters times samples");
    let out = SharedMut::new(out);
    parallel::for_each_chunk(pairs.len() * samples, 400.0, |range| {
        for index in range {
            let (pair, sample) = (index / samples, index % samples);
            let (count, probability) = pairs[pair];
            let value = binomial(philox, index as u64, count, probability, &expected);
            // SAFETY: each index writes its own element.
            let place = unsafe { out.slice(sample * pairs.len() + pair, 1) };
            place[0] = value;
        }
    });
}

fn binomial(philox: Philox, index: u64, count: f64, probability: f64, expected: &impl Fn(f64, f64) -> f64) -> f64 {
    if probability.is_nan() || count.is_nan() {
        return f64::NAN;
    }
    if count <= 0.0 || probability <= 0.0 {
        return 0.0;
    }
    if probability >= 1.0 {
        return count;
    }
    if !count.is_finite() {
        return f64::NAN;
    }
    // Counts failures where they are the rarer outcome.
    let is_rare = probability <= 0.5;
    let rare = if is_rare { probability } else { 1.0 - probability };
    let rejects = expected(count, rare) >= REJECTION_FROM;
    let mut own = philox;
    own.skip(index.wrapping_mul(if rejects { BY_REJECTION } else { BY_INVERSION }));
    let mut source = Source::new(own);
    let found = if rejects { by_rejection(count, rare, &mut source) } else { by_inversion(count, rare, &mut source) };
    if is_rare { found } else { count - found }
}

/// Adds up distances between successes until they pass the last trial.
fn by_inversion(count: f64, probability: f64, source: &mut Source) -> f64 {
    let (mut trials, mut successes) = (0.0, 0.0);
    let log_failure = libm::log1p(-probability);
    loop {
        trials += (source.uniform().ln() / log_failure).ceil();
        // With a vanishing probability, every distance is infinite or NaN.
        if trials > count || trials.is_nan() {
            return successes;
        }
        successes += 1.0;
        if successes > count {
            return count;
        }
    }
}

/// Returns the error of Stirling's formula for the logarithm of a factorial.
fn stirling_rest(k: f64) -> f64 {
    const RESTS: [f64; 10] = [
        0.0810614667953272,
        0.0413406959554092,
        0.0276779256849983,
        0.02079067210376509,
        0.0166446911898211,
        0.0138761288230707,
        0.0118967099458917,
        0.0104112652619720,
        0.00925546218271273,
        0.00833056343336287,
    ];
    if k <= 9.0 {
        return RESTS[k.max(0.0) as usize];
    }
    let square = (k + 1.0) * (k + 1.0);
    (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / (k + 1.0)
}

fn by_rejection(count: f64, probability: f64, source: &mut Source) -> f64 {
    let deviation = (count * probability * (1.0 - probability)).sqrt();
    let b = 1.15 + 2.53 * deviation;
    let a = -0.0873 + 0.0248 * b + 0.01 * probability;
    let center = count * probability + 0.5;
    let tight = 0.92 - 4.2 / b;
    let odds = probability / (1.0 - probability);
    let alpha = (2.83 + 5.1 / b) * deviation;
    let mode = ((count + 1.0) * probability).floor();
    loop {
        let u = source.uniform() - 0.5;
        let v = source.uniform();
        let shifted = 0.5 - u.abs();
        let k = ((2.0 * a / shifted + b) * u + center).floor();
        if shifted >= 0.07 && v <= tight {
            return k;
        }
        if k < 0.0 || k > count {
            continue;
        }
        let v = (v * alpha / (a / (shifted * shifted) + b)).ln();
        let bound = (mode + 0.5) * ((mode + 1.0) / (odds * (count - mode + 1.0))).ln()
            + (count + 1.0) * ((count - mode + 1.0) / (count - k + 1.0)).ln()
            + (k + 0.5) * (odds * (count - k + 1.0) / (k + 1.0)).ln()
            + stirling_rest(mode)
            + stirling_rest(count - mode)
            - stirling_rest(k)
            - stirling_rest(count - k);
        if v <= bound {
            return k;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_variances_are_those_of_the_distribution() {
        for (count, probability) in [(5.0, 0.3), (20.0, 0.7), (100.0, 0.2), (1000.0, 0.5), (40.0, 0.9)] {
            let samples = 20_000;
            let mut out = vec![0.0; samples];
            random_binomial(Philox::new(7), &[(count, probability)], samples, |a, b| a * b, &mut out);
            let mean = out.iter().sum::<f64>() / samples as f64;
            let variance = out.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / samples as f64;
            let (true_mean, true_variance) = (count * probability, count * probability * (1.0 - probability));
            assert!((mean - true_mean).abs() < 0.05 * true_variance.sqrt(), "{count} {probability}: mean {mean}");
            assert!((variance / true_variance - 1.0).abs() < 0.05, "{count} {probability}: variance {variance}");
            assert!(out.iter().all(|&x| (0.0..=count).contains(&x) && x.fract() == 0.0));
        }
    }

    #[test]
    fn parameters_at_the_edges_end() {
        let pairs =
            [(0.0, 0.5), (-1.0, 0.5), (3.0, 0.0), (3.0, 1.5), (f64::INFINITY, 0.5), (3.0, f64::NAN), (4.0, 1e-300)];
        let mut out = vec![9.0; pairs.len()];
        random_binomial(Philox::new(1), &pairs, 1, |a, b| a * b, &mut out);
        assert_eq!(out[..4], [0.0, 0.0, 0.0, 3.0]);
        assert!(out[4].is_nan() && out[5].is_nan());
        assert_eq!(out[6], 0.0);
    }
}
