//! [`RendezvousMgr`]: the rendezvous of every step that this worker takes part in, made by whoever comes first.

use super::step_log::StepLog;
use crate::device::task_of;
use crate::interface::{ReceivedTensor, RecvTensorCall};
use crate::random::RandomIds;
use crate::stream::{Connection, StreamHub};
use crate::worker_cache::WorkerCache;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use kernel::{Cancellation, LocalRendezvous, ReceiveDone, Rendezvous, RendezvousKey, ResourceManager};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tensor::{Result, Status, Tensor};
use tokio::task::AbortHandle;

/// How many finished steps are remembered, so that a late request doesn't bring one back to life.
const FINISHED_STEPS_KEPT: usize = 1 << 12;

/// How many steps may be known by pushed tensors alone. A master that died leaves such steps behind, and the oldest go.
const PUSHED_ONLY_STEPS_MAX: usize = 1 << 10;

/// The steps that this worker takes part in.
pub(crate) struct RendezvousMgr {
    steps: Mutex<Steps>,
}

struct Steps {
    active: HashMap<i64, Arc<StepState>>,
    finished: HashSet<i64>,
    finished_order: VecDeque<i64>,
    /// Steps of which only pushed tensors are known, in the order in which they came up.
    pushed_only: VecDeque<i64>,
}

/// What the partitions of one step on this worker share.
pub(crate) struct StepState {
    /// The step's id.
    pub id: i64,
    /// Where sends and receives within this worker meet.
    pub local: LocalRendezvous,
    /// Ends everything of the step on this worker.
    pub cancellation: Cancellation,
    /// Resources that end with the step.
    pub resources: Arc<ResourceManager>,
    /// Whether a partition has been started; until then only requests for its tensors wait.
    has_started: AtomicBool,
    waiting_requests: AtomicUsize,
    /// Whether a tensor was pushed before the step began here.
    is_pushed: AtomicBool,
    /// Receives from other tasks that are under way.
    remote: Mutex<Vec<Option<RemoteReceive>>>,
}

struct RemoteReceive {
    done: ReceiveDone,
    task: Option<AbortHandle>,
}

impl RendezvousMgr {
    /// Makes a manager without steps.
    pub fn new() -> RendezvousMgr {
        let steps = Steps {
            active: HashMap::new(),
            finished: HashSet::new(),
            finished_order: VecDeque::new(),
            pushed_only: VecDeque::new(),
        };
        RendezvousMgr { steps: Mutex::new(steps) }
    }

    /// Returns a step, which is made if this is the first word of it; a finished one is an error.
    pub fn find_or_create(&self, step_id: i64) -> Result<Arc<StepState>> {
        self.find(step_id, false)
    }

    /// As [`find_or_create`](Self::find_or_create), for a partition of the step that is about to run here.
    pub fn start(&self, step_id: i64) -> Result<Arc<StepState>> {
        self.find(step_id, true)
    }

    fn find(&self, step_id: i64, starts: bool) -> Result<Arc<StepState>> {
        let mut steps = self.steps.lock();
        if let Some(step) = steps.active.get(&step_id) {
            if starts {
                step.has_started.store(true, Ordering::Release);
            }
            return Ok(step.clone());
        }
        if steps.finished.contains(&step_id) {
            return Err(Status::aborted(format!("step {step_id} is over")).derived());
        }
        let step = Arc::new(StepState {
            id: step_id,
            local: LocalRendezvous::new(),
            cancellation: Cancellation::new(),
            resources: Arc::new(ResourceManager::new()),
            has_started: AtomicBool::new(starts),
            waiting_requests: AtomicUsize::new(0),
            is_pushed: AtomicBool::new(false),
            remote: Mutex::new(Vec::new()),
        });
        steps.active.insert(step_id, step.clone());
        Ok(step)
    }

    /// Takes a tensor that was pushed to a step, which may not have begun here yet.
    pub fn pushed(&self, step_id: i64, key: &Arc<str>, tensor: Tensor, is_dead: bool) {
        let Ok(step) = self.find_or_create(step_id) else { return };
        if !step.has_started.load(Ordering::Acquire) && !step.is_pushed.swap(true, Ordering::AcqRel) {
            let mut steps = self.steps.lock();
            steps.pushed_only.push_back(step_id);
            if steps.pushed_only.len() > PUSHED_ONLY_STEPS_MAX
                && let Some(oldest) = steps.pushed_only.pop_front()
                && steps.active.get(&oldest).is_some_and(|step| !step.has_started.load(Ordering::Acquire))
            {
                steps.active.remove(&oldest);
            }
        }
        // An error says that the step is over, and then nobody wants the tensor.
        let _ = step.local.send_by_name(key, tensor, is_dead);
    }

    /// Fails the given steps.
    pub fn fail(&self, steps: &[i64], status: &Status) {
        for step_id in steps {
            let step = self.steps.lock().active.get(step_id).cloned();
            if let Some(step) = step {
                step.abort(status.clone());
            }
        }
    }

    /// Fails the steps that wait for a tensor of a task with these devices, which is gone.
    pub fn fail_receives_from(&self, incarnations: &[u64], status: &Status) {
        let active: Vec<Arc<StepState>> = self.steps.lock().active.values().cloned().collect();
        let is_from =
            |key: &str| RendezvousKey::parse(key).is_ok_and(|key| incarnations.contains(&key.source_incarnation()));
        for step in active {
            if step.local.any_waiting(is_from) {
                step.abort(status.clone());
            }
        }
    }

    /// Ends a step: what waits is told, what was not fetched is dropped, and later requests are refused.
    pub fn cleanup(&self, step_id: i64) {
        let step = {
            let mut steps = self.steps.lock();
            if steps.finished.insert(step_id) {
                steps.finished_order.push_back(step_id);
                if steps.finished_order.len() > FINISHED_STEPS_KEPT
                    && let Some(oldest) = steps.finished_order.pop_front()
                {
                    steps.finished.remove(&oldest);
                }
            }
            steps.active.remove(&step_id)
        };
        if let Some(step) = step {
            step.abort(Status::aborted(format!("Cleanup {step_id}")).derived());
        }
    }

    /// Ends all steps.
    pub fn abort_all(&self, status: &Status) {
        let active = std::mem::take(&mut self.steps.lock().active);
        for step in active.into_values() {
            step.abort(status.clone());
        }
    }

    /// Counts a request that waits in a step; see [`WaitingRequest`].
    pub fn wait_in(self: &Arc<Self>, step: &Arc<StepState>) -> WaitingRequest {
        step.waiting_requests.fetch_add(1, Ordering::Relaxed);
        WaitingRequest { manager: self.clone(), step: step.clone() }
    }

    /// Returns the number of steps.
    #[cfg(test)]
    pub fn num_steps(&self) -> usize {
        self.steps.lock().active.len()
    }
}

/// A request that waits in a step. When the last one goes away from a step of which nothing else was ever heard, such as
/// one whose master died, the step goes too.
pub(crate) struct WaitingRequest {
    manager: Arc<RendezvousMgr>,
    step: Arc<StepState>,
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        if self.step.waiting_requests.fetch_sub(1, Ordering::AcqRel) == 1
            && !self.step.has_started.load(Ordering::Acquire)
        {
            let mut steps = self.manager.steps.lock();
            // Looked at again under the lock, which whoever starts the step must take first.
            if !self.step.has_started.load(Ordering::Acquire)
                && !self.step.is_pushed.load(Ordering::Acquire)
                && self.step.waiting_requests.load(Ordering::Acquire) == 0
            {
                steps.active.remove(&self.step.id);
            }
        }
    }
}

impl StepState {
    /// Fails everything that waits in the step, here and on its way to other tasks.
    pub fn abort(&self, status: Status) {
        self.cancellation.cancel(status.clone());
        self.local.abort(status.clone());
        // Places are never used again, because a task that ends meanwhile still knows its own.
        let receives: Vec<RemoteReceive> = self.remote.lock().iter_mut().filter_map(Option::take).collect();
        for receive in receives {
            if let Some(task) = receive.task {
                task.abort();
            }
            (receive.done)(Err(status.clone()));
        }
    }
}

/// The rendezvous that the nodes of a step see: one task's view of its cluster.
pub(crate) struct TaskRendezvous {
    step: Arc<StepState>,
    context: Arc<TransferContext>,
    /// The tasks that the step has pushed tensors to.
    receivers: Mutex<SmallVec<[Receiver; 2]>>,
    /// Whether something was pushed that may not have left yet.
    has_unsent: AtomicBool,
}

/// A task that a step pushes tensors to.
struct Receiver {
    address: Arc<str>,
    connection: Arc<Connection>,
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
            self.connection(address, streams)?.push(self.step.id, key.as_str(), &tensor, is_dead)?;
            self.has_unsent.store(true, Ordering::Release);
            return Ok(());
        }
        self.step.local.send(key, tensor, is_dead)
    }

    fn flush(&self) {
        if self.has_unsent.load(Ordering::Acquire) && self.has_unsent.swap(false, Ordering::AcqRel) {
            let receivers = self.receivers.lock();
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
        TaskRendezvous { step, context, receivers: Mutex::default(), has_unsent: AtomicBool::new(false) }
    }

    /// Returns the stream to an address, the same for the whole step: one that broke has lost what was sent before.
    fn connection(&self, address: &Arc<str>, streams: &Arc<StreamHub>) -> Result<Arc<Connection>> {
        let mut receivers = self.receivers.lock();
        if let Some(known) = receivers.iter().find(|known| known.address == *address) {
            return Ok(known.connection.clone());
        }
        let connection = streams.get(address)?;
        receivers.push(Receiver { address: address.clone(), connection: connection.clone() });
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
                (receive.done)(outcome.map(|received| (received.tensor, received.is_dead)));
            }
        });
        if let Some(Some(receive)) = self.step.remote.lock().get_mut(index) {
            receive.task = Some(task.abort_handle());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_step_stays_finished() {
        let manager = RendezvousMgr::new();
        let step = manager.find_or_create(7).unwrap();
        manager.cleanup(7);
        assert!(step.cancellation.is_cancelled());
        assert!(manager.find_or_create(7).err().unwrap().is_derived());
        for id in 100..100 + 2 * FINISHED_STEPS_KEPT as i64 {
            manager.cleanup(id);
        }
        let steps = manager.steps.lock();
        assert_eq!(steps.finished.len(), FINISHED_STEPS_KEPT);
        assert_eq!(steps.finished_order.len(), FINISHED_STEPS_KEPT);
    }

    #[test]
    fn a_step_that_only_a_gone_request_knew_goes_away() {
        let manager = Arc::new(RendezvousMgr::new());
        let step = manager.find_or_create(1).unwrap();
        let (first, second) = (manager.wait_in(&step), manager.wait_in(&step));
        drop(first);
        assert_eq!(manager.num_steps(), 1);
        drop(second);
        assert_eq!(manager.num_steps(), 0);
        let step = manager.find_or_create(2).unwrap();
        manager.start(2).unwrap();
        drop(manager.wait_in(&step));
        assert_eq!(manager.num_steps(), 1);
    }
}
