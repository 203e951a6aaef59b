//! [`FunctionBody`]: the body of a function as a graph.

use crate::OpLookup;
use crate::attr::AttrMap;
use crate::function::FunctionLibrary;
use crate::graph::{Edge, Node, NodeGraph, NodeId, find_schema};
use crate::import::unknown_ops;
use crate::op_def::OpSchema;
use foldhash::{HashMap, HashMapExt};
use proto::attr_value::Value;
use proto::{AttrValue, FunctionDef, NodeDef};
use std::sync::Arc;
use tensor::{Result, Status};

/// The instantiated body of a function.
pub struct FunctionBody {
    /// The nodes.
    pub graph: NodeGraph,
    /// The `_Arg` nodes in order.
    pub args: Vec<NodeId>,
    /// The `_Retval` nodes in order.
    pub results: Vec<NodeId>,
    /// Nodes that must run even if no result depends on them.
    pub control_results: Vec<NodeId>,
}

impl FunctionLibrary {
    /// Returns a function's body for given attributes: `_Arg` nodes for the arguments, `_Retval` nodes for the results.
    pub fn instantiate(self: &Arc<Self>, name: &str, attrs: &AttrMap, ops: &dyn OpLookup) -> Result<FunctionBody> {
        let (def, schema) = self
            .get(name)
            .zip(self.schema(name))
            .ok_or_else(|| Status::not_found(format!("Function {name} is not defined.")))?;
        instantiate(self, def, &schema, attrs, ops).map_err(|status| status.context(format!("function '{name}'")))
    }
}

fn instantiate(
    library: &Arc<FunctionLibrary>,
    def: &FunctionDef,
    schema: &OpSchema,
    attrs: &AttrMap,
    ops: &dyn OpLookup,
) -> Result<FunctionBody> {
    let mut graph = NodeGraph::new(library.clone());
    let mut env: HashMap<String, Edge> = HashMap::new();
    let mut args = Vec::new();
    for arg in &schema.inputs {
        let range = schema.input_range(&arg.name, attrs)?;
        let types = schema.input_types(attrs)?;
        for (offset, index) in range.clone().enumerate() {
            let mut arg_attrs = AttrMap::default();
            arg_attrs.set("T", types[index].dtype);
            arg_attrs.set("index", index as i64);
            // Attributes of the argument, such as its shape, are copied to the `_Arg` node.
            if let Some(extra) = def.arg_attr.get(&(index as u32)) {
                for (name, value) in &extra.attr {
                    arg_attrs.insert_if_absent(name.as_str(), || value.clone());
                }
            }
            let name = if range.len() == 1 { arg.name.clone() } else { format!("{}_{offset}", arg.name) };
            let id = graph.add_op(ops, "_Arg", name, arg_attrs, vec![], vec![], String::new())?;
            args.push(id);
            env.insert(format!("{}:{offset}", arg.name), Edge { node: id, port: 0 });
            if offset == 0 {
                env.insert(arg.name.clone(), Edge { node: id, port: 0 });
            }
        }
    }
    add_body(&mut graph, &mut env, def, attrs, ops)?;
    let mut results = Vec::new();
    for arg in &schema.outputs {
        let target = def
            .ret
            .get(&arg.name)
            .ok_or_else(|| Status::invalid_argument(format!("result '{}' has no value", arg.name)))?;
        let count = schema.output_range(&arg.name, attrs)?.len();
        for offset in 0..count {
            let edge = lookup(&env, target, offset)?;
            let dtype = graph.node(edge.node).dtype(edge.port)?;
            let mut result_attrs = AttrMap::default();
            result_attrs.set("T", dtype);
            result_attrs.set("index", results.len() as i64);
            let name = graph.unique_name(&format!("{}_RetVal", arg.name));
            results.push(graph.add_op(ops, "_Retval", name, result_attrs, vec![edge], vec![], String::new())?);
        }
    }
    let control_results = def
        .control_ret
        .values()
        .map(|name| graph.find(name).ok_or_else(|| Status::invalid_argument(format!("no node '{name}'"))))
        .collect::<Result<_>>()?;
    graph.topological_order()?;
    Ok(FunctionBody { graph, args, results, control_results })
}

/// Adds the nodes of the body; their inputs are named `node:output_arg:index`.
fn add_body(
    graph: &mut NodeGraph,
    env: &mut HashMap<String, Edge>,
    def: &FunctionDef,
    attrs: &AttrMap,
    ops: &dyn OpLookup,
) -> Result<()> {
    let mut added = Vec::with_capacity(def.node_def.len());
    for node_def in &def.node_def {
        let schema = find_schema(ops, &graph.library, &node_def.op)
            .ok_or_else(|| unknown_ops(&[(&node_def.op, vec![&node_def.name])]))?;
        let mut node_attrs = AttrMap::from(&node_def.attr);
        for value in node_attrs.values_mut() {
            substitute(value, attrs)?;
        }
        let node = Node::new(node_def.name.clone(), schema.clone(), node_def.device.clone(), node_attrs)?;
        for arg in &schema.outputs {
            let range = schema.output_range(&arg.name, &node.attrs)?;
            for (offset, port) in range.enumerate() {
                let edge = Edge { node: NodeId((graph.id_bound()) as u32), port: port as u32 };
                env.insert(format!("{}:{}:{offset}", node_def.name, arg.name), edge);
            }
        }
        added.push(graph.add(node)?);
    }
    for (node_def, &id) in def.node_def.iter().zip(&added) {
        connect(graph, env, node_def, id)?;
    }
    for &id in &added {
        graph.check_inputs(graph.node(id))?;
    }
    Ok(())
}

fn connect(graph: &mut NodeGraph, env: &HashMap<String, Edge>, node_def: &NodeDef, id: NodeId) -> Result<()> {
    for input in &node_def.input {
        if let Some(name) = input.strip_prefix('^') {
            let control = graph.find(name).ok_or_else(|| {
                Status::invalid_argument(format!("Node '{}': Unknown input node '{name}'", node_def.name))
            })?;
            graph.node_mut(id).control_inputs.push(control);
            continue;
        }
        // An input may name a list of outputs, `node:values`, which fills several inputs of the consumer.
        if let Some(&edge) = env.get(input) {
            let is_list = !input.ends_with(":0") && env.contains_key(&format!("{input}:1"));
            if !is_list {
                graph.node_mut(id).inputs.push(edge);
                continue;
            }
        }
        let mut offset = 0;
        while let Some(&edge) = env.get(&format!("{input}:{offset}")) {
            graph.node_mut(id).inputs.push(edge);
            offset += 1;
        }
        if offset == 0 {
            return Err(Status::invalid_argument(format!("Node '{}': Unknown input '{input}'", node_def.name)));
        }
    }
    Ok(())
}

fn lookup(env: &HashMap<String, Edge>, target: &str, offset: usize) -> Result<Edge> {
    let direct = (offset == 0).then(|| env.get(target)).flatten();
    direct
        .or_else(|| env.get(&format!("{target}:{offset}")))
        .copied()
        .ok_or_else(|| Status::invalid_argument(format!("Unknown output '{target}'")))
}

/// Replaces placeholders in an attribute of the body by the attributes of the call.
fn substitute(value: &mut AttrValue, attrs: &AttrMap) -> Result<()> {
    match &mut value.value {
        Some(Value::Placeholder(name)) => {
            *value = attrs
                .get(name.as_str())
                .cloned()
                .ok_or_else(|| Status::invalid_argument(format!("no value for attr '{name}'")))?;
        }
        Some(Value::Func(function)) => {
            for inner in function.attr.values_mut() {
                substitute(inner, attrs)?;
            }
        }
        Some(Value::List(list)) => {
            for function in &mut list.func {
                for inner in function.attr.values_mut() {
                    substitute(inner, attrs)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
