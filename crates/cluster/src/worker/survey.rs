//! A worker's state for monitoring: its variables and queues, the active steps, and the tasks that they wait for.

use super::Worker;
use crate::device::task_of;
use kernel::Holdings;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// The most active steps that are examined, and the most receives of each.
const STEPS_MAX: usize = 64;
const KEYS_MAX: usize = 64;

/// The state of a worker at one moment.
pub(crate) struct WorkerSurvey {
    /// The sessions that masters have open here.
    pub num_sessions: usize,
    /// The steps that have a rendezvous here.
    pub num_steps: usize,
    /// The requests that wait in them for tensors.
    pub num_waiting_requests: usize,
    /// The steps that wait for other tasks, oldest first.
    pub waits: Vec<StepWait>,
    /// The variables and queues, by name.
    pub holdings: Vec<(String, Holdings)>,
    /// The incarnation of the first device.
    pub incarnation: u64,
}

/// A step that waits for another task.
pub(crate) struct StepWait {
    /// The task whose tensor it waits for.
    pub task: String,
    /// The name of one of the tensors.
    pub tensor: String,
    /// When the step began here, in microseconds since the epoch.
    pub since_micros: u64,
}

impl Worker {
    /// Returns its state.
    pub fn survey(&self) -> WorkerSurvey {
        let (num_steps, num_waiting_requests) = self.steps.sizes();
        let mut started = self.steps.started();
        started.sort_by_key(|step| step.started_micros.load(Ordering::Relaxed));
        let mut waits = Vec::new();
        for step in started.into_iter().take(STEPS_MAX) {
            let Some(context) = step.context() else { continue };
            let since_micros = step.started_micros.load(Ordering::Relaxed);
            let mut seen = BTreeSet::new();
            for key in step.waiting_keys(KEYS_MAX, |key| task_of(key.source_device()) != context.task()) {
                let task = task_of(key.source_device()).to_owned();
                if seen.insert(task.clone()) {
                    waits.push(StepWait { task, tensor: key.edge_name().to_owned(), since_micros });
                }
            }
        }
        WorkerSurvey {
            num_sessions: self.sessions.read().len(),
            num_steps,
            num_waiting_requests,
            waits,
            holdings: self.devices.iter().flat_map(|device| device.resources.holdings()).collect(),
            incarnation: self.devices.first().map_or(0, |device| device.incarnation),
        }
    }
}
