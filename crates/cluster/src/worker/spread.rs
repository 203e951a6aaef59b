//! Functions whose bodies run on other devices than their caller: partitioned by task, registered with each task's worker, and
//! run as separate steps. A worker does here for a function what a master does for a session's graph.

use super::graph_mgr::CALL_DEPTH;
use super::step_state::Transfers;
use crate::device::{LocalDevice, task_name};
use crate::interface::{PartitionGraph, RegisterGraphCall, RunGraphCall, RunGraphReply, WorkerInterface};
use crate::random::RandomIds;
use crate::spawner::Spawner;
use executor::{SpreadBody, SpreadFunction, SpreadRuntime};
use foldhash::fast::FixedState;
use foldhash::{HashMap, HashMapExt};
use futures_util::future::try_join_all;
use graph::passes::{PartitionOptions, PlacementOptions, by_task, partition, place};
use graph::{DeviceName, Node, NodeGraph};
use kernel::{FunctionDone, OpRegistry, Step};
use proto::attr_value::Value;
use proto::{AttrValue, GraphDef, NodeDef};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use tensor::{Code, Result, Status, Tensor};
use tokio::sync::{OnceCell, oneshot};

/// The access of a session's functions to other devices.
pub(crate) struct Spread {
    pub registry: &'static OpRegistry,
    /// This task's devices.
    pub devices: Vec<LocalDevice>,
    /// The other tasks.
    pub transfers: Arc<dyn Transfers>,
    pub spawner: Spawner,
    /// Draws the ids of the steps that functions run as.
    pub ids: Arc<RandomIds>,
    /// The session for which the graphs are registered, if its master has opened one here.
    pub session_handle: Option<Arc<str>>,
}

impl SpreadRuntime for SpreadHandle {
    fn prepare(&self, body: SpreadBody) -> Arc<dyn SpreadFunction> {
        Arc::new(Prepared { function: Arc::new(Function { spread: self.0.clone(), body, compiled: OnceCell::new() }) })
    }
}

/// Holds the context for functions.
pub(crate) struct SpreadHandle(pub Arc<Spread>);

struct Prepared {
    function: Arc<Function>,
}

struct Function {
    spread: Arc<Spread>,
    body: SpreadBody,
    /// The result of compiling a function on its first call.
    compiled: OnceCell<Vec<Part>>,
}

/// One task's part of a function.
struct Part {
    worker: Arc<dyn WorkerInterface>,
    task: String,
    session_handle: Arc<str>,
    create_worker_session_called: bool,
    graph_handle: Arc<str>,
    spawner: Spawner,
    /// The arguments that it takes, with their keys.
    args: Vec<(usize, Arc<str>)>,
    /// The results that it returns, with their keys.
    results: Vec<usize>,
    receives: Arc<[Arc<str>]>,
}

impl SpreadFunction for Prepared {
    fn run(&self, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone) {
        let (sender, cancelled) = oneshot::channel();
        let cancellation = step.cancellation.clone();
        let token = match cancellation.register(move |status| drop(sender.send(status))) {
            Ok(token) => token,
            Err(status) => return done(Err(status)),
        };
        let function = self.function.clone();
        function.spread.spawner.clone().spawn(async move {
            let outcome = tokio::select! {
                biased;
                Ok(status) = cancelled => Err(status),
                outcome = function.call(args) => outcome,
            };
            cancellation.deregister(token);
            done(outcome);
        });
    }
}

impl Function {
    async fn call(&self, args: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let parts = self.compiled.get_or_try_init(|| self.compile()).await?;
        let step_id = self.spread.ids.next_step_id();
        let _cleanup = Cleanup { parts, step_id };
        let calls = parts.iter().map(|part| {
            let sends = part.args.iter().filter_map(|(index, key)| Some((key.clone(), args.get(*index)?.clone())));
            part.worker.run_graph(RunGraphCall {
                session_handle: part.session_handle.clone(),
                create_worker_session_called: part.create_worker_session_called,
                graph_handle: part.graph_handle.clone(),
                step_id,
                sends: sends.collect(),
                receives: part.receives.clone(),
                options: Default::default(),
                is_partial: false,
                is_last_partial_run: false,
                cleans_itself: false,
            })
        });
        let answers: Vec<_> = calls.collect();
        drop(args);
        let replies = all_replies(parts, answers, self.spread.transfers.task()).await?;
        let count = parts.iter().map(|part| part.results.len()).sum();
        let mut results = vec![None; count];
        for (part, reply) in parts.iter().zip(replies) {
            for (&index, tensor) in part.results.iter().zip(reply.received) {
                if let Some(slot) = results.get_mut(index) {
                    *slot = Some(tensor);
                }
            }
        }
        results.into_iter().map(|result| result.ok_or_else(|| Status::invalid_argument("Retval was not set"))).collect()
    }

    /// Places the body, partitions it and registers the parts.
    async fn compile(&self) -> Result<Vec<Part>> {
        let (devices, incarnations) = self.spread.devices_of(&self.body.graph, &self.body.device).await?;
        let parts = self.cut(&devices, &incarnations)?;
        let registered = parts.into_iter().map(|(task, def, terminals)| self.spread.register(task, def, terminals));
        try_join_all(registered).await
    }

    /// Returns what each task runs, with its arguments and results.
    fn cut(
        &self,
        devices: &[DeviceName],
        incarnations: &HashMap<String, u64>,
    ) -> Result<Vec<(String, GraphDef, Terminals)>> {
        let mut graph = self.body.graph.clone();
        let options = PlacementOptions {
            allow_soft_placement: true,
            default_device: Some(DeviceName::parse(&self.body.device)?),
        };
        let library = graph.library.clone();
        let registry = self.spread.registry;
        let has_kernel = |node: &Node, device_type: &str| {
            device_type != "CPU" || registry.has_kernel(node) || library.get(node.op()).is_some()
        };
        place(&mut graph, devices, &options, &has_kernel)?;
        let incarnation = |device: &str| incarnations.get(device).copied().unwrap_or_default();
        let options = PartitionOptions { location: &by_task, incarnation: &incarnation, control_flow_added: false };
        // Stateful kernels are found by name in their session: another graph's must not be mistaken for this one's.
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(self.body.key.as_bytes());
        let task = self.spread.transfers.task().trim_start_matches('/').replace(':', "_");
        let prefix = format!("{task}/{:016x}/", hasher.finish());
        let parts = partition(&graph, registry, &options)?.into_iter().map(|(task, graph)| {
            let mut def = graph.to_graph_def();
            let terminals = Terminals::take(&mut def, &incarnation)?;
            rename(&mut def, &prefix, self.body.depth);
            Ok((task, def, terminals))
        });
        parts.collect()
    }
}

impl Spread {
    /// Returns the devices of the tasks in a graph, and their incarnations.
    async fn devices_of(&self, graph: &NodeGraph, own: &str) -> Result<(Vec<DeviceName>, HashMap<String, u64>)> {
        let own = DeviceName::parse(own)?;
        let mut tasks = vec![own.task_part().to_string()];
        for (_, node) in graph.iter().filter(|(_, node)| !node.device.is_empty()) {
            let wanted = own.task_part().merged_with(&DeviceName::parse(&node.device)?);
            let (Some(job), Some(task)) = (&wanted.job, wanted.task) else { continue };
            let task = task_name(job, task);
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
        let (mut devices, mut incarnations) = (Vec::new(), HashMap::new());
        for task in tasks {
            let found: Vec<(String, u64)> = if task == self.transfers.task() {
                self.devices.iter().map(|device| (device.name.to_string(), device.incarnation)).collect()
            } else {
                let attributes = self.transfers.worker(&task)?.get_status().await?;
                let renamed = |device: proto::DeviceAttributes| {
                    crate::device::rename(&device.name, &task).map(|name| (name, device.incarnation))
                };
                attributes.into_iter().map(renamed).collect::<Result<_>>()?
            };
            for (name, incarnation) in found {
                devices.push(DeviceName::parse(&name)?);
                incarnations.insert(name, incarnation);
            }
        }
        Ok((devices, incarnations))
    }

    async fn register(&self, task: String, def: GraphDef, terminals: Terminals) -> Result<Part> {
        let worker = self.transfers.worker(&task)?;
        let request = |session_handle: &str, create_worker_session_called| RegisterGraphCall {
            session_handle: session_handle.to_owned(),
            create_worker_session_called,
            graph: PartitionGraph::Def(def.clone()),
            config: None,
            collective_graph_key: 0,
        };
        let mut session_handle: Arc<str> = self.session_handle.clone().unwrap_or_default();
        let mut create_worker_session_called = self.session_handle.is_some();
        let mut registered = worker.register_graph(request(&session_handle, create_worker_session_called)).await;
        // The master opens its session only on the tasks that the graph itself names. Others run the function in the session that
        // all masters share.
        if create_worker_session_called && matches!(&registered, Err(status) if status.code() == Code::Aborted) {
            (session_handle, create_worker_session_called) = ("".into(), false);
            registered = worker.register_graph(request("", false)).await;
        }
        let graph_handle = registered.map_err(|status| self.from_task(&task, status))?.graph_handle;
        Ok(Part {
            worker,
            task,
            session_handle,
            create_worker_session_called,
            graph_handle: graph_handle.into(),
            spawner: self.spawner.clone(),
            args: terminals.args,
            results: terminals.results.iter().map(|(index, _)| *index).collect(),
            receives: terminals.results.into_iter().map(|(_, key)| key).collect(),
        })
    }

    fn from_task(&self, task: &str, status: Status) -> Status {
        named(task, self.transfers.task(), status)
    }
}

/// Names the task that an error came from, unless it is this one.
fn named(task: &str, own: &str, status: Status) -> Status {
    if task == own {
        return status;
    }
    let named = Status::new(status.code(), format!("From {task}:\n{}", status.message()));
    if status.is_derived() { named.derived() } else { named }
}

/// Waits for all answers, or for the first error that isn't a consequence of another.
async fn all_replies(
    parts: &[Part],
    answers: Vec<crate::interface::Answer<RunGraphReply>>,
    own: &str,
) -> Result<Vec<RunGraphReply>> {
    let calls = answers
        .into_iter()
        .zip(parts)
        .map(|(answer, part)| async move { answer.await.map_err(|status| named(&part.task, own, status)) });
    try_join_all(calls).await
}

/// Ends a function's step on all tasks, whatever its result.
struct Cleanup<'a> {
    parts: &'a [Part],
    step_id: i64,
}

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        for part in self.parts {
            let (worker, step_id) = (part.worker.clone(), self.step_id);
            part.spawner.spawn(async move {
                if let Err(status) = worker.cleanup_graph(step_id).await {
                    tracing::debug!("a function's step could not be cleaned up: {status}");
                }
            });
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let request = proto::DeregisterGraphRequest {
            graph_handle: self.graph_handle.to_string(),
            session_handle: self.session_handle.to_string(),
            create_worker_session_called: self.create_worker_session_called,
        };
        let worker = self.worker.clone();
        // Not here: a part may end under a lock of the worker's that protects its graphs.
        self.spawner.spawn(async move {
            // The session may have ended before, with the graph.
            if let Err(status) = worker.deregister_graph(request).await {
                tracing::debug!("a function's graph could not be dropped: {status}");
            }
        });
    }
}

/// The arguments and results of a part, with the keys by which they are fed and fetched.
#[derive(Default)]
struct Terminals {
    args: Vec<(usize, Arc<str>)>,
    results: Vec<(usize, Arc<str>)>,
}

impl Terminals {
    /// Turns a graph's arguments into feeds and its results into fetches.
    fn take(def: &mut GraphDef, incarnation: &dyn Fn(&str) -> u64) -> Result<Terminals> {
        let mut terminals = Terminals::default();
        for node in &mut def.node {
            let is_arg = match node.op.as_str() {
                "_Arg" => true,
                "_Retval" => false,
                _ => continue,
            };
            let (Some(Value::I(index)), Some(Value::Type(dtype))) = (value(node, "index"), value(node, "T")) else {
                return Err(Status::invalid_argument(format!("'{}' has no index or type", node.name)));
            };
            let index = usize::try_from(index).map_err(|_| Status::invalid_argument("a negative index"))?;
            let (name, device) = (format!("{}_{index}", node.op), node.device.clone());
            let number = incarnation(&device);
            let key: Arc<str> = format!("{device};{number:016x};{device};{name};0:0").into();
            let list = if is_arg { &mut terminals.args } else { &mut terminals.results };
            list.push((index, key));
            let values = [
                ("index", Value::I(0)),
                ("T", Value::Type(dtype)),
                ("tensor_name", Value::S(name.into())),
                ("send_device", Value::S(device.clone().into())),
                ("recv_device", Value::S(device.into())),
                ("send_device_incarnation", Value::I(number as i64)),
                ("client_terminated", Value::B(true)),
            ];
            node.attr = values.into_iter().map(|(key, value)| (key.to_owned(), attr(value))).collect();
        }
        Ok(terminals)
    }
}

fn value(node: &NodeDef, name: &str) -> Option<Value> {
    node.attr.get(name).and_then(|attr| attr.value.clone())
}

fn attr(value: Value) -> AttrValue {
    AttrValue { value: Some(value) }
}

/// Gives all nodes unique names, and records the depth of the call.
fn rename(def: &mut GraphDef, prefix: &str, depth: u32) {
    for node in &mut def.node {
        node.name.insert_str(0, prefix);
        for input in &mut node.input {
            let at = usize::from(input.starts_with('^'));
            input.insert_str(at, prefix);
        }
        // Every node has its device already.
        node.attr.remove("_class");
        node.attr.insert(CALL_DEPTH.to_owned(), attr(Value::I(i64::from(depth))));
    }
}
