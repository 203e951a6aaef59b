//! CollectiveGather and CollectiveGatherV2: every member receives all members' tensors, concatenated along axis 0.

use super::FLAGS;
use super::kernel_op::{CollectiveOp, Plan, Planned};
use graph::Output;
use kernel::{CollectiveKind, Gradient, KernelDef, Op, OpDef};
use tensor::{PartialShape, Result, Shape, Status};

const TYPES: &str = "T: {float, half, double, int32, int64}";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CollectiveGather",
            inputs: &["input: T"],
            outputs: &["data: T"],
            attrs: &[
                TYPES,
                "group_size: int",
                "group_key: int",
                "instance_key: int",
                "shape: shape",
                "communication_hint: string = 'auto'",
                "timeout_seconds: float = 0.0",
            ],
            flags: FLAGS,
        },
        shape: |c| {
            let input = c.with_rank_at_least(0, 1)?;
            let group_size = c.attrs.int("group_size")?;
            let rows = input.dim(0).and_then(|rows| rows.checked_mul(group_size)).filter(|rows| *rows >= 0);
            let known = input.rank().is_some();
            c.set_output(0, if known { input.with_dim(0, rows) } else { PartialShape::unknown() });
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| CollectiveOp::by_attrs(builder, gather()))],
    },
    Op {
        def: OpDef {
            name: "CollectiveGatherV2",
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
        shape: |c| {
            let input = c.with_rank_at_least(0, 1)?;
            c.set_output(0, input.with_dim(0, None));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| CollectiveOp::by_inputs(builder, 1, gather()))],
    },
];

/// Returns `input` and the tensors of `group_size - 1` other devices with the same keys, concatenated in the order of the
/// devices.
#[track_caller]
pub fn collective_gather(input: &Output, group_size: i64, group_key: i64, instance_key: i64) -> Output {
    let op = input.graph().op("CollectiveGather").input(input);
    let op = op.attr("group_size", group_size).attr("group_key", group_key).attr("instance_key", instance_key);
    op.attr("shape", PartialShape::unknown()).output()
}

fn gather() -> Plan {
    Box::new(|op, group_size| {
        let input = op.take_input(0)?;
        let shape = all_of(input.shape(), group_size)?;
        Ok(Planned { kind: CollectiveKind::Gather, input: Some(input), shape })
    })
}

/// Returns the shape of all members' tensors together.
fn all_of(shape: &Shape, group_size: usize) -> Result<Shape> {
    if shape.rank() == 0 {
        return Err(Status::invalid_argument("input should have rank > 0, received 0"));
    }
    let rows = i64::try_from(group_size).ok().and_then(|size| shape.dim(0).checked_mul(size));
    let rows = rows.ok_or_else(|| {
        Status::invalid_argument(format!("{group_size} inputs of shape {shape} have too many rows together"))
    })?;
    shape.with_dim(0, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gather_has_the_rows_of_all() {
        assert_eq!(all_of(&Shape::new(&[2, 3]).unwrap(), 3).unwrap().to_string(), "[6,3]");
        assert!(all_of(&Shape::scalar(), 3).is_err());
        assert!(all_of(&Shape::new(&[i64::MAX / 2]).unwrap(), 3).is_err());
    }
}
