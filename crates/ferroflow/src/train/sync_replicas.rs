//! [`SyncReplicasOptimizer`]: averages the gradients of several workers before they are applied once for all.
//!
//! Every worker adds its gradients to accumulators on the parameter servers, and then waits for a token. When there are enough
//! gradients, the chief takes their averages, applies them, and enqueues as many tokens as there are replicas. A token carries
//! the step, which becomes the worker's local step; the accumulators drop gradients of older steps.

use super::expression::group;
use super::gradient_reduction::GradientReduction;
use super::initialize::report_uninitialized_variables;
use super::optimizer::{GradientAndVariable, GradientOptions, Optimizer, OptimizerState};
use super::queue_runner::{Queue, QueueRunner};
use crate::variable::{Kind, Variable, collections, global_variables, named_constant};
use graph::builder::{Grad, IndexedSlices};
use graph::{Graph, Operation, Output};
use parking_lot::Mutex;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// Averages the gradients of several workers, and applies them with another optimizer.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
/// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
/// let hook = optimizer.make_session_run_hook(true, None)?;
/// let mut session = MonitoredSession::training(&g).hook(hook).hook(StopAtStepHook::at(3)).build()?;
/// while !session.should_stop() {
///     session.run(&RunArgs::new().target(&train))?;
/// }
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct SyncReplicasOptimizer<O> {
    optimizer: O,
    replicas_to_aggregate: i32,
    total_num_replicas: i32,
    name: String,
    built: Mutex<Option<Built>>,
}

/// The nodes that applying gradients has added to the graph.
#[derive(Clone)]
struct Built {
    global_step: Variable,
    local_step_init: Operation,
    chief_init: Operation,
    ready_for_local_init: Output,
    queue: Queue,
    chief_queue_runner: QueueRunner,
}

impl<O: Optimizer> SyncReplicasOptimizer<O> {
    /// Wraps an optimizer: a step is complete when `replicas_to_aggregate` gradients have arrived from `total_num_replicas`
    /// workers. If that is fewer than there are workers, the slowest are dropped; if it is more, some workers contribute several.
    ///
    /// ```
    /// use ferroflow::train::{GradientDescentOptimizer, SyncReplicasOptimizer};
    ///
    /// // Of four workers, the slowest is left out of every step.
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 3, Some(4))?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(optimizer: O, replicas_to_aggregate: i32, total_num_replicas: Option<i32>) -> Result<Self> {
        let total_num_replicas = total_num_replicas.unwrap_or(replicas_to_aggregate);
        if replicas_to_aggregate < 1 || total_num_replicas < 1 {
            return Err(Status::invalid_argument("there must be at least one replica"));
        }
        let name = "sync_replicas".to_owned();
        Ok(SyncReplicasOptimizer {
            optimizer,
            replicas_to_aggregate,
            total_num_replicas,
            name,
            built: Mutex::new(None),
        })
    }

    /// Returns the wrapped optimizer.
    ///
    /// ```
    /// use ferroflow::train::{AdamOptimizer, Optimizer, SyncReplicasOptimizer};
    ///
    /// let optimizer = SyncReplicasOptimizer::new(AdamOptimizer::new(0.001), 2, None)?;
    /// assert_eq!(optimizer.inner().name(), "Adam");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn inner(&self) -> &O {
        &self.optimizer
    }

    /// Returns the queue runner that applies gradients and enqueues tokens; the chief starts it.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let runner = optimizer.chief_queue_runner()?;
    /// assert!(runner.name().contains("sync_token_q"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn chief_queue_runner(&self) -> Result<QueueRunner> {
        Ok(self.built("chief_queue_runner")?.chief_queue_runner)
    }

    /// Returns the operation with which workers other than the chief take over the global step.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let is_chief = false;
    /// let local_init = if is_chief { optimizer.chief_init_op()? } else { optimizer.local_step_init_op()? };
    /// let supervisor = Supervisor::builder(&g).is_chief(is_chief).local_init_op(&local_init).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn local_step_init_op(&self) -> Result<Operation> {
        Ok(self.built("local_step_init_op")?.local_step_init)
    }

    /// Returns the operation with which the chief sets the accumulators to the global step.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let supervisor = Supervisor::builder(&g).local_init_op(&optimizer.chief_init_op()?).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn chief_init_op(&self) -> Result<Operation> {
        Ok(self.built("chief_init_op")?.chief_init)
    }

    /// Returns the names of the uninitialized variables among those that must be initialized before local steps can start.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let ready = optimizer.ready_for_local_init_op()?;
    /// let supervisor = Supervisor::builder(&g).ready_for_local_init_op(&ready).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn ready_for_local_init_op(&self) -> Result<Output> {
        Ok(self.built("ready_for_local_init_op")?.ready_for_local_init)
    }

    /// Adds the operation that enqueues the initial tokens; by default as many as gradients are averaged.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let (tokens, runner) = (optimizer.init_tokens_op(None)?, optimizer.chief_queue_runner()?);
    /// let builder = Supervisor::builder(&g).local_init_op(&optimizer.chief_init_op()?);
    /// let supervisor = builder.ready_for_local_init_op(&optimizer.ready_for_local_init_op()?).build()?;
    /// supervisor.managed_session("", |session| {
    ///     supervisor.start_queue_runners(session, Some(&[runner]))?;
    ///     session.run_ops(&[&tokens])?;
    ///     session.run_ops(&[&train])
    /// })?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_tokens_op(&self, num_tokens: Option<i32>) -> Result<Operation> {
        let built = self.built("init_tokens_op")?;
        let needed = self.replicas_to_aggregate - self.total_num_replicas;
        let count = num_tokens.unwrap_or(self.replicas_to_aggregate);
        if count < needed {
            return Err(Status::invalid_argument(format!(
                "Too few tokens to finish the first step: {count} (given) vs {needed} (needed)"
            )));
        }
        let graph = built.global_step.graph();
        if count <= 0 {
            return graph.op("NoOp").name("no_init_tokens").try_build();
        }
        at(graph, &built.global_step, |graph| {
            let tokens = fill(graph, count, &built.global_step)?;
            let enqueue = built.queue.enqueue_many(&[tokens]);
            graph.finish()?;
            Ok(enqueue)
        })
    }

    fn built(&self, what: &str) -> Result<Built> {
        let built = self.built.lock().clone();
        built.ok_or_else(|| Status::failed_precondition(format!("{what}() should be called after apply_gradients().")))
    }

    fn build(&self, graph: &Graph, gradients: &[GradientAndVariable], global_step: &Variable) -> Result<Operation> {
        // The local step stays on the worker, whatever the device function does with variables.
        let anchor = graph.op("NoOp").try_build()?;
        let zero = super::expression::number(0.0, global_step.dtype())?;
        let local_step = graph.colocate_with(&anchor, |graph| {
            Variable::in_graph(graph, "sync_rep_local_step")
                .trainable(false)
                .kind(global_step.kind())
                .collections(&[collections::LOCAL_VARIABLES])
                .build_constant(&zero)
        });
        let local_step_init = set(graph, &local_step, &global_step.read())?;
        let ready_for_local_init = report_uninitialized_variables(graph, Some(&global_variables(graph)?));
        graph.name_scope(&self.name, |graph| {
            let mut applied = Vec::new();
            let mut averages: Vec<GradientAndVariable> = Vec::new();
            let mut accumulators: Vec<(Output, String)> = Vec::new();
            for (gradient, variable) in gradients {
                let Some(gradient) = gradient else {
                    averages.push((None, variable.clone()));
                    continue;
                };
                let device = variable.op().device();
                let (accumulator, apply, average) = on(graph, &device, |graph| match gradient {
                    Grad::Dense(gradient) => self.dense(graph, gradient, variable, &local_step),
                    Grad::Slices(slices) => self.sparse(graph, slices, variable, &local_step),
                })?;
                applied.push(apply);
                averages.push((Some(average), variable.clone()));
                accumulators.push((accumulator, device));
            }
            let update =
                at(graph, global_step, |_| self.optimizer.apply_gradients(&averages, Some(global_step), None))?;
            let queue = at(graph, global_step, |graph| {
                graph.device("/device:CPU:*", |graph| {
                    let op = graph.op("FIFOQueueV2").name("sync_token_q").attr("shared_name", "sync_token_q");
                    let types: &[DType] = &[global_step.dtype()];
                    let shapes: &[PartialShape] = &[PartialShape::scalar()];
                    let op = op.attr("component_types", types).attr("shapes", shapes).attr("capacity", -1i64);
                    op.try_build().map(|op| Queue::new(op.output(0)))
                })
            })?;
            let (train_op, sync_op, chief_queue_runner) = at(graph, global_step, |graph| -> Result<_> {
                let token = graph.control_dependencies(&applied, |_| queue.dequeue(&[global_step.dtype()])).output(0);
                let train_op = set(graph, &local_step, &token)?;
                let tokens_per_step = self.replicas_to_aggregate.max(self.total_num_replicas);
                let sync_op = graph.control_dependencies(std::slice::from_ref(&update), |graph| -> Result<_> {
                    let tokens = fill(graph, tokens_per_step, global_step)?;
                    Ok(queue.enqueue_many(&[tokens]))
                })?;
                let runner = QueueRunner::new(queue.handle(), std::slice::from_ref(&sync_op));
                Ok((train_op, sync_op, runner))
            })?;
            drop(sync_op);
            let mut chief_inits = vec![local_step_init.clone()];
            for (accumulator, device) in &accumulators {
                let op = match accumulator.is_ref() {
                    true => "AccumulatorSetGlobalStep",
                    false => "ResourceAccumulatorSetGlobalStep",
                };
                let set = on(graph, device, |graph| {
                    let step = global_step.read();
                    graph.op(op).name("SetGlobalStep").input(accumulator).input(&step).try_build()
                })?;
                chief_inits.push(set);
            }
            let chief_init = group(graph, &chief_inits, "group_deps")?;
            graph.finish()?;
            *self.built.lock() = Some(Built {
                global_step: global_step.clone(),
                local_step_init: local_step_init.clone(),
                chief_init,
                ready_for_local_init: ready_for_local_init.clone(),
                queue,
                chief_queue_runner,
            });
            Ok(train_op)
        })
    }

    fn dense(
        &self,
        graph: &Graph,
        gradient: &Output,
        variable: &Variable,
        local_step: &Variable,
    ) -> Result<(Output, Operation, Grad)> {
        let op = graph.op("ResourceConditionalAccumulator").name("conditional_accumulator");
        let op = op.attr("dtype", gradient.dtype()).attr("shape", variable.shape().clone());
        let accumulator = op.attr("shared_name", format!("{}:0/grad_accum", variable.name())).try_build()?.output(0);
        let step = local_step.read();
        let apply = graph.op("ResourceAccumulatorApplyGradient").input(&accumulator).input(&step).input(gradient);
        let apply = apply.try_build()?;
        let take = self.take(graph, "ResourceAccumulatorTakeGradient", &accumulator, gradient.dtype())?;
        let average = take.output(0);
        average.set_shape(variable.shape())?;
        Ok((accumulator, apply, Grad::Dense(average)))
    }

    fn sparse(
        &self,
        graph: &Graph,
        slices: &IndexedSlices,
        variable: &Variable,
        local_step: &Variable,
    ) -> Result<(Output, Operation, Grad)> {
        let dtype = slices.values.dtype();
        let op = graph.op("SparseConditionalAccumulator").name("sparse_conditional_accumulator");
        let op = op.attr("dtype", dtype).attr("shape", PartialShape::scalar());
        let accumulator = op.attr("shared_name", format!("{}:0/grad_accum", variable.name())).try_build()?.output(0);
        let step = local_step.read();
        let to_int64 = |graph: &Graph, output: &Output| super::expression::cast(graph, output, DType::Int64);
        let indices = to_int64(graph, &slices.indices)?;
        let shape = match &slices.dense_shape {
            Some(shape) => to_int64(graph, shape)?,
            None => named_constant(graph, "gradient_shape", &Tensor::from_slice::<i64>(&[0], &[])?),
        };
        let apply = graph.op("SparseAccumulatorApplyGradient").input(&accumulator).input(&step).input(&indices);
        let apply = apply.input(&slices.values).input(&shape).attr("has_known_shape", slices.dense_shape.is_some());
        let apply = apply.try_build()?;
        let take = self.take(graph, "SparseAccumulatorTakeGradient", &accumulator, dtype)?;
        let average = IndexedSlices {
            indices: take.output(0),
            values: take.output(1),
            dense_shape: slices.dense_shape.as_ref().map(|_| take.output(2)),
        };
        Ok((accumulator, apply, Grad::Slices(average)))
    }

    fn take(&self, graph: &Graph, op: &str, accumulator: &Output, dtype: DType) -> Result<Operation> {
        graph.name_scope(op, |graph| {
            let whole = format!("{}/", graph.current_name_scope());
            let count = named_constant(graph, "num_required", &Tensor::scalar(self.replicas_to_aggregate));
            graph.op(op).name(&whole).input(accumulator).input(&count).attr("dtype", dtype).try_build()
        })
    }
}

impl<O: Optimizer> Optimizer for SyncReplicasOptimizer<O> {
    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> &OptimizerState {
        self.optimizer.state()
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
        _name: Option<&str>,
    ) -> Result<Operation> {
        let Some((_, first)) = gradients.first() else {
            return Err(Status::invalid_argument("Must supply at least one variable"));
        };
        let global_step =
            global_step.ok_or_else(|| Status::invalid_argument("Global step is required to check staleness"))?;
        let graph = first.graph().clone();
        if GradientReduction::is_set(&graph) {
            return Err(Status::invalid_argument(
                "SyncReplicasOptimizer needs parameter servers: with Strategy::AllReduce, every optimizer applies means already",
            ));
        }
        self.build(&graph, gradients, global_step)
    }
}

/// Runs `body` at the root of the name scopes, on the device of the global step.
fn at<R>(graph: &Graph, global_step: &Variable, body: impl FnOnce(&Graph) -> R) -> R {
    let device = global_step.op().device();
    on(graph, &device, |graph| graph.in_name_scope("", body))
}

fn on<R>(graph: &Graph, device: &str, body: impl FnOnce(&Graph) -> R) -> R {
    if device.is_empty() { body(graph) } else { graph.device(device, body) }
}

fn set(graph: &Graph, variable: &Variable, value: &Output) -> Result<Operation> {
    match variable.kind() {
        Kind::Ref => graph.op("Assign").input(variable.handle()).input(value).try_build(),
        Kind::Resource => super::expression::assign(graph, variable, value, true),
    }
}

fn fill(graph: &Graph, count: i32, global_step: &Variable) -> Result<Output> {
    graph.name_scope("Fill", |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let dims = named_constant(graph, "dims", &Tensor::vector(&[count]));
        let step = global_step.read();
        let op = graph.op("Fill").name(&whole).input(&dims).input(&step);
        op.try_build().map(|op| op.output(0))
    })
}
