//! Runs one partition of a graph.
//!
//! A graph is compiled once to a plan: dense arrays of nodes, edges, pending counts and input slots. A step copies
//! the counts and runs. One thread at a time, the one that holds the step's lock, does all bookkeeping: it runs cheap nodes
//! itself, without atomics or hand-overs, and releases the lock for expensive nodes and those that may wait. A thread that
//! finishes a node while another holds the lock leaves the result in a list for the holder, so no thread ever blocks.
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

/// The time and the threads that steps use.
pub use numeric::environment;
/// What idle threads do.
pub use numeric::idle;
/// Detects stuck threads that others depend on.
pub use numeric::watchdog;
