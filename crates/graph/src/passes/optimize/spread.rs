//! Copies small constants to the devices that use them, so that they need not be sent in every step.

use crate::{Edge, NodeGraph, NodeId};
use foldhash::{HashMap, HashMapExt};
use prost::Message;
use tensor::Result;

/// Larger constants are sent, since each copy would be registered with its task and kept there.
const CONSTANT_BYTES_MAX: usize = 4 << 10;

/// Gives consumers on other devices copies of constants. Returns the number of copies.
///
/// Copies only constants without control inputs, whose signals would have to be sent instead.
pub(super) fn spread_constants(graph: &mut NodeGraph) -> Result<usize> {
    let mut wanted: Vec<(NodeId, usize, NodeId)> = Vec::new();
    for (id, node) in graph.iter() {
        for (index, edge) in node.inputs.iter().enumerate() {
            if graph.node(edge.node).device != node.device && is_small_constant(graph, edge.node) {
                wanted.push((id, index, edge.node));
            }
        }
    }
    let mut copies: HashMap<(NodeId, String), NodeId> = HashMap::new();
    for (consumer, index, constant) in wanted {
        let device = graph.node(consumer).device.clone();
        let copy = match copies.get(&(constant, device.clone())) {
            Some(&copy) => copy,
            None => {
                let mut node = graph.node(constant).clone();
                node.name = graph.unique_name(&node.name);
                node.device.clone_from(&device);
                // Placement has already obeyed the colocation.
                node.attrs.remove("_class");
                let copy = graph.add(node)?;
                copies.insert((constant, device), copy);
                copy
            }
        };
        graph.node_mut(consumer).inputs[index] = Edge { node: copy, port: 0 };
    }
    Ok(copies.len())
}

fn is_small_constant(graph: &NodeGraph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.op() == "Const"
        && node.inputs.is_empty()
        && node.control_inputs.is_empty()
        && node.attrs.get("value").is_some_and(|value| value.encoded_len() <= CONSTANT_BYTES_MAX)
}
