//! `ferroflow train`: trains an estimator on a cluster within this process, on a cluster of processes that it starts, or as one task of
//! a cluster.

mod child;
mod curves;
mod digits;
mod evaluations;
mod flags;
mod models;
mod news;
mod place;
mod processes;
mod progress;
mod recipe;
mod restarts;
mod strips;
mod task;
mod watch;
mod wide_deep;
mod worker;

pub use flags::{Flags, spelled};

use crate::Failure;
use cluster::{ClusterSpec, EmbeddedCluster, PeerPolicy};
use ferroflow::session::{Target, runtime};
use ferroflow::train::Coordinator;
use ferroflow::{Result, Status};
use news::News;
use place::{EVALUATOR, Place};
use progress::{Progress, Whose};
use recipe::{Recipe, describe};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::channel;
use worker::{Trained, Worker};

/// Trains, and prints the accuracy on the test data as its last line.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    flags.check_strategy()?;
    let place = Place::find(flags)?.filter(|_| !flags.download_only);
    // An evaluator prints the library's lines; all others print their own.
    let usual = match &place {
        Some(place) if place.job == EVALUATOR => "warn,ferroflow=info",
        // Within this process, workers wait for the chief only while it initializes the variables.
        None if !flags.processes => {
            "warn,ferroflow=info,ferroflow::estimator=warn,ferroflow::train::session_manager=warn"
        }
        _ => "warn,ferroflow=info,ferroflow::estimator=warn",
    };
    crate::log::start(usual, flags.status.log_format)?;
    flags.memory.apply()?;
    if let Some(place) = place {
        return task::run(flags, place);
    }
    let recipe = models::read(flags)?;
    if flags.download_only {
        let (what, train, test) = recipe.data();
        crate::say!("{train} {what} to train on and {test} to test on are there");
        return Ok(());
    }
    tell_of_gpus(flags);
    if flags.processes { processes::run(flags, &*recipe) } else { run_embedded(flags, &recipe) }
}

fn tell_of_gpus(flags: &Flags) {
    if flags.num_gpus > 0 && !flags.reports {
        crate::say!("--num_gpus={}: everything runs on processors", flags.num_gpus);
    }
}

/// Messages to the main thread.
enum Report {
    News(News),
    Done(u32, Result<Option<Trained>>),
}

fn run_embedded(flags: &Flags, recipe: &Arc<dyn Recipe>) -> Result<(), Failure> {
    if flags.bounds(flags.workers).is_some() {
        return Err(Failure::new(
            "--min_workers and --max_workers need workers that can be lost: with --processes, or as tasks with --job_name",
        ));
    }
    crate::say!("{}; {} ps and {} worker(s) in this process", describe(&**recipe), flags.num_ps(), flags.workers);
    let (spec, cluster) = start_embedded(flags)?;
    flags.status.serve(cluster.statuses(), PeerPolicy::own_user(), &runtime()?)?;
    let stop = Coordinator::new();
    leave_on_interrupt(&stop)?;
    let (reports, incoming) = channel();
    for task in 0..flags.workers {
        let news = reports.clone();
        let worker = Worker {
            task,
            workers: flags.workers,
            cluster: spec.clone(),
            job: "worker".to_owned(),
            index: task,
            flags: flags.clone(),
            target: Target::from(cluster.master("worker", task)?),
            recipe: recipe.clone(),
            listener: Arc::new(move |told| drop(news.send(Report::News(told)))),
            stop: stop_of(&stop)?,
        };
        let reports = reports.clone();
        let run = move || {
            let run = || worker.run().map_err(|failure| failure.status);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let result = caught.unwrap_or_else(|_| Err(Status::internal("the worker panicked")));
            let _ = reports.send(Report::Done(task, result));
        };
        let spawned = std::thread::Builder::new().name(format!("worker {task}")).spawn(run);
        spawned.map_err(|error| Failure::new(format!("can't start a worker: {error}")))?;
    }
    drop(reports);
    let mut progress = Progress::new(flags.last_step(), flags.workers, Whose::All);
    let (mut trained, mut left) = (None, flags.workers);
    while left > 0
        && let Ok(report) = incoming.recv()
    {
        match report {
            Report::News(News::Steps(steps)) => progress.take(steps),
            Report::News(News::Line(line)) => progress.say(&line),
            Report::Done(task, result) => {
                // The other workers may wait forever for one that has failed.
                let result = result.map_err(|status| status.context(format!("worker {task}")))?;
                trained = trained.or(result);
                left -= 1;
            }
        }
    }
    let Some(trained) = trained else { return Err(Failure::new("no worker evaluated the model")) };
    conclude(&progress, &trained, flags);
    Ok(())
}

fn start_embedded(flags: &Flags) -> Result<(ClusterSpec, EmbeddedCluster)> {
    // The addresses only name the tasks: nothing listens on them.
    let addresses = |job: &str, count: u32| (0..count).map(|task| format!("{job}{task}:1")).collect::<Vec<_>>();
    let spec = match flags.num_ps() {
        0 => ClusterSpec::new(),
        count => ClusterSpec::new().with_job("ps", &addresses("ps", count))?,
    };
    let spec = spec.with_job("worker", &addresses("worker", flags.workers))?;
    let cluster = EmbeddedCluster::start(&spec, ops::registry(), runtime()?)?;
    Ok((spec, cluster))
}

/// Prints the results of the training; the accuracy is last.
fn conclude(progress: &Progress, trained: &Trained, flags: &Flags) {
    progress.finish((!trained.is_interrupted).then_some(trained.steps));
    let seconds = progress.seconds();
    if let (Some(checkpoint), Some(logdir)) = (&trained.checkpoint, &flags.logdir) {
        crate::say!("checkpoint {checkpoint}; look into it with: ferroflow checkpoint ls {checkpoint}");
        crate::say!("curves: tensorboard --logdir {logdir}");
    }
    if trained.is_interrupted {
        crate::say!("interrupted; run it again with the same --logdir to go on");
        return;
    }
    let steps = progress.done_until(trained.steps);
    crate::say!("{steps} steps in {seconds:.1} s, {:.0} steps/s", steps as f64 / seconds);
    print_figures(trained);
}

/// Prints the results of the last evaluation; the accuracy is last.
fn print_figures(trained: &Trained) {
    crate::say!("test loss {:.4}", trained.loss);
    if let Some(auc) = trained.auc {
        crate::say!("test AUC {auc:.4}");
    }
    crate::say!("test accuracy {:.1} %", 100.0 * trained.accuracy);
}

/// Returns a worker's own stop request, which follows the common one. A worker that ends sets only its own.
fn stop_of(common: &Coordinator) -> Result<Coordinator, Failure> {
    let own = Coordinator::new();
    let (wish, follower) = (common.clone(), own.clone());
    let follow = move || {
        wish.wait_for_stop(None);
        follower.request_stop(None);
    };
    let spawned = std::thread::Builder::new().name("pass on the wish to leave".to_owned()).spawn(follow);
    spawned.map_err(|error| Failure::new(format!("no thread for signals: {error}")))?;
    Ok(own)
}

/// Asks for a stop on Ctrl-C or SIGTERM; the second one ends the process at once.
fn leave_on_interrupt(stop: &Coordinator) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = stop.clone();
    let handle = runtime()?;
    let _guard = handle.enter();
    let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("signals can't be received: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    handle.spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => crate::exit::note_sigterm(),
            }
            if asked {
                let _ = writeln!(crate::log::Lines, "ended at once; the steps since the last checkpoint are lost");
                std::process::exit(130);
            }
            asked = true;
            let _ = writeln!(crate::log::Lines, "saving and leaving; press Ctrl-C again to end at once");
            stop.request_stop(None);
        }
    });
    Ok(())
}
