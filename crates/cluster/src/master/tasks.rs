//! [`SessionTasks`]: the tasks that a session may use, each contacted on first use.

use super::repeated::until_reached;
use crate::clock::{elapsed, now, sleep, timeout, timeout_at};
use crate::device::{is_ours, rename, task_name, task_of};
use crate::interface::WorkerInterface;
use crate::log_limit::LogLimit;
use crate::metrics::TaskMetrics;
use crate::spawner::Spawner;
use crate::transport::WorkerCache;
use crate::transport::stream::StreamOffer;
use futures_util::future::{join_all, try_join_all};
use graph::DeviceName;
use parking_lot::Mutex;
use proto::{ConfigProto, CreateWorkerSessionRequest, DeviceAttributes, ServerDef};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Code, Result, Status};
use tokio::sync::{OnceCell, oneshot};
use tracing::{debug, warn};

/// How long a task may take before a line says that the session waits for it; shorter than any timeout that people set.
const WAITING_LINE_AFTER: Duration = Duration::from_secs(1);

/// The interval of that line from then on.
const WAITING_LINE_INTERVAL: Duration = Duration::from_secs(3);

/// There can be many sessions, and each can wait for many tasks.
static WAITING_LINES: LogLimit = LogLimit::several(100, WAITING_LINE_INTERVAL);

/// The pause between two attempts to reach a task.
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(50);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// How long the end of a session waits for tasks that may be lost.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The tasks that a session may use.
pub(crate) struct SessionTasks {
    workers: Arc<WorkerCache>,
    session_handle: String,
    /// The session's name in log lines, since its handle is a secret.
    label: String,
    /// The cluster that the session brought, if it did.
    cluster: Option<proto::ClusterDef>,
    filters: Vec<DeviceName>,
    isolate_session_state: bool,
    master_incarnation: i64,
    tasks: BTreeMap<String, OnceCell<ContactedTask>>,
    told: Arc<Told>,
}

/// The tasks on which a session is open. Each is told of the session's end as well, even if both happen at once: a session may
/// end while it is being opened on a task, and a client may give up on a session that is being created.
struct Told {
    session_handle: String,
    spawner: Spawner,
    /// `None` once the session has ended.
    workers: Mutex<Option<Vec<Arc<dyn WorkerInterface>>>>,
}

impl Told {
    /// Opens the session on a task, in the background: the caller may stop waiting.
    async fn tell(
        self: Arc<Self>,
        worker: Arc<dyn WorkerInterface>,
        request: CreateWorkerSessionRequest,
    ) -> Result<()> {
        let told = self.spawner.clone().spawn(async move {
            let outcome = worker.create_worker_session(request).await;
            // The task may have opened the session even if the answer was lost.
            if outcome.as_ref().is_err_and(|status| status.code() != Code::Unavailable) {
                return outcome;
            }
            if let Some(workers) = &mut *self.workers.lock() {
                if !workers.iter().any(|told| Arc::ptr_eq(told, &worker)) {
                    workers.push(worker);
                }
                return outcome;
            }
            self.delete(worker);
            outcome.and_then(|()| Err(Status::aborted("the session was closed")))
        });
        told.await.unwrap_or_else(|error| Err(Status::internal(format!("telling a task of a session: {error}"))))
    }

    /// Returns the calls that tell all tasks of the session's end. Nothing can be opened after that.
    fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        let told = self.workers.lock().take().unwrap_or_default();
        let deletions: Vec<_> = told.into_iter().map(|worker| self.delete(worker)).collect();
        async move {
            drop(join_all(deletions).await);
        }
    }

    /// Tells a task of the session's end. The caller gets the first answer; if the task can't be reached, the call is repeated.
    fn delete(&self, worker: Arc<dyn WorkerInterface>) -> oneshot::Receiver<()> {
        let (answered, is_answered) = oneshot::channel();
        let (first, session_handle) =
            (worker.delete_worker_session(self.session_handle.clone()), self.session_handle.clone());
        let first = Box::pin(async move {
            let outcome = first.await;
            let _ = answered.send(());
            outcome
        });
        self.spawner.spawn(async move {
            let outcome = until_reached(first, move || worker.delete_worker_session(session_handle.clone())).await;
            if let Err(status) = outcome {
                debug!("a session could not be ended at a task: {status}");
            }
        });
        is_answered
    }
}

/// A task that has answered.
#[derive(Clone)]
pub(crate) struct ContactedTask {
    /// The task's worker.
    pub worker: Arc<dyn WorkerInterface>,
    /// The devices that the session may see, by their names in its cluster.
    pub devices: Arc<[DeviceAttributes]>,
    /// How the task accepts streams, and its incarnation.
    stream: Option<(StreamOffer, u64)>,
}

impl ContactedTask {
    /// Returns whether the task runs this program rather than TensorFlow.
    pub fn is_ours(&self) -> bool {
        self.devices.first().is_some_and(is_ours)
    }
}

impl SessionTasks {
    /// Returns the tasks that pass a session's filters; none is contacted yet.
    pub fn new(
        workers: Arc<WorkerCache>,
        session_handle: &str,
        label: String,
        config: &ConfigProto,
        cluster: Option<proto::ClusterDef>,
        master_incarnation: u64,
        spawner: Spawner,
    ) -> Result<SessionTasks> {
        let filters: Vec<DeviceName> =
            config.device_filters.iter().map(|filter| DeviceName::parse(filter)).collect::<Result<_>>()?;
        let mut tasks = BTreeMap::new();
        for name in workers.tasks() {
            if name == workers.own_task() || passes(&filters, &name) {
                tasks.insert(name, OnceCell::new());
            }
        }
        Ok(SessionTasks {
            workers,
            session_handle: session_handle.to_owned(),
            label,
            cluster,
            filters,
            isolate_session_state: config.isolate_session_state,
            master_incarnation: master_incarnation as i64,
            tasks,
            told: Arc::new(Told {
                session_handle: session_handle.to_owned(),
                spawner,
                workers: Mutex::new(Some(Vec::new())),
            }),
        })
    }

    /// Returns the session's name in log lines.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the counters of the master's task.
    pub fn metrics(&self) -> &Arc<TaskMetrics> {
        self.workers.metrics()
    }

    /// Returns the name of the master's own task.
    pub fn own_task(&self) -> &str {
        self.workers.own_task()
    }

    /// Returns whether the cluster has no other task.
    pub fn is_alone(&self) -> bool {
        self.workers.is_alone()
    }

    /// Returns the names of all tasks that the session may use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tasks.keys().map(String::as_str)
    }

    /// Returns whether a task is one that the session may use.
    pub fn contains(&self, task: &str) -> bool {
        self.tasks.contains_key(task)
    }

    /// Returns a task that has been contacted.
    pub fn contacted(&self, task: &str) -> Option<&ContactedTask> {
        self.tasks.get(task).and_then(OnceCell::get)
    }

    /// Returns the devices for placement: the reported ones, and for tasks that haven't been contacted the CPU that every task
    /// has.
    pub fn devices(&self) -> Result<Vec<DeviceName>> {
        let mut devices = Vec::new();
        for (name, task) in &self.tasks {
            match task.get() {
                Some(contacted) => {
                    for device in contacted.devices.iter() {
                        devices.push(DeviceName::parse(&device.name)?);
                    }
                }
                None => devices.push(DeviceName::parse(&format!("{name}/device:CPU:0"))?),
            }
        }
        Ok(devices)
    }

    /// Returns the number of contacted tasks; if it changes, the devices may have changed.
    pub fn num_contacted(&self) -> usize {
        self.tasks.values().filter(|task| task.initialized()).count()
    }

    /// Returns the incarnation of a device of a contacted task.
    pub fn incarnation(&self, device: &str) -> u64 {
        let contacted = self.contacted(task_of(device));
        let found = contacted.and_then(|task| task.devices.iter().find(|known| known.name == device));
        found.map_or(0, |known| known.incarnation)
    }

    /// Contacts several tasks at once and opens the session on them. Waits for those that aren't running yet, until `deadline`,
    /// and logs it.
    pub async fn contact(&self, names: &[String], deadline: Option<Instant>) -> Result<()> {
        let missing = names.iter().filter(|name| self.contacted(name).is_none());
        try_join_all(missing.map(|name| self.contact_one(name, deadline))).await.map(drop)
    }

    async fn contact_one(&self, name: &str, deadline: Option<Instant>) -> Result<()> {
        let Some(task) = self.tasks.get(name) else {
            return Err(Status::not_found(format!("the session has no task {name}")));
        };
        task.get_or_try_init(|| self.reach(name, deadline)).await.map(drop)
    }

    /// Waits for a task and opens the session on it.
    async fn reach(&self, name: &str, deadline: Option<Instant>) -> Result<ContactedTask> {
        let worker = self.workers.get(name)?;
        let address = self.workers.address(name).unwrap_or("this process").to_owned();
        let started = now();
        let last_error = Mutex::new(None::<Status>);
        let waiting = self.workers.metrics().wait_for(&self.label, name);
        let reached = async {
            let mut pause = RETRY_INTERVAL_MIN;
            loop {
                let outcome = match worker.get_status().await {
                    Ok(attributes) => self.open(name, &worker).await.map(|()| attributes),
                    Err(status) => Err(status),
                };
                match outcome {
                    Ok(attributes) => return Ok(attributes),
                    // It may still start, or come back.
                    Err(status)
                        if matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded) =>
                    {
                        debug!("{name} at {address}: {status}");
                        waiting.because(status.message());
                        *last_error.lock() = Some(status);
                    }
                    Err(status) => return Err(status),
                }
                sleep(pause).await;
                pause = (pause * 2).min(RETRY_INTERVAL_MAX);
            }
        };
        let waiting_lines = async {
            let mut pause = WAITING_LINE_AFTER;
            loop {
                sleep(std::mem::replace(&mut pause, WAITING_LINE_INTERVAL)).await;
                let because =
                    last_error.lock().as_ref().map_or(String::new(), |status| format!(": {}", status.message()));
                let (label, seconds) = (&self.label, elapsed(started).as_secs());
                if let Some(count) = WAITING_LINES.allow() {
                    let left_out = LogLimit::left_out(count);
                    warn!("{label} still waits for {name} at {address}, for {seconds} s{because}{left_out}");
                }
            }
        };
        let reached = async {
            tokio::select! {
                biased;
                attributes = reached => attributes,
                () = waiting_lines => Err(Status::internal("the lines about waiting ended")),
            }
        };
        let attributes = match deadline {
            None => reached.await?,
            Some(deadline) => timeout_at(deadline, reached).await.unwrap_or_else(|_| {
                let because =
                    last_error.lock().as_ref().map_or(String::new(), |status| format!(": {}", status.message()));
                if let Some(count) = WAITING_LINES.allow() {
                    let left_out = LogLimit::left_out(count);
                    warn!("{} gives up on {name} at {address}{because}{left_out}", self.label);
                }
                Err(Status::deadline_exceeded(format!("{name} at {address} did not answer in time{because}")))
            })?,
        };
        let kind = if attributes.first().is_some_and(is_ours) { "Ferroflow" } else { "TensorFlow" };
        debug!("{} uses {name} at {address}, a {kind} task", self.label);
        let stream = attributes.first().and_then(|first| Some((StreamOffer::of(first)?, first.incarnation)));
        Ok(ContactedTask { worker, devices: self.visible(name, attributes)?.into(), stream })
    }

    /// Returns the address to which one task can push tensors for another; `None` if they must be requested.
    pub fn push_address(&self, from: &str, to: &str) -> Option<String> {
        let (source, _) = self.contacted(from)?.stream.as_ref()?;
        let (destination, incarnation) = self.contacted(to)?.stream.as_ref()?;
        Some(source.address_of(destination, to, self.workers.address(to)?, *incarnation))
    }

    /// Opens the session on a task.
    async fn open(&self, name: &str, worker: &Arc<dyn WorkerInterface>) -> Result<()> {
        let device = DeviceName::parse(name)?;
        let server_def = ServerDef {
            cluster: self.cluster.clone(),
            job_name: device.job.unwrap_or_default(),
            task_index: device.task.unwrap_or_default() as i32,
            protocol: "grpc".to_owned(),
            ..ServerDef::default()
        };
        let request = CreateWorkerSessionRequest {
            session_handle: self.session_handle.clone(),
            server_def: Some(server_def),
            isolate_session_state: self.isolate_session_state,
            cluster_device_attributes: Vec::new(),
            master_task: self.own_task().to_owned(),
            master_incarnation: self.master_incarnation,
        };
        self.told.clone().tell(worker.clone(), request).await
    }

    /// Returns the devices of a task that pass the filters, under the names that they have in the session's cluster.
    fn visible(&self, task: &str, attributes: Vec<DeviceAttributes>) -> Result<Vec<DeviceAttributes>> {
        let mut visible = Vec::with_capacity(attributes.len());
        for mut device in attributes {
            if task_of(&device.name) != task {
                if self.cluster.is_none() {
                    return Err(Status::failed_precondition(format!(
                        "the task at the address of {task} says that it is {}: the tasks don't agree on the cluster",
                        task_of(&device.name)
                    )));
                }
                device.name = rename(&device.name, task)?;
            }
            if task == self.own_task() || passes(&self.filters, &device.name) {
                visible.push(device);
            }
        }
        Ok(visible)
    }

    /// Contacts every task, for a list of all devices.
    pub async fn contact_all(&self, deadline: Option<Instant>) -> Result<Vec<DeviceAttributes>> {
        let names: Vec<String> = self.tasks.keys().cloned().collect();
        self.contact(&names, deadline).await?;
        let contacted = names.iter().filter_map(|name| self.contacted(name));
        Ok(contacted.flat_map(|task| task.devices.iter().cloned()).collect())
    }

    /// Tells the tasks that the session is over. Tasks that don't answer are given up after a while.
    pub async fn close(&self) {
        if timeout(CLOSE_TIMEOUT, self.told.end()).await.is_err() {
            debug!("{}: not all tasks answered to its end", self.label);
        }
    }
}

impl Drop for SessionTasks {
    /// Nobody else closes a session that was never completed.
    fn drop(&mut self) {
        let end = self.told.end();
        self.told.spawner.spawn(async move {
            let _ = timeout(CLOSE_TIMEOUT, end).await;
        });
    }
}

/// Returns whether the filters allow a task or device; without filters all are allowed.
fn passes(filters: &[DeviceName], name: &str) -> bool {
    let Ok(name) = DeviceName::parse(name) else { return false };
    filters.is_empty() || filters.iter().any(|filter| filter.intersected_with(&name).is_ok())
}

/// Returns the task in a device specification, if it names one.
pub(crate) fn named_task(device: &str) -> Option<String> {
    let name = DeviceName::parse(device).ok()?;
    Some(task_name(name.job.as_deref()?, name.task?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_parts() {
        let filters = |texts: &[&str]| texts.iter().map(|text| DeviceName::parse(text).unwrap()).collect::<Vec<_>>();
        let ps = "/job:ps/replica:0/task:0";
        assert!(passes(&[], ps));
        assert!(passes(&filters(&["/job:worker/task:0", "/job:ps"]), ps));
        assert!(!passes(&filters(&["/job:worker/task:0"]), ps));
        assert!(passes(&filters(&["/job:ps/device:CPU:0"]), ps));
        assert!(!passes(&filters(&["/job:ps/device:CPU:0"]), "/job:ps/replica:0/task:0/device:CPU:1"));
        assert_eq!(named_task("/job:ps/task:3/cpu:0").unwrap(), "/job:ps/replica:0/task:3");
        assert_eq!(named_task("/job:ps"), None);
    }
}
