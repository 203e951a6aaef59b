//! [`Collectives`]: what collective ops ask of the worker that runs them. It finds the other members of a group and moves tensors
//! between them; what a reduction computes is the op's own business ([`Reduction`]).

use super::Step;
use crate::FrameAndIteration;
use std::sync::Arc;
use std::time::Duration;
use tensor::{DType, Result, Shape, Status, Tensor};

/// Is given the result of a collective op.
pub type CollectiveDone = Box<dyn FnOnce(Result<Tensor>) + Send>;

/// Runs collective ops, each with its counterparts on other devices.
pub trait Collectives: Send + Sync {
    /// Waits until all devices of a group are known; `done` is told.
    fn join_group(&self, step: &Arc<Step>, group: CollectiveGroup, done: Box<dyn FnOnce(Result<()>) + Send>);

    /// Runs the part of one device in a collective op. `done` is given its output.
    fn run(&self, call: CollectiveCall, done: CollectiveDone);
}

/// The group that a device takes part in, as an op names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveGroup {
    /// Names the group.
    pub key: i32,
    /// How many devices it has.
    pub size: usize,
    /// The rank that the user gave the device, if any.
    pub rank: Option<usize>,
    /// Whether the device joins the group with this op; otherwise it has done so before.
    pub joins: bool,
    /// How long to wait for the others; for ever if not given.
    pub timeout: Option<Duration>,
}

/// What a device does in one collective op.
pub struct CollectiveCall {
    /// The step. Its device is the one that takes part.
    pub step: Arc<Step>,
    /// The node, for messages.
    pub node_name: String,
    /// The group.
    pub group: CollectiveGroup,
    /// Names the op within the group.
    pub instance_key: i32,
    /// Where the node runs when its graph has loops.
    pub frame: FrameAndIteration,
    /// What to do.
    pub kind: CollectiveKind,
    /// The type of the elements.
    pub dtype: DType,
    /// What the member gives; nothing for one that receives a broadcast.
    pub input: Option<Tensor>,
    /// The shape of the output, which all members must agree on.
    pub shape: Shape,
}

/// The collective ops that there are.
#[derive(Clone)]
pub enum CollectiveKind {
    /// Every member gets the reduction of all inputs.
    Reduce(ReductionPlan),
    /// Every member gets its part of the reduction of all inputs.
    ReduceScatter(ReductionPlan),
    /// Every member gets all inputs, one after the other.
    Gather,
    /// Every member gets the input of the one that is the source.
    Broadcast {
        /// Whether this member is the source.
        is_source: bool,
    },
    /// Every member gets one row of each input.
    AllToAll,
}

/// How inputs are reduced.
#[derive(Clone)]
pub struct ReductionPlan {
    /// What is computed.
    pub reduction: Arc<dyn Reduction>,
    /// How the rings of the subdivisions are shifted; none leaves it to `max_subdivs_per_device`.
    pub subdiv_offsets: Vec<i32>,
    /// How many subdivisions there may be for each device: 0 means a default, and -1 that there is one in all.
    pub max_subdivs_per_device: i32,
}

/// What a reduction computes.
pub trait Reduction: Send + Sync {
    /// Combines a part of this member's input with the same part of others.
    fn merge(&self, step: &Arc<Step>, own: Tensor, received: Tensor) -> Result<Tensor>;

    /// Reduces a part of which there is what every member gives, in the order of their ranks.
    fn reduce(&self, step: &Arc<Step>, given: Vec<Tensor>) -> Result<Tensor> {
        if let Some(reduced) = self.reduce_at_once(&given) {
            return reduced;
        }
        let group_size = given.len();
        let mut given = given.into_iter();
        let mut merged = given.next().ok_or_else(|| Status::internal("a reduction has no members"))?;
        for next in given {
            merged = self.merge(step, merged, next)?;
        }
        self.finish(step, merged, group_size)
    }

    /// Reduces it in one pass over memory; `None` where that is not done.
    fn reduce_at_once(&self, _given: &[Tensor]) -> Option<Result<Tensor>> {
        None
    }

    /// Ends the computation of a part, once all members have contributed.
    fn finish(&self, step: &Arc<Step>, merged: Tensor, group_size: usize) -> Result<Tensor>;
}
