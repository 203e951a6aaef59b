//! [`ServerConfig`]: the configuration of a server, from code or from a ServerDef; [`TfConfig`](crate::TfConfig) creates one,
//! too.

use crate::ClusterSpec;
use crate::PeerPolicy;
use crate::Quota;
use crate::TlsFiles;
use crate::device::{DEVICES_MAX, task_name};
use graph::DeviceName;
use prost::Message;
use proto::{ConfigProto, ServerDef};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use tensor::{Result, Status};

/// The configuration of a server.
///
/// ```
/// use cluster::{ClusterSpec, ServerConfig, Transport};
///
/// let cluster = ClusterSpec::new().with_job("ps", &["host0:2222"])?.with_job("worker", &["host1:2222"])?;
/// let config = ServerConfig::new(cluster, "worker", 0)?.transport(Transport::Tcp).device_count(2)?;
/// assert_eq!(config.device_count, 2);
/// # Ok::<(), tensor::Status>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// The cluster.
    pub cluster: ClusterSpec,
    /// The job of which the server is a task.
    pub job: String,
    /// The index of the task.
    pub task_index: u32,
    /// The address to listen on, in place of the one derived from the task's address in the cluster.
    pub bind: Option<IpAddr>,
    /// Whether the server may listen on all interfaces if necessary: if its address in the cluster isn't one of this machine's,
    /// is loopback while other tasks are elsewhere, or is a name that can't be resolved yet. The environment variable
    /// `FERROFLOW_INSECURE=1` has the same effect.
    pub is_insecure: bool,
    /// The users of this machine that are served; by default the server's own user and root.
    pub allowed_users: PeerPolicy,
    /// The task's own certificate, and the authorities that it trusts. With it every connection over TCP is encrypted and
    /// mutually authenticated. `{job}` and `{task}` in the file names are replaced by those of the task.
    pub tls: Option<TlsFiles>,
    /// Whether served users of this machine may connect without certificates, as an unmodified TensorFlow client does.
    pub allows_plain_loopback: bool,
    /// A file with the tokens of clients that have no certificates of their own: lines of a role (`client`, `task` or `admin`), a
    /// name and a token. Tokens are accepted over TLS, or from the same machine.
    pub tokens: Option<PathBuf>,
    /// The limits of one client; tasks and admins have none.
    pub client_quota: Quota,
    /// A file to which a line of JSON is appended for every session, reset and refusal.
    pub audit_log: Option<PathBuf>,
    /// The port to listen on, in place of the one in the cluster, for example behind a port mapping.
    pub port: Option<u16>,
    /// The number of CPU devices of the task.
    pub device_count: u32,
    /// The transport to other Ferroflow tasks.
    pub transport: Transport,
    /// The default settings of sessions.
    pub default_session_config: ConfigProto,
    /// The most open sessions of clients; 16,384 by default. One client always leaves some of them to others.
    pub max_sessions: Option<usize>,
    /// The time after which an unused session is ended if its client's connection is closed. By default such a session stays, as
    /// on TensorFlow's servers, because its client may reconnect.
    pub session_gc: Option<Duration>,
    /// How long to wait for other tasks.
    pub peer_times: PeerTimes,
    /// The most bytes of tensors that may wait for a task that has stopped reading; beyond that, steps that would send it more
    /// fail. 1 GiB by default.
    pub peer_bytes_max: Option<usize>,
}

/// Timeouts for other tasks, and intervals of checks.
#[derive(Clone, Copy, Debug)]
pub struct PeerTimes {
    /// How long connecting may take, and how long the peer may take to greet.
    pub connect: Duration,
    /// The interval at which to check whether awaited tensors can still arrive.
    pub check: Duration,
    /// The time of silence after which a line names a connected task that doesn't respond.
    pub silence: Duration,
}

impl Default for PeerTimes {
    fn default() -> PeerTimes {
        PeerTimes { connect: Duration::from_secs(10), check: Duration::from_secs(5), silence: Duration::from_secs(15) }
    }
}

/// The transport between Ferroflow tasks; TensorFlow's tasks always use gRPC. If two tasks differ, the simpler one is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// The best one that both ends support.
    #[default]
    Auto,
    /// A stream, with shared memory for large tensors between tasks on one machine.
    SharedMemory,
    /// A stream: over a Unix socket if both ends are on one machine, otherwise over TCP.
    Unix,
    /// A stream over TCP.
    Tcp,
    /// `RecvTensor`, as between TensorFlow's tasks.
    Grpc,
}

impl std::str::FromStr for Transport {
    type Err = Status;

    fn from_str(text: &str) -> Result<Transport> {
        match text {
            "auto" => Ok(Transport::Auto),
            "shm" => Ok(Transport::SharedMemory),
            "unix" => Ok(Transport::Unix),
            "tcp" => Ok(Transport::Tcp),
            "grpc" => Ok(Transport::Grpc),
            _ => Err(Status::invalid_argument(format!(
                "'{text}' is no transport; there are auto, shm, unix, tcp and grpc"
            ))),
        }
    }
}

impl ServerConfig {
    /// Returns the configuration of one task of a cluster.
    pub fn new(cluster: ClusterSpec, job: &str, task_index: u32) -> Result<ServerConfig> {
        cluster.task_address(job, task_index)?;
        Ok(ServerConfig { cluster, job: job.to_owned(), task_index, device_count: 1, ..ServerConfig::default() })
    }

    /// Returns the configuration of a cluster of one task, as TensorFlow's `create_local_server` does. Port 0 means any.
    pub fn local(port: u16) -> Result<ServerConfig> {
        let cluster = ClusterSpec::new().with_job("localhost", &[format!("localhost:{port}")])?;
        ServerConfig::new(cluster, "localhost", 0)
    }

    /// Sets the address to listen on, in place of the one derived from the task's address in the cluster.
    pub fn bind(mut self, address: IpAddr) -> Self {
        self.bind = Some(address);
        self
    }

    /// Sets whether the server may listen on all interfaces if necessary.
    pub fn insecure(mut self, is_insecure: bool) -> Self {
        self.is_insecure = is_insecure;
        self
    }

    /// Sets which users of this machine are served.
    pub fn allowed_users(mut self, users: PeerPolicy) -> Self {
        self.allowed_users = users;
        self
    }

    /// Encrypts TCP connections, with mutual authentication by certificates.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Sets whether served users of this machine may connect without certificates.
    pub fn allow_plain_loopback(mut self, allow: bool) -> Self {
        self.allows_plain_loopback = allow;
        self
    }

    /// Identifies clients by the tokens in a file.
    pub fn tokens(mut self, file: impl Into<PathBuf>) -> Self {
        self.tokens = Some(file.into());
        self
    }

    /// Sets the limits of one client.
    pub fn client_quota(mut self, quota: Quota) -> Self {
        self.client_quota = quota;
        self
    }

    /// Appends a line of JSON to a file for every session, reset and refusal.
    pub fn audit_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.audit_log = Some(file.into());
        self
    }

    /// Sets the port to listen on, in place of the one in the cluster.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Sets the number of CPU devices of the task.
    pub fn device_count(mut self, count: u32) -> Result<Self> {
        self.set_device_count(i64::from(count))?;
        Ok(self)
    }

    /// Sets the transport to other Ferroflow tasks.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets the default settings of sessions.
    pub fn default_session_config(mut self, config: impl Into<ConfigProto>) -> Self {
        self.default_session_config = config.into();
        self
    }

    /// Sets the most open sessions of clients.
    pub fn max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = Some(sessions);
        self
    }

    /// Ends sessions that have not been used for this time and whose client's connection is closed.
    pub fn session_gc(mut self, time: Duration) -> Self {
        self.session_gc = Some(time);
        self
    }

    /// Sets how long to wait for other tasks.
    pub fn peer_times(mut self, times: PeerTimes) -> Self {
        self.peer_times = times;
        self
    }

    /// Sets the most bytes of tensors that may wait for a task that has stopped reading.
    pub fn peer_bytes_max(mut self, bytes: usize) -> Self {
        self.peer_bytes_max = Some(bytes);
        self
    }

    /// Reads a `ServerDef`.
    pub fn from_server_def(def: &ServerDef) -> Result<ServerConfig> {
        if !def.protocol.is_empty() && def.protocol != "grpc" {
            return Err(Status::unimplemented(format!("ServerDef: the protocol '{}' is not known", def.protocol)));
        }
        let cluster = ClusterSpec::from_proto(&def.cluster.clone().unwrap_or_default())?;
        let index = u32::try_from(def.task_index).map_err(|_| {
            Status::invalid_argument(format!("ServerDef: the task index {} is negative", def.task_index))
        })?;
        let mut config = ServerConfig::new(cluster, &def.job_name, index)?;
        if def.port != 0 {
            let port = u16::try_from(def.port);
            config.port =
                Some(port.map_err(|_| Status::invalid_argument(format!("ServerDef: {} is not a port", def.port)))?);
        }
        config.default_session_config = def.default_session_config.clone().unwrap_or_default();
        if let Some(&count) = config.default_session_config.device_count.get("CPU") {
            config.set_device_count(i64::from(count))?;
        }
        Ok(config)
    }

    /// Reads a `ServerDef` from the contents of a file, binary or text.
    pub fn from_server_def_bytes(bytes: &[u8]) -> Result<ServerConfig> {
        let text_error = match std::str::from_utf8(bytes) {
            Ok(text) => match parse_text(text) {
                Ok(def) => return ServerConfig::from_server_def(&def),
                Err(status) => Some(status),
            },
            Err(_) => None,
        };
        let binary = ServerDef::decode(bytes).map_err(|error| {
            text_error.unwrap_or_else(|| Status::invalid_argument(format!("this is not a ServerDef: {error}")))
        })?;
        ServerConfig::from_server_def(&binary)
    }

    /// Returns the task that leads collective groups, as the default session's settings name it (`collective_group_leader`).
    pub(crate) fn collective_leader(&self) -> Result<Option<String>> {
        let experimental = self.default_session_config.experimental.as_ref();
        let Some(leader) =
            experimental.map(|settings| &settings.collective_group_leader).filter(|name| !name.is_empty())
        else {
            return Ok(None);
        };
        let name = DeviceName::parse(leader)?;
        match (name.job, name.task) {
            (Some(job), Some(task)) => {
                self.cluster.task_address(&job, task).map_err(|status| status.context("collective_group_leader"))?;
                Ok(Some(task_name(&job, task)))
            }
            _ => Err(Status::invalid_argument(format!("collective_group_leader: '{leader}' names no task"))),
        }
    }

    /// Sets the number of CPU devices of the task.
    pub fn set_device_count(&mut self, count: i64) -> Result<()> {
        match u32::try_from(count) {
            Ok(count @ 1..=DEVICES_MAX) => {
                self.device_count = count;
                Ok(())
            }
            _ => Err(Status::invalid_argument(format!("a task has 1 to {DEVICES_MAX} CPU devices, not {count}"))),
        }
    }
}

fn parse_text(text: &str) -> Result<ServerDef> {
    proto::text::parse("tensorflow.ServerDef", text)
        .map_err(|error| Status::invalid_argument(format!("this is not a ServerDef in text form: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        cluster {
          job { name: "ps" tasks { key: 0 value: "127.0.0.1:2222" } }
          job { name: "worker" tasks { key: 0 value: "127.0.0.1:2223" } tasks { key: 1 value: "127.0.0.1:2224" } }
        }
        job_name: "worker"  # this one
        task_index: 1
        default_session_config { device_count { key: "CPU" value: 2 } allow_soft_placement: true }
        protocol: "grpc"
    "#;

    #[test]
    fn server_defs_are_read_in_both_forms() {
        let from_text = ServerConfig::from_server_def_bytes(TEXT.as_bytes()).unwrap();
        assert_eq!((from_text.job.as_str(), from_text.task_index, from_text.device_count), ("worker", 1, 2));
        assert!(from_text.default_session_config.allow_soft_placement);
        let binary = parse_text(TEXT).unwrap().encode_to_vec();
        let from_binary = ServerConfig::from_server_def_bytes(&binary).unwrap();
        assert_eq!(from_binary.cluster, from_text.cluster);
        assert!(ServerConfig::from_server_def_bytes(b"cluster { job {").is_err());
        assert!(ServerConfig::from_server_def_bytes(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn bounds() {
        let mut config = ServerConfig::local(0).unwrap();
        assert!(config.set_device_count(0).is_err());
        assert!(config.set_device_count(100_000).is_err());
        let def = ServerDef { job_name: "x".into(), task_index: -1, ..Default::default() };
        assert!(ServerConfig::from_server_def(&def).is_err());
    }
}
