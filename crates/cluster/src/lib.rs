//! Clusters: [`ClusterSpec`] lists the tasks, and a [`Server`] is one of them, with a master that serves clients and a worker
//! that runs partitions.
//!
//! Invariants: only `transport::grpc` names the HTTP stack, and the master names no op.

mod access;
mod audit;
mod client;
mod clock;
mod cluster_spec;
mod config;
mod connections;
mod device;
mod interface;
mod latency;
mod listen;
mod log_limit;
mod master;
mod metrics;
mod peer_policy;
mod quota;
mod random;
mod recent_lines;
mod recorder;
mod server;
mod shares;
mod simulated_task;
mod spawner;
mod stand_ins;
mod status;
mod task_question;
mod tf_config;
mod threads;
mod tls;
mod tokens;
mod transport;
mod turns;
mod unused_ports;
mod worker;

pub use audit::AuditLog;
pub use cluster_spec::ClusterSpec;
pub use config::{PeerTimes, ServerConfig, Transport};
pub use interface::*;
pub use latency::LatencySummary;
pub use log_limit::LogLimit;
pub use peer_policy::PeerPolicy;
pub use quota::Quota;
pub use random::RandomIds;
pub use recent_lines::{RecentLine, keep_line};
pub use server::{EmbeddedCluster, Server, set_idle_hook};
pub use simulated_task::{Network, Remains, SimulatedTask, Trace};
pub use spawner::{Spawner, SpawnsFutures};
pub use status::{ConnectionGate, Readiness, TaskStatus, ask_address};
pub use task_question::{TaskAnswer, TaskQuestion, TaskTopic};
pub use tensor::{MemoryState, memory_state, parse_memory_limit, set_memory_limit, set_session_memory_limit};
pub use tf_config::TfConfig;
pub use threads::{ServingRuntime, serving_runtime, wait_for};
pub use tls::TlsFiles;
pub use transport::grpc::{Proxy, RemoteMaster};
pub use transport::stream::{Dialer, GivenStream};
pub use unused_ports::unused_addresses;
