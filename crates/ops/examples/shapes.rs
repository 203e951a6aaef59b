//! Reads a GraphDef from a file and prints the shape of every output as it is inferred, one a line: the output's name, a
//! tab, and the sizes, `?` where unknown. The interop tests compare them with TensorFlow's. With a second file, writes the
//! graph there as it was read, which must be the same.

use graph::NodeGraph;
use graph::shape::infer_shapes;
use prost::Message;
use proto::GraphDef;
use std::process::ExitCode;
use tensor::{Result, Status};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [path] => read(path).and_then(print),
        [path, copy] => read(path).and_then(|def| write(&def, copy)),
        _ => Err(Status::invalid_argument("which file?")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str) -> Result<GraphDef> {
    let bytes = std::fs::read(path).map_err(|error| Status::not_found(format!("{path}: {error}")))?;
    GraphDef::decode(&bytes[..]).map_err(|error| Status::data_loss(format!("{path}: {error}")))
}

fn write(def: &GraphDef, path: &str) -> Result<()> {
    let graph = NodeGraph::from_graph_def(def, ops::registry())?;
    let bytes = graph.to_graph_def().encode_to_vec();
    std::fs::write(path, bytes).map_err(|error| Status::unavailable(format!("{path}: {error}")))
}

fn print(mut def: GraphDef) -> Result<()> {
    // What the file says of shapes must not help.
    for node in &mut def.node {
        node.attr.remove("_output_shapes");
    }
    let graph = NodeGraph::from_graph_def(&def, ops::registry())?;
    let (shapes, errors) = infer_shapes(&graph, ops::registry())?;
    if let Some((id, status)) = errors.into_iter().next() {
        return Err(status.with_node(&graph.node(id).name));
    }
    for (id, node) in graph.iter() {
        for (port, shape) in shapes.output_shapes(id).into_iter().enumerate() {
            let sizes = shape.dims().map(|dims| {
                let sizes = dims.iter().map(|dim| dim.map_or("?".to_owned(), |size| size.to_string()));
                sizes.collect::<Vec<_>>().join(",")
            });
            println!("{}:{port}\t{}", node.name, sizes.map_or("unknown".to_owned(), |sizes| format!("[{sizes}]")));
        }
    }
    Ok(())
}
