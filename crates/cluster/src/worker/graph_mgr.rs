//! [`GraphMgr`]: the partitions that a session has registered on this worker, compiled and ready to run.

use super::expected_keys::{Expectation, ExpectedKeys};
use super::step_log::NodeTrace;
use super::step_state::StepState;
use crate::device::LocalDevice;
use crate::interface::PartitionGraph;
use crate::random::system_secret;
use executor::{Executor, FunctionLibraryRuntime, SpreadRuntime};
use foldhash::{HashMap, HashMapExt};
use graph::passes::{PartitionOptions, by_device, partition};
use graph::{AttrMap, Node, NodeGraph, NodeId, OpLookup};
use kernel::{
    CallFrame, Collectives, JobRunner, Logger, OpRegistry, Rendezvous, RendezvousKey, SessionKernels, SessionState,
    Step, Transfer,
};
use parking_lot::RwLock;
use prost::Message;
use proto::GraphDef;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use tensor::{Charge, Result, Status, Tensor};

/// The most partitions that a session may have registered here. Our masters keep about a thousand, and one for each callable.
const GRAPHS_MAX: usize = 1 << 16;

/// The most nodes of all partitions together.
const NODES_MAX: usize = 1 << 24;

/// The most bytes of all partitions together: encoded if they were sent, or in memory within a process.
const GRAPH_BYTES_MAX: usize = 16 << 30;

/// The attribute with the number of calls that enclose a graph that is a function's body.
pub(super) const CALL_DEPTH: &str = "_ferroflow_call_depth";

/// The approximate memory of a compiled node: its kernel, its place in the plan, its edges.
const COMPILED_NODE_BYTES: usize = 400;

/// The partitions of one session.
pub(crate) struct GraphMgr {
    registry: &'static OpRegistry,
    /// The stateful kernels of the session.
    kernels: Arc<SessionKernels>,
    /// The resources that the graphs of all sessions share.
    expected: Arc<ExpectedKeys>,
    /// Runs functions on other devices.
    spread: Option<Arc<dyn SpreadRuntime>>,
    graphs: RwLock<Graphs>,
}

#[derive(Default)]
struct Graphs {
    by_handle: HashMap<Arc<str>, (Arc<RegisteredGraph>, GraphSize)>,
    /// The sizes of all of them.
    total: GraphSize,
}

/// The size of a graph, which counts for the bounds.
#[derive(Clone, Copy, Default)]
struct GraphSize {
    nodes: usize,
    bytes: usize,
}

impl GraphSize {
    fn of(graph: &PartitionGraph) -> GraphSize {
        match graph {
            PartitionGraph::Def(def) => {
                let functions = def.library.iter().flat_map(|library| &library.function);
                let in_functions: usize = functions.map(|function| function.node_def.len()).sum();
                GraphSize { nodes: def.node.len().saturating_add(in_functions), bytes: def.encoded_len() }
            }
            // The functions are the session's, and shared by all its graphs.
            PartitionGraph::Graph(graph) => GraphSize { nodes: graph.len(), bytes: graph.held_bytes_without_attrs() },
        }
    }
}

impl Graphs {
    /// Returns an error if a graph of this size exceeds a bound.
    fn check(&self, size: GraphSize) -> Result<()> {
        let exceeded = |what: &str, now: usize, more: usize, most: usize| {
            Err(Status::resource_exhausted(format!(
                "too many registered graphs: the session has {now} {what} here, {more} more would be more than the {most} that it \
                 may have"
            )))
        };
        let total = self.total;
        if self.by_handle.len() >= GRAPHS_MAX {
            return exceeded("graphs", self.by_handle.len(), 1, GRAPHS_MAX);
        }
        if total.nodes.saturating_add(size.nodes) > NODES_MAX {
            return exceeded("nodes", total.nodes, size.nodes, NODES_MAX);
        }
        if total.bytes.saturating_add(size.bytes) > GRAPH_BYTES_MAX {
            return exceeded("bytes of graphs", total.bytes, size.bytes, GRAPH_BYTES_MAX);
        }
        Ok(())
    }
}

impl GraphMgr {
    /// Returns a manager without partitions.
    pub fn new(registry: &'static OpRegistry, expected: Arc<ExpectedKeys>) -> GraphMgr {
        let kernels = Arc::new(SessionKernels::new());
        GraphMgr { registry, kernels, expected, spread: None, graphs: RwLock::default() }
    }

    /// Returns the manager with a runtime for functions on other devices.
    pub fn with_spread(self, spread: Arc<dyn SpreadRuntime>) -> GraphMgr {
        GraphMgr { spread: Some(spread), ..self }
    }

    /// Drops the session's stateful kernels, at its end.
    pub fn end(&self) {
        self.kernels.end();
    }

    /// Compiles a partition; returns its handle, and the compiled partition.
    pub fn register(
        &self,
        graph: PartitionGraph,
        devices: &[LocalDevice],
        session: &Arc<SessionState>,
    ) -> Result<(String, Arc<RegisteredGraph>)> {
        let size = GraphSize::of(&graph);
        self.graphs.read().check(size)?;
        let _scope = session.account().enter();
        let mut charge = Charge::new(graph.num_nodes().saturating_mul(COMPILED_NODE_BYTES))?;
        let (graph, held_bytes) = match graph {
            PartitionGraph::Def(def) => {
                let graph = NodeGraph::from_graph_def(&def, self.registry)?;
                let bytes = graph.held_bytes();
                (graph, bytes)
            }
            // The attributes are shared with the session's graph, and charged there.
            PartitionGraph::Graph(graph) => {
                let bytes = graph.held_bytes_without_attrs();
                (graph, bytes)
            }
        };
        charge.resize(charge.bytes() + held_bytes)?;
        let expectation = self.expected.add(&graph);
        let registered = RegisteredGraph::new(graph, devices, session, self, expectation, charge)?;
        let registered = Arc::new(registered);
        // Unguessable, since all masters that open no worker session share one.
        let handle = system_secret();
        let mut graphs = self.graphs.write();
        // Checked again, because others may have been added in the meantime.
        graphs.check(size)?;
        graphs.total.nodes += size.nodes;
        graphs.total.bytes += size.bytes;
        graphs.by_handle.insert(handle.as_str().into(), (registered.clone(), size));
        Ok((handle, registered))
    }

    /// Returns a partition.
    pub fn find(&self, handle: &str) -> Result<Arc<RegisteredGraph>> {
        let found = self.graphs.read().by_handle.get(handle).map(|(graph, _)| graph.clone());
        found.ok_or_else(|| {
            Status::aborted(format!("Graph handle is not found: {handle}. Possibly, this worker just restarted."))
        })
    }

    /// Drops a partition; its running steps continue.
    pub fn deregister(&self, handle: &str) -> Result<()> {
        let removed = {
            let mut graphs = self.graphs.write();
            let removed = graphs.by_handle.remove(handle);
            if let Some((_, size)) = &removed {
                graphs.total.nodes -= size.nodes;
                graphs.total.bytes -= size.bytes;
            }
            removed
        };
        removed.map(drop).ok_or_else(|| {
            Status::aborted(format!("Graph handle is not found: {handle}. Possibly, this worker just restarted."))
        })
    }
}

/// A partition of a graph, compiled for each of this task's devices that it uses.
pub(crate) struct RegisteredGraph {
    /// For the graph and the compiled partition.
    _charge: Charge,
    whole: Arc<NodeGraph>,
    devices: Vec<LocalDevice>,
    session: Arc<SessionState>,
    kernels: Arc<SessionKernels>,
    registry: &'static OpRegistry,
    spread: Option<Arc<dyn SpreadRuntime>>,
    /// The number of enclosing calls, if it is the body of a function.
    call_depth: u32,
    /// For whole steps: feeds are arguments and fetches are results.
    units: Vec<Unit>,
    /// The destination of each feed, and the source of each fetch.
    feeds: Terminals,
    fetches: Terminals,
    /// For partial runs: feeds and fetches pass through the rendezvous, because they come later.
    partial_units: OnceLock<Result<Vec<Unit>>>,
    /// The tensors that other tasks push to it.
    _expectation: Expectation,
}

/// The feeds or the fetches of a partition. A step hashes no keys: masters mostly send them in the order of the graph's nodes, and
/// others are found by a binary search.
#[derive(Default)]
struct Terminals {
    /// Each with its unit and the index there, in the order of their nodes in the graph.
    in_order: Vec<(Arc<str>, (usize, usize))>,
    /// The indices in that list, in the order of the keys.
    by_key: Vec<usize>,
}

impl Terminals {
    fn new(
        graph: &NodeGraph,
        is_one: impl Fn(&Node) -> bool,
        places: &HashMap<Arc<str>, (usize, usize)>,
    ) -> Result<Terminals> {
        let mut in_order = Vec::with_capacity(places.len());
        for (_, node) in graph.iter().filter(|(_, node)| is_terminal(node) && is_one(node)) {
            let key = Transfer::new(&node.attrs)?.key().shared().clone();
            if let Some(place) = places.get(&key) {
                in_order.push((key, *place));
            }
        }
        let mut by_key: Vec<usize> = (0..in_order.len()).collect();
        by_key.sort_by(|&one, &other| in_order[one].0.cmp(&in_order[other].0));
        Ok(Terminals { in_order, by_key })
    }

    /// Finds the one with a key, which is probably at `position`.
    fn find(&self, position: usize, key: &str) -> Option<(usize, usize)> {
        if let Some((known, place)) = self.in_order.get(position)
            && **known == *key
        {
            return Some(*place);
        }
        let found = self.by_key.binary_search_by(|&index| (*self.in_order[index].0).cmp(key)).ok()?;
        Some(self.in_order[self.by_key[found]].1)
    }
}

/// A partition compiled for one device.
struct Unit {
    device: LocalDevice,
    graph: Arc<NodeGraph>,
    executor: Arc<Executor>,
    functions: Option<Arc<FunctionLibraryRuntime>>,
    num_args: usize,
    num_results: usize,
}

/// The resources that the steps of a worker share.
pub(crate) struct StepContext {
    /// Runs expensive nodes.
    pub runner: Arc<dyn JobRunner>,
    /// Receives the lines that ops print.
    pub logger: Arc<dyn Logger>,
    /// Runs collective ops.
    pub collectives: Arc<dyn Collectives>,
}

/// A step of a partition, before, during or after its run.
pub(crate) struct GraphStep {
    executors: SmallVec<[(Arc<Executor>, Arc<Step>); 1]>,
    traces: Vec<Arc<NodeTrace>>,
}

impl RegisteredGraph {
    fn new(
        graph: NodeGraph,
        devices: &[LocalDevice],
        session: &Arc<SessionState>,
        owner: &GraphMgr,
        expectation: Expectation,
        charge: Charge,
    ) -> Result<RegisteredGraph> {
        let registry = owner.registry;
        let call_depth = graph.iter().find_map(|(_, node)| node.attrs.int(CALL_DEPTH).ok());
        let parts = split_by_device(&graph, devices, registry)?;
        let mut registered = RegisteredGraph {
            _charge: charge,
            whole: Arc::new(graph),
            devices: devices.to_vec(),
            session: session.clone(),
            kernels: owner.kernels.clone(),
            registry,
            spread: owner.spread.clone(),
            call_depth: call_depth.and_then(|depth| u32::try_from(depth).ok()).unwrap_or_default(),
            units: Vec::with_capacity(parts.len()),
            feeds: Terminals::default(),
            fetches: Terminals::default(),
            partial_units: OnceLock::new(),
            _expectation: expectation,
        };
        let (mut feed_places, mut fetch_places) = (HashMap::new(), HashMap::new());
        for (device, mut part) in parts {
            let (feeds, fetches) = number_terminals(&mut part)?;
            let unit = registered.units.len();
            for (index, key) in feeds.iter().enumerate() {
                feed_places.insert(key.clone(), (unit, index));
            }
            for (index, key) in fetches.iter().enumerate() {
                fetch_places.insert(key.clone(), (unit, index));
            }
            let unit = registered.compile(&device, part, feeds.len(), fetches.len())?;
            registered.units.push(unit);
        }
        registered.feeds = Terminals::new(&registered.whole, is_feed, &feed_places)?;
        registered.fetches = Terminals::new(&registered.whole, |node| !is_feed(node), &fetch_places)?;
        Ok(registered)
    }

    fn compile(&self, device: &str, graph: NodeGraph, num_args: usize, num_results: usize) -> Result<Unit> {
        let device = find_device(&self.devices, device)?.clone();
        let executor = Executor::new(&graph, self.registry, &self.kernels, &device.name)?;
        let functions = (!graph.library.is_empty()).then(|| {
            let (library, spread) = (graph.library.clone(), self.spread.clone());
            let kernels = self.kernels.clone();
            FunctionLibraryRuntime::with_spread(library, self.registry, kernels, &device.name, spread, self.call_depth)
        });
        Ok(Unit { device, graph: Arc::new(graph), executor, functions, num_args, num_results })
    }

    fn partial_units(&self) -> Result<&[Unit]> {
        let units = self.partial_units.get_or_init(|| {
            let parts = split_by_device(&self.whole, &self.devices, self.registry)?;
            let compile = |(device, mut part): (String, NodeGraph)| {
                terminals_to_transfers(&mut part, self.registry)?;
                self.compile(&device, part, 0, 0)
            };
            parts.into_iter().map(compile).collect()
        });
        units.as_ref().map(Vec::as_slice).map_err(Status::clone)
    }

    /// Prepares a whole step with its feeds.
    pub fn prepare(
        &self,
        sends: Vec<(Arc<str>, Tensor)>,
        step: &Arc<StepState>,
        rendezvous: &Arc<dyn Rendezvous>,
        context: &StepContext,
        is_traced: bool,
    ) -> Result<GraphStep> {
        let mut args = self.no_arguments();
        for (position, (key, tensor)) in sends.into_iter().enumerate() {
            if let Some(place) = self.feeds.find(position, &key) {
                args.set(place, tensor);
            }
        }
        Ok(self.prepare_units(args, step, rendezvous, context, is_traced))
    }

    /// Prepares a whole step whose feeds are in the order of their nodes in the graph.
    pub fn prepare_in_order(
        &self,
        arguments: &mut dyn Iterator<Item = Tensor>,
        step: &Arc<StepState>,
        rendezvous: &Arc<dyn Rendezvous>,
        context: &StepContext,
    ) -> GraphStep {
        let mut args = self.no_arguments();
        for ((_, place), tensor) in self.feeds.in_order.iter().zip(arguments) {
            args.set(*place, tensor);
        }
        self.prepare_units(args, step, rendezvous, context, false)
    }

    fn no_arguments(&self) -> Arguments {
        Arguments(self.units.iter().map(|unit| vec![None; unit.num_args]).collect())
    }

    fn prepare_units(
        &self,
        args: Arguments,
        step: &Arc<StepState>,
        rendezvous: &Arc<dyn Rendezvous>,
        context: &StepContext,
        is_traced: bool,
    ) -> GraphStep {
        let mut prepared = GraphStep { executors: SmallVec::new(), traces: Vec::new() };
        for (unit, args) in self.units.iter().zip(args.0) {
            let frame = CallFrame::new(args, unit.num_results);
            self.prepare_unit(unit, frame, step, rendezvous, context, is_traced, &mut prepared);
        }
        prepared
    }

    /// Prepares a partial run, whose feeds and fetches pass through the rendezvous.
    pub fn prepare_partial(
        &self,
        step: &Arc<StepState>,
        rendezvous: &Arc<dyn Rendezvous>,
        context: &StepContext,
    ) -> Result<GraphStep> {
        let units = self.partial_units()?;
        let mut prepared = GraphStep { executors: SmallVec::new(), traces: Vec::new() };
        for unit in units {
            self.prepare_unit(unit, CallFrame::default(), step, rendezvous, context, false, &mut prepared);
        }
        Ok(prepared)
    }

    fn prepare_unit(
        &self,
        unit: &Unit,
        frame: CallFrame,
        step: &Arc<StepState>,
        rendezvous: &Arc<dyn Rendezvous>,
        context: &StepContext,
        is_traced: bool,
        prepared: &mut GraphStep,
    ) {
        let trace = is_traced.then(|| Arc::new(NodeTrace::new(unit.device.name.clone(), unit.graph.clone())));
        prepared.traces.extend(trace.clone());
        let step = Step {
            id: step.id,
            device: unit.device.name.clone(),
            cancellation: step.cancellation.clone(),
            rendezvous: rendezvous.clone(),
            collectives: Some(context.collectives.clone()),
            resources: unit.device.resources.clone(),
            step_resources: step.resources.clone(),
            session: self.session.clone(),
            runner: context.runner.clone(),
            functions: unit.functions.clone().map(|functions| functions as Arc<dyn kernel::FunctionRuntime>),
            frame,
            logger: context.logger.clone(),
            trace: trace.map(|trace| trace as Arc<dyn kernel::Trace>),
        };
        prepared.executors.push((unit.executor.clone(), Arc::new(step)));
    }

    /// Takes the fetches out of a step that has ended.
    pub fn results(&self, step: &GraphStep, keys: &[Arc<str>]) -> Result<Vec<Tensor>> {
        let results = step.take_results();
        let take = |(position, key): (usize, &Arc<str>)| {
            let (unit, index) = self
                .fetches
                .find(position, key)
                .ok_or_else(|| Status::invalid_argument(format!("the partition has no fetch of key {key}")))?;
            // Cloned, because a tensor may be fetched twice.
            results.get(unit).and_then(|results| results.get(index).cloned().flatten()).ok_or_else(|| not_valid(key))
        };
        keys.iter().enumerate().map(take).collect()
    }

    /// Takes the fetches out of a step that has ended, in the order of their nodes in the graph.
    pub fn results_in_order(&self, step: &GraphStep) -> Result<Vec<Tensor>> {
        let mut results = step.take_results();
        let mut take = |(key, (unit, index)): &(Arc<str>, (usize, usize))| {
            let result = results.get_mut(*unit).and_then(|results| results.get_mut(*index)).and_then(Option::take);
            result.ok_or_else(|| not_valid(key))
        };
        self.fetches.in_order.iter().map(&mut take).collect()
    }

    /// Returns the graphs that run on each device, for clients: feeds and fetches have only the attributes of TensorFlow's ops.
    pub fn partition_graphs(&self) -> Vec<GraphDef> {
        let shown = |unit: &Unit| {
            let mut def = unit.graph.to_graph_def();
            for node in def.node.iter_mut().filter(|node| matches!(node.op.as_str(), "_Arg" | "_Retval")) {
                node.attr.retain(|name, _| name == "T" || name == "index" || name.starts_with('_'));
            }
            def
        };
        self.units.iter().map(shown).collect()
    }
}

/// The arguments of a step, for each unit.
struct Arguments(SmallVec<[Vec<Option<Tensor>>; 2]>);

impl Arguments {
    fn set(&mut self, (unit, index): (usize, usize), tensor: Tensor) {
        if let Some(slot) = self.0.get_mut(unit).and_then(|args| args.get_mut(index)) {
            *slot = Some(tensor);
        }
    }
}

impl GraphStep {
    fn take_results(&self) -> SmallVec<[Vec<Option<Tensor>>; 2]> {
        self.executors.iter().map(|(_, step)| step.frame.take_results()).collect()
    }

    /// Starts the step on each device, with a callback for its end there.
    pub fn start<D: FnOnce(Result<()>) + Send + 'static>(&self, mut done: impl FnMut() -> D) {
        for (executor, step) in &self.executors {
            executor.run(step.clone(), done());
        }
    }

    /// Starts the step; `done` is called once for each device, perhaps before this returns.
    pub fn run(&self, done: impl Fn(Result<()>) + Send + Sync + Clone + 'static) {
        for (executor, step) in &self.executors {
            let done = done.clone();
            executor.run(step.clone(), done);
        }
    }

    /// Returns the number of times that `run` calls `done`.
    pub fn num_devices(&self) -> usize {
        self.executors.len()
    }

    /// Returns the records of the trace, if there was one.
    pub fn step_stats(&self) -> Option<proto::StepStats> {
        let dev_stats: Vec<_> = self.traces.iter().map(|trace| trace.take()).collect();
        (!dev_stats.is_empty()).then_some(proto::StepStats { dev_stats })
    }
}

/// Returns the error for a fetched tensor that was never computed.
pub(super) fn not_valid(key: &str) -> Status {
    let name = RendezvousKey::parse(key).map_or_else(|_| key.to_owned(), |key| key.edge_name().to_owned());
    Status::invalid_argument(format!(
        "The tensor returned for {name} was not valid: it is on a branch that was not taken"
    ))
}

fn find_device<'a>(devices: &'a [LocalDevice], name: &str) -> Result<&'a LocalDevice> {
    devices.iter().find(|device| *device.name == *name).ok_or_else(|| {
        let names: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
        Status::invalid_argument(format!("this task has no device {name}; it has {}", names.join(", ")))
    })
}

/// Cuts a partition at the boundaries between this task's devices.
fn split_by_device(
    graph: &NodeGraph,
    devices: &[LocalDevice],
    ops: &dyn OpLookup,
) -> Result<BTreeMap<String, NodeGraph>> {
    let mut used: Vec<&str> = graph.iter().map(|(_, node)| node.device.as_str()).collect();
    used.sort_unstable();
    used.dedup();
    for device in &used {
        find_device(devices, device)?;
    }
    match used.as_slice() {
        [] => Ok(BTreeMap::new()),
        [device] => Ok(BTreeMap::from([((*device).to_owned(), graph.clone())])),
        _ => {
            let incarnation = |name: &str| find_device(devices, name).map_or(0, |device| device.incarnation);
            partition(
                graph,
                ops,
                &PartitionOptions { location: &by_device, incarnation: &incarnation, control_flow_added: true },
            )
        }
    }
}

/// Returns whether a node is an argument that the client feeds or a result that it fetches.
fn is_terminal(node: &Node) -> bool {
    matches!(node.op(), "_Arg" | "_Retval") && Transfer::is_with_client(&node.attrs)
}

fn is_feed(node: &Node) -> bool {
    node.op() == "_Arg"
}

/// Numbers the feeds and the fetches of a graph, and returns their keys in that order.
fn number_terminals(graph: &mut NodeGraph) -> Result<(Vec<Arc<str>>, Vec<Arc<str>>)> {
    let terminals: Vec<NodeId> = graph.iter().filter(|(_, node)| is_terminal(node)).map(|(id, _)| id).collect();
    let mut keys: (Vec<Arc<str>>, Vec<Arc<str>>) = Default::default();
    for id in terminals {
        let node = graph.node(id);
        let list = if is_feed(node) { &mut keys.0 } else { &mut keys.1 };
        let index = list.len() as i64;
        list.push(Transfer::new(&node.attrs)?.key().shared().clone());
        if node.attrs.int("index")? != index {
            graph.node_mut(id).attrs.set("index", index);
        }
    }
    Ok(keys)
}

/// Converts feeds and fetches to receives and sends, for a step that is fed after it has started.
fn terminals_to_transfers(graph: &mut NodeGraph, ops: &dyn OpLookup) -> Result<()> {
    let terminals: Vec<NodeId> = graph.iter().filter(|(_, node)| is_terminal(node)).map(|(id, _)| id).collect();
    for id in terminals {
        let node = graph.node(id);
        let (op, dtype) = if is_feed(node) { ("_Recv", "tensor_type") } else { ("_Send", "T") };
        let mut attrs = node.attrs.clone();
        attrs.remove("index");
        attrs.set(dtype, node.attrs.dtype("T")?);
        replace_op(graph, id, op, attrs, ops)?;
    }
    Ok(())
}

/// Gives a node another op with the same inputs and outputs.
fn replace_op(graph: &mut NodeGraph, id: NodeId, op: &str, attrs: AttrMap, ops: &dyn OpLookup) -> Result<()> {
    let info = ops.op(op).ok_or_else(|| Status::unimplemented(format!("Op type not registered '{op}'")))?;
    let old = graph.node(id);
    let mut new = Node::new(old.name.clone(), info.schema.clone(), old.device.clone(), attrs)?;
    new.inputs = old.inputs.clone();
    new.control_inputs = old.control_inputs.clone();
    *graph.node_mut(id) = new;
    graph.check_inputs(graph.node(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_a_bounded_number_of_graphs_and_one_that_it_drops_leaves_room() {
        let graphs = GraphMgr::new(ops::registry(), Arc::default());
        let session = Arc::new(SessionState::new());
        let register = || graphs.register(PartitionGraph::Def(GraphDef::default()), &[], &session);
        let (first, _) = register().unwrap();
        for _ in 1..GRAPHS_MAX {
            register().unwrap();
        }
        let status = register().err().unwrap();
        assert_eq!(status.code(), tensor::Code::ResourceExhausted);
        assert!(status.message().starts_with("too many registered graphs"), "{status}");
        graphs.deregister(&first).unwrap();
        register().unwrap();
    }

    #[test]
    fn feeds_are_found_in_whatever_order_they_come() {
        let feed = |name: &str| {
            format!(
                "{name} = _Arg() {{T=float, client_terminated=true, index=0, recv_device=\"d\", send_device=\"d\", send_device_incarnation=1, \
                 tensor_name=\"{name}\"}}\n"
            )
        };
        let graph = NodeGraph::from_text(&["b", "c", "a"].map(feed).concat(), ops::registry()).unwrap();
        let key = |name: &str| kernel::RendezvousKey::new("d", 1, "d", name, 0, 0).shared().clone();
        let places: HashMap<Arc<str>, (usize, usize)> =
            ["a", "b", "c"].iter().enumerate().map(|(index, name)| (key(name), (0, index))).collect();
        let terminals = Terminals::new(&graph, is_feed, &places).unwrap();
        for position in 0..4 {
            for (index, name) in ["a", "b", "c"].iter().enumerate() {
                assert_eq!(terminals.find(position, &key(name)), Some((0, index)));
            }
            assert_eq!(terminals.find(position, &key("d")), None);
        }
    }

    #[test]
    fn nodes_and_bytes_are_bounded_too() {
        let mut graphs = Graphs::default();
        let size = |nodes, bytes| GraphSize { nodes, bytes };
        assert!(graphs.check(size(NODES_MAX, GRAPH_BYTES_MAX)).is_ok());
        graphs.total = size(1, 1);
        assert!(graphs.check(size(NODES_MAX, 0)).unwrap_err().message().contains("1 nodes here"));
        assert!(graphs.check(size(0, GRAPH_BYTES_MAX)).unwrap_err().message().contains("bytes of graphs"));
    }
}
