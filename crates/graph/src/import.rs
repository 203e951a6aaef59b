//! Imports GraphDefs: checks everything that may be wrong in a message from outside, and names the node in errors.

use crate::attr::{AttrMap, AttrNames};
use crate::graph::find_schema;
use crate::{Edge, FunctionLibrary, Node, NodeGraph, NodeId, OpLookup};
use foldhash::{HashMap, HashMapExt};
use proto::{GraphDef, NodeDef};
use std::sync::Arc;
use tensor::{Result, Status};

/// Adds a GraphDef's nodes to a graph, whose existing nodes they may have as inputs.
///
/// If the GraphDef has unknown ops, the error lists all of them with the nodes that use them. An error leaves the graph
/// unchanged.
pub fn import_graph_def(graph: &mut NodeGraph, def: &GraphDef, ops: &dyn OpLookup) -> Result<()> {
    let library = match &def.library {
        Some(library) => Arc::new(graph.library.extended(library)?),
        None => graph.library.clone(),
    };
    let base = graph.id_bound();
    check_number_of_nodes(base.saturating_add(def.node.len()))?;
    let mut by_name: HashMap<&str, NodeId> = HashMap::with_capacity(def.node.len());
    for (index, node) in def.node.iter().enumerate() {
        check_name(&node.name)?;
        if graph.find(&node.name).is_some() || by_name.contains_key(node.name.as_str()) {
            return Err(Status::invalid_argument(format!("Node '{}' is not unique", node.name)));
        }
        let id = u32::try_from(base + index).map_err(|_| Status::resource_exhausted("too many nodes"))?;
        by_name.insert(&node.name, NodeId(id));
    }
    let mut nodes = Vec::with_capacity(def.node.len());
    let mut unknown: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut names = AttrNames::default();
    let mut explicit_lists: HashMap<String, Arc<Vec<Arc<str>>>> = HashMap::new();
    let mut num_slots = 0;
    for node_def in &def.node {
        match find_schema(ops, &library, &node_def.op) {
            Some(schema) => {
                let attrs = AttrMap::from_def(&node_def.attr, &schema.attr_names, &mut names);
                let explicit: Vec<Arc<str>> = attrs.keys().cloned().collect();
                let mut node = Node::new(node_def.name.clone(), schema, node_def.device.clone(), attrs)?;
                check_arguments(&node, node_def, &mut num_slots)?;
                node.explicit_attrs = Some(shared_list(&mut explicit_lists, node.op(), explicit));
                node.debug_info = node_def.experimental_debug_info.clone();
                node.full_type = node_def.experimental_type.clone();
                resolve_inputs(&mut node, node_def, graph, &by_name)?;
                nodes.push(node);
            }
            None => match unknown.iter_mut().find(|(op, _)| *op == node_def.op) {
                Some((_, users)) => users.push(&node_def.name),
                None => unknown.push((&node_def.op, vec![&node_def.name])),
            },
        }
    }
    if !unknown.is_empty() {
        return Err(unknown_ops(&unknown));
    }
    let mut result = graph.clone();
    result.library = library;
    if def.versions.is_some() {
        result.versions = def.versions.clone();
    }
    for node in nodes {
        result.add(node)?;
    }
    for index in base..result.id_bound() {
        result.check_inputs(result.node(NodeId(index as u32)))?;
    }
    result.topological_order()?;
    *graph = result;
    Ok(())
}

impl NodeGraph {
    /// Returns a graph with the nodes of a GraphDef.
    pub fn from_graph_def(def: &GraphDef, ops: &dyn OpLookup) -> Result<NodeGraph> {
        let mut graph = NodeGraph::new(Arc::new(FunctionLibrary::default()));
        import_graph_def(&mut graph, def, ops)?;
        Ok(graph)
    }
}

/// The most nodes that a graph may have.
pub const NODES_MAX: usize = 1 << 22;

/// Rejects graphs of more than [`NODES_MAX`] nodes.
pub fn check_number_of_nodes(count: usize) -> Result<()> {
    if count > NODES_MAX {
        return Err(Status::resource_exhausted(format!(
            "a graph has at most {NODES_MAX} nodes, and this one has {count}"
        )));
    }
    Ok(())
}

/// The most inputs and outputs that the nodes of one GraphDef may have in total. An attribute of a few bytes can give a node a
/// million of them.
const SLOTS_MAX: usize = 1 << 26;

/// Rejects a node whose attributes ask for more inputs than its NodeDef names, and too many inputs and outputs in total.
fn check_arguments(node: &Node, def: &NodeDef, num_slots: &mut usize) -> Result<()> {
    if node.input_types.len() > def.input.len() {
        return Err(Status::invalid_argument(format!(
            "Node '{}': op {} takes {} inputs, but {} were given",
            node.name,
            node.op(),
            node.input_types.len(),
            def.input.iter().filter(|input| !input.starts_with('^')).count()
        )));
    }
    *num_slots += node.input_types.len() + node.output_types.len();
    if *num_slots > SLOTS_MAX {
        return Err(Status::resource_exhausted(format!(
            "the nodes of a graph up to '{}' have more than {SLOTS_MAX} inputs and outputs",
            node.name
        )));
    }
    Ok(())
}

/// Returns a shared list equal to the given one: that of another node of the same op, if the two are equal, as most are.
fn shared_list(lists: &mut HashMap<String, Arc<Vec<Arc<str>>>>, op: &str, list: Vec<Arc<str>>) -> Arc<Vec<Arc<str>>> {
    if let Some(known) = lists.get(op).filter(|known| ***known == list) {
        return known.clone();
    }
    let list = Arc::new(list);
    lists.insert(op.to_owned(), list.clone());
    list
}

fn resolve_inputs(node: &mut Node, def: &NodeDef, graph: &NodeGraph, by_name: &HashMap<&str, NodeId>) -> Result<()> {
    let find = |name: &str| {
        by_name
            .get(name)
            .copied()
            .or_else(|| graph.find(name))
            .ok_or_else(|| Status::invalid_argument(format!("Node '{}': Unknown input node '{name}'", def.name)))
    };
    for input in &def.input {
        if let Some(name) = input.strip_prefix('^') {
            let id = find(name)?;
            if !node.control_inputs.contains(&id) {
                node.control_inputs.push(id);
            }
            continue;
        }
        if !node.control_inputs.is_empty() {
            return Err(Status::invalid_argument(format!(
                "Node '{}': Control dependencies must come after regular dependencies",
                def.name
            )));
        }
        let (name, port) = parse_tensor_name(input)
            .map_err(|_| Status::invalid_argument(format!("Node '{}': malformed input '{input}'", def.name)))?;
        node.inputs.push(Edge { node: find(name)?, port });
    }
    Ok(())
}

/// Splits `name:port`; the port is 0 if missing.
pub(crate) fn parse_tensor_name(text: &str) -> Result<(&str, u32)> {
    match text.rsplit_once(':') {
        None => Ok((text, 0)),
        Some((name, port)) => match port.parse() {
            Ok(port) if !name.is_empty() => Ok((name, port)),
            _ => Err(Status::invalid_argument(format!("'{text}' is not a valid tensor name"))),
        },
    }
}

fn check_name(name: &str) -> Result<()> {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    let rest = |c: char| first(c) || matches!(c, '/' | '\\' | '-' | '>');
    if name.chars().next().is_some_and(first) && name.chars().all(rest) {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("Illegal op name '{name}'")))
}

/// Returns why only the client's process can run an op, for ops that call back into the program that built the graph.
pub fn why_only_the_client_runs(op: &str) -> Option<&'static str> {
    const REASON: &str = "calls a function of the client's Python program: that is not in this process";
    OPS_OF_THE_CLIENT.contains(&op).then_some(REASON)
}

const OPS_OF_THE_CLIENT: [&str; 1] = ["EagerPyFunc"];

/// Returns an error that lists all unknown ops and the nodes that use them.
pub(crate) fn unknown_ops(unknown: &[(&str, Vec<&str>)]) -> Status {
    const SHOWN: usize = 5;
    let mut lines: Vec<String> = Vec::new();
    for (op, users) in unknown {
        let more = if users.len() > SHOWN { format!(" and {} more", users.len() - SHOWN) } else { String::new() };
        let why = why_only_the_client_runs(op).map(|reason| format!(", which {reason}")).unwrap_or_default();
        lines.push(format!("'{op}' (node {}{more}){why}", users[..users.len().min(SHOWN)].join(", ")));
    }
    Status::not_found(format!(
        "Op type not registered: {}. `ferroflow check SCRIPT.py` says beforehand what of a program can't run",
        lines.join("; ")
    ))
}
