//! Removes nodes that only pass on an input: identities, and arithmetic with neutral elements.

use super::{Replacements, has_own_deadness, is_ref};
use crate::control_flow::NodeClass;
use crate::shape::InferredShapes;
use crate::{Edge, Node, NodeGraph};
use tensor::{DType, PartialShape, Result, Tensor};

/// Connects consumers of nodes that pass on an input to that input. Returns the number of bypassed nodes.
pub(super) fn bypass_nodes(graph: &mut NodeGraph, shapes: &InferredShapes) -> Result<usize> {
    let mut replacements = Replacements::new();
    let mut bypassed = 0;
    let mut has_control_consumers = vec![false; graph.id_bound()];
    for (_, node) in graph.iter() {
        for control in &node.control_inputs {
            has_control_consumers[control.index()] = true;
        }
    }
    for id in graph.topological_order()? {
        replacements.apply(graph.node_mut(id));
        let node = graph.node(id);
        // A node with control inputs must stay, and so must a read of a variable, which is a snapshot.
        if !node.control_inputs.is_empty() || node.schema.is_stateful() || NodeClass::of(node.op()) != NodeClass::Plain
        {
            continue;
        }
        let passed: Vec<Edge> = passed_on(graph, shapes, node);
        if passed.is_empty() || passed.len() != node.output_types.len() {
            continue;
        }
        let is_same_place = |edge: &Edge| graph.node(edge.node).device == node.device && !is_ref(graph, *edge);
        if !passed.iter().all(is_same_place) {
            continue;
        }
        if has_control_consumers[id.index()] {
            if passed.len() != 1 || has_own_deadness(graph.node(passed[0].node)) {
                continue;
            }
            replacements.control.insert(id, passed[0].node);
            has_control_consumers[passed[0].node.index()] = true;
        }
        for (port, edge) in passed.into_iter().enumerate() {
            replacements.data.insert(Edge { node: id, port: port as u32 }, edge);
        }
        bypassed += 1;
    }
    replacements.apply_to_all(graph);
    Ok(bypassed)
}

/// Returns, for each output of a node, the input that it equals, or an empty list if the node computes something.
fn passed_on(graph: &NodeGraph, shapes: &InferredShapes, node: &Node) -> Vec<Edge> {
    let one = |edge: Option<&Edge>| edge.copied().into_iter().collect();
    match node.op() {
        "Identity" | "StopGradient" | "PreventGradient" | "PlaceholderWithDefault" | "Snapshot" => {
            one(node.inputs.first())
        }
        "IdentityN" => node.inputs.clone(),
        "AddN" if node.inputs.len() == 1 => one(node.inputs.first()),
        "ConcatV2" if node.inputs.len() == 2 => one(node.inputs.first()),
        "Concat" if node.inputs.len() == 2 => one(node.inputs.get(1)),
        "Cast" if node.attrs.dtype("SrcT").ok() == node.attrs.dtype("DstT").ok() => one(node.inputs.first()),
        "Reshape" if is_same_shape(graph, shapes, node) => one(node.inputs.first()),
        "Transpose" if is_identity_permutation(graph, shapes, node) => one(node.inputs.first()),
        "Mul" => one(neutral(graph, shapes, node, 1.0, true).as_ref()),
        "Add" | "AddV2" => one(neutral(graph, shapes, node, 0.0, true).as_ref()),
        "Sub" => one(neutral(graph, shapes, node, 0.0, false).as_ref()),
        "RealDiv" | "Div" => one(neutral(graph, shapes, node, 1.0, false).as_ref()),
        _ => Vec::new(),
    }
}

/// Returns the other operand if one of the two is a constant filled with `value` that does not change the shape by
/// broadcasting.
fn neutral(graph: &NodeGraph, shapes: &InferredShapes, node: &Node, value: f64, is_commutative: bool) -> Option<Edge> {
    let (&a, &b) = (node.inputs.first()?, node.inputs.get(1)?);
    let is_neutral = |constant: Edge, other: Edge| {
        let (narrow, wide) = (shapes.shape(constant), shapes.shape(other));
        is_wide_enough(&narrow, &wide)
            && graph.node(constant.node).op() == "Const"
            && shapes.constant_value(graph, constant).is_some_and(|tensor| all_are(&tensor, value))
    };
    if is_neutral(b, a) {
        return Some(a);
    }
    (is_commutative && is_neutral(a, b)).then_some(b)
}

/// Returns whether broadcasting the shapes `narrow` and `wide` gives `wide`.
fn is_wide_enough(narrow: &PartialShape, wide: &PartialShape) -> bool {
    let Some(narrow) = narrow.dims() else { return false };
    if narrow.is_empty() {
        return true;
    }
    let Some(wide) = wide.dims() else { return false };
    narrow.len() <= wide.len()
        && narrow.iter().rev().zip(wide.iter().rev()).all(|(n, w)| *n == Some(1) || (n.is_some() && n == w))
}

fn all_are(tensor: &Tensor, value: f64) -> bool {
    macro_rules! all {
        ($($dtype:ident => $ty:ty),*) => {
            match tensor.dtype() {
                $(DType::$dtype => {
                    tensor.as_slice::<$ty>().is_ok_and(|elements| {
                        !elements.is_empty() && elements.iter().all(|&element| element == value as $ty)
                    })
                })*
                _ => false,
            }
        };
    }
    all!(Float => f32, Double => f64, Int32 => i32, Int64 => i64)
}

/// Returns whether a `Reshape` keeps the shape: every size equals that of the input, except that one may be open. A shape that
/// is known only when the step runs may be wrong, which must be reported.
fn is_same_shape(graph: &NodeGraph, shapes: &InferredShapes, node: &Node) -> bool {
    let (Some(&input), Some(&wanted)) = (node.inputs.first(), node.inputs.get(1)) else { return false };
    let before = shapes.shape(input);
    let wanted = shapes.constant_value(graph, wanted).and_then(|tensor| tensor.to_indices().ok());
    let (Some(from), Some(wanted)) = (before.dims(), wanted) else { return false };
    let num_open = wanted.iter().filter(|&&size| size == -1).count();
    from.len() == wanted.len()
        && num_open <= 1
        // If a size is 0, the others do not determine the open one.
        && (num_open == 0 || !from.contains(&Some(0)))
        && from.iter().zip(&wanted).all(|(size, &wanted)| wanted == -1 || *size == Some(wanted))
}

fn is_identity_permutation(graph: &NodeGraph, shapes: &InferredShapes, node: &Node) -> bool {
    let permutation = node.inputs.get(1).and_then(|&edge| shapes.constant_value(graph, edge));
    let indices = permutation.and_then(|tensor| tensor.to_indices().ok());
    indices.is_some_and(|indices| indices.iter().enumerate().all(|(place, &index)| index == place as i64))
}
