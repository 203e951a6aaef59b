//! Initial values of variables, as TensorFlow's initializers compute them.

use crate::compose::{fill, mul, node, transpose, with_number};
use crate::train::Number;
use crate::train::expression::{binary, number};
use crate::train::fill::{filled, filled_constant, filled_with};
use crate::variable::named_constant;
use graph::{Graph, Output};
use std::sync::Arc;
use tensor::{DType, Result, Shape, Status, Tensor};

/// Builds an initial value of a type and shape. For partitioned variables, it is called with the shape of the part and that of
/// the whole.
///
/// ```
/// use ferroflow::initializers::Initializer;
/// use ferroflow::variable_scope::get_variable;
/// use ferroflow::{Graph, Session};
/// use std::sync::Arc;
///
/// let seven: Initializer = Arc::new(|g, shape, _dtype| Ok(g.constant(7f32) + g.constant(vec![0f32; shape.num_elements()])));
/// let g = Graph::new();
/// let w = get_variable(&g, "w", &[2]).initializer(seven).get();
/// let session = Session::new(&g)?;
/// session.run_ops(&[w.initializer()])?;
/// assert_eq!(session.run(&[w.value()])?[0].to_vec::<f32>()?, [7.0, 7.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub type Initializer = Arc<dyn Fn(&Graph, &Shape, DType) -> Result<Output> + Send + Sync>;

/// Returns an initializer that fills with zeros.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::zeros()(&g, &Shape::new(&[2])?, DType::Float)?;
/// assert_eq!(Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?, [0.0, 0.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn zeros() -> Initializer {
    Arc::new(|graph, shape, dtype| match dtype {
        DType::String | DType::Bool => filled_with(graph, "zeros", &Tensor::zeros(dtype, Shape::scalar())?, shape),
        _ => filled(graph, "zeros", 0.0, dtype, shape),
    })
}

/// Returns an initializer that fills with ones.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::ones()(&g, &Shape::new(&[2])?, DType::Int32)?;
/// assert_eq!(Session::new(&g)?.run(&[&first])?[0].to_vec::<i32>()?, [1, 1]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn ones() -> Initializer {
    Arc::new(|graph, shape, dtype| filled(graph, "ones", 1.0, dtype, shape))
}

/// Returns an initializer that fills with a number.
///
/// ```
/// use ferroflow::layers::{Apply, Dense};
/// use ferroflow::prelude::*;
/// use ferroflow::{initializers, train::global_variables_initializer};
///
/// let g = Graph::new();
/// let y = g.constant([[1f32, 2.0]]).apply(&Dense::new(1).kernel_initializer(initializers::constant(0.5)));
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// assert_eq!(session.run(&[&y])?[0].to_vec::<f32>()?, [1.5]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn constant(value: f64) -> Initializer {
    Arc::new(move |graph, shape, dtype| filled_constant(graph, "Const", value, dtype, shape))
}

/// Returns an initializer with a given value.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, Tensor, initializers};
///
/// let g = Graph::new();
/// let pretrained = Tensor::vector(&[0.1f32, 0.2]);
/// let first = initializers::tensor(pretrained)(&g, &Shape::new(&[2])?, DType::Float)?;
/// assert_eq!(Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?, [0.1, 0.2]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn tensor(value: Tensor) -> Initializer {
    Arc::new(move |graph, shape, _| {
        if value.shape() != shape {
            let found = value.shape();
            return Err(Status::invalid_argument(format!("a value of shape {found} for a variable of shape {shape}")));
        }
        Ok(named_constant(graph, "initial_value", &value))
    })
}

/// Returns an initializer that draws from a normal distribution.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::random_normal(5.0, 0.1, Some(1))(&g, &Shape::new(&[100])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// assert!((values.iter().sum::<f32>() / 100.0 - 5.0).abs() < 0.1);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn random_normal(mean: f64, stddev: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| {
        normal(graph, "random_normal", "RandomStandardNormal", mean, stddev, seed, shape, dtype)
    })
}

/// Returns an initializer that draws from a normal distribution truncated at two standard deviations.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::truncated_normal(0.0, 0.1, Some(1))(&g, &Shape::new(&[100])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// assert!(values.iter().all(|value| value.abs() <= 0.2));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn truncated_normal(mean: f64, stddev: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| {
        normal(graph, "truncated_normal", "TruncatedNormal", mean, stddev, seed, shape, dtype)
    })
}

/// Returns an initializer that draws uniformly from a range.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::random_uniform(-1.0, 1.0, Some(1))(&g, &Shape::new(&[100])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn random_uniform(minimum: f64, maximum: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| uniform(graph, minimum, maximum, seed, shape, dtype))
}

/// The fan that [`variance_scaling`] divides by.
///
/// ```
/// use ferroflow::initializers::{Distribution, FanMode, variance_scaling};
/// use ferroflow::layers::Dense;
///
/// // The initializer of He and others, for layers with ReLU.
/// let layer = Dense::new(10).kernel_initializer(variance_scaling(2.0, FanMode::In, Distribution::TruncatedNormal, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanMode {
    /// The number of inputs.
    In,
    /// The number of outputs.
    Out,
    /// The mean of both.
    Average,
}

/// The distribution that [`variance_scaling`] draws from.
///
/// ```
/// use ferroflow::initializers::{Distribution, FanMode, variance_scaling};
/// use ferroflow::layers::Dense;
///
/// let layer = Dense::new(10).kernel_initializer(variance_scaling(1.0, FanMode::Out, Distribution::Uniform, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// A normal distribution, truncated at two standard deviations.
    TruncatedNormal,
    /// A normal distribution.
    UntruncatedNormal,
    /// A uniform distribution.
    Uniform,
}

/// Returns an initializer whose values have the variance `scale` divided by the layer's fan.
///
/// ```
/// use ferroflow::initializers::{Distribution, FanMode, variance_scaling};
/// use ferroflow::{DType, Graph, Session, Shape};
///
/// let g = Graph::new();
/// let he = variance_scaling(2.0, FanMode::In, Distribution::UntruncatedNormal, Some(1));
/// let first = he(&g, &Shape::new(&[50, 40])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// let variance = values.iter().map(|value| value * value).sum::<f32>() / 2000.0;
/// assert!((variance - 2.0 / 50.0).abs() < 0.01);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn variance_scaling(scale: f64, mode: FanMode, distribution: Distribution, seed: Option<i64>) -> Initializer {
    /// The standard deviation of a unit normal distribution that is truncated at two.
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

/// Returns Glorot and Bengio's uniform initializer, which is the default for variables.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::glorot_uniform(Some(1))(&g, &Shape::new(&[3, 3])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// // The limit is the root of 6 over inputs and outputs.
/// assert!(values.iter().all(|value| value.abs() <= 1.0));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn glorot_uniform(seed: Option<i64>) -> Initializer {
    variance_scaling(1.0, FanMode::Average, Distribution::Uniform, seed)
}

/// Returns Glorot and Bengio's normal initializer.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::glorot_normal(Some(1))(&g, &Shape::new(&[3, 3])?, DType::Float)?;
/// assert_eq!(Session::new(&g)?.run(&[&first])?[0].dims(), [3, 3]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn glorot_normal(seed: Option<i64>) -> Initializer {
    variance_scaling(1.0, FanMode::Average, Distribution::TruncatedNormal, seed)
}

/// Starts with uniform numbers as He and others advise for layers with ReLU.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::he_uniform(Some(1))(&g, &Shape::new(&[6, 3])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// // The limit is the root of 6 over the inputs.
/// assert!(values.iter().all(|value| value.abs() <= 1.0));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn he_uniform(seed: Option<i64>) -> Initializer {
    variance_scaling(2.0, FanMode::In, Distribution::Uniform, seed)
}

/// Starts with normal numbers as He and others advise for layers with ReLU.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::he_normal(Some(1))(&g, &Shape::new(&[6, 3])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// assert!(values.iter().all(|value| value.abs() < 1.4));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn he_normal(seed: Option<i64>) -> Initializer {
    variance_scaling(2.0, FanMode::In, Distribution::TruncatedNormal, seed)
}

/// Starts with uniform numbers as LeCun and others advise.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::lecun_uniform(Some(1))(&g, &Shape::new(&[6, 3])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// // The limit is the root of 3 over the inputs.
/// assert!(values.iter().all(|value| value.abs() <= 0.71));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn lecun_uniform(seed: Option<i64>) -> Initializer {
    variance_scaling(1.0, FanMode::In, Distribution::Uniform, seed)
}

/// Starts with normal numbers as LeCun and others advise.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::lecun_normal(Some(1))(&g, &Shape::new(&[6, 3])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// assert!(values.iter().all(|value| value.abs() < 1.0));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn lecun_normal(seed: Option<i64>) -> Initializer {
    variance_scaling(1.0, FanMode::In, Distribution::TruncatedNormal, seed)
}

/// Starts with the identity matrix, times a number.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::identity(2.0)(&g, &Shape::new(&[2, 3])?, DType::Float)?;
/// assert_eq!(Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?, [2.0, 0.0, 0.0, 0.0, 2.0, 0.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn identity(gain: f64) -> Initializer {
    Arc::new(move |graph, shape, dtype| {
        let &[rows, columns] = shape.dims() else {
            return Err(Status::invalid_argument(format!(
                "an identity matrix has two axes, and the variable's shape is {shape}"
            )));
        };
        let zeros = fill(&shape_constant(graph, shape)?, dtype, 0.0)?;
        let ones = fill(&shape_constant(graph, &Shape::new(&[rows.min(columns)])?)?, dtype, gain)?;
        node("MatrixSetDiag", &[&zeros, &ones])
    })
}

/// Starts with a random orthogonal matrix, times a number: the last axis has the columns, and all before it the rows. Where there are
/// fewer rows than columns, the rows are orthogonal.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Shape, initializers};
///
/// let g = Graph::new();
/// let first = initializers::orthogonal(1.0, Some(1))(&g, &Shape::new(&[2, 3, 4])?, DType::Float)?;
/// let values = Session::new(&g)?.run(&[&first])?[0].to_vec::<f32>()?;
/// let column = |index: usize| values.iter().skip(index).step_by(4);
/// assert!((column(0).map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
/// assert!(column(0).zip(column(1)).map(|(x, y)| x * y).sum::<f32>().abs() < 1e-5);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn orthogonal(gain: f64, seed: Option<i64>) -> Initializer {
    Arc::new(move |graph, shape, dtype| {
        let [receptive @ .., columns] = shape.dims() else {
            return Err(Status::invalid_argument(
                "an orthogonal matrix has two axes or more, and the variable has none",
            ));
        };
        if receptive.is_empty() {
            return Err(Status::invalid_argument(format!(
                "an orthogonal matrix has two axes or more, and the variable's shape is {shape}"
            )));
        }
        let rows: i64 = receptive.iter().product();
        let tall = Shape::new(&[rows.max(*columns), rows.min(*columns)])?;
        let random = normal(graph, "random_normal", "RandomStandardNormal", 0.0, 1.0, seed, &tall, dtype)?;
        let factors = graph.op("Qr").input(&random).attr("full_matrices", false).try_build()?;
        // Without the signs of the triangular factor's diagonal, some matrices would be more likely than others.
        let signs = node("Sign", &[&node("MatrixDiagPart", &[&factors.output(1)])?])?;
        let mut matrix = mul(&factors.output(0), &signs)?;
        if rows < *columns {
            matrix = transpose(&matrix, &[1, 0])?;
        }
        with_number("Mul", &node("Reshape", &[&matrix, &shape_constant(graph, shape)?])?, gain)
    })
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
