//! [`FunctionLibrary`]: the functions that a graph's nodes can call, and their bodies as graphs.

use crate::attr::AttrMap;
use crate::import::unknown_ops;
use crate::op_def::OpSchema;
use crate::{Edge, Node, NodeGraph, NodeId, OpLookup};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use proto::attr_value::Value;
use proto::{AttrValue, FunctionDef, FunctionDefLibrary, GradientDef, NodeDef};
use std::sync::Arc;
use tensor::{Result, Status};

/// Functions and their gradients, by name.
#[derive(Clone, Default)]
pub struct FunctionLibrary {
    functions: HashMap<String, Arc<Function>>,
    gradients: HashMap<String, String>,
    /// The order of insertion, so that a round trip preserves it.
    order: Vec<String>,
}

struct Function {
    def: FunctionDef,
    schema: Arc<OpSchema>,
}

impl FunctionLibrary {
    /// Returns the library with these functions added. A different function with a name that is taken is an error.
    pub fn extended(&self, library: &FunctionDefLibrary) -> Result<FunctionLibrary> {
        let mut result = self.clone();
        for def in &library.function {
            result.add(def.clone())?;
        }
        for GradientDef { function_name, gradient_func } in &library.gradient {
            result.gradients.insert(function_name.clone(), gradient_func.clone());
        }
        Ok(result)
    }

    /// Adds one function.
    pub fn add(&mut self, def: FunctionDef) -> Result<()> {
        let Some(signature) = &def.signature else {
            return Err(Status::invalid_argument("a function has no signature"));
        };
        let name = signature.name.clone();
        if let Some(existing) = self.functions.get(&name) {
            if existing.def == def {
                return Ok(());
            }
            return Err(Status::invalid_argument(format!(
                "Cannot add function '{name}' because a different function with the same name already exists."
            )));
        }
        let schema = Arc::new(OpSchema::from_proto(signature)?);
        self.functions.insert(name.clone(), Arc::new(Function { def, schema }));
        self.order.push(name);
        Ok(())
    }

    /// Returns a function's definition.
    pub fn get(&self, name: &str) -> Option<&FunctionDef> {
        self.functions.get(name).map(|function| &function.def)
    }

    /// Returns a function's signature.
    pub fn schema(&self, name: &str) -> Option<Arc<OpSchema>> {
        self.functions.get(name).map(|function| function.schema.clone())
    }

    /// Returns the name of the function that computes the gradient of another.
    pub fn gradient(&self, name: &str) -> Option<&str> {
        self.gradients.get(name).map(String::as_str)
    }

    /// Returns the names of all functions in the order of insertion.
    pub fn names(&self) -> &[String] {
        &self.order
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns a library of only the functions that a graph's nodes can call, directly or through other functions.
    pub fn reachable_from(&self, graph: &NodeGraph) -> FunctionLibrary {
        let mut result = FunctionLibrary::default();
        if self.is_empty() {
            return result;
        }
        let mut pending: Vec<&str> = Vec::new();
        for (_, node) in graph.iter() {
            pending.push(node.op());
            called_functions(node.attrs.values(), &mut pending);
        }
        let mut reached: HashSet<&str> = HashSet::new();
        while let Some(name) = pending.pop() {
            let Some(function) = self.functions.get(name) else { continue };
            if !reached.insert(name) {
                continue;
            }
            for node in &function.def.node_def {
                pending.push(&node.op);
                called_functions(node.attr.values(), &mut pending);
            }
            pending.extend(self.gradient(name));
        }
        for name in self.order.iter().filter(|name| reached.contains(name.as_str())) {
            if let Some(function) = self.functions.get(name) {
                result.functions.insert(name.clone(), function.clone());
                result.order.push(name.clone());
            }
            if let Some(gradient) = self.gradients.get(name) {
                result.gradients.insert(name.clone(), gradient.clone());
            }
        }
        result
    }

    /// Returns the library as a message.
    pub fn to_proto(&self) -> FunctionDefLibrary {
        let mut gradient: Vec<GradientDef> = self
            .gradients
            .iter()
            .map(|(name, gradient)| GradientDef { function_name: name.clone(), gradient_func: gradient.clone() })
            .collect();
        gradient.sort_by(|a, b| a.function_name.cmp(&b.function_name));
        FunctionDefLibrary {
            function: self.order.iter().filter_map(|name| self.get(name)).cloned().collect(),
            gradient,
            ..Default::default()
        }
    }

    /// Returns a function's body for given attributes: `_Arg` nodes for the arguments, `_Retval` nodes for the results.
    pub fn instantiate(self: &Arc<Self>, name: &str, attrs: &AttrMap, ops: &dyn OpLookup) -> Result<FunctionBody> {
        let function =
            self.functions.get(name).ok_or_else(|| Status::not_found(format!("Function {name} is not defined.")))?;
        instantiate(self, function, attrs, ops).map_err(|status| status.context(format!("function '{name}'")))
    }
}

/// Adds the names of the functions that attributes refer to, including those in the attributes of functions.
fn called_functions<'a>(attrs: impl Iterator<Item = &'a AttrValue>, into: &mut Vec<&'a str>) {
    let mut pending: Vec<&AttrValue> = attrs.collect();
    while let Some(value) = pending.pop() {
        let functions = match &value.value {
            Some(Value::Func(function)) => std::slice::from_ref(&**function),
            Some(Value::List(list)) => &list.func,
            _ => continue,
        };
        for function in functions {
            into.push(&function.name);
            pending.extend(function.attr.values());
        }
    }
}

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

fn instantiate(
    library: &Arc<FunctionLibrary>,
    function: &Function,
    attrs: &AttrMap,
    ops: &dyn OpLookup,
) -> Result<FunctionBody> {
    let schema = &function.schema;
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
            if let Some(extra) = function.def.arg_attr.get(&(index as u32)) {
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
    add_body(&mut graph, &mut env, &function.def, attrs, ops)?;
    let mut results = Vec::new();
    for arg in &schema.outputs {
        let target = function
            .def
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
    let control_results = function
        .def
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
        let schema = crate::graph::find_schema(ops, &graph.library, &node_def.op)
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
