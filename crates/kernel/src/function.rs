//! How kernels call functions; the executor implements it.

use crate::Step;
use graph::AttrMap;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// Names an instantiated function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionHandle(pub u64);

/// Is given a function's results.
pub type FunctionDone = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// Runs the functions of a graph's library.
pub trait FunctionRuntime: Send + Sync {
    /// Compiles a function for given attributes, once.
    fn instantiate(&self, name: &str, attrs: &AttrMap) -> Result<FunctionHandle>;

    /// Runs a function within a step, perhaps to its end on this thread, and gives `done` the results.
    fn run(&self, handle: FunctionHandle, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone);
}
