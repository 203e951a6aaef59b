//! Fuses chains of element-wise ops into one node, which runs them as a program, one block of elements at a time.

use super::{Fusion, OptimizeOptions, is_pure};
use crate::shape::InferredShapes;
use crate::{AttrMap, Edge, Node, NodeGraph, NodeId, OpLookup};
use bytes::Bytes;
use tensor::{DType, Result, Status};

/// The op that runs a program. Only our tasks have it.
const FUSED_OP: &str = "_FusedElementwise";

/// The most ops in one program.
pub const STEPS_MAX: usize = 16;

/// The most inputs of one program.
pub const INPUTS_MAX: usize = 8;

/// A step of an element-wise program: an op and the registers of its operands. A unary op has the same register twice. The first
/// registers are the inputs; the results of the steps follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementwiseStep {
    /// The op.
    pub op: String,
    /// The register of its first operand.
    pub x: u8,
    /// The register of its second operand.
    pub y: u8,
}

impl ElementwiseStep {
    /// Reads the steps from the attribute `program`.
    pub fn read_all(texts: &[Bytes]) -> Result<Vec<ElementwiseStep>> {
        let malformed = || Status::invalid_argument("a malformed element-wise program");
        let read = |text: &Bytes| {
            let text = std::str::from_utf8(text).map_err(|_| malformed())?;
            let mut words = text.split(' ');
            let (op, x, y, end) = (words.next(), words.next(), words.next(), words.next());
            let register = |word: Option<&str>| word.and_then(|word| word.parse().ok()).ok_or_else(malformed);
            if end.is_some() {
                return Err(malformed());
            }
            Ok(ElementwiseStep { op: op.ok_or_else(malformed)?.to_owned(), x: register(x)?, y: register(y)? })
        };
        texts.iter().map(read).collect()
    }

    fn text(&self) -> String {
        format!("{} {} {}", self.op, self.x, self.y)
    }
}

/// Fuses chains and trees of element-wise ops. Returns the number of nodes that were fused into another.
pub(super) fn fuse_elementwise(
    graph: &mut NodeGraph,
    ops: &dyn OpLookup,
    shapes: &InferredShapes,
    options: &OptimizeOptions<'_>,
) -> Result<usize> {
    let Some(schema) = ops.op(FUSED_OP).map(|info| info.schema.clone()) else { return Ok(0) };
    let order = graph.topological_order()?;
    let mut place = vec![0usize; graph.id_bound()];
    for (index, id) in order.iter().enumerate() {
        place[id.index()] = index;
    }
    let consumers = graph.consumers();
    let mut is_absorbed = vec![false; graph.id_bound()];
    let mut fused = 0;
    for &root in order.iter().rev() {
        let node = graph.node(root);
        if is_absorbed[root.index()] || !is_step(graph, node) || !(options.may_fuse)(&node.device, Fusion::Elementwise)
        {
            continue;
        }
        let mut members = members_of(graph, shapes, &consumers, root);
        if members.len() < 2 {
            continue;
        }
        members.sort_by_key(|id| place[id.index()]);
        let (inputs, steps) = program(graph, &members);
        let texts: Vec<String> = steps.iter().map(ElementwiseStep::text).collect();
        let mut attrs = AttrMap::default();
        attrs.set("T", node.output_types[0].dtype);
        attrs.set("N", inputs.len() as i64);
        attrs.set("program", texts.as_slice());
        let mut replacement = Node::new(node.name.clone(), schema.clone(), node.device.clone(), attrs)?;
        replacement.inputs = inputs;
        replacement.control_inputs = node.control_inputs.clone();
        if !(options.has_kernel)(&replacement) {
            continue;
        }
        for member in &members {
            is_absorbed[member.index()] = true;
        }
        fused += members.len() - 1;
        *graph.node_mut(root) = replacement;
    }
    Ok(fused)
}

/// Returns the number of operands of an op, if programs may contain it.
fn arity(op: &str) -> Option<usize> {
    match op {
        "Neg" | "Abs" | "Square" | "Sqrt" | "Rsqrt" | "Exp" | "Log" | "Tanh" | "Sigmoid" | "Relu" | "Reciprocal"
        | "Inv" => Some(1),
        "Add" | "AddV2" | "Sub" | "Mul" | "Div" | "RealDiv" | "Maximum" | "Minimum" | "SquaredDifference"
        | "TanhGrad" | "SigmoidGrad" | "ReluGrad" => Some(2),
        _ => None,
    }
}

fn is_step(graph: &NodeGraph, node: &Node) -> bool {
    arity(node.op()) == Some(node.inputs.len())
        && matches!(node.output_types.as_slice(), [slot] if matches!(slot.dtype, DType::Float | DType::Double))
        && node.input_types.iter().all(|slot| slot.dtype == node.output_types[0].dtype)
        && is_pure(graph, node)
}

/// Returns a node and the nodes before it that only the group uses and that have the same shape, so that a small tensor is not
/// recomputed for each element of a large one.
fn members_of(
    graph: &NodeGraph,
    shapes: &InferredShapes,
    consumers: &[Vec<(NodeId, Option<usize>)>],
    root: NodeId,
) -> Vec<NodeId> {
    let root_node = graph.node(root);
    let shape_of = |id: NodeId| shapes.shape(Edge { node: id, port: 0 });
    let root_shape = shape_of(root);
    let mut members = vec![root];
    if root_shape.rank().is_none() {
        return members;
    }
    let mut has_grown = true;
    while has_grown && members.len() < STEPS_MAX {
        has_grown = false;
        let sources: Vec<NodeId> =
            members.iter().flat_map(|&member| graph.node(member).inputs.iter().map(|edge| edge.node)).collect();
        for source in sources {
            let node = graph.node(source);
            let is_needed_only_here =
                consumers[source.index()].iter().all(|(consumer, input)| input.is_some() && members.contains(consumer));
            if members.len() < STEPS_MAX
                && !members.contains(&source)
                && is_needed_only_here
                && node.device == root_node.device
                && node.control_inputs.is_empty()
                && is_step(graph, node)
                && node.output_types == root_node.output_types
                && shape_of(source) == root_shape
            {
                members.push(source);
                if inputs_of(graph, &members).len() > INPUTS_MAX {
                    members.pop();
                } else {
                    has_grown = true;
                }
            }
        }
    }
    members
}

/// Returns the inputs of a group of nodes from outside of it.
fn inputs_of(graph: &NodeGraph, members: &[NodeId]) -> Vec<Edge> {
    let mut inputs: Vec<Edge> = Vec::new();
    for &member in members {
        for &edge in &graph.node(member).inputs {
            if !members.contains(&edge.node) && !inputs.contains(&edge) {
                inputs.push(edge);
            }
        }
    }
    inputs
}

/// Returns the inputs of a group, and its steps in topological order. Registers fit into a byte because of the limits.
fn program(graph: &NodeGraph, members: &[NodeId]) -> (Vec<Edge>, Vec<ElementwiseStep>) {
    let inputs = inputs_of(graph, members);
    let register = |edge: &Edge| {
        let input = inputs.iter().position(|input| input == edge);
        let step = || members.iter().position(|member| *member == edge.node).map(|step| inputs.len() + step);
        input.or_else(step).unwrap_or(0) as u8
    };
    let step = |&member: &NodeId| {
        let node = graph.node(member);
        let x = register(&node.inputs[0]);
        let y = node.inputs.get(1).map_or(x, register);
        ElementwiseStep { op: node.op().to_owned(), x, y }
    };
    let steps = members.iter().map(step).collect();
    (inputs, steps)
}
