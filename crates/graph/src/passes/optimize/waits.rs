//! Removes nodes that are computed only to be waited for, and control edges that other edges imply.
//!
//! `tf.gradients` groups the gradients of an op, so that the one for a placeholder is computed although nobody reads it: a third
//! of the products of a two-layer network. Nodes that wait for such a node wait for its inputs instead.

use super::is_pure;
use crate::control_flow::NodeClass;
use crate::{Node, NodeGraph, NodeId};
use tensor::{DType, Result};

/// The most nodes that the search for other paths visits for one node with control inputs.
const SEARCH_MAX: usize = 256;

/// Removes needless waits. Returns the number of nodes that are no longer waited for plus the number of other removed edges.
pub(super) fn remove_waits(graph: &mut NodeGraph, wanted: &[bool]) -> Result<usize> {
    let order = graph.topological_order()?;
    let skipped = skip_unread(graph, wanted, &order);
    Ok(skipped + remove_implied(graph, &order))
}

/// Makes nodes that wait for a node without effects and readers wait for its inputs instead.
fn skip_unread(graph: &mut NodeGraph, wanted: &[bool], order: &[NodeId]) -> usize {
    let mut consumers = graph.consumers();
    let mut skipped = 0;
    // Backwards, so that a chain of which only the end is waited for is removed as a whole.
    for &id in order.iter().rev() {
        let is_only_waited_for =
            |list: &[(NodeId, Option<usize>)]| !list.is_empty() && list.iter().all(|&(_, input)| input.is_none());
        if wanted.get(id.index()).copied().unwrap_or(false) || !is_only_waited_for(&consumers[id.index()]) {
            continue;
        }
        let Some(sources) = replacement_sources(graph, id, &consumers[id.index()]) else { continue };
        for (consumer, _) in std::mem::take(&mut consumers[id.index()]) {
            let node = graph.node_mut(consumer);
            node.control_inputs.retain(|&control| control != id);
            for &source in &sources {
                if !node.control_inputs.contains(&source) {
                    node.control_inputs.push(source);
                    consumers[source.index()].push((consumer, None));
                }
            }
        }
        let node = graph.node(id);
        for source in node.inputs.iter().map(|edge| edge.node).chain(node.control_inputs.iter().copied()) {
            consumers[source.index()].retain(|&(consumer, _)| consumer != id);
        }
        skipped += 1;
    }
    skipped
}

/// Returns the nodes to wait for instead of a node, or `None` if the node must stay.
fn replacement_sources(graph: &NodeGraph, id: NodeId, consumers: &[(NodeId, Option<usize>)]) -> Option<Vec<NodeId>> {
    let node = graph.node(id);
    let mut sources: Vec<NodeId> = node.inputs.iter().map(|edge| edge.node).collect();
    sources.extend(&node.control_inputs);
    sources.sort_unstable();
    sources.dedup();
    // A constant need not be waited for.
    sources.retain(|&source| {
        let source = graph.node(source);
        source.op() != "Const" || !source.control_inputs.is_empty()
    });
    // A control edge from a switch or an exit differs in deadness from an edge from its output.
    if !sources.iter().all(|&source| NodeClass::of(graph.node(source).op()) == NodeClass::Plain) {
        return None;
    }
    if node.op() == "NoOp" {
        // A node that gathers many waits into one saves edges, above all between devices.
        let is_here = |other: &NodeId| graph.node(*other).device == node.device;
        let is_local = sources.iter().all(is_here) && consumers.iter().all(|(consumer, _)| is_here(consumer));
        let is_cheap = sources.len() * consumers.len() <= sources.len() + consumers.len();
        return (is_local && is_cheap).then_some(sources);
    }
    let is_needless = is_pure(graph, node) && !is_kept(node) && !uses_resource(graph, node);
    is_needless.then_some(sources)
}

/// Returns whether a node checks something, or is a feed.
fn is_kept(node: &Node) -> bool {
    matches!(node.op(), "CheckNumerics" | "CheckNumericsV2" | "EnsureShape" | "_Arg")
}

/// Returns whether a node has a resource as input, which it may modify.
fn uses_resource(graph: &NodeGraph, node: &Node) -> bool {
    node.inputs.iter().any(|&edge| {
        let slot = graph.node(edge.node).output_types.get(edge.port as usize);
        slot.is_some_and(|slot| slot.dtype == DType::Resource)
    })
}

/// Removes control edges between nodes that another path connects, too. Returns their number.
///
/// The path may have only plain nodes. These are dead if one of their inputs is, so that the path implies the edge.
fn remove_implied(graph: &mut NodeGraph, order: &[NodeId]) -> usize {
    let mut rank = vec![0usize; graph.id_bound()];
    for (place, id) in order.iter().enumerate() {
        rank[id.index()] = place;
    }
    let is_plain = |graph: &NodeGraph, id: NodeId| NodeClass::of(graph.node(id).op()) == NodeClass::Plain;
    // The node for which each node was last visited, so that the table need not be cleared.
    let mut visited_for = vec![usize::MAX; graph.id_bound()];
    let mut removed = 0;
    for &id in order {
        if graph.node(id).control_inputs.is_empty() || !is_plain(graph, id) {
            continue;
        }
        let node = graph.node(id);
        let lowest = node.control_inputs.iter().map(|control| rank[control.index()]).min().unwrap_or(0);
        let mut stack: Vec<NodeId> = node.inputs.iter().map(|edge| edge.node).collect();
        let mut implied: Vec<NodeId> =
            node.control_inputs.iter().copied().filter(|control| stack.contains(control)).collect();
        stack.extend(&node.control_inputs);
        let mut looked_at = 0;
        while let Some(at) = stack.pop() {
            if !is_plain(graph, at) || std::mem::replace(&mut visited_for[at.index()], id.index()) == id.index() {
                continue;
            }
            looked_at += 1;
            if looked_at > SEARCH_MAX {
                break;
            }
            let at = graph.node(at);
            for source in at.inputs.iter().map(|edge| edge.node).chain(at.control_inputs.iter().copied()) {
                if rank[source.index()] < lowest {
                    continue;
                }
                if node.control_inputs.contains(&source) {
                    implied.push(source);
                }
                stack.push(source);
            }
        }
        implied.retain(|&control| is_plain(graph, control));
        if !implied.is_empty() {
            let controls = &mut graph.node_mut(id).control_inputs;
            let before = controls.len();
            controls.retain(|control| !implied.contains(control));
            removed += before - controls.len();
        }
    }
    removed
}
