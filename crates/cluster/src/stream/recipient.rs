//! [`Recipient`]: what a stream delivers to. In a server that is the task's worker.

use crate::interface::{Answer, RunGraphCall, RunGraphReply, WorkerInterface};
use crate::worker::Worker;
use std::sync::Arc;
use tensor::{Status, Tensor};

/// Takes what arrives over streams, and is told when one ends.
pub(crate) trait Recipient: Send + Sync {
    /// Takes a tensor that another task has pushed to a step.
    fn pushed(&self, step_id: i64, key: &Arc<str>, tensor: Tensor, is_dead: bool);
    /// Runs a partition.
    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply>;
    /// Ends a step.
    fn cleanup_graph(&self, step_id: i64);
    /// Fails the steps that wait for a task which is gone.
    fn peer_lost(&self, incarnations: &[u64], status: &Status);
    /// Fails steps.
    fn fail_steps(&self, steps: &[i64], status: &Status);
}

impl Recipient for Worker {
    fn pushed(&self, step_id: i64, key: &Arc<str>, tensor: Tensor, is_dead: bool) {
        Worker::pushed(self, step_id, key, tensor, is_dead);
    }

    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply> {
        WorkerInterface::run_graph(self, call)
    }

    fn cleanup_graph(&self, step_id: i64) {
        drop(WorkerInterface::cleanup_graph(self, step_id));
    }

    fn peer_lost(&self, incarnations: &[u64], status: &Status) {
        Worker::peer_lost(self, incarnations, status);
    }

    fn fail_steps(&self, steps: &[i64], status: &Status) {
        Worker::fail_steps(self, steps, status);
    }
}
