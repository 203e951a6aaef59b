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

pub use cluster::{ClusterSpec, EmbeddedCluster, PeerPolicy, PeerTimes, Server, ServerConfig, TfConfig, Transport};

use crate::session::runtime;
use tensor::Result;

/// Starts a server that is a cluster of its own.
pub fn create_local_server() -> Result<Server> {
    Server::create_local_server(ops::registry(), runtime()?)
}

/// Starts the server of the task that the environment variable `TF_CONFIG` describes: a chief, master, worker or parameter server
/// of a cluster, or an evaluator, which may be outside of it.
///
/// A program whose cluster manager sets the variable needs to know nothing else of its cluster:
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
pub fn start_server(cluster: &ClusterSpec, job: &str, task_index: u32) -> Result<Server> {
    start_server_with(ServerConfig::new(cluster.clone(), job, task_index)?)
}

/// Starts the server of a task with settings.
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
pub fn join(server: &Server) -> Result<()> {
    runtime()?.block_on(server.join());
    Ok(())
}

/// Stops a server once its calls have ended.
pub fn stop(server: &Server) -> Result<()> {
    runtime()?.block_on(server.stop());
    Ok(())
}

/// Starts all tasks of a cluster in this process; they talk without sockets.
pub fn start_embedded(cluster: &ClusterSpec) -> Result<EmbeddedCluster> {
    EmbeddedCluster::start(cluster, ops::registry(), runtime()?)
}
