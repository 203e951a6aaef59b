//! How the tasks of a parameter server learn that training is over: every worker puts its number into a queue on each of
//! them, and they wait until all have.

use cluster::{ClusterSpec, Server};
use ferroflow::session::Target;
use ferroflow::train::Queue;
use ferroflow::{Code, DType, Graph, Operation, PartialShape, Result, RunOptions, SessionConfig, Status, Tensor};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The name under which the tasks share the queue.
const QUEUE: &str = "ferroflow_done";

/// How long the other workers may take when the chief is done: what they had to give is in the model already.
pub const GRACE: Duration = Duration::from_secs(5);

/// The same for programs that take long to start: a worker that comes when the chief is done already finds nothing to do and leaves.
pub const GRACE_OF_PROGRAMS: Duration = Duration::from_secs(60);

/// How long a worker tries to tell.
const TELLING: Duration = Duration::from_secs(5);

/// Returns how many tasks of a cluster train.
pub fn trainers(cluster: &ClusterSpec) -> u32 {
    ["chief", "master", "worker"].into_iter().map(|job| cluster.num_tasks(job) as u32).sum()
}

/// Returns the number of a task among those that train, of which the chief is 0.
pub fn number(cluster: &ClusterSpec, job: &str, index: u32) -> Option<u32> {
    match job {
        "chief" | "master" => Some(0),
        "worker" => Some(trainers(cluster) - cluster.num_tasks("worker") as u32 + index),
        _ => None,
    }
}

/// Starts to wait on a thread of its own; what is returned is there when training is over.
pub fn watch(
    server: Arc<Server>,
    job: &str,
    task: u32,
    workers: u32,
    grace: Duration,
) -> Result<tokio::sync::oneshot::Receiver<Result<()>>> {
    let (over, told) = tokio::sync::oneshot::channel();
    let device = device(job, task);
    let watch = move || drop(over.send(wait(&server, device, workers, grace)));
    let spawned = std::thread::Builder::new().name("wait for the workers".to_owned()).spawn(watch);
    spawned.map_err(|error| Status::resource_exhausted(format!("no thread to wait for the workers: {error}")))?;
    Ok(told)
}

/// Waits until all workers have said that they are done, or the chief has and the others have had their time.
fn wait(server: &Server, device: String, workers: u32, grace: Duration) -> Result<()> {
    let graph = Graph::new();
    let taken = on_queue(&graph, &device, |queue| queue.dequeue(&[DType::Int32])).output(0);
    let session = Target::from(server).session(&graph, &filtered(&[device]))?;
    let mut done = HashSet::new();
    while done.len() < workers as usize {
        let timeout = done.contains(&0).then_some(grace);
        let options = timeout.map_or(RunOptions::new(), |timeout| RunOptions::new().timeout(timeout));
        let run = session.runner().fetch(&taken).options(options);
        match run.run() {
            Ok(values) => done.extend(values.first().map(Tensor::to_scalar::<i32>).transpose()?),
            Err(status) if timeout.is_some() && status.code() == Code::DeadlineExceeded => break,
            Err(status) => return Err(status),
        };
    }
    session.close()
}

/// Tells every parameter server that a worker is done, and then the worker's own server when it is another process: that
/// one leaves as soon as it knows, and it is the way to the others. One that is gone already needn't be told.
///
/// A worker's number is 0 for the chief; its device is its own.
pub fn tell(target: &Target, worker: u32, own: &str, ps: u32, is_existing_server: bool) {
    tell_all(target, worker, own, (0..ps).map(|task| device("ps", task)).collect());
    if is_existing_server {
        tell_all(target, worker, own, vec![own.to_owned()]);
    }
}

fn tell_all(target: &Target, worker: u32, own: &str, devices: Vec<String>) {
    let (told, all_told) = channel();
    let count = devices.len();
    for device in devices {
        let (target, told, own) = (target.clone(), told.clone(), own.to_owned());
        let tell = move || {
            if let Err(status) = tell_one(&target, worker, &own, &device) {
                tracing::debug!("{device} can't be told that worker {worker} is done: {status}");
            }
            let _ = told.send(());
        };
        if let Err(error) = std::thread::Builder::new().name("tell that it is done".to_owned()).spawn(tell) {
            tracing::debug!("nobody can be told that worker {worker} is done: {error}");
        }
    }
    drop(told);
    for _ in 0..count {
        if all_told.recv_timeout(TELLING).is_err() {
            return;
        }
    }
}

fn tell_one(target: &Target, worker: u32, own: &str, at: &str) -> Result<()> {
    let graph = Graph::new();
    let number = i32::try_from(worker).unwrap_or(i32::MAX);
    let put = on_queue(&graph, at, |queue| {
        let number = queue.handle().graph().constant_tensor(&Tensor::scalar(number));
        queue.enqueue(&[number])
    });
    let filters = filtered(&[at.to_owned(), own.to_owned()]);
    let session = target.session(&graph, &filters)?;
    session.run_ops(&[&put])?;
    // The server may stop as soon as it knows.
    let _ = session.close();
    Ok(())
}

fn device(job: &str, task: u32) -> String {
    format!("/job:{job}/task:{task}")
}

fn filtered(filters: &[String]) -> SessionConfig {
    SessionConfig::new().device_filters(filters)
}

fn on_queue(graph: &Graph, device: &str, build: impl FnOnce(&Queue) -> Operation) -> Operation {
    graph.device(device, |graph| {
        let types: &[DType] = &[DType::Int32];
        let shapes: &[PartialShape] = &[PartialShape::scalar()];
        let queue = graph.op("FIFOQueueV2").attr("component_types", types).attr("shapes", shapes);
        let queue = queue.attr("capacity", -1i64).attr("shared_name", QUEUE).output();
        build(&Queue::new(queue))
    })
}
