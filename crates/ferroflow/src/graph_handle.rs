//! [`Graph`]: a graph under construction that knows all ops.

use graph::GraphBuilder;
use std::ops::Deref;

/// A graph under construction; cloning shares it. Everything that a
/// [`GraphBuilder`] can do (name scopes, devices, control dependencies, collections, gradients) it can do too.
#[derive(Clone)]
pub struct Graph(GraphBuilder);

impl Graph {
    /// Makes an empty graph.
    pub fn new() -> Graph {
        Graph(GraphBuilder::new(ops::registry()))
    }
}

impl Default for Graph {
    fn default() -> Self {
        Graph::new()
    }
}

impl Deref for Graph {
    type Target = GraphBuilder;
    fn deref(&self) -> &GraphBuilder {
        &self.0
    }
}

impl From<GraphBuilder> for Graph {
    fn from(builder: GraphBuilder) -> Graph {
        Graph(builder)
    }
}
