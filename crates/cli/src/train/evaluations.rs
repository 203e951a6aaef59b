//! [`Evaluations`]: the chief evaluates its checkpoints on a separate thread, while training continues.

use super::news::{Listener, News};
use ferroflow::estimator::{Estimator, EvalOptions, Evaluation, InputFn};
use ferroflow::train::{CheckpointSaverListener, Coordinator, latest_checkpoint};
use ferroflow::{Graph, Result, Session, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The most checkpoints that wait for evaluation. It is less than the number kept, so training waits rather than remove one that wasn't
/// evaluated.
const WAITING_MAX: usize = 2;

/// Running evaluations.
pub struct Evaluations(JoinHandle<Result<Option<Evaluation>>>);

impl Evaluations {
    /// Starts to wait for checkpoints, which the returned listener reports. The first one is skipped if the first values were evaluated
    /// before. Nothing more is evaluated after a stop request.
    pub fn start(
        estimator: &Estimator,
        testing: InputFn,
        wish: &Coordinator,
        listener: Listener,
        has_begun: Arc<AtomicBool>,
        leave_out_first: bool,
    ) -> Result<(Evaluations, OnSave)> {
        let (sender, checkpoints) = sync_channel(WAITING_MAX);
        let (model, wish) = (estimator.clone(), wish.clone());
        let evaluate = move || evaluate_all(&model, &testing, &checkpoints, &wish, &listener);
        let spawned = std::thread::Builder::new().name("evaluate".to_owned()).spawn(evaluate);
        let thread = spawned.map_err(|error| Status::resource_exhausted(format!("no thread to evaluate: {error}")))?;
        let directory = estimator.model_dir().to_owned();
        Ok((Evaluations(thread), OnSave { directory, sender, has_begun, leave_out_next: leave_out_first }))
    }

    /// Waits for the last evaluation, and returns it. The listener must have been dropped.
    pub fn finish(self) -> Result<Option<Evaluation>> {
        self.0.join().unwrap_or_else(|_| Err(Status::internal("the evaluation panicked")))
    }
}

fn evaluate_all(
    estimator: &Estimator,
    testing: &InputFn,
    checkpoints: &Receiver<String>,
    wish: &Coordinator,
    listener: &Listener,
) -> Result<Option<Evaluation>> {
    let mut last = None;
    while let Ok(checkpoint) = checkpoints.recv() {
        if wish.should_stop() {
            continue;
        }
        let evaluation = evaluate(estimator, testing, Some(checkpoint))?;
        tell(&evaluation, listener)?;
        last = Some(evaluation);
    }
    Ok(last)
}

/// Evaluates a model that was never trained, with its first values, at which the curves begin. Returns whether it was such a model.
pub fn evaluate_untrained(estimator: &Estimator, testing: &InputFn, listener: &Listener) -> Result<bool> {
    match estimator.latest_checkpoint()? {
        Some(_) => Ok(false),
        None => tell(&evaluate(estimator, testing, None)?, listener).map(|()| true),
    }
}

fn tell(evaluation: &Evaluation, listener: &Listener) -> Result<()> {
    let (step, loss) = (evaluation.global_step()?, loss(evaluation)?);
    let accuracy = 100.0 * evaluation.get("accuracy")?;
    listener(News::Line(format!("tested at step {step}: loss {loss:.4}, accuracy {accuracy:.1} %")));
    Ok(())
}

/// Evaluates a checkpoint, or the newest one.
pub fn evaluate(estimator: &Estimator, testing: &InputFn, checkpoint_path: Option<String>) -> Result<Evaluation> {
    estimator.evaluate(|graph: &Graph| testing(graph), EvalOptions { checkpoint_path, ..EvalOptions::default() })
}

/// Returns the loss per element of the data.
pub fn loss(evaluation: &Evaluation) -> Result<f64> {
    evaluation.get("average_loss").or_else(|_| evaluation.get("loss"))
}

/// Reports checkpoints to the evaluating thread.
pub struct OnSave {
    directory: String,
    sender: SyncSender<String>,
    has_begun: Arc<AtomicBool>,
    leave_out_next: bool,
}

impl CheckpointSaverListener for OnSave {
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        // This is called when no other trainer has the directory.
        self.has_begun.store(true, Ordering::Release);
        Ok(())
    }

    fn after_save(&mut self, _session: &Session, step: i64) -> Result<bool> {
        // The first values were evaluated before; another worker may have trained with them since.
        if std::mem::take(&mut self.leave_out_next) || step == 0 {
            return Ok(false);
        }
        let Some(checkpoint) = latest_checkpoint(&self.directory)? else { return Ok(false) };
        // A failed evaluation ends the training with its error.
        Ok(self.sender.send(checkpoint).is_err())
    }
}
