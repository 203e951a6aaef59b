//! Ends the sessions of restarted masters, when such a master opens its next one.
//!
//! A request to open a session says which task its master is, and its incarnation. Anybody can claim that, so it only prompts a
//! check: the task itself is asked, at its address in the session's cluster, and only sessions of an incarnation that it no
//! longer has are ended. If it doesn't answer, they stay.

use super::Worker;
use super::session::WorkerSession;
use crate::clock::timeout;
use foldhash::{HashMap, HashSet};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::debug;

/// The sessions of a worker by their handles.
pub(super) type Sessions = Arc<RwLock<HashMap<String, Arc<WorkerSession>>>>;

/// How long a master may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks for sessions of restarted masters, one master at a time, so that a client that opens many sessions can't cause many
/// calls.
#[derive(Clone, Default)]
pub(super) struct Masters {
    is_asking: Arc<AtomicBool>,
}

impl WorkerSession {
    /// Returns the address of the session's master in the session's cluster, which distinguishes masters of the same name.
    fn master_address(&self) -> Option<&str> {
        self.transfers.address(&self.master.0)
    }

    fn has_same_master_as(&self, other: &WorkerSession) -> bool {
        self.master.0 == other.master.0 && self.master_address() == other.master_address()
    }
}

impl Worker {
    /// Ends the earlier sessions of a new session's master, once it has confirmed that it was restarted.
    pub(super) fn look_for_sessions_of_before(&self, opened: &Arc<WorkerSession>) {
        let is_of_before =
            |known: &WorkerSession| known.master.1 != opened.master.1 && known.has_same_master_as(opened);
        if opened.master.0.is_empty() || !self.sessions.read().values().any(|known| is_of_before(known)) {
            return;
        }
        let Ok(master) = opened.transfers.worker(&opened.master.0) else { return };
        if self.masters.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (opened, sessions, masters) = (opened.clone(), self.sessions.clone(), self.masters.clone());
        let sessions_ended = self.sessions_ended();
        self.spawner.spawn(async move {
            let answer = timeout(ANSWER_TIMEOUT, master.get_status()).await;
            masters.is_asking.store(false, Ordering::Release);
            let Ok(Ok(devices)) = answer else {
                debug!("{} does not say whether it was restarted", opened.master.0);
                return;
            };
            let current: HashSet<i64> = devices.iter().map(|device| device.incarnation as i64).collect();
            // They end outside the lock: dropping their kernels and tensors may take a while.
            let ended: Vec<Arc<WorkerSession>> = {
                let mut sessions = sessions.write();
                let is_over =
                    |known: &WorkerSession| known.has_same_master_as(&opened) && !current.contains(&known.master.1);
                sessions.extract_if(|_, known| is_over(known)).map(|(_, session)| session).collect()
            };
            drop(ended);
            sessions_ended.tidy_up();
        });
    }
}
