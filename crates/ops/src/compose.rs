//! Building blocks of gradient functions and composed ops. They return errors instead of panicking.

use graph::{Graph, Output};
use kernel::{Grad, GradientArgs};
use tensor::{DType, Result, Tensor};

/// The result of a gradient function.
pub(crate) type Gradients = Result<Vec<Option<Grad>>>;

/// Adds an op with one input.
pub(crate) fn unary(op: &str, x: &Output) -> Result<Output> {
    Ok(x.graph().op(op).input(x).try_build()?.output(0))
}

/// Adds an op with two inputs.
pub(crate) fn binary(op: &str, a: &Output, b: &Output) -> Result<Output> {
    Ok(a.graph().op(op).input(a).input(b).try_build()?.output(0))
}

/// Adds an op with three inputs.
pub(crate) fn ternary(op: &str, a: &Output, b: &Output, c: &Output) -> Result<Output> {
    Ok(a.graph().op(op).input(a).input(b).input(c).try_build()?.output(0))
}

/// Adds an op with inputs, at least one, and no attributes.
pub(crate) fn call(op: &str, inputs: &[&Output]) -> Result<Output> {
    inputs[0].graph().op(op).inputs(inputs.iter().copied()).try_build()?.try_output(0)
}

/// Adds a constant.
pub(crate) fn constant(graph: &Graph, value: &Tensor) -> Result<Output> {
    let proto = tensor::tensor_to_proto(value)?;
    Ok(graph.op("Const").attr("dtype", value.dtype()).attr("value", proto).try_build()?.output(0))
}

/// Adds a constant scalar of the type of `like`.
pub(crate) fn scalar(like: &Output, value: f64) -> Result<Output> {
    scalar_of(like.graph(), like.dtype(), value)
}

/// Adds a constant scalar of a type.
pub(crate) fn scalar_of(graph: &Graph, dtype: DType, value: f64) -> Result<Output> {
    constant(graph, &graph::builder::scalar_tensor(dtype, value)?)
}

/// Adds a constant vector of `int32`s.
pub(crate) fn int_vector(graph: &Graph, values: &[i32]) -> Result<Output> {
    constant(graph, &Tensor::vector(values))
}

/// Adds a constant `int32` scalar.
pub(crate) fn int_scalar(graph: &Graph, value: i32) -> Result<Output> {
    constant(graph, &Tensor::scalar(value))
}

/// Returns `x` multiplied by a number.
pub(crate) fn times(x: &Output, factor: f64) -> Result<Output> {
    binary("Mul", x, &scalar(x, factor)?)
}

/// Returns the complex conjugate; real values are their own.
pub(crate) fn conj(x: &Output) -> Result<Output> {
    if x.dtype().is_complex() { unary("Conj", x) } else { Ok(x.clone()) }
}

/// Casts `x` to another type.
pub(crate) fn cast(x: &Output, dtype: DType) -> Result<Output> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    Ok(x.graph().op("Cast").input(x).attr("DstT", dtype).try_build()?.output(0))
}

/// Returns the shape as an `int32` vector: a constant if it is known.
pub(crate) fn shape_of(x: &Output) -> Result<Output> {
    if let Some(shape) = x.full_shape() {
        let dims: Option<Vec<i32>> = shape.dims().iter().map(|&dim| i32::try_from(dim).ok()).collect();
        if let Some(dims) = dims {
            return int_vector(x.graph(), &dims);
        }
    }
    unary("Shape", x)
}

/// Reshapes `x`.
pub(crate) fn reshape(x: &Output, shape: &Output) -> Result<Output> {
    binary("Reshape", x, shape)
}

/// Returns the sum over axes.
pub(crate) fn sum(x: &Output, axes: &Output, keep_dims: bool) -> Result<Output> {
    Ok(x.graph().op("Sum").input(x).input(axes).attr("keep_dims", keep_dims).try_build()?.output(0))
}

/// Returns `condition ? a : b`, with broadcasting.
pub(crate) fn select(condition: &Output, a: &Output, b: &Output) -> Result<Output> {
    ternary("SelectV2", condition, a, b)
}

/// Returns the gradient with respect to output `index`, or zeros if only other outputs have one.
pub(crate) fn grad_or_zeros(args: &GradientArgs<'_>, index: usize) -> Result<Output> {
    match args.grad(index) {
        Some(grad) => Ok(grad),
        None => unary("ZerosLike", &args.output(index as u32)),
    }
}

/// Builds the gradient of an op with one input: `f(grad, x, y)`.
pub(crate) fn unary_gradient(
    args: &GradientArgs<'_>,
    f: impl FnOnce(&Output, &Output, &Output) -> Result<Output>,
) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; args.op.num_inputs()]) };
    let mut grads = vec![None; args.op.num_inputs()];
    grads[0] = Some(f(&grad, &args.input(0), &args.output(0))?.into());
    Ok(grads)
}

/// Builds the gradients of an op whose two inputs are broadcast to each other: `f(grad, x, y)` returns the gradients before they
/// are summed over the axes along which an input was repeated.
pub(crate) fn binary_gradient(
    args: &GradientArgs<'_>,
    f: impl FnOnce(&Output, &Output, &Output) -> Result<(Option<Output>, Option<Output>)>,
) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; args.op.num_inputs()]) };
    let (x, y) = (args.input(0), args.input(1));
    let (grad_x, grad_y) = f(&grad, &x, &y)?;
    let (grad_x, grad_y) = reduce_broadcast(&x, &y, grad_x, grad_y)?;
    Ok(vec![grad_x.map(Grad::from), grad_y.map(Grad::from)])
}

/// Sums gradients of the shape of `x` and `y` broadcast to each other down to the shape of each.
pub(crate) fn reduce_broadcast(
    x: &Output,
    y: &Output,
    grad_x: Option<Output>,
    grad_y: Option<Output>,
) -> Result<(Option<Output>, Option<Output>)> {
    let graph = x.graph();
    let (x_shape, y_shape) = (x.shape(), y.shape());
    if let Some((x_axes, y_axes)) = broadcast_axes(x_shape.dims(), y_shape.dims()) {
        let reduce = |grad: Option<Output>, operand: &Output, axes: &[i32], other: &Output| -> Result<Option<Output>> {
            let Some(grad) = grad else { return Ok(None) };
            if axes.is_empty() && operand.shape().rank() >= other.shape().rank() {
                return Ok(Some(grad));
            }
            let total = sum(&grad, &int_vector(graph, axes)?, true)?;
            Ok(Some(reshape(&total, &shape_of(operand)?)?))
        };
        return Ok((reduce(grad_x, x, &x_axes, y)?, reduce(grad_y, y, &y_axes, x)?));
    }
    let (x_size, y_size) = (shape_of(x)?, shape_of(y)?);
    let axes = graph.op("BroadcastGradientArgs").input(&x_size).input(&y_size).try_build()?;
    let reduce = |grad: Option<Output>, port: u32, size: &Output| -> Result<Option<Output>> {
        let Some(grad) = grad else { return Ok(None) };
        Ok(Some(reshape(&sum(&grad, &axes.output(port), true)?, size)?))
    };
    Ok((reduce(grad_x, 0, &x_size)?, reduce(grad_y, 1, &y_size)?))
}

/// Returns the axes along which each shape is repeated, if the known sizes determine all of them.
fn broadcast_axes(x: Option<&[Option<i64>]>, y: Option<&[Option<i64>]>) -> Option<(Vec<i32>, Vec<i32>)> {
    let (x, y) = (x?, y?);
    let rank = x.len().max(y.len());
    let at = |dims: &[Option<i64>], axis: usize| {
        let missing = rank - dims.len();
        if axis < missing { Some(1) } else { dims[axis - missing] }
    };
    let (mut x_axes, mut y_axes) = (Vec::new(), Vec::new());
    for axis in 0..rank {
        match (at(x, axis), at(y, axis)) {
            (Some(1), Some(1)) => {}
            (Some(1), _) => x_axes.push(axis as i32),
            (_, Some(1)) => y_axes.push(axis as i32),
            (Some(_), Some(_)) => {}
            _ => return None,
        }
    }
    Some((x_axes, y_axes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_were_repeated() {
        let axes = |x: &[Option<i64>], y: &[Option<i64>]| broadcast_axes(Some(x), Some(y));
        assert_eq!(axes(&[Some(2), Some(3)], &[Some(3)]), Some((vec![], vec![0])));
        assert_eq!(axes(&[Some(1), Some(3)], &[None, Some(3)]), Some((vec![0], vec![])));
        assert_eq!(axes(&[None], &[None]), None);
        assert_eq!(axes(&[], &[Some(1)]), Some((vec![], vec![])));
    }
}
