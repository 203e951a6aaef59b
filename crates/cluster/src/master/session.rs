//! [`MasterSession`]: one client's session: its graph, its compiled runs, and how a run is compiled.

use super::collective_key::collective_graph_key;
use super::compiled_run::{
    CompiledRun, Partition, Registration, RunCache, RunEntry, RunNames, RunNamesRef, ShownFetches,
};
use super::compiled_run::{Terminals, fetch_sources, tasks_of};
use super::cost_graph;
use super::orphans::Usage;
use super::prepared::{Callables, OpenPartialRuns};
use super::repeated::until_reached;
use super::tasks::{ContactedTask, SessionTasks, named_task};
use crate::clock::now;
use crate::device::task_of;
use crate::interface::{PartitionGraph, RegisterGraphCall, WorkerInterface};
use crate::log_limit::LogLimit;
use crate::metrics::SessionProgress;
use crate::quota::SessionShare;
use crate::random::RandomIds;
use crate::shares::Place;
use crate::spawner::Spawner;
use crate::threads::for_graph;
use crate::worker::StepSequences;
use futures_util::future::join_all;
use graph::passes::{
    FeedSlot, Fusion, OptimizeSwitches, PartitionOptions, PlacementOptions, RunSpec, by_task, partition, place,
    placement_log, prune, settle_terminals,
};
use graph::{DeviceName, FunctionLibrary, Node, NodeGraph};
use kernel::{Cancellation, OpRegistry, Transfer};
use parking_lot::Mutex;
use proto::{ConfigProto, CostGraphDef, GraphDef, StepStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tensor::{Account, Charge, Result, Status};
use tokio::sync::watch;
use tracing::{debug, info};

/// The least memory of a node while its graph is imported; it is charged in advance.
const IMPORTED_NODE_BYTES: usize = 512;

/// How often a run is placed again because a task has reported unexpected devices.
const PLACEMENT_ROUNDS_MAX: usize = 8;

/// Clients can request a log line for every node of a graph, and for every note about placement.
static PLACEMENT_LINES: LogLimit = LogLimit::several(20_000, LINES_INTERVAL);
static NOTES: LogLimit = LogLimit::several(1_000, LINES_INTERVAL);
const LINES_INTERVAL: Duration = Duration::from_secs(10);

/// One client's session.
pub(crate) struct MasterSession {
    /// Its name for the client and the workers: a secret that gives all rights to the session, and therefore appears in no log line.
    pub handle: Arc<str>,
    /// The account of its memory, here and in the worker of this process.
    account: Account,
    /// Its settings.
    pub config: Arc<ConfigProto>,
    /// The tasks that it may use.
    pub tasks: SessionTasks,
    /// Draws step ids.
    pub ids: Arc<RandomIds>,
    /// The ids of the steps of collective graphs.
    pub step_sequences: Arc<StepSequences>,
    /// Runs tasks that nobody waits for.
    pub spawner: Spawner,
    registry: &'static OpRegistry,
    graph: Mutex<SessionGraph>,
    runs: RunCache,
    /// Prepared steps.
    pub callables: Callables,
    /// The open partial runs.
    pub partial_runs: OpenPartialRuns,
    /// The progress that its steps have reported.
    pub progress: SessionProgress,
    /// Its users, and the time of the last use.
    pub(super) usage: Usage,
    /// Whether the graph has been extended since it was last placed, so that its new nodes may name devices that don't exist.
    is_extended: AtomicBool,
    /// Becomes true when the session ends, so that its steps end.
    closing: watch::Sender<bool>,
    /// Cancels the steps that run on the threads of their callers.
    pub cancellation: Cancellation,
    /// Its share of its client's quota.
    share: Mutex<SessionShare>,
    /// Its place among the sessions that its client may have.
    _place: Place,
}

struct SessionGraph {
    /// For the graph, and for the placed one.
    charge: Charge,
    graph: Arc<NodeGraph>,
    version: i64,
    placed: Option<Placed>,
}

/// The whole graph with devices; valid until the graph or the devices change.
#[derive(Clone)]
struct Placed {
    graph: Arc<NodeGraph>,
    version: i64,
    num_contacted: usize,
}

impl MasterSession {
    /// Makes a session on a graph.
    pub fn new(
        handle: String,
        config: ConfigProto,
        tasks: SessionTasks,
        graph_def: &GraphDef,
        registry: &'static OpRegistry,
        ids: Arc<RandomIds>,
        spawner: Spawner,
        place: Place,
        share: SessionShare,
        step_sequences: Arc<StepSequences>,
        progress: SessionProgress,
    ) -> Result<MasterSession> {
        let account = Account::of(&handle);
        if let Some(group) = &share.memory {
            account.join(group);
        }
        let (graph, charge) = {
            let _scope = account.enter();
            let mut charge = Charge::new(graph_def.node.len().saturating_mul(IMPORTED_NODE_BYTES))?;
            let graph = for_graph(graph_def.node.len(), || NodeGraph::from_graph_def(graph_def, registry))?;
            charge.resize(graph.held_bytes())?;
            (Arc::new(graph), charge)
        };
        Ok(MasterSession {
            account,
            handle: handle.into(),
            config: Arc::new(config),
            tasks,
            ids,
            step_sequences,
            spawner,
            registry,
            graph: Mutex::new(SessionGraph { charge, graph, version: 0, placed: None }),
            runs: RunCache::new(),
            callables: Callables::default(),
            partial_runs: OpenPartialRuns::default(),
            progress,
            usage: Usage::begin(),
            is_extended: AtomicBool::new(false),
            closing: watch::Sender::new(false),
            cancellation: Cancellation::new(),
            share: Mutex::new(share),
            _place: place,
        })
    }

    /// Contacts the tasks that the graph names, if the session may use them.
    pub async fn contact_named_tasks(&self) -> Result<()> {
        let graph = self.graph.lock().graph.clone();
        self.tasks.contact(&self.named_tasks(&graph), self.deadline(0)).await
    }

    /// Adds nodes to the graph; returns its new version.
    pub fn extend(&self, def: &GraphDef, current_version: i64) -> Result<i64> {
        let mut state = self.graph.lock();
        if current_version != state.version {
            return Err(Status::aborted(format!(
                "Mismatched graph versions: the session's graph has version {}, and the client's {current_version}",
                state.version
            )));
        }
        let _scope = self.account.enter();
        let num_added = def.node.len();
        let added = Charge::new(num_added.saturating_mul(IMPORTED_NODE_BYTES))?;
        self.share.lock().add_nodes(num_added)?;
        // On an error, the graph is unchanged.
        let graph = Arc::make_mut(&mut state.graph);
        for_graph(num_added, || graph::import_graph_def(graph, def, self.registry))
            .inspect_err(|_| self.share.lock().remove_nodes(num_added))?;
        drop(added);
        // Runs that hold the old placement may still use it; the next run places the graph again.
        state.placed = None;
        self.is_extended.store(true, Ordering::Release);
        let held_bytes = state.graph.held_bytes();
        state.charge.resize(held_bytes)?;
        state.version += 1;
        Ok(state.version)
    }

    /// Returns the compiled run for these names, after compiling it if nobody has.
    pub async fn run_for<'a, F, N>(
        &self,
        names: RunNamesRef<'a, F, N>,
        deadline: Option<Instant>,
    ) -> Result<Arc<RunEntry>>
    where
        F: Iterator<Item = &'a str> + Clone + Send,
        N: AsRef<str> + Sync,
    {
        let entry = self.runs.find(names);
        if entry.run.initialized() && self.is_extended.load(Ordering::Acquire) {
            // The run needs none of the new nodes, but it is an error all the same if they can't be placed.
            self.pruned_and_placed(&entry.names, deadline).await?;
        }
        if !entry.run.initialized()
            && let Err(status) = entry.run.get_or_try_init(|| self.compile(&entry.names, deadline)).await
        {
            self.runs.remove(&entry);
            return Err(status);
        }
        Ok(entry)
    }

    /// Returns the compiled run for these names, if it was requested before.
    pub fn known_run<'a, F, N>(&self, names: &RunNamesRef<'a, F, N>) -> Option<Arc<RunEntry>>
    where
        F: Iterator<Item = &'a str> + Clone,
        N: AsRef<str>,
    {
        if self.is_extended.load(Ordering::Acquire) {
            return None;
        }
        self.runs.known(names)
    }

    /// Returns the deadline of a call, by its own timeout or the session's, if there is one.
    pub fn deadline(&self, timeout_ms: i64) -> Option<Instant> {
        let timeout_ms = if timeout_ms > 0 { timeout_ms } else { self.config.operation_timeout_in_ms };
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).ok().filter(|&ms| ms > 0)?);
        now().checked_add(timeout)
    }

    /// Returns the graph as it is now.
    pub fn graph(&self) -> Arc<NodeGraph> {
        self.graph.lock().graph.clone()
    }

    /// Returns the graph with the devices of its nodes if it was placed as a whole, and otherwise as the client sent it.
    pub fn shown_graph(&self) -> Arc<NodeGraph> {
        let state = self.graph.lock();
        state.placed.as_ref().map_or_else(|| state.graph.clone(), |placed| placed.graph.clone())
    }

    /// Returns how many bytes the session holds.
    pub fn memory_bytes(&self) -> usize {
        self.account.state().used_bytes
    }

    /// Returns a flag that becomes true when the session ends.
    pub fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    /// Ends the session: cancels its steps and tells its tasks.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.cancellation.cancel(Status::cancelled("Session has been closed."));
        self.drop_partial_runs();
        self.runs.clear();
        self.tasks.close().await;
    }

    /// Prunes, places, optimizes, cuts and registers a run.
    async fn compile(&self, names: &RunNames, deadline: Option<Instant>) -> Result<CompiledRun> {
        let (graph, spec, pruned) = self.pruned_and_placed(names, deadline).await?;
        let graph_key = collective_graph_key(&pruned, self.registry);
        let parts = for_graph(pruned.len(), || self.in_account(|| self.cut(self.optimized(pruned)?, &spec)))?;
        self.register(names, parts, spec.feed_slots(&graph)?, graph_key).await
    }

    /// Returns the graph, the run's part of it, and that part with devices.
    async fn pruned_and_placed(
        &self,
        names: &RunNames,
        deadline: Option<Instant>,
    ) -> Result<(Arc<NodeGraph>, RunSpec, NodeGraph)> {
        for _ in 0..PLACEMENT_ROUNDS_MAX {
            let (graph, version) = {
                let state = self.graph.lock();
                (state.graph.clone(), state.version)
            };
            let spec = RunSpec::resolve(&graph, &names.feeds, &names.fetches, &names.targets)?;
            if let Some((name, _)) = spec.fed_fetches().first().and_then(|&(fetch, _)| spec.fetches.get(fetch)) {
                return Err(Status::invalid_argument(format!("{name} is both fed and fetched.")));
            }
            // The tasks that the run names must be known before anything is placed.
            let wanted = self.named_tasks(&prune(&graph, &spec, self.registry)?);
            self.tasks.contact(&wanted, deadline).await?;
            let num_contacted = self.tasks.num_contacted();
            let placed = for_graph(graph.len(), || self.in_account(|| self.placed(&graph, version, &spec)));
            if placed.is_err() && !self.places_pruned_graph() {
                // The devices of a task that this run doesn't need may be missing only because the task wasn't contacted yet.
                self.tasks.contact(&self.named_tasks(&graph), deadline).await?;
                if self.tasks.num_contacted() != num_contacted {
                    continue;
                }
            }
            let pruned = placed?;
            self.tasks.contact(&tasks_of(&pruned), deadline).await?;
            if self.tasks.num_contacted() != num_contacted {
                // A task that placement chose has just reported its devices, which may differ from those expected.
                continue;
            }
            return Ok((graph, spec, pruned));
        }
        Err(Status::unavailable("the devices of the cluster change faster than a run can be placed"))
    }

    /// Runs a function that allocates memory for the session.
    fn in_account<T>(&self, work: impl FnOnce() -> T) -> T {
        let _scope = self.account.enter();
        work()
    }

    /// Returns the part of the graph that a run needs, placed. The whole graph is placed once, so that a node is always on
    /// the same device. A node that names a device that doesn't exist is an error even if the run doesn't need it, unless the
    /// session requests `place_pruned_graph`. An op without a kernel is no error as long as no run needs it.
    fn placed(&self, graph: &Arc<NodeGraph>, version: i64, spec: &RunSpec) -> Result<NodeGraph> {
        let num_contacted = self.tasks.num_contacted();
        let known = self.graph.lock().placed.clone();
        if let Some(known) = known.filter(|known| known.version == version && known.num_contacted == num_contacted) {
            return prune(&known.graph, spec, self.registry);
        }
        let mut whole = (**graph).clone();
        match self.place(&mut whole, &|node, device_type| self.has_kernel(&graph.library, node, device_type)) {
            Ok(()) => {
                if self.config.log_device_placement {
                    for line in placement_log(&whole) {
                        if let Some(count) = PLACEMENT_LINES.allow() {
                            info!("{line}{}", LogLimit::left_out(count));
                        }
                    }
                }
                let pruned = prune(&whole, spec, self.registry)?;
                let mut state = self.graph.lock();
                if state.version == version {
                    self.is_extended.store(false, Ordering::Release);
                    let bytes = state.graph.held_bytes() + whole.held_bytes_without_attrs();
                    state.charge.resize(bytes)?;
                    state.placed = Some(Placed { graph: Arc::new(whole), version, num_contacted });
                }
                Ok(pruned)
            }
            Err(status) => {
                debug!("the whole graph can't be placed: {status}");
                if !self.places_pruned_graph() {
                    // Fails if a device is missing, but not if a kernel is.
                    self.place(&mut whole, &|_, _| true)?;
                }
                let state = self.graph.lock();
                if state.version == version {
                    self.is_extended.store(false, Ordering::Release);
                }
                drop(state);
                let mut pruned = prune(graph, spec, self.registry)?;
                self.place(&mut pruned, &|node, device_type| self.has_kernel(&graph.library, node, device_type))?;
                Ok(pruned)
            }
        }
    }

    /// Returns whether only the nodes that a run needs have to be placed.
    fn places_pruned_graph(&self) -> bool {
        self.config.graph_options.as_ref().is_some_and(|options| options.place_pruned_graph)
    }

    /// Returns whether a node can run on a type of device.
    fn has_kernel(&self, library: &FunctionLibrary, node: &Node, device_type: &str) -> bool {
        // Only a TensorFlow task has other devices than CPUs, and it knows best which ops they support.
        device_type != "CPU" || self.registry.has_kernel(node) || library.get(node.op()).is_some()
    }

    fn place(&self, graph: &mut NodeGraph, has_kernel: &dyn Fn(&Node, &str) -> bool) -> Result<()> {
        let options = PlacementOptions {
            allow_soft_placement: self.config.allow_soft_placement,
            default_device: Some(DeviceName::parse(&format!("{}/device:CPU:0", self.tasks.own_task()))?),
        };
        let placement = place(graph, &self.tasks.devices()?, &options, has_kernel)?;
        for note in placement.notes {
            if let Some(count) = NOTES.allow() {
                info!("{}: {note}{}", self.tasks.label(), LogLimit::left_out(count));
            }
        }
        Ok(())
    }

    /// Returns the costs of the nodes of some partitions.
    pub(super) fn cost_graph(&self, partitions: &[GraphDef], stats: &StepStats) -> CostGraphDef {
        cost_graph::cost_graph(partitions, stats, self.registry)
    }

    /// Optimizes a placed graph as far as the session's settings and the ops of the tasks permit.
    fn optimized(&self, mut graph: NodeGraph) -> Result<NodeGraph> {
        let may_fuse = |device: &str, fusion: Fusion| match fusion {
            Fusion::Product => true,
            Fusion::Elementwise => self.tasks.contacted(task_of(device)).is_some_and(ContactedTask::is_ours),
        };
        kernel::optimize(&mut graph, self.registry, OptimizeSwitches::from_config(&self.config), &may_fuse)?;
        Ok(graph)
    }

    /// Cuts a placed graph into one partition for each task.
    fn cut(&self, mut graph: NodeGraph, spec: &RunSpec) -> Result<Vec<(String, NodeGraph)>> {
        let incarnation = |device: &str| self.tasks.incarnation(device);
        settle_terminals(&mut graph, spec, &incarnation)?;
        let options = PartitionOptions { location: &by_task, incarnation: &incarnation, control_flow_added: false };
        Ok(partition(&graph, self.registry, &options)?.into_iter().collect())
    }

    /// Registers the partitions on their tasks, all at once.
    async fn register(
        &self,
        names: &RunNames,
        parts: Vec<(String, NodeGraph)>,
        feed_slots: Vec<FeedSlot>,
        collective_graph_key: Option<i64>,
    ) -> Result<CompiledRun> {
        let is_local = |task: &str| task == self.tasks.own_task();
        let mut parts = parts;
        parts.sort_by_key(|(task, _)| is_local(task));
        let all_pushed = self.choose_transports(&mut parts);
        let terminals: Vec<Terminals> = parts.iter().map(|(_, graph)| Terminals::of(graph)).collect::<Result<_>>()?;
        let registrations = parts.into_iter().map(|(task, graph)| async move {
            let contacted = self.tasks.contacted(&task);
            let contacted = contacted.ok_or_else(|| Status::internal(format!("{task} was not contacted")))?;
            let call = RegisterGraphCall {
                session_handle: self.handle.to_string(),
                create_worker_session_called: true,
                graph: PartitionGraph::Graph(graph),
                config: Some(self.config.clone()),
                collective_graph_key: collective_graph_key.unwrap_or_default(),
            };
            let registered = contacted.worker.register_graph(call).await;
            let registered = registered.map_err(|status| self.from_task(&task, status))?;
            let (session, worker) = (self.handle.clone(), contacted.worker.clone());
            let handle = registered.graph_handle;
            let registration = Registration::new(handle, session, worker, self.spawner.clone(), self.closing());
            Ok::<_, Status>((task, registration, registered.local))
        });
        // All are awaited, so that those that succeeded are dropped again if another one failed.
        let registered: Vec<_> = join_all(registrations).await.into_iter().collect::<Result<_>>()?;
        // The leader of collective ops numbers their steps, so the master runs them. A step on its caller's thread measures no costs.
        let by_master = collective_graph_key.is_some() || cost_graph::is_ever_wanted(&self.config);
        let local = match registered.as_slice() {
            [(_, _, local)] if !by_master => local.clone(),
            _ => None,
        };
        let fetches = fetch_sources(&names.fetches, &terminals)?;
        let mut partitions = Vec::with_capacity(registered.len());
        for ((task, graph, _), terminals) in registered.into_iter().zip(terminals) {
            let feed = |(name, key): (String, Arc<str>)| {
                let index = names.feeds.iter().position(|feed| *feed == name);
                index.map(|index| (index, key)).ok_or_else(|| Status::internal(format!("'{name}' is not fed")))
            };
            partitions.push(Partition {
                is_local: is_local(&task),
                task,
                worker: graph.worker().clone(),
                graph,
                feeds: terminals.feeds.into_iter().map(feed).collect::<Result<_>>()?,
                receives: terminals.fetches.into_iter().map(|(_, key)| key).collect(),
            });
        }
        let shown = ShownFetches::of(&names.fetches);
        Ok(CompiledRun {
            feed_slots,
            partitions,
            fetches,
            all_pushed,
            local,
            collective_graph_key,
            shown,
            steps: AtomicI64::new(0),
        })
    }

    /// Adds the task that an error came from to its message, if there is more than one task.
    pub fn from_task(&self, task: &str, status: Status) -> Status {
        if self.tasks.is_alone() { status } else { from_task(task, status) }
    }

    /// Marks the transfers between tasks that are pushed; returns whether all are.
    fn choose_transports(&self, parts: &mut [(String, NodeGraph)]) -> bool {
        let mut all_pushed = true;
        for (_, graph) in parts {
            for id in graph.ids().collect::<Vec<_>>() {
                let attrs = &graph.node(id).attrs;
                let (Ok(source), Ok(destination)) = (attrs.string("send_device"), attrs.string("recv_device")) else {
                    continue;
                };
                let (source, destination) = (task_of(&source).to_owned(), task_of(&destination).to_owned());
                if source == destination || Transfer::is_with_client(attrs) {
                    continue;
                }
                match self.tasks.push_address(&source, &destination) {
                    Some(address) => Transfer::mark_pushed(&mut graph.node_mut(id).attrs, &address),
                    None => all_pushed = false,
                }
            }
        }
        all_pushed
    }

    /// Returns the tasks of the session that a graph's nodes ask for by name.
    fn named_tasks(&self, graph: &NodeGraph) -> Vec<String> {
        let mut devices: Vec<&str> = graph.iter().map(|(_, node)| node.device.as_str()).collect();
        devices.sort_unstable();
        devices.dedup();
        let mut tasks: Vec<String> = devices.into_iter().filter_map(named_task).collect();
        tasks.push(self.tasks.own_task().to_owned());
        tasks.sort_unstable();
        tasks.dedup();
        tasks.retain(|task| self.tasks.contains(task));
        tasks
    }
}

/// Adds the task that an error came from to its message.
pub(crate) fn from_task(task: &str, status: Status) -> Status {
    let named = Status::new(status.code(), format!("From {task}:\n{}", status.message()));
    if status.is_derived() { named.derived() } else { named }
}

/// Tells a worker that a step is over, without waiting for its answer.
pub(crate) fn in_background(spawner: &Spawner, worker: &Arc<dyn WorkerInterface>, step_id: i64) {
    let (answer, worker) = (worker.cleanup_graph(step_id), worker.clone());
    spawner.spawn(async move {
        if let Err(status) = until_reached(answer, move || worker.cleanup_graph(step_id)).await {
            debug!("step {step_id} could not be cleaned up: {status}");
        }
    });
}
