//! [`Step`]: what all nodes of a step share.

mod collective;

pub use collective::{
    CollectiveCall, CollectiveDone, CollectiveGroup, CollectiveKind, Collectives, Reduction, ReductionPlan,
};

use crate::timer::run_after;
use crate::{BoxedKernel, Cancellation, FunctionRuntime, Rendezvous, ResourceManager};
use foldhash::HashMap;
use numeric::environment;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tensor::{Account, Result, Status, Tensor};

/// Runs jobs on other threads, and knows the time.
pub trait Runner: Send + Sync {
    /// Runs a job soon, on another thread.
    fn spawn(&self, job: Box<dyn FnOnce() + Send>);

    /// Runs a job when some time has passed, on a thread that all such jobs share: it must be short.
    fn spawn_after(&self, delay: Duration, job: Box<dyn FnOnce() + Send>) {
        run_after(delay, job);
    }

    /// Returns the time by which [`spawn_after`](Runner::spawn_after) goes.
    fn now(&self) -> Instant {
        environment::now()
    }
}

/// Takes what ops print for people.
pub trait Logger: Send + Sync {
    /// Takes a line at a level such as `info`.
    fn log(&self, level: &str, message: &str);
}

/// Is told when nodes ran, for a trace of the step.
pub trait Trace: Send + Sync {
    /// Takes what happened: when the node was ready, started and ended in nanoseconds since the Unix epoch.
    fn record(&self, node: &str, op: &str, scheduled_ns: u64, started_ns: u64, ended_ns: u64, output_bytes: usize);
}

/// What outlives a step but not the session: kernels with state, and tensors kept by handle.
pub struct SessionState {
    /// What its steps allocate is charged to.
    account: Account,
    /// `None` when the session is over.
    kernels: Mutex<Option<HashMap<String, Arc<BoxedKernel>>>>,
    tensors: Mutex<HashMap<String, Tensor>>,
    next_handle: AtomicU64,
}

impl SessionState {
    /// Makes an empty state with an account of its own.
    pub fn new() -> SessionState {
        SessionState::with_account(Account::open())
    }

    /// Makes an empty state of a session that has an account.
    pub fn with_account(account: Account) -> SessionState {
        SessionState {
            account,
            kernels: Mutex::new(Some(HashMap::default())),
            tensors: Mutex::default(),
            next_handle: AtomicU64::new(0),
        }
    }

    /// Drops all that the session keeps. Whoever owns the session calls it at its end, because a kernel can hold the state: an
    /// iterator holds the functions of its dataset, and these the session that they run in.
    pub fn end(&self) {
        let kernels = self.kernels.lock().take();
        let tensors = std::mem::take(&mut *self.tensors.lock());
        drop((kernels, tensors));
    }

    /// Returns the account that what its steps allocate is charged to.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns the session's kernel for a stateful node, after making it if there is none.
    pub fn kernel(&self, node: &str, create: impl FnOnce() -> Result<BoxedKernel>) -> Result<Arc<BoxedKernel>> {
        if let Some(kernel) = self.kernels.lock().as_ref().and_then(|kernels| kernels.get(node)) {
            return Ok(kernel.clone());
        }
        let made = Arc::new(create()?);
        match &mut *self.kernels.lock() {
            Some(kernels) => Ok(kernels.entry(node.to_owned()).or_insert(made).clone()),
            None => Ok(made),
        }
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

    /// Lets a kept tensor go.
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

/// The arguments and results of a graph or function: fed values by index in, fetched values by index out.
#[derive(Default)]
pub struct CallFrame {
    args: Mutex<Vec<Option<Tensor>>>,
    results: Mutex<Vec<Option<Tensor>>>,
    /// How many calls this one lies within.
    depth: u32,
}

impl CallFrame {
    /// Makes a frame for these arguments and as many results.
    pub fn new(args: Vec<Option<Tensor>>, num_results: usize) -> CallFrame {
        CallFrame { args: Mutex::new(args), results: Mutex::new(vec![None; num_results]), depth: 0 }
    }

    /// Returns the frame of a call that lies within as many others.
    pub fn at_depth(self, depth: u32) -> CallFrame {
        CallFrame { depth, ..self }
    }

    /// Returns how many calls this one lies within.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Takes an argument; it can be taken once, so that its consumer may be the sole owner.
    pub fn take_arg(&self, index: usize) -> Result<Tensor> {
        let mut args = self.args.lock();
        let arg = args.get_mut(index).and_then(Option::take);
        arg.ok_or_else(|| Status::internal(format!("argument {index} was not given")))
    }

    /// Returns an argument and keeps it.
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

/// What all nodes of a step on one device share.
pub struct Step {
    /// The step's id, which all its tasks know it by.
    pub id: i64,
    /// The whole name of the device.
    pub device: Arc<str>,
    /// Tells waiting nodes to give up.
    pub cancellation: Cancellation,
    /// Where sends and receives meet.
    pub rendezvous: Arc<dyn Rendezvous>,
    /// Runs collective ops, where there are other tasks or devices to run them with.
    pub collectives: Option<Arc<dyn Collectives>>,
    /// The device's resources.
    pub resources: Arc<ResourceManager>,
    /// Resources that end with the step: tensor arrays, stacks.
    pub step_resources: Arc<ResourceManager>,
    /// What outlives the step.
    pub session: Arc<SessionState>,
    /// Runs work on other threads.
    pub runner: Arc<dyn Runner>,
    /// Runs functions.
    pub functions: Option<Arc<dyn FunctionRuntime>>,
    /// Arguments and results.
    pub frame: CallFrame,
    /// Takes what ops print.
    pub logger: Arc<dyn Logger>,
    /// Takes timings, when asked for.
    pub trace: Option<Arc<dyn Trace>>,
}

impl Step {
    /// Returns a step for the body of a function that is called within this one.
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
