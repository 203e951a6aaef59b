//! Distributed TensorFlow in Rust: build a graph, run it in this process or on a cluster, train.
//!
//! ```
//! use ferroflow::{Graph, Session};
//!
//! let g = Graph::new();
//! let hello = g.constant("Hello, distributed TensorFlow!");
//! let session = Session::new(&g)?;
//! assert_eq!(session.run(&[&hello])?[0].strings()?[0], "Hello, distributed TensorFlow!");
//! # Ok::<(), ferroflow::Status>(())
//! ```
//!
//! A program that fits a line:
//!
//! ```
//! use ferroflow::prelude::*;
//! use ferroflow::train::{GradientDescentOptimizer, global_variables_initializer};
//!
//! fn main() -> ferroflow::Result<()> {
//!     let g = Graph::new();
//!     let (x, y) = (g.placeholder::<f32>([-1]), g.placeholder::<f32>([-1]));
//!     let w = Variable::new(&g, "w", &g.constant(0f32));
//!     let b = Variable::new(&g, "b", &g.constant(0f32));
//!     let loss = (&x * &w + &b - &y).square().mean();
//!     let train = GradientDescentOptimizer::new(0.1).minimize(&loss, None)?;
//!
//!     let session = Session::new(&g)?;
//!     session.run_ops(&[&global_variables_initializer(&g)?])?;
//!     for _ in 0..200 {
//!         session.runner().feed(&x, [0f32, 1.0, 2.0]).feed(&y, [1f32, 3.0, 5.0]).target(&train).run()?;
//!     }
//!     println!("y = {:.2} x + {:.2}", session.eval::<f32>(&w)?, session.eval::<f32>(&b)?);
//!     Ok(())
//! }
//! ```
//!
//! Building neither panics nor needs `?`. The first mistake stays in the graph, what is built after it does nothing, and whatever runs
//! or differentiates the graph returns it:
//!
//! ```
//! use ferroflow::prelude::*;
//!
//! let g = Graph::new();
//! let x = g.placeholder::<f32>((None, 784));
//! let logits = x.matmul(&g.constant([[0f32; 10]; 100])).relu();
//! let mistake = Session::new(&g).err().unwrap();
//! assert!(mistake.message().contains("op MatMul of Placeholder:0 float [?,784], Const:0 float [100,10]"));
//! ```
//!
//! # Features
//!
//! - `digits`, on by default: `data::mnist::Mnist::builtin`, 17,500 digits of MNIST. It adds 2.8 MB to a program; without it
//!   (`default-features = false`) digits are read from files.
//! - `ndarray`: arrays of the crate `ndarray` are fed, made constants, and fetched as numbers and slices are.
#![warn(missing_docs)]

mod compose;
pub mod data;
pub mod distributed;
pub mod flags;
pub mod initializers;
pub mod input;
pub mod layers;
pub mod losses;
mod meta_graph;
pub mod metrics;
pub mod prelude;
pub mod session;
pub mod summary;
pub mod train;
pub mod variable;
mod variable_operators;
pub mod variable_scope;

pub use ::graph::builder::{Collection, Grad, IndexedSlices, LoopOptions};
pub use ::graph::{DeviceName, Graph, Operation, Output};
pub use session::{Callable, PartialRun, RunMetadata, RunOptions, Session, SessionConfig};
pub use tensor::{Code, DType, IntoTensor, PartialShape, Result, Shape, Status, Tensor};
pub use tensor::{MemoryState, memory_limit, memory_state, set_memory_limit, set_session_memory_limit};
pub use variable::Variable;

/// The functions that add ops to a graph.
pub use ops;

/// The crate whose arrays can be fed and fetched, in the version that fits.
#[cfg(feature = "ndarray")]
pub use ndarray;

/// TensorFlow's messages, for programs that have some: `From` leads from them to what the functions here take, and back.
pub use proto;

#[linkme::distributed_slice(::graph::LIBRARIES)]
static LIBRARY: ::graph::Library = ::graph::Library { root: file!(), ops: None };
