//! The status port for people and tools (`--http_port`): a page, health checks and metrics over HTTP/1.1, separate from the
//! cluster's port.
//!
//! It is read-only, and connections, head sizes and times are bounded. On loopback it serves the same users as the server, and no
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

/// Options of the status port.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusFlags {
    /// Serves a page that shows the cluster, /healthz, /readyz and /metrics (OpenMetrics) over HTTP at this port; 0 means any.
    /// Without this flag nothing is served.
    #[arg(long = "http_port", value_name = "PORT")]
    http_port: Option<u16>,
    /// The address of that port; by default loopback, where it serves the same users as the server. Elsewhere anybody who can
    /// reach the port can read it.
    #[arg(long = "http_host", value_name = "ADDRESS", requires = "http_port")]
    http_host: Option<IpAddr>,
    /// The format of the log on standard error: text, or a JSON object per line.
    #[arg(long = "log_format", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl StatusFlags {
    /// Starts to serve the status of the tasks of this process, if requested. It ends with the runtime.
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

    /// Returns the same options as arguments for the process of a task.
    pub fn to_arguments(&self) -> Vec<String> {
        let port = self.http_port.map(|port| format!("--http_port={port}"));
        let host = self.http_host.map(|host| format!("--http_host={host}"));
        port.into_iter().chain(host).collect()
    }
}
