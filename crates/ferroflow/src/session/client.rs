//! [`ClientSession`]: the client's side of a session on a master, in this process or at a `grpc://` address.

use super::{RunOptions, SessionBackend, SessionConfig};
use cluster::{Answer, EmbeddedCluster, LocalSession, MasterInterface, RemoteMaster, RunStepCall, TlsFiles, wait_for};
use kernel::OpRegistry;
use parking_lot::Mutex;
use proto::{ConfigProto, CreateSessionRequest, ExtendSessionRequest, GraphDef, RunMetadata};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tensor::{Result, Status, Tensor};
use tokio::runtime::{Handle, Runtime};

/// A session on a master. It is created when it gets its first nodes, as in TensorFlow's clients.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::session::{ClientSession, SessionBackend};
/// use ferroflow::{RunOptions, SessionConfig};
///
/// let g = Graph::new();
/// let sum = g.constant(1f32) + 2.0;
/// let session = ClientSession::local(ferroflow::ops::registry(), SessionConfig::new().into())?;
/// session.extend(&g.to_graph_def())?;
/// let (values, _) = session.run(&RunOptions::new(), &[], &[&sum.name()], &[])?;
/// assert_eq!(values[0].to_scalar::<f32>()?, 3.0);
/// # Ok::<(), Status>(())
/// ```
pub struct ClientSession {
    master: Arc<dyn MasterInterface>,
    runtime: Handle,
    config: ConfigProto,
    /// The timeout of steps that don't set one.
    operation_timeout: Option<Duration>,
    state: Mutex<State>,
    /// The session itself, once it is open, if it is entirely in this process.
    local: OnceLock<Arc<dyn LocalSession>>,
    /// The server of a session in this process, which stops with it.
    cluster: Option<EmbeddedCluster>,
}

enum State {
    New,
    Open(Open),
    Closed,
}

#[derive(Clone)]
struct Open {
    handle: String,
    graph_version: i64,
}

impl ClientSession {
    /// Returns a session in this process, on the master of an embedded cluster of one task.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::session::ClientSession;
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let backend = ClientSession::local(ferroflow::ops::registry(), ferroflow::SessionConfig::new().into())?;
    /// assert_eq!(Session::with_backend(&g, Box::new(backend)).eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), Status>(())
    /// ```
    pub fn local(registry: &'static OpRegistry, config: ConfigProto) -> Result<ClientSession> {
        let cluster = EmbeddedCluster::local(registry, runtime()?)?;
        let mut session = ClientSession::new(cluster.local_master()?, config)?;
        session.cluster = Some(cluster);
        Ok(session)
    }

    /// Returns a session on a master in this process.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, start_embedded};
    /// use ferroflow::prelude::*;
    /// use ferroflow::session::ClientSession;
    ///
    /// let cluster = start_embedded(&ClusterSpec::new().with_job("worker", &["worker0:2222"])?)?;
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let backend = ClientSession::new(cluster.master("worker", 0)?, ferroflow::SessionConfig::new().into())?;
    /// assert_eq!(Session::with_backend(&g, Box::new(backend)).eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), Status>(())
    /// ```
    pub fn new(master: Arc<dyn MasterInterface>, config: ConfigProto) -> Result<ClientSession> {
        let (state, local) = (Mutex::new(State::New), OnceLock::new());
        let timeout_ms = u64::try_from(config.operation_timeout_in_ms).ok().filter(|&timeout_ms| timeout_ms > 0);
        let operation_timeout = timeout_ms.map(Duration::from_millis);
        Ok(ClientSession { master, runtime: runtime()?, config, operation_timeout, state, local, cluster: None })
    }

    /// Returns a session on the server at `grpc://host:port`. The connection is encrypted if the settings or the environment name
    /// a certificate.
    ///
    /// ```
    /// use ferroflow::session::ClientSession;
    ///
    /// let status = ClientSession::connect("worker0:2222", ferroflow::SessionConfig::new()).err().unwrap();
    /// assert_eq!(status.message(), "the target 'worker0:2222' doesn't start with grpc://");
    /// ```
    pub fn connect(target: &str, config: impl Into<SessionConfig>) -> Result<ClientSession> {
        let config = config.into();
        let address = target
            .strip_prefix("grpc://")
            .ok_or_else(|| Status::invalid_argument(format!("the target '{target}' doesn't start with grpc://")))?;
        let files = match config.tls_files() {
            Some(files) => Some(files.clone()),
            None => TlsFiles::of_process()?,
        };
        let master = match files {
            Some(files) => RemoteMaster::with_tls(address, runtime()?, files)?,
            None => RemoteMaster::new(address, runtime()?)?,
        };
        ClientSession::new(Arc::new(master), config.into())
    }

    fn wait<T>(&self, answer: Answer<T>) -> Result<T> {
        match self.cluster {
            // A program may use a session of its own process on any thread, even within a task of a runtime.
            Some(_) => wait_for(&self.runtime, answer),
            None => self.runtime.block_on(answer),
        }
    }

    /// Returns the session's handle, and creates the session if that hasn't happened yet.
    fn handle(&self) -> Result<String> {
        let mut state = self.state.lock();
        if let State::New = &*state {
            *state = State::Open(self.create(&GraphDef::default())?);
        }
        match &*state {
            State::Open(open) => Ok(open.handle.clone()),
            State::New | State::Closed => Err(closed()),
        }
    }

    fn create(&self, def: &GraphDef) -> Result<Open> {
        let request = CreateSessionRequest {
            graph_def: Some(def.clone()),
            config: Some(self.config.clone()),
            ..Default::default()
        };
        let response = self.wait(self.master.create_session(request))?;
        if let Some(local) = self.master.local_session(&response.session_handle) {
            let _ = self.local.set(local);
        }
        Ok(Open { handle: response.session_handle, graph_version: response.graph_version })
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        if self.cluster.is_some() {
            // Nobody else uses the session, and there is nobody to report an error to.
            let _ = self.close();
        }
    }
}

fn closed() -> Status {
    Status::cancelled("Session has been closed.")
}

impl SessionBackend for ClientSession {
    fn extend(&self, def: &GraphDef) -> Result<()> {
        let mut state = self.state.lock();
        let opened = match &*state {
            State::New => self.create(def)?,
            State::Open(open) => {
                let request = ExtendSessionRequest {
                    session_handle: open.handle.clone(),
                    graph_def: Some(def.clone()),
                    current_graph_version: open.graph_version,
                };
                let response = self.wait(self.master.extend_session(request))?;
                Open { handle: open.handle.clone(), graph_version: response.new_graph_version }
            }
            State::Closed => return Err(closed()),
        };
        *state = State::Open(opened);
        Ok(())
    }

    fn run(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        let is_recorded = options.full_trace || options.output_partition_graphs;
        let timeout = options.timeout.or(self.operation_timeout);
        let local = self.local.get().filter(|_| !is_recorded);
        if let Some(result) = local.and_then(|local| local.run(feeds, fetches, targets, timeout)) {
            return result.map(|values| (values, None));
        }
        // Fed tensors needn't be fetched.
        let fed = |fetch: &str| feeds.iter().find(|(name, _)| is_same(name, fetch)).map(|(_, value)| value.clone());
        let asked: Vec<&str> = fetches.iter().copied().filter(|fetch| fed(fetch).is_none()).collect();
        if asked.is_empty() && targets.is_empty() && !fetches.is_empty() {
            return Ok((fetches.iter().filter_map(|fetch| fed(fetch)).collect(), None));
        }
        let known = local.filter(|_| asked.len() < fetches.len());
        let (received, metadata) = match known.and_then(|local| local.run(feeds, &asked, targets, timeout)) {
            Some(result) => (result?, None),
            None => {
                let call = RunStepCall {
                    session_handle: self.handle()?,
                    feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
                    fetches: owned(&asked),
                    targets: owned(targets),
                    options: options.to_proto(),
                    partial_run_handle: String::new(),
                };
                let reply = self.wait(self.master.run_step(call))?;
                (reply.tensors.into_iter().map(|(_, tensor)| tensor).collect(), reply.metadata)
            }
        };
        let mut received = received.into_iter();
        let values: Option<Vec<Tensor>> = fetches.iter().map(|fetch| fed(fetch).or_else(|| received.next())).collect();
        let values = values.ok_or_else(|| Status::internal("the master returned too few tensors"))?;
        Ok((values, metadata.filter(|_| is_recorded)))
    }

    fn partial_run_setup(&self, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<String> {
        let request = proto::PartialRunSetupRequest {
            session_handle: self.handle()?,
            feed: owned(feeds),
            fetch: owned(fetches),
            target: owned(targets),
            ..Default::default()
        };
        self.wait(self.master.partial_run_setup(request))
    }

    fn partial_run(&self, handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let call = RunStepCall {
            session_handle: self.handle()?,
            feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            fetches: owned(fetches),
            partial_run_handle: handle.to_owned(),
            ..Default::default()
        };
        let reply = self.wait(self.master.run_step(call))?;
        Ok(reply.tensors.into_iter().map(|(_, tensor)| tensor).collect())
    }

    fn close(&self) -> Result<()> {
        let state = std::mem::replace(&mut *self.state.lock(), State::Closed);
        match state {
            State::Open(open) => self.wait(self.master.close_session(open.handle)),
            State::New | State::Closed => Ok(()),
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns whether two names refer to the same output: output 0 may be named by its node alone.
fn is_same(one: &str, other: &str) -> bool {
    one.strip_suffix(":0").unwrap_or(one) == other.strip_suffix(":0").unwrap_or(other)
}

/// Returns the runtime of this process's servers and connections; it is started on first use.
///
/// ```
/// let runtime = ferroflow::session::runtime()?;
/// assert_eq!(runtime.block_on(async { 6 * 7 }), 42);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn runtime() -> Result<Handle> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().enable_all().build().ok());
    match runtime {
        Some(runtime) => Ok(runtime.handle().clone()),
        None => Err(Status::resource_exhausted("can't start the threads that serve connections")),
    }
}
