//! [`write_graph`]: writes a graph to a file, in text or binary form.

use graph::Graph;
use proto::Message;
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Result, Status};

/// The name of the graph file that supervised sessions write beside the checkpoints, as TensorFlow's do.
pub(super) const GRAPH_FILE: &str = "graph.pbtxt";

/// Writes a graph's GraphDef to a directory, in protobuf's text form or in its binary one; returns the file's path.
///
/// ```
/// use ferroflow::train::write_graph;
/// use ferroflow::{Graph, Tensor};
///
/// let g = Graph::new();
/// g.constant_tensor(&Tensor::scalar(1f32));
/// let directory = std::env::temp_dir().join(format!("write_graph-{}", std::process::id()));
/// let path = write_graph(&g, &directory.to_string_lossy(), "graph.pbtxt", true)?;
/// assert!(std::fs::read_to_string(&path).is_ok_and(|text| text.contains("name: \"Const\"")));
/// # std::fs::remove_dir_all(directory).ok();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn write_graph(graph: &Graph, directory: &str, name: &str, as_text: bool) -> Result<String> {
    let def = graph.to_graph_def();
    let content = if as_text {
        let text = proto::text::format("tensorflow.GraphDef", &def);
        text.map_err(|error| Status::internal(format!("the graph has no text form: {error}")))?.into_bytes()
    } else {
        def.encode_to_vec()
    };
    let files = FileSystems::all();
    files.create_dir_all(directory)?;
    let path = path::join(directory, name);
    files.write_atomically(&path, &content)?;
    Ok(path)
}
