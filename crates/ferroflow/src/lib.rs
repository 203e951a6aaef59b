//! Distributed TensorFlow in Rust: build a graph, run it in this process or on a cluster, train a model.
//!
//! This page is a tutorial in five steps: [tensors](#1-tensors), [graphs](#2-a-graph), [training](#3-training),
//! [checkpoints](#4-a-checkpoint) and [clusters](#5-a-cluster). [`layers`], [`losses`] and [`metrics`] are the building blocks of
//! larger models.
//!
//! # 1. Tensors
//!
//! A [`Tensor`] is a value: elements of one type in a shape. Numbers, strings, arrays, slices and vectors convert to tensors
//! wherever one is expected, and tensors convert back.
//!
//! ```
//! use ferroflow::prelude::*;
//!
//! let matrix = Tensor::try_from([[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
//! assert_eq!((matrix.dtype(), matrix.dims()), (DType::Float, &[2, 3][..]));
//! assert_eq!(matrix.view::<f32, 2>()?.get([1, 2]), Some(&6.0));
//! assert_eq!(matrix.to_vec::<f32>()?.iter().sum::<f32>(), 21.0);
//! # Ok::<(), Status>(())
//! ```
//!
//! # 2. A graph
//!
//! A [`Graph`] describes a computation, and a [`Session`] runs it. An [`Output`] stands for a tensor that a run computes;
//! operators and methods derive further outputs from it. A placeholder is fed in every run, and `None` is an unknown size.
//!
//! ```
//! use ferroflow::prelude::*;
//!
//! let g = Graph::new();
//! let x = g.placeholder::<f32>((None, 2));
//! let w = g.constant([[1f32], [10.0]]);
//! let y = x.matmul(&w) + 0.5;
//!
//! let session = Session::new(&g)?;
//! let values = session.runner().feed(&x, [[1f32, 2.0], [3.0, 4.0]]).fetch(&y).run()?;
//! assert_eq!(values[0].to_vec::<f32>()?, [21.5, 43.5]);
//! # Ok::<(), Status>(())
//! ```
//!
//! # 3. Training
//!
//! A [`Variable`] keeps its value between runs. An [optimizer](train) adds the gradients and an operation that updates the
//! variables; a run with that operation as its target is one step.
//!
//! This program fits a line:
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
//!     session.run_ops(&[&global_variables_initializer(&g)])?;
//!     for _ in 0..200 {
//!         session.runner().feed(&x, [0f32, 1.0, 2.0]).feed(&y, [1f32, 3.0, 5.0]).target(&train).run()?;
//!     }
//!     println!("y = {:.2} x + {:.2}", session.eval::<f32>(&w)?, session.eval::<f32>(&b)?);
//!     Ok(())
//! }
//! ```
//!
//! # 4. A checkpoint
//!
//! A [`Saver`](train::Saver) writes the variables to files, and restores them. The files are TensorFlow's, and so are the names
//! of the variables: TensorFlow restores a model that was trained here, and the other way round.
//!
//! ```
//! use ferroflow::prelude::*;
//! use ferroflow::train::{Saver, global_variables_initializer, latest_checkpoint};
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path().to_str().unwrap();
//!
//! let g = Graph::new();
//! let w = Variable::new(&g, "w", &g.constant([1f32, 2.0]));
//! let saver = Saver::new(&g)?;
//! let session = Session::new(&g)?;
//! session.run_ops(&[&global_variables_initializer(&g)])?;
//! saver.save(&session, &format!("{directory}/model"), Some(100))?;
//!
//! let later = Session::new(&g)?;
//! saver.restore(&later, &latest_checkpoint(directory)?.unwrap())?;
//! assert_eq!(later.run(&[w.value()])?[0].to_vec::<f32>()?, [1.0, 2.0]);
//! # Ok::<(), Status>(())
//! ```
//!
//! [`Supervisor`](train::Supervisor) and [`MonitoredSession`](train::MonitoredSession) save automatically, and resume from the
//! newest checkpoint after a restart.
//!
//! # 5. A cluster
//!
//! A cluster is a set of jobs, each of which has tasks: parameter servers hold the variables, and workers compute. A device scope
//! assigns nodes to a task. Here all tasks are in this process. With `ferroflow server` on each machine, the program is the same
//! except for [`Session::connect`] and `grpc://host:port`; or a program starts its own task with [`distributed::start_server`].
//!
//! ```
//! use ferroflow::distributed::{ClusterSpec, start_embedded};
//! use ferroflow::prelude::*;
//! use ferroflow::train::{GradientDescentOptimizer, ReplicaDeviceSetter, global_variables_initializer};
//!
//! let spec = ClusterSpec::new().with_job("ps", &["ps0:2222"])?.with_job("worker", &["worker0:2222"])?;
//! let cluster = start_embedded(&spec)?;
//!
//! let g = Graph::new();
//! // Variables on the parameter servers, everything else on the worker.
//! let (w, train) = ReplicaDeviceSetter::new(1).worker_device("/job:worker/task:0")?.scope(&g, |g| {
//!     let w = Variable::new(g, "w", &g.constant(4f32));
//!     let train = GradientDescentOptimizer::new(0.25).minimize(&w.value().square(), None)?;
//!     Ok::<_, Status>((w, train))
//! })?;
//! assert_eq!(w.op().device(), "/job:ps/task:0");
//!
//! let session = Session::on_master(&g, cluster.master("worker", 0)?, ferroflow::SessionConfig::new())?;
//! session.run_ops(&[&global_variables_initializer(&g)])?;
//! session.run_ops(&[&train])?;
//! assert_eq!(session.eval::<f32>(w.value())?, 2.0);
//! # Ok::<(), Status>(())
//! ```
//!
//! # Mistakes
//!
//! Building a graph neither panics nor needs `?`. The graph keeps the first mistake, what is built after it is inert, and
//! everything that runs or differentiates the graph returns the mistake:
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
//! Errors that only a run can detect, such as an uninitialized variable or a feed of another shape, are returned by the run. They
//! name the lines that added the node, fed the value and started the run:
//!
//! ```text
//! FAILED_PRECONDITION: Attempting to use uninitialized value w
//!      [[{{node w/read}}]] [node w/read at src/main.rs:5:13, run at src/main.rs:7:17, …]
//! ```
//!
//! # Features
//!
//! - `census`, on by default: `data::census::Census::builtin`, the rows of the Adult census set. It adds 0.6 MB to a program.
//! - `digits`, on by default: `data::mnist::Mnist::builtin`, 17,500 digits of MNIST. It adds 2.8 MB to a program; without it
//!   (`default-features = false`) digits are read from files.
//! - `ndarray`: arrays of the crate `ndarray` can be fed, made constants, and fetched, like numbers and slices.
#![warn(missing_docs)]

mod compose;
pub mod data;
pub mod distributed;
pub mod estimator;
pub mod feature_column;
pub mod flags;
pub mod initializers;
pub mod input;
mod kept;
pub mod layers;
pub mod lookup;
pub mod losses;
mod meta_graph;
pub mod metrics;
pub mod prelude;
mod saveable;
pub mod saved_model;
pub mod session;
pub mod summary;
pub mod train;
pub mod variable;
mod variable_operators;
pub mod variable_scope;
mod worker_group;

#[doc = include_str!("../doc/graph.md")]
#[doc(inline)]
pub use ::graph::Graph;

#[doc = include_str!("../doc/operation.md")]
#[doc(inline)]
pub use ::graph::Operation;

#[doc = include_str!("../doc/output.md")]
#[doc(inline)]
pub use ::graph::Output;

/// ```
/// use ferroflow::DeviceName;
///
/// let device = DeviceName::parse("/job:ps/task:1/cpu:0")?;
/// assert_eq!((device.job.as_deref(), device.task), (Some("ps"), Some(1)));
/// assert_eq!(device.to_string(), "/job:ps/task:1/device:CPU:0");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[doc(inline)]
pub use ::graph::DeviceName;

/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let summaries: ferroflow::Collection = "summaries";
/// g.add_to_collection(summaries, &g.constant("a summary"));
/// assert_eq!(g.collection(summaries).len(), 1);
/// ```
#[doc(inline)]
pub use ::graph::builder::Collection;

/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::Grad;
///
/// let g = Graph::new();
/// let table = Variable::new(&g, "table", &g.constant([[1f32], [2.0], [3.0]]));
/// let rows = table.value().gather(&g.constant([2i32]));
/// // Only the row that was looked up has a gradient.
/// let gradient: Grad = g.gradients(&[rows], &[table.value().clone()])?.remove(0).unwrap();
/// assert!(matches!(gradient, Grad::Slices(_)));
/// # Ok::<(), Status>(())
/// ```
#[doc(inline)]
pub use ::graph::builder::Grad;

/// ```
/// use ferroflow::IndexedSlices;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let slices = IndexedSlices {
///     values: g.constant([[1f32], [2.0], [4.0]]),
///     indices: g.constant([0i32, 2, 2]),
///     dense_shape: Some(g.constant([3i32, 1])),
/// };
/// assert_eq!(Session::new(&g)?.run(&[&slices.to_dense()])?[0].to_vec::<f32>()?, [1.0, 0.0, 6.0]);
/// # Ok::<(), Status>(())
/// ```
#[doc(inline)]
pub use ::graph::builder::IndexedSlices;

/// ```
/// use ferroflow::LoopOptions;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// // A vector that grows has another shape in every iteration.
/// let options = LoopOptions { shape_invariants: vec![Some(PartialShape::from([-1]))], ..LoopOptions::default() };
/// let start = [g.constant([1f32])];
/// let grown = g.while_loop_with(&start, &options, |_, v| v[0].sum().less(8.0), |_, v| vec![v[0].concat(&v[0], 0)]);
/// assert_eq!(Session::new(&g)?.run(&[&grown[0]])?[0].num_elements(), 8);
/// # Ok::<(), Status>(())
/// ```
#[doc(inline)]
pub use ::graph::builder::LoopOptions;

pub use session::{Callable, PartialRun, RunMetadata, RunOptions, Session, SessionConfig};
pub use tensor::{Code, DType, IntoTensor, PartialShape, Result, Shape, Status, Tensor};
pub use tensor::{MemoryState, memory_limit, memory_state, set_memory_limit, set_session_memory_limit};
pub use variable::Variable;

/// The functions that add ops to a graph.
pub use ops;

/// The `ndarray` crate, in the version whose arrays can be fed and fetched.
#[cfg(feature = "ndarray")]
pub use ndarray;

/// TensorFlow's messages, for programs that use them: `From` converts between them and the types of this crate.
pub use proto;

#[linkme::distributed_slice(::graph::LIBRARIES)]
static LIBRARY: ::graph::Library = ::graph::Library { root: file!(), ops: None };
