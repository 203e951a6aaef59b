//! Regularizers: they add a loss that keeps the weights of a layer small.

use crate::compose::{self, kept, node, reduce_all, with_number};
use graph::Output;
use std::sync::Arc;
use tensor::Result;

pub use crate::variable_scope::Regularizer;

/// Adds `scale` times the sum of the absolute values.
///
/// ```
/// use ferroflow::layers::{Dense, regularizers};
///
/// let layer = Dense::new(10).kernel_regularizer(regularizers::l1(0.01));
/// ```
pub fn l1(scale: f64) -> Regularizer {
    Arc::new(move |weights| kept("regularizer l1", &[weights], || sum(weights, "Abs", scale)))
}

/// Adds `scale` times the sum of the squares, as `tf.keras.regularizers.l2` does.
///
/// ```
/// use ferroflow::layers::{Dense, regularizers};
///
/// let layer = Dense::new(10).kernel_regularizer(regularizers::l2(0.01));
/// ```
pub fn l2(scale: f64) -> Regularizer {
    Arc::new(move |weights| kept("regularizer l2", &[weights], || sum(weights, "Square", scale)))
}

/// Adds both [`l1`] and [`l2`].
///
/// ```
/// use ferroflow::layers::{Dense, regularizers};
///
/// let layer = Dense::new(10).kernel_regularizer(regularizers::l1_l2(0.01, 0.02));
/// ```
pub fn l1_l2(l1: f64, l2: f64) -> Regularizer {
    Arc::new(move |weights| {
        kept("regularizer l1_l2", &[weights], || compose::add(&sum(weights, "Abs", l1)?, &sum(weights, "Square", l2)?))
    })
}

fn sum(weights: &Output, op: &str, scale: f64) -> Result<Output> {
    with_number("Mul", &reduce_all("Sum", &node(op, &[weights])?)?, scale)
}
