//! Reductions over the members' tensors: CollectiveReduce and its later versions, whose result all members get, and
//! CollectiveReduceScatterV2, which gives each member its part.

use super::FLAGS;
use super::kernel_op::{CollectiveOp, Plan, Planned};
use super::reduction::reduction_plan;
use graph::Output;
use kernel::{CollectiveKind, Gradient, KernelDef, Op, OpDef, ReductionPlan, shape};
use tensor::{Result, Shape, Status};

const TYPES: &str = "T: {bfloat16, float, half, double, int32, int64}";
const MERGE: &str = "merge_op: {'Min', 'Max', 'Mul', 'Add'}";
const FINAL: &str = "final_op: {'Id', 'Div'}";
const HINT: &str = "communication_hint: string = 'auto'";
const TIMEOUT: &str = "timeout_seconds: float = 0.0";
const TOKENS: &str = "ordering_token: Nordering_token * resource";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CollectiveReduce",
            inputs: &["input: T"],
            outputs: &["data: T"],
            attrs: &[
                TYPES,
                "group_size: int",
                "group_key: int",
                "instance_key: int",
                MERGE,
                FINAL,
                "subdiv_offsets: list(int)",
                "wait_for: list(int) = []",
                HINT,
                TIMEOUT,
            ],
            flags: FLAGS,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            CollectiveOp::by_attrs(builder, reduce(reduction_plan(builder, "merge_op")?))
        })],
    },
    Op {
        def: OpDef {
            name: "CollectiveReduceV2",
            inputs: &["input: T", "group_size: int32", "group_key: int32", "instance_key: int32", TOKENS],
            outputs: &["data: T"],
            attrs: &[
                TYPES,
                MERGE,
                FINAL,
                HINT,
                TIMEOUT,
                "is_stateless: bool = false",
                "Nordering_token: int >= 0 = 0",
                "max_subdivs_per_device: int = -1",
            ],
            flags: FLAGS,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            CollectiveOp::by_inputs(builder, 1, reduce(reduction_plan(builder, "merge_op")?))
        })],
    },
    Op {
        def: OpDef {
            name: "CollectiveReduceV3",
            inputs: &["input: T", "communicator: resource", "group_assignment: int32"],
            outputs: &["data: T"],
            attrs: &[TYPES, "reduction: {'Min', 'Max', 'Mul', 'Add'}", TIMEOUT],
            flags: FLAGS,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            CollectiveOp::by_communicator(builder, reduce(reduction_plan(builder, "reduction")?))
        })],
    },
    Op {
        def: OpDef {
            name: "CollectiveReduceScatterV2",
            inputs: &["input: T", "group_size: int32", "group_key: int32", "instance_key: int32", TOKENS],
            outputs: &["data: T"],
            attrs: &[
                TYPES,
                MERGE,
                FINAL,
                HINT,
                TIMEOUT,
                "is_stateless: bool = false",
                "Nordering_token: int >= 0 = 0",
                "max_subdivs_per_device: int = -1",
            ],
            flags: FLAGS,
        },
        shape: |c| {
            let input = c.with_rank_at_least(0, 1)?;
            c.set_output(0, input.with_dim(0, None));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            CollectiveOp::by_inputs(builder, 1, reduce_scatter(reduction_plan(builder, "merge_op")?))
        })],
    },
];

/// Returns the reduction of `input` and the tensors of `group_size - 1` other devices with the same keys. `merge_op` is `Add`,
/// `Mul`, `Min` or `Max`, and `final_op` is `Id`, or `Div` for a mean.
#[track_caller]
pub fn collective_reduce(
    input: &Output,
    group_size: i64,
    group_key: i64,
    instance_key: i64,
    merge_op: &str,
    final_op: &str,
) -> Output {
    let op = input.graph().op("CollectiveReduce").input(input);
    let op = op.attr("group_size", group_size).attr("group_key", group_key).attr("instance_key", instance_key);
    op.attr("merge_op", merge_op).attr("final_op", final_op).attr("subdiv_offsets", &[0i64][..]).output()
}

fn reduce(plan: ReductionPlan) -> Plan {
    Box::new(move |op, _| {
        let input = op.take_input(0)?;
        let shape = input.shape().clone();
        Ok(Planned { kind: CollectiveKind::Reduce(plan.clone()), input: Some(input), shape })
    })
}

fn reduce_scatter(plan: ReductionPlan) -> Plan {
    Box::new(move |op, group_size| {
        let input = op.take_input(0)?;
        let shape = part_of(input.shape(), group_size)?;
        Ok(Planned { kind: CollectiveKind::ReduceScatter(plan.clone()), input: Some(input), shape })
    })
}

/// Returns the shape of one member's part of a reduction.
fn part_of(shape: &Shape, group_size: usize) -> Result<Shape> {
    let rows = match shape.rank() {
        0 => return Err(Status::invalid_argument("input should have rank > 0, received 0")),
        _ => shape.size(0),
    };
    if !rows.is_multiple_of(group_size) {
        return Err(Status::invalid_argument(format!(
            "input of shape {shape} has {rows} rows, which {group_size} members can't share evenly"
        )));
    }
    shape.with_dim(0, (rows / group_size) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_reduction_has_a_share_of_the_rows() {
        let part = |dims: &[i64]| part_of(&Shape::new(dims).unwrap(), 2).map(|shape| shape.to_string());
        assert_eq!(part(&[4, 3]).unwrap(), "[2,3]");
        assert!(part(&[]).unwrap_err().message().contains("rank > 0"));
        assert!(part(&[3]).unwrap_err().message().contains("can't share evenly"));
    }
}
