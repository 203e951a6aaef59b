//! The port for people and their tools (`--http_port`): a page, health checks and metrics over HTTP/1.1, apart from the port of the
//! cluster.
//!
//! It is read-only and bounded: so many connections, so long a head, so much time. On loopback it serves whom the server serves, and no
//! page of another site: a request must name this host, and come from no other origin.

mod answer;
mod commands;
mod http;
mod message;
mod summary;
mod target;
mod top;

pub use commands::{StatusArguments, TargetFlags, status, stop};
pub use top::run as top;

use crate::Failure;
use crate::log::LogFormat;
use clap::Args;
use cluster::{PeerPolicy, TaskStatus};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where the task tells how it is.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusFlags {
    /// Serves a page that shows the cluster, /healthz, /readyz and /metrics (OpenMetrics) over HTTP at this port; 0 means any. Without
    /// it nothing is served.
    #[arg(long = "http_port", value_name = "PORT")]
    http_port: Option<u16>,
    /// The address of that port; loopback if not given, where only those are served whom the server serves. Elsewhere whoever reaches the port
    /// may read what it tells.
    #[arg(long = "http_host", value_name = "ADDRESS", requires = "http_port")]
    http_host: Option<IpAddr>,
    /// What the lines on standard error look like: text, or a JSON object in each.
    #[arg(long = "log_format", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl StatusFlags {
    /// Begins to serve the status of the tasks of this process, if that is asked for. It ends with the runtime.
    pub fn serve(
        &self,
        tasks: Vec<TaskStatus>,
        policy: PeerPolicy,
        runtime: &tokio::runtime::Handle,
    ) -> Result<(), Failure> {
        let Some(port) = self.http_port else { return Ok(()) };
        let host = self.http_host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let address = SocketAddr::new(host, port);
        let failed =
            |error: std::io::Error| Failure::new(format!("--http_port: {address} can't be listened on: {error}"));
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let _entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let who = if host.is_loopback() { format!("{policy}") } else { "every machine that reaches it".to_owned() };
        tracing::info!(target: "ferroflow", "the status page, health and metrics are at http://{bound}/ for {who}");
        runtime.spawn(http::serve(listener, policy, bound, tasks));
        Ok(())
    }

    /// Returns the arguments that say the same to the process of a task.
    pub fn to_arguments(&self) -> Vec<String> {
        let port = self.http_port.map(|port| format!("--http_port={port}"));
        let host = self.http_host.map(|host| format!("--http_host={host}"));
        port.into_iter().chain(host).collect()
    }
}
