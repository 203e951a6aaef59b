//! [`Watch`]: the hook of a worker, which feeds its training, reports progress, and ends it on request.

use super::curves::Curves;
use super::news::{Listener, News};
use super::progress::Steps;
use super::recipe::Batches;
use ferroflow::session::RunOptions;
use ferroflow::train::{Coordinator, NanTensorHook, RunArgs, RunContext, RunValues, SessionRunHook, latest_checkpoint};
use ferroflow::variable::get_global_step;
use ferroflow::{Graph, Output, Result, Session, Status, Tensor};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The interval at which a worker reports its steps.
const TELLING: Duration = Duration::from_millis(100);

/// How long another computation of the loss may take.
const LOOKING: Duration = Duration::from_secs(2);

/// The state of a running training, for other threads.
#[derive(Clone)]
pub struct UnderWay {
    /// The current session, and the tensors that are fetched from it.
    pub session: Arc<Mutex<Option<Live>>>,
    /// The end of the last step.
    pub last_step_at: Arc<Mutex<Instant>>,
    /// Whether other tasks were called.
    pub has_begun: Arc<AtomicBool>,
}

impl UnderWay {
    /// Returns the state before the training.
    pub fn new() -> UnderWay {
        UnderWay {
            session: Arc::default(),
            last_step_at: Arc::new(Mutex::new(Instant::now())),
            has_begun: Arc::default(),
        }
    }
}

/// A training session, and the tensors that can be fetched from it.
#[derive(Clone)]
pub struct Live {
    /// The session.
    pub session: Session,
    /// The global step.
    pub step: Output,
    /// The loss, and a batch to compute it for.
    pub loss: Output,
    sample: Vec<(Output, Tensor)>,
}

impl Live {
    /// Returns whether the loss is NaN after the last change of the weights, for which it was not computed yet. If it can't be computed,
    /// the model is not called bad.
    pub fn is_bad(&self) -> bool {
        let run = self.session.runner().fetch(&self.loss).options(RunOptions::new().timeout(LOOKING));
        let run = self.sample.iter().fold(run, |run, (output, tensor)| run.feed(output, tensor.clone()));
        let loss = run.run().and_then(|values| values.first().map_or(Ok(0.0), Tensor::to_scalar::<f32>));
        loss.is_ok_and(f32::is_nan)
    }
}

/// The hook.
pub struct Watch {
    task: u32,
    batches: Option<Box<dyn Batches>>,
    listener: Listener,
    under_way: UnderWay,
    /// The directory of checkpoints, for the chief.
    directory: Option<String>,
    curves: Option<Curves>,
    /// The global step and the loss.
    watched: Vec<Output>,
    fed: Vec<Output>,
    is_new_session: bool,
    /// The number of unreported steps, the step and the loss of the last one, and the time of the last report.
    untold: u64,
    last: Option<(i64, f32)>,
    told_at: Instant,
}

impl Watch {
    /// Returns the hook of a worker, which feeds these batches. The chief's checkpoints are in `directory`.
    pub fn new(
        task: u32,
        batches: Option<Box<dyn Batches>>,
        listener: Listener,
        under_way: UnderWay,
        directory: Option<String>,
        curves: Option<Curves>,
    ) -> Watch {
        Watch {
            task,
            batches,
            listener,
            under_way,
            directory,
            curves,
            watched: Vec::new(),
            fed: Vec::new(),
            is_new_session: false,
            untold: 0,
            last: None,
            told_at: Instant::now(),
        }
    }

    fn tell(&mut self) {
        if let Some((step, loss)) = self.last.filter(|_| self.untold > 0) {
            (self.listener)(News::Steps(Steps { task: self.task, count: self.untold, step, loss }));
            (self.untold, self.told_at) = (0, Instant::now());
        }
    }

    fn say(&self, line: String) {
        (self.listener)(News::Line(line));
    }

    fn batch(&mut self) -> Result<Vec<(Output, Tensor)>> {
        let Some(batches) = &mut self.batches else { return Ok(Vec::new()) };
        Ok(self.fed.iter().cloned().zip(batches.next()?).collect())
    }
}

impl SessionRunHook for Watch {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        let step = get_global_step(graph)?.ok_or_else(|| Status::internal("the graph has no global step"))?;
        // The loss is the second input of the estimator's summary of it.
        let summary = graph.operation("loss").ok_or_else(|| Status::internal("the graph has no loss"))?;
        self.watched = vec![step.value().clone(), summary.input(1)];
        for name in self.batches.iter().flat_map(|batches| batches.placeholders()) {
            let placeholder = graph.operation(name).ok_or_else(|| Status::internal(format!("there is no {name}")))?;
            self.fed.push(placeholder.output(0));
        }
        // A chief still has to lock its directory.
        self.under_way.has_begun.fetch_or(self.directory.is_none(), Ordering::AcqRel);
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        let [step, loss] = &self.watched[..] else { return Err(Status::internal("a session without its graph")) };
        let (step, loss) = (step.clone(), loss.clone());
        let start = session.eval_index(&step)?;
        if let Some(batches) = &mut self.batches {
            batches.start_at(start);
        }
        if self.last.is_none()
            && !self.is_new_session
            && let Some(checkpoint) = self.directory.as_deref().map(latest_checkpoint).transpose()?.flatten()
        {
            self.say(format!("goes on from {checkpoint}"));
        }
        let sample = self.batch()?;
        *self.under_way.session.lock() = Some(Live { session: session.clone(), step, loss, sample });
        self.is_new_session = true;
        Ok(())
    }

    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        let args = self.batch()?.into_iter().fold(RunArgs::new(), |args, (output, tensor)| args.feed(&output, tensor));
        let args = self.watched.iter().fold(args, RunArgs::fetch);
        Ok(match &self.curves {
            Some(curves) if curves.is_profiled_next() => args.options(RunOptions::new().full_trace(true)),
            _ => args,
        })
    }

    fn after_run(&mut self, _context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        let [step, loss] = &values.results[..] else { return Err(Status::internal("a step without its values")) };
        let (step, loss) = (step.to_index()?, loss.to_scalar::<f32>()?);
        *self.under_way.last_step_at.lock() = Instant::now();
        if std::mem::take(&mut self.is_new_session) && self.last.is_some() {
            self.say(format!("worker {}: a task was lost and is back; training goes on", self.task));
        }
        (self.untold, self.last) = (self.untold + 1, Some((step, loss)));
        if let Some(curves) = &mut self.curves {
            curves.take(step, loss, values.metadata.as_ref())?;
        }
        if self.told_at.elapsed() >= TELLING {
            self.tell();
        }
        Ok(())
    }

    fn end(&mut self, _session: &Session) -> Result<()> {
        self.tell();
        let live = self.under_way.session.lock().clone();
        // Before the last checkpoint is saved: the next training would resume from useless values.
        match live.filter(|live| self.directory.is_some() && live.is_bad()) {
            Some(live) => Err(NanTensorHook::diverged(&live.loss)),
            None => Ok(()),
        }
    }
}
