//! Distributed TensorFlow in Rust: build a graph, run it in this process or on a cluster, train.
//!
//! ```
//! use ferroflow::{Graph, Session, Tensor};
//!
//! let g = Graph::new();
//! let hello = g.constant_tensor(&Tensor::string("Hello, distributed TensorFlow!"));
//! let session = Session::new(&g)?;
//! assert_eq!(session.run(&[&hello])?[0].strings()?[0], "Hello, distributed TensorFlow!");
//! # Ok::<(), ferroflow::Status>(())
//! ```
#![warn(missing_docs)]

pub mod data;
pub mod distributed;
mod graph_handle;
pub mod initializers;
pub mod input;
pub mod session;
pub mod summary;
pub mod train;
pub mod variable;
pub mod variable_scope;

pub use ::graph::builder::{Collection, Grad, IndexedSlices};
pub use ::graph::{DeviceName, Operation, Output};
pub use graph_handle::Graph;
pub use session::{Callable, RunMetadata, RunOptions, Session};
pub use tensor::{Code, DType, PartialShape, Result, Shape, Status, Tensor};
pub use variable::Variable;

/// The functions that add ops to a graph.
pub use ops;
