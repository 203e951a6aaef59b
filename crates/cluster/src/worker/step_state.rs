//! [`StepState`]: what the partitions of one step on this worker share, and what a step needs to know of the ways to other tasks:
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

/// How many peers a step remembers whose connections were lost.
const LOST_PEERS_MAX: usize = 1 << 10;

/// Among how many of the receives of a step one is chosen that an error names.
const NAMED_KEYS_MAX: usize = 1 << 10;

/// Tells a connection to another task from all others that there were in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkId(pub u64);

/// What the partitions of one step on this worker share.
pub(crate) struct StepState {
    /// The step's id.
    pub id: i64,
    /// Where sends and receives within this worker meet.
    pub local: LocalRendezvous,
    /// Where the members of collective ops find each other's parts.
    pub buffers: BufRendezvous,
    /// Ends everything of the step on this worker.
    pub cancellation: Cancellation,
    /// Resources that end with the step.
    pub resources: Arc<ResourceManager>,
    /// The tasks that the step has pushed tensors to.
    pub receivers: Mutex<SmallVec<[Receiver; 2]>>,
    /// How its tensors come from other tasks, once a partition has been started.
    pub context: OnceLock<Arc<dyn Transfers>>,
    /// Lasts as long as the session that it belongs to, once a partition has been started: it ends with that, if not before.
    pub session: OnceLock<Weak<()>>,
    /// Whether a partition has been started; until then only requests for its tensors wait.
    pub has_started: AtomicBool,
    /// When that was, in microseconds since the epoch.
    pub started_micros: AtomicU64,
    pub waiting_requests: AtomicUsize,
    /// Receives from other tasks that are under way.
    pub remote: Mutex<Vec<Option<RemoteReceive>>>,
    /// The devices of peers to which a connection was lost while the step was active: what they have pushed may be lost.
    lost: Mutex<Vec<(u64, Status)>>,
    has_lost: AtomicBool,
}

/// A tensor that another task was asked for.
pub(crate) struct RemoteReceive {
    /// Takes it.
    pub done: ReceiveDone,
    /// Waits for it.
    pub task: Option<AbortHandle>,
}

/// How far a step has come on this worker, as a peer is told that waits for its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepProgress {
    /// Not heard of, or over for so long that it was forgotten.
    Unknown,
    /// Under way.
    Running,
    /// Over: all that it pushes was pushed.
    Over,
    /// Failed, which its master is told.
    Failed,
}

impl StepState {
    /// Makes the state of a step of which nothing is known yet.
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

    /// Fails everything that waits in the step, here and on its way to other tasks.
    pub fn abort(&self, status: Status) {
        self.cancellation.cancel(status.clone());
        self.local.abort(status.clone());
        self.buffers.abort(&status);
        // Places are never used again, because a task that ends meanwhile still knows its own.
        let receives: Vec<RemoteReceive> = self.remote.lock().iter_mut().filter_map(Option::take).collect();
        for receive in receives {
            if let Some(task) = receive.task {
                task.abort();
            }
            (receive.done)(Err(status.clone()));
        }
    }

    /// Returns how tensors of other tasks come, if a partition has been started.
    pub fn context(&self) -> Option<&Arc<dyn Transfers>> {
        self.context.get()
    }

    /// Returns the name of this task in the step's cluster.
    pub fn task(&self) -> &str {
        self.context.get().map_or("this task", |context| context.task())
    }

    /// Returns whether all that the step has pushed goes over connections that are up.
    pub fn is_delivering(&self) -> bool {
        self.receivers.lock().iter().all(|receiver| receiver.link.is_greeted())
    }

    /// Waits until the peers that the step has pushed to have answered to their connections. A connection that can't be made
    /// fails the step, because its tensors never left.
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

    /// Returns the keys of some of the receives that wait and satisfy a condition, at most `count`.
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
        // The first by name, so that a simulation repeats.
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

    /// Notes that a connection to a task with these devices was lost, and fails the step if it waits for that task.
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

/// The rendezvous of a step that talks to no other task is the step itself.
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

    /// Returns what the task counts.
    fn metrics(&self) -> &Arc<TaskMetrics>;

    /// Returns whether there is no other task, nor will be.
    fn is_alone(&self) -> bool;

    /// Returns a task's address.
    fn address(&self, task: &str) -> Option<&str>;

    /// Returns a task's worker.
    fn worker(&self, task: &str) -> Result<Arc<dyn WorkerInterface>>;

    /// Returns the same for another cluster, in which this task is `task`.
    fn for_cluster(&self, cluster: ClusterSpec, task: String) -> Arc<dyn Transfers>;

    /// Makes what the nodes of a step send to and receive from.
    fn rendezvous(self: Arc<Self>, step: Arc<StepState>) -> Arc<dyn Rendezvous>;

    /// Drops what waits to be pushed for a step that was cancelled or has failed, or that is over everywhere.
    fn forget_step(&self, step_id: i64);

    /// Returns whether tensors may come without being asked for, so that steps that wait for them need looking after.
    fn may_be_pushed_to(&self) -> bool;

    /// Returns the connection over which the task with this device pushes, if there is one.
    fn connected_to(&self, incarnation: u64) -> Option<Arc<dyn PeerLink>>;

    /// Connects to the task with this device; an error says why it can't be reached.
    fn reach(&self, task: &str, incarnation: u64) -> Answer<()>;
}

/// A connection over which tensors go to another task as soon as they are there.
pub(crate) trait PeerLink: Any + Send + Sync {
    /// Returns what tells it from others.
    fn id(&self) -> LinkId;

    /// Returns whether the peer has greeted, and the connection lasts.
    fn is_greeted(&self) -> bool;

    /// Waits until the peer has greeted; an error is why it never will.
    fn settled(self: Arc<Self>) -> BoxFuture<'static, Result<()>>;

    /// Asks the peer how far it is with steps whose tensors are waited for.
    fn ask_progress(&self, id: u64, steps: &[i64]) -> Result<()>;
}

/// A task that a step pushes tensors to.
pub(crate) struct Receiver {
    /// Where it is.
    pub address: Arc<str>,
    /// The key of the first tensor, which names the task.
    pub key: RendezvousKey,
    /// The connection to it.
    pub link: Arc<dyn PeerLink>,
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
