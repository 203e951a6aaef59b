//! [`Master`]: the master service of one server. It keeps the sessions of clients and turns their steps into partitions
//! on the cluster's workers.
//!
//! Invariant: nothing here names an op.

mod callable;
mod collective_key;
mod compiled_run;
mod cost_graph;
mod local;
mod options;
mod orphans;
mod partial_run;
mod prepared;
mod repeated;
mod session;
mod step;
mod survey;
mod tasks;

pub(crate) use survey::WeakMaster;

use crate::ClusterSpec;
use crate::client::caller;
use crate::clock::{now, sleep_until};
use crate::connections::Connections;
use crate::device::task_name;
use crate::interface::*;
use crate::log_limit::LogLimit;
use crate::metrics::SessionProgress;
use crate::quota::Quotas;
use crate::random::RandomIds;
use crate::shares::Shares;
use crate::spawner::Spawner;
use crate::tokens;
use crate::transport::WorkerCache;
use crate::worker::StepSequences;
use compiled_run::RunNamesRef;
use foldhash::{HashMap, HashMapExt};
use futures_util::future::join_all;
use kernel::OpRegistry;
use orphans::{ORPHANS_MAX, judge};
use parking_lot::RwLock;
use proto::ConfigProto;
use session::MasterSession;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tasks::SessionTasks;
use tensor::{Result, Status};
use tracing::info;

/// The master service of one server.
#[derive(Clone)]
pub(crate) struct Master {
    shared: Arc<Shared>,
}

struct Shared {
    workers: Arc<WorkerCache>,
    registry: &'static OpRegistry,
    ids: Arc<RandomIds>,
    spawner: Spawner,
    /// The default settings of sessions.
    default_config: ConfigProto,
    incarnation: u64,
    sessions: RwLock<HashMap<String, Arc<MasterSession>>>,
    /// The number of sessions that each client may have.
    places: Arc<Shares>,
    /// The clients' quotas.
    quotas: Arc<Quotas>,
    /// The number of sessions opened so far, by which log lines number them.
    num_opened: AtomicU64,
    connections: Arc<Connections>,
    /// How long an unused session without a connection is kept.
    session_gc: Option<Duration>,
    /// The step ids of collective graphs.
    step_sequences: Arc<StepSequences>,
}

/// A session while a call uses it.
struct SessionInUse(Arc<MasterSession>);

impl SessionInUse {
    fn new(session: Arc<MasterSession>) -> SessionInUse {
        session.usage.enter();
        SessionInUse(session)
    }
}

impl Deref for SessionInUse {
    type Target = Arc<MasterSession>;

    fn deref(&self) -> &Arc<MasterSession> {
        &self.0
    }
}

impl Drop for SessionInUse {
    fn drop(&mut self) {
        self.0.usage.leave();
    }
}

/// The default of the most open sessions.
pub(crate) const SESSIONS_MAX: usize = 1 << 14;

/// Clients can open many sessions and disconnect.
static ENDED_LINES: LogLimit = LogLimit::several(20, Duration::from_secs(10));

/// A client may have this many times as many sessions as are free: alone, seven eighths of them.
const SESSIONS_SHARE_FACTOR: usize = 7;

impl Master {
    /// Returns the master of a server.
    pub fn new(
        workers: Arc<WorkerCache>,
        registry: &'static OpRegistry,
        ids: Arc<RandomIds>,
        spawner: Spawner,
        default_config: ConfigProto,
        incarnation: u64,
        session_gc: Option<Duration>,
        max_sessions: usize,
        quotas: Arc<Quotas>,
        step_sequences: Arc<StepSequences>,
    ) -> Master {
        let sessions = RwLock::new(HashMap::new());
        let connections = Arc::new(Connections::default());
        let shared = Arc::new(Shared {
            workers,
            registry,
            ids,
            spawner,
            default_config,
            incarnation,
            sessions,
            places: Shares::new(max_sessions, SESSIONS_SHARE_FACTOR),
            quotas,
            num_opened: AtomicU64::new(0),
            connections,
            session_gc,
            step_sequences,
        });
        shared.spawner.spawn(end_orphans(Arc::downgrade(&shared), shared.connections.clone()));
        Master { shared }
    }

    /// Returns the record of client connections.
    pub fn connections(&self) -> Arc<Connections> {
        self.shared.connections.clone()
    }

    /// Returns the number of sessions.
    pub fn num_sessions(&self) -> usize {
        self.shared.sessions.read().len()
    }

    /// Ends all sessions, because the server is stopping.
    pub async fn stop(&self) {
        self.shared.close_all().await;
    }
}

/// Whenever a connection closes, ends the sessions without a connection that are not to be kept.
async fn end_orphans(master: Weak<Shared>, connections: Arc<Connections>) {
    while let Some(shared) = master.upgrade() {
        let next = shared.end_orphans().await;
        drop(shared);
        match next {
            Some(next) => tokio::select! {
                biased;
                () = sleep_until(next) => {}
                () = connections.changed.notified() => {}
            },
            None => connections.changed.notified().await,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Orphans are no longer checked for.
        self.connections.changed.notify_one();
    }
}

impl Shared {
    fn session(&self, handle: &str) -> Result<SessionInUse> {
        let sessions = self.sessions.read();
        // Recorded before the lock is released, so that a session that is being looked up doesn't count as an orphan.
        let session = sessions.get(handle).filter(|session| session.usage.may_be_used());
        session.cloned().map(SessionInUse::new).ok_or_else(|| not_found(handle))
    }

    /// Ends the sessions without a connection that are not to be kept; returns the time of the next check.
    async fn end_orphans(&self) -> Option<Instant> {
        let mut ended = Vec::new();
        let next = {
            let mut sessions = self.sessions.write();
            let orphans = sessions.iter().filter_map(|(handle, session)| {
                Some((handle.clone(), session.usage.orphaned_since(&self.connections)?))
            });
            let verdict = judge(orphans.collect(), now(), self.session_gc, ORPHANS_MAX);
            for (handle, idle) in verdict.ended {
                if let Some(session) = sessions.remove(&handle) {
                    if let Some(count) = ENDED_LINES.allow() {
                        info!(
                            "{} is ended: its client's connection is gone, and it was not used for {} s{}",
                            session.tasks.label(),
                            idle.as_secs(),
                            LogLimit::left_out(count)
                        );
                    }
                    ended.push(session);
                }
            }
            verdict.next
        };
        join_all(ended.iter().map(|session| session.close())).await;
        next
    }

    async fn create_session(&self, request: proto::CreateSessionRequest) -> Result<proto::CreateSessionResponse> {
        let mut config = request.config.unwrap_or_else(|| self.default_config.clone());
        // A client in this process may have sent a token for servers that need one.
        drop(tokens::take(&mut config));
        options::note_ignored(&config);
        // Held from here on, so that sessions being created count.
        let caller = caller();
        let client = caller.client;
        let graph_def = request.graph_def.unwrap_or_default();
        let share = self.quotas.open_session(&caller, graph_def.node.len())?;
        let place = self.places.take(client).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{client} has as many sessions on this server as it may have: others need some of the {}, too. \
                 Close sessions that are not used any more.",
                self.places.max()
            ))
        })?;
        let handle = self.ids.next_handle();
        let own_cluster = config.cluster_def.clone().filter(|cluster| !cluster.job.is_empty());
        let workers = match &own_cluster {
            None => self.workers.clone(),
            Some(def) => {
                let cluster = ClusterSpec::from_proto(def)?;
                let own_task = self.task_in(&cluster, &request.target)?;
                Arc::new(self.workers.for_cluster(cluster, own_task))
            }
        };
        let number = self.num_opened.fetch_add(1, Ordering::Relaxed) + 1;
        let label = format!("session {number}");
        let progress = SessionProgress::new(number, client.to_string(), self.workers.metrics());
        let tasks =
            SessionTasks::new(workers, &handle, label, &config, own_cluster, self.incarnation, self.spawner.clone())?;
        let session = Arc::new(MasterSession::new(
            handle.clone(),
            config,
            tasks,
            &graph_def,
            self.registry,
            self.ids.clone(),
            self.spawner.clone(),
            place,
            share,
            self.step_sequences.clone(),
            progress,
        )?);
        if let Err(status) = session.contact_named_tasks().await {
            session.close().await;
            return Err(status);
        }
        self.sessions.write().insert(handle.clone(), session);
        Ok(proto::CreateSessionResponse { session_handle: handle, graph_version: 0 })
    }

    /// Determines which task of a session's own cluster this server is: the one at the address that the client used.
    fn task_in(&self, cluster: &ClusterSpec, target: &str) -> Result<String> {
        let address = target.rsplit_once("://").map_or(target, |(_, address)| address);
        let own_address = self.workers.address(self.workers.own_task());
        let found = cluster.tasks().find(|(_, _, known)| *known == address || Some(*known) == own_address);
        found.map(|(job, index, _)| task_name(job, index)).ok_or_else(|| {
            Status::invalid_argument(format!(
                "ConfigProto.cluster_def has no task at '{address}', which is this server"
            ))
        })
    }

    async fn run_step(&self, call: RunStepCall) -> Result<RunStepReply> {
        let session = self.session(&call.session_handle)?;
        if !call.partial_run_handle.is_empty() {
            return session.run_part(call).await;
        }
        let options = call.options.as_ref();
        let deadline = session.deadline(options.map_or(0, |options| options.timeout_in_ms));
        if let Some(options) = options {
            options::note_ignored_in_step(options);
        }
        let names = RunNamesRef {
            feeds: call.feeds.iter().map(|(name, _)| name.as_str()),
            fetches: &call.fetches,
            targets: &call.targets,
        };
        let entry = session.unless_over(session.run_for(names, deadline), deadline).await?;
        let run = entry.run.get().ok_or_else(|| Status::internal("a run was never compiled"))?;
        let feeds = call.feeds.into_iter().map(|(_, tensor)| tensor).collect();
        let result = session.run_compiled(run, feeds, options, deadline).await?;
        Ok(RunStepReply {
            tensors: call.fetches.into_iter().zip(result.fetches).collect(),
            metadata: Some(result.metadata),
        })
    }

    async fn close_all(&self) {
        let sessions = std::mem::take(&mut *self.sessions.write());
        join_all(sessions.values().map(|session| session.close())).await;
    }

    async fn list_devices(&self, session_handle: &str) -> Result<proto::ListDevicesResponse> {
        let local_device = match session_handle {
            "" => {
                // There is no session, so no task is told about one.
                let mut devices = Vec::new();
                for task in self.workers.tasks() {
                    devices.extend(self.workers.get(&task)?.get_status().await?);
                }
                devices
            }
            handle => {
                let session = self.session(handle)?;
                session.tasks.contact_all(session.deadline(0)).await?
            }
        };
        Ok(proto::ListDevicesResponse { local_device, remote_device: Vec::new() })
    }

    async fn reset(&self, request: proto::ResetRequest) -> Result<()> {
        let config = ConfigProto { device_filters: request.device_filters, ..self.default_config.clone() };
        let handle = self.ids.next_handle();
        let tasks = SessionTasks::new(
            self.workers.clone(),
            &handle,
            "a reset".to_owned(),
            &config,
            None,
            self.incarnation,
            self.spawner.clone(),
        )?;
        let names: Vec<String> = tasks.names().map(str::to_owned).collect();
        let cleanups = names.iter().map(|name| {
            let (name, containers) = (name.clone(), request.container.clone());
            let worker = self.workers.get(&name);
            async move { worker?.cleanup_all(containers).await.map_err(|status| session::from_task(&name, status)) }
        });
        let outcomes: Result<Vec<()>> = join_all(cleanups).await.into_iter().collect();
        self.close_all().await;
        outcomes.map(drop)
    }
}

fn not_found(handle: &str) -> Status {
    Status::aborted(format!("Session {handle} is not found. Possibly, this master has restarted."))
}

impl MasterInterface for Master {
    fn create_session(&self, request: proto::CreateSessionRequest) -> Answer<proto::CreateSessionResponse> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.create_session(request).await })
    }

    fn extend_session(&self, request: proto::ExtendSessionRequest) -> Answer<proto::ExtendSessionResponse> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let session = shared.session(&request.session_handle)?;
            let def = request.graph_def.unwrap_or_default();
            let new_graph_version = session.extend(&def, request.current_graph_version)?;
            Ok(proto::ExtendSessionResponse { new_graph_version })
        })
    }

    fn partial_run_setup(&self, request: proto::PartialRunSetupRequest) -> Answer<String> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let session = shared.session(&request.session_handle)?;
            session.unless_over(session.set_up_partial_run(request), session.deadline(0)).await
        })
    }

    fn run_step(&self, call: RunStepCall) -> Answer<RunStepReply> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.run_step(call).await })
    }

    fn close_session(&self, session_handle: String) -> Answer<()> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let session = {
                let mut sessions = shared.sessions.write();
                let is_own = sessions.get(&session_handle).is_some_and(|session| session.usage.may_be_used());
                if is_own { sessions.remove(&session_handle) } else { None }
            };
            session.ok_or_else(|| not_found(&session_handle))?.close().await;
            Ok(())
        })
    }

    fn list_devices(&self, session_handle: String) -> Answer<proto::ListDevicesResponse> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.list_devices(&session_handle).await })
    }

    fn reset(&self, request: proto::ResetRequest) -> Answer<()> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.reset(request).await })
    }

    fn make_callable(&self, request: proto::MakeCallableRequest) -> Answer<i64> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let session = shared.session(&request.session_handle)?;
            let options = request.options.unwrap_or_default();
            session.unless_over(session.make_callable(options), session.deadline(0)).await
        })
    }

    fn run_callable(&self, call: RunCallableCall) -> Answer<RunCallableReply> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.session(&call.session_handle)?.run_callable(call).await })
    }

    fn release_callable(&self, request: proto::ReleaseCallableRequest) -> Answer<()> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.session(&request.session_handle)?.release_callable(request.handle) })
    }

    fn local_session(&self, session_handle: &str) -> Option<Arc<dyn LocalSession>> {
        let session = self.shared.session(session_handle).ok()?;
        session.tasks.is_alone().then(|| session.0.clone() as Arc<dyn LocalSession>)
    }
}
