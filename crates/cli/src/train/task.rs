//! One task of a cluster of processes: a parameter server that serves until the workers are done, a worker, or an evaluator.

use super::child::LEAVE;
use super::models;
use super::news::News;
use super::place::{EVALUATOR, Place};
use super::progress::{Progress, Whose};
use super::recipe::{Part, Recipe, describe};
use super::worker::{Trained, Worker, config as run_config};
use super::{Flags, conclude, leave_on_interrupt, print_figures};
use crate::files::FileFlags;
use crate::{Failure, exit};
use cluster::{Server, ServerConfig, TaskStatus, TfConfig};
use ferroflow::distributed::{WorkerGroup, done};
use ferroflow::estimator::{EvalSpec, RunConfig, TrainSpec, train_and_evaluate};
use ferroflow::session::{Target, runtime};
use ferroflow::train::Coordinator;
use parking_lot::Mutex;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Runs the task.
pub fn run(flags: &Flags, place: Place) -> Result<(), Failure> {
    super::tell_of_gpus(flags);
    match place.job.as_str() {
        "ps" if flags.existing_servers => {
            Err(Failure::new("with --existing_servers the parameter servers run already: start workers only"))
        }
        "ps" => serve(config(flags, &place)?, flags, place.index, place.workers()),
        EVALUATOR => evaluate(flags, place),
        _ if flags.existing_servers => {
            // Only workers need the data, which would be most of a small task's memory.
            let recipe = models::read(flags)?;
            let address = place.cluster.task_address(&place.job, place.index)?;
            work(flags, &place, Target::Address(format!("grpc://{address}")), None, recipe).map(drop)
        }
        job => {
            let recipe = models::read(flags)?;
            let config = config(flags, &place)?;
            let allowed_users = config.allowed_users.clone();
            let server = Arc::new(Server::start(config, ops::registry(), runtime()?)?);
            flags.status.serve(vec![server.status()], allowed_users, &runtime()?)?;
            announce(job, place.index, server.address());
            let mut worked = work(flags, &place, Target::from(&*server), Some(server.status()), recipe);
            if flags.is_all_reduce() && matches!(worked, Ok(Ended::Trained)) {
                // The others may still read this worker's tensors of the last step.
                let left = done::leave_together(&server, &place.cluster, &place.job, place.index);
                worked = left.map(|()| Ended::Trained).map_err(Failure::from);
            }
            let worked = worked.map(drop);
            if worked.is_ok() && place.number() == 0 {
                match done::tell_chief_done(&Target::from(&*server), &place.device()) {
                    Ok(()) => done::wait_for_listeners(&server),
                    Err(status) => {
                        tracing::warn!(target: "ferroflow", "an evaluator can't be told that the chief is done: {status}");
                    }
                }
            }
            runtime()?.block_on(server.stop());
            worked
        }
    }
}

/// Evaluates every checkpoint of the chief until that of the last step, or until the chief is done.
fn evaluate(flags: &Flags, place: Place) -> Result<(), Failure> {
    let Some(logdir) = &flags.logdir else {
        return Err(Failure::new("--logdir is missing: an evaluator evaluates the checkpoints there"));
    };
    let recipe = models::read(flags)?;
    crate::say!("{}; {}", describe(&*recipe), place.device());
    let told = TfConfig { cluster: place.cluster, job: place.job, task_index: place.index };
    let config = RunConfig { tf_config: Some(told), ..run_config(flags, logdir)? };
    let model = recipe.estimator(&Part::of_evaluator(flags), config)?;
    let (train, test) = (recipe.training(0).input, recipe.testing()?);
    let train = TrainSpec { input_fn: train.clone(), ..TrainSpec::new(move |g| train(g), Some(flags.last_step())) };
    let eval = EvalSpec { input_fn: test.clone(), steps: None, ..EvalSpec::new(move |g| test(g)) };
    match train_and_evaluate(&model, train, eval)? {
        Some(evaluation) => print_figures(&Trained::of(&evaluation, None)?),
        None => crate::say!("there was no checkpoint to evaluate"),
    }
    Ok(())
}

fn config(flags: &Flags, place: &Place) -> Result<ServerConfig, Failure> {
    let mut config = ServerConfig::new(place.cluster.clone(), &place.job, place.index)?;
    if flags.is_all_reduce() {
        config = WorkerGroup::new(&place.cluster, &place.job, place.index)?.server_config(config);
    }
    flags.listen.apply(&mut config)?;
    FileFlags::default().apply(flags.listen.audit_log())?;
    Ok(config)
}

/// Prints one line, flushed, for the process that waits for this one.
fn announce(job: &str, index: u32, address: &str) {
    crate::say!("ferroflow server ready: /job:{job}/task:{index} at {address}");
    let _ = std::io::stdout().flush();
}

fn serve(config: ServerConfig, flags: &Flags, index: u32, workers: u32) -> Result<(), Failure> {
    let (runtime, has_parent, allowed_users) = (runtime()?, flags.reports, config.allowed_users.clone());
    let (parent_says, parent) = tokio::sync::oneshot::channel();
    // Without a parent, nothing is sent, and the channel stays open.
    let _unused = if has_parent {
        watch_the_parent(move |told| drop(parent_says.send(told)))?;
        None
    } else {
        Some(parent_says)
    };
    let server = Arc::new(Server::start(config, ops::registry(), runtime.clone())?);
    flags.status.serve(vec![server.status()], allowed_users, &runtime)?;
    // Before anybody knows of this server, so that it handles every signal.
    let guard = runtime.enter();
    let mut signals = Signals::new()?;
    drop(guard);
    announce("ps", index, server.address());
    let status = server.status();
    let mut over = done::watch(server.clone(), "ps", index, workers, done::GRACE)?;
    let ended = runtime.block_on(async {
        let ended = tokio::select! {
            // A parent decides when training is over: until then workers may return.
            ended = &mut over, if !has_parent => ended.unwrap_or(Ok(())),
            told = parent => match told {
                Ok(Told::Leave) => Ok(()),
                // The workers also notice that the parent has ended.
                _ => stay(&server, index, "the process that started this one is gone", STAYING, &mut over, &mut signals).await,
            },
            () = status.told_to_stop() => stay(&server, index, "`ferroflow stop`", STAYING, &mut over, &mut signals).await,
            (name, patience) = signals.next() => stay(&server, index, name, patience, &mut over, &mut signals).await,
        };
        server.stop().await;
        ended
    });
    ended.map_err(Failure::from)
}

/// How long a parameter server continues to serve workers with sessions after Ctrl-C, or after the parent has ended: the chief has to
/// save. A second Ctrl-C stops it at once.
const STAYING: Duration = Duration::from_secs(60);

/// The same for SIGTERM, which cluster managers follow with SIGKILL after half a minute.
const STAYING_TERMINATED: Duration = Duration::from_secs(20);

/// The interval at which a stopping server checks whether workers still have sessions.
const LOOKING: Duration = Duration::from_millis(20);

/// Waits, for a bounded time or until the next signal, until no worker has a session or all have reported that they are done.
async fn stay(
    server: &Server,
    index: u32,
    reason: &str,
    patience: Duration,
    over: &mut tokio::sync::oneshot::Receiver<ferroflow::Result<()>>,
    signals: &mut Signals,
) -> ferroflow::Result<()> {
    let count = server.num_sessions_of_others();
    if count == 0 {
        return Ok(());
    }
    tracing::info!(
        target: "ferroflow",
        "ps {index}: {reason}; stopping when the workers have saved and left ({count} session(s) open), after {} s at the \
         latest; a second signal stops it at once",
        patience.as_secs()
    );
    let empty = async {
        while server.num_sessions_of_others() > 0 {
            tokio::time::sleep(LOOKING).await;
        }
    };
    tokio::select! {
        ended = over => ended.unwrap_or(Ok(())),
        () = empty => Ok(()),
        _ = signals.next() => Ok(()),
        () = tokio::time::sleep(patience) => {
            tracing::warn!(target: "ferroflow", "ps {index}: stopping although workers have sessions open; a checkpoint that is \
                being saved fails");
            Ok(())
        }
    }
}

/// The signals that stop a server.
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> ferroflow::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|error| ferroflow::Status::unavailable(format!("signals can't be received: {error}")))
        };
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal; returns its name, and how long to serve workers that have sessions.
    async fn next(&mut self) -> (&'static str, Duration) {
        tokio::select! {
            _ = self.interrupt.recv() => ("interrupted", STAYING),
            _ = self.terminate.recv() => {
                exit::note_sigterm();
                ("SIGTERM", STAYING_TERMINATED)
            }
        }
    }
}

/// Why a worker has ended successfully.
enum Ended {
    /// It has finished its work.
    Trained,
    /// It was asked to stop, or the chief is done.
    Told,
}

fn work(
    flags: &Flags,
    place: &Place,
    target: Target,
    status: Option<TaskStatus>,
    recipe: Arc<dyn Recipe>,
) -> Result<Ended, Failure> {
    let (task, ps, workers) = (place.number(), place.parameter_servers(), place.workers());
    let is_reporting = flags.reports;
    if !is_reporting {
        crate::say!("{}; worker {task} of {workers}, {ps} ps", describe(&*recipe));
    }
    let stop = Coordinator::new();
    leave_on_interrupt(&stop)?;
    if let Some(status) = status {
        let stop = stop.clone();
        runtime()?.spawn(async move {
            status.told_to_stop().await;
            stop.request_stop(None);
        });
    }
    if is_reporting {
        let stop = stop.clone();
        watch_the_parent(move |_| stop.request_stop(None))?;
    }
    let wish = stop.clone();
    let stop = super::stop_of(&wish)?;
    if flags.is_all_reduce() && task != 0 {
        end_with_the_chief(place, &target, &wish)?;
    }
    let gradients = match (flags.is_sync() || flags.is_all_reduce(), flags.replicas_to_aggregate) {
        (false, _) => 1,
        (true, None) => u64::from(workers),
        (true, Some(count)) => u64::from(count.unsigned_abs()),
    };
    let whose = Whose::One { task, gradients };
    let progress = Arc::new(Mutex::new(Progress::new(flags.last_step(), workers, whose)));
    let shown = progress.clone();
    let listener = move |news| match news {
        News::Steps(steps) if is_reporting => line(&steps.to_line()),
        News::Steps(steps) => shown.lock().take(steps),
        News::Line(text) if is_reporting => line(&text),
        News::Line(text) => shown.lock().say(&text),
    };
    let worker = Worker {
        task,
        workers,
        cluster: place.cluster.clone(),
        job: place.job.clone(),
        index: place.index,
        flags: flags.clone(),
        target: target.clone(),
        recipe,
        listener: Arc::new(listener),
        stop,
    };
    let trained = worker.run().map_err(|failure| {
        if is_reporting && failure.is_for_good() {
            line(FAILED_FOR_GOOD);
        }
        let code = failure.exit_code();
        Failure::from(failure.status).with_code(code)
    })?;
    done::tell(&target, task, &place.device(), ps, flags.existing_servers);
    match trained {
        Some(trained) if is_reporting => line(&to_line(&trained)),
        Some(trained) => conclude(&progress.lock(), &trained, flags),
        None => progress.lock().finish(None),
    }
    Ok(if wish.should_stop() { Ended::Told } else { Ended::Trained })
}

/// Makes a worker leave when the chief is done. A worker that stands by would otherwise wait forever.
fn end_with_the_chief(place: &Place, target: &Target, stop: &Coordinator) -> Result<(), Failure> {
    let Some((job, index)) = place.cluster.chief() else { return Ok(()) };
    let (chief, own) = (format!("/job:{job}/task:{index}"), place.device());
    let (target, stop) = (target.clone(), stop.clone());
    let watch = move || {
        while let Err(status) = done::wait_for_chief(&target, &chief, &own) {
            tracing::debug!(target: "ferroflow", "{chief} can't be watched: {status}");
            if stop.wait_for_stop(Some(WATCHING_AGAIN)) {
                return;
            }
        }
        stop.request_stop(None);
    };
    let spawned = std::thread::Builder::new().name("watch the chief".to_owned()).spawn(watch);
    spawned.map(drop).map_err(|error| Failure::new(format!("no thread to watch the chief: {error}")))
}

/// The delay before an unreachable chief is asked again.
const WATCHING_AGAIN: Duration = Duration::from_secs(1);

/// A request of the parent process.
enum Told {
    /// This process should stop.
    Leave,
    /// There are no more requests: the parent has ended, or has released this process.
    Gone,
}

/// Calls `then` when the parent process tells this one to stop, releases it, or ends, which closes the input.
fn watch_the_parent(then: impl FnOnce(Told) + Send + 'static) -> Result<(), Failure> {
    let watch = move || {
        let mut lines = std::io::stdin().lines().map_while(Result::ok);
        then(if lines.any(|line| line == LEAVE) { Told::Leave } else { Told::Gone });
    };
    let spawned = std::thread::Builder::new().name("watch the parent".to_owned()).spawn(watch);
    spawned.map(drop).map_err(|error| Failure::new(format!("no thread to watch the parent: {error}")))
}

/// The line by which a child reports that another start would fail the same way.
pub const FAILED_FOR_GOOD: &str = "@failed for good";

/// Prints a line for the parent process, if there is one.
fn line(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

/// The line for a parent process.
fn to_line(trained: &Trained) -> String {
    let checkpoint = trained.checkpoint.as_deref().unwrap_or("");
    let (steps, loss, accuracy) = (trained.steps, trained.loss, trained.accuracy);
    // A value that is no number means that there is none.
    let auc = trained.auc.unwrap_or(f32::NAN);
    format!("@trained {steps} {loss} {accuracy} {auc} {} {checkpoint}", trained.is_interrupted)
}

/// Parses the line of a child process.
pub fn from_line(line: &str) -> Option<Trained> {
    let mut words = line.strip_prefix("@trained ")?.splitn(6, ' ');
    Some(Trained {
        steps: words.next()?.parse().ok()?,
        loss: words.next()?.parse().ok()?,
        accuracy: words.next()?.parse().ok()?,
        auc: words.next()?.parse().ok().filter(|auc: &f32| !auc.is_nan()),
        is_interrupted: words.next()?.parse().ok()?,
        checkpoint: words.next().filter(|path| !path.is_empty()).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_a_parent() {
        let mut trained = Trained {
            steps: 7,
            loss: 0.5,
            accuracy: 0.97,
            auc: None,
            checkpoint: Some("/a b/c-7".to_owned()),
            is_interrupted: false,
        };
        assert_eq!(from_line(&to_line(&trained)), Some(trained.clone()));
        (trained.checkpoint, trained.auc) = (None, Some(0.9));
        assert_eq!(from_line(&to_line(&trained)), Some(trained));
        assert_eq!(from_line("@trained 7"), None);
    }
}
