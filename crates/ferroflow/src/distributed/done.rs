//! The protocol by which the tasks of a cluster learn that training is over. Every worker puts its number into a queue on each
//! parameter server, which waits for the numbers of all workers. The chief closes a queue on its own server when it is done;
//! workers and evaluators wait for that.
//!
//! `ferroflow server`, programs under `python -m ferroflow` and [`train_and_evaluate`](crate::estimator::train_and_evaluate) all
//! use it, so they end together in one cluster.

use crate::session::{RunOptions, SessionConfig, Target};
use crate::train::Queue;
use cluster::{ClusterSpec, Server};
use graph::{Graph, Operation};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tensor::{Code, DType, PartialShape, Result, Status, Tensor};

/// The shared name of the queue of workers' numbers.
const QUEUE: &str = "ferroflow_done";

/// The shared name of a queue on the chief that stays empty, and is closed when the chief is done.
const CHIEF_QUEUE: &str = "ferroflow_chief";

/// How long the other workers may take when the chief is done: their contributions are in the model already.
///
/// ```
/// assert!(ferroflow::distributed::done::GRACE < ferroflow::distributed::done::GRACE_OF_PROGRAMS);
/// ```
pub const GRACE: Duration = Duration::from_secs(5);

/// As [`GRACE`], for programs that start slowly: a worker that starts when the chief is done finds nothing to do and exits.
///
/// ```
/// assert_eq!(ferroflow::distributed::done::GRACE_OF_PROGRAMS.as_secs(), 60);
/// ```
pub const GRACE_OF_PROGRAMS: Duration = Duration::from_secs(60);

/// How long a chief that is done waits for the tasks that listen to it.
const LISTENING: Duration = Duration::from_secs(2);

/// How often the chief checks whether tasks still listen.
const LOOKING: Duration = Duration::from_millis(10);

/// How long a worker tries to reach the other tasks.
const TELLING: Duration = Duration::from_secs(5);

/// Returns the number of tasks of a cluster that train.
///
/// ```
/// use ferroflow::distributed::{ClusterSpec, done};
///
/// let cluster = ClusterSpec::new().with_job("chief", &["a:1"])?.with_job("worker", &["b:1"])?.with_job("ps", &["c:1"])?;
/// assert_eq!(done::trainers(&cluster), 2);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn trainers(cluster: &ClusterSpec) -> u32 {
    ["chief", "master", "worker"].into_iter().map(|job| cluster.num_tasks(job) as u32).sum()
}

/// Returns a task's number among those that train; the chief's is 0.
///
/// ```
/// use ferroflow::distributed::{ClusterSpec, done};
///
/// let cluster = ClusterSpec::new().with_job("chief", &["a:1"])?.with_job("worker", &["b:1"])?;
/// assert_eq!((done::number(&cluster, "worker", 0), done::number(&cluster, "ps", 0)), (Some(1), None));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn number(cluster: &ClusterSpec, job: &str, index: u32) -> Option<u32> {
    match job {
        "chief" | "master" => Some(0),
        "worker" => Some(trainers(cluster) - cluster.num_tasks("worker") as u32 + index),
        _ => None,
    }
}

/// Starts to wait on a separate thread; the returned channel gets the result when training is over.
///
/// ```
/// use ferroflow::distributed::{create_local_server, done};
/// use ferroflow::session::Target;
/// use std::sync::Arc;
///
/// // The only task of this cluster is its own parameter server.
/// let server = Arc::new(create_local_server()?);
/// let over = done::watch(server.clone(), "localhost", 0, 1, done::GRACE)?;
/// done::tell_all(&Target::from(&*server), 0, "/job:localhost/task:0", &["/job:localhost/task:0".to_owned()]);
/// assert!(over.blocking_recv().unwrap().is_ok());
/// # Ok::<(), ferroflow::Status>(())
/// ```
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
    spawned.map_err(|error| {
        Status::resource_exhausted(format!("can't start a thread to wait for the workers: {error}"))
    })?;
    Ok(told)
}

/// Waits until all workers have reported that they are done, or the chief has and the grace period is over.
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

/// Tells every parameter server that a worker is done, and then the worker's own server if it is another process. The own server
/// comes last, since it exits at once and the calls to the others go through it. Tasks that have already exited are skipped.
///
/// `worker` is the worker's number, 0 for the chief; `own` is its device.
///
/// ```
/// use ferroflow::distributed::{create_local_server, done};
/// use ferroflow::session::Target;
///
/// let server = create_local_server()?;
/// // There are no parameter servers: nobody is told.
/// done::tell(&Target::from(&server), 0, "/job:localhost/task:0", 0, false);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn tell(target: &Target, worker: u32, own: &str, ps: u32, is_existing_server: bool) {
    tell_all(target, worker, own, &(0..ps).map(|task| device("ps", task)).collect::<Vec<_>>());
    if is_existing_server {
        tell_all(target, worker, own, &[own.to_owned()]);
    }
}

/// Tells the given tasks that a worker is done.
///
/// ```
/// use ferroflow::distributed::{create_local_server, done};
/// use ferroflow::session::Target;
///
/// let server = create_local_server()?;
/// done::tell_all(&Target::from(&server), 0, "/job:localhost/task:0", &["/job:localhost/task:0".to_owned()]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn tell_all(target: &Target, worker: u32, own: &str, devices: &[String]) {
    let (told, all_told) = channel();
    let count = devices.len();
    for device in devices {
        let (target, told, own, device) = (target.clone(), told.clone(), own.to_owned(), device.clone());
        let tell = move || {
            if let Err(status) = tell_one(&target, worker, &own, &device) {
                tracing::debug!("can't tell {device} that worker {worker} is done: {status}");
            }
            let _ = told.send(());
        };
        if let Err(error) = std::thread::Builder::new().name("tell that it is done".to_owned()).spawn(tell) {
            tracing::debug!("can't tell the other tasks that worker {worker} is done: {error}");
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
    // The server may stop as soon as it is told.
    let _ = session.close();
    Ok(())
}

/// Waits until the chief has reported that it is done. An error means that this can't be determined, for example because the
/// chief isn't running.
///
/// ```
/// use ferroflow::distributed::{create_local_server, done};
/// use ferroflow::session::Target;
///
/// let server = create_local_server()?;
/// let (target, chief) = (Target::from(&server), "/job:localhost/task:0");
/// done::tell_chief_done(&target, chief)?;
/// done::wait_for_chief(&target, chief, chief)?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn wait_for_chief(target: &Target, chief: &str, own: &str) -> Result<()> {
    let graph = Graph::new();
    let taken = on_chief(&graph, chief, |queue| queue.dequeue(&[DType::Int32]));
    let session = target.session(&graph, &filtered(&[chief.to_owned(), own.to_owned()]))?;
    match session.run_ops(&[&taken]) {
        Ok(()) => Ok(()),
        Err(status) if status.code() == Code::OutOfRange => Ok(()),
        Err(status) => Err(status),
    }
}

/// Waits until training by all-reduce is over for all workers, since the others may still read this worker's tensors of the last step.
///
/// The workers tell the chief that they have finished, and wait until it is done. The chief waits for them for a short while, and then
/// reports that it is done with [`tell_chief_done`].
///
/// ```
/// use ferroflow::distributed::{ClusterSpec, Server, ServerConfig, done, start_server_with};
/// use std::sync::Arc;
///
/// let cluster = ClusterSpec::new().with_job("chief", &["127.0.0.1:0"])?;
/// let server: Arc<Server> = Arc::new(start_server_with(ServerConfig::new(cluster.clone(), "chief", 0)?)?);
/// done::leave_together(&server, &cluster, "chief", 0)?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn leave_together(server: &Arc<Server>, cluster: &ClusterSpec, job: &str, index: u32) -> Result<()> {
    let (Some((chief_job, chief_index)), Some(number)) = (cluster.chief(), number(cluster, job, index)) else {
        return Ok(());
    };
    let (own, chief, target) = (device(job, index), device(chief_job, chief_index), Target::from(&**server));
    if own != chief {
        tell_all(&target, number, &own, std::slice::from_ref(&chief));
        return wait_for_chief(&target, &chief, &own)
            .map_err(|status| status.context(format!("{own} has done its steps and waits for {chief}, which saves")));
    }
    let over = watch(server.clone(), job, index, trainers(cluster), GRACE)?;
    tell_all(&target, number, &own, &[chief]);
    over.blocking_recv().map_err(|_| Status::internal("nobody waits for the workers"))?
}

/// Says, on the chief's own server, that the chief is done.
///
/// ```
/// use ferroflow::distributed::{create_local_server, done};
/// use ferroflow::session::Target;
///
/// done::tell_chief_done(&Target::from(&create_local_server()?), "/job:localhost/task:0")?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn tell_chief_done(target: &Target, own: &str) -> Result<()> {
    let graph = Graph::new();
    let close = on_chief(&graph, own, |queue| graph.op("QueueCloseV2").input(queue.handle()).build());
    target.session(&graph, &filtered(&[own.to_owned()]))?.run_ops(&[&close])
}

/// Waits briefly until the tasks that listened to the chief have been notified and have closed their sessions. If the server
/// stopped at once, a listener might not get the notification, and would take the chief for lost and wait for its return.
///
/// ```
/// use ferroflow::distributed::{create_local_server, done};
/// use ferroflow::session::Target;
///
/// let server = create_local_server()?;
/// done::tell_chief_done(&Target::from(&server), "/job:localhost/task:0")?;
/// done::wait_for_listeners(&server);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn wait_for_listeners(server: &Server) {
    let until = Instant::now() + LISTENING;
    while server.num_sessions_of_others() > 0 && Instant::now() < until {
        std::thread::sleep(LOOKING);
    }
}

fn device(job: &str, task: u32) -> String {
    format!("/job:{job}/task:{task}")
}

fn filtered(filters: &[String]) -> SessionConfig {
    SessionConfig::new().device_filters(filters)
}

fn on_queue(graph: &Graph, device: &str, build: impl FnOnce(&Queue) -> Operation) -> Operation {
    on_shared_queue(graph, device, QUEUE, -1, build)
}

fn on_chief(graph: &Graph, device: &str, build: impl FnOnce(&Queue) -> Operation) -> Operation {
    on_shared_queue(graph, device, CHIEF_QUEUE, 1, build)
}

fn on_shared_queue(
    graph: &Graph,
    device: &str,
    name: &str,
    capacity: i64,
    build: impl FnOnce(&Queue) -> Operation,
) -> Operation {
    graph.device(device, |graph| {
        let types: &[DType] = &[DType::Int32];
        let shapes: &[PartialShape] = &[PartialShape::scalar()];
        let queue = graph.op("FIFOQueueV2").attr("component_types", types).attr("shapes", shapes);
        let queue = queue.attr("capacity", capacity).attr("shared_name", name).output();
        build(&Queue::new(queue))
    })
}
