//! Optimization: rewrites a graph to compute the same with fewer and larger nodes.
//!
//! It runs on a placed and pruned graph, in which a node without consumers is there for its effect. Feeds and fetches are nodes
//! by then, which no rewrite touches. Only small constants are copied to other devices, and no node that has state or reads a
//! variable is shared, moved or removed.

mod bypass;
mod elementwise;
mod fold;
mod fuse;
mod share;
mod spread;
mod switches;
mod waits;

use crate::control_flow::NodeClass;
use crate::shape::infer_shapes;
use crate::{Edge, Node, NodeGraph, NodeId, OpLookup};
use foldhash::{HashMap, HashMapExt};
use tensor::{Result, Tensor};

pub use elementwise::{ElementwiseStep, INPUTS_MAX as ELEMENTWISE_INPUTS_MAX, STEPS_MAX as ELEMENTWISE_STEPS_MAX};
pub use switches::OptimizeSwitches;

/// Options of optimization, and the facts that it needs.
pub struct OptimizeOptions<'a> {
    /// The enabled parts.
    pub switches: OptimizeSwitches,
    /// Computes outputs of a graph of constants. Without it, constants are not folded.
    pub evaluate: Option<&'a dyn Fn(&NodeGraph, &[Edge]) -> Result<Vec<Tensor>>>,
    /// Returns whether there is a kernel for a node that would replace others.
    pub has_kernel: &'a dyn Fn(&Node) -> bool,
    /// Returns whether the task of a device supports a kind of fusion.
    pub may_fuse: &'a dyn Fn(&str, Fusion) -> bool,
    /// The largest constant that folding creates.
    pub constant_bytes_max: usize,
}

/// A kind of fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// A matrix product or convolution with its bias and activation. TensorFlow's tasks have these ops, too.
    Product,
    /// A chain of element-wise ops. Only our tasks have this op.
    Elementwise,
}

/// The default for the largest constant that folding creates.
pub const CONSTANT_BYTES_MAX: usize = 10 << 20;

/// Counts of what was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptimizeReport {
    /// Outputs that were folded to constants.
    pub folded: usize,
    /// Nodes that were merged with an equal one.
    pub shared: usize,
    /// Nodes that only passed on an input.
    pub bypassed: usize,
    /// Nodes that were fused into another.
    pub fused: usize,
    /// Constants that were copied to another device.
    pub spread: usize,
    /// Removed waits: for nodes whose outputs nobody reads, and along control edges that others imply.
    pub unwaited: usize,
}

/// Optimizes a placed and pruned graph in place.
pub fn optimize(graph: &mut NodeGraph, ops: &dyn OpLookup, options: &OptimizeOptions<'_>) -> Result<OptimizeReport> {
    /// The most rounds. Each round may enable further rewrites, but more rounds are not worth the time.
    const ROUNDS_MAX: usize = 3;
    let mut report = OptimizeReport::default();
    let switches = options.switches;
    if switches == OptimizeSwitches::NONE {
        return Ok(report);
    }
    let wanted = wanted_nodes(graph);
    let (mut shapes, _) = infer_shapes(graph, ops)?;
    for _ in 0..ROUNDS_MAX {
        let before = report;
        if switches.bypass {
            report.bypassed += bypass::bypass_nodes(graph, &shapes)?;
        }
        if let Some(evaluate) = options.evaluate.filter(|_| switches.fold) {
            report.folded += fold::fold_constants(graph, ops, &shapes, evaluate, options)?;
        }
        if switches.share {
            report.shared += share::share_equal_nodes(graph)?;
        }
        if switches.fold {
            report.spread += spread::spread_constants(graph)?;
        }
        if switches.bypass {
            report.unwaited += waits::remove_waits(graph, &wanted)?;
        }
        remove_unused(graph, &wanted);
        if report == before {
            break;
        }
        (shapes, _) = infer_shapes(graph, ops)?;
    }
    if switches.fuse_products {
        report.fused += fuse::fuse_nodes(graph, ops, &shapes, options)?;
    }
    if switches.fuse_elementwise {
        report.fused += elementwise::fuse_elementwise(graph, ops, &shapes, options)?;
    }
    remove_unused(graph, &wanted);
    Ok(report)
}

/// Returns the nodes that must stay: targets, sends and results, and nodes with effects.
fn wanted_nodes(graph: &NodeGraph) -> Vec<bool> {
    let consumers = graph.consumers();
    let mut wanted = vec![false; graph.id_bound()];
    for (id, node) in graph.iter() {
        wanted[id.index()] = consumers[id.index()].is_empty() || node.schema.is_stateful();
    }
    wanted
}

/// Removes nodes that are neither wanted nor needed by wanted ones.
fn remove_unused(graph: &mut NodeGraph, wanted: &[bool]) {
    let mut used = vec![false; graph.id_bound()];
    let mut stack: Vec<NodeId> = Vec::new();
    for id in graph.ids() {
        if wanted.get(id.index()).copied().unwrap_or(false) {
            used[id.index()] = true;
            stack.push(id);
        }
    }
    while let Some(id) = stack.pop() {
        let node = graph.node(id);
        for source in node.inputs.iter().map(|edge| edge.node).chain(node.control_inputs.iter().copied()) {
            if !std::mem::replace(&mut used[source.index()], true) {
                stack.push(source);
            }
        }
    }
    let unused: Vec<NodeId> = graph.ids().filter(|id| !used[id.index()]).collect();
    for id in unused {
        graph.remove(id);
    }
}

/// Replacements of outputs and nodes. Nodes are visited in topological order, so that a replacement is not itself replaced
/// later.
#[derive(Default)]
struct Replacements {
    data: HashMap<Edge, Edge>,
    control: HashMap<NodeId, NodeId>,
}

impl Replacements {
    fn new() -> Replacements {
        Replacements { data: HashMap::new(), control: HashMap::new() }
    }

    fn is_empty(&self) -> bool {
        self.data.is_empty() && self.control.is_empty()
    }

    /// Replaces a node's inputs.
    fn apply(&self, node: &mut Node) {
        for edge in &mut node.inputs {
            if let Some(&other) = self.data.get(edge) {
                *edge = other;
            }
        }
        let mut changed = false;
        for control in &mut node.control_inputs {
            if let Some(&other) = self.control.get(control) {
                *control = other;
                changed = true;
            }
        }
        if changed {
            let mut seen: Vec<NodeId> = Vec::with_capacity(node.control_inputs.len());
            node.control_inputs.retain(|control| {
                let is_new = !seen.contains(control);
                seen.push(*control);
                is_new
            });
        }
    }

    /// Replaces the inputs of all nodes, including the back edges of loops.
    fn apply_to_all(&self, graph: &mut NodeGraph) {
        if self.is_empty() {
            return;
        }
        let ids: Vec<NodeId> = graph.ids().collect();
        for id in ids {
            self.apply(graph.node_mut(id));
        }
    }
}

/// Returns whether a node's outputs can be dead although the node itself is alive, so that a control edge from the node differs
/// from a control edge from a consumer of its output.
fn has_own_deadness(node: &Node) -> bool {
    matches!(NodeClass::of(node.op()), NodeClass::Switch | NodeClass::Recv)
}

/// Returns whether an edge carries a reference to a variable.
fn is_ref(graph: &NodeGraph, edge: Edge) -> bool {
    graph.node(edge.node).output_types.get(edge.port as usize).is_none_or(|slot| slot.is_ref)
}

/// Returns whether a node is a pure function of its inputs: no state, no variables, no control flow, no function calls.
fn is_pure(graph: &NodeGraph, node: &Node) -> bool {
    NodeClass::of(node.op()) == NodeClass::Plain
        && !node.schema.is_stateful()
        && graph.library.get(node.op()).is_none()
        && !node.schema.attrs.iter().any(|attr| attr.r#type.ends_with("func") || attr.r#type == "list(func)")
        && !node.output_types.iter().any(|slot| slot.is_ref)
        && !node.inputs.iter().any(|&edge| is_ref(graph, edge))
        && !matches!(node.op(), "Placeholder" | "PlaceholderV2")
}
