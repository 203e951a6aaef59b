//! [`FunctionLibraryRuntime`]: compiles and runs functions.

use crate::Executor;
use foldhash::{HashMap, HashMapExt};
use graph::{AttrMap, FunctionLibrary, NodeGraph, NodeId, SYMBOLIC_GRADIENT};
use kernel::{CallFrame, FunctionDone, FunctionHandle, FunctionRuntime, OpRegistry, SessionState, Step};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tensor::{Result, Status, Tensor};

/// A bound on how many different functions (with their attributes) are kept compiled.
const INSTANCES_MAX: usize = 1 << 16;

/// A bound on how many calls may lie within each other: a function that calls itself without end must not take all memory.
const CALL_DEPTH_MAX: u32 = 1000;

/// Runs the functions of a library on one device.
pub struct FunctionLibraryRuntime {
    library: Arc<FunctionLibrary>,
    registry: &'static OpRegistry,
    session: Arc<SessionState>,
    device: String,
    instances: Mutex<Instances>,
    itself: Weak<FunctionLibraryRuntime>,
}

struct Instances {
    by_key: HashMap<String, FunctionHandle>,
    compiled: Vec<Arc<Instance>>,
}

struct Instance {
    executor: Arc<Executor>,
    num_args: usize,
    num_results: usize,
    name: String,
}

impl FunctionLibraryRuntime {
    /// Makes a runtime that has compiled nothing yet.
    pub fn new(
        library: Arc<FunctionLibrary>,
        registry: &'static OpRegistry,
        session: Arc<SessionState>,
        device: &str,
    ) -> Arc<FunctionLibraryRuntime> {
        Arc::new_cyclic(|itself| FunctionLibraryRuntime {
            library,
            registry,
            session,
            device: device.to_owned(),
            instances: Mutex::new(Instances { by_key: HashMap::new(), compiled: Vec::new() }),
            itself: itself.clone(),
        })
    }

    fn compile(&self, name: &str, attrs: &AttrMap, key: &str) -> Result<Instance> {
        let body = if name == SYMBOLIC_GRADIENT {
            self.library.instantiate_gradient(attrs.func("f")?, self.registry)?
        } else {
            self.library.instantiate(name, attrs, self.registry)?
        };
        let (num_args, num_results) = (body.args.len(), body.results.len());
        let graph = without_useless(body.graph, &body.results, &body.control_results);
        let prefix = format!("{key}/");
        let executor = Executor::with_prefix(&graph, self.registry, &self.session, &self.device, &prefix)?;
        Ok(Instance { executor, num_args, num_results, name: name.to_owned() })
    }
}

impl FunctionRuntime for FunctionLibraryRuntime {
    fn instantiate(&self, name: &str, attrs: &AttrMap) -> Result<FunctionHandle> {
        let key = format!("{name}{:?}", attrs);
        if let Some(&handle) = self.instances.lock().by_key.get(&key) {
            return Ok(handle);
        }
        let instance = Arc::new(self.compile(name, attrs, &key)?);
        let mut instances = self.instances.lock();
        if let Some(&handle) = instances.by_key.get(&key) {
            return Ok(handle);
        }
        if instances.compiled.len() >= INSTANCES_MAX {
            return Err(Status::resource_exhausted("too many instantiated functions"));
        }
        let handle = FunctionHandle(instances.compiled.len() as u64);
        instances.compiled.push(instance);
        instances.by_key.insert(key, handle);
        Ok(handle)
    }

    fn run(&self, handle: FunctionHandle, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone) {
        let instance = self.instances.lock().compiled.get(handle.0 as usize).cloned();
        let Some(instance) = instance else {
            return done(Err(Status::not_found("no such function handle")));
        };
        if args.len() != instance.num_args {
            return done(Err(Status::invalid_argument(format!(
                "function '{}' takes {} arguments, but {} were given",
                instance.name,
                instance.num_args,
                args.len()
            ))));
        }
        let depth = step.frame.depth() + 1;
        if depth > CALL_DEPTH_MAX {
            return done(Err(Status::failed_precondition(format!(
                "function '{}' was called within {CALL_DEPTH_MAX} other calls: does it call itself without end?",
                instance.name
            ))));
        }
        let frame = CallFrame::new(args.into_iter().map(Some).collect(), instance.num_results).at_depth(depth);
        let runtime = self.itself.upgrade().map(|runtime| runtime as Arc<dyn FunctionRuntime>);
        let step = Arc::new(step.for_function(frame, runtime));
        let inner = step.clone();
        instance.executor.run(step, move |result| {
            done(result.and_then(|()| {
                let results = inner.frame.take_results().into_iter();
                results.map(|result| result.ok_or_else(|| Status::invalid_argument("Retval was not set"))).collect()
            }));
        });
    }
}

/// Removes nodes that no result needs and that have no side effects.
fn without_useless(mut graph: NodeGraph, results: &[NodeId], control_results: &[NodeId]) -> NodeGraph {
    let mut needed = vec![false; graph.id_bound()];
    let mut stack: Vec<NodeId> = results.iter().chain(control_results).copied().collect();
    stack.extend(graph.iter().filter(|(_, node)| node.schema.is_stateful()).map(|(id, _)| id));
    while let Some(id) = stack.pop() {
        if !std::mem::replace(&mut needed[id.index()], true) {
            let node = graph.node(id);
            stack.extend(node.inputs.iter().map(|edge| edge.node));
            stack.extend(&node.control_inputs);
        }
    }
    let useless: Vec<NodeId> = graph.ids().filter(|id| !needed[id.index()]).collect();
    for id in useless {
        graph.remove(id);
    }
    graph
}
