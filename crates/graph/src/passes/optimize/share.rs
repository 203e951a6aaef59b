//! Common subexpression elimination: merges nodes with the same op, attributes, inputs and device.

use super::{Replacements, is_pure};
use crate::op_def::OpFlags;
use crate::{Edge, Node, NodeGraph, NodeId};
use foldhash::fast::FixedState;
use foldhash::{HashMap, HashMapExt};
use prost::Message;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use tensor::Result;

/// Constants larger than this are not compared.
const CONSTANT_BYTES_MAX: usize = 64 << 10;

/// Merges equal nodes. Returns the number of nodes that were merged into another.
pub(super) fn share_equal_nodes(graph: &mut NodeGraph) -> Result<usize> {
    let mut replacements = Replacements::new();
    let mut first_of: HashMap<u64, Vec<NodeId>> = HashMap::new();
    let mut shared = 0;
    for id in graph.topological_order()? {
        replacements.apply(graph.node_mut(id));
        let node = graph.node(id);
        if !is_pure(graph, node) || is_large(node) {
            continue;
        }
        let candidates = first_of.entry(hash(node)).or_default();
        match candidates.iter().copied().find(|&first| is_equal(graph.node(first), node)) {
            None => candidates.push(id),
            Some(first) => {
                for port in 0..node.output_types.len() as u32 {
                    replacements.data.insert(Edge { node: id, port }, Edge { node: first, port });
                }
                replacements.control.insert(id, first);
                shared += 1;
            }
        }
    }
    replacements.apply_to_all(graph);
    Ok(shared)
}

fn is_large(node: &Node) -> bool {
    let size = |value: &proto::AttrValue| value.encoded_len();
    node.op() == "Const" && node.attrs.get("value").is_some_and(|value| size(value) > CONSTANT_BYTES_MAX)
}

fn hash(node: &Node) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    node.op().hash(&mut hasher);
    node.device.hash(&mut hasher);
    operands(node).hash(&mut hasher);
    controls(node).hash(&mut hasher);
    for (name, value) in compared_attrs(node) {
        name.hash(&mut hasher);
        value.encode_to_vec().hash(&mut hasher);
    }
    hasher.finish()
}

fn is_equal(a: &Node, b: &Node) -> bool {
    a.op() == b.op()
        && a.device == b.device
        && operands(a) == operands(b)
        && controls(a) == controls(b)
        && compared_attrs(a).eq(compared_attrs(b))
}

/// Returns the inputs, sorted if the op is commutative.
fn operands(node: &Node) -> Vec<Edge> {
    let mut inputs = node.inputs.clone();
    if node.schema.flags.contains(OpFlags::COMMUTATIVE) {
        inputs.sort_unstable();
    }
    inputs
}

fn controls(node: &Node) -> Vec<NodeId> {
    let mut controls = node.control_inputs.clone();
    controls.sort_unstable();
    controls
}

/// Returns the attributes that matter once a node is placed and its shapes are inferred.
fn compared_attrs(node: &Node) -> impl Iterator<Item = (&Arc<str>, &proto::AttrValue)> {
    node.attrs.iter().filter(|(name, _)| !matches!(&***name, "_class" | "_output_shapes"))
}
