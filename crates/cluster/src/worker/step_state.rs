//! [`StepState`]: the shared state of one step's partitions on this worker, and the traits by which a step reaches other tasks:
//! [`Transfers`] and [`PeerLink`]. The transport implements both; a worker never names one.

use super::buf_rendezvous::BufRendezvous;
use crate::ClusterSpec;
use crate::device::task_of;
use crate::interface::{Answer, WorkerInterface};
use crate::metrics::TaskMetrics;
use crate::spawner::AbortHandle;
use futures_util::future::BoxFuture;
use kernel::{Cancellation, LocalRendezvous, ReceiveDone, Rendezvous, RendezvousKey, ResourceManager};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tensor::{Result, Status, Tensor};

/// The most peers with lost connections that a step remembers.
const LOST_PEERS_MAX: usize = 1 << 10;

/// The most waiting receives of a step among which an error message chooses one.
const NAMED_KEYS_MAX: usize = 1 << 10;

/// Identifies a connection to another task, uniquely in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkId(pub u64);

/// The shared state of one step's partitions on this worker.
pub(crate) struct StepState {
    /// The step's id.
    pub id: i64,
    /// The rendezvous within this worker.
    pub local: LocalRendezvous,
    /// The rendezvous of collective ops' parts.
    pub buffers: BufRendezvous,
    /// Cancels everything in the step on this worker.
    pub cancellation: Cancellation,
    /// Resources that live as long as the step.
    pub resources: Arc<ResourceManager>,
    /// The tasks that the step has pushed tensors to.
    pub receivers: Mutex<SmallVec<[Receiver; 2]>>,
    /// The transfers from other tasks, once a partition has been started.
    pub context: OnceLock<Arc<dyn Transfers>>,
    /// The session's token, once a partition has been started: the step ends with the session, if not before.
    pub session: OnceLock<Weak<()>>,
    /// Whether a partition has been started; until then there are only requests for its tensors.
    pub has_started: AtomicBool,
    /// When that was, in microseconds since the epoch.
    pub started_micros: AtomicU64,
    pub waiting_requests: AtomicUsize,
    /// Pending receives from other tasks.
    pub remote: Mutex<Vec<Option<RemoteReceive>>>,
    /// The devices of peers whose connection was lost while the step was active: their pushes may be lost.
    lost: Mutex<Vec<(u64, Status)>>,
    has_lost: AtomicBool,
}

/// A tensor requested from another task.
pub(crate) struct RemoteReceive {
    /// Receives it.
    pub done: ReceiveDone,
    /// Waits for it.
    pub task: Option<AbortHandle>,
}

/// The progress of a step on this worker, for a peer that waits for its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepProgress {
    /// Unknown, or over for so long that it was forgotten.
    Unknown,
    /// Active.
    Running,
    /// Over: all its pushes have been made.
    Over,
    /// Failed; its master gets the error.
    Failed,
}

impl StepState {
    /// Returns the state of a new step.
    pub fn new(step_id: i64) -> StepState {
        StepState {
            id: step_id,
            local: LocalRendezvous::new(),
            buffers: BufRendezvous::default(),
            cancellation: Cancellation::new(),
            resources: Arc::new(ResourceManager::new()),
            receivers: Mutex::default(),
            context: OnceLock::new(),
            session: OnceLock::new(),
            has_started: AtomicBool::new(false),
            started_micros: AtomicU64::new(0),
            waiting_requests: AtomicUsize::new(0),
            remote: Mutex::new(Vec::new()),
            lost: Mutex::new(Vec::new()),
            has_lost: AtomicBool::new(false),
        }
    }

    /// Fails everything that waits in the step, here and from other tasks.
    pub fn abort(&self, status: Status) {
        self.cancellation.cancel(status.clone());
        self.local.abort(status.clone());
        self.buffers.abort(&status);
        // Indices are never reused, because a concurrent receive still holds its own.
        let receives: Vec<RemoteReceive> = self.remote.lock().iter_mut().filter_map(Option::take).collect();
        for receive in receives {
            if let Some(task) = receive.task {
                task.abort();
            }
            (receive.done)(Err(status.clone()));
        }
    }

    /// Returns the transfers of tensors from other tasks, if a partition has been started.
    pub fn context(&self) -> Option<&Arc<dyn Transfers>> {
        self.context.get()
    }

    /// Returns the name of this task in the step's cluster.
    pub fn task(&self) -> &str {
        self.context.get().map_or("this task", |context| context.task())
    }

    /// Returns whether all connections that the step has pushed over are established.
    pub fn is_delivering(&self) -> bool {
        self.receivers.lock().iter().all(|receiver| receiver.link.is_greeted())
    }

    /// Waits until the peers that the step has pushed to have accepted their connections. A connection that can't be made fails
    /// the step, because its tensors were never sent.
    pub async fn delivered(&self) -> Result<()> {
        let links: SmallVec<[Arc<dyn PeerLink>; 2]> =
            self.receivers.lock().iter().map(|receiver| receiver.link.clone()).collect();
        for link in links {
            let id = link.id();
            if let Err(status) = link.settled().await {
                let receivers = self.receivers.lock();
                let receiver = receivers.iter().find(|known| known.link.id() == id);
                return Err(receiver.map_or(status.clone(), |known| known.unreachable_from(self.task(), &status)));
            }
        }
        Ok(())
    }

    /// Returns the keys of some of the waiting receives that satisfy a condition, at most `count`.
    pub fn waiting_keys(&self, count: usize, condition: impl Fn(&RendezvousKey) -> bool) -> Vec<RendezvousKey> {
        let found = RefCell::new(Vec::new());
        self.local.any_waiting(|key| {
            if let Ok(key) = RendezvousKey::parse(key)
                && condition(&key)
            {
                found.borrow_mut().push(key);
            }
            found.borrow().len() >= count
        });
        found.into_inner()
    }

    /// Fails the step if it waits for a tensor of one of these devices; returns whether it does.
    pub fn fail_waiting_for(&self, incarnations: &[u64], because: &Status) -> bool {
        let is_from = |key: &RendezvousKey| incarnations.contains(&key.source_incarnation());
        // The first by name, so that a simulation is reproducible.
        let mut keys = self.waiting_keys(NAMED_KEYS_MAX, is_from);
        keys.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        let Some(key) = keys.into_iter().next() else { return false };
        let status = Status::new(
            because.code(),
            format!(
                "{} waits for '{}' of {}: {}",
                self.task(),
                key.edge_name(),
                task_of(key.source_device()),
                because.message()
            ),
        );
        self.abort(if because.is_derived() { status.derived() } else { status });
        true
    }

    /// Records that a connection to a task with these devices was lost, and fails the step if it waits for that task.
    pub fn lose(&self, incarnations: &[u64], status: &Status) {
        if incarnations.is_empty() {
            return;
        }
        {
            let mut lost = self.lost.lock();
            for &incarnation in incarnations {
                if lost.len() < LOST_PEERS_MAX && !lost.iter().any(|(known, _)| *known == incarnation) {
                    lost.push((incarnation, status.clone()));
                }
            }
        }
        self.has_lost.store(true, Ordering::Release);
        if self.has_started.load(Ordering::Acquire) {
            self.fail_waiting_for(incarnations, status);
        }
    }

    /// Fails the step if a tensor that it waits for may have been lost with a connection.
    pub fn fail_if_lost(&self, key: &RendezvousKey) {
        if !self.has_lost.load(Ordering::Acquire) {
            return;
        }
        let incarnation = key.source_incarnation();
        let lost = self.lost.lock().iter().find(|(known, _)| *known == incarnation).map(|(_, status)| status.clone());
        if let Some(status) = lost {
            self.fail_waiting_for(&[incarnation], &status);
        }
    }
}

/// The rendezvous of a step that communicates with no other task is the step itself.
impl Rendezvous for StepState {
    fn send(&self, key: &RendezvousKey, tensor: Tensor, is_dead: bool) -> Result<()> {
        self.local.send(key, tensor, is_dead)
    }

    fn receive(&self, key: &RendezvousKey, done: ReceiveDone) {
        self.local.receive(key, done);
    }

    fn abort(&self, status: Status) {
        StepState::abort(self, status);
    }
}

/// One task's view of its cluster, or of the cluster that a session brought along.
pub(crate) trait Transfers: Send + Sync {
    /// Returns the name of this task in the cluster.
    fn task(&self) -> &str;

    /// Returns the task's counters.
    fn metrics(&self) -> &Arc<TaskMetrics>;

    /// Returns whether the cluster has no other task.
    fn is_alone(&self) -> bool;

    /// Returns a task's address.
    fn address(&self, task: &str) -> Option<&str>;

    /// Returns a task's worker.
    fn worker(&self, task: &str) -> Result<Arc<dyn WorkerInterface>>;

    /// Returns the transfers for another cluster, in which this task is `task`.
    fn for_cluster(&self, cluster: ClusterSpec, task: String) -> Arc<dyn Transfers>;

    /// Returns the rendezvous for the nodes of a step.
    fn rendezvous(self: Arc<Self>, step: Arc<StepState>) -> Arc<dyn Rendezvous>;

    /// Drops the queued pushes of a step that was cancelled, has failed, or is over on all tasks.
    fn forget_step(&self, step_id: i64);

    /// Returns whether tensors may be pushed, so that steps that wait for them need a watch.
    fn may_be_pushed_to(&self) -> bool;

    /// Returns the connection over which the task with this device pushes, if there is one.
    fn connected_to(&self, incarnation: u64) -> Option<Arc<dyn PeerLink>>;

    /// Connects to the task with this device; an error says why it can't be reached.
    fn reach(&self, task: &str, incarnation: u64) -> Answer<()>;
}

/// A connection over which tensors are pushed to another task.
pub(crate) trait PeerLink: Any + Send + Sync {
    /// Returns the connection's unique number.
    fn id(&self) -> LinkId;

    /// Returns whether the peer has greeted and the connection is open.
    fn is_greeted(&self) -> bool;

    /// Waits until the peer has greeted; an error says why it never will.
    fn settled(self: Arc<Self>) -> BoxFuture<'static, Result<()>>;

    /// Asks the peer for its progress in steps whose tensors are awaited.
    fn ask_progress(&self, id: u64, steps: &[i64]) -> Result<()>;
}

/// A task that a step pushes tensors to.
pub(crate) struct Receiver {
    /// Its address.
    pub address: Arc<str>,
    /// The key of the first tensor, which names the task.
    pub key: RendezvousKey,
    /// The connection to it.
    pub link: Arc<dyn PeerLink>,
}

impl Receiver {
    /// Adds to a status which task could not be reached, and by which.
    pub fn unreachable_from(&self, task: &str, status: &Status) -> Status {
        let receiver = task_of(self.key.destination_device());
        // The incarnation after it means nothing to people.
        let place = self.address.split('#').next().unwrap_or_default();
        let place = place.split_once(':').map_or(place, |(_, place)| place);
        Status::new(
            status.code(),
            format!("{task} can't deliver '{}' to {receiver} at {place}: {}", self.key.edge_name(), status.message()),
        )
    }
}
