//! [`Collectives`]: what collective ops need from the worker that runs them. The worker finds the other members of a group, and
//! moves tensors between them; the op defines what a reduction computes ([`Reduction`]).

use super::Step;
use crate::FrameAndIteration;
use std::sync::Arc;
use std::time::Duration;
use tensor::{DType, Result, Shape, Status, Tensor};

/// Receives the result of a collective op.
pub type CollectiveDone = Box<dyn FnOnce(Result<Tensor>) + Send>;

/// Runs collective ops together with their counterparts on other devices.
pub trait Collectives: Send + Sync {
    /// Calls `done` when all devices of a group are known.
    fn join_group(&self, step: &Arc<Step>, group: CollectiveGroup, done: Box<dyn FnOnce(Result<()>) + Send>);

    /// Runs the part of one device in a collective op, and calls `done` with its output.
    fn run(&self, call: CollectiveCall, done: CollectiveDone);
}

/// The group of a collective op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveGroup {
    /// Identifies the group.
    pub key: i32,
    /// The number of devices.
    pub size: usize,
    /// The rank that the user gave the device, if any.
    pub rank: Option<usize>,
    /// Whether the device joins the group with this op, or has joined it before.
    pub joins: bool,
    /// How long to wait for the others; `None` to wait forever.
    pub timeout: Option<Duration>,
}

/// The part of a device in one collective op.
pub struct CollectiveCall {
    /// The step, whose device takes part.
    pub step: Arc<Step>,
    /// The node, for messages.
    pub node_name: String,
    /// The group.
    pub group: CollectiveGroup,
    /// Identifies the op within the group.
    pub instance_key: i32,
    /// The loop frame and iteration of the node.
    pub frame: FrameAndIteration,
    /// The operation.
    pub kind: CollectiveKind,
    /// The type of the elements.
    pub dtype: DType,
    /// The member's input; `None` for one that receives a broadcast.
    pub input: Option<Tensor>,
    /// The shape of the output, which all members must agree on.
    pub shape: Shape,
}

/// The collective operations.
#[derive(Clone)]
pub enum CollectiveKind {
    /// Every member gets the reduction of all inputs.
    Reduce(ReductionPlan),
    /// Every member gets its part of the reduction of all inputs.
    ReduceScatter(ReductionPlan),
    /// Every member gets the concatenation of all inputs.
    Gather,
    /// Every member gets the input of the source.
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
    /// The computation.
    pub reduction: Arc<dyn Reduction>,
    /// The offsets of the subdivisions' rings. If empty, `max_subdivs_per_device` decides.
    pub subdiv_offsets: Vec<i32>,
    /// The most subdivisions per device: 0 means a default, and -1 a single subdivision in total.
    pub max_subdivs_per_device: i32,
}

/// The computation of a reduction.
pub trait Reduction: Send + Sync {
    /// Combines a part of this member's input with the same part of other members.
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
