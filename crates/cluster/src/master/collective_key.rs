//! The graph key by which the steps of graphs with collective ops are numbered. Masters that don't know each other must compute
//! the same key for graphs whose ops meet, so it depends only on the ops' own keys, as in TensorFlow.

use graph::{AttrMap, NodeGraph, OpFlags, OpLookup, OpSchema};
use std::collections::BTreeSet;

/// The initial value of the key, and the key of graphs whose ops get theirs as inputs.
const BASIS: u64 = 0x8774_aa60_5c72_9c72;

/// The attribute or input that names a collective op within its group.
const INSTANCE_KEY: &str = "instance_key";

/// The input or output for a group that a device has joined.
const COMMUNICATOR: &str = "communicator";

/// Returns the key of a pruned graph; `None` if it has no collective ops.
pub(crate) fn collective_graph_key(graph: &NodeGraph, ops: &dyn OpLookup) -> Option<i64> {
    let mut instance_keys = BTreeSet::new();
    let mut is_collective = false;
    let mut note = |schema: &OpSchema, attrs: &AttrMap| {
        if !schema.flags.contains(OpFlags::DISTRIBUTED_COMMUNICATION) {
            return;
        }
        if let Ok(key) = attrs.int(INSTANCE_KEY) {
            instance_keys.insert(key as i32);
        }
        let is_named = |name: &str| name == INSTANCE_KEY || name == COMMUNICATOR;
        is_collective |= schema.inputs.iter().chain(&schema.outputs).any(|arg| is_named(&arg.name));
    };
    for (_, node) in graph.iter() {
        note(&node.schema, &node.attrs);
        let Some(function) = graph.library.get(node.op()) else { continue };
        for def in &function.node_def {
            if let Some(info) = ops.op(&def.op) {
                note(&info.schema, &AttrMap::from_def(&def.attr, &info.schema.attr_names, &mut Default::default()));
            }
        }
    }
    match instance_keys.is_empty() {
        false => Some(instance_keys.into_iter().fold(BASIS, |hash, key| combined(key as i64 as u64, hash)) as i64),
        true => is_collective.then_some(BASIS as i64),
    }
}

fn combined(value: u64, hash: u64) -> u64 {
    value ^ hash.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(value << 10).wrapping_add(value >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<i64> {
        collective_graph_key(&NodeGraph::from_text(text, ops::registry()).unwrap(), ops::registry())
    }

    fn reduce(name: &str, instance_key: i32) -> String {
        format!(
            "{name} = CollectiveReduce(c) {{T=float, group_key=1, group_size=2, instance_key={instance_key}, \
             merge_op=\"Add\", final_op=\"Id\", subdiv_offsets=[]}}\n"
        )
    }

    #[test]
    fn the_key_follows_from_the_keys_of_the_ops_in_any_order() {
        let constant = "c = Placeholder() {dtype=float}\n";
        assert_eq!(key(constant), None);
        let (one, two) = (reduce("a", 3), reduce("b", 7));
        let both = key(&format!("{constant}{one}{two}")).unwrap();
        assert_eq!(both, key(&format!("{constant}{}{}", reduce("b", 7), reduce("a", 3))).unwrap());
        let single = key(&format!("{constant}{one}")).unwrap();
        assert_ne!(both, single);
        assert_eq!(single as u64, 3 ^ BASIS.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(3 << 10));
    }
}
