//! The cost graph of a step, which clients request with `GraphOptions.build_cost_model`: the measured costs of each node.

use foldhash::{HashMap, HashMapExt};
use graph::{Edge, Node, NodeGraph, NodeId, TypeSlot};
use kernel::OpRegistry;
use proto::cost_graph_def::node::{InputInfo, OutputInfo};
use proto::{ConfigProto, CostGraphDef, GraphDef, NodeExecStats, StepStats, TensorShapeProto, cost_graph_def};

/// The size that TensorFlow reports for an output that no step has computed.
const UNKNOWN_BYTES: i64 = -1;

/// Returns whether the costs of a run's step are requested; `count` is the number of its earlier steps.
pub(super) fn is_wanted(config: &ConfigProto, count: i64) -> bool {
    let Some(options) = &config.graph_options else { return false };
    let every = options.build_cost_model;
    every > 0 && count.saturating_add(1).wrapping_sub(options.build_cost_model_after) % every == 0
}

/// Returns whether a session requests the costs of any steps.
pub(super) fn is_ever_wanted(config: &ConfigProto) -> bool {
    config.graph_options.as_ref().is_some_and(|options| options.build_cost_model > 0)
}

/// Returns the costs of the nodes of some partitions.
pub(super) fn cost_graph(partitions: &[GraphDef], stats: &StepStats, registry: &OpRegistry) -> CostGraphDef {
    let mut measured: HashMap<(&str, &str), &NodeExecStats> = HashMap::new();
    for device in &stats.dev_stats {
        for node in &device.node_stats {
            let slot = measured.entry((&device.device, &node.node_name)).or_insert(node);
            // A node of a loop runs several times: its longest run counts.
            if micros(node) > micros(slot) {
                *slot = node;
            }
        }
    }
    let mut costs = CostGraphDef::default();
    for partition in partitions {
        // A TensorFlow task may report ops that its own passes have added, whose outputs are unknown here.
        let Ok(graph) = NodeGraph::from_graph_def(partition, registry) else { continue };
        let offset = costs.node.len() as i32;
        let ids: HashMap<NodeId, i32> = graph.ids().zip(offset..).collect();
        for (id, node) in graph.iter() {
            let stats = measured.get(&(node.device.as_str(), node.name.as_str())).copied();
            let global = |id: &NodeId| ids.get(id).copied().unwrap_or(UNKNOWN_ID);
            let input =
                |edge: &Edge| InputInfo { preceding_node: global(&edge.node), preceding_port: edge.port as i32 };
            costs.node.push(cost_graph_def::Node {
                name: node.name.clone(),
                device: node.device.clone(),
                id: global(&id),
                input_info: node.inputs.iter().map(input).collect(),
                output_info: outputs(node, stats),
                control_input: node.control_inputs.iter().map(global).collect(),
                compute_cost: stats.map_or(0, micros),
                is_final: node.op() == "_Send",
                ..Default::default()
            });
        }
    }
    costs
}

/// The id of a node that isn't in the graph.
const UNKNOWN_ID: i32 = -1;

fn outputs(node: &Node, stats: Option<&NodeExecStats>) -> Vec<OutputInfo> {
    let output = |(index, slot): (usize, &TypeSlot)| {
        let made = stats.and_then(|stats| stats.output.iter().find(|output| output.slot as usize == index));
        let description = made.and_then(|output| output.tensor_description.as_ref());
        let allocation = description.and_then(|description| description.allocation_description.as_ref());
        let unknown = || TensorShapeProto { unknown_rank: true, ..Default::default() };
        OutputInfo {
            size: allocation.map_or(UNKNOWN_BYTES, |allocation| allocation.requested_bytes),
            alias_input_port: -1,
            shape: Some(description.and_then(|description| description.shape.clone()).unwrap_or_else(unknown)),
            dtype: slot.dtype as i32,
        }
    };
    node.output_types.iter().enumerate().map(output).collect()
}

fn micros(node: &NodeExecStats) -> i64 {
    node.op_end_rel_micros.saturating_sub(node.op_start_rel_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::GraphOptions;

    #[test]
    fn every_third_step_after_the_second() {
        let graph_options = GraphOptions { build_cost_model: 3, build_cost_model_after: 2, ..Default::default() };
        let config = ConfigProto { graph_options: Some(graph_options), ..Default::default() };
        let wanted: Vec<i64> = (0..10).filter(|&count| is_wanted(&config, count)).collect();
        assert_eq!(wanted, [1, 4, 7]);
        assert!(!is_wanted(&ConfigProto::default(), 0));
    }
}
