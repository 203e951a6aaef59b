//! [`ExpectedKeys`]: the transfers that a worker's registered graphs receive by push, which distinguish a tensor that was pushed
//! early from one that nobody will ever want.

use foldhash::HashMap;
use graph::NodeGraph;
use kernel::{RendezvousKey, Transfer};
use parking_lot::Mutex;
use std::sync::Arc;

/// The transfers that registered graphs receive, each with the number of graphs that do.
#[derive(Default)]
pub(crate) struct ExpectedKeys {
    counts: Mutex<HashMap<Arc<str>, usize>>,
}

/// The transfers of one graph, as long as it is registered.
pub(crate) struct Expectation {
    expected: Arc<ExpectedKeys>,
    keys: Vec<Arc<str>>,
}

impl ExpectedKeys {
    /// Returns whether a graph receives the transfer of this key, in any frame and iteration.
    pub fn contains(&self, key: &str) -> bool {
        RendezvousKey::edge_of(key).is_some_and(|edge| self.counts.lock().contains_key(edge))
    }

    /// Adds what a graph receives by push, until the result is dropped.
    pub fn add(self: &Arc<Self>, graph: &NodeGraph) -> Expectation {
        let mut keys: Vec<Arc<str>> = Vec::new();
        for (_, node) in graph.iter() {
            // A Send has the attribute, too, and an input.
            if node.inputs.is_empty()
                && let Ok(transfer) = Transfer::new(&node.attrs)
                && transfer.key().push_to().is_some()
            {
                keys.push(transfer.edge().into());
            }
        }
        let mut counts = self.counts.lock();
        for key in &keys {
            match counts.get_mut(key) {
                Some(count) => *count += 1,
                None => drop(counts.insert(key.clone(), 1)),
            }
        }
        drop(counts);
        Expectation { expected: self.clone(), keys }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        let mut counts = self.expected.counts.lock();
        for key in &self.keys {
            if let Some(count) = counts.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(key);
                }
            }
        }
    }
}
