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
    /// Which of its outputs.
    pub port: u32,
}

/// A node: an op with its attributes, and where its inputs come from.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's name, unique in its graph.
    pub name: String,
    /// The op's definition.
    pub schema: Arc<OpSchema>,
    /// The device that was asked for or, after placement, assigned.
    pub device: String,
    /// The attributes, with defaults filled in.
    pub attrs: AttrMap,
    /// Where each input comes from, in order.
    pub inputs: Vec<Edge>,
    /// The nodes that must have run before.
    pub control_inputs: Vec<NodeId>,
    /// The types of the inputs.
    pub input_types: Vec<TypeSlot>,
    /// The types of the outputs.
    pub output_types: Vec<TypeSlot>,
    /// What came with the NodeDef and has no meaning here, kept so that a round trip loses nothing.
    pub debug_info: Option<Box<proto::node_def::ExperimentalDebugInfo>>,
    /// As above.
    pub full_type: Option<Box<proto::FullTypeDef>>,
    /// The attributes that the NodeDef itself had, without defaults, in case it is written out again.
    pub explicit_attrs: Option<Arc<Vec<Arc<str>>>>,
}

impl Node {
    /// Returns the op's name.
    pub fn op(&self) -> &str {
        &self.schema.name
    }

    /// Returns the type of an output, or an error when there is no such output.
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

/// A directed graph of nodes. Nodes are never moved; a removed one leaves a gap until [`NodeGraph::compact`].
///
/// A clone shares the nodes with the original until one of the two changes them.
#[derive(Clone, Default)]
pub struct NodeGraph {
    nodes: Vec<Option<Arc<Node>>>,
    /// Finds nodes by their names, which only the nodes hold.
    by_name: HashTable<NodeId>,
    /// The functions that nodes may call.
    pub library: Arc<FunctionLibrary>,
    /// The versions of the GraphDef.
    pub versions: Option<VersionDef>,
}

impl NodeGraph {
    /// Makes an empty graph with a function library.
    pub fn new(library: Arc<FunctionLibrary>) -> NodeGraph {
        NodeGraph { nodes: Vec::new(), by_name: HashTable::new(), library, versions: None }
    }

    /// Adds a node whose edges lead to nodes that are already here; a name that is taken is an error.
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

    /// Makes a node and adds it: fills in attribute defaults, works out its types, checks its inputs against them.
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

    /// Checks that a node's inputs exist and are of the types that its op takes.
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

    /// Returns a node that is known to be there; panics otherwise.
    pub fn node(&self, id: NodeId) -> &Node {
        self.get(id).expect("the node is in the graph")
    }

    /// Returns a node for changing; panics when it isn't there.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(self.nodes[id.index()].as_mut().expect("the node is in the graph"))
    }

    /// Returns the node of a name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let is_named = |id: &NodeId| name_at(&self.nodes, *id) == Some(name);
        self.by_name.find(name_hash(name), is_named).copied()
    }

    /// Removes a node. Edges to it must be gone already.
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

    /// Returns a name that no node has, made from `prefix`.
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

    /// Returns the nodes so that inputs come before their consumers, except along the back edges of loops. A cycle that
    /// isn't a loop is an error that names one of its nodes.
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
        // Taken from the end, so reversed to keep the order of the GraphDef where it doesn't matter.
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

    /// Returns the GraphDef. Attributes that a NodeDef didn't have and that are at their default stay out.
    pub fn to_graph_def(&self) -> GraphDef {
        let library = self.library.to_proto();
        GraphDef {
            node: self.iter().map(|(_, node)| self.to_node_def(node)).collect(),
            library: (library.function.len() + library.gradient.len() > 0).then_some(library),
            versions: self.versions.clone(),
            ..Default::default()
        }
    }

    /// Returns one node's NodeDef.
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

    /// Returns about how much memory the nodes take, for an account.
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
    /// Makes a node without inputs: fills in attribute defaults and works out its types.
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

    /// Returns about how much memory the node takes.
    fn held_bytes(&self) -> usize {
        /// What the allocator and the graph's own tables keep beside each node, and beside each block of one.
        const NODE_BYTES: usize = 64;
        const BLOCK_BYTES: usize = 16;
        let lists = size_of_val(&*self.inputs)
            + size_of_val(&*self.control_inputs)
            + size_of_val(&*self.input_types)
            + size_of_val(&*self.output_types);
        size_of::<Node>() + NODE_BYTES + self.name.len() + self.device.len() + lists + 5 * BLOCK_BYTES
    }

    /// Returns about how much memory the node's attributes take.
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

    /// Returns the element type of an output; an output that doesn't exist is an error.
    pub fn dtype(&self, port: u32) -> Result<DType> {
        Ok(self.output_type(port)?.dtype)
    }
}

/// Returns the definition of an op or of a function that may be called like one.
pub(crate) fn find_schema(ops: &dyn OpLookup, library: &FunctionLibrary, op: &str) -> Option<Arc<OpSchema>> {
    ops.op(op).map(|info| info.schema.clone()).or_else(|| library.schema(op))
}

fn name_at(nodes: &[Option<Arc<Node>>], id: NodeId) -> Option<&str> {
    nodes.get(id.index())?.as_ref().map(|node| node.name.as_str())
}

/// Hashes a node's name with a seed of this process's, so that nobody can choose names whose hashes are equal.
fn name_hash(name: &str) -> u64 {
    static SEEDED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    SEEDED.hash_one(name)
}
