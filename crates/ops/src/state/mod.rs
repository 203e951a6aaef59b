//! Variables: by ref edges and by resource handles, dense and by rows.
//!
//! ```
//! use graph::Graph;
//! use ops::state;
//! use tensor::{DType, PartialShape};
//!
//! let g = Graph::new();
//! let counter = state::var_handle_op(&g, "counter", DType::Float, &PartialShape::scalar());
//! let set = state::assign_variable_op(&counter, &g.constant(3f32));
//! let value = g.control_dependencies(&[set], |_| state::read_variable_op(&counter, DType::Float));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[value.edge()], &step)?;
//! assert_eq!(values[0].to_scalar::<f32>()?, 3.0);
//! # Ok::<(), tensor::Status>(())
//! ```

mod assign;
mod gather;
mod mutex;
mod resource_variable;
mod scatter;
mod scatter_nd;
mod variable;

pub use assign::*;
pub use gather::*;
pub use mutex::*;
pub use resource_variable::*;
pub use scatter::*;
pub use scatter_nd::*;
pub use variable::*;

use kernel::{Op, ShapeContext};
use tensor::{DType, PartialShape, Result};

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[assign::OPS, gather::OPS, mutex::OPS, resource_variable::OPS, scatter::OPS, scatter_nd::OPS, variable::OPS];

/// Returns the inferred type and shape of the variable of a handle.
pub(crate) fn handle_shape(c: &ShapeContext<'_>, index: usize) -> Result<(Option<DType>, PartialShape)> {
    c.with_rank(index, 0)?;
    Ok(match c.input_handles.get(index).and_then(|data| data.first()) {
        Some(data) => (Some(data.dtype), data.shape.clone()),
        None => (None, PartialShape::unknown()),
    })
}
