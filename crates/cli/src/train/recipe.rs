//! [`Recipe`]: what is trained, and on what. Each model has one; the rest of `ferroflow train` is the same for all.

use super::flags::Flags;
use ferroflow::estimator::{Estimator, InputFn, RunConfig, ServingInputFn};
use ferroflow::train::{
    GradientAndVariable, GradientOptions, Optimizer, OptimizerState, Saver, SyncReplicasHook, SyncReplicasOptimizer,
};
use ferroflow::variable::{Variable, get_global_step};
use ferroflow::{Grad, Graph, Operation, Output, Result, Status, Tensor, summary};
use parking_lot::Mutex;
use std::sync::Arc;

/// A model and its data.
pub trait Recipe: Send + Sync {
    /// Returns what the data is made of, how much there is to train on, and how much to test on.
    fn data(&self) -> (&'static str, usize, usize);

    /// Makes the estimator of a task.
    fn estimator(&self, part: &Part, config: RunConfig) -> Result<Estimator>;

    /// Returns what a worker trains on.
    fn training(&self, task: u32) -> Training;

    /// Returns what checkpoints are evaluated on.
    fn testing(&self) -> Result<InputFn>;

    /// Returns the input of the exported model.
    fn serving(&self) -> ServingInputFn;
}

/// Says what there is to train and to test on.
pub fn describe(recipe: &dyn Recipe) -> String {
    let (what, train, test) = recipe.data();
    format!("{train} {what} to train on, {test} to test on")
}

/// What a task's model is built for.
#[derive(Clone)]
pub struct Part {
    /// The flags.
    pub flags: Flags,
    /// Whether it is the chief.
    pub is_chief: bool,
    /// How many workers there are, the chief among them.
    pub workers: u32,
    /// The saver that the model is trained with, once it is built.
    pub saver: Arc<Mutex<Option<Arc<Saver>>>>,
}

impl Part {
    /// Returns the part of a task that only evaluates.
    pub fn of_evaluator(flags: &Flags) -> Part {
        Part { flags: flags.clone(), is_chief: false, workers: 1, saver: Arc::default() }
    }

    /// Adds what minimizes a loss, and the hook that synchronous training needs. Keeps a saver that writes where the chief is, whatever
    /// machines the variables are on.
    pub fn minimize<O: Optimizer>(&self, loss: &Output, optimizer: O) -> Result<(Operation, Option<SyncReplicasHook>)> {
        let graph = loss.graph();
        let step = get_global_step(graph)?;
        let made = if self.flags.is_sync() {
            let all = i32::try_from(self.workers).map_err(|_| Status::invalid_argument("too many workers"))?;
            let needed = self.flags.replicas_to_aggregate.unwrap_or(all);
            let sync = WithHistograms(SyncReplicasOptimizer::new(optimizer, needed, Some(all))?);
            let train = sync.minimize(loss, step.as_ref())?;
            // No more tokens than it takes to begin: with spare ones, some workers could go on without the others.
            let tokens = (needed - all).max(0);
            (train, Some(sync.0.make_session_run_hook(self.is_chief, Some(tokens))?))
        } else {
            (WithHistograms(optimizer).minimize(loss, step.as_ref())?, None)
        };
        *self.saver.lock() = Some(Arc::new(Saver::new(graph)?));
        Ok(made)
    }
}

/// What a worker trains on: an input, and batches for it unless it is a dataset, which has its own.
pub struct Training {
    /// The input.
    pub input: InputFn,
    /// What is fed in every step.
    pub batches: Option<Box<dyn Batches>>,
}

/// Batches to feed.
pub trait Batches: Send {
    /// Returns the names of the placeholders that a batch is for.
    fn placeholders(&self) -> &'static [&'static str];

    /// Begins anew at a global step: a worker that comes back shouldn't see the data in the order in which it has seen it before.
    fn start_at(&mut self, step: i64);

    /// Returns the next batch: a tensor for each placeholder.
    fn next(&mut self) -> Result<Vec<Tensor>>;
}

/// An optimizer that has the weights and their gradients drawn as histograms.
pub struct WithHistograms<O>(pub O);

impl<O: Optimizer> Optimizer for WithHistograms<O> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn state(&self) -> &OptimizerState {
        self.0.state()
    }

    fn prepare(&self, graph: &Graph) -> Result<()> {
        self.0.prepare(graph)
    }

    fn apply_dense(&self, graph: &Graph, gradient: &Output, variable: &Variable) -> Result<Operation> {
        self.0.apply_dense(graph, gradient, variable)
    }

    fn apply_sparse(&self, graph: &Graph, values: &Output, indices: &Output, variable: &Variable) -> Result<Operation> {
        self.0.apply_sparse(graph, values, indices, variable)
    }

    fn compute_gradients(&self, loss: &Output, options: &GradientOptions) -> Result<Vec<GradientAndVariable>> {
        self.0.compute_gradients(loss, options)
    }

    fn apply_gradients(
        &self,
        gradients: &[GradientAndVariable],
        global_step: Option<&Variable>,
        name: Option<&str>,
    ) -> Result<Operation> {
        for (gradient, variable) in gradients {
            summary::histogram(&format!("weights/{}", variable.name()), &variable.read());
            let values = match gradient {
                Some(Grad::Dense(values)) => values,
                Some(Grad::Slices(slices)) => &slices.values,
                None => continue,
            };
            summary::histogram(&format!("gradients_of/{}", variable.name()), values);
        }
        self.0.apply_gradients(gradients, global_step, name)
    }
}
