//! [`DirectSession`]: runs a graph in this process, on one device, without a master.

use super::direct_partial::{INCARNATION, PartialRun, Pending, feeds_behind};
use super::{RunMetadata, RunOptions, SessionBackend};
use executor::{Executor, FunctionLibraryRuntime, default_runner};
use graph::passes::{self, FeedSlot, OptimizeSwitches, RunSpec};
use graph::{FunctionLibrary, NodeGraph};
use kernel::{
    CallFrame, Cancellation, LocalRendezvous, Logger, OpRegistry, Rendezvous, ResourceManager, SessionState, Step,
    Trace,
};
use parking_lot::{Condvar, Mutex, RwLock};
use proto::{ConfigProto, DeviceStepStats, GraphDef, NodeExecStats, StepStats};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tensor::{Result, Status, Tensor};

/// The one device of a direct session.
const DEVICE: &str = "/job:localhost/replica:0/task:0/device:CPU:0";

/// A bound on how many different runs are kept compiled.
const COMPILED_MAX: usize = 1024;

/// A bound on the partial runs at once.
const PARTIAL_RUNS_MAX: usize = 1024;

/// Runs a graph in this process.
///
/// ```
/// use ferroflow::session::DirectSession;
/// use ferroflow::{Graph, Session, ops};
///
/// let g = Graph::new();
/// let one = g.constant(1f32);
/// // `Session::new` does the same.
/// let session = Session::with_backend(&g, Box::new(DirectSession::new(ops::registry())));
/// assert_eq!(session.eval::<f32>(&one)?, 1.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct DirectSession {
    registry: &'static OpRegistry,
    graph: RwLock<NodeGraph>,
    compiled: RwLock<HashMap<String, Arc<Compiled>>>,
    resources: Arc<ResourceManager>,
    state: Arc<SessionState>,
    cancellation: Cancellation,
    switches: OptimizeSwitches,
    next_step: AtomicI64,
    partial_runs: Mutex<HashMap<String, Arc<PartialRun>>>,
}

impl Drop for DirectSession {
    fn drop(&mut self) {
        self.state.end();
    }
}

struct Compiled {
    executor: Arc<Executor>,
    functions: Arc<FunctionLibraryRuntime>,
    feeds: Vec<FeedSlot>,
    num_fetches: usize,
    graph: NodeGraph,
}

impl DirectSession {
    /// Makes a session with an empty graph over these ops.
    ///
    /// ```
    /// use ferroflow::session::{DirectSession, SessionBackend};
    ///
    /// let session = DirectSession::new(ferroflow::ops::registry());
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(registry: &'static OpRegistry) -> DirectSession {
        DirectSession::with_config(registry, &ConfigProto::default())
    }

    /// As [`new`](Self::new), with settings: `graph_options` say how graphs are optimized.
    ///
    /// ```
    /// use ferroflow::session::DirectSession;
    /// use ferroflow::{Graph, Session, ops};
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let backend = DirectSession::with_config(ops::registry(), &Default::default());
    /// assert_eq!(Session::with_backend(&g, Box::new(backend)).eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn with_config(registry: &'static OpRegistry, config: &ConfigProto) -> DirectSession {
        DirectSession {
            registry,
            graph: RwLock::new(NodeGraph::new(Arc::new(FunctionLibrary::default()))),
            compiled: RwLock::new(HashMap::new()),
            resources: Arc::new(ResourceManager::new()),
            state: Arc::new(SessionState::new()),
            cancellation: Cancellation::new(),
            switches: OptimizeSwitches::from_config(config),
            next_step: AtomicI64::new(1),
            partial_runs: Mutex::new(HashMap::new()),
        }
    }

    fn compiled(&self, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> Result<Arc<Compiled>> {
        let mut key = String::with_capacity(64);
        for part in feeds.iter().map(|(name, _)| *name).chain(["->"]).chain(fetches.iter().copied()) {
            key.push_str(part);
            key.push(',');
        }
        key.push(';');
        for target in targets {
            key.push_str(target);
            key.push(',');
        }
        if let Some(compiled) = self.compiled.read().get(&key) {
            return Ok(compiled.clone());
        }
        let names: Vec<&str> = feeds.iter().map(|(name, _)| *name).collect();
        let compiled = Arc::new(self.compile(&names, fetches, targets)?);
        let mut all = self.compiled.write();
        if all.len() >= COMPILED_MAX {
            all.clear();
        }
        Ok(all.entry(key).or_insert(compiled).clone())
    }

    fn compile(&self, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<Compiled> {
        let graph = self.graph.read();
        let spec = RunSpec::resolve(&graph, feeds, fetches, targets)?;
        let feed_slots = spec.feed_slots(&graph)?;
        let pruned = self.pruned(&graph, &spec)?;
        drop(graph);
        let functions = FunctionLibraryRuntime::new(pruned.library.clone(), self.registry, self.state.clone(), DEVICE);
        let executor = Executor::new(&pruned, self.registry, &self.state, DEVICE)?;
        Ok(Compiled { executor, functions, feeds: feed_slots, num_fetches: fetches.len(), graph: pruned })
    }
}

impl DirectSession {
    /// Returns what a run needs of the graph, placed and optimized.
    fn pruned(&self, graph: &NodeGraph, spec: &RunSpec) -> Result<NodeGraph> {
        let mut pruned = passes::prune(graph, spec, self.registry)?;
        let ids: Vec<_> = pruned.ids().collect();
        for id in ids {
            pruned.node_mut(id).device = DEVICE.to_owned();
        }
        kernel::optimize(&mut pruned, self.registry, self.switches, &|_, _| true)?;
        Ok(pruned)
    }

    /// Returns a step without arguments, and that records nothing.
    fn step(
        &self,
        cancellation: &Cancellation,
        rendezvous: Arc<LocalRendezvous>,
        functions: &Arc<FunctionLibraryRuntime>,
    ) -> Step {
        Step {
            id: self.next_step.fetch_add(1, Ordering::Relaxed),
            device: DEVICE.into(),
            cancellation: cancellation.clone(),
            rendezvous,
            resources: self.resources.clone(),
            step_resources: Arc::new(ResourceManager::new()),
            session: self.state.clone(),
            runner: default_runner(),
            functions: Some(functions.clone()),
            frame: CallFrame::default(),
            logger: Arc::new(StderrLogger),
            trace: None,
        }
    }
}

impl SessionBackend for DirectSession {
    fn extend(&self, def: &GraphDef) -> Result<()> {
        graph::import_graph_def(&mut self.graph.write(), def, self.registry)
    }

    fn run(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        if let Some(status) = self.cancellation.status() {
            return Err(status);
        }
        let compiled = self.compiled(feeds, fetches, targets)?;
        for (slot, (_, value)) in compiled.feeds.iter().zip(feeds) {
            slot.check(value.dtype(), value.shape())?;
        }
        let trace = options.full_trace.then(|| Arc::new(Recorder::default()));
        let cancellation = Cancellation::new();
        let step = Arc::new(Step {
            frame: CallFrame::new(feeds.iter().map(|(_, value)| Some(value.clone())).collect(), compiled.num_fetches),
            trace: trace.clone().map(|trace| trace as Arc<dyn Trace>),
            ..self.step(&cancellation, Arc::new(LocalRendezvous::new()), &compiled.functions)
        });
        let token = {
            let cancellation = cancellation.clone();
            self.cancellation.register(move |status| cancellation.cancel(status))?
        };
        let outcome = Arc::new(Outcome::default());
        let signal = outcome.clone();
        compiled.executor.run(step.clone(), move |result| signal.set(result));
        let result = outcome.wait(options.timeout, &cancellation);
        self.cancellation.deregister(token);
        result?;
        let values: Option<Vec<Tensor>> = step.frame.take_results().into_iter().collect();
        let values = values.ok_or_else(|| {
            Status::invalid_argument("Retval was not set: a fetched tensor is on a branch that was not taken")
        })?;
        let mut metadata = trace.map(|trace| trace.take());
        if options.output_partition_graphs {
            metadata.get_or_insert_default().partition_graphs.push(compiled.graph.to_graph_def());
        }
        Ok((values, metadata))
    }

    fn partial_run_setup(&self, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<String> {
        if let Some(status) = self.cancellation.status() {
            return Err(status);
        }
        if self.partial_runs.lock().len() >= PARTIAL_RUNS_MAX {
            return Err(Status::resource_exhausted("the session has too many partial runs"));
        }
        let graph = self.graph.read().clone();
        let spec = RunSpec::resolve(&graph, feeds, fetches, targets)?;
        let slots = spec.feed_slots(&graph)?.into_iter().map(|slot| (slot.name.clone(), slot)).collect();
        let needs = spec.fetches.iter().map(|(name, edge)| (name.clone(), feeds_behind(&graph, &spec.feeds, *edge)));
        let names = |list: &[(String, graph::Edge)]| list.iter().map(|(name, _)| name.clone()).collect();
        let pending = Pending {
            feeds: slots,
            fetches: needs.collect(),
            all_feeds: names(&spec.feeds),
            all_fetches: names(&spec.fetches),
            fed: spec.fed_fetches().into_iter().map(|(fetch, _)| (spec.fetches[fetch].0.clone(), None)).collect(),
        };
        let mut pruned = self.pruned(&graph, &spec)?;
        passes::rewrite_for_execution(&mut pruned, &spec, self.registry, &|_| INCARNATION)?;
        let functions = FunctionLibraryRuntime::new(pruned.library.clone(), self.registry, self.state.clone(), DEVICE);
        let executor = Executor::new(&pruned, self.registry, &self.state, DEVICE)?;
        let rendezvous = Arc::new(LocalRendezvous::new());
        let cancellation = Cancellation::new();
        let step = Arc::new(self.step(&cancellation, rendezvous.clone(), &functions));
        let stop = {
            let (cancellation, rendezvous) = (cancellation.clone(), rendezvous.clone());
            move |status: Status| {
                cancellation.cancel(status.clone());
                rendezvous.abort(status);
            }
        };
        let token = self.cancellation.register(stop)?;
        let outcome = Arc::new(Outcome::default());
        let handle = step.id.to_string();
        let run = PartialRun {
            device: DEVICE,
            rendezvous: rendezvous.clone(),
            outcome: outcome.clone(),
            cancellation,
            pending: Mutex::new(pending),
        };
        self.partial_runs.lock().insert(handle.clone(), Arc::new(run));
        let session_cancellation = self.cancellation.clone();
        executor.run(step, move |result| {
            session_cancellation.deregister(token);
            if let Err(status) = &result {
                // Whoever waits for a fetch waits in vain.
                rendezvous.abort(status.clone());
            }
            outcome.set(result);
        });
        Ok(handle)
    }

    fn partial_run(&self, handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let run = self.partial_runs.lock().get(handle).cloned();
        let run = run.ok_or_else(|| Status::invalid_argument("Must run 'setup' before performing partial runs!"))?;
        let result = run.run(feeds, fetches);
        if !matches!(&result, Ok((_, false))) {
            self.partial_runs.lock().remove(handle);
            // After an error nobody would feed the rest of the step.
            if let Err(status) = &result {
                run.cancellation.cancel(status.clone());
                run.rendezvous.abort(status.clone());
            }
        }
        result.map(|(values, _)| values)
    }

    fn close(&self) -> Result<()> {
        self.cancellation.cancel(Status::cancelled("Session has been closed."));
        self.compiled.write().clear();
        Ok(())
    }
}

/// The result of a step, for a thread that waits for it.
#[derive(Default)]
pub(super) struct Outcome {
    result: Mutex<Option<Result<()>>>,
    changed: Condvar,
}

impl Outcome {
    fn set(&self, result: Result<()>) {
        *self.result.lock() = Some(result);
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, timeout: Option<Duration>, cancellation: &Cancellation) -> Result<()> {
        let mut result = self.result.lock();
        let mut timed_out = false;
        loop {
            if let Some(result) = result.take() {
                return match result {
                    Err(_) if timed_out => Err(Status::deadline_exceeded("Timed out waiting for the step to finish")),
                    other => other,
                };
            }
            match timeout.filter(|_| !timed_out) {
                None => self.changed.wait(&mut result),
                Some(timeout) => {
                    if self.changed.wait_for(&mut result, timeout).timed_out() && result.is_none() {
                        timed_out = true;
                        // The callbacks may finish the step on this thread, which needs the lock.
                        parking_lot::MutexGuard::unlocked(&mut result, || {
                            cancellation.cancel(Status::deadline_exceeded("Timed out waiting for the step to finish"));
                        });
                    }
                }
            }
        }
    }
}

/// Prints what ops print to the standard error, as TensorFlow does.
struct StderrLogger;

impl Logger for StderrLogger {
    fn log(&self, _level: &str, message: &str) {
        eprintln!("{message}");
    }
}

/// Collects when every node ran.
#[derive(Default)]
struct Recorder(Mutex<Vec<NodeExecStats>>);

impl Recorder {
    fn take(&self) -> RunMetadata {
        let node_stats = std::mem::take(&mut *self.0.lock());
        let dev_stats = vec![DeviceStepStats { device: DEVICE.to_owned(), node_stats, ..Default::default() }];
        RunMetadata { step_stats: Some(StepStats { dev_stats }), ..Default::default() }
    }
}

impl Trace for Recorder {
    fn record(&self, node: &str, op: &str, scheduled_ns: u64, started_ns: u64, ended_ns: u64, _output_bytes: usize) {
        let micros = |ns: u64| (ns / 1000) as i64;
        let stats = NodeExecStats {
            node_name: node.to_owned(),
            all_start_micros: micros(started_ns),
            op_start_rel_micros: 0,
            op_end_rel_micros: micros(ended_ns.saturating_sub(started_ns)),
            all_end_rel_micros: micros(ended_ns.saturating_sub(started_ns)),
            all_start_nanos: started_ns as i64,
            op_end_rel_nanos: ended_ns.saturating_sub(started_ns) as i64,
            all_end_rel_nanos: ended_ns.saturating_sub(started_ns) as i64,
            timeline_label: format!("{node} = {op}()"),
            scheduled_micros: micros(scheduled_ns),
            scheduled_nanos: scheduled_ns as i64,
            ..Default::default()
        };
        self.0.lock().push(stats);
    }
}
