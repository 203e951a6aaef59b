//! Softmax over rows, its logarithm, and the cross entropy with its gradient in one pass.

use crate::float::{Float, WideFloat};
use crate::parallel::{self, SharedMut};
use crate::simd_math::SimdMath;
use cpu_macros::each_level;

/// Nanoseconds per element: an exponential and three reads.
const COST_NS: f64 = 2.0;

/// Writes the softmax of each row of `classes` logits.
pub fn softmax<T: Float>(logits: &[T], classes: usize, out: &mut [T]) {
    for_each_row(logits, classes, out, |logits, out| softmax_rows(logits, classes, out));
}

/// Writes the logarithm of the softmax of each row of `classes` logits.
pub fn log_softmax<T: Float>(logits: &[T], classes: usize, out: &mut [T]) {
    for_each_row(logits, classes, out, |logits, out| log_softmax_rows(logits, classes, out));
}

/// Writes the cross entropy of each row of `classes` logits with its row of label probabilities to `loss`, and its
/// gradient with respect to the logits to `backprop`.
pub fn softmax_cross_entropy<T: Float>(logits: &[T], labels: &[T], classes: usize, loss: &mut [T], backprop: &mut [T]) {
    assert_eq!(labels.len(), logits.len(), "labels and logits differ in length");
    with_losses(logits, classes, loss, backprop, |first, logits, loss, backprop| {
        let labels = &labels[first * classes..][..logits.len()];
        dense_rows(logits, labels, classes, loss, backprop);
    });
}

/// As [`softmax_cross_entropy`], with the index of the true class as the label. An index outside of the row makes the
/// loss and the gradient of that row NaN.
pub fn sparse_softmax_cross_entropy<T: Float, I: Copy + Sync + TryInto<usize>>(
    logits: &[T],
    labels: &[I],
    classes: usize,
    loss: &mut [T],
    backprop: &mut [T],
) {
    assert_eq!(labels.len(), loss.len(), "labels and losses differ in length");
    with_losses(logits, classes, loss, backprop, |first, logits, loss, backprop| {
        sparse_rows(logits, &labels[first..first + loss.len()], classes, loss, backprop);
    });
}

fn for_each_row<T: Float>(logits: &[T], classes: usize, out: &mut [T], rows: impl Fn(&[T], &mut [T]) + Sync) {
    assert_eq!(logits.len(), out.len(), "logits and output differ in length");
    if out.is_empty() {
        return;
    }
    parallel::for_each_chunk_mut(out, classes, COST_NS * classes as f64, |first, out| {
        rows(&logits[first * classes..][..out.len()], out);
    });
}

fn with_losses<T: Float>(
    logits: &[T],
    classes: usize,
    loss: &mut [T],
    backprop: &mut [T],
    rows: impl Fn(usize, &[T], &mut [T], &mut [T]) + Sync,
) {
    assert_eq!(logits.len(), loss.len() * classes, "there must be one loss for each row of logits");
    assert_eq!(logits.len(), backprop.len(), "logits and gradient differ in length");
    let (loss_len, loss, backprop) = (loss.len(), SharedMut::new(loss), SharedMut::new(backprop));
    parallel::for_each_chunk(loss_len, COST_NS * classes as f64 + 10.0, |range| {
        let logits = &logits[range.start * classes..range.end * classes];
        // SAFETY: ranges of rows are disjoint.
        let (loss, backprop) =
            unsafe { (loss.slice(range.start, range.len()), backprop.slice(range.start * classes, logits.len())) };
        rows(range.start, logits, loss, backprop);
    });
}

/// Returns the largest value, ignoring NaN.
#[inline(always)]
fn largest<T: Float>(row: &[T]) -> T::Wide {
    const LANES: usize = 8;
    let lowest = <T::Wide as num_traits::Float>::neg_infinity();
    let mut lanes = [lowest; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane].widen();
            lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
        }
    }
    let mut most = lowest;
    for value in lanes.into_iter().chain(rest.iter().map(|value| value.widen())) {
        most = if value > most { value } else { most };
    }
    most
}

/// Returns the sum of the values, accumulated in several lanes so that the additions overlap.
#[inline(always)]
fn sum_of<T: Copy, W: WideFloat>(row: &[T], value: impl Fn(T) -> W) -> W {
    const LANES: usize = 8;
    let mut lanes = [W::ZERO; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane] + value(chunk[lane]);
        }
    }
    let mut sum = W::ZERO;
    for lane in lanes {
        sum = sum + lane;
    }
    for &element in rest {
        sum = sum + value(element);
    }
    sum
}

#[each_level]
fn softmax_rows<T: Float>(logits: &[T], classes: usize, out: &mut [T]) {
    for (logits, out) in logits.chunks_exact(classes).zip(out.chunks_exact_mut(classes)) {
        let most = largest(logits);
        for (out, &logit) in out.iter_mut().zip(logits) {
            *out = T::narrow((logit.widen() - most).simd_exp());
        }
        let scale = <T::Wide as num_traits::One>::one() / sum_of(out, |value: T| value.widen());
        for out in out.iter_mut() {
            *out = T::narrow(out.widen() * scale);
        }
    }
}

#[each_level]
fn log_softmax_rows<T: Float>(logits: &[T], classes: usize, out: &mut [T]) {
    for (logits, out) in logits.chunks_exact(classes).zip(out.chunks_exact_mut(classes)) {
        let most = largest(logits);
        let log_sum = sum_of(logits, |logit: T| (logit.widen() - most).simd_exp()).simd_log();
        for (out, &logit) in out.iter_mut().zip(logits) {
            *out = T::narrow(logit.widen() - most - log_sum);
        }
    }
}

#[each_level]
fn dense_rows<T: Float>(logits: &[T], labels: &[T], classes: usize, loss: &mut [T], backprop: &mut [T]) {
    for (row, loss) in loss.iter_mut().enumerate() {
        let logits = &logits[row * classes..][..classes];
        let labels = &labels[row * classes..][..classes];
        let backprop = &mut backprop[row * classes..][..classes];
        let most = largest(logits);
        for (gradient, &logit) in backprop.iter_mut().zip(logits) {
            *gradient = T::narrow((logit.widen() - most).simd_exp());
        }
        let sum = sum_of(backprop, |value: T| value.widen());
        let log_sum = sum.simd_log();
        let scale = <T::Wide as num_traits::One>::one() / sum;
        let mut entropy = <T::Wide as crate::simd::MulAdd>::ZERO;
        for ((gradient, &logit), &label) in backprop.iter_mut().zip(logits).zip(labels) {
            let label = label.widen();
            entropy = entropy + label * (log_sum - (logit.widen() - most));
            *gradient = T::narrow(gradient.widen() * scale - label);
        }
        *loss = T::narrow(entropy);
    }
}

#[each_level]
fn sparse_rows<T: Float, I: Copy + TryInto<usize>>(
    logits: &[T],
    labels: &[I],
    classes: usize,
    loss: &mut [T],
    backprop: &mut [T],
) {
    for (row, (loss, &label)) in loss.iter_mut().zip(labels).enumerate() {
        let logits = &logits[row * classes..][..classes];
        let backprop = &mut backprop[row * classes..][..classes];
        let label = label.try_into().unwrap_or(usize::MAX);
        if label >= classes {
            let nan = T::narrow(<T::Wide as num_traits::Float>::nan());
            *loss = nan;
            backprop.fill(nan);
            continue;
        }
        let most = largest(logits);
        for (gradient, &logit) in backprop.iter_mut().zip(logits) {
            *gradient = T::narrow((logit.widen() - most).simd_exp());
        }
        let sum = sum_of(backprop, |value: T| value.widen());
        let scale = <T::Wide as num_traits::One>::one() / sum;
        for gradient in backprop.iter_mut() {
            *gradient = T::narrow(gradient.widen() * scale);
        }
        backprop[label] = T::narrow(backprop[label].widen() - <T::Wide as num_traits::One>::one());
        *loss = T::narrow(sum.simd_log() - (logits[label].widen() - most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn logits(rows: usize, classes: usize) -> Vec<f32> {
        (0..rows * classes).map(|i| ((i * 7919) % 101) as f32 / 10.0 - 5.0).collect()
    }

    fn exact_softmax(row: &[f32]) -> Vec<f64> {
        let most = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|power| power / sum).collect()
    }

    #[test]
    fn rows_are_probabilities() {
        for (rows, classes) in [(1, 1), (3, 10), (5, 33), (300, 1000), (0, 4)] {
            let x = logits(rows, classes);
            let mut y = vec![0.0; x.len()];
            let mut log_y = vec![0.0; x.len()];
            softmax(&x, classes, &mut y);
            log_softmax(&x, classes, &mut log_y);
            for row in 0..rows {
                let exact = exact_softmax(&x[row * classes..][..classes]);
                for class in 0..classes {
                    let at = row * classes + class;
                    assert!((f64::from(y[at]) - exact[class]).abs() < 1e-6 * exact[class].max(1e-6));
                    assert!((f64::from(log_y[at]) - exact[class].ln()).abs() < 2e-6);
                }
            }
        }
    }

    #[test]
    fn cross_entropy_and_its_gradient() {
        for (rows, classes) in [(1, 2), (100, 10), (37, 501)] {
            let x = logits(rows, classes);
            let truth: Vec<i64> = (0..rows).map(|row| ((row * 13) % classes) as i64).collect();
            let mut one_hot = vec![0.0f32; x.len()];
            for (row, &class) in truth.iter().enumerate() {
                one_hot[row * classes + class as usize] = 1.0;
            }
            let (mut loss, mut backprop) = (vec![0.0; rows], vec![0.0; x.len()]);
            softmax_cross_entropy(&x, &one_hot, classes, &mut loss, &mut backprop);
            let (mut sparse_loss, mut sparse_backprop) = (vec![0.0; rows], vec![0.0; x.len()]);
            sparse_softmax_cross_entropy(&x, &truth, classes, &mut sparse_loss, &mut sparse_backprop);
            for row in 0..rows {
                let exact = exact_softmax(&x[row * classes..][..classes]);
                let expected = -exact[truth[row] as usize].ln();
                assert!((f64::from(loss[row]) - expected).abs() < 2e-6 * (1.0 + expected));
                assert!((f64::from(sparse_loss[row]) - expected).abs() < 2e-6 * (1.0 + expected));
                for class in 0..classes {
                    let at = row * classes + class;
                    let gradient = exact[class] - f64::from(one_hot[at]);
                    assert!((f64::from(backprop[at]) - gradient).abs() < 1e-6);
                    assert!((f64::from(sparse_backprop[at]) - gradient).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn a_label_outside_makes_its_row_nan() {
        let (mut loss, mut backprop) = ([0.0f32; 2], [0.0f32; 4]);
        sparse_softmax_cross_entropy(&[1.0, 2.0, 3.0, 4.0], &[-1i32, 1], 2, &mut loss, &mut backprop);
        assert!(loss[0].is_nan() && backprop[0].is_nan() && backprop[1].is_nan());
        assert!(loss[1].is_finite() && backprop[3].is_finite());
    }

    #[test]
    fn halves_and_infinities() {
        let x = [f16::from_f32(1.0), f16::from_f32(1.0)];
        let mut y = [f16::ZERO; 2];
        softmax(&x, 2, &mut y);
        assert_eq!(y, [f16::from_f32(0.5); 2]);
        let mut y = [0.0f64; 2];
        softmax(&[f64::NEG_INFINITY, 0.0], 2, &mut y);
        assert_eq!(y, [0.0, 1.0]);
    }
}
