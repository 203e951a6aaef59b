//! [`FunctionRuntime`] runs the functions that the nodes of a step call. The executor implements it.

use super::Step;
use graph::AttrMap;
use std::sync::Arc;
use tensor::{Result, Tensor};

/// Identifies an instantiated function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionHandle(pub u64);

/// Receives a function's results.
pub type FunctionDone = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// The devices on which the body of a function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionPlace {
    /// The caller's device, whatever the body requests.
    Here,
    /// The devices that the body requests. Nodes without a request run on the caller's device.
    AsRequested,
    /// This device, whatever the body requests.
    On(String),
}

/// Runs the functions of a graph's library.
pub trait FunctionRuntime: Send + Sync {
    /// Compiles a function for the given attributes and place, unless that has been done already.
    fn instantiate(&self, name: &str, attrs: &AttrMap, place: &FunctionPlace) -> Result<FunctionHandle>;

    /// Returns a runtime of the same functions with its own, fresh stateful kernels, or `None` if that would make no difference.
    fn fork(&self) -> Option<Arc<dyn FunctionRuntime>> {
        None
    }

    /// Runs a function within a step, possibly to its end on this thread, and calls `done` with the results.
    fn run(&self, handle: FunctionHandle, args: Vec<Tensor>, step: &Arc<Step>, done: FunctionDone);
}
