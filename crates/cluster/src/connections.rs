//! [`Connections`]: which connections of clients a server has open, so that its master knows whose sessions nobody can use.

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
    /// Told when a connection ends, or the master does.
    pub changed: Notify,
}

/// A connection that is open until this is dropped.
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

    /// Returns whether one of these is open.
    pub fn any_is_open(&self, ids: &[u64]) -> bool {
        let open = self.open.lock();
        ids.iter().any(|id| *id == 0 || open.contains(id))
    }
}

impl OpenConnection {
    /// Returns the number by which calls over it are known.
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
