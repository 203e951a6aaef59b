//! CollectiveAllToAllV2 and CollectiveAllToAllV3: every member receives one row from each member.

use super::FLAGS;
use super::kernel_op::{CollectiveOp, Plan, Planned};
use kernel::{CollectiveKind, Gradient, KernelDef, Op, OpDef, shape};
use tensor::Status;

const TYPES: &str = "T: {bfloat16, float, half, double, int32, int64}";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CollectiveAllToAllV2",
            inputs: &[
                "input: T",
                "group_size: int32",
                "group_key: int32",
                "instance_key: int32",
                "ordering_token: Nordering_token * resource",
            ],
            outputs: &["data: T"],
            attrs: &[
                TYPES,
                "communication_hint: string = 'auto'",
                "timeout_seconds: float = 0.0",
                "is_stateless: bool = false",
                "Nordering_token: int >= 0 = 0",
            ],
            flags: FLAGS,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| CollectiveOp::by_inputs(builder, 1, all_to_all()))],
    },
    Op {
        def: OpDef {
            name: "CollectiveAllToAllV3",
            inputs: &["input: T", "communicator: resource", "group_assignment: int32"],
            outputs: &["data: T"],
            attrs: &[TYPES, "timeout_seconds: float = 0.0"],
            flags: FLAGS,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| CollectiveOp::by_communicator(builder, all_to_all()))],
    },
];

fn all_to_all() -> Plan {
    Box::new(|op, group_size| {
        let input = op.take_input(0)?;
        let shape = input.shape().clone();
        let rows = if shape.rank() == 0 { 0 } else { shape.size(0) };
        if rows != group_size {
            return Err(Status::invalid_argument(format!(
                "input to all-to-all first dimension size ({rows}) must be the same as the group size ({group_size})"
            )));
        }
        Ok(Planned { kind: CollectiveKind::AllToAll, input: Some(input), shape })
    })
}
