//! [`TaskStatus`]: the status of a task and its cluster for people and tools: its readiness and metrics.
//!
//! Nothing here changes state or delays a step: it reads counters and takes short locks.

mod gate;
mod openmetrics;
mod process;
mod snapshot;
mod view;

pub use gate::ConnectionGate;

use crate::access::Role;
use crate::client::{Client, caller};
use crate::clock::{elapsed, now, timeout};
use crate::interface::Answer;
use crate::master::WeakMaster;
use crate::task_question::{TaskAnswer, TaskQuestion, TaskTopic};
use crate::threads::for_graph;
use crate::transport::WorkerCache;
use crate::transport::grpc::ask_at;
use crate::transport::grpc::server::Services;
use crate::worker::Worker;
use futures_util::future::join_all;
use std::future::ready;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tensor::{Result, Status};
use tokio::sync::{Mutex, watch};

/// How long a task may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The largest JSON of a session's graph.
const GRAPH_BYTES_MAX: usize = 8 << 20;

/// How long such an answer is cached.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(1);

/// The status of a task. Clones share it, and don't keep the task alive.
#[derive(Clone)]
pub struct TaskStatus {
    sources: Arc<Sources>,
}

/// Where it comes from.
struct Sources {
    task: String,
    worker: Weak<Worker>,
    master: WeakMaster,
    workers: Arc<WorkerCache>,
    services: OnceLock<Weak<Services>>,
    readiness: Mutex<Option<(Instant, Readiness)>>,
    cluster: Mutex<Option<(Instant, Arc<str>)>>,
    /// Counts the stop requests.
    stop: watch::Sender<bool>,
}

/// Whether the other tasks of a cluster can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// The tasks that answered.
    pub reached: Vec<String>,
    /// The tasks that did not, each with the reason.
    pub waits_for: Vec<(String, String)>,
}

impl Readiness {
    /// Returns whether all tasks answered.
    pub fn is_ready(&self) -> bool {
        self.waits_for.is_empty()
    }
}

impl TaskStatus {
    /// Returns the status of a task.
    pub(crate) fn new(task: String, worker: Weak<Worker>, master: WeakMaster, workers: Arc<WorkerCache>) -> TaskStatus {
        let (services, readiness, cluster) = (OnceLock::new(), Mutex::default(), Mutex::default());
        let stop = watch::Sender::new(false);
        let sources = Arc::new(Sources { task, worker, master, workers, services, readiness, cluster, stop });
        if let Some(worker) = sources.worker.upgrade() {
            let sources = Arc::downgrade(&sources);
            worker.set_answers(Box::new(move |question| match sources.upgrade() {
                Some(sources) => answer(sources, question),
                None => Box::pin(ready(Err(Status::unavailable("the task is stopping")))),
            }));
        }
        TaskStatus { sources }
    }

    /// Adds the parts that only a task with a port has.
    pub(crate) fn serves(&self, services: &Arc<Services>) {
        let _ = self.sources.services.set(Arc::downgrade(services));
    }

    /// Returns the whole name of the task.
    pub fn task(&self) -> &str {
        &self.sources.task
    }

    /// Asks every other task of the cluster whether it is running, with a timeout of two seconds.
    pub async fn readiness(&self) -> Readiness {
        // Held while the tasks are asked, so that concurrent requests share one round.
        let mut known = self.sources.readiness.lock().await;
        if let Some((asked, readiness)) = &*known
            && elapsed(*asked) < ANSWER_AGE_MAX
        {
            return readiness.clone();
        }
        let workers = &self.sources.workers;
        let others: Vec<String> = workers.tasks().into_iter().filter(|task| task != workers.own_task()).collect();
        let ask = |task: String| async move {
            let answered = async { workers.get(&task)?.get_status().await.map(drop) };
            let why = match timeout(ANSWER_TIMEOUT, answered).await {
                Ok(Ok(())) => None,
                Ok(Err(status)) => Some(status.message().to_owned()),
                Err(_) => Some(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
            };
            (task, why)
        };
        let mut readiness = Readiness::default();
        for (task, why) in join_all(others.into_iter().map(ask)).await {
            match why {
                None => readiness.reached.push(task),
                Some(why) => readiness.waits_for.push((task, why)),
            }
        }
        *known = Some((now(), readiness.clone()));
        readiness
    }

    /// Returns the state of all tasks of the cluster as JSON. Each is asked, with a timeout of two seconds.
    pub async fn cluster(&self) -> Arc<str> {
        self.sources.cluster().await
    }

    /// Returns the nodes of a session's graph as JSON.
    pub async fn graph(&self, task: &str, session: u64) -> Result<String> {
        let question = TaskQuestion::new(TaskTopic::Graph, session);
        let nodes = view::ask(&self.sources, task, question, ANSWER_TIMEOUT, GRAPH_BYTES_MAX).await?;
        Ok(nodes.to_string())
    }

    /// Records the next steps on all tasks of the cluster, within a few seconds; returns them as a trace for Chrome or Perfetto.
    pub async fn trace(&self, steps: u64) -> String {
        view::trace(&self.sources, steps).await.to_string()
    }

    /// Waits until an authorized client requests that the task stop. If nobody waits, such requests are refused.
    pub async fn told_to_stop(&self) {
        let mut told = self.sources.stop.subscribe();
        let _ = told.wait_for(|&is_told| is_told).await;
    }

    /// Returns the metrics of the task as OpenMetrics text.
    pub async fn metrics(&self) -> String {
        let readiness = self.readiness().await;
        openmetrics::text(&self.sources, &readiness)
    }
}

impl Sources {
    async fn cluster(&self) -> Arc<str> {
        // Held while the tasks are asked, so that many viewers of one page cause one round.
        let mut known = self.cluster.lock().await;
        if let Some((asked, cluster)) = &*known
            && elapsed(*asked) < ANSWER_AGE_MAX
        {
            return cluster.clone();
        }
        let cluster: Arc<str> = view::cluster(self).await.to_string().into();
        *known = Some((now(), cluster.clone()));
        cluster
    }

    /// Stops the task, if the caller could end its process anyway.
    fn stop(&self) -> Result<TaskAnswer> {
        let own = rustix::process::geteuid().as_raw();
        let caller = caller();
        let is_admin = caller.principal.as_ref().is_some_and(|principal| principal.role == Role::Admin);
        let may_stop = is_admin || matches!(caller.client, Client::User(uid) if uid == own || uid == 0);
        if !may_stop {
            return Err(Status::permission_denied(format!(
                "{} is stopped only by its own user, from its own machine, or by an admin",
                self.task
            )));
        }
        if self.stop.receiver_count() == 0 {
            return Err(Status::failed_precondition(format!("the program of {} decides when it stops", self.task)));
        }
        self.stop.send_replace(true);
        Ok(TaskAnswer { json: "true".to_owned() })
    }
}

/// Answers a question about the task.
fn answer(sources: Arc<Sources>, question: TaskQuestion) -> Answer<TaskAnswer> {
    let json = |json: String| Ok(TaskAnswer { json });
    match question.topic() {
        TaskTopic::State => Box::pin(async move { json(snapshot::state(&sources).to_string()) }),
        TaskTopic::Cluster => Box::pin(async move { json(sources.cluster().await.to_string()) }),
        TaskTopic::Graph => Box::pin(ready(match sources.master.graph(question.number) {
            Some((graph, ops)) => json(for_graph(graph.len(), || snapshot::nodes(&graph, ops).to_string())),
            None => Err(Status::not_found(format!("{} has no session {}", sources.task, question.number))),
        })),
        TaskTopic::Record => {
            let Some(worker) = sources.worker.upgrade() else {
                return Box::pin(ready(Err(Status::unavailable("the task is stopping"))));
            };
            let recording = worker.record(question.number);
            Box::pin(async move {
                let began = sources.workers.metrics().clock.now_micros();
                let steps = recording.await;
                json(snapshot::recording(&sources, &steps, began).to_string())
            })
        }
        TaskTopic::Stop => Box::pin(ready(sources.stop())),
        TaskTopic::Unknown => Box::pin(ready(Err(Status::unimplemented("this release knows no such question")))),
    }
}

/// Asks the task at an address (`host:port`), over its cluster port; returns the answer as JSON.
pub async fn ask_address(address: &str, question: TaskQuestion, runtime: tokio::runtime::Handle) -> Result<String> {
    Ok(ask_at(address, question, runtime).await?.json)
}
