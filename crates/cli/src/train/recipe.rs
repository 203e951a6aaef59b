//! [`Recipe`]: a model and its data. The rest of `ferroflow train` is the same for all models.

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
    /// Returns the name of the data's elements, and the numbers of those for training and for testing.
    fn data(&self) -> (&'static str, usize, usize);

    /// Returns the estimator of a task.
    fn estimator(&self, part: &Part, config: RunConfig) -> Result<Estimator>;

    /// Returns the training data of a worker.
    fn training(&self, task: u32) -> Training;

    /// Returns the input of evaluations.
    fn testing(&self) -> Result<InputFn>;

    /// Returns the input of the exported model.
    fn serving(&self) -> ServingInputFn;
}

/// Describes the data for training and testing.
pub fn describe(recipe: &dyn Recipe) -> String {
    let (what, train, test) = recipe.data();
    format!("{train} {what} to train on, {test} to test on")
}

/// The role of a task, for which its model is built.
#[derive(Clone)]
pub struct Part {
    /// The flags.
    pub flags: Flags,
    /// Whether it is the chief.
    pub is_chief: bool,
    /// The number of workers, including the chief.
    pub workers: u32,
    /// The saver that the model is trained with, once it is built.
    pub saver: Arc<Mutex<Option<Arc<Saver>>>>,
}

impl Part {
    /// Returns the role of a task that only evaluates.
    pub fn of_evaluator(flags: &Flags) -> Part {
        Part { flags: flags.clone(), is_chief: false, workers: 1, saver: Arc::default() }
    }

    /// Adds the operation that minimizes a loss, and the hook that synchronous training needs. Keeps a saver that writes on the chief's
    /// machine, whatever machines the variables are on.
    pub fn minimize<O: Optimizer>(&self, loss: &Output, optimizer: O) -> Result<(Operation, Option<SyncReplicasHook>)> {
        let graph = loss.graph();
        let step = get_global_step(graph)?;
        let made = if self.flags.is_sync() {
            let all = i32::try_from(self.workers).map_err(|_| Status::invalid_argument("too many workers"))?;
            let needed = self.flags.replicas_to_aggregate.unwrap_or(all);
            let sync = WithHistograms(SyncReplicasOptimizer::new(optimizer, needed, Some(all))?);
            let train = sync.minimize(loss, step.as_ref())?;
            // Only as many tokens as are needed to begin: with spare ones, some workers could continue without the others.
            let tokens = (needed - all).max(0);
            (train, Some(sync.0.make_session_run_hook(self.is_chief, Some(tokens))?))
        } else {
            (WithHistograms(optimizer).minimize(loss, step.as_ref())?, None)
        };
        *self.saver.lock() = Some(Arc::new(Saver::new(graph)?));
        Ok(made)
    }
}

/// The training data of a worker: an input, and batches to feed unless the input is a dataset.
pub struct Training {
    /// The input.
    pub input: InputFn,
    /// The batches that are fed, one in each step.
    pub batches: Option<Box<dyn Batches>>,
}

/// Batches to feed.
pub trait Batches: Send {
    /// Returns the names of the placeholders that are fed.
    fn placeholders(&self) -> &'static [&'static str];

    /// Starts again at a global step: a restarted worker shouldn't see the data in the same order as before.
    fn start_at(&mut self, step: i64);

    /// Returns the next batch: a tensor for each placeholder.
    fn next(&mut self) -> Result<Vec<Tensor>>;
}

/// An optimizer that adds histograms of the weights and their gradients.
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
