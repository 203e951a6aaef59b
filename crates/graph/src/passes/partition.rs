//! Partitioning: splits a placed graph at device boundaries, with a Send and a Recv for each tensor that crosses one.

mod control_loops;

use crate::control_flow::NodeClass;
use crate::{AttrMap, DeviceName, Edge, Node, NodeGraph, NodeId, OpLookup, OpSchema};
use control_loops::is_control_loop;
use foldhash::{HashMap, HashMapExt};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DType, Result, Shape, Status, Tensor};

/// Options of partitioning.
pub struct PartitionOptions<'a> {
    /// Returns the partition for a device: [`by_device`], or [`by_task`] if each task partitions its part again.
    pub location: &'a dyn Fn(&str) -> String,
    /// Returns the incarnation of a device.
    pub incarnation: &'a dyn Fn(&str) -> u64,
    /// Whether the graph is the result of a partitioning, so that loops across devices have control loops already.
    pub control_flow_added: bool,
}

/// Partitions by device.
pub fn by_device(device: &str) -> String {
    device.to_owned()
}

/// Partitions by task.
pub fn by_task(device: &str) -> String {
    DeviceName::parse(device).map_or_else(|_| device.to_owned(), |name| name.task_part().to_string())
}

/// Splits a placed graph into one graph for each location.
///
/// A tensor is sent once to each device that uses it. A control edge becomes an empty tensor. If a loop runs on several devices,
/// each gets a control loop that follows the real one, so that its receives run in every iteration.
pub fn partition(
    graph: &NodeGraph,
    ops: &dyn OpLookup,
    options: &PartitionOptions<'_>,
) -> Result<BTreeMap<String, NodeGraph>> {
    for (_, node) in graph.iter() {
        if node.device.is_empty() {
            return Err(Status::internal(format!("node '{}' has no device", node.name)));
        }
    }
    let with_loops;
    let graph = if options.control_flow_added {
        graph
    } else {
        with_loops = control_loops::add_control_loops(graph, ops)?;
        with_loops.as_ref().unwrap_or(graph)
    };
    Partitioner::new(graph, ops, options)?.run()
}

/// One partition under construction.
struct Part {
    graph: NodeGraph,
    location: String,
}

/// A tensor, or without a port the completion of a node, that is sent to a device.
#[derive(PartialEq, Eq, Hash)]
struct Transfer {
    source: NodeId,
    port: Option<u32>,
    destination: u32,
}

struct Partitioner<'a> {
    graph: &'a NodeGraph,
    options: &'a PartitionOptions<'a>,
    schemas: Schemas,
    parts: Vec<Part>,
    /// The part of each node, and its id there.
    places: Vec<(u32, NodeId)>,
    /// The index of each node's device.
    device_of: Vec<u32>,
    received: HashMap<Transfer, NodeId>,
    next_name: u64,
    next_edge: u64,
}

struct Schemas {
    send: Arc<OpSchema>,
    recv: Arc<OpSchema>,
    constant: Arc<OpSchema>,
    identity: Arc<OpSchema>,
}

impl<'a> Partitioner<'a> {
    fn new(graph: &'a NodeGraph, ops: &dyn OpLookup, options: &'a PartitionOptions<'a>) -> Result<Self> {
        let schema = |op: &str| {
            let found = ops.op(op).map(|info| info.schema.clone());
            found.ok_or_else(|| Status::not_found(format!("Op type not registered '{op}'")))
        };
        let schemas = Schemas {
            send: schema("_Send")?,
            recv: schema("_Recv")?,
            constant: schema("Const")?,
            identity: schema("Identity")?,
        };
        let mut parts: Vec<Part> = Vec::new();
        let mut part_of_location: HashMap<String, u32> = HashMap::new();
        let mut devices: HashMap<&'a str, u32> = HashMap::new();
        let mut part_of_device: Vec<u32> = Vec::new();
        let mut places = vec![(0, NodeId(0)); graph.id_bound()];
        let mut device_of = vec![0; graph.id_bound()];
        for (id, node) in graph.iter() {
            let device = *devices.entry(&node.device).or_insert_with(|| {
                let location = (options.location)(&node.device);
                let part = *part_of_location.entry(location.clone()).or_insert_with(|| {
                    let mut part = NodeGraph::new(graph.library.clone());
                    part.versions = graph.versions.clone();
                    parts.push(Part { graph: part, location });
                    parts.len() as u32 - 1
                });
                part_of_device.push(part);
                part_of_device.len() as u32 - 1
            });
            let part = part_of_device[device as usize];
            device_of[id.index()] = device;
            // Inputs are connected below, once every node has been added to its part.
            let mut copy = node.clone();
            copy.inputs.clear();
            copy.control_inputs.clear();
            places[id.index()] = (part, parts[part as usize].graph.add(copy)?);
        }
        Ok(Partitioner {
            graph,
            options,
            schemas,
            parts,
            places,
            device_of,
            received: HashMap::new(),
            next_name: 0,
            next_edge: 0,
        })
    }

    fn run(mut self) -> Result<BTreeMap<String, NodeGraph>> {
        for id in self.graph.ids() {
            self.connect(id)?;
        }
        let mut result = BTreeMap::new();
        for mut part in self.parts {
            let nodes = part.graph.iter().map(|(_, node)| (node.op(), &node.attrs));
            part.graph.library = Arc::new(part.graph.library.reachable_from(nodes));
            result.insert(part.location, part.graph);
        }
        Ok(result)
    }

    /// Connects a node's inputs, with transfers where they come from another device.
    fn connect(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let (part, new_id) = self.places[id.index()];
        let control_loop =
            node.control_inputs.iter().copied().find(|&control| is_control_loop(self.graph.node(control)));
        let control_loop = control_loop.map(|control| self.places[control.index()].1);
        // The inputs that must arrive before a variable is read on another device, and the reads.
        let mut settled: Vec<NodeId> = Vec::new();
        let mut reads: Vec<NodeId> = Vec::new();
        // For a receive of the first partitioning, only its control loop says which iteration it belongs to.
        let mut stays_gated = NodeClass::of(node.op()) == NodeClass::Recv;
        for (index, edge) in node.inputs.iter().enumerate() {
            let source = self.graph.node(edge.node);
            let (source_part, source_id) = self.places[edge.node.index()];
            let is_ref = source.output_type(edge.port)?.is_ref;
            if source_part == part {
                stays_gated |= self.device_of[edge.node.index()] != self.device_of[id.index()];
                self.node_mut(part, new_id).inputs.push(Edge { node: source_id, port: edge.port });
                if !is_ref {
                    settled.push(source_id);
                }
                continue;
            }
            if node.input_types.get(index).is_some_and(|slot| slot.is_ref) {
                return Err(Status::invalid_argument(format!(
                    "Node '{}' on {} takes a reference to '{}:{}', which is on {}: a reference can't leave its device",
                    node.name, node.device, source.name, edge.port, source.device
                )));
            }
            let transfer =
                Transfer { source: edge.node, port: Some(edge.port), destination: self.device_of[id.index()] };
            let received = match self.received.get(&transfer) {
                Some(&received) => received,
                None => {
                    let dtype = source.output_type(edge.port)?.dtype;
                    let from = Edge { node: source_id, port: edge.port };
                    let received = self.transfer(edge.node, from, dtype, id, control_loop)?;
                    // The value of a variable is read separately for each consumer, at its time, so the transfer is not shared.
                    if is_ref {
                        reads.push(received);
                    } else {
                        self.received.insert(transfer, received);
                    }
                    received
                }
            };
            if !is_ref {
                settled.push(received);
            }
            self.node_mut(part, new_id).inputs.push(Edge { node: received, port: 0 });
        }
        for &control in &node.control_inputs {
            let (source_part, source_id) = self.places[control.index()];
            if is_control_loop(self.graph.node(control)) {
                continue;
            }
            let received = if source_part == part {
                stays_gated |= self.device_of[control.index()] != self.device_of[id.index()];
                source_id
            } else {
                self.control_transfer(control, id, control_loop)?
            };
            settled.push(received);
            let controls = &mut self.node_mut(part, new_id).control_inputs;
            if !controls.contains(&received) {
                controls.push(received);
            }
        }
        for read in reads {
            let controls = &mut self.node_mut(part, read).control_inputs;
            for &input in &settled {
                if !controls.contains(&input) {
                    controls.push(input);
                }
            }
        }
        // If the task will partition its part again, the new receives find their loop through this node.
        if let Some(control_loop) = control_loop
            && stays_gated
        {
            self.node_mut(part, new_id).control_inputs.push(control_loop);
        }
        Ok(())
    }

    /// Adds the transfer that tells another device that a node has run. Returns the node there to wait for.
    fn control_transfer(&mut self, source: NodeId, target: NodeId, control_loop: Option<NodeId>) -> Result<NodeId> {
        let transfer = Transfer { source, port: None, destination: self.device_of[target.index()] };
        if let Some(&received) = self.received.get(&transfer) {
            return Ok(received);
        }
        let (source_part, source_id) = self.places[source.index()];
        let source_node = self.graph.node(source);
        let mut attrs = AttrMap::default();
        attrs.set("dtype", DType::Float);
        attrs.set("value", tensor::tensor_to_proto(&Tensor::new(DType::Float, Shape::vector(0))?)?);
        let mut dummy = self.new_node(source_part, &source_node.name, self.schemas.constant.clone(), attrs)?;
        dummy.device.clone_from(&source_node.device);
        dummy.control_inputs.push(source_id);
        let dummy = self.parts[source_part as usize].graph.add(dummy)?;
        let from = Edge { node: dummy, port: 0 };
        let received = self.transfer(source, from, DType::Float, target, control_loop)?;
        let (part, _) = self.places[target.index()];
        let mut attrs = AttrMap::default();
        attrs.set("T", DType::Float);
        let mut identity = self.new_node(part, &source_node.name, self.schemas.identity.clone(), attrs)?;
        identity.device.clone_from(&self.graph.node(target).device);
        identity.inputs.push(Edge { node: received, port: 0 });
        let identity = self.parts[part as usize].graph.add(identity)?;
        self.received.insert(transfer, identity);
        Ok(identity)
    }

    /// Adds a Send of `from`, which represents an output of `source`, and its Recv on the device of `target`.
    fn transfer(
        &mut self,
        source: NodeId,
        from: Edge,
        dtype: DType,
        target: NodeId,
        control_loop: Option<NodeId>,
    ) -> Result<NodeId> {
        let (source_node, target_node) = (self.graph.node(source), self.graph.node(target));
        let mut attrs = AttrMap::default();
        attrs.set("tensor_name", format!("edge_{}_{}", self.next_edge, source_node.name));
        self.next_edge += 1;
        attrs.set("send_device", source_node.device.as_str());
        attrs.set("send_device_incarnation", (self.options.incarnation)(&source_node.device) as i64);
        attrs.set("recv_device", target_node.device.as_str());
        attrs.set("client_terminated", false);
        let mut recv_attrs = attrs.clone();
        attrs.set("T", dtype);
        recv_attrs.set("tensor_type", dtype);

        let (source_part, _) = self.places[source.index()];
        let mut send = self.new_node(source_part, &source_node.name, self.schemas.send.clone(), attrs)?;
        send.device.clone_from(&source_node.device);
        send.inputs.push(from);
        self.parts[source_part as usize].graph.add(send)?;

        let (part, _) = self.places[target.index()];
        let mut recv = self.new_node(part, &source_node.name, self.schemas.recv.clone(), recv_attrs)?;
        recv.device.clone_from(&target_node.device);
        recv.control_inputs.extend(control_loop);
        self.parts[part as usize].graph.add(recv)
    }

    fn new_node(&mut self, part: u32, prefix: &str, schema: Arc<OpSchema>, attrs: AttrMap) -> Result<Node> {
        let part = &self.parts[part as usize].graph;
        let name = loop {
            let name = format!("{prefix}_S{}", self.next_name);
            self.next_name += 1;
            if part.find(&name).is_none() && self.graph.find(&name).is_none() {
                break name;
            }
        };
        // All attributes are written, since TensorFlow 1's workers do not add defaults to the nodes that they get.
        Node::new(name, schema, String::new(), attrs)
    }

    fn node_mut(&mut self, part: u32, id: NodeId) -> &mut Node {
        self.parts[part as usize].graph.node_mut(id)
    }
}
