//! First values of variables, as TensorFlow's initializers build them.

use crate::train::Number;
use crate::train::expression::{binary, number};
use crate::train::fill::{filled, filled_constant, filled_with};
use crate::variable::named_constant;
use graph::{Graph, Output};
use std::sync::Arc;
use tensor::{DType, Result, Shape, Status, Tensor};

/// Builds a first value of a type and shape. Partitioned variables are given the shape of the part and that of the whole.
pub type Initializer = Arc<dyn Fn(&Graph, &Shape, DType) -> Result<Output> + Send + Sync>;

/// Starts with zeros.
pub fn zeros() -> Initializer {
    Arc::new(|graph, shape, dtype| match dtype {
        DType::String | DType::Bool => filled_with(graph, "zeros", &Tensor::zeros(dtype, Shape::scalar())?, shape),
        _ => filled(graph, "zeros", 0.0, dtype, shape),
    })
}

/// Starts with ones.
pub fn ones() -> Initializer {
    Arc::new(|graph, shape, dtype| filled(graph, "ones", 1.0, dtype, shape))
}

/// Starts with one number everywhere.
pub fn constant(value: f64) -> Initializer {
    Arc::new(move |graph, shape, dtype| filled_constant(graph, "Const", value, dtype, shape))
}

/// Starts with a given value.
pub fn tensor(value: Tensor) -> Initializer {
    Arc::new(move |graph, shape, _| {
        if value.shape() != shape {
            let found = value.shape();
            return Err(Status::invalid_argument(format!("a value of shape {found} for a variable of shape {shape}")));
        }
        Ok(named_constant(graph, "initial_value", &value))
    })
}

/// Starts with normally distributed numbers.
pub fn random_normal(mean: f64, stddev: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| {
        normal(graph, "random_normal", "RandomStandardNormal", mean, stddev, seed, shape, dtype)
    })
}

/// Starts with normally distributed numbers no farther from the mean than two standard deviations.
pub fn truncated_normal(mean: f64, stddev: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| {
        normal(graph, "truncated_normal", "TruncatedNormal", mean, stddev, seed, shape, dtype)
    })
}

/// Starts with numbers between two others.
pub fn random_uniform(minimum: f64, maximum: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| uniform(graph, minimum, maximum, seed, shape, dtype))
}

/// Which side of a layer [`variance_scaling`] looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanMode {
    /// The inputs.
    In,
    /// The outputs.
    Out,
    /// The mean of both.
    Average,
}

/// How [`variance_scaling`] draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// A normal distribution, cut off at two standard deviations.
    TruncatedNormal,
    /// A normal distribution.
    UntruncatedNormal,
    /// A uniform distribution.
    Uniform,
}

/// Starts with numbers whose variance is `scale` over the size of the layer.
pub fn variance_scaling(scale: f64, mode: FanMode, distribution: Distribution, seed: Option<i64>) -> Initializer {
    /// The standard deviation of a unit normal distribution that is cut off at two.
    const TRUNCATED_STDDEV: f64 = 0.879_625_661_034_239_8;
    Arc::new(move |graph, shape, dtype| {
        let (fan_in, fan_out) = fans(shape);
        let fan = match mode {
            FanMode::In => fan_in,
            FanMode::Out => fan_out,
            FanMode::Average => (fan_in + fan_out) / 2.0,
        };
        let scale = scale / fan.max(1.0);
        match distribution {
            Distribution::TruncatedNormal => {
                let stddev = scale.sqrt() / TRUNCATED_STDDEV;
                normal(graph, "truncated_normal", "TruncatedNormal", 0.0, stddev, seed, shape, dtype)
            }
            Distribution::UntruncatedNormal => {
                normal(graph, "random_normal", "RandomStandardNormal", 0.0, scale.sqrt(), seed, shape, dtype)
            }
            Distribution::Uniform => {
                let limit = (3.0 * scale).sqrt();
                uniform(graph, -limit, limit, seed, shape, dtype)
            }
        }
    })
}

/// Starts with uniform numbers as Glorot and Bengio advise; variables do unless told otherwise.
pub fn glorot_uniform(seed: Option<i64>) -> Initializer {
    variance_scaling(1.0, FanMode::Average, Distribution::Uniform, seed)
}

/// Starts with normal numbers as Glorot and Bengio advise.
pub fn glorot_normal(seed: Option<i64>) -> Initializer {
    variance_scaling(1.0, FanMode::Average, Distribution::TruncatedNormal, seed)
}

/// Returns the numbers of inputs and outputs of a layer whose weights have this shape.
fn fans(shape: &Shape) -> (f64, f64) {
    match shape.dims() {
        [] => (1.0, 1.0),
        [n] => (*n as f64, *n as f64),
        [receptive @ .., inputs, outputs] => {
            let field: f64 = receptive.iter().map(|&size| size as f64).product();
            (field * *inputs as f64, field * *outputs as f64)
        }
    }
}

fn shape_constant(graph: &Graph, shape: &Shape) -> Result<Output> {
    let dims: Option<Vec<i32>> = shape.dims().iter().map(|&size| i32::try_from(size).ok()).collect();
    let dims = dims.ok_or_else(|| Status::invalid_argument(format!("{shape} is too large to be random")))?;
    Ok(named_constant(graph, "shape", &Tensor::vector(&dims)))
}

fn normal(
    graph: &Graph,
    name: &str,
    op: &str,
    mean: f64,
    stddev: f64,
    seed: Option<i64>,
    shape: &Shape,
    dtype: DType,
) -> Result<Output> {
    graph.name_scope(name, |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let dims = shape_constant(graph, shape)?;
        let mean = named_constant(graph, "mean", &number(mean, dtype)?);
        let stddev = named_constant(graph, "stddev", &number(stddev, dtype)?);
        let (seed, seed2) = graph.random_seeds(seed);
        let random = graph.op(op).input(&dims).attr("dtype", dtype).attr("seed", seed).attr("seed2", seed2);
        let scaled = binary(graph, "Mul", "mul", random.try_build()?.output(0), stddev)?;
        Ok(graph.op("AddV2").name(&whole).input(&scaled).input(&mean).try_build()?.output(0))
    })
}

fn uniform(
    graph: &Graph,
    minimum: f64,
    maximum: f64,
    seed: Option<i64>,
    shape: &Shape,
    dtype: DType,
) -> Result<Output> {
    graph.name_scope("random_uniform", |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let dims = shape_constant(graph, shape)?;
        let minimum = named_constant(graph, "min", &number(minimum, dtype)?);
        let maximum = named_constant(graph, "max", &number(maximum, dtype)?);
        let (seed, seed2) = graph.random_seeds(seed);
        let random = graph.op("RandomUniform").input(&dims).attr("dtype", dtype).attr("seed", seed);
        let random = random.attr("seed2", seed2).try_build()?.output(0);
        let range = binary(graph, "Sub", "sub", Number::from(&maximum), &minimum)?;
        let scaled = binary(graph, "Mul", "mul", random, range)?;
        Ok(graph.op("AddV2").name(&whole).input(&scaled).input(&minimum).try_build()?.output(0))
    })
}
