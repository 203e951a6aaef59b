//! [`Recipient`]: receives everything that arrives over streams of other tasks. In a server it is the task's worker.

use super::Worker;
use super::step_state::{LinkId, StepProgress};
use crate::interface::{Answer, RunGraphCall, RunGraphReply, WorkerInterface};
use std::sync::Arc;
use tensor::{Status, Tensor};

/// Receives everything that arrives over streams, and is notified when one closes.
pub(crate) trait Recipient: Send + Sync {
    /// Takes a tensor that another task has pushed for a step.
    fn pushed(&self, link: LinkId, step_id: i64, key: &Arc<str>, tensor: Tensor, is_dead: bool);
    /// Runs a partition.
    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply>;
    /// Waits for a part of a collective op's tensor from this task; a rendezvous key names the part.
    fn recv_part(&self, step_id: i64, key: &str) -> Answer<Tensor>;
    /// Ends a step.
    fn cleanup_graph(&self, step_id: i64);
    /// Returns the progress of a step here.
    fn progress(&self, step_id: i64) -> StepProgress;
    /// Takes an answer of the task with these devices about the progress of steps there.
    fn told_progress(&self, incarnations: &[u64], id: u64, steps: &[(i64, StepProgress)]);
    /// Fails the steps that pushed over a closed connection, or that wait for the task at its other end.
    fn peer_lost(&self, link: LinkId, incarnations: &[u64], status: &Status);
}

impl Recipient for Worker {
    fn pushed(&self, link: LinkId, step_id: i64, key: &Arc<str>, tensor: Tensor, is_dead: bool) {
        self.steps.pushed(link, step_id, key, tensor, is_dead);
    }

    fn run_graph(&self, call: RunGraphCall) -> Answer<RunGraphReply> {
        WorkerInterface::run_graph(self, call)
    }

    fn recv_part(&self, step_id: i64, key: &str) -> Answer<Tensor> {
        Worker::part(self, step_id, key)
    }

    fn cleanup_graph(&self, step_id: i64) {
        drop(WorkerInterface::cleanup_graph(self, step_id));
    }

    fn progress(&self, step_id: i64) -> StepProgress {
        self.steps.progress(step_id)
    }

    fn told_progress(&self, incarnations: &[u64], id: u64, steps: &[(i64, StepProgress)]) {
        Worker::told_progress(self, incarnations, id, steps);
    }

    fn peer_lost(&self, link: LinkId, incarnations: &[u64], status: &Status) {
        self.watch.peer_lost(incarnations);
        self.steps.peer_lost(link, incarnations, status);
        self.steps.pushes_lost(link, status);
    }
}
