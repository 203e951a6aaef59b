//! Tests of lists, with TensorFlow's results.

use super::super::tensor_list::TensorList;
use crate::testing::{attrs, run_op};
use graph::AttrMap;
use tensor::{DType, PartialShape, Result, Shape, Tensor, tensor_from_proto, tensor_to_proto};

fn matrix() -> Tensor {
    Tensor::from_slice(&[3, 2], &[1f32, 2., 3., 4., 5., 6.]).unwrap()
}

fn float() -> AttrMap {
    attrs![("element_dtype", DType::Float)]
}

fn list() -> Tensor {
    run_op("TensorListFromTensor", attrs![], &[matrix(), Tensor::vector(&[2i32])]).unwrap().remove(0)
}

fn pair() -> Tensor {
    Tensor::vector(&[2i32])
}

fn stacked(list: Tensor) -> Result<Vec<f32>> {
    let outputs = run_op("TensorListStack", float(), &[list, pair()])?;
    Ok(outputs[0].as_slice::<f32>()?.to_vec())
}

fn run(op: &str, attrs: AttrMap, inputs: &[Tensor]) -> Result<Tensor> {
    Ok(run_op(op, attrs, inputs)?.remove(0))
}

fn problem(result: Result<Tensor>) -> String {
    result.unwrap_err().message().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn elements_go_in_and_come_out() {
    assert_eq!(stacked(list()).unwrap(), [1., 2., 3., 4., 5., 6.]);
    let item = Tensor::vector(&[7f32, 8.]);
    let set = |index: i32| run("TensorListSetItem", attrs![], &[list(), Tensor::scalar(index), item.clone()]);
    assert_eq!(stacked(set(1).unwrap()).unwrap(), [1., 2., 7., 8., 5., 6.]);
    assert_eq!(problem(set(5)), "Trying to modify element 5 in a list with 3 elements.");
    let get = |list: Tensor, index: i32| run("TensorListGetItem", float(), &[list, Tensor::scalar(index), pair()]);
    assert_eq!(get(list(), 1).unwrap().as_slice::<f32>().unwrap(), &[3., 4.]);
    assert_eq!(problem(get(list(), -1)), "Trying to access element -1 in a list with 3 elements.");
    let pushed = run("TensorListPushBack", attrs![], &[list(), item]).unwrap();
    let length = run("TensorListLength", attrs![], std::slice::from_ref(&pushed)).unwrap();
    assert_eq!(length.to_scalar::<i32>().unwrap(), 4);
    let popped = run_op("TensorListPopBack", float(), &[pushed, pair()]).unwrap();
    assert_eq!(popped[1].as_slice::<f32>().unwrap(), &[7., 8.]);
    assert_eq!(stacked(popped[0].clone()).unwrap().len(), 6);
}

#[test]
fn elements_that_were_never_set_are_zeros() {
    let any = || Tensor::scalar(-1i32);
    let reserved = |shape: Tensor| run("TensorListReserve", float(), &[shape, Tensor::scalar(3i32)]).unwrap();
    assert_eq!(stacked(reserved(pair())).unwrap(), [0.; 6]);
    let inputs = [reserved(any()), Tensor::scalar(1i32), Tensor::vector(&[7f32, 8.])];
    let set = run("TensorListSetItem", attrs![], &inputs).unwrap();
    let all = run("TensorListStack", float(), &[set, any()]).unwrap();
    assert_eq!(all.as_slice::<f32>().unwrap(), &[0., 0., 7., 8., 0., 0.]);
    assert_eq!(
        problem(run("TensorListStack", float(), &[reserved(any()), any()])),
        "Tried to stack list which only contains uninitialized tensors and has a non-fully-defined element_shape: <unknown>"
    );
    assert_eq!(
        problem(run("TensorListGetItem", float(), &[reserved(any()), Tensor::scalar(1i32), any()])),
        "Trying to read an uninitialized tensor but element_shape is not fully defined: <unknown> and no list element is \
         set."
    );
}

#[test]
fn bounds() {
    let empty = |max: i32| run("EmptyTensorList", float(), &[pair(), Tensor::scalar(max)]).unwrap();
    let push = |list: Tensor| run("TensorListPushBack", attrs![], &[list, Tensor::vector(&[1f32, 2.])]);
    assert_eq!(stacked(push(empty(-1)).unwrap()).unwrap(), [1., 2.]);
    assert_eq!(problem(push(empty(0))), "Tried to push item into a full list list size: 0 max_num_elements: 0");
    assert_eq!(problem(run("TensorListPopBack", float(), &[empty(1), pair()])), "Trying to pop from an empty list.");
    let exact = attrs![("element_dtype", DType::Float), ("num_elements", 4i64)];
    assert_eq!(
        problem(run("TensorListStack", exact, &[list(), pair()])),
        "Operation expected a list with 4 elements but got a list with 3 elements."
    );
    let resized = run("TensorListResize", attrs![], &[list(), Tensor::scalar(5i32)]).unwrap();
    assert_eq!(stacked(resized).unwrap()[4..], [5., 6., 0., 0., 0., 0.]);
}

#[test]
fn several_elements_at_once() {
    let gather = |indices: &[i32]| run("TensorListGather", float(), &[list(), Tensor::vector(indices), pair()]);
    assert_eq!(gather(&[2, 0]).unwrap().as_slice::<f32>().unwrap(), &[5., 6., 1., 2.]);
    assert_eq!(problem(gather(&[2, 9])), "Index 9 out o range; list only has 3 elements.");
    let places = Tensor::vector(&[0i32, 3, 1]);
    let scattered = run("TensorListScatter", attrs![], &[matrix(), places.clone(), pair()]).unwrap();
    assert_eq!(stacked(scattered).unwrap(), [1., 2., 5., 6., 0., 0., 3., 4.]);
    let inputs = [matrix(), places, pair(), Tensor::scalar(6i32)];
    let scattered = run("TensorListScatterV2", attrs![], &inputs).unwrap();
    assert_eq!(stacked(scattered).unwrap().len(), 12);
    let one = Tensor::from_slice(&[1, 2], &[9f32, 9.]).unwrap();
    let into = run("TensorListScatterIntoExistingList", attrs![], &[list(), one, Tensor::vector(&[1i32])]).unwrap();
    assert_eq!(stacked(into).unwrap(), [1., 2., 9., 9., 5., 6.]);
    let both = run("TensorListConcatLists", float(), &[list(), list()]).unwrap();
    assert_eq!(stacked(both).unwrap().len(), 12);
}

#[test]
fn parts_of_different_length() {
    let column = Tensor::from_slice(&[3, 1], &[1f32, 2., 3.]).unwrap();
    let any_rows = || Tensor::vector(&[-1i32, 1]);
    let split =
        |lengths: &[i64]| run("TensorListSplit", attrs![], &[column.clone(), any_rows(), Tensor::vector(lengths)]);
    let parts = split(&[1, 2]).unwrap();
    let joined = run_op("TensorListConcatV2", float(), &[parts, any_rows(), Tensor::vector::<i64>(&[])]).unwrap();
    assert_eq!(joined[0].as_slice::<f32>().unwrap(), &[1., 2., 3.]);
    assert_eq!(joined[1].as_slice::<i64>().unwrap(), &[1, 2]);
    assert_eq!(problem(split(&[1, 1])), "Unused values in tensor. Length of tensor: 3 Values used: 2");
}

#[test]
fn lists_travel() {
    let mut sent = TensorList::reserved(DType::Float, PartialShape::from_dims(&[-1]), 3).unwrap();
    sent.elements[1] = Some(Tensor::vector(&[1f32, 2.]));
    let encoded = tensor_to_proto(&sent.into_tensor()).unwrap();
    let received = TensorList::of(&tensor_from_proto(&encoded).unwrap()).unwrap();
    assert_eq!(received.elements.len(), 3);
    assert!(received.elements[0].is_none() && received.elements[2].is_none());
    assert_eq!(received.elements[1].as_ref().unwrap().as_slice::<f32>().unwrap(), &[1., 2.]);
    assert_eq!(received.element_shape, PartialShape::from_dims(&[-1]));
    assert_eq!(received.max_num_elements, -1);
}

#[test]
fn sums_and_zeros() {
    let sum = run("AddN", attrs![], &[list(), list()]).unwrap();
    assert_eq!(stacked(sum).unwrap(), [2., 4., 6., 8., 10., 12.]);
    let zeros = run("ZerosLike", attrs![], &[list()]).unwrap();
    assert_eq!(stacked(zeros).unwrap(), [0.; 6]);
    assert_eq!(Shape::scalar(), *list().shape());
}
