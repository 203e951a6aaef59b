//! The passes that a master runs over a graph: graph in, graphs out.
//!
//! In the order in which a run is compiled: [`place()`] assigns a device to every node; [`prune()`] keeps the nodes that a run
//! needs, and turns feeds into `_Arg` and fetches into `_Retval` nodes; [`optimize()`] simplifies the graph;
//! [`settle_terminals`] decides where `_Arg` and `_Retval` nodes run, and their keys for feeds and fetches; and
//! [`partition()`] splits the graph at device boundaries.

pub mod optimize;
pub mod partition;
pub mod place;
pub mod prune;
pub mod terminals;

pub use optimize::{
    CONSTANT_BYTES_MAX, ElementwiseStep, Fusion, OptimizeOptions, OptimizeReport, OptimizeSwitches, optimize,
};
pub use partition::{PartitionOptions, by_device, by_task, partition};
pub use place::{Placement, PlacementOptions, place, placement_log};
pub use prune::{FeedSlot, RunSpec, prune};
pub use terminals::settle_terminals;
