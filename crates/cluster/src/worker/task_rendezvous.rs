//! [`TaskRendezvous`]: what the nodes of a step see: one task's view of its cluster. It pushes tensors to tasks of ours, and asks
//! others for theirs.

use super::rendezvous_mgr::{RemoteReceive, StepState};
use super::step_log::StepLog;
use crate::device::task_of;
use crate::interface::{ReceivedTensor, RecvTensorCall};
use crate::random::RandomIds;
use crate::transport::stream::{Connection, StreamHub};
use crate::transport::worker_cache::WorkerCache;
use kernel::{ReceiveDone, Rendezvous, RendezvousKey};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Code, Result, Status, Tensor};

/// The rendezvous that the nodes of a step see: one task's view of its cluster.
pub(crate) struct TaskRendezvous {
    step: Arc<StepState>,
    context: Arc<TransferContext>,
    /// Whether something was pushed that may not have left yet.
    has_unsent: AtomicBool,
}

/// A task that a step pushes tensors to.
pub(super) struct Receiver {
    address: Arc<str>,
    /// The key of the first tensor, which names the task.
    key: RendezvousKey,
    /// The stream to it.
    pub connection: Arc<Connection>,
}

impl Receiver {
    /// Says in a status which task could not be reached, and by whom.
    pub fn unreachable_from(&self, task: &str, status: &Status) -> Status {
        let receiver = task_of(self.key.destination_device());
        // The incarnation behind it tells people nothing.
        let place = self.address.split('#').next().unwrap_or_default();
        let place = place.split_once(':').map_or(place, |(_, place)| place);
        Status::new(
            status.code(),
            format!("{task} can't deliver '{}' to {receiver} at {place}: {}", self.key.edge_name(), status.message()),
        )
    }
}

/// What transfers need to know besides their step.
pub(crate) struct TransferContext {
    /// The name of this task in the session's cluster.
    pub task: String,
    /// The other tasks.
    pub workers: Arc<WorkerCache>,
    /// Runs what waits for answers.
    pub runtime: tokio::runtime::Handle,
    /// Names requests.
    pub ids: Arc<RandomIds>,
    /// Takes note of transfers when asked to.
    pub log: Arc<StepLog>,
}

impl TransferContext {
    /// Drops what waits to be pushed for a step that was cancelled or has failed, or that is over everywhere.
    pub fn forget_step(&self, step_id: i64) {
        if let Some(streams) = self.workers.streams() {
            streams.forget_step(step_id);
        }
    }
}

impl Rendezvous for TaskRendezvous {
    fn send(&self, key: &RendezvousKey, tensor: Tensor, is_dead: bool) -> Result<()> {
        if let (Some(address), Some(streams)) = (key.push_to(), self.context.workers.streams()) {
            self.push(key, address, streams, &tensor, is_dead)?;
            self.has_unsent.store(true, Ordering::Release);
            return Ok(());
        }
        self.step.local.send(key, tensor, is_dead)
    }

    fn flush(&self) {
        if self.has_unsent.load(Ordering::Acquire) && self.has_unsent.swap(false, Ordering::AcqRel) {
            let receivers = self.step.receivers.lock();
            let connections: SmallVec<[Arc<Connection>; 2]> =
                receivers.iter().map(|receiver| receiver.connection.clone()).collect();
            drop(receivers);
            connections.iter().for_each(|connection| connection.flush_pushes());
        }
    }

    fn receive(&self, key: &RendezvousKey, done: ReceiveDone) {
        if key.push_to().is_some() {
            match self.context.log.start_transfer() {
                None => self.step.local.receive(key, done),
                Some(started) => self.step.local.receive(key, self.logged(key, started, done)),
            }
            // Asked afterwards, so that either this sees that the peer is gone or who tells that sees this.
            self.step.fail_if_lost(key);
        } else if task_of(key.source_device()) == self.context.task {
            self.step.local.receive(key, done);
        } else {
            self.receive_remotely(key, done);
        }
    }

    fn abort(&self, status: Status) {
        self.step.abort(status);
    }
}

impl TaskRendezvous {
    /// Makes the rendezvous of a step; what is in `context` stays the same from step to step.
    pub fn new(step: Arc<StepState>, context: Arc<TransferContext>) -> TaskRendezvous {
        TaskRendezvous { step, context, has_unsent: AtomicBool::new(false) }
    }

    fn push(
        &self,
        key: &RendezvousKey,
        address: &Arc<str>,
        streams: &Arc<StreamHub>,
        tensor: &Tensor,
        is_dead: bool,
    ) -> Result<()> {
        let pushed = self.connection(key, address, streams)?.push(self.step.id, key.as_str(), tensor, is_dead);
        pushed.map_err(|status| {
            let receivers = self.step.receivers.lock();
            let receiver = receivers.iter().find(|known| known.address == *address);
            receiver.map_or(status.clone(), |known| known.unreachable_from(&self.context.task, &status))
        })
    }

    /// Returns the stream to an address, the same for the whole step: one that broke has lost what was sent before.
    fn connection(&self, key: &RendezvousKey, address: &Arc<str>, streams: &Arc<StreamHub>) -> Result<Arc<Connection>> {
        let mut receivers = self.step.receivers.lock();
        if let Some(known) = receivers.iter().find(|known| known.address == *address) {
            return Ok(known.connection.clone());
        }
        let connection = streams.get(address)?;
        receivers.push(Receiver { address: address.clone(), key: key.clone(), connection: connection.clone() });
        Ok(connection)
    }

    /// Takes note of a pushed tensor when it comes.
    fn logged(&self, key: &RendezvousKey, started: i64, done: ReceiveDone) -> ReceiveDone {
        let (context, key, step_id) = (self.context.clone(), key.clone(), self.step.id);
        Box::new(move |outcome| {
            if let Ok((tensor, is_dead)) = &outcome {
                let received = ReceivedTensor {
                    tensor: tensor.clone(),
                    is_dead: *is_dead,
                    send_start_micros: started,
                    require_ack: false,
                };
                context.log.finish_transfer(step_id, &key, started, &received);
            }
            done(outcome);
        })
    }

    fn receive_remotely(&self, key: &RendezvousKey, done: ReceiveDone) {
        let context = &self.context;
        let worker = match context.workers.get(task_of(key.source_device())) {
            Ok(worker) => worker,
            Err(status) => return done(Err(status)),
        };
        let index = {
            let mut remote = self.step.remote.lock();
            remote.push(Some(RemoteReceive { done, task: None }));
            remote.len() - 1
        };
        // Asked afterwards, so that a receive either sees that the step is over or is seen by who ends it.
        if let Some(status) = self.step.cancellation.status() {
            let taken = self.step.remote.lock().get_mut(index).and_then(Option::take);
            if let Some(receive) = taken {
                (receive.done)(Err(status));
            }
            return;
        }
        let request_id = context.ids.next_request_id();
        let started = context.log.start_transfer();
        let call = RecvTensorCall { step_id: self.step.id, key: key.shared().clone(), request_id };
        let answer = worker.recv_tensor(call);
        let step = self.step.clone();
        let context = context.clone();
        let key = key.clone();
        let task = self.context.runtime.spawn(async move {
            let outcome = answer.await;
            if let Ok(received) = &outcome {
                if received.require_ack {
                    context.runtime.spawn(worker.mark_recv_finished(request_id));
                }
                if let Some(started) = started {
                    context.log.finish_transfer(step.id, &key, started, received);
                }
            }
            let taken = step.remote.lock().get_mut(index).and_then(Option::take);
            if let Some(receive) = taken {
                let outcome = outcome.map(|received| (received.tensor, received.is_dead));
                (receive.done)(outcome.map_err(|status| match status.code() {
                    Code::Unavailable => status.context(format!(
                        "{} waits for '{}' of {}",
                        context.task,
                        key.edge_name(),
                        task_of(key.source_device())
                    )),
                    _ => status,
                }));
            }
        });
        if let Some(Some(receive)) = self.step.remote.lock().get_mut(index) {
            receive.task = Some(task.abort_handle());
        }
    }
}
