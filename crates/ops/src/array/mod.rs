//! Ops that make, move and reshape tensors.

mod bitcast;
mod broadcast_to;
mod concat;
mod constant;
mod diag;
mod diagonals;
mod edit_distance;
mod gather;
mod gather_nd;
mod identity;
mod inplace;
mod locate;
mod matrix_diag;
mod one_hot;
mod pad;
mod placeholder;
mod reshape;
mod reverse;
mod roll;
mod scatter_nd;
mod search;
mod shape;
mod slice;
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
pub use gather::*;
pub use gather_nd::*;
pub use identity::*;
pub use locate::*;
pub use matrix_diag::*;
pub use one_hot::*;
pub use pad::*;
pub use placeholder::*;
pub use reshape::*;
pub use reverse::*;
pub use roll::*;
pub use scatter_nd::*;
pub use search::*;
pub use shape::*;
pub use slice::*;
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
    gather::OPS,
    gather_nd::OPS,
    identity::OPS,
    inplace::OPS,
    locate::OPS,
    matrix_diag::OPS,
    one_hot::OPS,
    pad::OPS,
    placeholder::OPS,
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
