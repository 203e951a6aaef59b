//! Small expressions, with nodes named after Python's operators: `a * b` is a node `mul`, and a number in it is a constant
//! `mul/x` or `mul/y`.

use crate::variable::{Kind, Variable, named_constant};
use graph::{Graph, Operation, Output};
use tensor::{DType, Result, Status, Tensor};

/// A number: a constant, or a tensor that is computed in every step.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{GradientDescentOptimizer, Number};
///
/// let g = Graph::new();
/// let fed = g.placeholder::<f32>(());
/// let rates: [Number; 2] = [0.1.into(), (&fed).into()];
/// for rate in rates {
///     let optimizer = GradientDescentOptimizer::new(rate);
///     assert_eq!(optimizer.name(), "GradientDescent");
/// }
/// ```
#[derive(Clone, Debug)]
pub enum Number {
    /// A constant.
    Value(f64),
    /// A tensor in the graph.
    Tensor(Output),
}

impl From<f64> for Number {
    fn from(value: f64) -> Number {
        Number::Value(value)
    }
}

impl From<f32> for Number {
    fn from(value: f32) -> Number {
        // The shortest decimal text of the f32 is the number that the program wrote.
        Number::Value(value.to_string().parse().unwrap_or(f64::from(value)))
    }
}

impl From<Output> for Number {
    fn from(output: Output) -> Number {
        Number::Tensor(output)
    }
}

impl From<&Output> for Number {
    fn from(output: &Output) -> Number {
        Number::Tensor(output.clone())
    }
}

impl Number {
    /// Returns the tensor, after adding a constant of this name if it is a number.
    pub(crate) fn to_output(&self, graph: &Graph, name: &str, dtype: DType) -> Result<Output> {
        match self {
            Number::Tensor(output) => Ok(output.clone()),
            Number::Value(value) => Ok(named_constant(graph, name, &number(*value, dtype)?)),
        }
    }

    /// Returns the type of the tensor, or that of plain numbers.
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Number::Tensor(output) => output.dtype(),
            Number::Value(_) => DType::Float,
        }
    }
}

/// Returns a scalar of some type.
pub(crate) fn number(value: f64, dtype: DType) -> Result<Tensor> {
    Ok(match dtype {
        DType::Float => Tensor::scalar(value as f32),
        DType::Double => Tensor::scalar(value),
        DType::Half => Tensor::scalar(tensor::f16::from_f64(value)),
        DType::BFloat16 => Tensor::scalar(tensor::bf16::from_f64(value)),
        DType::Int32 => Tensor::scalar(value as i32),
        DType::Int64 => Tensor::scalar(value as i64),
        other => return Err(Status::invalid_argument(format!("a number of type {other} can't be made"))),
    })
}

/// Adds `op(a, b)` under the name `name`; numbers become constants `name/x` and `name/y`.
pub(crate) fn binary(
    graph: &Graph,
    op: &str,
    name: &str,
    a: impl Into<Number>,
    b: impl Into<Number>,
) -> Result<Output> {
    let (a, b) = (a.into(), b.into());
    let dtype = match (&a, &b) {
        (Number::Tensor(a), _) => a.dtype(),
        _ => b.dtype(),
    };
    graph.name_scope(name, |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let (a, b) = (a.to_output(graph, "x", dtype)?, b.to_output(graph, "y", dtype)?);
        Ok(graph.op(op).name(&whole).input(&a).input(&b).try_build()?.output(0))
    })
}

/// Adds `a + b`.
pub(crate) fn add(graph: &Graph, a: impl Into<Number>, b: impl Into<Number>) -> Result<Output> {
    binary(graph, "AddV2", "add", a, b)
}

/// Adds `a - b`.
pub(crate) fn sub(graph: &Graph, a: impl Into<Number>, b: impl Into<Number>) -> Result<Output> {
    binary(graph, "Sub", "sub", a, b)
}

/// Adds `a * b`.
pub(crate) fn mul(graph: &Graph, a: impl Into<Number>, b: impl Into<Number>) -> Result<Output> {
    binary(graph, "Mul", "mul", a, b)
}

/// Adds `a / b`.
pub(crate) fn div(graph: &Graph, a: impl Into<Number>, b: impl Into<Number>) -> Result<Output> {
    binary(graph, "RealDiv", "truediv", a, b)
}

/// Adds `op(x)` under the op's own name.
pub(crate) fn unary(graph: &Graph, op: &str, x: &Output) -> Result<Output> {
    Ok(graph.op(op).input(x).try_build()?.output(0))
}

/// Adds a cast unless the type is already right.
pub(crate) fn cast(graph: &Graph, x: &Output, dtype: DType) -> Result<Output> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    Ok(graph.op("Cast").input(x).attr("DstT", dtype).try_build()?.output(0))
}

/// Adds a node that runs after all `operations`. If they are on several devices, each device has a node that waits for its own,
/// so that only one message per device crosses the network.
pub(crate) fn group(graph: &Graph, operations: &[Operation], name: &str) -> Result<Operation> {
    let mut devices: Vec<(String, Vec<&Operation>)> = Vec::new();
    for operation in operations {
        let device = operation.device();
        match devices.iter_mut().find(|(other, _)| *other == device) {
            Some((_, operations)) => operations.push(operation),
            None => devices.push((device, vec![operation])),
        }
    }
    let no_op = |graph: &Graph, name: &str, operations: &[&Operation]| {
        operations.iter().fold(graph.op("NoOp").name(name), |op, operation| op.control(operation)).try_build()
    };
    graph.name_scope(name, |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        match &devices[..] {
            [] => no_op(graph, &whole, &[]),
            [(device, operations)] if device.is_empty() => no_op(graph, &whole, operations),
            [(device, operations)] => graph.device(device, |graph| no_op(graph, &whole, operations)),
            _ => {
                devices.sort_by(|(a, _), (b, _)| a.cmp(b));
                let mut waits = Vec::with_capacity(devices.len());
                for (device, operations) in &devices {
                    let add = |graph: &Graph| no_op(graph, "NoOp", operations);
                    waits.push(if device.is_empty() { add(graph)? } else { graph.device(device, add)? });
                }
                no_op(graph, &whole, &waits.iter().collect::<Vec<_>>())
            }
        }
    })
}

/// Adds a number in the given type, as `tf.cast` of a plain number does.
pub(crate) fn cast_number(graph: &Graph, value: &Number, dtype: DType) -> Result<Output> {
    match value {
        Number::Tensor(output) => cast(graph, output, dtype),
        Number::Value(_) => graph.name_scope("Cast", |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let x = value.to_output(graph, "x", DType::Float)?;
            if dtype == DType::Float {
                return Ok(x);
            }
            Ok(graph.op("Cast").name(&whole).input(&x).attr("DstT", dtype).try_build()?.output(0))
        }),
    }
}

/// Adds a unary op on a variable's value; the read of a resource variable is in the op's scope.
pub(crate) fn read_as(graph: &Graph, variable: &Variable, op: &str) -> Result<Output> {
    if variable.kind() == Kind::Ref {
        return unary(graph, op, variable.value());
    }
    graph.name_scope(op, |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        Ok(graph.op(op).name(&whole).input(&variable.read()).try_build()?.output(0))
    })
}

/// Adds an assignment to a variable; a resource variable is read again afterwards, as in TensorFlow.
pub(crate) fn assign(graph: &Graph, variable: &Variable, value: &Output, use_locking: bool) -> Result<Operation> {
    if variable.kind() == Kind::Ref {
        let op = graph.op("Assign").input(variable.handle()).input(value);
        return op.attr("use_locking", use_locking).try_build();
    }
    let op = graph.op("AssignVariableOp").input(variable.handle()).input(value);
    let op = op.attr("validate_shape", variable.shape().is_fully_defined()).try_build()?;
    graph.control_dependencies(std::slice::from_ref(&op), |graph| variable.read_op(graph));
    Ok(op)
}
