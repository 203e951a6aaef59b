//! Helpers for tests of the whole system: random graphs made from the op definitions, a loop that runs them on an embedded
//! server, one that feeds mutated bytes to everything that reads input from outside, a simulation of whole clusters, and a forwarder
//! of packets that disturbs a network.

pub mod deep_graph;
#[cfg(target_os = "linux")]
pub mod forwarder;
pub mod fuzz;
pub mod mutated_graph;
pub mod outside;
pub mod random_graph;
pub mod simulation;

/// The Rust code of the tutorial, tested as documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
pub struct Tutorial;
