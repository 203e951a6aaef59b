//! How the tasks of a cluster learn that training is over. Every worker puts its number into a queue on each parameter server, and
//! these wait until all have. A queue on the chief is closed when the chief is done: workers and evaluators listen to it.
//!
//! `ferroflow server`, programs under `python -m ferroflow` and [`train_and_evaluate`](crate::estimator::train_and_evaluate) all do so, and
//! end together in one cluster.

use crate::session::{RunOptions, SessionConfig, Target};
use crate::train::Queue;
use cluster::{ClusterSpec, Server};
use graph::{Graph, Operation};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tensor::{Code, DType, PartialShape, Result, Status, Tensor};

/// The name under which the tasks share the queue.
const QUEUE: &str = "ferroflow_done";

/// The name of a queue on the chief that holds nothing, and is closed when the chief is done.
const CHIEF_QUEUE: &str = "ferroflow_chief";

/// How long the other workers may take when the chief is done: what they had to give is in the model already.
///
/// ```
/// assert!(ferroflow::distributed::done::GRACE < ferroflow::distributed::done::GRACE_OF_PROGRAMS);
/// ```
pub const GRACE: Duration = Duration::from_secs(5);

/// The same for programs that take long to start: a worker that comes when the chief is done already finds nothing to do and leaves.
///
/// ```
/// assert_eq!(ferroflow::distributed::done::GRACE_OF_PROGRAMS.as_secs(), 60);
/// ```
pub const GRACE_OF_PROGRAMS: Duration = Duration::from_secs(60);

/// How long a chief that is done stays for those who listen to it.
const LISTENING: Duration = Duration::from_secs(2);

/// How often it looks whether they are still there.
const LOOKING: Duration = Duration::from_millis(10);

/// How long a worker tries to tell.
const TELLING: Duration = Duration::from_secs(5);

/// Returns how many tasks of a cluster train.
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

/// Returns the number of a task among those that train, of which the chief is 0.
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

/// Starts to wait on a thread of its own; what is returned is there when training is over.
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

/// Tells these tasks that a worker is done.
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

/// Waits until the chief has said that it is done. An error says that it can't be known, such as while the chief isn't there.
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

/// Waits, when training by all-reduce is over for a worker, until it is over for all: the others may still read what this one gave to the
/// last step. The workers tell the chief that they have finished, and wait until it is done; the chief waits for them, not for long, and
/// then tells by [`tell_chief_done`] that it is.
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

/// Waits, not for long, until those who listened to the chief have heard that it is done and have left its server: one that stops at once
/// may take the answer along, and who can't hear it takes the chief for lost, which may come back.
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
