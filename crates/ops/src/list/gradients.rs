//! The gradients of list ops: the gradient of a list is a list.

use crate::compose::{call, int_vector, shape_of};
use graph::Output;
use kernel::{Grad, GradientArgs};
use tensor::{DType, Result, Status, Tensor};

type Gradients = Result<Vec<Option<Grad>>>;

fn none(args: &GradientArgs<'_>) -> Gradients {
    Ok(vec![None; args.op.num_inputs()])
}

/// Returns a list op's output, given inputs and the type of elements.
fn list_op(op: &str, inputs: &[&Output], dtype: DType) -> Result<Output> {
    let first = inputs.first().ok_or_else(|| Status::internal("a list op without inputs"))?;
    let mut builder = first.graph().op(op);
    for input in inputs {
        builder = builder.input(input);
    }
    builder.attr("element_dtype", dtype).try_build()?.try_output(0)
}

/// Returns the shape of a tensor's rows.
fn row_shape(tensor: &Output) -> Result<Output> {
    let graph = tensor.graph();
    call("Slice", &[&shape_of(tensor)?, &int_vector(graph, &[1])?, &int_vector(graph, &[-1])?])
}

fn element_shape(list: &Output) -> Result<Output> {
    let op = list.graph().op("TensorListElementShape").input(list).attr("shape_type", DType::Int32);
    op.try_build()?.try_output(0)
}

pub(super) fn push_back(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let tensor = args.input(1);
    let op = grad.graph().op("TensorListPopBack").input(&grad).input(&shape_of(&tensor)?);
    let op = op.attr("element_dtype", tensor.dtype()).try_build()?;
    Ok(vec![Some(op.try_output(0)?.into()), Some(op.try_output(1)?.into())])
}

pub(super) fn pop_back(args: &GradientArgs<'_>) -> Gradients {
    let element = args.output(1);
    let graph = element.graph();
    let grad_list = match args.grad(0) {
        Some(grad) => grad,
        None => {
            let any = graph.constant_tensor(&Tensor::scalar(-1i32));
            list_op("EmptyTensorList", &[&element_shape(&args.output(0))?, &any], element.dtype())?
        }
    };
    let grad = match args.grad(1) {
        Some(grad) => grad,
        None => call("ZerosLike", &[&element])?,
    };
    Ok(vec![Some(list_op("TensorListPushBack", &[&grad_list, &grad], element.dtype())?.into()), None])
}

pub(super) fn stack(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let list = list_op("TensorListFromTensor", &[&grad, &row_shape(&grad)?], grad.dtype())?;
    Ok(vec![Some(list.into()), None])
}

pub(super) fn from_tensor(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let tensor = args.input(0);
    let op = grad.graph().op("TensorListStack").input(&grad).input(&row_shape(&tensor)?);
    let op = op.attr("element_dtype", tensor.dtype()).attr("num_elements", tensor.shape().dim(0).unwrap_or(-1));
    Ok(vec![Some(op.try_build()?.try_output(0)?.into()), None])
}

pub(super) fn get_item(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let list = args.input(0);
    let length = call("TensorListLength", &[&list])?;
    let reserved = list_op("TensorListReserve", &[&element_shape(&list)?, &length], grad.dtype())?;
    let set = list_op("TensorListSetItem", &[&reserved, &args.input(1), &grad], grad.dtype())?;
    Ok(vec![Some(set.into()), None, None])
}

pub(super) fn set_item(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let (index, item) = (args.input(1), args.input(2));
    let zeros = call("ZerosLike", &[&item])?;
    let list = list_op("TensorListSetItem", &[&grad, &index, &zeros], item.dtype())?;
    let element = list_op("TensorListGetItem", &[&grad, &index, &shape_of(&item)?], item.dtype())?;
    Ok(vec![Some(list.into()), None, Some(element.into())])
}

pub(super) fn concat(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let inputs = [&grad, &element_shape(&args.input(0))?, &args.output(1)];
    let mut grads = vec![Some(list_op("TensorListSplit", &inputs, grad.dtype())?.into())];
    grads.resize(args.op.num_inputs(), None);
    Ok(grads)
}

pub(super) fn split(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let tensor = args.input(0);
    let graph = tensor.graph();
    let axis = crate::compose::int_scalar(graph, 0)?;
    let parts = [int_vector(graph, &[-1])?, row_shape(&tensor)?];
    let shape = graph.op("ConcatV2").inputs(&parts).input(&axis).try_build()?.try_output(0)?;
    let joined = list_op("TensorListConcatV2", &[&grad, &shape, &args.input(2)], tensor.dtype())?;
    Ok(vec![Some(joined.into()), None, None])
}

pub(super) fn gather(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let list = args.input(0);
    let length = call("TensorListLength", &[&list])?;
    let inputs = [&grad, &args.input(1), &element_shape(&list)?, &length];
    Ok(vec![Some(list_op("TensorListScatterV2", &inputs, grad.dtype())?.into()), None, None])
}

pub(super) fn scatter(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let tensor = args.input(0);
    let gathered = list_op("TensorListGather", &[&grad, &args.input(1), &row_shape(&tensor)?], tensor.dtype())?;
    let mut grads = vec![Some(gathered.into())];
    grads.resize(args.op.num_inputs(), None);
    Ok(grads)
}

pub(super) fn scatter_into_existing_list(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let (tensor, indices) = (args.input(1), args.input(2));
    let gathered = list_op("TensorListGather", &[&grad, &indices, &row_shape(&tensor)?], tensor.dtype())?;
    let zeros = call("ZerosLike", &[&tensor])?;
    let list = list_op("TensorListScatterIntoExistingList", &[&grad, &zeros, &indices], tensor.dtype())?;
    Ok(vec![Some(list.into()), Some(gathered.into()), None])
}

pub(super) fn resize(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return none(args) };
    let length = call("TensorListLength", &[&args.input(0)])?;
    Ok(vec![Some(call("TensorListResize", &[&grad, &length])?.into()), None])
}
