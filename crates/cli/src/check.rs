//! `ferroflow check FILE`: describes a GraphDef, MetaGraphDef or SavedModel, and lists the ops that can't run.

use crate::Failure;
use graph::{AttrMap, Node, NodeGraph, OpLookup};
use proto::{GraphDef, Message, MetaGraphDef, NodeDef, SavedModel};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tensor::{DType, PartialShape};

/// The problems found.
#[derive(Default)]
struct Problems {
    /// The number of ops that can't run.
    ops: usize,
    /// The number of invalid graphs.
    graphs: usize,
}

/// The content of a file.
enum Contents {
    Graph(Box<GraphDef>),
    MetaGraph(Box<MetaGraphDef>),
    SavedModel(Box<SavedModel>),
}

/// Describes the file; fails if it has ops that can't run.
pub fn run(path: &Path) -> Result<(), Failure> {
    let file = if path.is_dir() { saved_model_in(path)? } else { path.to_owned() };
    run_as(&file, &file.display().to_string())
}

/// As [`run`], with another name for the file in the output.
pub fn run_as(file: &Path, name: &str) -> Result<(), Failure> {
    let bytes = std::fs::read(file).map_err(|error| Failure::new(format!("can't read {name}: {error}")))?;
    let contents = recognize(&bytes)
        .map_or_else(|| recognize_text(&bytes), Ok)
        .map_err(|reason| Failure::new(format!("{name} is not a GraphDef, MetaGraphDef or SavedModel: {reason}")))?;
    let mut problems = Problems::default();
    match &contents {
        Contents::Graph(graph) => {
            crate::say!("{name}: GraphDef");
            describe_graph(graph, &mut problems);
        }
        Contents::MetaGraph(meta) => {
            crate::say!("{name}: MetaGraphDef");
            describe_meta_graph(meta, &mut problems);
        }
        Contents::SavedModel(model) => {
            crate::say!("{name}: SavedModel, {} MetaGraph(s)", model.meta_graphs.len());
            for meta in &model.meta_graphs {
                describe_meta_graph(meta, &mut problems);
            }
        }
    }
    if problems.ops > 0 {
        return Err(Failure::new(format!("{} op(s) can't be run", problems.ops)));
    }
    if problems.graphs > 0 {
        return Err(Failure::new(format!("{} graph(s) can't be run", problems.graphs)));
    }
    crate::say!("every op can be run");
    Ok(())
}

/// Detects which of the three messages it is: field 1 is a number in a SavedModel, a node in a GraphDef, and neither in a
/// MetaGraphDef.
fn recognize(bytes: &[u8]) -> Option<Contents> {
    if let Ok(model) = SavedModel::decode(bytes)
        && !model.meta_graphs.is_empty()
    {
        return Some(Contents::SavedModel(Box::new(model)));
    }
    if let Ok(graph) = GraphDef::decode(bytes)
        && !graph.node.is_empty()
        && graph.node.iter().all(|node| !node.op.is_empty() && !node.name.is_empty())
    {
        return Some(Contents::Graph(Box::new(graph)));
    }
    let meta = MetaGraphDef::decode(bytes).ok()?;
    meta.graph_def.is_some().then(|| Contents::MetaGraph(Box::new(meta)))
}

/// Parses the text form of whichever message the text looks like; the error says why it isn't one.
fn recognize_text(bytes: &[u8]) -> Result<Contents, String> {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| !text.trim().is_empty())
        .ok_or_else(|| format!("its {} bytes are neither the binary form nor the text form", bytes.len()))?;
    let read = if text.contains("meta_graphs") {
        proto::text::parse("tensorflow.SavedModel", text).map(|model| Contents::SavedModel(Box::new(model)))
    } else if text.contains("graph_def") {
        proto::text::parse("tensorflow.MetaGraphDef", text).map(|meta| Contents::MetaGraph(Box::new(meta)))
    } else {
        proto::text::parse("tensorflow.GraphDef", text).map(|graph| Contents::Graph(Box::new(graph)))
    };
    read.map_err(|error| format!("it is not the binary form, and as text it is wrong at {error}"))
}

/// Returns the file in a SavedModel's directory: the binary one, unless there is only the text form.
fn saved_model_in(directory: &Path) -> Result<PathBuf, Failure> {
    let files = ["saved_model.pb", "saved_model.pbtxt"].map(|name| directory.join(name));
    let none = || Failure::new(format!("{} has no saved_model.pb or saved_model.pbtxt", directory.display()));
    files.into_iter().find(|file| file.exists()).ok_or_else(none)
}

fn describe_meta_graph(meta: &MetaGraphDef, problems: &mut Problems) {
    if let Some(info) = &meta.meta_info_def {
        crate::say!("  tags: {}; written by TensorFlow {}", info.tags.join(", "), info.tensorflow_version);
    }
    for (name, signature) in &meta.signature_def {
        let list = |tensors: &BTreeMap<String, proto::TensorInfo>| {
            let one = |(name, info): (&String, &proto::TensorInfo)| {
                let dtype = DType::from_i32(info.dtype).map_or("?", DType::name);
                let shape = info.tensor_shape.as_ref().and_then(|shape| PartialShape::from_proto(shape).ok());
                format!("{name}: {dtype} {}", shape.unwrap_or_default())
            };
            tensors.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        crate::say!("  signature {name}: ({}) -> ({})", list(&signature.inputs), list(&signature.outputs));
    }
    for name in meta.collection_def.keys() {
        crate::say!("  collection {name}");
    }
    for asset in &meta.asset_file_def {
        let tensor = asset.tensor_info.as_ref().and_then(|info| match &info.encoding {
            Some(proto::tensor_info::Encoding::Name(name)) => Some(format!(" for {name}")),
            _ => None,
        });
        crate::say!("  asset {}{}", asset.filename, tensor.unwrap_or_default());
    }
    if let Some(graph) = &meta.graph_def {
        describe_graph(graph, problems);
    }
}

fn describe_graph(graph: &GraphDef, found: &mut Problems) {
    let functions = graph.library.as_ref().map_or(&[][..], |library| &library.function);
    crate::say!("  {} nodes, {} functions", graph.node.len(), functions.len());
    let devices: BTreeSet<&str> =
        graph.node.iter().map(|node| node.device.as_str()).filter(|device| !device.is_empty()).collect();
    for device in devices {
        crate::say!("  device {device}");
    }
    for node in graph.node.iter().filter(|node| node.op.starts_with("Placeholder")) {
        let attrs = AttrMap::from(&node.attr);
        let dtype = attrs.dtype("dtype").map_or("?", DType::name);
        crate::say!("  input {}: {dtype} {}", node.name, attrs.shape("shape").unwrap_or_default());
    }
    let names: BTreeSet<&str> =
        functions.iter().filter_map(|function| function.signature.as_ref()).map(|s| s.name.as_str()).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut problems: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let bodies = functions.iter().flat_map(|function| &function.node_def);
    for (node, in_body) in graph.node.iter().map(|node| (node, false)).chain(bodies.map(|node| (node, true))) {
        if names.contains(node.op.as_str()) {
            continue;
        }
        *counts.entry(&node.op).or_default() += 1;
        if let Some(problem) = problem_of(node, in_body) {
            problems.entry(problem).or_default().push(&node.name);
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let list: Vec<String> = counts.iter().map(|(op, count)| format!("{op} {count}")).collect();
    crate::say!("  ops: {}", list.join(", "));
    for (problem, nodes) in &problems {
        const SHOWN: usize = 5;
        let more = if nodes.len() > SHOWN { format!(" and {} more", nodes.len() - SHOWN) } else { String::new() };
        crate::say!("  can't run: {problem}; nodes {}{more}", nodes[..nodes.len().min(SHOWN)].join(", "));
    }
    found.ops += problems.len();
    // A graph with unknown ops can't be checked as a whole.
    if problems.is_empty()
        && let Err(status) = NodeGraph::from_graph_def(graph, ops::registry())
    {
        crate::say!("  wrong: {}", status.message());
        found.graphs += 1;
    }
}

/// Returns why a node can't run. Some attributes in a function's body are set only by a call, so there only the op is checked.
fn problem_of(def: &NodeDef, in_body: bool) -> Option<String> {
    let registry = ops::registry();
    let Some(info) = registry.op(&def.op) else {
        return Some(match graph::why_only_the_client_runs(&def.op) {
            Some(reason) => format!("op {} {reason}", def.op),
            None => format!("op {} is unknown", def.op),
        });
    };
    if in_body {
        return None;
    }
    match Node::new(def.name.clone(), info.schema.clone(), String::new(), AttrMap::from(&def.attr)) {
        Err(status) => Some(format!("op {}: {}", def.op, status.message())),
        Ok(node) if !registry.has_kernel(&node) => {
            let types: Vec<String> = info
                .schema
                .attrs
                .iter()
                .filter_map(|attr| Some(format!("{}={}", attr.name, node.attrs.dtype(&attr.name).ok()?)))
                .collect();
            Some(format!("op {} has no kernel for {}", def.op, types.join(", ")))
        }
        Ok(_) => None,
    }
}
