//! Turns the `_Arg` and `_Retval` nodes of a pruned graph into the `_Recv` and `_Send` nodes of a distributed run.

use super::RunSpec;
use crate::{AttrMap, Edge, Node, NodeGraph, NodeId, OpLookup};
use foldhash::{HashMap, HashMapExt};
use std::sync::Arc;
use tensor::{Result, Status};

/// Replaces every `_Arg` node by a `_Recv` from the client, and every `_Retval` node by a `_Send` to the client.
///
/// The graph must be placed. A feed is received on the device of its consumers if all are on the same one, else on that of the
/// fed node; a fetch is sent from the device that computes it. Neither passes through the master's device. `spec` is the one
/// that the graph was pruned for; its names become the `tensor_name`s. A tensor that is fetched twice under one name is sent
/// once. A fetch that is fed is not sent, since both ends would have the same key; the caller has its value
/// ([`RunSpec::fed_fetches`]).
pub fn rewrite_for_execution(
    graph: &mut NodeGraph,
    spec: &RunSpec,
    ops: &dyn OpLookup,
    incarnation: &dyn Fn(&str) -> u64,
) -> Result<()> {
    remove_fed_fetches(graph, spec);
    let terminals: Vec<NodeId> =
        graph.iter().filter(|(_, node)| matches!(node.op(), "_Arg" | "_Retval")).map(|(id, _)| id).collect();
    let consumers = graph.consumers();
    let mut replaced: HashMap<NodeId, NodeId> = HashMap::new();
    let mut sent: HashMap<&str, ()> = HashMap::new();
    for id in terminals {
        let node = graph.node(id);
        let is_feed = node.op() == "_Arg";
        let index = usize::try_from(node.attrs.int("index")?).unwrap_or(usize::MAX);
        let list = if is_feed { &spec.feeds } else { &spec.fetches };
        let Some((tensor_name, edge)) = list.get(index) else {
            return Err(Status::internal(format!("node '{}' is not of this run", node.name)));
        };
        let device = if is_feed {
            let mut devices = consumers[id.index()].iter().map(|(consumer, _)| &graph.node(*consumer).device);
            match devices.next() {
                Some(first) if devices.all(|device| device == first) => first.clone(),
                _ => node.device.clone(),
            }
        } else {
            let source = node.inputs.first().ok_or_else(|| Status::internal("a _Retval without an input"))?.node;
            graph.node(source).device.clone()
        };
        let dtype = node.attrs.dtype("T")?;
        let mut attrs = AttrMap::default();
        attrs.set(if is_feed { "tensor_type" } else { "T" }, dtype);
        attrs.set("tensor_name", tensor_name.as_str());
        attrs.set("send_device", device.as_str());
        attrs.set("recv_device", device.as_str());
        attrs.set("send_device_incarnation", incarnation(&device) as i64);
        attrs.set("client_terminated", true);
        let inputs = node.inputs.clone();
        let controls = node.control_inputs.clone();
        let (op, prefix) = if is_feed { ("_Recv", "_recv") } else { ("_Send", "_send") };
        // The fed node may not be in the graph any more, so its name is taken from the client's name for the tensor.
        let source = tensor_name.rsplit_once(':').map_or(tensor_name.as_str(), |(name, _)| name);
        let name = graph.unique_name(&format!("{prefix}_{source}_{}", edge.port));
        if !is_feed && sent.insert(tensor_name, ()).is_some() {
            graph.remove(id);
            continue;
        }
        let new = graph.add_op(ops, op, name, attrs, inputs, controls, device)?;
        graph.node_mut(new).explicit_attrs = Some(Arc::new(Vec::new()));
        replaced.insert(id, new);
    }
    let ids: Vec<NodeId> = graph.ids().collect();
    for id in ids {
        let node = graph.node_mut(id);
        for Edge { node: source, .. } in &mut node.inputs {
            if let Some(&new) = replaced.get(source) {
                *source = new;
            }
        }
        for control in &mut node.control_inputs {
            if let Some(&new) = replaced.get(control) {
                *control = new;
            }
        }
    }
    for old in replaced.into_keys() {
        graph.remove(old);
    }
    Ok(())
}

/// Removes each `_Retval` of a fed tensor, and each `_Arg` that nothing else uses.
fn remove_fed_fetches(graph: &mut NodeGraph, spec: &RunSpec) {
    let fed: Vec<i64> = spec.fed_fetches().into_iter().map(|(fetch, _)| fetch as i64).collect();
    let is_fed =
        |node: &Node| node.op() == "_Retval" && node.attrs.int("index").is_ok_and(|index| fed.contains(&index));
    let fetches: Vec<NodeId> = graph.iter().filter(|(_, node)| is_fed(node)).map(|(id, _)| id).collect();
    let mut feeds: Vec<NodeId> = Vec::new();
    for id in fetches {
        feeds.extend(graph.node(id).inputs.first().map(|edge| edge.node));
        graph.remove(id);
    }
    let consumers = graph.consumers();
    for id in feeds {
        if consumers[id.index()].is_empty() {
            graph.remove(id);
        }
    }
}
