//! Ops on lists of tensors: EmptyTensorList, TensorListPushBack, TensorListStack and others.

use super::gradients;
use super::list_kernels as kernels;
use graph::{Graph, Output, ShapeContext};
use kernel::{Gradient, KernelDef, Op, OpDef, OpFlags, ShapeFn, shape};
use tensor::{DType, DTypeAndShape, PartialShape, Result, Status};

const ELEMENT: &str = "element_dtype: type";
const SHAPE_TYPE: &str = "shape_type: {int32, int64}";
const HANDLE: &str = "input_handle: variant";
const SHAPE: &str = "element_shape: shape_type";
const OUTPUT: &[&str] = &["output_handle: variant"];
const TYPES: &[&str] = &[ELEMENT, SHAPE_TYPE];

macro_rules! kernel {
    ($run:path) => {
        &[KernelDef::any(|builder| kernels::ListKernel::create(builder, $run))]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    op(
        "EmptyTensorList",
        &[SHAPE, "max_num_elements: int32"],
        &["handle: variant"],
        TYPES,
        new_shape,
        NOTHING,
        kernel!(kernels::empty),
    ),
    op(
        "TensorListReserve",
        &[SHAPE, "num_elements: int32"],
        &["handle: variant"],
        TYPES,
        new_shape,
        NOTHING,
        kernel!(kernels::reserve),
    ),
    op(
        "TensorListPushBack",
        &[HANDLE, "tensor: element_dtype"],
        OUTPUT,
        &[ELEMENT],
        same_list_shape,
        Gradient::Fn(gradients::push_back),
        kernel!(kernels::push_back),
    ),
    op(
        "TensorListPopBack",
        &[HANDLE, "element_shape: int32"],
        &["output_handle: variant", "tensor: element_dtype"],
        &[ELEMENT],
        pop_shape,
        Gradient::Fn(gradients::pop_back),
        kernel!(kernels::pop_back),
    ),
    op(
        "TensorListStack",
        &[HANDLE, "element_shape: int32"],
        &["tensor: element_dtype"],
        &[ELEMENT, "num_elements: int = -1"],
        stack_shape,
        Gradient::Fn(gradients::stack),
        kernel!(kernels::stack),
    ),
    op(
        "TensorListGetItem",
        &[HANDLE, "index: int32", "element_shape: int32"],
        &["item: element_dtype"],
        &[ELEMENT],
        get_shape,
        Gradient::Fn(gradients::get_item),
        kernel!(kernels::get_item),
    ),
    op(
        "TensorListSetItem",
        &[HANDLE, "index: int32", "item: element_dtype"],
        OUTPUT,
        &[ELEMENT, "resize_if_index_out_of_bounds: bool = false"],
        same_list_shape,
        Gradient::Fn(gradients::set_item),
        kernel!(kernels::set_item),
    ),
    op(
        "TensorListFromTensor",
        &["tensor: element_dtype", SHAPE],
        OUTPUT,
        TYPES,
        from_tensor_shape,
        Gradient::Fn(gradients::from_tensor),
        kernel!(kernels::from_tensor),
    ),
    op(
        "TensorListLength",
        &[HANDLE],
        &["length: int32"],
        &[],
        shape::scalar,
        Gradient::NotDifferentiable,
        kernel!(kernels::length),
    ),
    op(
        "TensorListElementShape",
        &[HANDLE],
        &["element_shape: shape_type"],
        &[SHAPE_TYPE],
        element_shape_shape,
        Gradient::NotDifferentiable,
        kernel!(kernels::element_shape),
    ),
    op(
        "TensorListConcat",
        &[HANDLE],
        &["tensor: element_dtype", "lengths: int64"],
        &[ELEMENT, "element_shape: shape = { unknown_rank: true }"],
        concat_shape,
        Gradient::Fn(gradients::concat),
        kernel!(kernels::concat),
    ),
    op(
        "TensorListConcatV2",
        &[HANDLE, SHAPE, "leading_dims: int64"],
        &["tensor: element_dtype", "lengths: int64"],
        TYPES,
        concat_shape,
        Gradient::Fn(gradients::concat),
        kernel!(kernels::concat),
    ),
    op(
        "TensorListGather",
        &[HANDLE, "indices: int32", "element_shape: int32"],
        &["values: element_dtype"],
        &[ELEMENT],
        gather_shape,
        Gradient::Fn(gradients::gather),
        kernel!(kernels::gather),
    ),
    op(
        "TensorListSplit",
        &["tensor: element_dtype", SHAPE, "lengths: int64"],
        OUTPUT,
        TYPES,
        scattered_shape,
        Gradient::Fn(gradients::split),
        kernel!(kernels::split),
    ),
    op(
        "TensorListScatter",
        &["tensor: element_dtype", "indices: int32", SHAPE],
        OUTPUT,
        TYPES,
        scattered_shape,
        Gradient::Fn(gradients::scatter),
        kernel!(kernels::scatter),
    ),
    op(
        "TensorListScatterV2",
        &["tensor: element_dtype", "indices: int32", SHAPE, "num_elements: int32"],
        OUTPUT,
        TYPES,
        scattered_shape,
        Gradient::Fn(gradients::scatter),
        kernel!(kernels::scatter),
    ),
    op(
        "TensorListScatterIntoExistingList",
        &[HANDLE, "tensor: element_dtype", "indices: int32"],
        OUTPUT,
        &[ELEMENT],
        same_list_shape,
        Gradient::Fn(gradients::scatter_into_existing_list),
        kernel!(kernels::scatter_into_existing_list),
    ),
    op(
        "TensorListResize",
        &[HANDLE, "size: int32"],
        OUTPUT,
        &[],
        same_list_shape,
        Gradient::Fn(gradients::resize),
        kernel!(kernels::resize),
    ),
    op(
        "TensorListConcatLists",
        &["input_a: variant", "input_b: variant"],
        &["output: variant"],
        &[ELEMENT],
        lists_shape,
        Gradient::NotDifferentiable,
        kernel!(kernels::concat_lists),
    ),
    op(
        "TensorListPushBackBatch",
        &["input_handles: variant", "tensor: element_dtype"],
        &["output_handles: variant"],
        &[ELEMENT],
        lists_shape,
        Gradient::NotDifferentiable,
        kernel!(kernels::push_back_batch),
    ),
];

const NOTHING: Gradient = Gradient::Unsupported;

const fn op(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    gradient: Gradient,
    kernels: &'static [KernelDef],
) -> Op {
    Op { def: OpDef { name, inputs, outputs, attrs, flags: OpFlags::NONE }, shape, gradient, kernels }
}

/// Returns a list without elements; `element_shape` is a vector of sizes, or -1 for any shape.
#[track_caller]
pub fn empty_tensor_list(element_shape: &Output, max_num_elements: &Output, element_dtype: DType) -> Output {
    let graph: &Graph = element_shape.graph();
    graph
        .op("EmptyTensorList")
        .input(element_shape)
        .input(max_num_elements)
        .attr("element_dtype", element_dtype)
        .output()
}

/// Returns a list of this many elements, which read as zeros.
#[track_caller]
pub fn tensor_list_reserve(element_shape: &Output, num_elements: &Output, element_dtype: DType) -> Output {
    let graph: &Graph = element_shape.graph();
    graph.op("TensorListReserve").input(element_shape).input(num_elements).attr("element_dtype", element_dtype).output()
}

/// Returns the list with an element appended.
#[track_caller]
pub fn tensor_list_push_back(list: &Output, tensor: &Output) -> Output {
    list.graph().op("TensorListPushBack").input(list).input(tensor).output()
}

/// Returns the list with one element replaced.
#[track_caller]
pub fn tensor_list_set_item(list: &Output, index: &Output, item: &Output) -> Output {
    list.graph().op("TensorListSetItem").input(list).input(index).input(item).output()
}

/// Returns an element of a list.
#[track_caller]
pub fn tensor_list_get_item(list: &Output, index: &Output, element_shape: &Output, element_dtype: DType) -> Output {
    let op = list.graph().op("TensorListGetItem").input(list).input(index).input(element_shape);
    op.attr("element_dtype", element_dtype).output()
}

/// Returns the rows of a tensor as a list.
#[track_caller]
pub fn tensor_list_from_tensor(tensor: &Output, element_shape: &Output) -> Output {
    tensor.graph().op("TensorListFromTensor").input(tensor).input(element_shape).output()
}

/// Returns the elements of a list as the rows of a tensor.
#[track_caller]
pub fn tensor_list_stack(list: &Output, element_shape: &Output, element_dtype: DType) -> Output {
    let op = list.graph().op("TensorListStack").input(list).input(element_shape);
    op.attr("element_dtype", element_dtype).output()
}

/// Returns the number of elements of a list.
#[track_caller]
pub fn tensor_list_length(list: &Output) -> Output {
    list.graph().op("TensorListLength").input(list).output()
}

/// The handle carries the inferred shape of a list's elements.
fn known(c: &ShapeContext<'_>, index: usize) -> Option<DTypeAndShape> {
    c.input_handles.get(index).and_then(|handle| handle.first()).cloned()
}

fn set_known(c: &mut ShapeContext<'_>, index: usize, shape: PartialShape) -> Result<()> {
    let dtype = c.attrs.dtype("element_dtype")?;
    c.output_handles[index] = vec![DTypeAndShape { dtype, shape }];
    Ok(())
}

/// Returns the element shape in an input: sizes, or -1 for any shape.
fn shape_argument(c: &ShapeContext<'_>, index: usize) -> Result<PartialShape> {
    if c.input(index).rank() == Some(0) {
        return Ok(PartialShape::unknown());
    }
    c.constant_as_shape(index)
}

/// Returns the merged element shape of a list and an argument.
fn element_shape(c: &ShapeContext<'_>, list: usize, argument: Option<usize>) -> Result<PartialShape> {
    let mut shape = PartialShape::unknown();
    if let Some(list) = known(c, list) {
        if let Ok(dtype) = c.attrs.dtype("element_dtype")
            && dtype != list.dtype
        {
            return Err(Status::invalid_argument(format!(
                "Trying to read from list with wrong element dtype. List has type {} but expected type {dtype}",
                list.dtype
            )));
        }
        shape = list.shape;
    }
    match argument {
        Some(argument) => shape.merge(&shape_argument(c, argument)?),
        None => Ok(shape),
    }
}

fn new_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    let shape = shape_argument(c, 0)?;
    set_known(c, 0, shape)
}

fn same_list_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    c.output_handles[0] = c.input_handles.first().cloned().unwrap_or_default();
    Ok(())
}

fn pop_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = element_shape(c, 0, Some(1))?;
    same_list_shape(c)?;
    c.set_output(1, shape);
    Ok(())
}

fn stack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = element_shape(c, 0, Some(1))?;
    let rows = c.attrs.int("num_elements")?;
    c.set_output(0, PartialShape::new(&[(rows >= 0).then_some(rows)]).concat(&shape));
    Ok(())
}

fn get_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = element_shape(c, 0, Some(2))?;
    c.set_output(0, shape);
    Ok(())
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = element_shape(c, 0, Some(2))?;
    let rows = c.with_rank(1, 1)?;
    c.set_output(0, rows.concat(&shape));
    Ok(())
}

fn from_tensor_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    let tensor = c.with_rank_at_least(0, 1)?;
    let row = tensor.rank().map_or_else(PartialShape::unknown, |rank| tensor.slice(1, rank));
    let shape = row.merge(&shape_argument(c, 1)?)?;
    set_known(c, 0, shape)
}

fn scattered_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::scalar());
    let argument = if c.schema.name.starts_with("TensorListSplit") { 1 } else { 2 };
    let shape = shape_argument(c, argument)?;
    set_known(c, 0, shape)
}

fn element_shape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = match known(c, 0).and_then(|list| list.shape.rank()) {
        Some(rank) => PartialShape::new(&[Some(rank as i64)]),
        None => PartialShape::unknown(),
    };
    c.set_output(0, shape);
    Ok(())
}

fn concat_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = element_shape(c, 0, (c.num_inputs() > 1).then_some(1))?;
    if let Ok(given) = c.attrs.shape("element_shape") {
        shape = shape.merge(&given)?;
    }
    let output = match shape.rank() {
        Some(rank) if rank > 0 => PartialShape::unknown_of_rank(1).concat(&shape.slice(1, rank)),
        _ => PartialShape::unknown(),
    };
    c.set_output(0, output);
    c.set_output(1, PartialShape::unknown_of_rank(1));
    Ok(())
}

fn lists_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.input(0);
    c.set_output(0, shape);
    c.output_handles[0] = c.input_handles.first().cloned().unwrap_or_default();
    Ok(())
}

#[cfg(test)]
mod tests;
