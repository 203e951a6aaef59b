//! Functions of datasets: separate graphs in the library of the graph whose datasets call them.

use graph::{Edge, Graph, NodeGraph, NodeId, Operation, Output};
use proto::op_def::ArgDef;
use proto::{FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tensor::{DType, PartialShape, Result, Status};

/// A function in a graph's library.
pub(super) struct Function {
    name: String,
    /// The types of its results.
    pub types: Vec<DType>,
    /// The shapes of its results.
    pub shapes: Vec<PartialShape>,
}

/// Counts the functions of a graph and of its functions' graphs, so that their names are unique.
#[derive(Default)]
struct FunctionCount(OnceLock<Arc<AtomicU64>>);

impl Function {
    /// Adds a function to a graph's library: `build` receives its arguments and returns its results.
    pub(super) fn define(
        graph: &Graph,
        label: &str,
        args: &[(DType, PartialShape)],
        build: impl FnOnce(&Graph, &[Output]) -> Vec<Output>,
    ) -> Result<Function> {
        let body = Graph::with_ops(graph.ops());
        let count = graph.extension::<FunctionCount>().0.get_or_init(Arc::default).clone();
        let _ = body.extension::<FunctionCount>().0.set(count.clone());
        let arguments: Vec<Output> = args
            .iter()
            .enumerate()
            .map(|(index, (dtype, shape))| {
                let argument = body.op("Placeholder").name(&argument_name(index));
                argument.attr("dtype", *dtype).attr("shape", shape.clone()).output()
            })
            .collect();
        let results = build(&body, &arguments);
        body.finish()?;
        if let Some(foreign) = results.iter().find(|result| !result.graph().same(&body)) {
            return Err(Status::invalid_argument(format!(
                "'{}' is of another graph: a function returns what it has made of its arguments",
                foreign.name()
            )));
        }
        let types = results.iter().map(Output::dtype).collect();
        let shapes = results.iter().map(Output::shape).collect();
        let name = format!("Dataset_{label}_{}", count.fetch_add(1, Ordering::Relaxed));
        let args: Vec<NodeId> = arguments.iter().map(|argument| argument.edge().node).collect();
        let edges: Vec<Edge> = results.iter().map(Output::edge).collect();
        let nodes = body.graph();
        let def = to_def(&name, &nodes, nodes.ids().collect(), &args, &edges)?;
        add(graph, nodes.library.to_proto(), def)?;
        Ok(Function { name, types, shapes })
    }

    /// Adds a function without arguments that computes one output of the graph.
    pub(super) fn copied(graph: &Graph, label: &str, output: &Output) -> Result<Function> {
        let nodes = graph.graph();
        let needed = ancestors(&nodes, output.edge().node)?;
        let count = graph.extension::<FunctionCount>().0.get_or_init(Arc::default).clone();
        let name = format!("Dataset_{label}_{}", count.fetch_add(1, Ordering::Relaxed));
        let def = to_def(&name, &nodes, needed, &[], &[output.edge()])?;
        add(graph, FunctionDefLibrary::default(), def)?;
        Ok(Function { name, types: vec![output.dtype()], shapes: vec![output.shape()] })
    }

    /// Returns the attribute that refers to the function.
    pub(super) fn attr(&self) -> NameAttrList {
        NameAttrList { name: self.name.clone(), ..Default::default() }
    }
}

fn argument_name(index: usize) -> String {
    format!("args_{index}")
}

fn add(graph: &Graph, mut library: FunctionDefLibrary, def: FunctionDef) -> Result<()> {
    library.function.push(def);
    graph.import(&GraphDef { library: Some(library), ..Default::default() })
}

/// Returns a node with everything that it depends on. Placeholders, and nodes with state that the graph shares, can't be copied.
fn ancestors(nodes: &NodeGraph, of: NodeId) -> Result<Vec<NodeId>> {
    let mut pending = vec![of];
    let mut needed = std::collections::BTreeSet::new();
    while let Some(id) = pending.pop() {
        if !needed.insert(id) {
            continue;
        }
        let node = nodes.node(id);
        let is_shared = node.output_types.iter().any(|slot| slot.is_ref || slot.dtype == DType::Resource);
        if is_shared || node.op().starts_with("Placeholder") {
            return Err(Status::invalid_argument(format!(
                "a one-shot iterator can't depend on '{}' (op {}), which has state or is fed: use an initializable iterator",
                node.name,
                node.op()
            )));
        }
        pending.extend(node.inputs.iter().map(|edge| edge.node));
        pending.extend(&node.control_inputs);
    }
    Ok(needed.into_iter().collect())
}

fn to_def(name: &str, nodes: &NodeGraph, body: Vec<NodeId>, args: &[NodeId], results: &[Edge]) -> Result<FunctionDef> {
    let arguments: HashMap<NodeId, usize> = args.iter().enumerate().map(|(index, &id)| (id, index)).collect();
    let named = |edge: &Edge| match arguments.get(&edge.node) {
        Some(&index) => Ok(argument_name(index)),
        None => output_name(nodes, edge),
    };
    let mut node_def = Vec::with_capacity(body.len());
    let mut is_stateful = false;
    for id in body {
        if arguments.contains_key(&id) {
            continue;
        }
        let node = nodes.node(id);
        is_stateful |= node.schema.is_stateful();
        let mut input: Vec<String> = node.inputs.iter().map(named).collect::<Result<_>>()?;
        let controls = node.control_inputs.iter().filter(|control| !arguments.contains_key(control));
        input.extend(controls.map(|&control| format!("^{}", nodes.node(control).name)));
        let attr = node.attrs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        // The caller's device decides where a function runs.
        node_def.push(NodeDef { name: node.name.clone(), op: node.op().to_owned(), input, attr, ..Default::default() });
    }
    let dtype = |edge: &Edge| nodes.node(edge.node).dtype(edge.port);
    let arg = |name: String, dtype: DType| ArgDef { name, r#type: dtype as i32, ..Default::default() };
    let input_arg = args.iter().enumerate();
    let input_arg = input_arg
        .map(|(index, &node)| Ok(arg(argument_name(index), dtype(&Edge { node, port: 0 })?)))
        .collect::<Result<_>>()?;
    let output_arg = results.iter().enumerate();
    let output_arg =
        output_arg.map(|(index, edge)| Ok(arg(format!("output_{index}"), dtype(edge)?))).collect::<Result<_>>()?;
    let ret = results.iter().enumerate();
    let ret = ret.map(|(index, edge)| Ok((format!("output_{index}"), named(edge)?))).collect::<Result<_>>()?;
    let signature = OpDef { name: name.to_owned(), input_arg, output_arg, is_stateful, ..Default::default() };
    Ok(FunctionDef { signature: Some(signature), node_def, ret, ..Default::default() })
}

/// Returns an output's name inside a function: the node, the output's name in the op's definition, and the index within it.
fn output_name(nodes: &NodeGraph, edge: &Edge) -> Result<String> {
    let node = nodes.node(edge.node);
    for arg in &node.schema.outputs {
        let range = node.schema.output_range(&arg.name, &node.attrs)?;
        if range.contains(&(edge.port as usize)) {
            return Ok(format!("{}:{}:{}", node.name, arg.name, edge.port as usize - range.start));
        }
    }
    Err(Status::internal(format!("'{}' has no output {}", node.name, edge.port)))
}

/// Keeps a mistake in a graph, and returns an inert operation in place of the one that could not be built.
#[track_caller]
pub(super) fn mistaken(graph: &Graph, op: &str, status: Status) -> Operation {
    graph.op(op).mistaken(status)
}
