//! The parts of a training: [`TrainOptions`], the session with its hooks, and its loop.

use super::{Estimator, Input, Mode};
use crate::distributed::WorkerGroup;
use crate::session::{Session, Target};
use crate::summary;
use crate::train::{
    CheckpointSaverListener, Coordinator, Every, LoggingTensorHook, MonitoredSession, NanTensorHook, RunArgs,
    SessionRunHook, StopAtStepHook, mirror,
};
use crate::variable::get_global_step;
use graph::{Graph, Operation, Output};
use tensor::{Code, Result, Status, Tensor};

/// The collection of summaries to write.
const SUMMARIES: &str = "summaries";

/// The longest interval at which a worker checks whether the chief is ready, if it isn't notified.
const RECOVERY_WAIT_SECS: u64 = 10;

/// Options of a training. By default it continues until the input ends.
///
/// ```
/// use ferroflow::estimator::TrainOptions;
///
/// let options = TrainOptions { max_steps: Some(1000), ..TrainOptions::default() };
/// ```
#[derive(Default)]
pub struct TrainOptions {
    /// Ends after this many further steps.
    pub steps: Option<i64>,
    /// Ends at this global step, and does nothing if the newest checkpoint is already there.
    pub max_steps: Option<i64>,
    /// The hooks of the training.
    pub hooks: Vec<Box<dyn SessionRunHook>>,
    /// The listeners, which are notified of every checkpoint.
    pub saving_listeners: Vec<Box<dyn CheckpointSaverListener>>,
    /// A coordinator that can end the training from another thread. When the training has ended by itself, a stop is requested
    /// from it, too.
    pub stop: Option<Coordinator>,
}

impl Estimator {
    /// Trains on a master, until the end or until a stop is requested.
    pub(super) fn train_on(
        &self,
        target: &Target,
        input_fn: &dyn Fn(&Graph) -> Input,
        options: TrainOptions,
        stop: &Coordinator,
    ) -> Result<()> {
        let end = self.end_of(&options)?;
        if let Some(max_steps) = options.max_steps
            && self.trained_steps()? >= max_steps
        {
            tracing::info!("Skipping training: the newest checkpoint is of step {max_steps} or later");
            return Ok(());
        }
        // What hooks and the saver add has its place, too: a variable of theirs is on a parameter server.
        let (setter, group) = (self.config.device_setter()?, self.config.worker_group()?);
        let graph = self.new_graph();
        let made = |graph: &Graph| self.training_session(graph, target, input_fn, options, end, stop, group.as_ref());
        let (session, train_op, loss) = match (setter, &group) {
            (Some(setter), _) => setter.scope(&graph, made),
            (None, Some(group)) => graph.device(group.device(), made),
            (None, None) => made(&graph),
        }?;
        run_to_end(session, &train_op, &loss)
    }

    /// Builds the model in a graph, with all that takes part in its training.
    fn training_session(
        &self,
        graph: &Graph,
        target: &Target,
        input_fn: &dyn Fn(&Graph) -> Input,
        options: TrainOptions,
        end: Option<StopAtStepHook>,
        stop: &Coordinator,
        group: Option<&WorkerGroup>,
    ) -> Result<(MonitoredSession, Operation, Output)> {
        let config = &self.config;
        let mirrored = group.map(|group| mirror(graph, group)).transpose()?;
        let model = self.build(graph, Mode::Train, input_fn)?;
        let mut spec = model.spec;
        let (Some(loss), Some(train_op)) = (spec.loss.take(), spec.train_op.take()) else {
            return Err(Status::internal("a checked specification without a loss"));
        };
        if !graph.collection(SUMMARIES).iter().any(|output| output.op.name() == "loss") {
            summary::scalar("loss", &loss);
        }
        let mut scaffold = spec.scaffold;
        scaffold.saver_options.get_or_insert_with(|| self.config.saver_options());
        if let Some(settings) = &self.warm_start
            && self.config.is_chief()
        {
            settings.add_to(graph, &mut scaffold)?;
        }
        // Workers that train as equals all initialize their variables, which the chief's then replace; only the chief saves.
        let session_config = match group {
            Some(group) => group.session_config(config.session_config.clone().unwrap_or_default()),
            None => config.session_config_of_task(),
        };
        let mut builder = MonitoredSession::training(graph)
            .target(target)
            .config(session_config)
            .is_chief(config.is_chief() || group.is_some())
            .scaffold(scaffold)
            .save_checkpoint(config.save_checkpoints)
            .save_summaries(config.save_summary_steps.map(Every::Steps))
            .log_step_count_steps(config.log_step_count_steps)
            .recovery_wait_secs(RECOVERY_WAIT_SECS)
            .max_wait_secs(config.session_creation_timeout_secs)
            .stop(stop);
        if config.is_chief() || group.is_none() {
            builder = builder.checkpoint_dir(self.model_dir());
        } else {
            spec.training_chief_hooks.clear();
        }
        if let Some(hook) = mirrored {
            builder = builder.hook(hook.stop(stop).max_wait_secs(config.session_creation_timeout_secs));
        }
        builder = model.input.into_iter().fold(builder, |builder, input| builder.hook(StartInput(input)));
        builder = builder.hook(NanTensorHook::new(&loss, true));
        if let (Some(steps), Some(global_step)) = (config.log_step_count_steps, get_global_step(graph)?) {
            let tensors = [("loss", &loss), ("step", global_step.value())];
            builder = builder.hook(LoggingTensorHook::new(&tensors, Every::Steps(steps)));
        }
        builder =
            options.hooks.into_iter().chain(spec.training_hooks).fold(builder, |builder, hook| builder.hook(hook));
        builder = spec.training_chief_hooks.into_iter().fold(builder, |builder, hook| builder.chief_only_hook(hook));
        builder = options.saving_listeners.into_iter().fold(builder, |builder, one| builder.saving_listener(one));
        if let Some(end) = end {
            builder = builder.hook(end);
        }
        Ok((builder.build()?, train_op, loss))
    }

    fn end_of(&self, options: &TrainOptions) -> Result<Option<StopAtStepHook>> {
        let positive = |steps: i64, what: &str| match steps > 0 {
            true => Ok(steps),
            false => Err(Status::invalid_argument(format!("{what} must be more than 0, and is {steps}"))),
        };
        match (options.steps, options.max_steps) {
            (Some(_), Some(_)) => Err(Status::invalid_argument("a training has steps or max_steps, and not both")),
            (Some(steps), None) => Ok(Some(StopAtStepHook::after(positive(steps, "steps")?))),
            (None, Some(max_steps)) => Ok(Some(StopAtStepHook::at(positive(max_steps, "max_steps")?))),
            (None, None) => Ok(None),
        }
    }
}

fn run_to_end(mut session: MonitoredSession, train_op: &Operation, loss: &Output) -> Result<()> {
    let args = RunArgs::new().target(train_op).fetch(loss);
    let mut last: Option<Tensor> = None;
    while !session.should_stop() {
        match session.run(&args) {
            Ok(values) => last = values.into_iter().next(),
            Err(status) if last.is_none() && is_end_of_input(&status) => {
                return Err(empty_input("training", &status));
            }
            Err(status) if status.code() == Code::OutOfRange => break,
            // A stop was requested while this task waited for others.
            Err(status) if status.code() == Code::Cancelled && session.stop_handle().should_stop() => break,
            Err(status) => return Err(status),
        }
    }
    session.close()?;
    if let Some(loss) = last.and_then(|loss| loss.to_vec::<f32>().ok()) {
        tracing::info!("Loss for final step: {loss:?}");
    }
    Ok(())
}

/// Returns whether a dataset has ended. A closed queue is `OutOfRange`, too, such as that of the chief's tokens when synchronous
/// training is over.
fn is_end_of_input(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("End of sequence")
}

/// The message for an input that ends before its first batch.
pub(super) fn empty_input(what: &str, status: &Status) -> Status {
    Status::invalid_argument(format!(
        "the input of this {what} is empty: it ended before the first batch ({})",
        status.message()
    ))
}

/// Restarts the input with every session.
pub(super) struct StartInput(pub Operation);

impl SessionRunHook for StartInput {
    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        session.run_ops(&[&self.0])
    }
}
