//! Gradient clipping: by value, by norm, and by the global norm.

use super::expression::{Number, binary, mul, unary};
use crate::kept::{kept, kept_as};
use graph::Output;
use graph::builder::{Grad, IndexedSlices};
use tensor::{Result, Status, Tensor};

/// Adds `x` with every element clipped to `minimum..=maximum`.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::clip_by_value;
///
/// let g = Graph::new();
/// let clipped = clip_by_value(&g.constant([-3f32, 0.5, 7.0]), -1.0, 1.0);
/// assert_eq!(Session::new(&g)?.run(&[&clipped])?[0].to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn clip_by_value(x: &Output, minimum: impl Into<Number>, maximum: impl Into<Number>) -> Output {
    kept("clip_by_value", &[x], || {
        x.graph().name_scope("clip_by_value", |graph| {
            let upper = binary(graph, "Minimum", "Minimum", x, maximum)?;
            binary(graph, "Maximum", "Maximum", &upper, minimum)
        })
    })
}

/// Adds `x`, scaled down to the Euclidean norm `norm` if its norm is larger.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::clip_by_norm;
///
/// let g = Graph::new();
/// let clipped = clip_by_norm(&g.constant([30f32, 40.0]), 5.0);
/// assert_eq!(Session::new(&g)?.run(&[&clipped])?[0].to_vec::<f32>()?, [3.0, 4.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn clip_by_norm(x: &Output, norm: f64) -> Output {
    kept("clip_by_norm", &[x], || scaled_to(x, norm))
}

fn scaled_to(x: &Output, norm: f64) -> Result<Output> {
    x.graph().name_scope("clip_by_norm", |graph| {
        let length = euclidean(x)?;
        // At most 1; the maximum avoids a division by the zero norm of zeros.
        let larger = binary(graph, "Maximum", "Maximum", &length, norm)?;
        let scaled = mul(graph, x, norm)?;
        binary(graph, "RealDiv", "truediv", &scaled, &larger)
    })
}

/// Adds the global norm: the Euclidean norm of all gradients together.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::global_norm;
///
/// let g = Graph::new();
/// let gradients = [Some(g.constant([3f32]).into()), None, Some(g.constant([4f32]).into())];
/// assert_eq!(Session::new(&g)?.eval::<f32>(&global_norm(&gradients))?, 5.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn global_norm(gradients: &[Option<Grad>]) -> Output {
    let values: Vec<&Output> = gradients.iter().flatten().map(values).collect();
    kept("global_norm", &values, || norm_of(&values))
}

fn norm_of(values: &[&Output]) -> Result<Output> {
    let Some(first) = values.first() else {
        return Err(Status::invalid_argument("there are no gradients"));
    };
    first.graph().name_scope("global_norm", |graph| {
        let mut halves = Vec::with_capacity(values.len());
        for value in values {
            halves.push(graph.colocate_with(&value.op, |graph| unary(graph, "L2Loss", value))?);
        }
        let stacked = graph.op("Pack").name("stack").inputs(&halves).try_build()?.output(0);
        let axis = graph.constant_tensor(&Tensor::vector(&[0i32]));
        let sum = graph.op("Sum").input(&stacked).input(&axis).try_build()?.output(0);
        let squares = mul(graph, &sum, 2.0)?;
        graph.op("Sqrt").name("global_norm").input(&squares).try_build().map(|op| op.output(0))
    })
}

/// Scales all gradients by the same factor, so that their global norm is at most `clip_norm`; returns them, and their norm before
/// that. If the norm isn't finite, all results are NaN, so that nobody continues to train with them.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{GradientDescentOptimizer, GradientOptions, clip_by_global_norm};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let optimizer = GradientDescentOptimizer::new(1.0);
/// let (gradients, variables): (Vec<_>, Vec<_>) =
///     optimizer.compute_gradients(&w.value().square(), &GradientOptions::default())?.into_iter().unzip();
/// let (clipped, norm) = clip_by_global_norm(&gradients, 1.0);
/// let clipped: Vec<_> = clipped.into_iter().zip(variables).collect();
/// let train = optimizer.apply_gradients(&clipped, None, None)?;
/// let session = Session::new(&g)?;
/// session.run_ops(&[w.initializer()])?;
/// assert_eq!(session.eval::<f32>(&norm)?, 8.0);
/// session.run_ops(&[&train])?;
/// assert_eq!(session.eval::<f32>(w.value())?, 3.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn clip_by_global_norm(gradients: &[Option<Grad>], clip_norm: f64) -> (Vec<Option<Grad>>, Output) {
    let values: Vec<&Output> = gradients.iter().flatten().map(values).collect();
    let add = || {
        let norm = norm_of(&values)?;
        Ok((scaled_by(gradients, &norm, clip_norm)?, norm))
    };
    kept_as("clip_by_global_norm", &values, add, |instead| (gradients.to_vec(), instead.clone()))
}

/// Adds the gradients, whose global norm is `norm`, scaled down together.
fn scaled_by(gradients: &[Option<Grad>], norm: &Output, clip_norm: f64) -> Result<Vec<Option<Grad>>> {
    norm.graph().name_scope("clip_by_global_norm", |graph| {
        let inverse = binary(graph, "RealDiv", "truediv", 1.0, norm)?;
        let smaller = binary(graph, "Minimum", "Minimum", &inverse, 1.0 / clip_norm)?;
        let scale = mul(graph, clip_norm, &smaller)?;
        // Minus itself, a number that isn't finite is NaN, and any other is zero.
        let poison = binary(graph, "Sub", "sub", norm, norm)?;
        let scale = binary(graph, "AddV2", "add", &scale, &poison)?;
        let mut clipped = Vec::with_capacity(gradients.len());
        for gradient in gradients {
            clipped.push(match gradient {
                None => None,
                Some(Grad::Dense(output)) => Some(Grad::Dense(mul(graph, output, &scale)?)),
                Some(Grad::Slices(slices)) => {
                    let values = mul(graph, &slices.values, &scale)?;
                    Some(Grad::Slices(IndexedSlices { values, ..slices.clone() }))
                }
            });
        }
        Ok(clipped)
    })
}

fn values(gradient: &Grad) -> &Output {
    match gradient {
        Grad::Dense(output) => output,
        Grad::Slices(slices) => &slices.values,
    }
}

fn euclidean(x: &Output) -> Result<Output> {
    let graph = x.graph();
    let half = unary(graph, "L2Loss", x)?;
    let squares = mul(graph, &half, 2.0)?;
    unary(graph, "Sqrt", &squares)
}
