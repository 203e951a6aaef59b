//! [`MasterSession`]: a session on a master, in this process or behind a `grpc://` address.

use super::{RunMetadata, RunOptions, SessionBackend};
use cluster::{MasterInterface, RemoteMaster, RunStepCall};
use parking_lot::Mutex;
use proto::{ConfigProto, CreateSessionRequest, ExtendSessionRequest, GraphDef};
use std::sync::{Arc, OnceLock};
use tensor::{Result, Status, Tensor};
use tokio::runtime::{Handle, Runtime};

/// A session on a master. It is created when the first nodes arrive, as TensorFlow's clients do.
///
/// ```
/// use ferroflow::distributed::create_local_server;
/// use ferroflow::session::MasterSession;
/// use ferroflow::{Graph, Session};
///
/// let server = create_local_server()?;
/// let g = Graph::new();
/// let one = g.constant(1f32);
/// // `Session::on_master` does the same.
/// let backend = MasterSession::new(server.master(), Default::default())?;
/// assert_eq!(Session::with_backend(&g, Box::new(backend)).eval::<f32>(&one)?, 1.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct MasterSession {
    master: Arc<dyn MasterInterface>,
    runtime: Handle,
    config: ConfigProto,
    session: Mutex<Option<Open>>,
}

#[derive(Clone)]
struct Open {
    handle: String,
    graph_version: i64,
}

impl MasterSession {
    /// Makes a session on a master in this process.
    ///
    /// ```
    /// use ferroflow::distributed::create_local_server;
    /// use ferroflow::session::{MasterSession, SessionBackend};
    ///
    /// let server = create_local_server()?;
    /// MasterSession::new(server.master(), Default::default())?.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(master: Arc<dyn MasterInterface>, config: ConfigProto) -> Result<MasterSession> {
        Ok(MasterSession { master, runtime: runtime()?, config, session: Mutex::new(None) })
    }

    /// Makes a session on the server at `grpc://host:port`.
    ///
    /// ```
    /// use ferroflow::distributed::create_local_server;
    /// use ferroflow::session::MasterSession;
    /// use ferroflow::{Graph, Session};
    ///
    /// let server = create_local_server()?;
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let backend = MasterSession::connect(&server.target(), Default::default())?;
    /// assert_eq!(Session::with_backend(&g, Box::new(backend)).eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn connect(target: &str, config: ConfigProto) -> Result<MasterSession> {
        let address = target
            .strip_prefix("grpc://")
            .ok_or_else(|| Status::invalid_argument(format!("the target '{target}' doesn't start with grpc://")))?;
        let runtime = runtime()?;
        let master = Arc::new(RemoteMaster::new(address, runtime.clone())?);
        Ok(MasterSession { master, runtime, config, session: Mutex::new(None) })
    }

    fn open(&self) -> Result<Open> {
        self.session.lock().clone().ok_or_else(|| Status::failed_precondition("the session has no graph yet"))
    }
}

impl SessionBackend for MasterSession {
    fn extend(&self, def: &GraphDef) -> Result<()> {
        let mut session = self.session.lock();
        let opened = match &*session {
            None => {
                let request = CreateSessionRequest {
                    graph_def: Some(def.clone()),
                    config: Some(self.config.clone()),
                    ..Default::default()
                };
                let response = self.runtime.block_on(self.master.create_session(request))?;
                Open { handle: response.session_handle, graph_version: response.graph_version }
            }
            Some(open) => {
                let request = ExtendSessionRequest {
                    session_handle: open.handle.clone(),
                    graph_def: Some(def.clone()),
                    current_graph_version: open.graph_version,
                };
                let response = self.runtime.block_on(self.master.extend_session(request))?;
                Open { handle: open.handle.clone(), graph_version: response.new_graph_version }
            }
        };
        *session = Some(opened);
        Ok(())
    }

    fn run(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        // What is fed needn't be asked for.
        let fed = |fetch: &str| feeds.iter().find(|(name, _)| *name == fetch).map(|(_, value)| value.clone());
        let asked: Vec<&str> = fetches.iter().copied().filter(|fetch| fed(fetch).is_none()).collect();
        if asked.is_empty() && targets.is_empty() && !fetches.is_empty() {
            return Ok((fetches.iter().filter_map(|fetch| fed(fetch)).collect(), None));
        }
        let call = RunStepCall {
            session_handle: self.open()?.handle,
            feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            fetches: own(&asked),
            targets: own(targets),
            options: options.to_proto(),
            partial_run_handle: String::new(),
        };
        let reply = self.runtime.block_on(self.master.run_step(call))?;
        let mut received = reply.tensors.into_iter().map(|(_, tensor)| tensor);
        let values: Option<Vec<Tensor>> = fetches.iter().map(|fetch| fed(fetch).or_else(|| received.next())).collect();
        let values = values.ok_or_else(|| Status::internal("the master returned too few tensors"))?;
        Ok((values, reply.metadata))
    }

    fn partial_run_setup(&self, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<String> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let request = proto::PartialRunSetupRequest {
            session_handle: self.open()?.handle,
            feed: own(feeds),
            fetch: own(fetches),
            target: own(targets),
            ..Default::default()
        };
        self.runtime.block_on(self.master.partial_run_setup(request))
    }

    fn partial_run(&self, handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let call = RunStepCall {
            session_handle: self.open()?.handle,
            feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            fetches: fetches.iter().map(|name| (*name).to_owned()).collect(),
            partial_run_handle: handle.to_owned(),
            ..Default::default()
        };
        let reply = self.runtime.block_on(self.master.run_step(call))?;
        Ok(reply.tensors.into_iter().map(|(_, tensor)| tensor).collect())
    }

    fn close(&self) -> Result<()> {
        let session = self.session.lock().take();
        match session {
            Some(open) => self.runtime.block_on(self.master.close_session(open.handle)),
            None => Ok(()),
        }
    }
}

impl RunOptions {
    /// Returns the options on the wire; none when all are at their defaults.
    fn to_proto(&self) -> Option<proto::RunOptions> {
        if self.timeout.is_none() && !self.full_trace && !self.output_partition_graphs {
            return None;
        }
        let trace = if self.full_trace {
            proto::run_options::TraceLevel::FullTrace
        } else {
            proto::run_options::TraceLevel::NoTrace
        };
        Some(proto::RunOptions {
            timeout_in_ms: self.timeout.map_or(0, |timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX)),
            trace_level: trace as i32,
            output_partition_graphs: self.output_partition_graphs,
            ..Default::default()
        })
    }
}

/// Returns the runtime on which this process's servers and connections run; it is started when first needed.
///
/// ```
/// let answer = ferroflow::session::runtime()?.block_on(async { 42 });
/// assert_eq!(answer, 42);
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
