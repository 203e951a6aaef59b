//! Loops across devices: adds a control loop on each device that takes part in a loop but does not have its condition, so that
//! receives inside the loop have an iteration to run in.
//!
//! The device with the loop's condition leads. Its `LoopCond` is sent to every follower, whose control loop has a `Switch` that
//! continues or ends it. The control loops of nested loops are nested likewise.

use crate::control_flow::{FrameTable, NodeClass};
use crate::{AttrMap, Edge, Node, NodeGraph, NodeId, OpLookup};
use foldhash::{HashMap, HashMapExt};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The prefix of the names of control loops' nodes, by which a task recognizes them in its part of the graph.
const PREFIX: &str = "_cloop";

/// Returns whether a node is the `Merge` of a control loop, on which the receives of its frame depend.
pub(super) fn is_control_loop(node: &Node) -> bool {
    node.name.starts_with(PREFIX) && NodeClass::of(node.op()) == NodeClass::Merge
}

/// Returns the graph with control loops. Each node in a loop that has an input from another device gets a control input from the
/// `Merge` of its device's control loop. Returns `None` if there is no control flow in the graph.
pub(super) fn add_control_loops(graph: &NodeGraph, ops: &dyn OpLookup) -> Result<Option<NodeGraph>> {
    if !graph.iter().any(|(_, node)| is_moved(NodeClass::of(node.op()))) {
        return Ok(None);
    }
    let mut graph = graph.clone();
    colocate_control_flow(&mut graph)?;
    let frames = FrameTable::new(&graph)?;
    let mut loops = ControlLoops { graph, ops, frames, made: HashMap::new(), next_name: 0 };
    // The control loops themselves receive the condition from another device.
    let mut gated: Vec<(NodeId, NodeId)> = Vec::new();
    let ids: Vec<NodeId> = loops.graph.ids().collect();
    for id in ids {
        let node = loops.graph.node(id);
        let frame = loops.frames.input_frame(&loops.graph, id);
        if frame == FrameTable::ROOT {
            continue;
        }
        let sources = node.inputs.iter().map(|edge| edge.node).chain(node.control_inputs.iter().copied());
        let is_remote = |source: NodeId| loops.graph.node(source).device != node.device;
        if sources.into_iter().any(is_remote) {
            let device = node.device.clone();
            let merge = loops.ensure(frame, &device, id)?;
            gated.push((id, merge));
        }
    }
    for made in loops.made.values() {
        if made.condition_is_remote {
            gated.push((made.switch, made.merge));
        }
    }
    gated.sort_unstable();
    let mut graph = loops.graph;
    for (id, merge) in gated {
        graph.node_mut(id).control_inputs.push(merge);
    }
    Ok(Some(graph))
}

/// Moves control-flow nodes to their data: a `Switch` and an `Exit` to the device of their input, an `Enter` and a
/// `NextIteration` to that of their consumer. A variable that is read conditionally is then sent only when it is read.
fn colocate_control_flow(graph: &mut NodeGraph) -> Result<()> {
    let consumers = graph.consumers();
    for id in graph.topological_order()? {
        let node = graph.node(id);
        let class = NodeClass::of(node.op());
        let takes_ref = node.input_types.first().is_some_and(|slot| slot.is_ref);
        let beside = match class {
            NodeClass::Switch | NodeClass::Exit => node.inputs.first().map(|edge| edge.node),
            NodeClass::Enter if takes_ref => None,
            NodeClass::Enter | NodeClass::NextIteration => {
                consumers[id.index()].iter().find(|(_, input)| input.is_some()).map(|(consumer, _)| *consumer)
            }
            _ => None,
        };
        if let Some(beside) = beside {
            let device = graph.node(beside).device.clone();
            graph.node_mut(id).device = device;
        }
    }
    Ok(())
}

fn is_moved(class: NodeClass) -> bool {
    matches!(class, NodeClass::Switch | NodeClass::Exit | NodeClass::Enter | NodeClass::NextIteration)
}

/// A control loop.
struct ControlLoop {
    merge: NodeId,
    switch: NodeId,
    condition_is_remote: bool,
}

struct ControlLoops<'a> {
    graph: NodeGraph,
    ops: &'a dyn OpLookup,
    frames: FrameTable,
    /// The control loops by frame and device.
    made: HashMap<(usize, String), ControlLoop>,
    next_name: u64,
}

impl ControlLoops<'_> {
    /// Returns the `Merge` of a frame's control loop on a device. Adds the control loop and the enclosing ones if missing.
    fn ensure(&mut self, frame: usize, device: &str, near: NodeId) -> Result<NodeId> {
        let mut frame = frame;
        let mut inner_enter: Option<NodeId> = None;
        let mut innermost: Option<NodeId> = None;
        while frame != FrameTable::ROOT {
            if let Some(made) = self.made.get(&(frame, device.to_owned())) {
                let merge = made.merge;
                self.connect_enter(inner_enter, merge);
                return Ok(innermost.unwrap_or(merge));
            }
            let (enter, merge) = self.add_loop(frame, device, near)?;
            self.connect_enter(inner_enter, merge);
            inner_enter = Some(enter);
            innermost = innermost.or(Some(merge));
            frame = self.frames.frames[frame].parent;
        }
        let start = self.add_constant(device, near)?;
        self.connect_enter(inner_enter, start);
        innermost.ok_or_else(|| Status::internal("a control loop outside of any loop"))
    }

    fn connect_enter(&mut self, enter: Option<NodeId>, source: NodeId) {
        if let Some(enter) = enter {
            self.graph.node_mut(enter).inputs = vec![Edge { node: source, port: 0 }];
        }
    }

    /// Adds `Enter`, `Merge`, `Switch` and `NextIteration`; the caller connects the input of the `Enter`.
    fn add_loop(&mut self, frame: usize, device: &str, near: NodeId) -> Result<(NodeId, NodeId)> {
        let info = self.frames.frames[frame].clone();
        let Some(condition) = info.loop_cond else {
            return Err(Status::invalid_argument(format!(
                "A cross-device loop must have a pivot predicate: {}",
                info.name
            )));
        };
        let condition_is_remote = self.graph.node(condition).device != device;
        let mut attrs = AttrMap::default();
        attrs.set("T", DType::Float);
        attrs.set("frame_name", info.name.as_str());
        attrs.set("parallel_iterations", info.parallel_iterations);
        let enter = self.add("Enter", attrs, vec![], device, near)?;
        let mut attrs = AttrMap::default();
        attrs.set("T", DType::Float);
        attrs.set("N", 2i64);
        let merge = self.add("Merge", attrs, vec![], device, near)?;
        let mut attrs = AttrMap::default();
        attrs.set("T", DType::Float);
        let data = vec![Edge { node: merge, port: 0 }, Edge { node: condition, port: 0 }];
        let switch = self.add("Switch", attrs.clone(), data, device, near)?;
        let next = self.add("NextIteration", attrs, vec![Edge { node: switch, port: 1 }], device, near)?;
        self.graph.node_mut(merge).inputs = vec![Edge { node: enter, port: 0 }, Edge { node: next, port: 0 }];
        self.made.insert((frame, device.to_owned()), ControlLoop { merge, switch, condition_is_remote });
        Ok((enter, merge))
    }

    fn add_constant(&mut self, device: &str, near: NodeId) -> Result<NodeId> {
        let mut attrs = AttrMap::default();
        attrs.set("dtype", DType::Float);
        attrs.set("value", tensor::tensor_to_proto(&Tensor::new(DType::Float, Shape::vector(0))?)?);
        self.add("Const", attrs, vec![], device, near)
    }

    fn add(&mut self, op: &str, attrs: AttrMap, inputs: Vec<Edge>, device: &str, near: NodeId) -> Result<NodeId> {
        let schema = self.ops.op(op).map(|info| info.schema.clone());
        let schema = schema.ok_or_else(|| Status::not_found(format!("Op type not registered '{op}'")))?;
        let near = self.graph.node(near).name.clone();
        let name = loop {
            let name = format!("{PREFIX}{near}_S{}", self.next_name);
            self.next_name += 1;
            if self.graph.find(&name).is_none() {
                break name;
            }
        };
        let mut node = Node::new(name, schema, device.to_owned(), attrs)?;
        node.inputs = inputs;
        self.graph.add(node)
    }
}
