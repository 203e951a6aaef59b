//! [`SessionKernels`]: the stateful kernels of a session.

use crate::BoxedKernel;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::Result;

/// The kernels of stateful nodes, which belong to a session rather than to a compiled graph.
pub struct SessionKernels {
    /// By the names of their nodes; `None` after the end of the session.
    by_node: Mutex<Option<HashMap<String, Arc<BoxedKernel>>>>,
}

impl SessionKernels {
    /// Returns an empty set.
    pub fn new() -> SessionKernels {
        SessionKernels { by_node: Mutex::new(Some(HashMap::default())) }
    }

    /// Returns the kernel of a stateful node, and creates it if there is none.
    pub fn find_or_create(&self, node: &str, create: impl FnOnce() -> Result<BoxedKernel>) -> Result<Arc<BoxedKernel>> {
        if let Some(kernel) = self.by_node.lock().as_ref().and_then(|kernels| kernels.get(node)) {
            return Ok(kernel.clone());
        }
        let made = Arc::new(create()?);
        match &mut *self.by_node.lock() {
            Some(kernels) => Ok(kernels.entry(node.to_owned()).or_insert(made).clone()),
            None => Ok(made),
        }
    }

    /// Drops the kernels. The owner of the session must call this at its end, since kernels may refer back to this set: an
    /// iterator holds the functions of its dataset, whose stateful kernels are here.
    pub fn end(&self) {
        let kernels = self.by_node.lock().take();
        drop(kernels);
    }
}

impl Default for SessionKernels {
    fn default() -> SessionKernels {
        SessionKernels::new()
    }
}
