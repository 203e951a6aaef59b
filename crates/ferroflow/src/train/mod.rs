//! Training: optimizers, learning rate decay, moving averages, savers, supervised sessions.
//!
//! The graphs that this module builds are TensorFlow's, node by node, so that Rust and Python workers can train one model
//! together and find each other's variables.

mod all_reduce;
mod checkpoint_listener;
mod clip;
pub(crate) mod constraint;
mod coordinator;
mod declaration;
mod device_setter;
mod directory_lock;
pub(crate) mod expression;
pub(crate) mod fill;
mod gradient_reduction;
mod hooks;
mod initialize;
mod learning_rate_decay;
pub mod meta_graph;
mod monitored_session;
mod moving_averages;
mod optimizer;
mod optimizers;
mod queue_runner;
mod readiness;
mod saver;
mod scaffold;
mod session_manager;
mod session_run_hook;
mod shard_transfer;
pub mod slot;
mod supervisor;
mod sync_replicas;
mod sync_replicas_hook;
mod write_graph;

pub(crate) use all_reduce::mirror;
pub use all_reduce::{AllReduceHook, AllReduceOptimizer};
pub use checkpoint_listener::CheckpointSaverListener;
pub use clip::*;
pub use coordinator::Coordinator;
pub use device_setter::*;
pub use expression::Number;
pub(crate) use gradient_reduction::GradientReduction;
pub use hooks::*;
pub use initialize::*;
pub use learning_rate_decay::*;
pub use monitored_session::{MonitoredSession, MonitoredSessionBuilder};
pub use moving_averages::ExponentialMovingAverage;
pub use optimizer::{GateGradients, GradientAndVariable, GradientOptions, Optimizer, OptimizerState};
pub use optimizers::*;
pub use queue_runner::{Queue, QueueRunner, add_queue_runner, start_queue_runners};
pub use saver::{Saver, SaverOptions, latest_checkpoint};
pub use scaffold::Scaffold;
pub(crate) use scaffold::default_local_init;
pub use session_manager::{InitFn, Initialization, RestoreFrom, SessionManager};
pub use session_run_hook::{RunArgs, RunContext, RunValues, SessionRunHook};
pub use supervisor::{Supervisor, SupervisorBuilder};
pub use sync_replicas::SyncReplicasOptimizer;
pub use sync_replicas_hook::SyncReplicasHook;
pub use write_graph::write_graph;
