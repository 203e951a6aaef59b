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
//!
//! A program that fits a line:
//!
//! ```
//! use ferroflow::ops::{array::placeholder, math};
//! use ferroflow::train::{GradientDescentOptimizer, Optimizer, global_variables_initializer};
//! use ferroflow::{DType, Graph, PartialShape, Session, Tensor, Variable};
//!
//! fn main() -> ferroflow::Result<()> {
//!     let g = Graph::new();
//!     let x = placeholder(&g, DType::Float, &PartialShape::from_dims(&[-1]));
//!     let y = placeholder(&g, DType::Float, &PartialShape::from_dims(&[-1]));
//!     let w = Variable::new(&g, "w", &g.constant_tensor(&Tensor::scalar(0f32)));
//!     let b = Variable::new(&g, "b", &g.constant_tensor(&Tensor::scalar(0f32)));
//!     let loss = math::reduce_mean(&math::square(&(&x * w.value() + b.value() - &y)), None, false);
//!     let train = GradientDescentOptimizer::new(0.1).minimize(&loss, None)?;
//!
//!     let session = Session::new(&g)?;
//!     session.run_ops(&[&global_variables_initializer(&g)?])?;
//!     for _ in 0..200 {
//!         let (xs, ys) = (Tensor::vector(&[0f32, 1.0, 2.0]), Tensor::vector(&[1f32, 3.0, 5.0]));
//!         session.runner().feed(&x, xs).feed(&y, ys).target(&train).run()?;
//!     }
//!     println!("y = {:.2} x + {:.2}", session.eval::<f32>(w.value())?, session.eval::<f32>(b.value())?);
//!     Ok(())
//! }
//! ```
//!
//! # Features
//!
//! - `digits`, on by default: `data::mnist::Mnist::builtin`, 17,500 digits of MNIST. It adds 2.8 MB to a program; without it
//!   (`default-features = false`) digits are read from files.
#![warn(missing_docs)]

mod compose;
pub mod data;
pub mod distributed;
mod graph_handle;
pub mod initializers;
pub mod input;
pub mod layers;
pub mod losses;
pub mod metrics;
pub mod session;
pub mod summary;
pub mod train;
pub mod variable;
pub mod variable_scope;

pub use ::graph::builder::{Collection, Grad, IndexedSlices, LoopOptions};
pub use ::graph::{DeviceName, Operation, Output};
pub use graph_handle::Graph;
pub use session::{Callable, PartialRun, RunMetadata, RunOptions, Session};
pub use tensor::{Code, DType, PartialShape, Result, Shape, Status, Tensor};
pub use tensor::{MemoryState, memory_limit, memory_state, set_memory_limit, set_session_memory_limit};
pub use variable::Variable;

/// The functions that add ops to a graph.
pub use ops;
