//! Ops that make, move and reshape tensors.

mod broadcast_to;
mod concat;
mod constant;
mod edit_distance;
mod gather;
mod gather_nd;
mod identity;
mod locate;
mod one_hot;
mod pad;
mod placeholder;
mod reshape;
mod reverse;
mod shape;
mod slice;
mod slice_spec;
mod split;
mod strided_slice;
mod tile;
mod transpose;
mod unique;

pub use broadcast_to::*;
pub use concat::*;
pub use constant::*;
pub use gather::*;
pub use gather_nd::*;
pub use identity::*;
pub use locate::*;
pub use one_hot::*;
pub use pad::*;
pub use placeholder::*;
pub use reshape::*;
pub use reverse::*;
pub use shape::*;
pub use slice::*;
pub use split::*;
pub use strided_slice::*;
pub use tile::*;
pub use transpose::*;
pub use unique::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    broadcast_to::OPS,
    concat::OPS,
    constant::OPS,
    edit_distance::OPS,
    gather::OPS,
    gather_nd::OPS,
    identity::OPS,
    locate::OPS,
    one_hot::OPS,
    pad::OPS,
    placeholder::OPS,
    reshape::OPS,
    reverse::OPS,
    shape::OPS,
    slice::OPS,
    split::OPS,
    strided_slice::OPS,
    tile::OPS,
    transpose::OPS,
    unique::OPS,
];
