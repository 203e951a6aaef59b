//! Sessions of disconnected clients: which connections have used a session, and which sessions without a connection are ended.
//!
//! A closed connection doesn't mean that the client has ended: TensorFlow's client reconnects when it next needs to, and closes a
//! connection that it hasn't used for half an hour. So such a session is kept, unless the server has a time limit for them, or
//! there are very many.

use crate::access::{Principal, Role};
use crate::client::{Caller, caller};
use crate::clock::now;
use crate::connections::Connections;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The most sessions without a connection; beyond that, the least recently used ones are ended.
pub(super) const ORPHANS_MAX: usize = 1024;

/// The most connections that a session remembers.
const CONNECTIONS_PER_SESSION_MAX: usize = 64;

/// When a session was used, and over which connections.
pub(super) struct Usage {
    num_calls: AtomicUsize,
    last_connection: AtomicU64,
    /// The owner of the session, if it is known.
    owner: Option<Arc<Principal>>,
    state: Mutex<UsageState>,
}

struct UsageState {
    connections: Vec<u64>,
    last_used: Instant,
}

impl Usage {
    /// Returns the record of a session that the current call opens.
    pub fn begin() -> Usage {
        let Caller { connection, principal: owner, .. } = caller();
        Usage {
            owner,
            num_calls: AtomicUsize::new(0),
            last_connection: AtomicU64::new(connection),
            state: Mutex::new(UsageState { connections: vec![connection], last_used: now() }),
        }
    }

    /// Returns whether the current call may use the session: only its owner and admins may, if callers are known.
    pub fn may_be_used(&self) -> bool {
        let Some(owner) = &self.owner else { return true };
        caller().is_anyone(|principal| principal.role == Role::Admin || *principal == **owner)
    }

    /// Records that a call begins.
    pub fn enter(&self) {
        self.num_calls.fetch_add(1, Ordering::AcqRel);
        let connection = caller().connection;
        if self.last_connection.swap(connection, Ordering::AcqRel) == connection {
            return;
        }
        let known = &mut self.state.lock().connections;
        if !known.contains(&connection) {
            if known.len() >= CONNECTIONS_PER_SESSION_MAX {
                known.remove(0);
            }
            known.push(connection);
        }
    }

    /// Records that a call has ended.
    pub fn leave(&self) {
        self.state.lock().last_used = now();
        self.num_calls.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns when the session was last used, if no call is pending and all connections that used it are closed.
    pub fn orphaned_since(&self, connections: &Connections) -> Option<Instant> {
        if self.num_calls.load(Ordering::Acquire) > 0 {
            return None;
        }
        let state = self.state.lock();
        (!connections.any_is_open(&state.connections)).then_some(state.last_used)
    }
}

/// The result of a check for sessions without a connection.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// Those to end, with the time since their last use.
    pub ended: HashMap<String, Duration>,
    /// The time of the next check.
    pub next: Option<Instant>,
}

/// Decides which sessions to end: those unused for longer than `keep`, and the oldest if there are more than `max`.
pub(super) fn judge(mut orphans: Vec<(String, Instant)>, now: Instant, keep: Option<Duration>, max: usize) -> Verdict {
    orphans.sort_by_key(|(_, last_used)| *last_used);
    let excess = orphans.len().saturating_sub(max);
    let mut verdict = Verdict { ended: HashMap::new(), next: None };
    for (index, (handle, last_used)) in orphans.into_iter().enumerate() {
        let idle = now.saturating_duration_since(last_used);
        if index < excess || keep.is_some_and(|keep| idle >= keep) {
            verdict.ended.insert(handle, idle);
        } else if verdict.next.is_none() {
            verdict.next = keep.and_then(|keep| last_used.checked_add(keep));
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Caller, Client, called_by};
    use std::sync::Arc;

    async fn called_over<F: Future>(connection: u64, call: F) -> F::Output {
        called_by(Caller { connection, client: Client::Process, principal: None, presented: None }, call).await
    }

    #[test]
    fn the_oldest_of_too_many_and_those_kept_too_long_are_ended() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let orphans = || vec![("new".to_owned(), at(9)), ("old".to_owned(), at(1)), ("middle".to_owned(), at(5))];
        assert_eq!(judge(orphans(), at(10), None, 3), Verdict::default());
        let of_two = judge(orphans(), at(10), None, 2);
        assert_eq!(of_two.ended.into_iter().collect::<Vec<_>>(), [("old".to_owned(), Duration::from_secs(9))]);
        let after_five = judge(orphans(), at(10), Some(Duration::from_secs(5)), 3);
        assert_eq!(after_five.next, Some(at(14)));
        let mut ended: Vec<String> = after_five.ended.into_keys().collect();
        ended.sort();
        assert_eq!(ended, ["middle", "old"]);
    }

    #[tokio::test]
    async fn a_session_is_left_alone_while_any_of_its_clients_is_connected() {
        let connections = Arc::new(Connections::default());
        let (first, second) = (connections.open(), connections.open());
        let usage = called_over(first.id(), async { Usage::begin() }).await;
        called_over(second.id(), async { usage.enter() }).await;
        drop(second);
        assert_eq!(usage.orphaned_since(&connections), None, "a call is under way");
        usage.leave();
        assert_eq!(usage.orphaned_since(&connections), None, "the first connection is open");
        drop(first);
        assert!(usage.orphaned_since(&connections).is_some());
        // A client that reconnects gets its session back.
        let third = connections.open();
        called_over(third.id(), async { usage.enter() }).await;
        usage.leave();
        assert_eq!(usage.orphaned_since(&connections), None);
        // A client in this process has no connection that could close.
        let own = Usage::begin();
        assert_eq!(own.orphaned_since(&connections), None);
    }
}
