//! Sparse tensors: three tensors, for the indices, the values and the shape.
//!
//! ```
//! use graph::Graph;
//! use ops::sparse;
//!
//! let g = Graph::new();
//! let (indices, values) = (g.constant([[0i64, 1], [1, 0]]), g.constant([5f32, 6.0]));
//! let dense = sparse::sparse_to_dense(&indices, &g.constant([2i64, 2]), &values, &g.constant(0f32));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[dense.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<f32>()?, [0.0, 5.0, 6.0, 0.0]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod add;
mod coordinates;
mod cross;
mod fill_empty_rows;
mod gradients;
mod matmul;
mod rearrange;
mod reduce;
mod serialize;
mod set;
mod to_dense;

pub use add::*;
pub use fill_empty_rows::*;
pub use matmul::*;
pub use rearrange::*;
pub use to_dense::*;

pub(crate) use serialize::sparse_variants;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    add::OPS,
    cross::OPS,
    fill_empty_rows::OPS,
    matmul::OPS,
    rearrange::OPS,
    reduce::OPS,
    serialize::OPS,
    set::OPS,
    to_dense::OPS,
];
