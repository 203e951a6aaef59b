//! Optimizer updates on resource variables, against figures computed by hand.

use crate::registry;
use graph::{Edge, GraphBuilder, Output};
use kernel::{Step, evaluate};
use std::sync::Arc;
use tensor::{Code, DType, Result, Status, Tensor};

/// Assigns variables, applies an op to them once, and returns their values afterwards.
fn apply(op: &str, slots: &[Tensor], rest: &[Tensor]) -> Result<Vec<Tensor>> {
    let g = GraphBuilder::new(registry());
    let step = Arc::new(Step::detached());
    let mut handles: Vec<Output> = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        let name = format!("v{index}");
        let shape = tensor::PartialShape::from(slot.shape());
        let handle =
            g.op("VarHandleOp").attr("dtype", slot.dtype()).attr("shape", shape).attr("shared_name", name).output();
        let assign = g.op("AssignVariableOp").input(&handle).input(&g.constant_tensor(slot)).build();
        run(&g, &assign, &step)?;
        handles.push(handle);
    }
    let rest: Vec<Output> = rest.iter().map(|value| g.constant_tensor(value)).collect();
    let update = g.op(op).inputs(&handles).inputs(&rest).try_build()?;
    run(&g, &update, &step)?;
    let reads: Vec<Edge> = handles
        .iter()
        .zip(slots)
        .map(|(handle, slot)| g.op("ReadVariableOp").input(handle).attr("dtype", slot.dtype()).output().edge())
        .collect();
    evaluate(registry(), &g.graph(), &[], &reads, &step)
}

fn run(g: &GraphBuilder, op: &graph::Operation, step: &Arc<Step>) -> Result<()> {
    let after =
        g.op("Const").attr("dtype", DType::Int32).attr("value", tensor::tensor_to_proto(&Tensor::scalar(0i32))?);
    let after = after.control(op).try_build()?.output(0);
    evaluate(registry(), &g.graph(), &[], &[after.edge()], step).map(drop)
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::vector(values)
}

#[test]
fn gradient_descent() {
    let values =
        apply("ResourceApplyGradientDescent", &[floats(&[1.0, 2.0])], &[Tensor::scalar(0.5f32), floats(&[2.0, -2.0])]);
    assert_eq!(values.unwrap()[0].as_slice::<f32>().unwrap(), &[0.0, 3.0]);
}

#[test]
fn adam_takes_its_first_step_by_the_learning_rate() {
    let slots = [floats(&[1.0, 1.0]), floats(&[0.0, 0.0]), floats(&[0.0, 0.0])];
    let scalars = [0.9f32, 0.999, 0.01, 0.9, 0.999, 1e-8].map(Tensor::scalar);
    let rest: Vec<Tensor> = scalars.into_iter().chain([floats(&[3.0, -0.1])]).collect();
    let values = apply("ResourceApplyAdam", &slots, &rest).unwrap();
    for (value, expected) in values[0].as_slice::<f32>().unwrap().iter().zip([0.99, 1.01]) {
        assert!((value - expected).abs() < 1e-5, "{value}");
    }
    assert!((values[1].as_slice::<f32>().unwrap()[0] - 0.3).abs() < 1e-6);
}

#[test]
fn rows_only() {
    let table = Tensor::from_slice(&[3, 1], &[1f32, 2.0, 3.0]).unwrap();
    let accum = Tensor::from_slice(&[3, 1], &[0f32, 0.0, 0.0]).unwrap();
    let grad = Tensor::from_slice(&[2, 1], &[2f32, 4.0]).unwrap();
    let rest = [Tensor::scalar(1f32), grad, Tensor::vector(&[2i32, 0])];
    let values = apply("ResourceSparseApplyAdagrad", &[table.clone(), accum.clone()], &rest).unwrap();
    assert_eq!(values[0].as_slice::<f32>().unwrap(), &[0.0, 2.0, 2.0]);
    assert_eq!(values[1].as_slice::<f32>().unwrap(), &[16.0, 0.0, 4.0]);
    let bad = [rest[0].clone(), rest[1].clone(), Tensor::vector(&[3i32, 0])];
    let status: Status = apply("ResourceSparseApplyAdagrad", &[table, accum], &bad).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("Index 3 at offset 0"), "{status}");
}

#[test]
fn shapes_that_differ_are_refused() {
    let status =
        apply("ResourceApplyGradientDescent", &[floats(&[1.0, 2.0])], &[Tensor::scalar(0.5f32), floats(&[2.0])])
            .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("do not have the same shape"), "{status}");
}
