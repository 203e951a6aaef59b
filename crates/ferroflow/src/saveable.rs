//! [`Saveable`]: state other than variables that is saved in checkpoints, such as the positions of iterators.

use graph::{Edge, Graph, Operation, Output};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{DType, Result};

/// Adds an operation that restores a saved value.
type Restore = Arc<dyn Fn(&Graph, &Output) -> Result<Operation> + Send + Sync>;

/// State that has a value under a name in checkpoints.
#[derive(Clone)]
pub(crate) struct Saveable {
    /// The name in checkpoints.
    pub(crate) name: String,
    /// The operation that it belongs to; it is saved on the same device.
    pub(crate) owner: Edge,
    /// The value.
    pub(crate) value: Edge,
    pub(crate) dtype: DType,
    pub(crate) restore: Restore,
}

/// The state other than variables that a graph's savers save.
#[derive(Default)]
struct Saveables(Mutex<Vec<Saveable>>);

/// Adds to the state that savers created from now on save. A name that was added before is not added again.
pub(crate) fn add(graph: &Graph, saveable: Saveable) {
    let saveables = graph.extension::<Saveables>();
    let mut saveables = saveables.0.lock();
    if !saveables.iter().any(|known| known.name == saveable.name) {
        saveables.push(saveable);
    }
}

/// Returns the state to save besides variables.
pub(crate) fn of(graph: &Graph) -> Vec<Saveable> {
    graph.extension::<Saveables>().0.lock().clone()
}
