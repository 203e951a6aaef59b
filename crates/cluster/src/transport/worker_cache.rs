//! [`WorkerCache`]: the workers of a cluster, found by task and connected when first needed.

use crate::device::task_name;
use crate::interface::WorkerInterface;
use crate::random::RandomIds;
use crate::transport::grpc::{Channel, RemoteWorker, WeakChannel};
use crate::transport::stream::StreamHub;
use crate::{ClusterSpec, PeerTimes};
use foldhash::{HashMap, HashMapExt};
use graph::DeviceName;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak};
use tensor::{Result, Status};

/// Makes the interface of a worker at an address.
pub(crate) trait Connector: Send + Sync {
    /// Returns the worker; nothing needs to be connected yet.
    fn connect(&self, task: &str, address: &str) -> Result<Arc<dyn WorkerInterface>>;
}

/// Connects over gRPC. All sessions of a server share one connection to each peer, which ends with the last of them.
pub(crate) struct GrpcConnector {
    runtime: tokio::runtime::Handle,
    ids: Arc<RandomIds>,
    times: PeerTimes,
    channels: Mutex<Channels>,
}

/// The channels that somebody uses, by the names and addresses of their peers.
#[derive(Default)]
struct Channels {
    known: HashMap<(String, String), WeakChannel>,
    /// The number of entries at which those that nobody uses any more are taken out.
    sweep_at: usize,
}

/// The fewest entries that are worth a look for unused ones.
const SWEEP_MIN: usize = 16;

impl GrpcConnector {
    /// Makes a connector that has no connections yet.
    pub fn new(runtime: tokio::runtime::Handle, ids: Arc<RandomIds>, times: PeerTimes) -> GrpcConnector {
        GrpcConnector { runtime, ids, times, channels: Mutex::default() }
    }
}

impl Connector for GrpcConnector {
    fn connect(&self, task: &str, address: &str) -> Result<Arc<dyn WorkerInterface>> {
        let mut channels = self.channels.lock();
        let key = (task.to_owned(), address.to_owned());
        let channel = match channels.known.get(&key).and_then(WeakChannel::upgrade) {
            Some(channel) => channel,
            None => {
                let channel = Channel::new(task, address, self.runtime.clone(), self.times)?;
                channels.insert(key, channel.downgrade());
                channel
            }
        };
        Ok(Arc::new(RemoteWorker::new(channel, self.ids.clone())))
    }
}

impl Channels {
    fn insert(&mut self, key: (String, String), channel: WeakChannel) {
        if self.known.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.known.retain(|_, channel| channel.is_used());
            // Twice what is in use, so that looking costs little for each insertion.
            self.sweep_at = 2 * self.known.len();
        }
        self.known.insert(key, channel);
    }
}

/// The workers of one cluster.
pub(crate) struct WorkerCache {
    cluster: ClusterSpec,
    own_task: String,
    /// Weak, because the worker itself holds the cache.
    own: RwLock<Weak<dyn WorkerInterface>>,
    connector: Arc<dyn Connector>,
    connected: RwLock<HashMap<String, Arc<dyn WorkerInterface>>>,
    /// The streams to tasks in other processes, if this one takes part in them.
    streams: Option<Arc<StreamHub>>,
}

impl WorkerCache {
    /// Makes a cache for a cluster in which this server is `own_task`.
    pub fn new(
        cluster: ClusterSpec,
        own_task: String,
        connector: Arc<dyn Connector>,
        streams: Option<Arc<StreamHub>>,
    ) -> WorkerCache {
        let own: Weak<dyn WorkerInterface> = Weak::<crate::worker::Worker>::new();
        let (own, connected) = (RwLock::new(own), RwLock::new(HashMap::new()));
        WorkerCache { cluster, own_task, own, connector, connected, streams }
    }

    /// Sets the worker of this server.
    pub fn set_own(&self, worker: Weak<dyn WorkerInterface>) {
        *self.own.write() = worker;
    }

    /// Returns a cache for another cluster with the same worker and connections.
    pub fn for_cluster(&self, cluster: ClusterSpec, own_task: String) -> WorkerCache {
        let cache = WorkerCache::new(cluster, own_task, self.connector.clone(), self.streams.clone());
        cache.set_own(self.own.read().clone());
        cache
    }

    /// Returns the streams to tasks in other processes.
    pub fn streams(&self) -> Option<&Arc<StreamHub>> {
        self.streams.as_ref()
    }

    /// Returns the name of this server's task.
    pub fn own_task(&self) -> &str {
        &self.own_task
    }

    /// Returns the names of all tasks, in order.
    pub fn tasks(&self) -> Vec<String> {
        self.cluster.tasks().map(|(job, index, _)| task_name(job, index)).collect()
    }

    /// Returns a task's address.
    pub fn address(&self, task: &str) -> Option<&str> {
        let name = DeviceName::parse(task).ok()?;
        self.cluster.address(name.job.as_deref()?, name.task?)
    }

    /// Returns a task's worker for one question: a connection that was made for it ends with it.
    pub fn ask(&self, task: &str) -> Result<Arc<dyn WorkerInterface>> {
        if let Some(worker) = self.connected.read().get(task) {
            return Ok(worker.clone());
        }
        let address = self.address(task).ok_or_else(|| Status::not_found(format!("the cluster has no task {task}")))?;
        self.connector.connect(task, address)
    }

    /// Returns a task's worker; a task that isn't in the cluster is an error.
    pub fn get(&self, task: &str) -> Result<Arc<dyn WorkerInterface>> {
        if task == self.own_task {
            return self.own.read().upgrade().ok_or_else(|| Status::unavailable(format!("{task} has stopped")));
        }
        if let Some(worker) = self.connected.read().get(task) {
            return Ok(worker.clone());
        }
        let unknown =
            || Status::not_found(format!("the cluster has no task {task}; it has {}", self.tasks().join(", ")));
        let worker = self.connector.connect(task, self.address(task).ok_or_else(unknown)?)?;
        Ok(self.connected.write().entry(task.to_owned()).or_insert(worker).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_channel_ends_with_its_last_user() {
        let runtime = tokio::runtime::Handle::current();
        let connector = GrpcConnector::new(runtime, Arc::new(RandomIds::with_seed(1)), PeerTimes::default());
        let kept = connector.connect("/job:ps/replica:0/task:0", "127.0.0.1:1").unwrap();
        for index in 0..1000 {
            connector.connect(&format!("/job:j{index}/replica:0/task:0"), "127.0.0.1:1").unwrap();
        }
        let channels = connector.channels.lock();
        assert_eq!(channels.known.values().filter(|channel| channel.is_used()).count(), 1);
        assert!(channels.known.len() <= SWEEP_MIN + 1, "{} names are kept for nobody", channels.known.len());
        drop(kept);
    }
}
