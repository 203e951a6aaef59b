//! [`ExpectedKeys`]: the transfers that the registered graphs of a worker receive by push, so that a tensor which somebody
//! pushes early can be told from one that nobody will ever want.

use crate::stream::PUSH_TO;
use foldhash::HashMap;
use graph::NodeGraph;
use parking_lot::Mutex;
use std::sync::Arc;

/// The transfers that registered graphs receive, each with the number of graphs that do.
#[derive(Default)]
pub(crate) struct ExpectedKeys {
    counts: Mutex<HashMap<Arc<str>, usize>>,
}

/// What one graph receives, for as long as it is registered.
pub(crate) struct Expectation {
    expected: Arc<ExpectedKeys>,
    keys: Vec<Arc<str>>,
}

impl ExpectedKeys {
    /// Returns whether a graph receives the transfer of this key, in whatever frame and iteration.
    pub fn contains(&self, key: &str) -> bool {
        key.rsplit_once(';').is_some_and(|(edge, _)| self.counts.lock().contains_key(edge))
    }

    /// Adds what a graph receives by push, until the result is dropped.
    pub fn add(self: &Arc<Self>, graph: &NodeGraph) -> Expectation {
        let mut keys: Vec<Arc<str>> = Vec::new();
        for (_, node) in graph.iter() {
            let attrs = &node.attrs;
            // A Send has the mark, too, and an input.
            if !node.inputs.is_empty() || attrs.string(PUSH_TO).is_err() {
                continue;
            }
            let (Ok(source), Ok(destination)) = (attrs.string("send_device"), attrs.string("recv_device")) else {
                continue;
            };
            let (Ok(incarnation), Ok(name)) = (attrs.int("send_device_incarnation"), attrs.string("tensor_name"))
            else {
                continue;
            };
            keys.push(format!("{source};{:016x};{destination};{name}", incarnation as u64).into());
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
