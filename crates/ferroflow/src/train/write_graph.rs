//! [`write_graph`]: a graph as a file, in text or in binary.

use graph::GraphBuilder;
use prost::Message;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage};
use storage::file_system::{FileSystem, FileSystems, path};
use tensor::{Result, Status};

/// The name under which supervised sessions leave their graph beside the checkpoints, as TensorFlow's do.
pub(super) const GRAPH_FILE: &str = "graph.pbtxt";

/// Writes a graph's GraphDef into a directory, in protobuf's text form or in its binary one; returns the file's path.
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
pub fn write_graph(graph: &GraphBuilder, directory: &str, name: &str, as_text: bool) -> Result<String> {
    let bytes = graph.to_graph_def().encode_to_vec();
    let content = if as_text { to_text("tensorflow.GraphDef", &bytes)?.into_bytes() } else { bytes };
    let files = FileSystems::local();
    files.create_dir_all(directory)?;
    let path = path::join(directory, name);
    files.write_atomically(&path, &content)?;
    Ok(path)
}

/// Returns the text form of an encoded message.
fn to_text(message: &str, bytes: &[u8]) -> Result<String> {
    let internal = |error: &dyn std::fmt::Display| Status::internal(format!("{message} has no text form: {error}"));
    let pool = DescriptorPool::decode(proto::DESCRIPTORS).map_err(|error| internal(&error))?;
    let descriptor = pool.get_message_by_name(message).ok_or_else(|| internal(&"it is not known"))?;
    let message = DynamicMessage::decode(descriptor, bytes).map_err(|error| internal(&error))?;
    Ok(message.to_text_format_with_options(&FormatOptions::new().pretty(true)))
}
