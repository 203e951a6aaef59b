//! Accepts streams of tasks on this machine: which users are served, how many connections each gets, and what happens when
//! descriptors run out.

use super::socket::Socket;
use super::{StreamHub, abstract_address};
use crate::clock::sleep;
use crate::log_limit::LogLimit;
use crate::threads;
use foldhash::HashMap;
use futures_util::FutureExt;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tracing::{debug, warn};

/// The most peers on this machine with their own thread; the runtime serves those that connect later.
pub(super) const THREADS_MAX: usize = 64;

/// The most streams of one user: each task on a machine opens one or two to each other task.
const CONNECTIONS_PER_USER_MAX: u64 = 1024;

/// The part of the process's descriptors that one user may take.
const DESCRIPTORS_SHARE: u64 = 4;

/// The streams that every user gets in any case.
const CONNECTIONS_PER_USER_MIN: u64 = 16;

/// The first and the longest pause before another attempt to accept.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The interval at which a line says that connections can't be accepted.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The accepted connections.
#[derive(Default)]
pub(super) struct Admission {
    by_user: Mutex<HashMap<u32, u64>>,
    /// The number of threads that serve one peer each.
    pub num_threads: AtomicUsize,
}

impl Admission {
    /// Counts a connection of a user; `None` if the user has its share.
    fn admit(&self, hub: &Arc<StreamHub>, user: u32) -> Option<UserPlace> {
        let mut by_user = self.by_user.lock();
        let count = by_user.entry(user).or_insert(0);
        if *count >= hub.connections_per_user_max() {
            return None;
        }
        *count += 1;
        Some(UserPlace { hub: hub.clone(), user })
    }
}

/// Accepts connections.
pub(crate) trait Accept: Send {
    /// Returns the next one.
    fn next(&mut self) -> impl Future<Output = io::Result<UnixStream>> + Send;
}

impl Accept for UnixListener {
    async fn next(&mut self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// A connection's place among those of its user.
struct UserPlace {
    hub: Arc<StreamHub>,
    user: u32,
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut by_user = self.hub.admission.by_user.lock();
        if let Some(count) = by_user.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                by_user.remove(&self.user);
            }
        }
    }
}

/// A place among the threads.
struct ThreadPlace(Arc<StreamHub>);

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.admission.num_threads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl StreamHub {
    /// Opens the Unix socket, if the task's offer has one.
    pub fn bind(&self) -> Result<Option<UnixListener>> {
        let offer = &self.offer;
        if offer.unix.is_empty() {
            return Ok(None);
        }
        let unusable = |error: io::Error| {
            Status::internal(format!("the socket '{}' for tasks on this machine can't be opened: {error}", offer.unix))
        };
        let address = abstract_address(&offer.unix).map_err(unusable)?;
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        // Within the runtime, because a socket belongs to one.
        let _entered = self.spawner.runtime().map(Handle::enter);
        UnixListener::from_std(listener).map_err(unusable).map(Some)
    }

    /// Accepts streams on this machine until the task is dropped.
    pub async fn listen(self: Arc<Self>, mut listener: impl Accept) {
        static LINE: LogLimit = LogLimit::new(LINE_INTERVAL);
        let mut backoff = BACKOFF_MIN;
        loop {
            match listener.next().await {
                Ok(stream) => {
                    backoff = BACKOFF_MIN;
                    match catch_unwind(AssertUnwindSafe(|| self.take_in(stream))) {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!("can't take a stream: {error}"),
                        // The panic message has been printed; others are still served.
                        Err(_) => warn!("a stream was not taken because of a panic"),
                    }
                }
                Err(error) => {
                    if let Some(left_out) = LINE.allow() {
                        warn!(
                            "{} can't accept a stream: {error}. It tries again; if descriptors have run out, raise `ulimit -n` \
                             ({left_out} such lines were left out)",
                            self.task
                        );
                    }
                    sleep(backoff).await;
                    backoff = (2 * backoff).min(BACKOFF_MAX);
                }
            }
        }
    }

    fn connections_per_user_max(&self) -> u64 {
        self.settings.limits.connections_per_user_max.unwrap_or_else(|| {
            let share = getrlimit(Resource::Nofile).current.map_or(u64::MAX, |limit| limit / DESCRIPTORS_SHARE);
            share.clamp(CONNECTIONS_PER_USER_MIN, CONNECTIONS_PER_USER_MAX)
        })
    }

    /// Serves a connection if its user may be served: other users' processes get neither a byte nor a descriptor.
    fn take_in(self: &Arc<Self>, stream: UnixStream) -> io::Result<()> {
        static STRANGER: LogLimit = LogLimit::new(LINE_INTERVAL);
        static CROWD: LogLimit = LogLimit::new(LINE_INTERVAL);
        let user = stream.peer_cred()?.uid();
        if !self.settings.peers.allows(user) {
            if let Some(left_out) = STRANGER.allow() {
                warn!(
                    "{} refused a stream of user {user}, whom it does not serve ({left_out} such lines were left out)",
                    self.task
                );
            }
            return Ok(());
        }
        let Some(place) = self.admission.admit(self, user) else {
            if let Some(left_out) = CROWD.allow() {
                warn!(
                    "{} refused a stream of user {user}, who has {} already ({left_out} such lines were left out)",
                    self.task,
                    self.connections_per_user_max()
                );
            }
            return Ok(());
        };
        self.serve(stream.into_std()?, place)
    }

    /// Serves a stream from a peer on this machine, on its own thread as long as there are few.
    ///
    /// A peer that has made a request usually waits for the answer. The kernel sees only that it woke this thread, so it runs the
    /// thread on the core where the peer just was. With one thread for all peers, a request would wait behind another peer's
    /// computation while the core of the first peer is idle.
    fn serve(self: &Arc<Self>, stream: std::os::unix::net::UnixStream, user: UserPlace) -> io::Result<()> {
        let is_within = |count: usize| (count < THREADS_MAX).then_some(count + 1);
        let uid = user.user;
        let user = Arc::new(user);
        if self.admission.num_threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_within).is_ok() {
            let place = ThreadPlace(self.clone());
            let socket = Socket::blocking(stream.try_clone()?)?.with_peer_user(uid);
            let user = user.clone();
            let started = threads::spawn("ferroflow-stream", move || {
                let _user = user;
                let _runtime = place.0.spawner.runtime().map(Handle::enter);
                // Nothing here waits for the runtime, so the thread ends with the connection.
                let _ = place.0.clone().accept(socket).now_or_never();
            });
            match started {
                Ok(()) => return Ok(()),
                Err(error) => debug!("no thread for a stream: {error}"),
            }
        }
        let (hub, socket) = (self.clone(), Socket::unix(stream)?.with_peer_user(uid));
        self.spawner.spawn(async move {
            hub.accept(socket).await;
            drop(user);
        });
        Ok(())
    }
}
