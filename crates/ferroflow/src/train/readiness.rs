//! [`Readiness`]: notifies waiting workers as soon as the chief has initialized the variables.
//!
//! Every task that holds variables has a queue that always stays empty. A waiting worker dequeues from it, which blocks until the
//! chief closes the queue: then the dequeue fails on all workers, and they check whether everything is ready. A task that was
//! lost and restarted has a new, open queue, until the chief has restored the variables. The queues are TensorFlow's own, so this
//! works on its tasks too; but a chief that is a TensorFlow program closes no queue, and its workers poll. The nodes are in a
//! separate graph, so the program's graph is unchanged.

use crate::session::{RunOptions, Session, SessionConfig, Target};
use crate::variable::global_variables;
use graph::{DeviceName, Graph, Operation};
use numeric::stable::fnv1a;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tensor::{Code, DType, PartialShape, Result};

/// How long the chief tries to notify the workers, which also poll.
const TELLING: Duration = Duration::from_secs(5);

/// The queues of the tasks that hold a graph's variables.
pub(super) struct Readiness {
    graph: Graph,
    waits: HashMap<String, Operation>,
    closes: Vec<Operation>,
}

impl Readiness {
    /// Adds the nodes for the tasks of a graph's variables; returns `None` if no variable is on a named task.
    pub(super) fn of(variables: &Graph) -> Result<Option<Readiness>> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for variable in global_variables(variables)? {
            if let Some(task) = task_of(&variable.op().device()) {
                names.entry(task).or_default().push(variable.name());
            }
        }
        if names.is_empty() {
            return Ok(None);
        }
        let graph = Graph::new();
        let (mut waits, mut closes) = (HashMap::new(), Vec::new());
        for (task, mut names) in names {
            // Another model on the same tasks has other variables, and other queues.
            names.sort_unstable();
            let shared_name = format!("ferroflow_ready_{:016x}", fingerprint(&names));
            let (types, shapes): (&[DType], &[PartialShape]) = (&[DType::Bool], &[PartialShape::scalar()]);
            let queue = graph.op("FIFOQueueV2").attr("component_types", types).attr("shapes", shapes).device(&task);
            let queue = queue.attr("capacity", 1i64).attr("shared_name", shared_name).try_build()?.output(0);
            let wait = graph.op("QueueDequeueV2").input(&queue).attr("component_types", types).device(&task);
            let close = graph.op("QueueCloseV2").input(&queue).device(&task);
            waits.insert(task, wait.try_build()?);
            closes.push(close.try_build()?);
        }
        Ok(Some(Readiness { graph, waits, closes }))
    }

    /// Wakes all waiting workers, and those that start to wait later.
    pub(super) fn tell(&self, target: &Target, config: &SessionConfig) -> Result<()> {
        let session = target.session(&self.graph, config)?;
        for close in &self.closes {
            let options = RunOptions::new().timeout(TELLING);
            match session.runner().target(close).options(options).run() {
                // The queue was closed before: a chief that restarts finds tasks that kept running.
                Err(status) if status.code() != Code::Cancelled => return Err(status),
                _ => {}
            }
        }
        session.close()
    }

    /// Starts to wait.
    pub(super) fn listen(&self, target: &Target, config: &SessionConfig) -> Result<Listening<'_>> {
        Ok(Listening { readiness: self, session: target.session(&self.graph, config)?, closed: HashSet::new() })
    }
}

/// The result of waiting.
pub(super) enum Heard {
    /// The chief has notified that the variables are initialized.
    Told,
    /// The time is over.
    Nothing,
    /// Waiting isn't possible: the queue was closed before, or can't be used.
    CannotHear,
}

/// A worker that waits for a notification.
pub(super) struct Listening<'a> {
    readiness: &'a Readiness,
    session: Session,
    closed: HashSet<String>,
}

impl Listening<'_> {
    /// Waits until the chief notifies that the variables on a device are initialized, or until the timeout.
    pub(super) fn wait(&mut self, device: &str, at_most: Duration) -> Heard {
        // A timeout of 0 milliseconds would mean none.
        const SHORTEST: Duration = Duration::from_millis(1);
        let Some(task) = task_of(device).filter(|task| !self.closed.contains(task)) else { return Heard::CannotHear };
        let Some(wait) = self.readiness.waits.get(&task) else { return Heard::CannotHear };
        let options = RunOptions::new().timeout(at_most.max(SHORTEST));
        match self.session.runner().target(wait).options(options).run() {
            Err(status) if status.code() == Code::DeadlineExceeded => Heard::Nothing,
            Err(status) if status.code() == Code::OutOfRange => {
                self.closed.insert(task);
                Heard::Told
            }
            _ => Heard::CannotHear,
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        // The session of a lost task can't be closed.
        let _ = self.session.close();
    }
}

/// Returns the task of a device, if it names one.
fn task_of(device: &str) -> Option<String> {
    let name = DeviceName::parse(device).ok()?;
    (name.job.is_some() && name.task.is_some()).then(|| name.task_part().to_string())
}

/// Returns a hash that is the same on every machine.
fn fingerprint(names: &[String]) -> u64 {
    fnv1a(names.iter().flat_map(|name| name.bytes().chain([0])))
}
