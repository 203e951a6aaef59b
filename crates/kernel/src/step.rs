//! [`Step`]: the state that all nodes of a step share.

mod collective;
mod functions;

pub use collective::{
    CollectiveCall, CollectiveDone, CollectiveGroup, CollectiveKind, Collectives, Reduction, ReductionPlan,
};
pub use functions::{FunctionDone, FunctionHandle, FunctionPlace, FunctionRuntime};

use crate::timer::run_after;
use crate::{Cancellation, Rendezvous, ResourceManager};
use foldhash::HashMap;
use numeric::environment;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tensor::{Account, Result, Status, Tensor};

/// Runs jobs on other threads, and provides the time.
pub trait JobRunner: Send + Sync {
    /// Runs a job on another thread.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// Runs a job after a delay, on a thread that all such jobs share, so the job must be short.
    fn spawn_after(&self, delay: Duration, job: Box<dyn FnOnce() + Send>) {
        run_after(delay, job);
    }

    /// Returns the time on the clock of [`spawn_after`](JobRunner::spawn_after).
    fn now(&self) -> Instant {
        environment::now()
    }
}

/// Receives the lines that ops print.
pub trait Logger: Send + Sync {
    /// Logs a line at a level such as `info`.
    fn log(&self, level: &str, message: &str);
}

/// Receives the times of nodes, for a trace of the step.
pub trait Trace: Send + Sync {
    /// Records when a node was ready, started and ended, in nanoseconds since the Unix epoch.
    fn record(&self, node: &str, op: &str, scheduled_ns: u64, started_ns: u64, ended_ns: u64, output_bytes: usize);
}

/// The state of a session between steps: its account, and tensors kept by handle.
pub struct SessionState {
    /// The account that the allocations of its steps are charged to.
    account: Account,
    tensors: Mutex<HashMap<String, Tensor>>,
    next_handle: AtomicU64,
}

impl SessionState {
    /// Returns an empty state with its own account.
    pub fn new() -> SessionState {
        SessionState::with_account(Account::open())
    }

    /// Returns an empty state of a session with an account.
    pub fn with_account(account: Account) -> SessionState {
        SessionState { account, tensors: Mutex::default(), next_handle: AtomicU64::new(0) }
    }

    /// Drops the tensors of the session.
    pub fn end(&self) {
        let tensors = std::mem::take(&mut *self.tensors.lock());
        drop(tensors);
    }

    /// Returns the account that the allocations of its steps are charged to.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Keeps a tensor and returns its handle.
    pub fn keep(&self, node: &str, device: &str, tensor: Tensor) -> String {
        let id = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let handle = format!("{node};{id};{device}");
        self.tensors.lock().insert(handle.clone(), tensor);
        handle
    }

    /// Returns a kept tensor.
    pub fn kept(&self, handle: &str) -> Result<Tensor> {
        let found = self.tensors.lock().get(handle).cloned();
        found.ok_or_else(|| {
            Status::invalid_argument(format!("The tensor with handle '{handle}' is not in the session store."))
        })
    }

    /// Drops a kept tensor.
    pub fn forget(&self, handle: &str) -> Result<()> {
        self.tensors.lock().remove(handle).map(drop).ok_or_else(|| {
            Status::invalid_argument(format!("Failed to delete a tensor with handle '{handle}' in the session store."))
        })
    }
}

impl Default for SessionState {
    fn default() -> SessionState {
        SessionState::new()
    }
}

/// The arguments and results of a graph or function call, by index.
#[derive(Default)]
pub struct CallFrame {
    args: Mutex<Vec<Option<Tensor>>>,
    results: Mutex<Vec<Option<Tensor>>>,
    /// The number of enclosing calls.
    depth: u32,
}

impl CallFrame {
    /// Returns a frame with these arguments, and room for the results.
    pub fn new(args: Vec<Option<Tensor>>, num_results: usize) -> CallFrame {
        CallFrame { args: Mutex::new(args), results: Mutex::new(vec![None; num_results]), depth: 0 }
    }

    /// Returns the frame of a call within this many others.
    pub fn at_depth(self, depth: u32) -> CallFrame {
        CallFrame { depth, ..self }
    }

    /// Returns the number of enclosing calls.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Takes an argument, so that its consumer may be the sole owner. It can be taken only once.
    pub fn take_arg(&self, index: usize) -> Result<Tensor> {
        let mut args = self.args.lock();
        let arg = args.get_mut(index).and_then(Option::take);
        arg.ok_or_else(|| Status::internal(format!("argument {index} was not given")))
    }

    /// Returns an argument without taking it.
    pub fn arg(&self, index: usize) -> Result<Tensor> {
        let args = self.args.lock();
        args.get(index).cloned().flatten().ok_or_else(|| Status::internal(format!("argument {index} was not given")))
    }

    /// Sets a result.
    pub fn set_result(&self, index: usize, tensor: Tensor) -> Result<()> {
        match self.results.lock().get_mut(index) {
            Some(result) => {
                *result = Some(tensor);
                Ok(())
            }
            None => Err(Status::internal(format!("there is no result {index}"))),
        }
    }

    /// Takes all results.
    pub fn take_results(&self) -> Vec<Option<Tensor>> {
        std::mem::take(&mut *self.results.lock())
    }
}

/// The state that all nodes of a step on one device share.
pub struct Step {
    /// The step's id, which is the same on all its tasks.
    pub id: i64,
    /// The full name of the device.
    pub device: Arc<str>,
    /// Cancels waiting nodes.
    pub cancellation: Cancellation,
    /// Where sends and receives meet.
    pub rendezvous: Arc<dyn Rendezvous>,
    /// Runs collective ops, if there are other tasks or devices to run them with.
    pub collectives: Option<Arc<dyn Collectives>>,
    /// The device's resources.
    pub resources: Arc<ResourceManager>,
    /// Resources that are dropped at the end of the step: tensor arrays, stacks.
    pub step_resources: Arc<ResourceManager>,
    /// The state of the session.
    pub session: Arc<SessionState>,
    /// Runs work on other threads.
    pub runner: Arc<dyn JobRunner>,
    /// Runs functions.
    pub functions: Option<Arc<dyn FunctionRuntime>>,
    /// Arguments and results.
    pub frame: CallFrame,
    /// Receives the lines that ops print.
    pub logger: Arc<dyn Logger>,
    /// Records the times of nodes, if requested.
    pub trace: Option<Arc<dyn Trace>>,
}

impl Step {
    /// Returns a step for the body of a function that a node of this step calls.
    pub fn for_function(&self, frame: CallFrame, functions: Option<Arc<dyn FunctionRuntime>>) -> Step {
        Step {
            id: self.id,
            device: self.device.clone(),
            cancellation: self.cancellation.clone(),
            rendezvous: self.rendezvous.clone(),
            collectives: self.collectives.clone(),
            resources: self.resources.clone(),
            step_resources: self.step_resources.clone(),
            session: self.session.clone(),
            runner: self.runner.clone(),
            functions: functions.or_else(|| self.functions.clone()),
            frame,
            logger: self.logger.clone(),
            trace: self.trace.clone(),
        }
    }
}
