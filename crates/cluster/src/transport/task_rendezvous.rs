//! [`TaskRendezvous`]: the rendezvous for a step's nodes: one task's view of its cluster. It pushes tensors to Ferroflow tasks,
//! and requests tensors from others.

use super::stream::{Connection, StreamHub, StreamOffer};
use super::worker_cache::WorkerCache;
use crate::ClusterSpec;
use crate::device::task_of;
use crate::interface::{Answer, ReceivedTensor, RecvTensorCall, WorkerInterface};
use crate::metrics::TaskMetrics;
use crate::random::RandomIds;
use crate::spawner::Spawner;
use crate::worker::{PeerLink, Receiver, RemoteReceive, StepLog, StepState, Transfers};
use kernel::{ReceiveDone, Rendezvous, RendezvousKey};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Code, Result, Status, Tensor};

/// The rendezvous for the nodes of a step: one task's view of its cluster.
struct TaskRendezvous {
    step: Arc<StepState>,
    context: Arc<TaskTransfers>,
    /// The streams that the step has used here; the step itself knows them only by the worker's traits.
    streams: Mutex<SmallVec<[(Arc<str>, Arc<Connection>); 2]>>,
    /// Whether pushed tensors may be unsent.
    has_unsent: AtomicBool,
}

/// A task's access to the other tasks of a cluster.
pub(crate) struct TaskTransfers {
    /// The other tasks.
    workers: Arc<WorkerCache>,
    /// Runs the waits for answers.
    spawner: Spawner,
    /// Draws request ids.
    ids: Arc<RandomIds>,
    /// Logs transfers on request.
    log: Arc<StepLog>,
}

impl TaskTransfers {
    /// Returns the transfers of a task with these workers.
    pub fn new(workers: Arc<WorkerCache>, spawner: Spawner, ids: Arc<RandomIds>, log: Arc<StepLog>) -> TaskTransfers {
        TaskTransfers { workers, spawner, ids, log }
    }
}

impl Transfers for TaskTransfers {
    fn task(&self) -> &str {
        self.workers.own_task()
    }

    fn metrics(&self) -> &Arc<TaskMetrics> {
        self.workers.metrics()
    }

    fn is_alone(&self) -> bool {
        self.workers.is_alone()
    }

    fn address(&self, task: &str) -> Option<&str> {
        self.workers.address(task)
    }

    fn worker(&self, task: &str) -> Result<Arc<dyn WorkerInterface>> {
        self.workers.get(task)
    }

    fn for_cluster(&self, cluster: ClusterSpec, task: String) -> Arc<dyn Transfers> {
        let workers = Arc::new(self.workers.for_cluster(cluster, task));
        Arc::new(TaskTransfers::new(workers, self.spawner.clone(), self.ids.clone(), self.log.clone()))
    }

    fn rendezvous(self: Arc<Self>, step: Arc<StepState>) -> Arc<dyn Rendezvous> {
        Arc::new(TaskRendezvous { step, context: self, streams: Mutex::default(), has_unsent: AtomicBool::new(false) })
    }

    fn forget_step(&self, step_id: i64) {
        if let Some(streams) = self.workers.streams() {
            streams.forget_step(step_id);
        }
    }

    fn may_be_pushed_to(&self) -> bool {
        self.workers.streams().is_some()
    }

    fn connected_to(&self, incarnation: u64) -> Option<Arc<dyn PeerLink>> {
        let connection = self.workers.streams()?.connected_to(incarnation)?;
        Some(connection)
    }

    fn reach(&self, task: &str, incarnation: u64) -> Answer<()> {
        let Some(streams) = self.workers.streams() else { return Box::pin(ready(Ok(()))) };
        let (workers, streams, task) = (self.workers.clone(), streams.clone(), task.to_owned());
        Box::pin(async move { reach(&workers, &streams, &task, incarnation).await })
    }
}

/// Opens a stream to a task that steps wait for.
async fn reach(workers: &WorkerCache, streams: &Arc<StreamHub>, task: &str, incarnation: u64) -> Result<()> {
    let devices = workers.get(task)?.get_status().await?;
    if !devices.iter().any(|device| device.incarnation == incarnation) {
        return Err(Status::unavailable("that task was restarted"));
    }
    let (Some(first), Some(place)) = (devices.first(), workers.address(task)) else { return Ok(()) };
    let offer = StreamOffer::of(first).ok_or_else(|| Status::unavailable("that task takes no streams any more"))?;
    streams.get(&streams.offer().address_of(&offer, task, place, first.incarnation))?.settled().await
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
            let connections: SmallVec<[Arc<Connection>; 2]> =
                self.streams.lock().iter().map(|(_, connection)| connection.clone()).collect();
            connections.iter().for_each(|connection| connection.flush_pushes());
        }
    }

    fn receive(&self, key: &RendezvousKey, done: ReceiveDone) {
        if key.push_to().is_some() {
            match self.context.log.start_transfer() {
                None => self.step.local.receive(key, done),
                Some(started) => self.step.local.receive(key, self.logged(key, started, done)),
            }
            // Checked afterwards, so that either this sees the lost peer or the code that reports the loss sees this.
            self.step.fail_if_lost(key);
        } else if task_of(key.source_device()) == self.context.task() {
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
            receiver.map_or(status.clone(), |known| known.unreachable_from(self.context.task(), &status))
        })
    }

    /// Returns the stream to an address, the same one for the whole step: a broken one has lost what was sent before.
    fn connection(&self, key: &RendezvousKey, address: &Arc<str>, streams: &Arc<StreamHub>) -> Result<Arc<Connection>> {
        let mut known = self.streams.lock();
        if let Some((_, connection)) = known.iter().find(|(place, _)| place == address) {
            return Ok(connection.clone());
        }
        let connection = self.connection_of_step(key, address, streams)?;
        known.push((address.clone(), connection.clone()));
        Ok(connection)
    }

    /// Returns the step's stream to an address; another partition of it may have opened it.
    fn connection_of_step(
        &self,
        key: &RendezvousKey,
        address: &Arc<str>,
        streams: &Arc<StreamHub>,
    ) -> Result<Arc<Connection>> {
        let mut receivers = self.step.receivers.lock();
        if let Some(receiver) = receivers.iter().find(|receiver| receiver.address == *address) {
            let link: Arc<dyn Any + Send + Sync> = receiver.link.clone();
            return link.downcast().map_err(|_| Status::internal("a step pushes over something that is no stream"));
        }
        let connection = streams.get(address)?;
        receivers.push(Receiver { address: address.clone(), key: key.clone(), link: connection.clone() });
        Ok(connection)
    }

    /// Logs a pushed tensor when it arrives.
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
        // Checked afterwards, so that a receive either sees that the step is over or is seen by the code that ends it.
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
        let task = self.context.spawner.spawn(async move {
            let outcome = answer.await;
            if let Ok(received) = &outcome {
                if let Some(peer) = context.workers.metrics().peer(task_of(key.source_device())) {
                    peer.received(step.id, received.tensor.num_bytes());
                }
                if received.require_ack {
                    context.spawner.spawn(worker.mark_recv_finished(request_id));
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
                        context.task(),
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
