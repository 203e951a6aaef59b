//! Servers and clusters in this process.
//!
//! ```
//! use ferroflow::distributed::create_local_server;
//! use ferroflow::{Graph, Session, Tensor};
//!
//! let server = create_local_server()?;
//! let g = Graph::new();
//! let hello = g.constant_tensor(&Tensor::string("Hello, distributed TensorFlow!"));
//! let session = Session::connect(&g, &server.target())?;
//! assert_eq!(session.run(&[&hello])?[0].strings()?[0], "Hello, distributed TensorFlow!");
//! # Ok::<(), ferroflow::Status>(())
//! ```

pub mod done;

pub use cluster::{
    ClusterSpec, EmbeddedCluster, PeerPolicy, PeerTimes, Quota, Server, ServerConfig, TfConfig, TlsFiles, Transport,
};

pub use crate::worker_group::WorkerGroup;

use crate::session::runtime;
use tensor::Result;

/// Starts a server that is a cluster of its own.
///
/// ```
/// use ferroflow::distributed::create_local_server;
/// use ferroflow::prelude::*;
///
/// let server = create_local_server()?;
/// let g = Graph::new();
/// let sum = g.constant(1f32) + 2.0;
/// assert_eq!(Session::connect(&g, &server.target())?.eval::<f32>(&sum)?, 3.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn create_local_server() -> Result<Server> {
    Server::create_local_server(ops::registry(), runtime()?)
}

/// Starts the server of the task that the environment variable `TF_CONFIG` describes: a chief, master, worker or parameter server
/// of a cluster, or an evaluator, which may be outside of it.
///
/// If a cluster manager sets the variable, a program needs no other configuration:
///
/// ```no_run
/// use ferroflow::distributed::{TfConfig, join, server_from_env};
///
/// let server = server_from_env()?;
/// match TfConfig::from_env()? {
///     Some(config) if config.job == "ps" => join(&server)?,
///     _ => println!("train with a session on {}", server.target()),
/// }
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn server_from_env() -> Result<Server> {
    Server::from_env(ops::registry(), runtime()?)
}

/// Starts the server of a task.
///
/// ```
/// use ferroflow::distributed::{ClusterSpec, start_server, stop};
///
/// let cluster = ClusterSpec::new().with_job("worker", &["127.0.0.1:0"])?;
/// let server = start_server(&cluster, "worker", 0)?;
/// assert!(server.target().starts_with("grpc://"));
/// stop(&server)?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn start_server(cluster: &ClusterSpec, job: &str, task_index: u32) -> Result<Server> {
    start_server_with(ServerConfig::new(cluster.clone(), job, task_index)?)
}

/// Starts the server of a task with the given settings.
///
/// ```
/// use ferroflow::SessionConfig;
/// use ferroflow::distributed::{ServerConfig, start_server_with};
///
/// let config = ServerConfig::local(0)?.device_count(2)?.max_sessions(10);
/// let server = start_server_with(config.default_session_config(SessionConfig::new().allow_soft_placement(true)))?;
/// assert!(server.target().starts_with("grpc://"));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn start_server_with(config: ServerConfig) -> Result<Server> {
    Server::start(config, ops::registry(), runtime()?)
}

/// Serves until the server is stopped, as a parameter server does.
///
/// ```
/// use ferroflow::distributed::{create_local_server, join, stop};
///
/// let server = create_local_server()?;
/// std::thread::scope(|scope| {
///     let served = scope.spawn(|| join(&server));
///     stop(&server)?;
///     served.join().unwrap()
/// })?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn join(server: &Server) -> Result<()> {
    runtime()?.block_on(server.join());
    Ok(())
}

/// Stops a server after its pending calls have ended.
///
/// ```
/// use ferroflow::distributed::{create_local_server, stop};
/// use ferroflow::{Graph, Session};
///
/// let server = create_local_server()?;
/// let g = Graph::new();
/// let one = g.constant(1f32);
/// let session = Session::connect(&g, &server.target())?;
/// assert_eq!(session.eval::<f32>(&one)?, 1.0);
/// stop(&server)?;
/// assert!(session.eval::<f32>(&one).is_err());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn stop(server: &Server) -> Result<()> {
    runtime()?.block_on(server.stop());
    Ok(())
}

/// Starts all tasks of a cluster in this process; they communicate without sockets.
///
/// ```
/// use ferroflow::distributed::{ClusterSpec, start_embedded};
/// use ferroflow::prelude::*;
///
/// let spec = ClusterSpec::new().with_job("ps", &["ps0:1"])?.with_job("worker", &["worker0:1"])?;
/// let cluster = start_embedded(&spec)?;
/// let g = Graph::new();
/// let w = g.device("/job:ps/task:0", |g| Variable::new(g, "w", &g.constant(2f32)));
/// let y = g.device("/job:worker/task:0", |_| w.value() * 21.0);
/// let session = Session::on_master(&g, cluster.master("worker", 0)?, ferroflow::SessionConfig::new())?;
/// session.run_ops(&[w.initializer()])?;
/// assert_eq!(session.eval::<f32>(&y)?, 42.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn start_embedded(cluster: &ClusterSpec) -> Result<EmbeddedCluster> {
    EmbeddedCluster::start(cluster, ops::registry(), runtime()?)
}
