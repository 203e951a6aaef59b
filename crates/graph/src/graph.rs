//! [`NodeGraph`]: nodes with resolved edges.

use crate::attr::AttrMap;
use crate::op_def::{OpSchema, TypeSlot};
use crate::{FunctionLibrary, OpLookup};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use prost::Message;
use proto::attr_value::{ListValue, Value};
use proto::{AttrValue, GraphDef, NodeDef, TensorProto, VersionDef};
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};
use tensor::{DType, Result, Status};

/// A node's index in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One end of a data edge: an output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// The node whose output it is.
    pub node: NodeId,
    /// The index among its outputs.
    pub port: u32,
}

/// A node: an op with its attributes and inputs.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's name, unique in its graph.
    pub name: String,
    /// The op's definition.
    pub schema: Arc<OpSchema>,
    /// The requested device or, after placement, the assigned one.
    pub device: String,
    /// The attributes, with defaults filled in.
    pub attrs: AttrMap,
    /// The source of each input, in order.
    pub inputs: Vec<Edge>,
    /// The nodes that must run before.
    pub control_inputs: Vec<NodeId>,
    /// The types of the inputs.
    pub input_types: Vec<TypeSlot>,
    /// The types of the outputs.
    pub output_types: Vec<TypeSlot>,
    /// A field of the NodeDef that is not used here, kept so that a round trip loses nothing.
    pub debug_info: Option<Box<proto::node_def::ExperimentalDebugInfo>>,
    /// Likewise.
    pub full_type: Option<Box<proto::FullTypeDef>>,
    /// The names of the attributes that the NodeDef had, without defaults, for when it is written again.
    pub explicit_attrs: Option<Arc<Vec<Arc<str>>>>,
}

impl Node {
    /// Returns the op's name.
    pub fn op(&self) -> &str {
        &self.schema.name
    }

    /// Returns the type of an output, or an error if there is no such output.
    pub fn output_type(&self, port: u32) -> Result<TypeSlot> {
        self.output_types.get(port as usize).copied().ok_or_else(|| {
            Status::invalid_argument(format!(
                "Node '{}' (type: '{}', num of outputs: {}) does not have output {port}",
                self.name,
                self.op(),
                self.output_types.len()
            ))
        })
    }
}

/// A directed graph of nodes. Ids are stable; a removed node leaves a gap until [`NodeGraph::compact`].
///
/// A clone shares the nodes with the original until one of the two changes them.
#[derive(Clone, Default)]
pub struct NodeGraph {
    nodes: Vec<Option<Arc<Node>>>,
    /// Maps names, which only the nodes store, to nodes.
    by_name: HashTable<NodeId>,
    /// The functions that nodes can call.
    pub library: Arc<FunctionLibrary>,
    /// The versions of the GraphDef.
    pub versions: Option<VersionDef>,
}

impl NodeGraph {
    /// Returns an empty graph with a function library.
    pub fn new(library: Arc<FunctionLibrary>) -> NodeGraph {
        NodeGraph { nodes: Vec::new(), by_name: HashTable::new(), library, versions: None }
    }

    /// Adds a node whose inputs are in the graph already. A name that is taken is an error.
    pub fn add(&mut self, node: impl Into<Arc<Node>>) -> Result<NodeId> {
        let node = node.into();
        let id = NodeId(u32::try_from(self.nodes.len()).map_err(|_| Status::resource_exhausted("too many nodes"))?);
        if self.find(&node.name).is_some() {
            return Err(Status::invalid_argument(format!("Node '{}' is not unique", node.name)));
        }
        let hash = name_hash(&node.name);
        self.nodes.push(Some(node));
        let nodes = &self.nodes;
        self.by_name.insert_unique(hash, id, |id| name_at(nodes, *id).map_or(0, name_hash));
        Ok(id)
    }

    /// Adds a node: fills in attribute defaults, derives its types, and checks its inputs against them.
    pub fn add_op(
        &mut self,
        ops: &dyn OpLookup,
        op: &str,
        name: String,
        attrs: AttrMap,
        inputs: Vec<Edge>,
        control_inputs: Vec<NodeId>,
        device: String,
    ) -> Result<NodeId> {
        let schema = find_schema(ops, &self.library, op)
            .ok_or_else(|| Status::unimplemented(format!("Op type not registered '{op}' (node '{name}')")))?;
        let mut node = Node::new(name, schema, device, attrs)?;
        node.inputs = inputs;
        node.control_inputs = control_inputs;
        self.check_inputs(&node)?;
        self.add(node)
    }

    /// Checks that a node's inputs exist and have the types that its op expects.
    pub fn check_inputs(&self, node: &Node) -> Result<()> {
        if node.inputs.len() != node.input_types.len() {
            return Err(Status::invalid_argument(format!(
                "Node '{}': op {} takes {} inputs, but {} were given",
                node.name,
                node.op(),
                node.input_types.len(),
                node.inputs.len()
            )));
        }
        for (index, (edge, expected)) in node.inputs.iter().zip(&node.input_types).enumerate() {
            let Some(source) = self.get(edge.node) else {
                return Err(Status::invalid_argument(format!("Node '{}': input {index} does not exist", node.name)));
            };
            let Some(&actual) = source.output_types.get(edge.port as usize) else {
                return Err(Status::invalid_argument(format!(
                    "Node '{}': Connecting to invalid output {} of source node {} which has {} outputs.",
                    node.name,
                    edge.port,
                    source.name,
                    source.output_types.len()
                )));
            };
            let ref_mismatch = expected.is_ref && !actual.is_ref;
            if actual.dtype != expected.dtype || ref_mismatch {
                let show = |slot: TypeSlot| format!("{}{}", slot.dtype, if slot.is_ref { "_ref" } else { "" });
                return Err(Status::invalid_argument(format!(
                    "Input {index} of node {} was passed {} from {}:{} incompatible with expected {}.",
                    node.name,
                    show(actual),
                    source.name,
                    edge.port,
                    show(*expected)
                )));
            }
        }
        Ok(())
    }

    /// Returns a node.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())?.as_deref()
    }

    /// Returns a node. Panics if it does not exist.
    pub fn node(&self, id: NodeId) -> &Node {
        self.get(id).expect("the node is in the graph")
    }

    /// Returns a mutable reference to a node. Panics if it does not exist.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(self.nodes[id.index()].as_mut().expect("the node is in the graph"))
    }

    /// Returns the node with this name, if there is one.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let is_named = |id: &NodeId| name_at(&self.nodes, *id) == Some(name);
        self.by_name.find(name_hash(name), is_named).copied()
    }

    /// Removes a node. The caller must have removed the edges from it.
    pub fn remove(&mut self, id: NodeId) {
        if let Some(node) = self.nodes[id.index()].take()
            && let Ok(entry) = self.by_name.find_entry(name_hash(&node.name), |known| *known == id)
        {
            entry.remove();
        }
    }

    /// Returns the ids of all nodes, in the order in which they were added.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        self.nodes.iter().enumerate().filter(|(_, node)| node.is_some()).map(|(index, _)| NodeId(index as u32))
    }

    /// Returns all nodes with their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> + '_ {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(index, node)| node.as_deref().map(|node| (NodeId(index as u32), node)))
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns a bound on node indices, for tables indexed by node.
    pub fn id_bound(&self) -> usize {
        self.nodes.len()
    }

    /// Returns, for every node, the (consumer, input index) pairs of its outputs; control edges are `None`.
    pub fn consumers(&self) -> Vec<Vec<(NodeId, Option<usize>)>> {
        let mut consumers = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.iter() {
            for (index, edge) in node.inputs.iter().enumerate() {
                consumers[edge.node.index()].push((id, Some(index)));
            }
            for control in &node.control_inputs {
                consumers[control.index()].push((id, None));
            }
        }
        consumers
    }

    /// Returns an unused name that starts with `prefix`.
    pub fn unique_name(&self, prefix: &str) -> String {
        if self.find(prefix).is_none() {
            return prefix.to_owned();
        }
        let mut suffix = 1;
        loop {
            let name = format!("{prefix}_{suffix}");
            if self.find(&name).is_none() {
                return name;
            }
            suffix += 1;
        }
    }

    /// Returns the nodes in an order in which inputs come before their consumers, except along the back edges of loops. Any other
    /// cycle is an error that names one of its nodes.
    pub fn topological_order(&self) -> Result<Vec<NodeId>> {
        let mut pending = vec![0u32; self.nodes.len()];
        let consumers = self.consumers();
        let mut ready = Vec::new();
        let mut order = Vec::with_capacity(self.len());
        for (id, node) in self.iter() {
            let back = if node.op() == "Merge" || node.op() == "RefMerge" {
                node.inputs.iter().filter(|edge| self.node(edge.node).op().ends_with("NextIteration")).count()
            } else {
                0
            };
            pending[id.index()] = (node.inputs.len() + node.control_inputs.len() - back) as u32;
            if pending[id.index()] == 0 {
                ready.push(id);
            }
        }
        // Nodes are taken from the end; reversing keeps the order of the GraphDef among independent nodes.
        ready.reverse();
        while let Some(id) = ready.pop() {
            order.push(id);
            let is_next_iteration = self.node(id).op().ends_with("NextIteration");
            for &(consumer, input) in consumers[id.index()].iter().rev() {
                let op = self.node(consumer).op();
                if is_next_iteration && input.is_some() && (op == "Merge" || op == "RefMerge") {
                    continue;
                }
                let count = &mut pending[consumer.index()];
                *count -= 1;
                if *count == 0 {
                    ready.push(consumer);
                }
            }
        }
        if order.len() != self.len() {
            let mut stuck: Vec<&str> =
                self.iter().filter(|(id, _)| pending[id.index()] > 0).map(|(_, node)| node.name.as_str()).collect();
            stuck.truncate(8);
            return Err(Status::invalid_argument(format!(
                "Graph contains a cycle that is not a loop, through or before node '{}' (nodes that can never run: {})",
                stuck[0],
                stuck.join(", ")
            )));
        }
        Ok(order)
    }

    /// Returns the GraphDef. Omits attributes that have their default value, unless the NodeDef had them.
    pub fn to_graph_def(&self) -> GraphDef {
        let library = self.library.to_proto();
        GraphDef {
            node: self.iter().map(|(_, node)| self.to_node_def(node)).collect(),
            library: (library.function.len() + library.gradient.len() > 0).then_some(library),
            versions: self.versions.clone(),
            ..Default::default()
        }
    }

    /// Returns a node's NodeDef.
    pub fn to_node_def(&self, node: &Node) -> NodeDef {
        let mut input = Vec::with_capacity(node.inputs.len() + node.control_inputs.len());
        for edge in &node.inputs {
            let source = &self.node(edge.node).name;
            input.push(if edge.port == 0 { source.clone() } else { format!("{source}:{}", edge.port) });
        }
        for &control in &node.control_inputs {
            input.push(format!("^{}", self.node(control).name));
        }
        let is_written = |name: &Arc<str>, value: &AttrValue| {
            node.explicit_attrs.as_ref().is_none_or(|explicit| explicit.binary_search(name).is_ok())
                || node.schema.attr(name).is_none_or(|def| def.default_value.as_ref() != Some(value))
        };
        let written = node.attrs.iter().filter(|(name, value)| is_written(name, value));
        let attr = written.map(|(name, value)| (name.to_string(), value.clone())).collect();
        NodeDef {
            name: node.name.clone(),
            op: node.op().to_owned(),
            input,
            device: node.device.clone(),
            attr,
            experimental_debug_info: node.debug_info.clone(),
            experimental_type: node.full_type.clone(),
        }
    }

    /// Estimates the memory of the nodes, for accounting.
    pub fn held_bytes(&self) -> usize {
        self.iter().map(|(_, node)| node.held_bytes() + node.held_attr_bytes()).sum()
    }

    /// As [`held_bytes`](Self::held_bytes), for a graph that shares its attributes with another one.
    pub fn held_bytes_without_attrs(&self) -> usize {
        self.iter().map(|(_, node)| node.held_bytes()).sum()
    }

    /// Returns a copy without gaps, with ids in topological order.
    pub fn compact(&self) -> Result<NodeGraph> {
        let order = self.topological_order()?;
        let mut ids = vec![NodeId(u32::MAX); self.nodes.len()];
        for (index, id) in order.iter().enumerate() {
            ids[id.index()] = NodeId(index as u32);
        }
        let mut graph = NodeGraph::new(self.library.clone());
        graph.versions = self.versions.clone();
        for id in order {
            let mut node = self.node(id).clone();
            for edge in &mut node.inputs {
                edge.node = ids[edge.node.index()];
            }
            for control in &mut node.control_inputs {
                *control = ids[control.index()];
            }
            graph.add(node)?;
        }
        Ok(graph)
    }
}

impl Node {
    /// Returns a node without inputs: fills in attribute defaults and derives its types.
    pub fn new(name: String, schema: Arc<OpSchema>, device: String, mut attrs: AttrMap) -> Result<Node> {
        let in_node = |status: Status| status.append(format!("; node '{name}' of op {}", schema.name));
        schema.complete_attrs(&mut attrs).map_err(in_node)?;
        let input_types = schema.input_types(&attrs).map_err(in_node)?;
        let output_types = schema.output_types(&attrs).map_err(in_node)?;
        Ok(Node {
            name,
            schema,
            device,
            attrs,
            inputs: Vec::new(),
            control_inputs: Vec::new(),
            input_types,
            output_types,
            debug_info: None,
            full_type: None,
            explicit_attrs: None,
        })
    }

    /// Estimates the memory of the node without its attributes.
    fn held_bytes(&self) -> usize {
        /// The overhead of the allocator and the graph's tables for each node, and for each allocation of a node.
        const NODE_BYTES: usize = 64;
        const BLOCK_BYTES: usize = 16;
        let lists = size_of_val(&*self.inputs)
            + size_of_val(&*self.control_inputs)
            + size_of_val(&*self.input_types)
            + size_of_val(&*self.output_types);
        size_of::<Node>() + NODE_BYTES + self.name.len() + self.device.len() + lists + 5 * BLOCK_BYTES
    }

    /// Estimates the memory of the node's attributes.
    fn held_attr_bytes(&self) -> usize {
        let attr = |value: &AttrValue| {
            let beside = match &value.value {
                Some(Value::Tensor(_)) => size_of::<TensorProto>(),
                Some(Value::List(_)) => size_of::<ListValue>(),
                _ => 0,
            };
            size_of::<(Arc<str>, AttrValue)>() + beside + value.encoded_len()
        };
        64 + self.attrs.values().map(attr).sum::<usize>()
    }

    /// Returns the element type of an output, or an error if there is no such output.
    pub fn dtype(&self, port: u32) -> Result<DType> {
        Ok(self.output_type(port)?.dtype)
    }
}

/// Returns the definition of an op, or of a function that can be called like one.
pub(crate) fn find_schema(ops: &dyn OpLookup, library: &FunctionLibrary, op: &str) -> Option<Arc<OpSchema>> {
    ops.op(op).map(|info| info.schema.clone()).or_else(|| library.schema(op))
}

fn name_at(nodes: &[Option<Arc<Node>>], id: NodeId) -> Option<&str> {
    nodes.get(id.index())?.as_ref().map(|node| node.name.as_str())
}

/// Hashes a node's name with a random seed of this process, so that nobody can provoke collisions.
fn name_hash(name: &str) -> u64 {
    static SEEDED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    SEEDED.hash_one(name)
}
