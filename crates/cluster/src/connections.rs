//! [`Connections`]: a server's open client connections, so that its master knows which sessions can't be used any more.

use foldhash::HashSet;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The connections of a server that are open.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<HashSet<u64>>,
    last_id: AtomicU64,
    /// Notified when a connection closes, or the master is dropped.
    pub changed: Notify,
}

/// A connection that counts as open until this is dropped.
pub(crate) struct OpenConnection {
    id: u64,
    connections: Arc<Connections>,
}

impl Connections {
    /// Counts a connection as open.
    pub fn open(self: &Arc<Self>) -> OpenConnection {
        // 0 is this process.
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.lock().insert(id);
        OpenConnection { id, connections: self.clone() }
    }

    /// Returns whether one of these connections is open.
    pub fn any_is_open(&self, ids: &[u64]) -> bool {
        let open = self.open.lock();
        ids.iter().any(|id| *id == 0 || open.contains(id))
    }
}

impl OpenConnection {
    /// Returns the connection's number in the origin of its calls.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.id);
        self.connections.changed.notify_one();
    }
}
