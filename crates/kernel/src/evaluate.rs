//! Runs a small graph on the calling thread, node by node, for constant folding and tests of single ops.

use crate::{
    BoxedKernel, CallFrame, Cancellation, FrameAndIteration, JobRunner, LocalRendezvous, Logger, OpContext, OpRegistry,
    Outputs, ResourceManager, SessionState, Step, Value, Values,
};
use foldhash::{HashMap, HashMapExt};
use graph::{Edge, NodeGraph, NodeId};
use numeric::denormals::FlushDenormals;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

struct InPlace;

impl JobRunner for InPlace {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

struct Silent;

impl Logger for Silent {
    fn log(&self, _level: &str, _message: &str) {}
}

impl Step {
    /// Returns a step without a session: it has its own resources, and discards what ops print.
    pub fn detached() -> Step {
        Step {
            id: 0,
            device: "/job:localhost/replica:0/task:0/device:CPU:0".into(),
            cancellation: Cancellation::new(),
            rendezvous: Arc::new(LocalRendezvous::new()),
            collectives: None,
            resources: Arc::new(ResourceManager::new()),
            step_resources: Arc::new(ResourceManager::new()),
            session: Arc::new(SessionState::new()),
            runner: Arc::new(InPlace),
            functions: None,
            frame: CallFrame::default(),
            logger: Arc::new(Silent),
            trace: None,
        }
    }
}

/// Computes `fetches` of a graph without control flow, given the values of `feeds`.
///
/// Rejects asynchronous kernels, so that it never waits.
pub fn evaluate(
    registry: &OpRegistry,
    graph: &NodeGraph,
    feeds: &[(Edge, Tensor)],
    fetches: &[Edge],
    step: &Arc<Step>,
) -> Result<Vec<Tensor>> {
    let mut values: HashMap<Edge, Value> = HashMap::new();
    for (edge, tensor) in feeds {
        values.insert(*edge, Value::Tensor(tensor.clone()));
    }
    let needed = needed(graph, &values, fetches);
    let _flush = FlushDenormals::begin();
    for id in graph.topological_order()? {
        if !needed[id.index()] {
            continue;
        }
        let node = graph.node(id);
        let mut inputs = Values::new();
        for (edge, slot) in node.inputs.iter().zip(&node.input_types) {
            let value = values.get(edge).cloned().unwrap_or_default();
            inputs.push(match value {
                Value::Ref(variable) if !slot.is_ref => Value::Tensor(variable.read()?),
                other => other,
            });
        }
        let mut outputs: Outputs = (0..node.output_types.len()).map(|_| Value::None).collect();
        let kernel = registry.create_kernel(node, &step.device)?;
        let BoxedKernel::Sync(kernel) = kernel else {
            return Err(Status::unimplemented(format!("node '{}' may wait", node.name)));
        };
        let frame = FrameAndIteration::default();
        let mut context = OpContext::new(&mut inputs, &mut outputs, step, &node.name, frame, false);
        kernel.compute(&mut context).map_err(|status| status.with_node(&node.name))?;
        for (port, value) in outputs.into_iter().enumerate() {
            values.entry(Edge { node: id, port: port as u32 }).or_insert(value);
        }
    }
    let fetch = |edge: &Edge| match values.get(edge) {
        Some(Value::Tensor(tensor)) => Ok(tensor.clone()),
        Some(Value::Ref(variable)) => variable.read(),
        _ => Err(Status::internal("a fetched output has no value")),
    };
    fetches.iter().map(fetch).collect()
}

fn needed(graph: &NodeGraph, fed: &HashMap<Edge, Value>, fetches: &[Edge]) -> Vec<bool> {
    let mut needed = vec![false; graph.id_bound()];
    let mut stack: Vec<NodeId> = fetches.iter().filter(|edge| !fed.contains_key(*edge)).map(|edge| edge.node).collect();
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut needed[id.index()], true) {
            continue;
        }
        let node = graph.node(id);
        stack.extend(node.inputs.iter().filter(|edge| !fed.contains_key(*edge)).map(|edge| edge.node));
        stack.extend(&node.control_inputs);
    }
    needed
}
