//! CollectiveBcastSend and CollectiveBcastRecv, and their second versions: all members receive one member's tensor.

use super::FLAGS;
use super::kernel_op::{CollectiveOp, Plan, Planned};
use graph::{Graph, Output};
use kernel::{CollectiveKind, Gradient, KernelBuilder, KernelDef, Op, OpDef, shape};
use tensor::{DType, Result, Shape, Status};

const TYPES: &str = "T: {bool, float, half, double, int32, int64}";
const HINT: &str = "communication_hint: string = 'auto'";
const TIMEOUT: &str = "timeout_seconds: float = 0.0";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CollectiveBcastSend",
            inputs: &["input: T"],
            outputs: &["data: T"],
            attrs: &[TYPES, "group_size: int", "group_key: int", "instance_key: int", "shape: shape", HINT, TIMEOUT],
            flags: FLAGS,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            CollectiveOp::by_attrs(builder, send(Some((shape_attr(builder)?, builder.name().to_owned()))))
        })],
    },
    Op {
        def: OpDef {
            name: "CollectiveBcastRecv",
            inputs: &[],
            outputs: &["data: T"],
            attrs: &[TYPES, "group_size: int", "group_key: int", "instance_key: int", "shape: shape", HINT, TIMEOUT],
            flags: FLAGS,
        },
        shape: shape::from_shape_attr,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let shape = shape_attr(builder)?;
            CollectiveOp::by_attrs(builder, Box::new(move |_, _| Ok(receive(shape.clone()))))
        })],
    },
    Op {
        def: OpDef {
            name: "CollectiveBcastSendV2",
            inputs: &["input: T", "group_size: int32", "group_key: int32", "instance_key: int32"],
            outputs: &["data: T"],
            attrs: &[TYPES, HINT, TIMEOUT],
            flags: FLAGS,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| CollectiveOp::by_inputs(builder, 1, send(None)))],
    },
    Op {
        def: OpDef {
            name: "CollectiveBcastRecvV2",
            inputs: &["group_size: int32", "group_key: int32", "instance_key: int32", "shape: Tshape"],
            outputs: &["data: T"],
            attrs: &[TYPES, "Tshape: {int32, int64} = DT_INT32", HINT, TIMEOUT],
            flags: FLAGS,
        },
        shape: |c| {
            let shape = c.constant_as_shape(3)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let plan: Plan = Box::new(|op, _| Ok(receive(Shape::new(&op.input(3)?.to_indices()?)?)));
            CollectiveOp::by_inputs(builder, 0, plan)
        })],
    },
];

/// Sends `input`, of a known shape, to `group_size - 1` other devices, and returns it.
#[track_caller]
pub fn collective_bcast_send(
    input: &Output,
    shape: &Shape,
    group_size: i64,
    group_key: i64,
    instance_key: i64,
) -> Output {
    let op = input.graph().op("CollectiveBcastSend").input(input).attr("shape", shape.clone());
    op.attr("group_size", group_size).attr("group_key", group_key).attr("instance_key", instance_key).output()
}

/// Returns the tensor of the device that runs [`collective_bcast_send`] with the same keys.
#[track_caller]
pub fn collective_bcast_recv(
    graph: &Graph,
    dtype: DType,
    shape: &Shape,
    group_size: i64,
    group_key: i64,
    instance_key: i64,
) -> Output {
    let op = graph.op("CollectiveBcastRecv").attr("T", dtype).attr("shape", shape.clone());
    op.attr("group_size", group_size).attr("group_key", group_key).attr("instance_key", instance_key).output()
}

fn shape_attr(builder: &KernelBuilder<'_>) -> Result<Shape> {
    let shape = builder.attrs().shape("shape")?;
    shape.to_shape().ok_or_else(|| {
        Status::invalid_argument(format!("the attribute 'shape' must be fully defined for a broadcast, not {shape}"))
    })
}

/// Sends a tensor; it must have the shape that the node declares, if it does.
fn send(declared: Option<(Shape, String)>) -> Plan {
    Box::new(move |op, _| {
        let input = op.take_input(0)?;
        let shape = input.shape().clone();
        if let Some((declared, name)) = &declared
            && *declared != shape
        {
            return Err(Status::invalid_argument(format!(
                "Declared shape of op {name}: Broadcast(1) does not match shape of input: {declared} vs. {shape}"
            )));
        }
        Ok(Planned { kind: CollectiveKind::Broadcast { is_source: true }, input: Some(input), shape })
    })
}

fn receive(shape: Shape) -> Planned {
    Planned { kind: CollectiveKind::Broadcast { is_source: false }, input: None, shape }
}
