//! [`FunctionLibraryRuntime`]: compiles and runs functions on one device, and hands those that need others to a [`SpreadRuntime`].

use crate::Executor;
use foldhash::{HashMap, HashMapExt};
use graph::{AttrMap, DeviceName, FunctionBody, FunctionLibrary, NodeGraph, NodeId, SYMBOLIC_GRADIENT};
use kernel::{
    CallFrame, FunctionDone, FunctionHandle, FunctionPlace, FunctionRuntime, OpRegistry, SessionKernels, Step,
};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tensor::{DType, Result, Status, Tensor};

/// A bound on how many different functions (with their attributes) are kept compiled.
const INSTANCES_MAX: usize = 1 << 16;

/// A bound on the depth of nested calls: a function that recurses without end must not exhaust memory.
const CALL_DEPTH_MAX: u32 = 1000;

/// A bound on the depth of nested calls that leave their device: each keeps graphs on the devices that it uses.
const SPREAD_DEPTH_MAX: u32 = 32;

/// Prepares functions whose bodies run on other devices than their caller, or on several. The executor knows only one device.
pub trait SpreadRuntime: Send + Sync {
    /// Prepares a function. Nodes without a device run on the caller's; the arguments have the devices of their values.
    fn prepare(&self, body: SpreadBody) -> Arc<dyn SpreadFunction>;
}

/// A function that runs on several devices.
pub trait SpreadFunction: Send + Sync {
    /// Runs the function within a step and gives `done` the results.
    fn run(&self, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone);
}

/// A function body to be spread over devices.
pub struct SpreadBody {
    /// The nodes, with `_Arg` and `_Retval` for the arguments and results.
    pub graph: NodeGraph,
    /// A name that is unique among the bodies of the library.
    pub key: String,
    /// The caller's device.
    pub device: String,
    /// The depth of this call.
    pub depth: u32,
}

/// Runs the functions of a library on one device.
pub struct FunctionLibraryRuntime {
    library: Arc<FunctionLibrary>,
    registry: &'static OpRegistry,
    kernels: Arc<SessionKernels>,
    device: String,
    spread: Option<Arc<dyn SpreadRuntime>>,
    /// The depth of this library's graph, counted in calls that left their device.
    depth: u32,
    instances: Mutex<Instances>,
    /// The runtime that this one was forked from; functions without state are compiled there.
    origin: Option<Arc<FunctionLibraryRuntime>>,
    itself: Weak<FunctionLibraryRuntime>,
}

struct Instances {
    by_key: HashMap<String, FunctionHandle>,
    compiled: Vec<Arc<Instance>>,
}

struct Instance {
    body: Body,
    num_args: usize,
    num_results: usize,
    name: String,
    attrs: AttrMap,
    /// Whether it runs on the devices that its body names, and so where its resource arguments are.
    follows_resources: bool,
    /// Whether it, or a function that it calls, may have stateful kernels here.
    is_stateful: bool,
}

enum Body {
    Here(Arc<Executor>),
    Spread(Arc<dyn SpreadFunction>),
}

/// Where an instance runs.
struct Instantiation<'a> {
    place: &'a FunctionPlace,
    /// The devices of the arguments that are resources of other devices, by index.
    resources: &'a [(usize, String)],
    depth: u32,
}

impl FunctionLibraryRuntime {
    /// Makes a runtime that has compiled nothing yet.
    pub fn new(
        library: Arc<FunctionLibrary>,
        registry: &'static OpRegistry,
        kernels: Arc<SessionKernels>,
        device: &str,
    ) -> Arc<FunctionLibraryRuntime> {
        FunctionLibraryRuntime::with_spread(library, registry, kernels, device, None, 0)
    }

    /// Makes a runtime that hands calls for other devices to a [`SpreadRuntime`]; `depth` is the number of such calls around it.
    pub fn with_spread(
        library: Arc<FunctionLibrary>,
        registry: &'static OpRegistry,
        kernels: Arc<SessionKernels>,
        device: &str,
        spread: Option<Arc<dyn SpreadRuntime>>,
        depth: u32,
    ) -> Arc<FunctionLibraryRuntime> {
        Arc::new_cyclic(|itself| FunctionLibraryRuntime {
            library,
            registry,
            kernels,
            device: device.to_owned(),
            spread,
            depth,
            instances: Mutex::new(Instances { by_key: HashMap::new(), compiled: Vec::new() }),
            origin: None,
            itself: itself.clone(),
        })
    }

    fn compile(&self, name: &str, attrs: &AttrMap, key: &str, at: &Instantiation<'_>) -> Result<Instance> {
        let body = if name == SYMBOLIC_GRADIENT {
            self.library.instantiate_gradient(attrs.func("f")?, self.registry)?
        } else {
            self.library.instantiate(name, attrs, self.registry)?
        };
        let (num_args, num_results) = (body.args.len(), body.results.len());
        let follows_resources = *at.place == FunctionPlace::AsRequested && at.resources.is_empty();
        let instance = |body, is_stateful| Instance {
            body,
            num_args,
            num_results,
            name: name.to_owned(),
            attrs: attrs.clone(),
            follows_resources,
            is_stateful,
        };
        if self.needs_other_devices(&body.graph, at) {
            // Its state lives where it runs, as long as the session.
            return Ok(instance(Body::Spread(self.spread_body(name, body, key, at)?), false));
        }
        let graph = without_useless(body.graph, &body.results, &body.control_results);
        let nodes = graph.iter().map(|(_, node)| (node.op(), &node.attrs));
        let is_stateful =
            graph.iter().any(|(_, node)| node.schema.is_stateful()) || !self.library.reachable_from(nodes).is_empty();
        let prefix = format!("{key}/");
        let executor = Executor::with_prefix(&graph, self.registry, &self.kernels, &self.device, &prefix)?;
        Ok(instance(Body::Here(executor), is_stateful))
    }

    fn needs_other_devices(&self, graph: &NodeGraph, at: &Instantiation<'_>) -> bool {
        match at.place {
            FunctionPlace::Here => false,
            FunctionPlace::On(_) => true,
            FunctionPlace::AsRequested => {
                let own = DeviceName::parse(&self.device).unwrap_or_default();
                let is_elsewhere = |device: &str| {
                    // A device of another kind is replaced by a CPU, as for a whole graph.
                    let wanted = DeviceName::parse(device).ok().filter(|wanted| {
                        wanted.device_type.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("CPU"))
                    });
                    wanted.is_some_and(|wanted| own.merged_with(&wanted).to_string() != own.to_string())
                };
                self.spread.is_some()
                    && (!at.resources.is_empty()
                        || graph.iter().any(|(_, node)| !node.device.is_empty() && is_elsewhere(&node.device)))
            }
        }
    }

    fn spread_body(
        &self,
        name: &str,
        body: FunctionBody,
        key: &str,
        at: &Instantiation<'_>,
    ) -> Result<Arc<dyn SpreadFunction>> {
        let Some(spread) = &self.spread else {
            return Err(Status::invalid_argument(format!(
                "function '{name}' can be called on this device ({}) only: there is no other",
                self.device
            )));
        };
        if at.depth > SPREAD_DEPTH_MAX {
            return Err(Status::failed_precondition(format!(
                "function '{name}' was called on another device within {SPREAD_DEPTH_MAX} other such calls: does it call \
                 itself without end?"
            )));
        }
        let FunctionBody { graph, args, results, control_results } = body;
        let mut graph = without_useless(graph, &results, &control_results);
        if let FunctionPlace::On(device) = at.place {
            for id in graph.ids().collect::<Vec<_>>() {
                graph.node_mut(id).device.clone_from(device);
            }
        } else {
            for (index, &arg) in args.iter().enumerate() {
                let resource = at.resources.iter().find(|(known, _)| *known == index);
                let device = resource.map_or(&self.device, |(_, device)| device);
                if graph.get(arg).is_some() {
                    graph.node_mut(arg).device.clone_from(device);
                }
            }
        }
        Ok(spread.prepare(SpreadBody { graph, key: key.to_owned(), device: self.device.clone(), depth: at.depth }))
    }

    fn find_or_compile(&self, name: &str, attrs: &AttrMap, at: &Instantiation<'_>) -> Result<FunctionHandle> {
        let key = match at.place {
            FunctionPlace::Here => format!("{name}{attrs:?}"),
            place => format!("{name}{attrs:?}{place:?}{:?}", at.resources),
        };
        if let Some(&handle) = self.instances.lock().by_key.get(&key) {
            return Ok(handle);
        }
        let instance = match &self.origin {
            Some(origin) => {
                let original = origin.instance(origin.find_or_compile(name, attrs, at)?)?;
                match original.is_stateful {
                    true => Arc::new(self.compile(name, attrs, &key, at)?),
                    false => original,
                }
            }
            None => Arc::new(self.compile(name, attrs, &key, at)?),
        };
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

    fn instance(&self, handle: FunctionHandle) -> Result<Arc<Instance>> {
        let found = self.instances.lock().compiled.get(handle.0 as usize).cloned();
        found.ok_or_else(|| Status::not_found("no such function handle"))
    }

    /// Returns the instance for arguments that are resources of other devices; none if there are none.
    fn for_arguments(&self, instance: Arc<Instance>, args: &[Tensor], depth: u32) -> Result<Arc<Instance>> {
        if !instance.follows_resources || self.spread.is_none() {
            return Ok(instance);
        }
        let mut resources = Vec::new();
        for (index, arg) in args.iter().enumerate().filter(|(_, arg)| arg.dtype() == DType::Resource) {
            let device = arg.resources()?.first().map(|handle| handle.device.clone()).unwrap_or_default();
            if *device != *self.device && DeviceName::parse(&device).is_ok_and(|device| device.is_full()) {
                resources.push((index, device.to_string()));
            }
        }
        if resources.is_empty() {
            return Ok(instance);
        }
        let at = Instantiation { place: &FunctionPlace::AsRequested, resources: &resources, depth };
        self.instance(self.find_or_compile(&instance.name, &instance.attrs, &at)?)
    }
}

impl FunctionRuntime for FunctionLibraryRuntime {
    fn instantiate(&self, name: &str, attrs: &AttrMap, place: &FunctionPlace) -> Result<FunctionHandle> {
        self.find_or_compile(name, attrs, &Instantiation { place, resources: &[], depth: self.depth + 1 })
    }

    fn fork(&self) -> Option<Arc<dyn FunctionRuntime>> {
        let origin = self.itself.upgrade()?;
        Some(Arc::new_cyclic(|itself| FunctionLibraryRuntime {
            library: self.library.clone(),
            registry: self.registry,
            // Dropped with the fork.
            kernels: Arc::new(SessionKernels::new()),
            device: self.device.clone(),
            spread: self.spread.clone(),
            depth: self.depth,
            instances: Mutex::new(Instances { by_key: HashMap::new(), compiled: Vec::new() }),
            origin: Some(origin),
            itself: itself.clone(),
        }))
    }

    fn run(&self, handle: FunctionHandle, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone) {
        let instance = match self.instance(handle) {
            Ok(instance) => instance,
            Err(status) => return done(Err(status)),
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
        let instance = match self.for_arguments(instance, &args, self.depth + 1) {
            Ok(instance) => instance,
            Err(status) => return done(Err(status)),
        };
        let executor = match &instance.body {
            Body::Here(executor) => executor,
            Body::Spread(function) => return function.run(args, step, done),
        };
        let frame = CallFrame::new(args.into_iter().map(Some).collect(), instance.num_results).at_depth(depth);
        let runtime = self.itself.upgrade().map(|runtime| runtime as Arc<dyn FunctionRuntime>);
        let step = Arc::new(step.for_function(frame, runtime));
        let inner = step.clone();
        executor.run(step, move |result| {
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
