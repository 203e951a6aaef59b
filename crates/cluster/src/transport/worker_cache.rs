//! [`WorkerCache`]: the workers of a cluster, by task, connected on first use.

use super::stream::{ConfirmStreamRequest, ConfirmStreamResponse, Peers, StreamHub};
use crate::ClusterSpec;
use crate::device::task_name;
use crate::interface::Answer;
use crate::interface::WorkerInterface;
use crate::metrics::{PeerTraffic, TaskMetrics};
use foldhash::{HashMap, HashMapExt};
use graph::DeviceName;
use parking_lot::RwLock;
use std::sync::{Arc, Weak};
use tensor::{Result, Status};

/// Creates the interface of a worker at an address.
pub(crate) trait Connector: Send + Sync {
    /// Returns the worker, which needn't be connected yet. It may use this task's streams.
    fn connect(&self, task: &str, address: &str, streams: Option<&Arc<StreamHub>>) -> Result<Arc<dyn WorkerInterface>>;

    /// Returns whether all workers are in this process.
    fn is_in_process(&self) -> bool;

    /// Asks a task whether it is opening a stream to this one.
    fn confirm_stream(&self, task: &str, address: &str, request: ConfirmStreamRequest)
    -> Answer<ConfirmStreamResponse>;
}

/// The workers of one cluster.
pub(crate) struct WorkerCache {
    cluster: ClusterSpec,
    own_task: String,
    /// Weak, because the worker itself holds the cache.
    own: RwLock<Option<Weak<dyn WorkerInterface>>>,
    connector: Arc<dyn Connector>,
    connected: RwLock<HashMap<String, Arc<dyn WorkerInterface>>>,
    /// The streams to tasks in other processes, if this task uses them.
    streams: Option<Arc<StreamHub>>,
    /// The counters of this server, for all clusters.
    metrics: Arc<TaskMetrics>,
}

impl WorkerCache {
    /// Returns a cache for a cluster in which this server is `own_task`.
    pub fn new(
        cluster: ClusterSpec,
        own_task: String,
        connector: Arc<dyn Connector>,
        streams: Option<Arc<StreamHub>>,
    ) -> WorkerCache {
        let (own, connected) = (RwLock::new(None), RwLock::new(HashMap::new()));
        let tasks = cluster.tasks().map(|(job, index, _)| task_name(job, index)).collect();
        let metrics = Arc::new(TaskMetrics::new(tasks));
        WorkerCache { cluster, own_task, own, connector, connected, streams, metrics }
    }

    /// Sets the worker of this server.
    pub fn set_own(&self, worker: Weak<dyn WorkerInterface>) {
        *self.own.write() = Some(worker);
    }

    /// Returns a cache for another cluster with the same worker and connections.
    pub fn for_cluster(&self, cluster: ClusterSpec, own_task: String) -> WorkerCache {
        let (own, connected) = (RwLock::new(self.own.read().clone()), RwLock::new(HashMap::new()));
        let (connector, streams) = (self.connector.clone(), self.streams.clone());
        WorkerCache { cluster, own_task, own, connector, connected, streams, metrics: self.metrics.clone() }
    }

    /// Returns the streams to tasks in other processes.
    pub fn streams(&self) -> Option<&Arc<StreamHub>> {
        self.streams.as_ref()
    }

    /// Returns the counters of this server.
    pub fn metrics(&self) -> &Arc<TaskMetrics> {
        &self.metrics
    }

    /// Returns the name of this server's task.
    pub fn own_task(&self) -> &str {
        &self.own_task
    }

    /// Returns whether there is no other task in the cluster, and nobody outside of this process can make a request.
    pub fn is_alone(&self) -> bool {
        self.streams.is_none() && self.connector.is_in_process() && self.cluster.tasks().count() == 1
    }

    /// Returns the names of all tasks, sorted.
    pub fn tasks(&self) -> Vec<String> {
        self.cluster.tasks().map(|(job, index, _)| task_name(job, index)).collect()
    }

    /// Returns a task's address.
    pub fn address(&self, task: &str) -> Option<&str> {
        let name = DeviceName::parse(task).ok()?;
        self.cluster.address(name.job.as_deref()?, name.task?)
    }

    /// Returns a task's worker; a task that isn't in the cluster is an error.
    pub fn get(&self, task: &str) -> Result<Arc<dyn WorkerInterface>> {
        if task == self.own_task {
            let own = self.own.read().as_ref().and_then(Weak::upgrade);
            return own.ok_or_else(|| Status::unavailable(format!("{task} has stopped")));
        }
        if let Some(worker) = self.connected.read().get(task) {
            return Ok(worker.clone());
        }
        let unknown =
            || Status::not_found(format!("the cluster has no task {task}; it has {}", self.tasks().join(", ")));
        let address = self.address(task).ok_or_else(unknown)?;
        let worker = self.connector.connect(task, address, self.streams.as_ref())?;
        Ok(self.connected.write().entry(task.to_owned()).or_insert(worker).clone())
    }
}

impl Peers for WorkerCache {
    fn address(&self, task: &str) -> Option<String> {
        WorkerCache::address(self, task).map(str::to_owned)
    }

    fn traffic(&self, task: &str) -> Option<Arc<PeerTraffic>> {
        self.metrics.peer(task).cloned()
    }

    fn confirm_stream(&self, task: &str, request: ConfirmStreamRequest) -> Answer<ConfirmStreamResponse> {
        match WorkerCache::address(self, task) {
            Some(address) => self.connector.confirm_stream(task, address, request),
            None => {
                let unknown = Status::not_found(format!("the cluster has no task {task}"));
                Box::pin(std::future::ready(Err(unknown)))
            }
        }
    }
}
