//! Batch normalization over the last axis, as TensorFlow's fused op computes it: training, inference and both gradients.

use crate::float::Float;
use crate::parallel::{self, SharedMut};
use crate::simd_math::SimdMath;
use cpu_macros::each_level;

/// The rows in one part of a sum. Fixed, so that the result does not depend on the number of threads.
const PART_ROWS: usize = 1024;
/// Rows that are summed in single precision before they are added to the double-precision total.
const BLOCK_ROWS: usize = 64;

/// Mean and variance of each channel. The variance is the batch's own, not an estimate of the population's.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// Means.
    pub mean: Vec<f32>,
    /// Variances.
    pub variance: Vec<f32>,
}

impl Moments {
    /// Returns the factor that turns the variance of a batch into an estimate of the population's (Bessel's correction).
    pub fn population_factor(rows: usize) -> f32 {
        rows as f32 / rows.saturating_sub(1).max(1) as f32
    }
}

/// What is applied after the normalization.
#[derive(Clone, Copy, Default)]
pub struct Finish<'a, T> {
    /// Added before the activation.
    pub side_input: Option<&'a [T]>,
    /// Whether to apply `Relu`.
    pub relu: bool,
}

/// The gradients of a normalization.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterGradients {
    /// Of the scale.
    pub scale: Vec<f32>,
    /// Of the offset.
    pub offset: Vec<f32>,
}

/// Normalizes with the batch's own moments, and returns them.
pub fn batch_norm_training<T: Float<Wide = f32>>(
    x: &[T],
    scale: &[f32],
    offset: &[f32],
    epsilon: f32,
    finish: Finish<'_, T>,
    y: &mut [T],
) -> Moments {
    let moments = moments(x, scale.len());
    batch_norm_inference(x, scale, offset, &moments.mean, &moments.variance, epsilon, finish, y);
    moments
}

/// Normalizes with given moments.
pub fn batch_norm_inference<T: Float<Wide = f32>>(
    x: &[T],
    scale: &[f32],
    offset: &[f32],
    mean: &[f32],
    variance: &[f32],
    epsilon: f32,
    finish: Finish<'_, T>,
    y: &mut [T],
) {
    let channels = scale.len();
    check(x.len(), channels, &[offset.len(), mean.len(), variance.len()]);
    assert_eq!(x.len(), y.len(), "input and output differ in length");
    if let Some(side) = finish.side_input {
        assert_eq!(side.len(), x.len(), "the side input has another size than the input");
    }
    if x.is_empty() {
        return;
    }
    let factor: Vec<f32> =
        scale.iter().zip(variance).map(|(&scale, &variance)| scale * (variance + epsilon).simd_rsqrt()).collect();
    parallel::for_each_chunk_mut(y, channels, 0.5 * channels as f64, |first, y| {
        let start = first * channels;
        let side = finish.side_input.map(|side| &side[start..start + y.len()]);
        normalize_rows(&x[start..start + y.len()], mean, &factor, offset, side, finish.relu, y);
    });
}

/// Computes the gradients of a training normalization: writes that of the input, and returns those of the parameters.
/// `moments` are the batch's.
pub fn batch_norm_training_grad<T: Float<Wide = f32>>(
    gradient: &[T],
    x: &[T],
    scale: &[f32],
    moments: &Moments,
    epsilon: f32,
    x_grad: &mut [T],
) -> ParameterGradients {
    let channels = scale.len();
    let rows = x.len().checked_div(channels).unwrap_or(0) as f32;
    let (mean, variance) = (&moments.mean, &moments.variance);
    let sums = gradient_sums(gradient, x, mean, channels);
    let inverse: Vec<f32> = variance.iter().map(|&variance| (variance + epsilon).simd_rsqrt()).collect();
    assert_eq!(x_grad.len(), x.len(), "the gradient of the input has another size than the input");
    if !x.is_empty() {
        // Each channel's formula is `a * gradient + b * x + c`.
        let mut coefficients = vec![[0.0f32; 3]; channels];
        for channel in 0..channels {
            let a = scale[channel] * inverse[channel];
            let mean_gradient = sums[0][channel] as f32 / rows;
            let mean_product = sums[1][channel] as f32 / rows;
            let b = -a * inverse[channel] * inverse[channel] * mean_product;
            coefficients[channel] = [a, b, -a * mean_gradient];
        }
        parallel::for_each_chunk_mut(x_grad, channels, 0.6 * channels as f64, |first, out| {
            let own = first * channels..first * channels + out.len();
            combine_rows(&gradient[own.clone()], &x[own], mean, &coefficients, out);
        });
    }
    parameter_gradients(&sums, &inverse)
}

/// Computes the gradients of an inference normalization, whose moments are constants.
pub fn batch_norm_inference_grad<T: Float<Wide = f32>>(
    gradient: &[T],
    x: &[T],
    scale: &[f32],
    mean: &[f32],
    variance: &[f32],
    epsilon: f32,
    x_grad: &mut [T],
) -> ParameterGradients {
    let channels = scale.len();
    let sums = gradient_sums(gradient, x, mean, channels);
    let inverse: Vec<f32> = variance.iter().map(|&variance| (variance + epsilon).simd_rsqrt()).collect();
    assert_eq!(x_grad.len(), x.len(), "the gradient of the input has another size than the input");
    if !x.is_empty() {
        let factor: Vec<f32> = scale.iter().zip(&inverse).map(|(&scale, &inverse)| scale * inverse).collect();
        let zeros = vec![0.0; channels];
        parallel::for_each_chunk_mut(x_grad, channels, 0.5 * channels as f64, |first, out| {
            let start = first * channels;
            normalize_rows(&gradient[start..start + out.len()], &zeros, &factor, &zeros, None, false, out);
        });
    }
    parameter_gradients(&sums, &inverse)
}

/// Returns mean and variance of each channel.
pub fn moments<T: Float<Wide = f32>>(x: &[T], channels: usize) -> Moments {
    check(x.len(), channels, &[]);
    let rows = x.len().checked_div(channels).unwrap_or(0);
    let of_rows = |sum: &f64| (sum / rows.max(1) as f64) as f32;
    let [sums] = column_sums(rows, channels, |row, [sums]: [&mut [f32]; 1]| {
        for (sum, value) in sums.iter_mut().zip(&x[row * channels..]) {
            *sum += value.widen();
        }
    });
    let mean: Vec<f32> = sums.iter().map(of_rows).collect();
    let [sums] = column_sums(rows, channels, |row, [sums]: [&mut [f32]; 1]| {
        for ((sum, value), &mean) in sums.iter_mut().zip(&x[row * channels..]).zip(&mean) {
            let centered = value.widen() - mean;
            *sum += centered * centered;
        }
    });
    let variance = sums.iter().map(of_rows).collect();
    Moments { mean, variance }
}

/// Returns for each channel the sum of the gradient, and of the gradient times the centered input.
fn gradient_sums<T: Float<Wide = f32>>(gradient: &[T], x: &[T], mean: &[f32], channels: usize) -> [Vec<f64>; 2] {
    check(x.len(), channels, &[mean.len()]);
    assert_eq!(gradient.len(), x.len(), "gradient and input differ in length");
    let rows = x.len().checked_div(channels).unwrap_or(0);
    column_sums(rows, channels, |row, [sums, products]: [&mut [f32]; 2]| {
        let own = row * channels..(row + 1) * channels;
        let values = gradient[own.clone()].iter().zip(&x[own]).zip(mean);
        for ((sum, product), ((gradient, value), &mean)) in sums.iter_mut().zip(products).zip(values) {
            let gradient = gradient.widen();
            *sum += gradient;
            *product += gradient * (value.widen() - mean);
        }
    })
}

fn parameter_gradients(sums: &[Vec<f64>; 2], inverse: &[f32]) -> ParameterGradients {
    ParameterGradients {
        scale: sums[1].iter().zip(inverse).map(|(&sum, &inverse)| (sum * f64::from(inverse)) as f32).collect(),
        offset: sums[0].iter().map(|&sum| sum as f32).collect(),
    }
}

fn check(len: usize, channels: usize, others: &[usize]) {
    assert!(channels > 0 || len == 0, "a normalization without channels");
    assert!(channels == 0 || len.is_multiple_of(channels), "the input is not a whole number of rows");
    assert!(others.iter().all(|&other| other == channels), "parameters differ in length");
}

/// Sums `K` values for each channel over all rows; `add(row, sums)` adds those of one row.
fn column_sums<const K: usize>(
    rows: usize,
    channels: usize,
    add: impl Fn(usize, [&mut [f32]; K]) + Sync,
) -> [Vec<f64>; K] {
    let parts = rows.div_ceil(PART_ROWS).max(1);
    let mut totals = vec![0.0f64; parts * K * channels];
    let shared = SharedMut::new(&mut totals);
    parallel::for_each_chunk(parts, 0.4 * (K * channels * rows.min(PART_ROWS)) as f64, |range| {
        for part in range {
            // SAFETY: each part writes its own totals.
            let totals = unsafe { shared.slice(part * K * channels, K * channels) };
            add_rows(part * PART_ROWS..((part + 1) * PART_ROWS).min(rows), channels, totals, &add);
        }
    });
    std::array::from_fn(|kind| {
        (0..channels)
            .map(|channel| (0..parts).map(|part| totals[(part * K + kind) * channels + channel]).sum())
            .collect()
    })
}

#[each_level]
fn add_rows<const K: usize, F: Fn(usize, [&mut [f32]; K])>(
    rows: std::ops::Range<usize>,
    channels: usize,
    totals: &mut [f64],
    add: &F,
) {
    let mut lanes: [Vec<f32>; K] = std::array::from_fn(|_| vec![0.0; channels]);
    let mut row = rows.start;
    while row < rows.end {
        let block_end = (row + BLOCK_ROWS).min(rows.end);
        while row < block_end {
            add(row, lanes.each_mut().map(|lane| lane.as_mut_slice()));
            row += 1;
        }
        for (total, lanes) in totals.chunks_exact_mut(channels.max(1)).zip(&mut lanes) {
            for (total, lane) in total.iter_mut().zip(lanes) {
                *total += f64::from(*lane);
                *lane = 0.0;
            }
        }
    }
}

#[each_level]
fn normalize_rows<T: Float<Wide = f32>>(
    x: &[T],
    mean: &[f32],
    factor: &[f32],
    offset: &[f32],
    side: Option<&[T]>,
    relu: bool,
    y: &mut [T],
) {
    let channels = mean.len();
    for (row, (x, y)) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)).enumerate() {
        for channel in 0..channels {
            y[channel] = T::narrow((x[channel].widen() - mean[channel]) * factor[channel] + offset[channel]);
        }
        if let Some(side) = side {
            for (y, side) in y.iter_mut().zip(&side[row * channels..]) {
                *y = T::narrow(y.widen() + side.widen());
            }
        }
        if relu {
            for y in y.iter_mut() {
                let value = y.widen();
                *y = T::narrow(if value <= 0.0 { 0.0 } else { value });
            }
        }
    }
}

#[each_level]
fn combine_rows<T: Float<Wide = f32>>(gradient: &[T], x: &[T], mean: &[f32], coefficients: &[[f32; 3]], out: &mut [T]) {
    let channels = mean.len();
    let rows = gradient.chunks_exact(channels).zip(x.chunks_exact(channels)).zip(out.chunks_exact_mut(channels));
    for ((gradient, x), out) in rows {
        for channel in 0..channels {
            let [a, b, c] = coefficients[channel];
            let centered = x[channel].widen() - mean[channel];
            out[channel] = T::narrow(a * gradient[channel].widen() + b * centered + c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    const CHANNELS: usize = 3;

    fn inputs(rows: usize) -> (Vec<f32>, Vec<f32>) {
        let x = (0..rows * CHANNELS).map(|i| ((i * 7919) % 101) as f32 / 20.0 + (i % CHANNELS) as f32).collect();
        let gradient = (0..rows * CHANNELS).map(|i| ((i * 104_729) % 97) as f32 / 50.0 - 1.0).collect();
        (x, gradient)
    }

    /// The normalization in double precision; its gradients are finite differences of `Σ gradient · y`.
    fn slow(x: &[f64], scale: &[f64], offset: &[f64], epsilon: f64) -> Vec<f64> {
        let rows = x.len() / CHANNELS;
        let mut y = vec![0.0; x.len()];
        for channel in 0..CHANNELS {
            let values = || (0..rows).map(|row| x[row * CHANNELS + channel]);
            let mean = values().sum::<f64>() / rows as f64;
            let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / rows as f64;
            for row in 0..rows {
                let at = row * CHANNELS + channel;
                y[at] = (x[at] - mean) / (variance + epsilon).sqrt() * scale[channel] + offset[channel];
            }
        }
        y
    }

    const SCALE: [f32; CHANNELS] = [1.5, 0.5, -2.0];
    const OFFSET: [f32; CHANNELS] = [0.1, 0.0, 3.0];

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().map(|&value| f64::from(value)).collect()
    }

    #[test]
    fn training_normalizes_each_channel() {
        for rows in [1, 2, 50, 5000] {
            let (x, _) = inputs(rows);
            let mut y = vec![0.0f32; x.len()];
            let moments = batch_norm_training(&x, &SCALE, &OFFSET, 1e-3, Finish::default(), &mut y);
            let expected = slow(&wide(&x), &wide(&SCALE), &wide(&OFFSET), 1e-3);
            assert!(y.iter().zip(&expected).all(|(&y, &expected)| (f64::from(y) - expected).abs() < 1e-4), "{rows}");
            let mean = x.iter().step_by(CHANNELS).map(|&value| f64::from(value)).sum::<f64>() / rows as f64;
            assert!((f64::from(moments.mean[0]) - mean).abs() < 1e-5);
        }
    }

    #[test]
    fn training_gradients_equal_differences() {
        let rows = 7;
        let (x, gradient) = inputs(rows);
        let moments = moments(&x, CHANNELS);
        let mut x_grad = vec![0.0f32; x.len()];
        let parameters = batch_norm_training_grad(&gradient, &x, &SCALE, &moments, 1e-3, &mut x_grad);
        let loss = |x: &[f64], scale: &[f64], offset: &[f64]| -> f64 {
            slow(x, scale, offset, 1e-3).iter().zip(&gradient).map(|(y, &g)| y * f64::from(g)).sum()
        };
        let (x, scale, offset) = (wide(&x), wide(&SCALE), wide(&OFFSET));
        let difference = |at: usize, of: usize| {
            let step = 1e-5;
            let at_distance = |distance: f64| {
                let mut all = [x.clone(), scale.clone(), offset.clone()];
                all[of][at] += distance;
                loss(&all[0], &all[1], &all[2])
            };
            (at_distance(step) - at_distance(-step)) / (2.0 * step)
        };
        for at in 0..x.len() {
            assert!((f64::from(x_grad[at]) - difference(at, 0)).abs() < 1e-4, "input {at}");
        }
        for channel in 0..CHANNELS {
            assert!((f64::from(parameters.scale[channel]) - difference(channel, 1)).abs() < 1e-4);
            assert!((f64::from(parameters.offset[channel]) - difference(channel, 2)).abs() < 1e-4);
        }
    }

    #[test]
    fn inference_uses_the_given_moments() {
        let (mean, variance) = ([1.0f32, 2.0, 0.0], [4.0f32, 1.0, 0.25]);
        let x = [3.0f32, 2.0, 1.0, 1.0, 3.0, 0.0];
        let mut y = [0.0f32; 6];
        batch_norm_inference(&x, &SCALE, &OFFSET, &mean, &variance, 0.0, Finish::default(), &mut y);
        assert_eq!(y, [1.6, 0.0, -1.0, 0.1, 0.5, 3.0]);
        let side = [1.0f32; 6];
        let finish = Finish { side_input: Some(&side), relu: true };
        batch_norm_inference(&x, &SCALE, &OFFSET, &mean, &variance, 0.0, finish, &mut y);
        assert_eq!(y, [2.6, 1.0, 0.0, 1.1, 1.5, 4.0]);
        let gradient = [1.0f32, 2.0, 3.0, 1.0, -2.0, 0.5];
        let mut x_grad = [0.0f32; 6];
        let parameters = batch_norm_inference_grad(&gradient, &x, &SCALE, &mean, &variance, 0.0, &mut x_grad);
        assert_eq!(x_grad, [0.75, 1.0, -12.0, 0.75, -1.0, -2.0]);
        assert_eq!(parameters.offset, [2.0, 0.0, 3.5]);
        assert_eq!(parameters.scale, [1.0, -2.0, 6.0]);
    }

    #[test]
    fn halves_and_nothing() {
        let x = [f16::from_f32(1.0), f16::from_f32(3.0)];
        let mut y = [f16::ZERO; 2];
        let moments = batch_norm_training(&x, &[1.0], &[0.0], 0.0, Finish::default(), &mut y);
        assert_eq!(y, [f16::from_f32(-1.0), f16::from_f32(1.0)]);
        assert_eq!(moments, Moments { mean: vec![2.0], variance: vec![1.0] });
        let none: [f32; 0] = [];
        batch_norm_training(&none, &[1.0], &[0.0], 0.0, Finish::default(), &mut []);
        assert_eq!(Moments::population_factor(1), 1.0);
        assert_eq!(Moments::population_factor(4), 4.0 / 3.0);
    }
}
