//! Constraints: projections that are applied to a variable's value after each update by an optimizer.

use crate::compose::{self, kept, node, reduce, with_number};
use graph::Output;
use std::sync::Arc;
use tensor::Result;

pub use crate::train::constraint::Constraint;

/// Keeps `1 / norm` finite, as in Keras.
const EPSILON: f64 = 1e-7;

/// Limits the Euclidean norm along `axes` to `max_value`; use axis 0 for the inputs of a dense layer's unit.
///
/// ```
/// use ferroflow::layers::{Dense, constraints};
///
/// let layer = Dense::new(10).kernel_constraint(constraints::max_norm(2.0, &[0]));
/// ```
pub fn max_norm(max_value: f64, axes: &[i32]) -> Constraint {
    let axes = axes.to_vec();
    Arc::new(move |weights| {
        kept("constraint max_norm", &[weights], || {
            let norms = norms(weights, &axes)?;
            let low = with_number("Maximum", &norms, 0.0)?;
            scaled(weights, &with_number("Minimum", &low, max_value)?, &norms)
        })
    })
}

/// Sets negative weights to zero.
///
/// ```
/// use ferroflow::layers::{Dense, constraints};
///
/// let layer = Dense::new(10).bias_constraint(constraints::non_negative());
/// ```
pub fn non_negative() -> Constraint {
    Arc::new(|weights| kept("constraint non_negative", &[weights], || with_number("Maximum", weights, 0.0)))
}

/// Scales the Euclidean norm along `axes` to 1.
///
/// ```
/// use ferroflow::layers::{Dense, constraints};
///
/// let layer = Dense::new(10).kernel_constraint(constraints::unit_norm(&[0]));
/// ```
pub fn unit_norm(axes: &[i32]) -> Constraint {
    let axes = axes.to_vec();
    Arc::new(move |weights| {
        kept("constraint unit_norm", &[weights], || {
            compose::div(weights, &with_number("AddV2", &norms(weights, &axes)?, EPSILON)?)
        })
    })
}

/// Moves the Euclidean norm along `axes` into `minimum..=maximum`: all the way at a `rate` of 1.
///
/// ```
/// use ferroflow::layers::{Dense, constraints};
///
/// let layer = Dense::new(10).kernel_constraint(constraints::min_max_norm(0.5, 2.0, 1.0, &[0]));
/// ```
pub fn min_max_norm(minimum: f64, maximum: f64, rate: f64, axes: &[i32]) -> Constraint {
    let axes = axes.to_vec();
    Arc::new(move |weights| {
        kept("constraint min_max_norm", &[weights], || {
            let norms = norms(weights, &axes)?;
            let low = with_number("Maximum", &norms, minimum)?;
            let clipped = with_number("Mul", &with_number("Minimum", &low, maximum)?, rate)?;
            let wanted = compose::add(&clipped, &with_number("Mul", &norms, 1.0 - rate)?)?;
            scaled(weights, &wanted, &norms)
        })
    })
}

fn norms(weights: &Output, axes: &[i32]) -> Result<Output> {
    node("Sqrt", &[&reduce("Sum", &node("Square", &[weights])?, axes, true)?])
}

fn scaled(weights: &Output, wanted: &Output, norms: &Output) -> Result<Output> {
    compose::mul(weights, &compose::div(wanted, &with_number("AddV2", norms, EPSILON)?)?)
}
