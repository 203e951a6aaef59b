//! Small steps that most gradient functions take.

use graph::{GraphBuilder, Output};
use kernel::GradientArgs;
use tensor::{Element, Result, Tensor};

/// Adds an op that needs nothing but its inputs, and returns its first output.
pub(crate) fn call(op: &str, inputs: &[&Output]) -> Result<Output> {
    inputs[0].graph().op(op).inputs(inputs.iter().copied()).try_build()?.try_output(0)
}

/// Adds a constant.
pub(crate) fn constant(graph: &GraphBuilder, tensor: &Tensor) -> Result<Output> {
    let proto = tensor::tensor_to_proto(tensor)?;
    graph.op("Const").attr("dtype", tensor.dtype()).attr("value", proto).try_build()?.try_output(0)
}

/// Adds a scalar constant.
pub(crate) fn scalar<T: Element>(graph: &GraphBuilder, value: T) -> Result<Output> {
    constant(graph, &Tensor::scalar(value))
}

/// Adds a constant vector.
pub(crate) fn vector<T: Element>(graph: &GraphBuilder, values: &[T]) -> Result<Output> {
    constant(graph, &Tensor::vector(values))
}

/// Adds the shape of an output as `int32`.
pub(crate) fn shape_of(output: &Output) -> Result<Output> {
    call("Shape", &[output])
}

/// Returns the gradient with respect to output `index`, or zeros where nothing flows but something flows elsewhere.
pub(crate) fn grad_or_zeros(args: &GradientArgs<'_>, index: usize) -> Result<Output> {
    match args.grad(index) {
        Some(grad) => Ok(grad),
        None => call("ZerosLike", &[&args.output(index as u32)]),
    }
}
