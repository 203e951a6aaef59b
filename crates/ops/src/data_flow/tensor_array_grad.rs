//! Gradients of the ops on tensor arrays: a second array, of the gradients, is written where the first one is read, and read
//! where the first one is written.

use crate::compose::Gradients;
use graph::Output;
use kernel::GradientArgs;
use tensor::{PartialShape, Result, Status};

/// An array of gradients, and the flow that orders the operations on it.
struct GradientArray {
    handle: Output,
    flow: Output,
    /// The suffix of the ops' names: the version of the op whose gradient is built.
    version: &'static str,
}

impl GradientArray {
    /// Adds the gradient array for an op's array.
    fn of(args: &GradientArgs<'_>, flow: &Output) -> Result<GradientArray> {
        let graph = flow.graph();
        let name = args.op.op_type();
        let version = if name.ends_with("V3") {
            "V3"
        } else if name.ends_with("V2") {
            "V2"
        } else {
            return Err(Status::unimplemented("gradients of the first version of tensor arrays"));
        };
        let handle = args.input(0);
        let array = graph.colocate_with(&handle.op, |graph| {
            let op = graph.op(&format!("TensorArrayGrad{version}")).input(&handle).input(flow);
            // Two calls of the gradient function don't share arrays.
            op.attr("source", graph.gradients_scope()).try_build()
        })?;
        let ordered = graph.control_dependencies(std::slice::from_ref(&array), |graph| {
            graph.op("Identity").name("gradient_flow").input(flow).try_build()
        })?;
        Ok(GradientArray { handle: array.output(0), flow: ordered.output(0), version })
    }

    fn op(&self, name: &str) -> graph::builder::OpBuilder {
        self.handle.graph().op(&format!("{name}{}", self.version)).input(&self.handle)
    }
}

/// Waits for a write before reading its gradient: the gradient array takes its shapes from the first array.
fn after_write(args: &GradientArgs<'_>, flow_grad: &Output) -> Result<Output> {
    let graph = flow_grad.graph();
    let flow_out = graph.op("Identity").name("flow_out").input(&args.output(0)).try_build()?;
    let barrier = graph.control_dependencies(&[flow_out], |graph| {
        graph.op("Identity").name("write_barrier").input(flow_grad).try_build()
    })?;
    Ok(barrier.output(0))
}

pub(super) fn read_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None]) };
    let array = GradientArray::of(args, &args.input(2))?;
    let write = array.op("TensorArrayWrite").input(&args.input(1)).input(&grad).input(&array.flow).try_build()?;
    Ok(vec![None, None, Some(write.output(0).into())])
}

pub(super) fn gather_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None]) };
    let array = GradientArray::of(args, &args.input(2))?;
    let scatter = array.op("TensorArrayScatter").input(&args.input(1)).input(&grad).input(&array.flow).try_build()?;
    Ok(vec![None, None, Some(scatter.output(0).into())])
}

/// Of a write of one element or of several.
pub(super) fn write_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(flow_grad) = args.grad(0) else { return Ok(vec![None, None, None, None]) };
    let flow = after_write(args, &flow_grad)?;
    let array = GradientArray::of(args, &flow)?;
    let value = args.input(2);
    let read = if args.op.op_type().starts_with("TensorArrayScatter") {
        let rank = value.shape().rank().unwrap_or(0);
        let element = if rank > 0 { value.shape().slice(1, rank) } else { PartialShape::unknown() };
        array.op("TensorArrayGather").input(&args.input(1)).input(&array.flow).attr("element_shape", element)
    } else {
        array.op("TensorArrayRead").input(&args.input(1)).input(&array.flow)
    };
    let read = read.attr("dtype", value.dtype()).try_build()?;
    Ok(vec![None, None, Some(read.output(0).into()), Some(flow.into())])
}

pub(super) fn concat_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let array = GradientArray::of(args, &args.input(1))?;
    let split = array.op("TensorArraySplit").input(&grad).input(&args.output(1)).input(&array.flow).try_build()?;
    Ok(vec![None, Some(split.output(0).into())])
}

pub(super) fn split_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(flow_grad) = args.grad(0) else { return Ok(vec![None, None, None, None]) };
    let flow = after_write(args, &flow_grad)?;
    let array = GradientArray::of(args, &flow)?;
    let concat = array.op("TensorArrayConcat").input(&array.flow).attr("dtype", args.input(1).dtype()).try_build()?;
    Ok(vec![None, Some(concat.output(0).into()), None, Some(flow.into())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::{
        tensor_array_concat, tensor_array_gather, tensor_array_read, tensor_array_scatter, tensor_array_split,
        tensor_array_v3,
    };
    use crate::testing::check_gradient;
    use std::collections::BTreeSet;
    use tensor::{DType, Tensor};

    fn constant(graph: &graph::Graph, values: &[i32]) -> Output {
        graph.constant_tensor(&Tensor::vector(values))
    }

    #[test]
    fn through_scatter_and_gather() {
        let x = Tensor::from_slice(&[3, 2], &[1f64, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        check_gradient(&[x], |graph, xs| {
            let size = graph.constant_tensor(&Tensor::scalar(3i32));
            let (handle, flow) = tensor_array_v3(graph, &size, DType::Double, &PartialShape::from_dims(&[2]), false);
            let flow = tensor_array_scatter(&handle, &constant(graph, &[0, 1, 2]), &xs[0], &flow);
            let shape = PartialShape::from_dims(&[2]);
            tensor_array_gather(&handle, &constant(graph, &[2, 0]), &flow, DType::Double, &shape)
        });
    }

    #[test]
    fn through_split_read_and_concat() {
        let x = Tensor::from_slice(&[3], &[1f64, 2.0, 3.0]).unwrap();
        check_gradient(&[x], |graph, xs| {
            let size = graph.constant_tensor(&Tensor::scalar(2i32));
            let (handle, flow) = tensor_array_v3(graph, &size, DType::Double, &PartialShape::unknown(), false);
            let lengths = graph.constant_tensor(&Tensor::vector(&[2i64, 1]));
            let flow = tensor_array_split(&handle, &xs[0], &lengths, &flow);
            tensor_array_concat(&handle, &flow, DType::Double).0
        });
        let x = Tensor::from_slice(&[3], &[1f64, 2.0, 3.0]).unwrap();
        check_gradient(&[x], |graph, xs| {
            let size = graph.constant_tensor(&Tensor::scalar(2i32));
            let (handle, flow) = tensor_array_v3(graph, &size, DType::Double, &PartialShape::unknown(), false);
            let lengths = graph.constant_tensor(&Tensor::vector(&[2i64, 1]));
            let flow = tensor_array_split(&handle, &xs[0], &lengths, &flow);
            let index = graph.constant_tensor(&Tensor::scalar(0i32));
            tensor_array_read(&handle, &index, &flow, DType::Double)
        });
    }

    #[test]
    fn calls_of_the_gradient_function_have_arrays_of_their_own() {
        let graph = graph::Graph::with_ops(crate::registry());
        let size = graph.constant_tensor(&Tensor::scalar(1i32));
        let (handle, flow) = tensor_array_v3(&graph, &size, DType::Double, &PartialShape::unknown(), false);
        let x = graph.constant_tensor(&Tensor::from_slice(&[1, 1], &[3f64]).unwrap());
        let flow = tensor_array_scatter(&handle, &constant(&graph, &[0]), &x, &flow);
        let index = graph.constant_tensor(&Tensor::scalar(0i32));
        let y = tensor_array_read(&handle, &index, &flow, DType::Double);
        for _ in 0..2 {
            graph.name_scope("outer", |graph| graph.gradients(&[&y * &y], &[x.clone()]).map(drop)).unwrap();
        }
        let nodes = graph.graph();
        let arrays = nodes.iter().map(|(_, node)| node).filter(|node| node.op() == "TensorArrayGradV3");
        let sources: BTreeSet<String> = arrays.map(|node| node.attrs.string("source").unwrap()).collect();
        assert_eq!(sources.into_iter().collect::<Vec<_>>(), ["outer/gradients", "outer_1/gradients"]);
    }
}
