//! What tests of the whole need: graphs made at random from the op definitions, a loop that runs them on an embedded server, one that
//! gives changed bytes to everything that takes some from outside, and a simulation of whole clusters.

pub mod deep_graph;
pub mod fuzz;
pub mod mutated_graph;
pub mod outside;
pub mod random_graph;
pub mod simulation;

/// The Rust code of the tutorial, which is tested as documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
pub struct Tutorial;
