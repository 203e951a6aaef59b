//! Placement: assigns every node to one of the available devices.
//!
//! Nodes that must be together form a set: a variable and the nodes that use it by reference or handle, and the members of a
//! colocation group. The sets are joined before any device is assigned. Nodes without a request go to the session's own task.

mod candidates;

use crate::{DeviceName, Node, NodeGraph, NodeId};
use candidates::Candidates;
use foldhash::{HashMap, HashMapExt};
use tensor::{DType, Result, Status};

/// Options of placement.
#[derive(Clone, Debug, Default)]
pub struct PlacementOptions {
    /// Whether another device of the same task replaces a device type or number that does not exist.
    pub allow_soft_placement: bool,
    /// The device for nodes without a request, usually the first CPU of the session's own task. Its task is also preferred where a
    /// request does not name a task.
    pub default_device: Option<DeviceName>,
}

/// The result of a placement, apart from the devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The requests that were not obeyed, and why, for the log.
    pub notes: Vec<String>,
}

/// Sets the device of every node to the full name of one of `devices`.
///
/// `has_kernel` returns whether a node can run on a device type such as `CPU`. An error leaves the graph unchanged.
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

/// A node, and at the root of a set what all its nodes request together.
#[derive(Clone, Default)]
struct Member {
    /// A node nearer to the set's root, or the root itself.
    parent: u32,
    rank: u32,
    /// The requested device.
    requested: DeviceName,
    /// The device that nodes that create variables and resources request, which takes precedence over the requests of others.
    resource: DeviceName,
    /// The device types on which all nodes of the set can run, as bits in the order of [`Candidates::types`].
    supported: u64,
    /// The possible devices, best first, once they have been determined.
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

    /// Joins nodes that use a variable by reference, or a resource by its handle, with the node that creates it.
    fn colocate_reference_edges(&mut self) -> Result<()> {
        let graph = self.graph;
        for (id, node) in graph.iter() {
            for (edge, slot) in node.inputs.iter().zip(&node.input_types) {
                if slot.is_ref || slot.dtype == DType::Resource {
                    let joined = self.colocate_reference_edge(edge.node, id);
                    // A call may have resources of several devices as inputs; its body then decides where its nodes run.
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

    /// Joins the nodes of a colocation group, and the node that it is named after.
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

    /// Chooses a device for every set, in topological order of their first nodes.
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
            // Nodes that read only the shape of a tensor go to the tensor's device, so that it need not be sent.
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
            // Nodes that only produce a value go to the device of their consumers, if all are on the same one.
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

    /// Assigns the device of one node of a set to the others.
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
            // Prefers devices of the task that obey the requests of resources, then any device.
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
            // A `_Retval` is placed with the fetched value; users know only the name of the latter.
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

/// Returns whether a node creates a variable or another resource, so that its device is not overridden.
fn makes_resource(node: &Node) -> bool {
    node.inputs.is_empty()
        && node.output_types.len() == 1
        && (node.output_types[0].is_ref || node.output_types[0].dtype == DType::Resource)
}

/// Returns whether a node calls a function, and so may have resources of other devices as inputs.
fn takes_any_resource(node: &Node, graph: &NodeGraph) -> bool {
    graph.library.get(node.op()).is_some() || node.schema.attrs.iter().any(|attr| attr.r#type.ends_with("func"))
}

/// Returns whether a node has no inputs and one output that is not a reference.
fn is_generator(node: &Node) -> bool {
    node.inputs.is_empty() && node.output_types.len() == 1 && !node.output_types[0].is_ref
}

/// Returns whether a node reads only the shape of its input.
fn is_metadata(node: &Node) -> bool {
    matches!(node.op(), "Shape" | "Size" | "Rank")
}

fn type_attrs(node: &Node) -> String {
    let types = node.schema.attrs.iter().filter(|attr| attr.r#type == "type");
    let shown = types.filter_map(|attr| node.attrs.dtype(&attr.name).ok().map(|ty| format!("{}={ty}", attr.name)));
    shown.collect::<Vec<_>>().join(", ")
}
