//! Mathematics.
//!
//! ```
//! use graph::Graph;
//! use ops::math;
//!
//! let g = Graph::new();
//! let product = math::matmul(&g.constant([[1f32, 2.0]]), &g.constant([[3f32], [4.0]]));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[product.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<f32>()?, [11.0]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod add_n;
mod arg_extreme;
mod arithmetic;
mod bincount;
mod bitwise;
mod bucketize;
mod cast;
mod compare;
mod complex;
mod cross;
mod cumulative;
mod division;
mod einsum;
mod einsum_equation;
mod einsum_gradient;
mod exponential;
mod extremes;
mod fused_elementwise;
mod matmul;
mod power;
mod range;
mod reduce;
mod rounding;
mod segment;
mod segment_gradient;
mod select;
mod sparse_segment;
mod special;
mod trigonometric;
mod unary_composition;

pub use add_n::*;
pub use arg_extreme::*;
pub use arithmetic::*;
pub use bincount::*;
pub use bitwise::*;
pub use bucketize::*;
pub use cast::*;
pub use compare::*;
pub use complex::*;
pub use cross::*;
pub use cumulative::*;
pub use division::*;
pub use einsum::*;
pub use exponential::*;
pub use extremes::*;
pub use matmul::*;
pub use power::*;
pub use range::*;
pub use reduce::*;
pub use rounding::*;
pub use segment::*;
pub use select::*;
pub use special::*;
pub use trigonometric::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    add_n::OPS,
    arg_extreme::OPS,
    arithmetic::OPS,
    bincount::OPS,
    bitwise::OPS,
    bucketize::OPS,
    cast::OPS,
    compare::OPS,
    complex::OPS,
    cross::OPS,
    cumulative::OPS,
    division::OPS,
    einsum::OPS,
    exponential::OPS,
    extremes::OPS,
    fused_elementwise::OPS,
    matmul::OPS,
    power::OPS,
    range::OPS,
    reduce::OPS,
    rounding::OPS,
    segment::OPS,
    select::OPS,
    sparse_segment::OPS,
    special::OPS,
    trigonometric::OPS,
    unary_composition::OPS,
];
