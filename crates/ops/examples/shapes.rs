//! Reads a GraphDef from a file and prints the shape of every output as it is inferred, one a line: the output's name, a
//! tab, and the sizes, `?` where unknown. The interop tests compare them with TensorFlow's.

use graph::Graph;
use graph::shape::infer_shapes;
use prost::Message;
use std::process::ExitCode;
use tensor::{Result, Status};

fn main() -> ExitCode {
    match std::env::args().nth(1).ok_or_else(|| Status::invalid_argument("which file?")).and_then(|path| print(&path)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}

fn print(path: &str) -> Result<()> {
    let bytes = std::fs::read(path).map_err(|error| Status::not_found(format!("{path}: {error}")))?;
    let mut def = proto::GraphDef::decode(&bytes[..]).map_err(|error| Status::data_loss(format!("{path}: {error}")))?;
    // What the file says of shapes must not help.
    for node in &mut def.node {
        node.attr.remove("_output_shapes");
    }
    let graph = Graph::from_graph_def(&def, ops::registry())?;
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
