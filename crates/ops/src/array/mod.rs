//! Ops that create, move and reshape tensors.
//!
//! ```
//! use graph::Graph;
//! use ops::array;
//!
//! let g = Graph::new();
//! let rows = array::one_hot(&g.constant([2i32, 0]), 3, 1.0, 0.0);
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[rows.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<f32>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod bitcast;
mod broadcast_to;
mod concat;
mod constant;
mod diag;
mod diagonals;
mod edit_distance;
mod fake_quantize;
mod gather;
mod gather_nd;
mod identity;
mod inplace;
mod locate;
mod matrix_diag;
mod one_hot;
mod pad;
mod placeholder;
mod quantize;
mod quantize_and_dequantize;
mod reshape;
mod reverse;
mod roll;
mod scatter_nd;
mod search;
mod shape;
mod slice;
mod slice_index;
mod slice_spec;
mod space_batch;
mod split;
mod strided_slice;
mod tile;
mod transpose;
mod unique;

pub use bitcast::*;
pub use broadcast_to::*;
pub use concat::*;
pub use constant::*;
pub use diag::*;
pub use fake_quantize::fake_quant_with_min_max_vars;
pub use gather::*;
pub use gather_nd::*;
pub use identity::*;
pub use locate::*;
pub use matrix_diag::*;
pub use one_hot::*;
pub use pad::*;
pub use placeholder::*;
pub use quantize::*;
pub use quantize_and_dequantize::quantize_and_dequantize;
pub use reshape::*;
pub use reverse::*;
pub use roll::*;
pub use scatter_nd::*;
pub use search::*;
pub use shape::*;
pub use slice::*;
pub use slice_index::*;
pub use space_batch::*;
pub use split::*;
pub use strided_slice::*;
pub use tile::*;
pub use transpose::*;
pub use unique::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    bitcast::OPS,
    broadcast_to::OPS,
    concat::OPS,
    constant::OPS,
    diag::OPS,
    edit_distance::OPS,
    fake_quantize::OPS,
    gather::OPS,
    gather_nd::OPS,
    identity::OPS,
    inplace::OPS,
    locate::OPS,
    matrix_diag::OPS,
    one_hot::OPS,
    pad::OPS,
    placeholder::OPS,
    quantize::OPS,
    quantize_and_dequantize::OPS,
    reshape::OPS,
    reverse::OPS,
    roll::OPS,
    scatter_nd::OPS,
    search::OPS,
    shape::OPS,
    slice::OPS,
    space_batch::OPS,
    split::OPS,
    strided_slice::OPS,
    tile::OPS,
    transpose::OPS,
    unique::OPS,
];
