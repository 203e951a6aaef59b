//! Runs one partition of a graph.
//!
//! A graph is compiled once to a plan: dense arrays of nodes, edges, pending counts and input slots. A step copies
//! the counts and runs. All bookkeeping of a step is done by one thread at a time, whoever holds its lock: cheap nodes run
//! right there, without atomics or hand-overs, while expensive ones and those that may wait run with the lock released.
//! Whoever finishes a node while the lock is taken leaves the result in a list for the holder, so nobody ever blocks.
//!
//! Invariant: this crate knows no concrete op.

mod frame;
mod function;
mod plan;
mod pool;
mod run;
mod serving;

pub use function::{FunctionLibraryRuntime, SpreadBody, SpreadFunction, SpreadRuntime};
pub use pool::default_runner;
pub use run::Executor;
pub use serving::ServingThread;

/// What threads do while there is nothing to do.
pub use numeric::idle;
/// Sees when threads on which others depend are stuck.
pub use numeric::watchdog;
