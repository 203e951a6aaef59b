//! Placement: gives every node one of the devices that there are.
//!
//! Nodes that must stay together (a variable and what takes it by reference or by its handle, a colocation group) form a
//! set, and the sets are joined before anything is assigned. What is left open goes to the session's own task.

mod candidates;

use crate::{DeviceName, Node, NodeGraph, NodeId};
use candidates::Candidates;
use foldhash::{HashMap, HashMapExt};
use tensor::{DType, Result, Status};

/// How placement decides.
#[derive(Clone, Debug, Default)]
pub struct PlacementOptions {
    /// Whether a device type or number that there isn't gives way to another device of the same task.
    pub allow_soft_placement: bool,
    /// The device for what is left open, usually the first CPU of the session's own task. Its task is preferred too where
    /// a request leaves the task open.
    pub default_device: Option<DeviceName>,
}

/// What came out of a placement, apart from the devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The requests that were not followed, and why, for the log.
    pub notes: Vec<String>,
}

/// Sets the device of every node to the full name of one of `devices`.
///
/// `has_kernel` says whether a node can run on a device type such as `CPU`. The graph is as it was after an error.
pub fn place(
    graph: &mut NodeGraph,
    devices: &[DeviceName],
    options: &PlacementOptions,
    has_kernel: &dyn Fn(&Node, &str) -> bool,
) -> Result<Placement> {
    if devices.is_empty() {
        return Err(Status::failed_precondition("No devices are registered"));
    }
    let candidates = Candidates::new(devices, options.default_device.as_ref());
    let mut sets = ColocationSets::new(graph, &candidates, options.allow_soft_placement, has_kernel)?;
    sets.colocate_reference_edges()?;
    sets.colocate_groups()?;
    let (assigned, notes) = sets.assign()?;
    for (id, device) in assigned {
        graph.node_mut(id).device = candidates.name(device).to_owned();
    }
    Ok(Placement { notes })
}

/// Returns the lines that `log_device_placement` asks for: `name: (op): device`.
pub fn placement_log(graph: &NodeGraph) -> Vec<String> {
    graph.iter().map(|(_, node)| format!("{}: ({}): {}", node.name, node.op(), node.device)).collect()
}

/// What all nodes of a set ask for together.
#[derive(Clone, Default)]
struct Member {
    /// Where the set's root is, or this node itself.
    parent: u32,
    rank: u32,
    /// What was asked for.
    requested: DeviceName,
    /// What was asked for by the nodes that make the variables and resources, which wins over what others ask for.
    resource: DeviceName,
    /// The device types on which all of the set can run, as bits in the order of [`Candidates::types`].
    supported: u64,
    /// The devices that are left, the best first, once they were looked for.
    possible: Option<Vec<usize>>,
}

struct ColocationSets<'a> {
    graph: &'a NodeGraph,
    candidates: &'a Candidates,
    soft: bool,
    members: Vec<Member>,
    notes: Vec<String>,
}

impl<'a> ColocationSets<'a> {
    fn new(
        graph: &'a NodeGraph,
        candidates: &'a Candidates,
        soft: bool,
        has_kernel: &dyn Fn(&Node, &str) -> bool,
    ) -> Result<Self> {
        let mut members = vec![Member::default(); graph.id_bound()];
        let mut parsed: HashMap<&str, DeviceName> = HashMap::new();
        for (id, node) in graph.iter() {
            let device = match parsed.get(node.device.as_str()) {
                Some(device) => device.clone(),
                None => {
                    let device = DeviceName::parse(&node.device)
                        .map_err(|status| status.append(format!(" in node: {{{{node {}}}}}", node.name)))?;
                    parsed.insert(&node.device, device.clone());
                    device
                }
            };
            let mut supported = 0;
            for (bit, device_type) in candidates.types().iter().enumerate() {
                if graph.library.get(node.op()).is_some() || has_kernel(node, device_type) {
                    supported |= 1 << bit;
                }
            }
            if supported == 0 {
                return Err(Status::invalid_argument(format!(
                    "No OpKernel was registered to support Op '{}' used by {{{{node {}}}}} with these attrs: [{}]\n\
                     Registered devices: [{}]",
                    node.op(),
                    node.name,
                    type_attrs(node),
                    candidates.types().join(", ")
                )));
            }
            let resource = if makes_resource(node) { device.clone() } else { DeviceName::default() };
            members[id.index()] =
                Member { parent: id.0, rank: 0, requested: device, resource, supported, possible: None };
        }
        Ok(ColocationSets { graph, candidates, soft, members, notes: Vec::new() })
    }

    fn root(&mut self, id: NodeId) -> usize {
        let mut root = id.index();
        while self.members[root].parent as usize != root {
            root = self.members[root].parent as usize;
        }
        let mut at = id.index();
        while at != root {
            at = std::mem::replace(&mut self.members[at].parent, root as u32) as usize;
        }
        root
    }

    /// A node that takes a variable by reference, or the handle of a resource, must be where that is.
    fn colocate_reference_edges(&mut self) -> Result<()> {
        let graph = self.graph;
        for (id, node) in graph.iter() {
            for (edge, slot) in node.inputs.iter().zip(&node.input_types) {
                if slot.is_ref || slot.dtype == DType::Resource {
                    let joined = self.colocate_reference_edge(edge.node, id);
                    // A call may be given resources of several devices; where it then runs is for its body to say.
                    if joined.is_err() && !slot.is_ref && takes_any_resource(node, graph) {
                        continue;
                    }
                    joined?;
                }
            }
        }
        Ok(())
    }

    fn colocate_reference_edge(&mut self, source: NodeId, target: NodeId) -> Result<()> {
        let (source_root, target_root) = (self.root(source), self.root(target));
        if source_root == target_root {
            return Ok(());
        }
        let (source_name, target_name) = (&self.graph.node(source).name, &self.graph.node(target).name);
        let (from, to) = (&self.members[source_root], &self.members[target_root]);
        if !from.resource.is_compatible_with(&to.resource) {
            return Err(Status::invalid_argument(format!(
                "Cannot place the graph because a reference or resource edge connects colocation groups with \
                 incompatible resource devices: {} vs {}. The edge src node is {source_name} , and the dst node is \
                 {target_name}",
                from.resource, to.resource
            )));
        }
        if !from.requested.is_compatible_with(&to.requested) {
            self.notes.push(format!(
                "Ignoring device specification {} for node '{target_name}' because the input edge from '{source_name}' is \
                 a reference connection and already has a device field set to {}",
                to.requested, from.requested
            ));
            let requested = from.requested.merged_with(&to.resource);
            self.members[target_root].requested = requested;
        }
        self.join(source, target).map_err(|status| {
            status.context(
                "Nodes were connected by a reference connection (requiring them to be on the same device), but the two \
                 nodes were assigned two different devices",
            )
        })
    }

    /// The nodes of a colocation group, and the node of its name, stay together.
    fn colocate_groups(&mut self) -> Result<()> {
        let mut first_of_group: HashMap<String, NodeId> = HashMap::new();
        let graph = self.graph;
        for (id, node) in graph.iter() {
            let mut groups = node.attrs.colocation();
            groups.push(node.name.clone());
            for group in groups {
                match first_of_group.get(&group) {
                    None => {
                        first_of_group.insert(group, id);
                    }
                    Some(&first) => {
                        if let Err(status) = self.join(id, first) {
                            if !self.soft {
                                return Err(status);
                            }
                            self.notes.push(format!(
                                "Ignoring request to colocate node '{}' with nodes in colocation group '{group}' because \
                                 soft placement is on and an attempt at doing so resulted in the following error: {}",
                                node.name,
                                status.message()
                            ));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn join(&mut self, x: NodeId, y: NodeId) -> Result<()> {
        let (x_root, y_root) = (self.root(x), self.root(y));
        if x_root == y_root {
            return Ok(());
        }
        let (graph, soft) = (self.graph, self.soft);
        let cannot = move |why: &str| {
            let (x, y) = (&graph.node(x).name, &graph.node(y).name);
            Status::invalid_argument(format!(
                "Cannot colocate nodes {{{{colocation_node {x}}}}} and {{{{colocation_node {y}}}}}{why}"
            ))
        };
        let (a, b) = (&self.members[x_root], &self.members[y_root]);
        let resource =
            a.resource.intersected_with(&b.resource).map_err(|status| cannot(&format!(": {}", status.message())))?;
        let requested = if soft {
            a.requested.softly_intersected_with(&b.requested)
        } else {
            a.requested.intersected_with(&b.requested)
        };
        let requested = requested.map_err(|status| cannot(&format!(": {}", status.message())))?.merged_with(&resource);
        let supported = a.supported & b.supported;
        if supported == 0 {
            return Err(cannot(
                " because no device type supports both of those nodes and the other nodes colocated with them.",
            ));
        }
        let (root, child) = if a.rank < b.rank { (y_root, x_root) } else { (x_root, y_root) };
        if a.rank == b.rank {
            self.members[root].rank += 1;
        }
        self.members[child].parent = root as u32;
        let member = &mut self.members[root];
        (member.requested, member.resource, member.supported) = (requested, resource, supported);
        Ok(())
    }

    /// Chooses a device for every set, in the order in which its first node runs.
    fn assign(mut self) -> Result<(Vec<(NodeId, usize)>, Vec<String>)> {
        let order = self.graph.topological_order()?;
        let mut devices: Vec<Option<usize>> = vec![None; self.graph.id_bound()];
        let mut generators = Vec::new();
        for &id in &order {
            let node = self.graph.node(id);
            if is_generator(node) {
                generators.push(id);
                continue;
            }
            let possible = self.possible_devices(id)?;
            let mut device = possible[0];
            // What only looks at the form of a tensor goes to the tensor, so that it needn't travel.
            if is_metadata(node)
                && let Some(input) = node.inputs.first().and_then(|edge| devices[edge.node.index()])
                && possible.contains(&input)
            {
                device = input;
            }
            self.settle(id, device);
            devices[id.index()] = Some(device);
        }
        let consumers = self.graph.consumers();
        for id in generators {
            let possible = self.possible_devices(id)?;
            let mut device = possible[0];
            // What only makes a value goes to its consumers when they are all in one place.
            let mut at = consumers[id.index()].iter().map(|(consumer, _)| devices[consumer.index()]);
            if let Some(Some(first)) = at.next()
                && at.all(|other| other == Some(first))
                && possible.contains(&first)
            {
                device = first;
            }
            self.settle(id, device);
            devices[id.index()] = Some(device);
        }
        let assigned = order.into_iter().filter_map(|id| devices[id.index()].map(|device| (id, device))).collect();
        Ok((assigned, self.notes))
    }

    /// Once one node of a set has its device, the others have it too.
    fn settle(&mut self, id: NodeId, device: usize) {
        let root = self.root(id);
        self.members[root].possible = Some(vec![device]);
    }

    fn possible_devices(&mut self, id: NodeId) -> Result<Vec<usize>> {
        let root = self.root(id);
        if let Some(possible) = &self.members[root].possible {
            return Ok(possible.clone());
        }
        let member = &self.members[root];
        let mut found = self.candidates.matching(&member.requested, member.supported);
        if found.is_empty() && self.soft {
            // First any device of the task that fits what the variables ask for, then any at all.
            let mut softened = member.requested.task_part();
            softened.device_type = member.resource.device_type.clone();
            softened.id = member.resource.id;
            found = self.candidates.matching(&softened, member.supported);
            if found.is_empty() {
                found = self.candidates.matching(&member.requested.task_part(), member.supported);
            }
        }
        if found.is_empty() {
            let mut node = self.graph.node(id);
            // What brings a fetched value out stands where the value is made, and no user knows its name.
            if let ("_Retval", Some(source)) = (node.op(), node.inputs.first()) {
                node = self.graph.node(source.node);
            }
            let why = self.candidates.explain(node, &member.requested);
            return Err(Status::invalid_argument(format!("Cannot assign a device for operation {}: {why}", node.name))
                .with_node(&node.name));
        }
        self.members[root].possible = Some(found.clone());
        Ok(found)
    }
}

/// Whether a node makes a variable or another resource, so that its device is not overridden.
fn makes_resource(node: &Node) -> bool {
    node.inputs.is_empty()
        && node.output_types.len() == 1
        && (node.output_types[0].is_ref || node.output_types[0].dtype == DType::Resource)
}

/// Whether a node may be given resources of other devices: it calls a function.
fn takes_any_resource(node: &Node, graph: &NodeGraph) -> bool {
    graph.library.get(node.op()).is_some() || node.schema.attrs.iter().any(|attr| attr.r#type.ends_with("func"))
}

/// Whether a node has no inputs and one output that is a value.
fn is_generator(node: &Node) -> bool {
    node.inputs.is_empty() && node.output_types.len() == 1 && !node.output_types[0].is_ref
}

/// Whether a node only looks at the form of its input.
fn is_metadata(node: &Node) -> bool {
    matches!(node.op(), "Shape" | "Size" | "Rank")
}

fn type_attrs(node: &Node) -> String {
    let types = node.schema.attrs.iter().filter(|attr| attr.r#type == "type");
    let shown = types.filter_map(|attr| node.attrs.dtype(&attr.name).ok().map(|ty| format!("{}={ty}", attr.name)));
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ops;
    use expect_test::{Expect, expect};

    fn cluster() -> Vec<DeviceName> {
        vec![
            DeviceName::cpu("ps", 0, 0),
            DeviceName::cpu("ps", 1, 0),
            DeviceName::cpu("worker", 0, 0),
            DeviceName::cpu("worker", 1, 0),
            DeviceName::cpu("worker", 1, 1),
        ]
    }

    fn run(soft: bool, text: &str) -> Result<(NodeGraph, Placement)> {
        let mut graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
        let default_device = Some(DeviceName::cpu("worker", 1, 0));
        let options = PlacementOptions { allow_soft_placement: soft, default_device };
        let placement = place(&mut graph, &cluster(), &options, &|node, kind| kind == "CPU" && node.op() != "Tanh")?;
        Ok((graph, placement))
    }

    fn check(soft: bool, text: &str, expected: Expect) {
        let shown = match run(soft, text) {
            Ok((graph, placement)) => {
                let short = |node: &Node| node.device.replace("/replica:0", "").replace("/device:CPU", "/cpu");
                let lines = graph.iter().map(|(_, node)| format!("{} {}\n", node.name, short(node)));
                let notes = placement.notes.iter().map(|note| format!("{note}\n"));
                lines.chain(notes).collect()
            }
            Err(status) => status.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn whole_partial_and_open_requests() {
        check(
            false,
            "whole = VariableV2() {dtype=float, shape=[]} @/job:ps/replica:0/task:1/device:CPU:0
job = VariableV2() {dtype=float, shape=[]} @/job:ps
own_job = VariableV2() {dtype=float, shape=[]} @/job:worker
number = VariableV2() {dtype=float, shape=[]} @/device:CPU:1
open = VariableV2() {dtype=float, shape=[]}
old_spelling = NoOp() @/job:worker/task:0/cpu:0",
            expect![[r#"
                whole /job:ps/task:1/cpu:0
                job /job:ps/task:0/cpu:0
                own_job /job:worker/task:1/cpu:0
                number /job:worker/task:1/cpu:1
                open /job:worker/task:1/cpu:0
                old_spelling /job:worker/task:0/cpu:0
            "#]],
        );
    }

    #[test]
    fn accelerators_come_first_and_the_devices_of_xla_last() {
        let typed = |kind: &str| DeviceName::parse(&format!("/job:ps/replica:0/task:0/device:{kind}:0")).unwrap();
        let devices = [typed("XLA_GPU"), typed("XLA_CPU"), typed("CPU"), typed("GPU")];
        let text = "open = NoOp() @/job:ps
no_gpu = VariableV2() {dtype=float, shape=[]} @/job:ps
asked = NoOp() @/job:ps/device:XLA_CPU:0";
        let mut graph = NodeGraph::from_text(text, ops()).unwrap();
        let options = PlacementOptions { allow_soft_placement: false, default_device: None };
        place(&mut graph, &devices, &options, &|node, kind| kind != "GPU" || node.op() == "NoOp").unwrap();
        let device_of = |name: &str| graph.iter().find(|(_, node)| node.name == name).unwrap().1.device.clone();
        assert_eq!(device_of("open"), typed("GPU").to_string());
        assert_eq!(device_of("no_gpu"), typed("CPU").to_string());
        assert_eq!(device_of("asked"), typed("XLA_CPU").to_string());
    }

    #[test]
    fn references_and_handles_stay_with_their_variable() {
        check(
            false,
            "v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:1
one = Const() {dtype=float, value=float[](1)}
assign = Assign(v, one) @/job:worker/task:0
add = AssignAdd(assign, one)
read = Identity(v) @/job:worker/task:0
h = VarHandleOp() {dtype=float, shape=[]} @/job:ps/task:0
write = AssignVariableOp(h, one)
value = ReadVariableOp(h) {dtype=float}",
            expect![[r#"
                v /job:ps/task:1/cpu:0
                one /job:worker/task:1/cpu:0
                assign /job:ps/task:1/cpu:0
                add /job:ps/task:1/cpu:0
                read /job:worker/task:0/cpu:0
                h /job:ps/task:0/cpu:0
                write /job:ps/task:0/cpu:0
                value /job:ps/task:0/cpu:0
                Ignoring device specification /job:worker/task:0 for node 'assign' because the input edge from 'v' is a reference connection and already has a device field set to /job:ps/task:1
            "#]],
        );
    }

    #[test]
    fn colocation_groups_stay_together() {
        check(
            false,
            "early = NoOp() {_class=[\"loc:@late\"]}
other = NoOp() {_class=[\"loc:@group\"]} @/job:ps
late = VariableV2() {dtype=float, shape=[]} @/job:ps/task:1
member = NoOp() {_class=[\"loc:@group\", \"loc:@late\"]}",
            expect![[r#"
                early /job:ps/task:1/cpu:0
                other /job:ps/task:1/cpu:0
                late /job:ps/task:1/cpu:0
                member /job:ps/task:1/cpu:0
            "#]],
        );
    }

    #[test]
    fn contradictions_are_errors_unless_placement_is_soft() {
        let text = "a = NoOp() {_class=[\"loc:@g\"]} @/job:ps/task:0
b = NoOp() {_class=[\"loc:@g\"]} @/job:worker";
        check(
            false,
            text,
            expect![
                "INVALID_ARGUMENT: Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with incompatible jobs: '/job:worker' and '/job:ps/task:0'"
            ],
        );
        check(
            true,
            text,
            expect![[r#"
            a /job:ps/task:0/cpu:0
            b /job:worker/task:1/cpu:0
            Ignoring request to colocate node 'b' with nodes in colocation group 'g' because soft placement is on and an attempt at doing so resulted in the following error: Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with incompatible jobs: '/job:worker' and '/job:ps/task:0'
        "#]],
        );
        let resources = "v = VarHandleOp() {dtype=float, shape=[], _class=[\"loc:@w\"]} @/job:ps/task:0
w = VarHandleOp() {dtype=float, shape=[]} @/job:ps/task:1";
        check(
            false,
            resources,
            expect![
                "INVALID_ARGUMENT: Cannot colocate nodes {{colocation_node w}} and {{colocation_node v}}: Cannot merge devices with incompatible tasks: '/job:ps/task:1' and '/job:ps/task:0'"
            ],
        );
    }

    #[test]
    fn a_fetch_is_blamed_on_what_is_fetched() {
        check(
            false,
            "x = Placeholder() {dtype=float} @/job:foo\nr = _Retval(x) {index=0} @/job:foo",
            expect![[r#"
            INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:foo but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
            	 [[{{node x}}]]"#]],
        );
    }

    #[test]
    fn devices_that_are_not_there() {
        check(
            false,
            "x = Neg(y) @/job:foo/task:0\ny = Placeholder() {dtype=float}",
            expect![[r#"
            INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:foo/task:0 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
            	 [[{{node x}}]]"#]],
        );
        check(
            false,
            "x = NoOp() @/job:worker/task:7",
            expect![[r#"
            INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:worker/task:7 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
            	 [[{{node x}}]]"#]],
        );
        check(
            true,
            "x = NoOp() @/job:worker/task:7",
            expect![[r#"
            INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:worker/task:7 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
            	 [[{{node x}}]]"#]],
        );
        check(
            false,
            "x = NoOp() @/job:worker/task:0/gpu:0",
            expect![[r#"
            INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:worker/task:0/gpu:0 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:0/device:CPU:0'.
            	 [[{{node x}}]]"#]],
        );
        check(
            true,
            "x = NoOp() @/job:worker/task:0/gpu:0",
            expect![[r#"
            x /job:worker/task:0/cpu:0
        "#]],
        );
        check(
            true,
            "v = VarHandleOp() {dtype=float, shape=[]} @/gpu:0\nr = ReadVariableOp(v) {dtype=float}",
            expect![[r#"
                v /job:worker/task:1/cpu:0
                r /job:worker/task:1/cpu:0
            "#]],
        );
        check(
            false,
            "x = NoOp() @/job:worker/taks:0",
            expect!["INVALID_ARGUMENT: Malformed device specification '/job:worker/taks:0' in node: {{node x}}"],
        );
        check(
            false,
            "x = Tanh(y)\ny = Placeholder() {dtype=float}",
            expect![[r#"
            INVALID_ARGUMENT: No OpKernel was registered to support Op 'Tanh' used by {{node x}} with these attrs: [T=float]
            Registered devices: [CPU]"#]],
        );
    }

    #[test]
    fn generators_go_to_their_consumers_and_metadata_to_its_input() {
        check(
            false,
            "c = Const() {dtype=float, value=float[](1)}
x = Placeholder() {dtype=float}
y = AddV2(x, c) @/job:ps/task:0
z = Neg(y) @/job:worker/task:0
shared = Const() {dtype=float, value=float[](1)}
p = Neg(shared) @/job:ps/task:0
q = Neg(shared) @/job:worker/task:0
shape = Shape(y)
pinned = Shape(y) @/job:worker/task:0",
            expect![[r#"
                c /job:ps/task:0/cpu:0
                x /job:ps/task:0/cpu:0
                y /job:ps/task:0/cpu:0
                z /job:worker/task:0/cpu:0
                shared /job:worker/task:1/cpu:0
                p /job:ps/task:0/cpu:0
                q /job:worker/task:0/cpu:0
                shape /job:ps/task:0/cpu:0
                pinned /job:worker/task:0/cpu:0
            "#]],
        );
    }

    #[test]
    fn the_log_has_a_line_for_each_node() {
        let (graph, _) = run(false, "a = NoOp() @/job:ps/task:0").unwrap();
        assert_eq!(placement_log(&graph), ["a: (NoOp): /job:ps/replica:0/task:0/device:CPU:0"]);
        let mut empty = NodeGraph::default();
        let status = place(&mut empty, &[], &PlacementOptions::default(), &|_, _| true).unwrap_err();
        assert_eq!(status.code(), tensor::Code::FailedPrecondition);
    }
}
