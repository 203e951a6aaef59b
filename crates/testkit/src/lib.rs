//! What tests of the whole need: graphs made at random from the op definitions, a loop that runs them on an embedded server, and one
//! that gives changed bytes to everything that takes some from outside.

pub mod deep_graph;
pub mod fuzz;
pub mod mutated_graph;
pub mod outside;
pub mod random_graph;

/// The Rust code of the tutorial, which is tested as documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial.md")]
pub struct Tutorial;
