//! The names that most programs use: `use ferroflow::prelude::*;`.
//!
//! ```
//! use ferroflow::prelude::*;
//!
//! let g = Graph::new();
//! let x = g.placeholder::<f32>((None, 2));
//! let mean = (&x * 2.0).mean();
//! let means = Session::new(&g)?.runner().feed(&x, [[1f32, 2.0], [3.0, 4.0]]).fetch(&mean).run()?;
//! assert_eq!(f32::try_from(&means[0])?, 5.0);
//! # Ok::<(), Status>(())
//! ```

pub use crate::train::Optimizer;
pub use crate::{DType, Graph, Operation, Output, PartialShape, Session, Shape, Status, Tensor, Variable};
#[doc = include_str!("../doc/tensor_ops.md")]
#[doc(inline)]
pub use ops::TensorOps;
pub use ops::nn::Labels;
