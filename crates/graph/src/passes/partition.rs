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
            part.graph.library = Arc::new(part.graph.library.reachable_from(&part.graph));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ops;
    use expect_test::{Expect, expect};

    fn run(
        text: &str,
        location: &dyn Fn(&str) -> String,
        control_flow_added: bool,
    ) -> Result<BTreeMap<String, NodeGraph>> {
        let graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
        let incarnation = |device: &str| device.bytes().map(u64::from).sum();
        partition(&graph, ops(), &PartitionOptions { location, incarnation: &incarnation, control_flow_added })
    }

    fn show(parts: &BTreeMap<String, NodeGraph>) -> String {
        let mut text = String::new();
        for (location, graph) in parts {
            graph.topological_order().unwrap();
            for (_, node) in graph.iter() {
                graph.check_inputs(node).unwrap();
            }
            text.push_str(&format!("# {location}\n{}", graph.to_text()));
        }
        text
    }

    fn check(text: &str, expected: Expect) {
        match run(text, &by_device, false) {
            Ok(parts) => expected.assert_eq(&show(&parts)),
            Err(status) => expected.assert_eq(&status.to_string()),
        }
    }

    #[test]
    fn a_tensor_is_sent_once_to_each_device() {
        check(
            "a = Placeholder() {dtype=float} @/job:a
b1 = Neg(a) @/job:b
b2 = AddV2(a, b1) @/job:b
c1 = Neg(a) @/job:c
back = AddV2(b2, c1) @/job:a",
            expect![[r##"
                # /job:a
                a = Placeholder() {dtype=float} @/job:a
                back = AddV2(b2_S5, c1_S7) @/job:a
                a_S0 = _Send(a) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a"} @/job:a
                a_S2 = _Send(a) {recv_device="/job:c", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_1_a"} @/job:a
                b2_S5 = _Recv() {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_2_b2", tensor_type=float} @/job:a
                c1_S7 = _Recv() {recv_device="/job:a", send_device="/job:c", send_device_incarnation=519, tensor_name="edge_3_c1", tensor_type=float} @/job:a
                # /job:b
                b1 = Neg(a_S1) @/job:b
                b2 = AddV2(a_S1, b1) @/job:b
                a_S1 = _Recv() {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a", tensor_type=float} @/job:b
                b2_S4 = _Send(b2) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_2_b2"} @/job:b
                # /job:c
                c1 = Neg(a_S3) @/job:c
                a_S3 = _Recv() {recv_device="/job:c", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_1_a", tensor_type=float} @/job:c
                c1_S6 = _Send(c1) {recv_device="/job:a", send_device="/job:c", send_device_incarnation=519, tensor_name="edge_3_c1"} @/job:c
            "##]],
        );
    }

    #[test]
    fn control_edges_are_empty_tensors() {
        check(
            "a = NoOp() @/job:a
b1 = NoOp(^a) @/job:b
b2 = NoOp(^a, ^b1) @/job:b",
            expect![[r##"
                # /job:a
                a = NoOp() @/job:a
                a_S0 = Const(^a) {dtype=float, value=float[0]()} @/job:a
                a_S1 = _Send(a_S0) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a"} @/job:a
                # /job:b
                b1 = NoOp(^a_S3) @/job:b
                b2 = NoOp(^a_S3, ^b1) @/job:b
                a_S2 = _Recv() {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a", tensor_type=float} @/job:b
                a_S3 = Identity(a_S2) @/job:b
            "##]],
        );
    }

    #[test]
    fn variables_are_read_when_their_reader_is_due_and_references_stay() {
        check(
            "v = VariableV2() {dtype=float, shape=[]} @/job:ps
x = Placeholder() {dtype=float} @/job:w
init = NoOp() @/job:w
y = Mul(x, v, ^init) @/job:w",
            expect![[r##"
                # /job:ps
                v = VariableV2() {dtype=float, shape=[]} @/job:ps
                v_S0 = _Send(v) {recv_device="/job:w", send_device="/job:ps", send_device_incarnation=647, tensor_name="edge_0_v"} @/job:ps
                # /job:w
                x = Placeholder() {dtype=float} @/job:w
                init = NoOp() @/job:w
                y = Mul(x, v_S1, ^init) @/job:w
                v_S1 = _Recv(^x, ^init) {recv_device="/job:w", send_device="/job:ps", send_device_incarnation=647, tensor_name="edge_0_v", tensor_type=float} @/job:w
            "##]],
        );
        check(
            "v = VariableV2() {dtype=float, shape=[]} @/job:ps
x = Placeholder() {dtype=float} @/job:w
a = Assign(v, x) @/job:w",
            expect![
                "INVALID_ARGUMENT: Node 'a' on /job:w takes a reference to 'v:0', which is on /job:ps: a reference can't leave its device"
            ],
        );
    }

    const LOOP: &str = "zero = Const() {dtype=float, value=float[](0)} @/job:a
enter = Enter(zero) {frame_name=\"f\", parallel_iterations=4} @/job:a
limit = Const() {dtype=float, value=float[](9)} @/job:a
limit_in = Enter(limit) {frame_name=\"f\", is_constant=true, parallel_iterations=4} @/job:a
merge = Merge(enter, next) @/job:a
less = Less(merge, limit_in) @/job:a
cond = LoopCond(less) @/job:a
switch = Switch(merge, cond) @/job:b
body = Neg(switch:1) @/job:b
next = NextIteration(body) @/job:b
exit = Exit(switch) @/job:b
result = Neg(exit) @/job:b";

    #[test]
    fn a_loop_across_devices_has_dummies_where_it_is_not_decided() {
        check(
            LOOP,
            expect![[r##"
            # /job:a
            zero = Const() {dtype=float, value=float[](0.0)} @/job:a
            enter = Enter(zero) {frame_name="f", parallel_iterations=4} @/job:a
            limit = Const() {dtype=float, value=float[](9.0)} @/job:a
            limit_in = Enter(limit) {frame_name="f", is_constant=true, parallel_iterations=4} @/job:a
            merge = Merge(enter, next) @/job:a
            less = Less(merge, limit_in) @/job:a
            cond = LoopCond(less) @/job:a
            switch = Switch(merge, cond) @/job:a
            next = NextIteration(body_S3) @/job:a
            exit = Exit(switch) @/job:a
            _cloopnext_S5 = Enter(_cloopnext_S9) {frame_name="f", parallel_iterations=4} @/job:a
            _cloopnext_S6 = Merge(_cloopnext_S5, _cloopnext_S8) @/job:a
            _cloopnext_S7 = Switch(_cloopnext_S6, cond) @/job:a
            _cloopnext_S8 = NextIteration(_cloopnext_S7:1) @/job:a
            _cloopnext_S9 = Const() {dtype=float, value=float[0]()} @/job:a
            switch_S0 = _Send(switch:1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_switch"} @/job:a
            body_S3 = _Recv(^_cloopnext_S6) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_body", tensor_type=float} @/job:a
            exit_S4 = _Send(exit) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_exit"} @/job:a
            cond_S6 = _Send(cond) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_cond"} @/job:a
            # /job:b
            body = Neg(switch_S1) @/job:b
            result = Neg(exit_S5) @/job:b
            _cloopbody_S0 = Enter(_cloopbody_S4) {frame_name="f", parallel_iterations=4} @/job:b
            _cloopbody_S1 = Merge(_cloopbody_S0, _cloopbody_S3) @/job:b
            _cloopbody_S2 = Switch(_cloopbody_S1, cond_S7) @/job:b
            _cloopbody_S3 = NextIteration(_cloopbody_S2:1) @/job:b
            _cloopbody_S4 = Const() {dtype=float, value=float[0]()} @/job:b
            switch_S1 = _Recv(^_cloopbody_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_switch", tensor_type=float} @/job:b
            body_S2 = _Send(body) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_body"} @/job:b
            exit_S5 = _Recv() {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_exit", tensor_type=float} @/job:b
            cond_S7 = _Recv(^_cloopbody_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_cond", tensor_type=bool} @/job:b
        "##]],
        );
    }

    #[test]
    fn loops_inside_loops() {
        check(
            "zero = Const() {dtype=float, value=float[](0)} @/job:a
outer = Enter(zero) {frame_name=\"outer\"} @/job:a
outer_merge = Merge(outer, outer_next) @/job:a
outer_less = Less(outer_merge, outer_merge) @/job:a
outer_cond = LoopCond(outer_less) @/job:a
outer_switch = Switch(outer_merge, outer_cond) @/job:a
inner = Enter(outer_switch:1) {frame_name=\"inner\"} @/job:a
inner_merge = Merge(inner, inner_next) @/job:a
inner_less = Less(inner_merge, inner_merge) @/job:a
inner_cond = LoopCond(inner_less) @/job:a
inner_switch = Switch(inner_merge, inner_cond) @/job:a
remote = Neg(inner_switch:1) @/job:b
local = Neg(remote) @/job:a
inner_next = NextIteration(local) @/job:a
inner_exit = Exit(inner_switch) @/job:a
outer_next = NextIteration(inner_exit) @/job:a
outer_exit = Exit(outer_switch) @/job:a",
            expect![[r##"
                # /job:a
                zero = Const() {dtype=float, value=float[](0.0)} @/job:a
                outer = Enter(zero) {frame_name="outer"} @/job:a
                outer_merge = Merge(outer, outer_next) @/job:a
                outer_less = Less(outer_merge, outer_merge) @/job:a
                outer_cond = LoopCond(outer_less) @/job:a
                outer_switch = Switch(outer_merge, outer_cond) @/job:a
                inner = Enter(outer_switch:1) {frame_name="inner"} @/job:a
                inner_merge = Merge(inner, inner_next) @/job:a
                inner_less = Less(inner_merge, inner_merge) @/job:a
                inner_cond = LoopCond(inner_less) @/job:a
                inner_switch = Switch(inner_merge, inner_cond) @/job:a
                local = Neg(remote_S3) @/job:a
                inner_next = NextIteration(local) @/job:a
                inner_exit = Exit(inner_switch) @/job:a
                outer_next = NextIteration(inner_exit) @/job:a
                outer_exit = Exit(outer_switch) @/job:a
                _clooplocal_S9 = Enter(_clooplocal_S14) {frame_name="inner"} @/job:a
                _clooplocal_S10 = Merge(_clooplocal_S9, _clooplocal_S12) @/job:a
                _clooplocal_S11 = Switch(_clooplocal_S10, inner_cond) @/job:a
                _clooplocal_S12 = NextIteration(_clooplocal_S11:1) @/job:a
                _clooplocal_S13 = Enter(_clooplocal_S17) {frame_name="outer"} @/job:a
                _clooplocal_S14 = Merge(_clooplocal_S13, _clooplocal_S16) @/job:a
                _clooplocal_S15 = Switch(_clooplocal_S14, outer_cond) @/job:a
                _clooplocal_S16 = NextIteration(_clooplocal_S15:1) @/job:a
                _clooplocal_S17 = Const() {dtype=float, value=float[0]()} @/job:a
                inner_switch_S0 = _Send(inner_switch:1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_inner_switch"} @/job:a
                remote_S3 = _Recv(^_clooplocal_S10) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_remote", tensor_type=float} @/job:a
                inner_cond_S4 = _Send(inner_cond) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_inner_cond"} @/job:a
                outer_cond_S6 = _Send(outer_cond) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_outer_cond"} @/job:a
                # /job:b
                remote = Neg(inner_switch_S1) @/job:b
                _cloopremote_S0 = Enter(_cloopremote_S5) {frame_name="inner"} @/job:b
                _cloopremote_S1 = Merge(_cloopremote_S0, _cloopremote_S3) @/job:b
                _cloopremote_S2 = Switch(_cloopremote_S1, inner_cond_S5) @/job:b
                _cloopremote_S3 = NextIteration(_cloopremote_S2:1) @/job:b
                _cloopremote_S4 = Enter(_cloopremote_S8) {frame_name="outer"} @/job:b
                _cloopremote_S5 = Merge(_cloopremote_S4, _cloopremote_S7) @/job:b
                _cloopremote_S6 = Switch(_cloopremote_S5, outer_cond_S7) @/job:b
                _cloopremote_S7 = NextIteration(_cloopremote_S6:1) @/job:b
                _cloopremote_S8 = Const() {dtype=float, value=float[0]()} @/job:b
                inner_switch_S1 = _Recv(^_cloopremote_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_inner_switch", tensor_type=float} @/job:b
                remote_S2 = _Send(remote) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_remote"} @/job:b
                inner_cond_S5 = _Recv(^_cloopremote_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_inner_cond", tensor_type=bool} @/job:b
                outer_cond_S7 = _Recv(^_cloopremote_S5) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_outer_cond", tensor_type=bool} @/job:b
            "##]],
        );
    }

    #[test]
    fn parts_of_a_task_can_be_cut_again() {
        let text =
            LOOP.replace("@/job:a", "@/job:w/task:0/device:CPU:0").replace("@/job:b", "@/job:w/task:0/device:CPU:1");
        let whole = run(&text, &by_task, false).unwrap();
        let task = &whole["/job:w/task:0"];
        assert!(!task.iter().any(|(_, node)| node.op() == "_Send"));
        let parts = run(&task.to_text(), &by_device, true).unwrap();
        let at_once = run(&text, &by_device, false).unwrap();
        // Every receive inside the loop waits for its iteration, as it does if the graph is partitioned in one go.
        let gated = |graph: &NodeGraph| {
            let recvs = graph.iter().filter(|(_, node)| node.op() == "_Recv");
            let count_gates =
                |node: &Node| node.control_inputs.iter().filter(|&&id| is_control_loop(graph.node(id))).count();
            let mut gates: Vec<usize> = recvs.map(|(_, node)| count_gates(node)).collect();
            gates.sort_unstable();
            gates
        };
        assert_eq!(gated(&parts["/job:w/task:0/device:CPU:0"]), [1]);
        assert_eq!(gated(&parts["/job:w/task:0/device:CPU:1"]), [0, 1, 1]);
        for (device, part) in &parts {
            assert_eq!(gated(part), gated(&at_once[device]));
        }
        assert_eq!(parts.len(), 2);
    }

    #[test]
    fn a_receive_of_the_first_cut_keeps_its_iteration_in_the_second() {
        let text =
            LOOP.replace("@/job:a", "@/job:w/task:0/device:CPU:1").replace("@/job:b", "@/job:w/task:1/device:CPU:0");
        let text = format!("{text}\nbeside = NoOp() @/job:w/task:1/device:CPU:1");
        let tasks = run(&text, &by_task, false).unwrap();
        let task = &tasks["/job:w/task:1"];
        let parts = run(&task.to_text(), &by_device, true).unwrap();
        let gated = |graph: &NodeGraph| {
            let recvs = graph.iter().filter(|(_, node)| node.op() == "_Recv");
            let is_gated = |node: &Node| node.control_inputs.iter().any(|&id| is_control_loop(graph.node(id)));
            recvs.filter(|(_, node)| is_gated(node)).map(|(_, node)| node.name.clone()).collect::<Vec<_>>()
        };
        // The value and the condition; the result of the loop is received outside of it.
        assert_eq!(gated(task).len(), 2);
        assert_eq!(gated(&parts["/job:w/task:1/device:CPU:0"]), gated(task));
    }

    #[test]
    fn mistakes() {
        check("a = NoOp()", expect!["INTERNAL: node 'a' has no device"]);
        let without_condition = LOOP.replace("cond = LoopCond(less)", "cond = Identity(less)");
        check(&without_condition, expect!["INVALID_ARGUMENT: A cross-device loop must have a pivot predicate: f"]);
        check(
            "zero = Const() {dtype=float, value=float[](0)} @/job:a
enter = Enter(zero) {frame_name=\"f\"} @/job:a
mixed = AddV2(enter, zero) @/job:b",
            expect![
                "INVALID_ARGUMENT: {{node mixed}} has inputs from different frames. The input {{node zero}} is in frame ''. The input {{node enter}} is in frame 'f'."
            ],
        );
    }

    #[test]
    fn a_part_has_only_the_functions_that_it_calls() {
        use proto::{FunctionDef, FunctionDefLibrary, OpDef};
        let function = |name: &str, calls: &str| FunctionDef {
            signature: Some(OpDef { name: name.to_owned(), ..Default::default() }),
            node_def: vec![proto::NodeDef { name: "n".into(), op: calls.to_owned(), ..Default::default() }],
            ..Default::default()
        };
        let library = FunctionDefLibrary {
            function: vec![function("body", "helper"), function("helper", "NoOp"), function("idle", "NoOp")],
            ..Default::default()
        };
        let text = "call = PartitionedCall() {Tin=[], Tout=[], f=&body} @/job:a\nother = NoOp() @/job:b";
        let mut graph = NodeGraph::from_text(text, ops()).unwrap();
        graph.library = Arc::new(graph.library.extended(&library).unwrap());
        let options = PartitionOptions { location: &by_device, incarnation: &|_| 1, control_flow_added: false };
        let parts = partition(&graph, ops(), &options).unwrap();
        assert_eq!(parts["/job:a"].library.names(), ["body", "helper"]);
        assert!(parts["/job:b"].library.is_empty());
    }
}
