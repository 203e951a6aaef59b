//! [`Graph`]: a graph under construction that knows all ops.

use graph::Graph;
use std::ops::Deref;

/// A graph under construction; cloning shares it. Everything that a
/// [`Graph`] can do (name scopes, devices, control dependencies, collections, gradients) it can do too.
#[derive(Clone)]
pub struct Graph(Graph);

impl Graph {
    /// Makes an empty graph.
    pub fn new() -> Graph {
        Graph(Graph::with_ops(ops::registry()))
    }
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl Deref for Graph {
    type Target = Graph;
    fn deref(&self) -> &Graph {
        &self.0
    }
}

impl From<Graph> for Graph {
    fn from(builder: Graph) -> Graph {
        Graph(builder)
    }
}
