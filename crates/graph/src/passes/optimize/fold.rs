//! Constant folding: computes values that depend only on constants once.

use super::{OptimizeOptions, is_pure};
use crate::control_flow::NodeClass;
use crate::shape::InferredShapes;
use crate::{AttrMap, Edge, Node, NodeGraph, NodeId, OpLookup, OpSchema};
use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;
use tensor::{DType, Result, Status, Tensor};

type Evaluate<'a> = &'a dyn Fn(&NodeGraph, &[Edge]) -> Result<Vec<Tensor>>;

/// The largest tensor of equal elements that is folded. A larger one, such as the initial value of an optimizer's slot, would
/// have to be sent and kept, and its device can fill it as fast as it could read it.
const REPEATED_BYTES_MAX: usize = 64 << 10;

/// Replaces outputs that depend only on constants by constants. Returns their number.
pub(super) fn fold_constants(
    graph: &mut NodeGraph,
    ops: &dyn OpLookup,
    shapes: &InferredShapes,
    evaluate: Evaluate<'_>,
    options: &OptimizeOptions<'_>,
) -> Result<usize> {
    let Some(constant) = ops.op("Const").map(|info| info.schema.clone()) else { return Ok(0) };
    let mut folder = Folder { graph, shapes, constant, folded: 0 };
    folder.fold_shapes()?;
    folder.fold_values(evaluate, options)?;
    Ok(folder.folded)
}

struct Folder<'a> {
    graph: &'a mut NodeGraph,
    shapes: &'a InferredShapes,
    constant: Arc<OpSchema>,
    folded: usize,
}

impl Folder<'_> {
    /// Folds `Shape`, `Size` and `Rank` of tensors with known shapes. The constants keep a control edge from the tensor, which may
    /// be dead.
    fn fold_shapes(&mut self) -> Result<()> {
        let measures: Vec<NodeId> = self
            .graph
            .iter()
            .filter(|(_, node)| matches!(node.op(), "Shape" | "Size" | "Rank"))
            .map(|(id, _)| id)
            .collect();
        for id in measures {
            let node = self.graph.node(id);
            let Some(&input) = node.inputs.first() else { continue };
            let class = NodeClass::of(self.graph.node(input.node).op());
            if !matches!(class, NodeClass::Plain | NodeClass::Merge) {
                continue;
            }
            let Some(value) = self.shapes.constant_value(self.graph, Edge { node: id, port: 0 }) else { continue };
            if value.dtype() != node.output_types[0].dtype {
                continue;
            }
            let mut controls = node.control_inputs.clone();
            if self.graph.node(input.node).op() != "Const" && !controls.contains(&input.node) {
                controls.push(input.node);
            }
            self.become_constant(id, &value, controls)?;
        }
        Ok(())
    }

    fn fold_values(&mut self, evaluate: Evaluate<'_>, options: &OptimizeOptions<'_>) -> Result<()> {
        let order = self.graph.topological_order()?;
        let mut is_known = vec![false; self.graph.id_bound()];
        for &id in &order {
            let node = self.graph.node(id);
            is_known[id.index()] = (node.op() == "Const" && node.inputs.is_empty())
                || (!node.inputs.is_empty()
                    && node.inputs.iter().all(|edge| is_known[edge.node.index()])
                    && self.is_foldable(id, node, options));
        }
        // Only outputs with consumers are worth folding.
        let consumers = self.graph.consumers();
        let mut wanted: Vec<Edge> = Vec::new();
        for &id in order.iter().filter(|id| is_known[id.index()]) {
            if self.graph.node(id).op() == "Const" {
                continue;
            }
            for port in 0..self.graph.node(id).output_types.len() as u32 {
                let is_needed = |(consumer, input): &(NodeId, Option<usize>)| {
                    let edge = input.and_then(|index| self.graph.node(*consumer).inputs.get(index));
                    edge == Some(&Edge { node: id, port }) && !is_known[consumer.index()]
                };
                if consumers[id.index()].iter().any(is_needed) {
                    wanted.push(Edge { node: id, port });
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let values: Vec<Option<Tensor>> = match self.evaluate(evaluate, &wanted) {
            Ok(values) => values.into_iter().map(Some).collect(),
            // An output that cannot be computed must not keep the others from being folded; it fails or waits at run time.
            Err(_) => {
                wanted.iter().map(|&edge| self.evaluate(evaluate, &[edge]).ok().and_then(|mut v| v.pop())).collect()
            }
        };
        let controls: HashMap<NodeId, Vec<NodeId>> =
            wanted.iter().map(|edge| (edge.node, self.controls_of(edge.node))).collect();
        let mut replaced: HashMap<Edge, Edge> = HashMap::new();
        for (edge, value) in wanted.into_iter().zip(values) {
            let Some(value) = value else { continue };
            let node = self.graph.node(edge.node);
            let fits =
                self.shapes.shape(edge).is_compatible_with(value.shape()) && value.dtype() == node.dtype(edge.port)?;
            if !fits || value.num_bytes() > options.constant_bytes_max {
                continue;
            }
            let controls = controls.get(&edge.node).cloned().unwrap_or_default();
            if node.output_types.len() == 1 {
                self.become_constant(edge.node, &value, controls)?;
            } else {
                replaced.insert(edge, self.add_constant(edge, &value, controls)?);
            }
        }
        if !replaced.is_empty() {
            let ids: Vec<NodeId> = self.graph.ids().collect();
            for id in ids {
                for edge in &mut self.graph.node_mut(id).inputs {
                    if let Some(&constant) = replaced.get(edge) {
                        *edge = constant;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_foldable(&self, id: NodeId, node: &Node, options: &OptimizeOptions<'_>) -> bool {
        let repeats_one_number = matches!(node.op(), "Fill" | "OnesLike" | "ZerosLike");
        let bytes_max =
            options.constant_bytes_max.min(if repeats_one_number { REPEATED_BYTES_MAX } else { usize::MAX });
        let is_small = |port: usize| {
            let shape = self.shapes.shape(Edge { node: id, port: port as u32 }).to_shape();
            let dtype = node.output_types[port].dtype;
            // A string takes at least its header.
            let size = if dtype == DType::String { 32 } else { dtype.size() };
            let is_kind = dtype.is_plain() || dtype == DType::String;
            is_kind && shape.is_some_and(|shape| shape.num_bytes(size).is_ok_and(|bytes| bytes <= bytes_max))
        };
        is_pure(self.graph, node)
            && !node.output_types.is_empty()
            && (0..node.output_types.len()).all(is_small)
            && (options.has_kernel)(node)
    }

    /// Computes outputs in a graph of only the nodes that they need, without control edges.
    fn evaluate(&self, evaluate: Evaluate<'_>, wanted: &[Edge]) -> Result<Vec<Tensor>> {
        let mut needed: Vec<NodeId> = Vec::new();
        let mut seen = vec![false; self.graph.id_bound()];
        let mut stack: Vec<NodeId> = wanted.iter().map(|edge| edge.node).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut seen[id.index()], true) {
                needed.push(id);
                stack.extend(self.graph.node(id).inputs.iter().map(|edge| edge.node));
            }
        }
        needed.sort_unstable();
        let ids: HashMap<NodeId, NodeId> = needed.iter().copied().zip((0..).map(NodeId)).collect();
        let lost = || Status::internal("a constant that isn't there");
        let moved = |edge: &Edge| Ok(Edge { node: *ids.get(&edge.node).ok_or_else(lost)?, port: edge.port });
        let mut small = NodeGraph::new(self.graph.library.clone());
        for id in &needed {
            let mut node = self.graph.node(*id).clone();
            node.control_inputs.clear();
            node.inputs = node.inputs.iter().map(moved).collect::<Result<_>>()?;
            small.add(node)?;
        }
        let fetches: Vec<Edge> = wanted.iter().map(moved).collect::<Result<_>>()?;
        let values = evaluate(&small, &fetches)?;
        if values.len() != fetches.len() {
            return Err(Status::internal("constant folding returned a wrong number of values"));
        }
        Ok(values)
    }

    /// Returns the control inputs of a node and the constants before it. The folded constant gets them too, so that it is dead and
    /// in a loop's frame whenever the node was.
    fn controls_of(&self, id: NodeId) -> Vec<NodeId> {
        let mut controls: Vec<NodeId> = Vec::new();
        let mut seen = vec![false; self.graph.id_bound()];
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut seen[id.index()], true) {
                let node = self.graph.node(id);
                controls.extend(&node.control_inputs);
                stack.extend(node.inputs.iter().map(|edge| edge.node));
            }
        }
        controls.sort_unstable();
        controls.dedup();
        controls
    }

    /// Turns a node with one output into a constant with the same name.
    fn become_constant(&mut self, id: NodeId, value: &Tensor, controls: Vec<NodeId>) -> Result<()> {
        let mut attrs = AttrMap::default();
        attrs.set("dtype", value.dtype());
        attrs.set("value", tensor::tensor_to_proto(value)?);
        let old = self.graph.node(id);
        let mut node = Node::new(old.name.clone(), self.constant.clone(), old.device.clone(), attrs)?;
        node.control_inputs = controls;
        node.debug_info = old.debug_info.clone();
        *self.graph.node_mut(id) = node;
        self.folded += 1;
        Ok(())
    }

    /// Adds a constant for one of several outputs of a node.
    fn add_constant(&mut self, edge: Edge, value: &Tensor, controls: Vec<NodeId>) -> Result<Edge> {
        let mut attrs = AttrMap::default();
        attrs.set("dtype", value.dtype());
        attrs.set("value", tensor::tensor_to_proto(value)?);
        let old = self.graph.node(edge.node);
        let name = self.graph.unique_name(&format!("{}/folded_{}", old.name, edge.port));
        let mut node = Node::new(name, self.constant.clone(), old.device.clone(), attrs)?;
        node.control_inputs = controls;
        self.folded += 1;
        Ok(Edge { node: self.graph.add(node)?, port: 0 })
    }
}
