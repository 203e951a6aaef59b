//! Shuffling, and sampling classes by their logits.

use super::distributions::unit_f64;
use super::{Philox, Words};
use crate::float::Float;

/// Shuffles `items`. Uses `len - 1` samples of 32 bits.
pub fn shuffle<T>(philox: Philox, items: &mut [T]) {
    let mut words = Words::from(philox);
    for index in 0..items.len().saturating_sub(1) {
        let remaining = (items.len() - index) as u32;
        // The low 32 bits of a multiple of 2³² are zero, which would divide by zero.
        let chosen = if remaining == 0 { 0 } else { words.next() % remaining };
        items.swap(index, index + chosen as usize);
    }
}

/// Returns the permutation that [`shuffle`] applies to `len` items.
pub fn shuffled_indices(philox: Philox, len: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..len).collect();
    shuffle(philox, &mut indices);
    indices
}

/// Draws classes for each row of `classes` logits, in proportion to their exponentials; logits that are not finite are never
/// drawn. A row of the output holds its draws.
pub fn multinomial<T: Float, I: Copy>(
    philox: Philox,
    logits: &[T],
    classes: usize,
    draws: usize,
    out: &mut [I],
    to_index: impl Fn(usize) -> I,
) where
    T::Wide: Into<f64>,
{
    if draws == 0 || classes == 0 {
        return;
    }
    assert_eq!(logits.len() / classes * draws, out.len(), "there must be a row of draws for each row of logits");
    let mut words = Words::from(philox);
    let mut cumulative = vec![0.0f64; classes];
    for (row, out) in logits.chunks_exact(classes).zip(out.chunks_exact_mut(draws)) {
        let value = |logit: &T| -> f64 { logit.widen().into() };
        let most = row.iter().map(value).filter(|logit| logit.is_finite()).fold(f64::MIN, f64::max);
        let mut total = 0.0;
        for (sum, logit) in cumulative.iter_mut().zip(row) {
            let logit = value(logit);
            if logit.is_finite() {
                total += (logit - most).exp();
            }
            *sum = total;
        }
        for out in out.iter_mut() {
            let high = words.next();
            let wanted = unit_f64(high, words.next()) * total;
            *out = to_index(cumulative.partition_point(|&sum| sum <= wanted));
        }
    }
}
