//! One task of a cluster of processes: a parameter server that serves until the workers are done, or a worker.

use super::progress::{Progress, Whose};
use super::worker::{News, Trained, Worker};
use super::{Flags, conclude, describe, leave_on_interrupt};
use crate::{Failure, done};
use cluster::{ClusterSpec, Server, ServerConfig};
use ferroflow::data::mnist::Mnist;
use ferroflow::session::{Target, runtime};
use ferroflow::train::Coordinator;
use parking_lot::Mutex;
use std::io::Write;
use std::sync::Arc;

/// Runs the task.
pub fn run(flags: &Flags, job: &str) -> Result<(), Failure> {
    super::tell_of_gpus(flags);
    let hosts = |flag: &Option<String>, name: &str| -> Result<Vec<String>, Failure> {
        let all: Vec<String> = flag.iter().flat_map(|all| all.split(',')).map(|host| host.trim().to_owned()).collect();
        let all: Vec<String> = all.into_iter().filter(|host| !host.is_empty()).collect();
        if all.is_empty() { Err(Failure::new(format!("--{name} is missing"))) } else { Ok(all) }
    };
    let (ps_hosts, worker_hosts) = (hosts(&flags.ps_hosts, "ps_hosts")?, hosts(&flags.worker_hosts, "worker_hosts")?);
    let cluster = ClusterSpec::new().with_job("ps", &ps_hosts)?.with_job("worker", &worker_hosts)?;
    let index = flags.task_index.ok_or_else(|| Failure::new("--task_index is missing"))?;
    let address = cluster.task_address(job, index)?.to_owned();
    let (ps, workers) = (ps_hosts.len() as u32, worker_hosts.len() as u32);
    match job {
        "ps" if flags.existing_servers => {
            Err(Failure::new("with --existing_servers the parameter servers run already: start workers only"))
        }
        "ps" => serve(config(flags, cluster, job, index)?, index, workers, flags.reports),
        "worker" if flags.existing_servers => {
            // Only workers need the digits, which are most of what a small task would hold.
            let digits = super::read_digits(flags)?;
            work(flags, index, ps, workers, Target::Address(format!("grpc://{address}")), digits)
        }
        "worker" => {
            let digits = super::read_digits(flags)?;
            let server = Server::start(config(flags, cluster, job, index)?, ops::registry(), runtime()?)?;
            announce(job, index, server.address());
            let worked = work(flags, index, ps, workers, Target::from(&server), digits);
            runtime()?.block_on(server.stop());
            worked
        }
        _ => Err(Failure::new(format!("--job_name must be ps or worker, not '{job}'"))),
    }
}

fn config(flags: &Flags, cluster: ClusterSpec, job: &str, index: u32) -> Result<ServerConfig, Failure> {
    let mut config = ServerConfig::new(cluster, job, index)?;
    flags.listen.apply(&mut config)?;
    Ok(config)
}

/// One line, at once, for whoever started this and waits for it.
fn announce(job: &str, index: u32, address: &str) {
    crate::say!("ferroflow server ready: /job:{job}/task:{index} at {address}");
    let _ = std::io::stdout().flush();
}

fn serve(config: ServerConfig, index: u32, workers: u32, has_parent: bool) -> Result<(), Failure> {
    let runtime = runtime()?;
    let (leaves, parent) = tokio::sync::oneshot::channel();
    // Without a parent nobody sends, and the channel stays open.
    let _unused = if has_parent {
        when_the_parent_is_gone(move || {
            let _ = leaves.send(());
        })?;
        None
    } else {
        Some(leaves)
    };
    let server = Arc::new(Server::start(config, ops::registry(), runtime.clone())?);
    announce("ps", index, server.address());
    let over = done::watch(server.clone(), "ps", index, workers)?;
    let ended = runtime.block_on(async {
        let ended = tokio::select! {
            ended = over => ended.unwrap_or(Ok(())),
            ended = interrupted(parent) => ended,
        };
        server.stop().await;
        ended
    });
    ended.map_err(Failure::from)
}

/// How long a parameter server stays when it is interrupted, since the chief may want to save.
const STAYING: std::time::Duration = std::time::Duration::from_secs(10);

/// Returns when the server should stop: at once on SIGTERM, after a while on Ctrl-C or without the parent process, which the
/// workers notice too.
async fn interrupted(parent: tokio::sync::oneshot::Receiver<()>) -> ferroflow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| {
        signal(kind).map_err(|error| ferroflow::Status::unavailable(format!("signals can't be received: {error}")))
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => {}
        _ = parent => {}
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = tokio::time::sleep(STAYING) => {}
    }
    Ok(())
}

fn work(flags: &Flags, task: u32, ps: u32, workers: u32, target: Target, digits: Mnist) -> Result<(), Failure> {
    let is_reporting = flags.reports;
    if !is_reporting {
        crate::say!("{}; worker {task} of {workers}, {ps} ps", describe(&digits));
    }
    let stop = Coordinator::new();
    leave_on_interrupt(&stop)?;
    if is_reporting {
        let stop = stop.clone();
        when_the_parent_is_gone(move || stop.request_stop(None))?;
    }
    let gradients = match (flags.is_sync(), flags.replicas_to_aggregate) {
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
        ps,
        workers,
        flags: flags.clone(),
        target: target.clone(),
        digits,
        listener: Arc::new(listener),
        stop,
    };
    let trained = worker.run()?;
    done::tell(&target, task, ps, flags.existing_servers);
    match trained {
        Some(trained) if is_reporting => line(&to_line(&trained)),
        Some(trained) => conclude(&progress.lock(), &trained, flags),
        None => progress.lock().finish(),
    }
    Ok(())
}

/// Calls `leave` when the process that started this one lets go of it, or is gone: then the input ends.
fn when_the_parent_is_gone(leave: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let watch = move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        leave();
    };
    let spawned = std::thread::Builder::new().name("watch the parent".to_owned()).spawn(watch);
    spawned.map(drop).map_err(|error| Failure::new(format!("no thread to watch the parent: {error}")))
}

/// Prints a line for the parent process; without one, nobody misses it.
fn line(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

/// The line for a parent process.
fn to_line(trained: &Trained) -> String {
    let checkpoint = trained.checkpoint.as_deref().unwrap_or("");
    let (steps, loss, accuracy) = (trained.steps, trained.loss, trained.accuracy);
    format!("@trained {steps} {loss} {accuracy} {} {checkpoint}", trained.is_interrupted)
}

/// Reads the line of a child process.
pub fn from_line(line: &str) -> Option<Trained> {
    let mut words = line.strip_prefix("@trained ")?.splitn(5, ' ');
    Some(Trained {
        steps: words.next()?.parse().ok()?,
        loss: words.next()?.parse().ok()?,
        accuracy: words.next()?.parse().ok()?,
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
            checkpoint: Some("/a b/c-7".to_owned()),
            is_interrupted: false,
        };
        assert_eq!(from_line(&to_line(&trained)), Some(trained.clone()));
        trained.checkpoint = None;
        assert_eq!(from_line(&to_line(&trained)), Some(trained));
        assert_eq!(from_line("@trained 7"), None);
    }
}
