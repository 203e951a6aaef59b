//! `ferroflow hello`: the hello world of distributed TensorFlow.

use crate::Failure;
use crate::tls::TlsFlags;
use cluster::{Server, ServerConfig};
use ferroflow::session::runtime;
use ferroflow::{Graph, Session, Tensor, ops};

/// Starts the server of a cluster of one task, connects to it, runs a constant on it and prints its value.
pub fn run(flags: &TlsFlags) -> Result<(), Failure> {
    let mut config = ServerConfig::local(0)?;
    config.tls = flags.files_of_task(&config.job, config.task_index)?;
    let server = Server::start(config, ops::registry(), runtime()?)?;
    let graph = Graph::new();
    let hello = graph.constant_tensor(&Tensor::string("Hello, distributed TensorFlow!"));
    let session = Session::connect(&graph, &server.target())?;
    let values = session.run(&[&hello])?;
    crate::say!("{}", String::from_utf8_lossy(&values[0].strings()?[0]));
    session.close()?;
    Ok(())
}
