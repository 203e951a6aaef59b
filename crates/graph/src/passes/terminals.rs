//! Settles the `_Arg` and `_Retval` nodes of a pruned graph: where they run, and by which keys they are fed and fetched.

use super::RunSpec;
use crate::{Node, NodeGraph, NodeId};
use foldhash::{HashSet, HashSetExt};
use tensor::{Result, Status};

/// Gives every `_Arg` and `_Retval` node a device, and the attributes of a transfer from or to the client.
///
/// The graph must be placed. A feed is on the device of its consumers if all are on the same one, else on that of the fed node; a
/// fetch is on the device that computes it. Neither passes through the master's device. `spec` is the one that the graph was pruned
/// for; its names become the `tensor_name`s. A tensor that is fetched twice under one name is returned once. A fetch that is fed is
/// removed, since both would have the same key; the caller has its value ([`RunSpec::fed_fetches`]).
pub fn settle_terminals(graph: &mut NodeGraph, spec: &RunSpec, incarnation: &dyn Fn(&str) -> u64) -> Result<()> {
    remove_fed_fetches(graph, spec);
    let terminals: Vec<NodeId> =
        graph.iter().filter(|(_, node)| matches!(node.op(), "_Arg" | "_Retval")).map(|(id, _)| id).collect();
    let consumers = graph.consumers();
    let mut fetched: HashSet<&str> = HashSet::new();
    for id in terminals {
        let node = graph.node(id);
        let is_feed = node.op() == "_Arg";
        let index = usize::try_from(node.attrs.int("index")?).unwrap_or(usize::MAX);
        let list = if is_feed { &spec.feeds } else { &spec.fetches };
        let Some((tensor_name, _)) = list.get(index) else {
            return Err(Status::internal(format!("node '{}' is not of this run", node.name)));
        };
        if !is_feed && !fetched.insert(tensor_name) {
            graph.remove(id);
            continue;
        }
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
        let node = graph.node_mut(id);
        node.attrs.set("tensor_name", tensor_name.as_str());
        node.attrs.set("send_device", device.as_str());
        node.attrs.set("recv_device", device.as_str());
        node.attrs.set("send_device_incarnation", incarnation(&device) as i64);
        node.attrs.set("client_terminated", true);
        node.device = device;
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
