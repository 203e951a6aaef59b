//! [`AllReduceOptimizer`]: workers that train as equals, without parameter servers. Each has its own copy of all variables (they are
//! mirrored), and all apply the mean of all gradients, so that the variables stay the same everywhere.

mod broadcast;
mod elastic;
mod hook;
mod membership;
mod reduce;
mod waiting;

pub use hook::AllReduceHook;

use super::gradient_reduction::GradientReduction;
use super::optimizer::{GradientAndVariable, GradientOptions, Optimizer, OptimizerState};
use crate::variable::Variable;
use crate::worker_group::WorkerGroup;
use broadcast::Broadcast;
use graph::builder::Grad;
use graph::{Graph, Operation, Output};
use parking_lot::Mutex;
use reduce::{Reducer, on};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use tensor::{PartialShape, Result, Status, Tensor};

/// Gradients smaller than this are reduced together, up to this total size.
const BUCKET_BYTES_DEFAULT: usize = 4 << 20;

/// The default key of the collective group.
const GROUP_KEY_DEFAULT: i32 = 0x0a11;

/// Has all workers apply the mean of their gradients with another optimizer, each to its own variables.
///
/// Every worker builds its graph on its own device and runs it on its own server. The chief gives the others the first values of the
/// variables ([`make_session_run_hook`](Self::make_session_run_hook)), and it alone saves checkpoints:
///
/// ```
/// use ferroflow::distributed::WorkerGroup;
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let group = WorkerGroup::alone();
/// let g = Graph::new();
/// let (step, w) = (create_global_step(&g), Variable::new(&g, "w", &g.constant(4f32)));
/// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &group);
/// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
/// let hook = optimizer.make_session_run_hook(group.is_chief())?;
/// let mut session = MonitoredSession::training(&g).hook(hook).hook(StopAtStepHook::at(3)).build()?;
/// while !session.should_stop() {
///     session.run(&RunArgs::new().target(&train))?;
/// }
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
///
/// A step that reduces gradients must not use parameter servers: because of the collective ops, the steps of all workers have the same id,
/// and a server that several of them use would take them for one step. A program with embeddings on parameter servers fetches their rows
/// in a separate step before, and applies the gradients of the rows in another one after.
pub struct AllReduceOptimizer<O> {
    optimizer: O,
    settings: Settings,
    built: Mutex<Option<Built>>,
}

/// How gradients are reduced.
#[derive(Clone)]
struct Settings {
    group: WorkerGroup,
    group_key: i32,
    bucket_bytes: usize,
    is_compressed: bool,
}

/// The graph to which gradients were applied, and the inputs of its collective ops.
#[derive(Clone)]
struct Built {
    graph: Graph,
    members: Members,
}

/// The tensors that tell collective ops their group. They can be fed.
#[derive(Clone)]
struct Members {
    size: Output,
    key: Output,
    /// The default value of `key`.
    group_key: i32,
    /// How the chief of an elastic group calls for another epoch after a step.
    call: Option<Call>,
}

/// A number that is 0 at every worker unless the chief calls all to meet for another epoch, and its mean over all workers.
#[derive(Clone)]
struct Call {
    given: Output,
    mean: Arc<Mutex<Option<Output>>>,
}

/// The groups that the collective ops of a graph have.
#[derive(Default)]
struct Groups(Mutex<Vec<Members>>);

/// Numbers the collective ops of a graph. All workers build the same ops in the same order, so each op has the same number everywhere.
#[derive(Default)]
struct InstanceKeys(AtomicI32);

impl<O: Optimizer> AllReduceOptimizer<O> {
    /// Wraps an optimizer for the workers of a group.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, WorkerGroup};
    /// use ferroflow::train::{AdamOptimizer, AllReduceOptimizer, Optimizer};
    ///
    /// let cluster = ClusterSpec::new().with_job("worker", &["host0:2222", "host1:2222"])?;
    /// let optimizer = AllReduceOptimizer::new(AdamOptimizer::new(0.001), &WorkerGroup::new(&cluster, "worker", 0)?);
    /// assert_eq!(optimizer.name(), "Adam");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(optimizer: O, group: &WorkerGroup) -> Self {
        AllReduceOptimizer { optimizer, settings: Settings::of(group), built: Mutex::new(None) }
    }

    /// Sets the key of the collective group, for programs that have other groups on the same servers.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::train::{AllReduceOptimizer, GradientDescentOptimizer};
    ///
    /// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &WorkerGroup::alone()).group_key(7);
    /// ```
    pub fn group_key(mut self, key: i32) -> Self {
        self.settings.group_key = key;
        self
    }

    /// Sets how many bytes of small gradients are reduced together. Larger buckets need fewer exchanges; smaller ones begin sooner,
    /// while the rest of the gradients is still being computed.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::train::{AllReduceOptimizer, GradientDescentOptimizer};
    ///
    /// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &WorkerGroup::alone()).bucket_bytes(1 << 20);
    /// ```
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.settings.bucket_bytes = bytes;
        self
    }

    /// Sets whether dense gradients are sent as bfloat16, which has half the bytes of float32 and three significant digits. The
    /// setting must be the same for all workers.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::train::{AllReduceOptimizer, GradientDescentOptimizer};
    ///
    /// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &WorkerGroup::alone());
    /// let optimizer = optimizer.compress_to_bfloat16(true);
    /// ```
    pub fn compress_to_bfloat16(mut self, is_compressed: bool) -> Self {
        self.settings.is_compressed = is_compressed;
        self
    }

    /// Returns the optimizer that applies the means.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::train::{AdamOptimizer, AllReduceOptimizer, Optimizer};
    ///
    /// let optimizer = AllReduceOptimizer::new(AdamOptimizer::new(0.001), &WorkerGroup::alone());
    /// assert_eq!(optimizer.inner().name(), "Adam");
    /// ```
    pub fn inner(&self) -> &O {
        &self.optimizer
    }

    /// Adds the operations that give all mirrored variables of the graph the values of one worker. The first is for that worker, the second
    /// for all others, and they wait for each other. Call this after `apply_gradients`, when all variables exist.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::{prelude::*, train::*};
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = AllReduceOptimizer::new(AdamOptimizer::new(0.1), &WorkerGroup::alone());
    /// let train = optimizer.minimize(&w.value().square(), None)?;
    /// let (send, _receive) = optimizer.broadcast()?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// session.run_ops(&[&send])?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn broadcast(&self) -> Result<(Operation, Operation)> {
        let built = self.built("broadcast")?;
        let Broadcast { send, receive } = Broadcast::build(&built.graph, &self.settings.group, &built.members)?;
        Ok((send, receive))
    }

    /// Returns the hook for a worker of a monitored session; call it after `apply_gradients`. Every worker initializes its variables, and
    /// then the chief, which may have restored a checkpoint, sends the others its values. So each worker's session is a chief's, but
    /// only the chief of the group has a directory for checkpoints.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let logdir = directory.path().to_str().unwrap();
    /// # let group = WorkerGroup::alone();
    /// # let g = Graph::new();
    /// # let (step, w) = (create_global_step(&g), Variable::new(&g, "w", &g.constant(4f32)));
    /// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &group);
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let mut builder = MonitoredSession::training(&g).config(group.session_config(Default::default()));
    /// if group.is_chief() {
    ///     builder = builder.checkpoint_dir(logdir);
    /// }
    /// let session = builder.hook(optimizer.make_session_run_hook(group.is_chief())?).build()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn make_session_run_hook(&self, is_chief: bool) -> Result<AllReduceHook> {
        let built = self.built("make_session_run_hook")?;
        Ok(AllReduceHook::new(self.settings.group.clone(), built.members, is_chief))
    }

    fn built(&self, what: &str) -> Result<Built> {
        let built = self.built.lock().clone();
        built.ok_or_else(|| Status::failed_precondition(format!("{what}() should be called after apply_gradients().")))
    }
}

impl Settings {
    fn of(group: &WorkerGroup) -> Settings {
        Settings {
            group: group.clone(),
            group_key: GROUP_KEY_DEFAULT,
            bucket_bytes: BUCKET_BYTES_DEFAULT,
            is_compressed: false,
        }
    }

    /// Returns the tensors that tell the group in a graph.
    fn members(&self, graph: &Graph) -> Result<Members> {
        let groups = graph.extension::<Groups>();
        if let Some(known) = groups.0.lock().iter().find(|known| known.group_key == self.group_key) {
            return Ok(known.clone());
        }
        let members = graph.in_name_scope("", |graph| {
            graph.name_scope("all_reduce_group", |graph| {
                on(graph, self.group.device(), |graph| Members::build(graph, &self.group, self.group_key))
            })
        })?;
        groups.0.lock().push(members.clone());
        Ok(members)
    }

    fn reduced(&self, graph: &Graph, gradients: &[GradientAndVariable]) -> Result<Vec<GradientAndVariable>> {
        let members = self.members(graph)?;
        graph.name_scope("all_reduce", |graph| {
            on(graph, self.group.device(), |graph| {
                let reducer = Reducer {
                    graph,
                    group: &self.group,
                    members: &members,
                    bucket_bytes: self.bucket_bytes,
                    is_compressed: self.is_compressed,
                };
                reducer.reduce(gradients)
            })
        })
    }
}

/// Has all optimizers of a graph apply the means over a group, and returns the hook that every worker's session needs.
pub(crate) fn mirror(graph: &Graph, group: &WorkerGroup) -> Result<AllReduceHook> {
    let settings = Settings::of(group);
    let members = settings.members(graph)?;
    let hook = AllReduceHook::new(group.clone(), members, group.is_chief());
    GradientReduction::set(graph, Arc::new(move |graph, gradients| settings.reduced(graph, gradients)));
    Ok(hook)
}

impl Members {
    fn build(graph: &Graph, group: &WorkerGroup, group_key: i32) -> Result<Members> {
        let size = i32::try_from(group.size()).map_err(|_| Status::invalid_argument("there are too many workers"))?;
        let scalar = |name: &str, value: Tensor| {
            let value = graph.constant_tensor(&value);
            let op = graph.op("PlaceholderWithDefault").name(name).input(&value).attr("shape", PartialShape::scalar());
            op.try_build().map(|op| op.output(0))
        };
        let call = match group.bounds() {
            Some(_) => Some(Call { given: scalar("epoch_call", Tensor::scalar(0f32))?, mean: Arc::default() }),
            None => None,
        };
        Ok(Members {
            size: scalar("group_size", Tensor::scalar(size))?,
            key: scalar("group_key", Tensor::scalar(group_key))?,
            group_key,
            call,
        })
    }

    /// Begins a collective op of the group: the given inputs come first, then those that tell the group, and the op within it.
    fn op(&self, graph: &Graph, op: &str, inputs: &[&Output]) -> graph::builder::OpBuilder {
        let instance = graph.extension::<InstanceKeys>().0.fetch_add(1, Ordering::Relaxed);
        let instance = graph.constant_tensor(&Tensor::scalar(instance.wrapping_add(1)));
        graph.op(op).inputs(inputs.iter().copied()).input(&self.size).input(&self.key).input(&instance)
    }
}

impl<O: Optimizer> Optimizer for AllReduceOptimizer<O> {
    fn name(&self) -> &str {
        self.optimizer.name()
    }

    fn state(&self) -> &OptimizerState {
        self.optimizer.state()
    }

    fn create_slots(&self, graph: &Graph, variables: &[Variable]) -> Result<()> {
        self.optimizer.create_slots(graph, variables)
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.optimizer.prepare(graph)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        self.optimizer.apply_dense(graph, gradient, variable)
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        self.optimizer.apply_sparse(graph, values, indices, variable)
    }

    fn compute_gradients(&self, loss: &Output, options: &GradientOptions) -> Result<Vec<GradientAndVariable>> {
        self.optimizer.compute_gradients(loss, options)
    }

    fn apply_gradients(
        &self,
        gradients: &[GradientAndVariable],
        global_step: Option<&Variable>,
        name: Option<&str>,
    ) -> Result<Operation> {
        let gradient: Option<&Grad> = gradients.iter().find_map(|(gradient, _)| gradient.as_ref());
        let (Some(_), Some((_, first))) = (gradient, gradients.first()) else {
            // The inner optimizer returns the error.
            return self.optimizer.apply_gradients(gradients, global_step, name);
        };
        let graph = first.graph().clone();
        let members = self.settings.members(&graph)?;
        *self.built.lock() = Some(Built { graph: graph.clone(), members });
        if GradientReduction::is_set(&graph) {
            return self.optimizer.apply_gradients(gradients, global_step, name);
        }
        let reduced = self.settings.reduced(&graph, gradients)?;
        self.optimizer.apply_gradients(&reduced, global_step, name)
    }
}
