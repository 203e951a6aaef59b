//! [`Saveable`]: what is saved in checkpoints besides variables, such as the positions of iterators.

use graph::{Edge, Graph, Operation, Output};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{DType, Result};

/// Adds an operation that takes a value back which was saved.
type Restore = Arc<dyn Fn(&Graph, &Output) -> Result<Operation> + Send + Sync>;

/// Something that has a value under a name in checkpoints.
#[derive(Clone)]
pub(crate) struct Saveable {
    /// The name in checkpoints.
    pub(crate) name: String,
    /// What it belongs to, and is saved where that is.
    pub(crate) owner: Edge,
    /// The value.
    pub(crate) value: Edge,
    pub(crate) dtype: DType,
    pub(crate) restore: Restore,
}

/// What savers of a graph save besides variables.
#[derive(Default)]
struct Saveables(Mutex<Vec<Saveable>>);

/// Has something saved by the savers that are made from now on. Once is enough: a name that is there is not added again.
pub(crate) fn add(graph: &Graph, saveable: Saveable) {
    let saveables = graph.extension::<Saveables>();
    let mut saveables = saveables.0.lock();
    if !saveables.iter().any(|known| known.name == saveable.name) {
        saveables.push(saveable);
    }
}

/// Returns what is saved besides variables.
pub(crate) fn of(graph: &Graph) -> Vec<Saveable> {
    graph.extension::<Saveables>().0.lock().clone()
}
