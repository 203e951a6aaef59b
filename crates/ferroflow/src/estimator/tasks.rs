//! Training: [`Estimator::train`], in one process or as the task of a cluster. In a cluster the chief and the workers train,
//! parameter servers serve, and all end when the chief is done.

use super::{Estimator, Input, TrainOptions};
use crate::distributed::{Server, TfConfig, WorkerGroup, done, start_server_with, stop};
use crate::session::{Session, Target};
use crate::train::{Coordinator, SessionRunHook};
use graph::Graph;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tensor::{Result, Status};

/// The delay before an unreachable chief is asked again.
const PAUSE: Duration = Duration::from_secs(1);

impl Estimator {
    /// Trains: resumes from the newest checkpoint, and saves further ones.
    ///
    /// As a task of a cluster, this process first starts its server. The chief tells the others when it is done.
    ///
    /// ```no_run
    /// use ferroflow::estimator::{Estimator, Input, TrainOptions};
    ///
    /// fn train(model: &Estimator, input: fn(&ferroflow::Graph) -> Input) -> ferroflow::Result<()> {
    ///     model.train(input, TrainOptions { steps: Some(100), ..TrainOptions::default() })
    /// }
    /// ```
    pub fn train(&self, input_fn: impl Fn(&Graph) -> Input, options: TrainOptions) -> Result<()> {
        let stop = options.stop.clone().unwrap_or_default();
        match (&self.config.master, &self.config.tf_config) {
            (Some(master), _) => self.train_on(master, &input_fn, options, &stop),
            (None, Some(told)) => train_as_task(self, told, &input_fn, options, &stop),
            (None, None) => self.train_on(&Target::Local, &input_fn, options, &stop),
        }
    }
}

/// Trains as the chief or as a worker.
fn train_as_task(
    estimator: &Estimator,
    told: &TfConfig,
    input_fn: &dyn Fn(&Graph) -> Input,
    mut options: TrainOptions,
    end: &Coordinator,
) -> Result<()> {
    let Some(number) = done::number(&told.cluster, &told.job, told.task_index) else {
        return Err(Status::failed_precondition(format!(
            "{} takes no part in training: train_and_evaluate does what is its part",
            estimator.config().task()
        )));
    };
    let group = estimator.config().worker_group()?;
    if group.is_none() && done::trainers(&told.cluster) > 1 && told.cluster.num_tasks("ps") == 0 {
        return Err(Status::invalid_argument(
            "TF_CONFIG: cluster: it has workers and no 'ps' that would hold what they share; without one they train by all-reduce, \
             with RunConfig::strategy(Strategy::AllReduce)",
        ));
    }
    let server = started(told, group.as_ref())?;
    let target = Target::from(&*server);
    let (step, ended) = (StepUnderWay::default(), Coordinator::new());
    if !told.is_chief() {
        watch_chief(told, &target, end)?;
        options.hooks.push(Box::new(step.clone()));
        step.cancel_after(end, &ended)?;
    }
    let mut trained = estimator.train_on(&target, input_fn, options, end);
    ended.request_stop(None);
    if step.is_cancelled.load(Ordering::Acquire)
        && let Err(status) = &trained
    {
        tracing::info!("a step still waited when the chief was done, and is cancelled: {status}");
        trained = Ok(());
    }
    if trained.is_ok() {
        let own = estimator.config().task();
        done::tell(&target, number, &own, estimator.config().num_ps_replicas(), false);
        if group.is_some() {
            trained = done::leave_together(&server, &told.cluster, &told.job, told.task_index);
        }
        if told.is_chief() {
            match done::tell_chief_done(&target, &own) {
                Ok(()) => done::wait_for_listeners(&server),
                Err(status) => tracing::warn!("the other tasks can't be told that the chief is done: {status}"),
            }
        }
    }
    // The watch of the chief must not wait for an answer from a server that is stopping.
    end.request_stop(None);
    stop(&server)?;
    trained
}

/// The session whose step a worker waits for. Some steps wait for the chief, and would wait forever once it is done.
#[derive(Clone, Default)]
struct StepUnderWay {
    session: Arc<Mutex<Option<Session>>>,
    is_cancelled: Arc<AtomicBool>,
}

impl StepUnderWay {
    /// Cancels the step, and all later ones, some time after a stop was requested, unless training has ended by then.
    fn cancel_after(&self, stop: &Coordinator, ended: &Coordinator) -> Result<()> {
        let (step, stop, ended) = (self.clone(), stop.clone(), ended.clone());
        let watch = move || {
            stop.wait_for_stop(None);
            if ended.wait_for_stop(Some(done::GRACE)) {
                return;
            }
            step.is_cancelled.store(true, Ordering::Release);
            if let Some(session) = step.session.lock().take()
                && let Err(status) = session.close()
            {
                tracing::debug!("the session of a step that waits can't be closed: {status}");
            }
        };
        let spawned = std::thread::Builder::new().name("cancel the last step".to_owned()).spawn(watch);
        spawned.map(drop).map_err(|error| Status::resource_exhausted(format!("no thread to leave with: {error}")))
    }
}

impl SessionRunHook for StepUnderWay {
    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        *self.session.lock() = Some(session.clone());
        Ok(())
    }
}

/// Serves variables until all training tasks have reported that they are done.
pub(super) fn serve(told: &TfConfig) -> Result<()> {
    let server = started(told, None)?;
    let workers = done::trainers(&told.cluster);
    let over = done::watch(server.clone(), &told.job, told.task_index, workers, done::GRACE_OF_PROGRAMS)?;
    let over = over.blocking_recv().map_err(|_| Status::internal("nobody waits for the workers"))?;
    stop(&server)?;
    over
}

fn started(told: &TfConfig, group: Option<&WorkerGroup>) -> Result<Arc<Server>> {
    tracing::info!("/job:{}/task:{}: the cluster and the task are those of TF_CONFIG", told.job, told.task_index);
    let config = told.server_config()?;
    Ok(Arc::new(start_server_with(group.map_or(config.clone(), |group| group.server_config(config)))?))
}

/// Requests a stop when the chief is done. A lost chief may come back, so this waits for it.
pub(super) fn watch_chief(told: &TfConfig, target: &Target, end: &Coordinator) -> Result<()> {
    let Some((job, index)) = told.chief() else { return Ok(()) };
    let chief = format!("/job:{job}/task:{index}");
    let own = format!("/job:{}/task:{}", told.job, told.task_index);
    let (target, end) = (target.clone(), end.clone());
    let watch = move || {
        while let Err(status) = done::wait_for_chief(&target, &chief, &own) {
            tracing::debug!("{chief} can't be watched: {status}");
            if end.wait_for_stop(Some(PAUSE)) {
                return;
            }
        }
        tracing::info!("{chief} is done");
        end.request_stop(None);
    };
    let spawned = std::thread::Builder::new().name("watch the chief".to_owned()).spawn(watch);
    spawned.map(drop).map_err(|error| Status::resource_exhausted(format!("no thread to watch the chief: {error}")))
}

/// Returns the target by which an evaluator reaches the chief, since it isn't a task of the cluster.
pub(super) fn way_to_chief(told: &TfConfig) -> Result<Option<Target>> {
    let Some((job, index)) = told.chief() else { return Ok(None) };
    let address = told.cluster.task_address(job, index)?;
    Ok(Some(Target::Address(format!("grpc://{address}"))))
}
