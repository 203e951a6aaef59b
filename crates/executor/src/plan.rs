//! The compiled form of a graph: dense arrays, built once.

use foldhash::{HashMap, HashMapExt};
use graph::control_flow::NodeClass;
use graph::{AttrMap, Node, NodeGraph, NodeId, OpFlags};
use kernel::{BoxedKernel, Cost, FunctionCall, OpRegistry, SessionKernels};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tensor::{Result, Status};

/// The port of a control edge.
pub(crate) const CONTROL_PORT: u32 = u32::MAX;

/// A compiled graph.
pub(crate) struct Plan {
    pub(crate) nodes: Vec<PlanNode>,
    pub(crate) edges: Vec<OutEdge>,
    pub(crate) frames: Vec<StaticFrame>,
}

/// A node, with everything a step needs to run it.
pub(crate) struct PlanNode {
    pub(crate) name: Arc<str>,
    pub(crate) op: Arc<str>,
    pub(crate) kernel: Arc<BoxedKernel>,
    pub(crate) class: NodeClass,
    pub(crate) cost: Cost,
    /// The node's index within its frame.
    pub(crate) local: u32,
    /// The node's input slots within its frame.
    pub(crate) first_slot: u32,
    pub(crate) num_inputs: u32,
    pub(crate) num_outputs: u32,
    /// The node's out-edges, sorted by port, control edges last.
    pub(crate) first_edge: u32,
    pub(crate) num_edges: u32,
    /// Whether some input may arrive as a variable that must be read first.
    pub(crate) reads_refs: bool,
    /// Whether a variable among the inputs is passed on by reference, for consumers to read.
    pub(crate) forwards_refs: bool,
    /// The inputs that are declared as references.
    pub(crate) ref_inputs: Box<[bool]>,
    /// For `Enter`: the frame it enters, and whether its value is a loop invariant.
    pub(crate) enter: Option<EnterInfo>,
    /// How long an expensive node took lately.
    pub(crate) usual_time: UsualTime,
    /// Whether the watchdog saw a serving thread stuck in this node.
    pub(crate) was_stuck: AtomicBool,
}

/// An estimate of how long something takes, from how long it took before.
pub(crate) struct UsualTime {
    micros: AtomicU32,
}

impl UsualTime {
    /// Makes an estimate without any measurement.
    fn unknown() -> UsualTime {
        UsualTime { micros: AtomicU32::new(u32::MAX) }
    }

    /// Returns the estimate.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed).into())
    }

    /// Adds a measurement. Of two concurrent ones, one may be lost.
    pub(crate) fn note(&self, time: Duration) {
        let sample = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let before = self.micros.load(Ordering::Relaxed);
        let after = if before == u32::MAX { sample } else { before - before / 4 + sample / 4 };
        self.micros.store(after, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy)]
pub(crate) struct EnterInfo {
    pub(crate) frame: u32,
    pub(crate) is_constant: bool,
}

/// Where a value goes.
#[derive(Clone, Copy)]
pub(crate) struct OutEdge {
    pub(crate) port: u32,
    pub(crate) node: u32,
    /// The slot within the consumer's frame.
    pub(crate) slot: u32,
    /// Whether this is the last edge that takes the value.
    pub(crate) is_last: bool,
}

/// A loop, or the graph itself.
pub(crate) struct StaticFrame {
    pub(crate) name: String,
    /// The pending counts with which an iteration starts, by the node's index within the frame.
    pub(crate) pending: Vec<u32>,
    pub(crate) num_slots: usize,
    /// Nodes that are ready from the start.
    pub(crate) roots: Vec<u32>,
    pub(crate) num_enters: u32,
    pub(crate) parallel_iterations: u32,
}

/// The bit that a merge's pending count carries until a live input arrives; control inputs count in steps of two.
pub(crate) const MERGE_WAITS: u32 = 1;

impl Plan {
    /// Compiles a graph. Stateful kernels are the session's, found under the node's name with `kernel_prefix` before it.
    pub(crate) fn new(
        graph: &NodeGraph,
        registry: &OpRegistry,
        kernels: &SessionKernels,
        device: &str,
        kernel_prefix: &str,
    ) -> Result<Plan> {
        let graph = graph.compact()?;
        let (node_frames, mut frames) = static_frames(&graph)?;
        let consumers = graph.consumers();
        let mut nodes = Vec::with_capacity(graph.len());
        for (id, node) in graph.iter() {
            let frame = node_frames[id.index()];
            let kernel = create_kernel(&graph, node, registry, kernels, device, kernel_prefix)?;
            let class = NodeClass::of(node.op());
            let enter = enter_info(node, class, &frames)?;
            if let Some(enter) = enter {
                let entered = &mut frames[enter.frame as usize];
                entered.num_enters += 1;
                entered.parallel_iterations =
                    node.attrs.int("parallel_iterations").ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(10).max(1);
            }
            let static_frame = &mut frames[frame as usize];
            let local = static_frame.pending.len() as u32;
            let first_slot = static_frame.num_slots as u32;
            static_frame.num_slots += node.inputs.len();
            let pending = match class {
                NodeClass::Merge => MERGE_WAITS + 2 * node.control_inputs.len() as u32,
                _ => (node.inputs.len() + node.control_inputs.len()) as u32,
            };
            static_frame.pending.push(pending);
            if pending == 0 {
                static_frame.roots.push(id.0);
            }
            let takes_refs = matches!(&*kernel, BoxedKernel::Sync(kernel) if kernel.takes_refs());
            let forwards_refs = forwards_refs(&graph, id, &consumers, registry);
            let source_is_ref = node.inputs.iter().any(|edge| may_be_ref(&graph, *edge, &consumers, registry));
            let cost = match &*kernel {
                BoxedKernel::Sync(kernel) => kernel.cost(),
                BoxedKernel::Async(_) => Cost::Inline,
            };
            nodes.push(PlanNode {
                name: node.name.as_str().into(),
                op: node.op().into(),
                class,
                cost,
                local,
                first_slot,
                num_inputs: node.inputs.len() as u32,
                num_outputs: node.output_types.len() as u32,
                first_edge: 0,
                num_edges: 0,
                reads_refs: source_is_ref && !takes_refs && !forwards_refs,
                forwards_refs,
                ref_inputs: node.input_types.iter().map(|slot| slot.is_ref).collect(),
                enter,
                kernel,
                usual_time: UsualTime::unknown(),
                was_stuck: AtomicBool::new(false),
            });
        }
        let edges = out_edges(&graph, &mut nodes);
        Ok(Plan { nodes, edges, frames })
    }

    /// Returns a node's out-edges.
    pub(crate) fn out_edges(&self, node: &PlanNode) -> &[OutEdge] {
        &self.edges[node.first_edge as usize..(node.first_edge + node.num_edges) as usize]
    }
}

fn create_kernel(
    graph: &NodeGraph,
    node: &Node,
    registry: &OpRegistry,
    kernels: &SessionKernels,
    device: &str,
    prefix: &str,
) -> Result<Arc<BoxedKernel>> {
    let create = || {
        let kernel = if registry.get(node.op()).is_none() && graph.library.get(node.op()).is_some() {
            call_by_name(node)
        } else {
            registry.create_kernel(node, device)
        };
        kernel.map_err(|status| status.with_node(&node.name))
    };
    // A pass adds ops whose names begin with an underscore: such a node is part of this graph alone, and another run of the
    // session may use its name for something else.
    let is_internal = node.op().starts_with('_');
    if node.schema.flags.contains(OpFlags::STATEFUL) && !is_internal {
        kernels.find_or_create(&format!("{prefix}{}", node.name), create)
    } else {
        create().map(Arc::new)
    }
}

/// Makes the kernel of a node whose op is a function of the library. Attributes that begin with an underscore belong to
/// the node, not to the function.
fn call_by_name(node: &Node) -> Result<BoxedKernel> {
    let own = node.attrs.iter().filter(|(name, _)| !name.starts_with('_'));
    let attrs = own.map(|(name, value)| (name.clone(), value.clone())).collect::<AttrMap>();
    BoxedKernel::new_async(FunctionCall::new(node.op(), attrs))
}

fn out_edges(graph: &NodeGraph, nodes: &mut [PlanNode]) -> Vec<OutEdge> {
    let consumers = graph.consumers();
    let mut edges: Vec<OutEdge> = Vec::new();
    for (id, _) in graph.iter() {
        let mut own: Vec<OutEdge> = Vec::with_capacity(consumers[id.index()].len());
        for &(consumer, input) in &consumers[id.index()] {
            let (port, slot) = match input {
                Some(index) => {
                    let port = graph.node(consumer).inputs[index].port;
                    (port, nodes[consumer.index()].first_slot + index as u32)
                }
                None => (CONTROL_PORT, 0),
            };
            own.push(OutEdge { port, node: consumer.0, slot, is_last: false });
        }
        own.sort_by_key(|edge| edge.port);
        for index in 0..own.len() {
            own[index].is_last = own.get(index + 1).is_none_or(|next| next.port != own[index].port);
        }
        nodes[id.index()].first_edge = edges.len() as u32;
        nodes[id.index()].num_edges = own.len() as u32;
        edges.extend(own);
    }
    edges
}

/// Returns whether an output may carry a variable: it is declared so, or the node passes variables through.
fn may_be_ref(
    graph: &NodeGraph,
    edge: graph::Edge,
    consumers: &[Vec<(NodeId, Option<usize>)>],
    registry: &OpRegistry,
) -> bool {
    let source = graph.node(edge.node);
    source.output_types.get(edge.port as usize).is_some_and(|slot| slot.is_ref)
        || forwards_refs(graph, edge.node, consumers, registry)
}

/// Returns whether a node that copies a variable's value hands on the variable itself, for its consumers to read when they
/// run. In TensorFlow the copy shares the variable's memory, so that a consumer that runs after an update sees the update;
/// programs rely on it, such as those that return the global step after its increment. It also means that
/// `gather(identity(table))` never copies the table.
fn forwards_refs(
    graph: &NodeGraph,
    id: NodeId,
    consumers: &[Vec<(NodeId, Option<usize>)>],
    registry: &OpRegistry,
) -> bool {
    let node = graph.node(id);
    let from_variable = node
        .inputs
        .first()
        .is_some_and(|edge| graph.node(edge.node).output_types.get(edge.port as usize).is_some_and(|slot| slot.is_ref));
    from_variable
        && !node.schema.is_stateful()
        && consumers[id.index()].iter().any(|(_, input)| input.is_some())
        && matches!(registry.create_kernel(node, ""), Ok(BoxedKernel::Sync(kernel)) if kernel.forwards_refs())
}

fn enter_info(node: &Node, class: NodeClass, frames: &[StaticFrame]) -> Result<Option<EnterInfo>> {
    if class != NodeClass::Enter {
        return Ok(None);
    }
    let name = node.attrs.string("frame_name")?;
    let frame = frames
        .iter()
        .position(|frame| frame.name == name)
        .ok_or_else(|| Status::internal(format!("frame '{name}' is unknown")))?;
    Ok(Some(EnterInfo { frame: frame as u32, is_constant: node.attrs.bool("is_constant")? }))
}

/// Finds the frame of every node: that of its inputs, except that `Enter` leads into a frame and `Exit` out of it.
fn static_frames(graph: &NodeGraph) -> Result<(Vec<u32>, Vec<StaticFrame>)> {
    let new_frame = |name: String| StaticFrame {
        name,
        pending: Vec::new(),
        num_slots: 0,
        roots: Vec::new(),
        num_enters: 0,
        parallel_iterations: 1,
    };
    let mut frames = vec![new_frame(String::new())];
    let mut parents = vec![0u32];
    let mut by_name: HashMap<String, u32> = HashMap::new();
    let mut of_node = vec![0u32; graph.id_bound()];
    let mut known = vec![false; graph.id_bound()];
    for id in graph.topological_order()? {
        let node = graph.node(id);
        let mut frame = None;
        let sources = node.inputs.iter().map(|edge| edge.node).chain(node.control_inputs.iter().copied());
        for source in sources {
            // The back edge of a loop comes from a node that hasn't been reached.
            if !known[source.index()] {
                continue;
            }
            let source_node = graph.node(source);
            let inner = of_node[source.index()];
            let from = match NodeClass::of(source_node.op()) {
                NodeClass::Enter => {
                    let name = source_node.attrs.string("frame_name")?;
                    *by_name.get(&name).ok_or_else(|| Status::internal("a frame without a number"))?
                }
                NodeClass::Exit => parents[inner as usize],
                _ => inner,
            };
            match frame {
                None => frame = Some(from),
                Some(other) if other != from => {
                    return Err(Status::invalid_argument(format!(
                        "The node '{}' has inputs from different frames: '{}' and '{}'",
                        node.name, frames[other as usize].name, frames[from as usize].name
                    )));
                }
                _ => {}
            }
        }
        let frame = frame.unwrap_or(0);
        of_node[id.index()] = frame;
        known[id.index()] = true;
        match NodeClass::of(node.op()) {
            NodeClass::Enter => {
                let name = node.attrs.string("frame_name")?;
                match by_name.get(&name) {
                    Some(&existing) if parents[existing as usize] != frame => {
                        return Err(Status::invalid_argument(format!(
                            "The frame '{name}' of node '{}' is entered from two frames",
                            node.name
                        )));
                    }
                    Some(_) => {}
                    None => {
                        by_name.insert(name.clone(), frames.len() as u32);
                        frames.push(new_frame(name));
                        parents.push(frame);
                    }
                }
            }
            NodeClass::Exit if frame == 0 => {
                return Err(Status::invalid_argument(format!(
                    "The node '{}' exits a frame that nobody entered",
                    node.name
                )));
            }
            NodeClass::NextIteration if frame == 0 => {
                return Err(Status::invalid_argument(format!("The node '{}' is not in a loop", node.name)));
            }
            _ => {}
        }
    }
    Ok((of_node, frames))
}
