//! Pruning: [`RunSpec`] has the feeds, fetches and targets of a run, and [`prune`] keeps the part of a graph that they need.

use crate::import::parse_tensor_name;
use crate::{AttrMap, Edge, Node, NodeGraph, NodeId, OpLookup};
use foldhash::{HashMap, HashSet, HashSetExt};
use tensor::{DType, PartialShape, Result, Shape, Status};

/// The feeds, fetches and targets of a run, resolved in a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSpec {
    /// The fed tensors, with the names that the client uses.
    pub feeds: Vec<(String, Edge)>,
    /// The fetched tensors, with the names that the client uses.
    pub fetches: Vec<(String, Edge)>,
    /// The nodes to run for their effects.
    pub targets: Vec<NodeId>,
}

impl RunSpec {
    /// Resolves feeds and fetches (`name:port`) and targets in a graph. The errors are TensorFlow's.
    pub fn resolve<S: AsRef<str>>(graph: &NodeGraph, feeds: &[S], fetches: &[S], targets: &[S]) -> Result<RunSpec> {
        if fetches.is_empty() && targets.is_empty() {
            return Err(Status::invalid_argument("Must specify at least one target to fetch or execute."));
        }
        let mut spec = RunSpec::default();
        let mut fed = HashSet::new();
        for feed in feeds.iter().map(AsRef::as_ref) {
            let edge = resolve_feed(graph, feed)?;
            if !fed.insert(edge) {
                return Err(Status::invalid_argument(format!("Endpoint \"{feed}\" fed more than once.")));
            }
            spec.feeds.push((feed.to_owned(), edge));
        }
        for fetch in fetches.iter().map(AsRef::as_ref) {
            spec.fetches.push((fetch.to_owned(), resolve_fetch(graph, fetch)?));
        }
        let mut missing = String::new();
        for target in targets.iter().map(AsRef::as_ref) {
            match parse_tensor_name(target).ok().and_then(|(name, _)| graph.find(name)) {
                Some(id) if spec.targets.contains(&id) => {}
                Some(id) => spec.targets.push(id),
                None => {
                    missing.push_str(target);
                    missing.push(' ');
                }
            }
        }
        if !missing.is_empty() {
            return Err(Status::not_found(format!("PruneForTargets: Some target nodes not found: {missing}")));
        }
        Ok(spec)
    }

    /// Returns the type and shape that each feed must have.
    pub fn feed_slots(&self, graph: &NodeGraph) -> Result<Vec<FeedSlot>> {
        let slot = |(name, edge): &(String, Edge)| {
            let node = graph.get(edge.node).ok_or_else(|| Status::internal("a feed that isn't in the graph"))?;
            Ok(FeedSlot { name: name.clone(), dtype: node.dtype(edge.port)?, shape: placeholder_shape(node) })
        };
        self.feeds.iter().map(slot).collect()
    }

    /// Returns the fetches that are fed, as (index of the fetch, index of the feed): their values are known without a run.
    pub fn fed_fetches(&self) -> Vec<(usize, usize)> {
        let fed: HashMap<Edge, usize> =
            self.feeds.iter().enumerate().map(|(index, (_, edge))| (*edge, index)).collect();
        let fetches = self.fetches.iter().enumerate();
        fetches.filter_map(|(index, (_, edge))| fed.get(edge).map(|&feed| (index, feed))).collect()
    }
}

/// The type and shape that a feed must have.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedSlot {
    /// The name under which it is fed.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The shape of its placeholder.
    pub shape: PartialShape,
}

impl FeedSlot {
    /// Checks the type and shape of a value. Every run must do so, since optimization relies on the shapes of placeholders.
    pub fn check(&self, dtype: DType, shape: &Shape) -> Result<()> {
        if dtype != self.dtype {
            return Err(Status::invalid_argument(format!(
                "Tensor {} was fed a value of type {dtype}, but it is of type {}",
                self.name, self.dtype
            )));
        }
        if !self.shape.is_compatible_with(shape) {
            return Err(Status::invalid_argument(format!(
                "Cannot feed value of shape {shape} for Tensor {}, which has shape {}",
                self.name, self.shape
            )));
        }
        Ok(())
    }
}

/// Returns the shape of a placeholder. Early versions of TensorFlow wrote a scalar's shape for an unknown one.
fn placeholder_shape(node: &Node) -> PartialShape {
    let shape = if is_placeholder(node.op()) { node.attrs.shape("shape").ok() } else { None };
    shape.filter(|shape| shape.rank().is_some_and(|rank| rank > 0)).unwrap_or_default()
}

/// Rejects `_Arg` and `_Retval` nodes, which represent feeds and fetches in a pruned graph: a client with such nodes in its
/// graph would get the values of others.
fn check_is_for_clients(node: &Node) -> Result<()> {
    let what = match node.op() {
        "_Arg" | "_DeviceArg" => "GetArg",
        "_Retval" | "_DeviceRetval" => "SetRetval",
        _ => return Ok(()),
    };
    let index = node.attrs.int("index")?;
    Err(Status::invalid_argument(format!("{what} {index} is not within [0, 0)\n\t [[{{{{node {}}}}}]]", node.name)))
}

/// Returns a graph of only the nodes that the fetches and targets need.
///
/// An `_Arg` node on the fed node's device, with the feed's index in the attribute `index`, replaces every fed tensor that is
/// needed. Every fetch gets a `_Retval` node likewise. For a tensor that is both fed and fetched, the `_Arg` feeds the
/// `_Retval`.
pub fn prune(graph: &NodeGraph, spec: &RunSpec, ops: &dyn OpLookup) -> Result<NodeGraph> {
    let fed: HashMap<Edge, usize> = spec.feeds.iter().enumerate().map(|(index, (_, edge))| (*edge, index)).collect();
    let fed_placeholders: HashMap<NodeId, usize> = spec
        .feeds
        .iter()
        .enumerate()
        .filter(|(_, (_, edge))| graph.get(edge.node).is_some_and(|node| is_placeholder(node.op())))
        .map(|(index, (_, edge))| (edge.node, index))
        .collect();

    let mut needed = vec![false; graph.id_bound()];
    let mut needed_feeds = vec![false; spec.feeds.len()];
    let mut stack: Vec<NodeId> = Vec::new();
    let mut visit = |id: NodeId, stack: &mut Vec<NodeId>| {
        if let Some(seen) = needed.get_mut(id.index())
            && !std::mem::replace(seen, true)
        {
            stack.push(id);
        }
    };
    for (_, edge) in &spec.fetches {
        match fed.get(edge) {
            Some(&feed) => needed_feeds[feed] = true,
            None => visit(edge.node, &mut stack),
        }
    }
    for &target in &spec.targets {
        visit(target, &mut stack);
    }
    while let Some(id) = stack.pop() {
        let Some(node) = graph.get(id) else {
            return Err(Status::internal("a node that a run needs is missing from the graph"));
        };
        check_is_for_clients(node)?;
        for edge in &node.inputs {
            match fed.get(edge) {
                Some(&feed) => needed_feeds[feed] = true,
                None => visit(edge.node, &mut stack),
            }
        }
        for control in &node.control_inputs {
            // A fed placeholder does not run; nodes that waited for it wait for the feed.
            match fed_placeholders.get(control) {
                Some(&feed) => needed_feeds[feed] = true,
                None => visit(*control, &mut stack),
            }
        }
    }

    let mut result = NodeGraph::new(graph.library.clone());
    result.versions = graph.versions.clone();
    let mut args: Vec<Option<NodeId>> = vec![None; spec.feeds.len()];
    let taken = |name: &str| graph.find(name).is_some();
    for (index, (_, edge)) in spec.feeds.iter().enumerate() {
        if needed_feeds[index] {
            let node = graph.node(edge.node);
            let mut attrs = AttrMap::default();
            attrs.set("T", node.output_type(edge.port)?.dtype);
            attrs.set("index", index as i64);
            // A feed must match its placeholder; the shapes of other fed tensors are unknown.
            let shape = placeholder_shape(node);
            if shape.rank().is_some() {
                attrs.set("_output_shapes", [shape].as_slice());
            }
            let name = fresh_name(&result, &taken, &format!("_arg_{}_{}_{index}", node.name, edge.port));
            args[index] = Some(result.add_op(ops, "_Arg", name, attrs, vec![], vec![], node.device.clone())?);
        }
    }
    let kept: Vec<NodeId> = graph.ids().filter(|id| needed[id.index()]).collect();
    let first = result.id_bound() as u32;
    let ids: HashMap<NodeId, NodeId> = kept.iter().copied().zip((first..).map(NodeId)).collect();
    let lost = || Status::internal("an edge of a pruned graph leads nowhere");
    let moved = |edge: &Edge| -> Result<Edge> {
        match fed.get(edge) {
            Some(&feed) => Ok(Edge { node: args[feed].ok_or_else(lost)?, port: 0 }),
            None => Ok(Edge { node: *ids.get(&edge.node).ok_or_else(lost)?, port: edge.port }),
        }
    };
    for id in kept {
        let mut node = graph.node(id).clone();
        for edge in &mut node.inputs {
            *edge = moved(edge)?;
        }
        let mut controls: Vec<NodeId> = Vec::with_capacity(node.control_inputs.len());
        for control in &node.control_inputs {
            let control = match fed_placeholders.get(control) {
                Some(&feed) => args[feed].ok_or_else(lost)?,
                None => *ids.get(control).ok_or_else(lost)?,
            };
            if !controls.contains(&control) {
                controls.push(control);
            }
        }
        node.control_inputs = controls;
        result.add(node)?;
    }
    // A fed variable is only a value, so nodes that need the reference cannot run.
    for (_, node) in result.iter().filter(|(_, node)| node.input_types.iter().any(|slot| slot.is_ref)) {
        result.check_inputs(node)?;
    }
    for (index, (_, edge)) in spec.fetches.iter().enumerate() {
        let node = graph.node(edge.node);
        let mut attrs = AttrMap::default();
        attrs.set("T", node.output_type(edge.port)?.dtype);
        attrs.set("index", index as i64);
        let name = fresh_name(&result, &taken, &format!("_retval_{}_{}_{index}", node.name, edge.port));
        result.add_op(ops, "_Retval", name, attrs, vec![moved(edge)?], vec![], node.device.clone())?;
    }
    Ok(result)
}

/// Returns a name that is unused in both graphs.
fn fresh_name(result: &NodeGraph, taken: &dyn Fn(&str) -> bool, wanted: &str) -> String {
    let mut name = result.unique_name(wanted);
    while taken(&name) {
        name.push('_');
        name = result.unique_name(&name);
    }
    name
}

fn is_placeholder(op: &str) -> bool {
    matches!(op, "Placeholder" | "PlaceholderV2")
}

fn resolve_feed(graph: &NodeGraph, feed: &str) -> Result<Edge> {
    let missing = || Status::not_found(format!("FeedInputs: unable to find feed output {feed}"));
    let (name, port) = parse_tensor_name(feed).map_err(|_| missing())?;
    let id = graph.find(name).ok_or_else(missing)?;
    let outputs = graph.node(id).output_types.len();
    if port as usize >= outputs {
        return Err(Status::invalid_argument(format!("FeedInputs: {feed} should have output index < {outputs}")));
    }
    Ok(Edge { node: id, port })
}

fn resolve_fetch(graph: &NodeGraph, fetch: &str) -> Result<Edge> {
    let missing = || Status::not_found(format!("FetchOutputs node {fetch}: not found"));
    let (name, port) = parse_tensor_name(fetch).map_err(|_| missing())?;
    let id = graph.find(name).ok_or_else(missing)?;
    let outputs = graph.node(id).output_types.len();
    if outputs == 0 {
        return Err(Status::invalid_argument(format!(
            "Tried to fetch data for '{fetch}', which produces no output.  To run to a node but not fetch any data, pass \
             '{fetch}' as an argument to the 'target_node_names' argument of the Session::Run API."
        )));
    }
    if port as usize >= outputs {
        return Err(Status::invalid_argument(format!(
            "FetchOutputs {fetch}: output index too large, must be < {outputs}"
        )));
    }
    Ok(Edge { node: id, port })
}
