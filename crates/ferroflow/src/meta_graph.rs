//! [`MetaGraph`]: a graph with its collections and its saver, TensorFlow's file format for both.

use prost::Message;
use proto::MetaGraphDef;
use tensor::{Result, Status};

/// A graph with its collections and its saver, as TensorFlow writes it beside checkpoints.
///
/// ```
/// use ferroflow::train::meta_graph::{MetaGraph, export_meta_graph, import_meta_graph};
/// use ferroflow::{Graph, Session};
///
/// let g = Graph::new();
/// let answer = g.constant(42);
/// let file = export_meta_graph(&g, None).to_bytes();
///
/// let copy = Graph::new();
/// import_meta_graph(&copy, &MetaGraph::from_bytes(&file)?)?;
/// assert_eq!(Session::new(&copy)?.eval::<i32>(&copy.output(&answer.name())?)?, 42);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaGraph(pub(crate) MetaGraphDef);

impl MetaGraph {
    /// Parses the content of a file.
    ///
    /// ```
    /// use ferroflow::train::meta_graph::MetaGraph;
    ///
    /// assert!(MetaGraph::from_bytes(b"anything").is_err());
    /// ```
    pub fn from_bytes(content: &[u8]) -> Result<MetaGraph> {
        let def = MetaGraphDef::decode(content);
        def.map(MetaGraph).map_err(|error| Status::data_loss(format!("not a MetaGraph: {error}")))
    }

    /// Returns the content of a file.
    ///
    /// ```
    /// use ferroflow::train::meta_graph::MetaGraph;
    ///
    /// assert!(MetaGraph::default().to_bytes().is_empty());
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }

    /// Removes the devices of all nodes, as `clear_devices=True` does in TensorFlow, so that a graph that was built for a cluster
    /// runs anywhere.
    ///
    /// ```
    /// use ferroflow::train::meta_graph::{export_meta_graph, import_meta_graph};
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let answer = g.device("/job:ps/task:0", |g| g.constant(42));
    /// let copy = Graph::new();
    /// import_meta_graph(&copy, &export_meta_graph(&g, None).clear_devices())?;
    /// assert_eq!(Session::new(&copy)?.eval::<i32>(&copy.output(&answer.name())?)?, 42);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn clear_devices(mut self) -> MetaGraph {
        if let Some(graph) = &mut self.0.graph_def {
            let functions = graph.library.iter_mut().flat_map(|library| &mut library.function);
            let nodes = graph.node.iter_mut().chain(functions.flat_map(|function| &mut function.node_def));
            nodes.for_each(|node| node.device.clear());
        }
        self
    }
}

impl From<MetaGraphDef> for MetaGraph {
    fn from(def: MetaGraphDef) -> MetaGraph {
        MetaGraph(def)
    }
}

impl From<MetaGraph> for MetaGraphDef {
    fn from(meta: MetaGraph) -> MetaGraphDef {
        meta.0
    }
}
