//! [`WorkerSession`]: this worker's state for one session of a master.

use super::graph_mgr::GraphMgr;
use super::step_state::Transfers;
use crate::device::LocalDevice;
use crate::shares::Place;
use kernel::SessionState;
use std::sync::Arc;

/// The state for one session.
pub(crate) struct WorkerSession {
    /// This task's devices under their names in the session's cluster.
    pub devices: Vec<LocalDevice>,
    /// Its account and kept tensors.
    pub state: Arc<SessionState>,
    /// The registered partitions and their stateful kernels.
    pub graphs: GraphMgr,
    /// The master that opened the session, and its incarnation.
    pub master: (String, i64),
    /// The transfers of tensors from other tasks.
    pub transfers: Arc<dyn Transfers>,
    /// Lasts as long as the session.
    pub alive: Arc<()>,
    /// Its place among the sessions of its client.
    pub _place: Option<Place>,
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        self.graphs.end();
        self.state.end();
    }
}
