//! Ops that make, move and reshape tensors.

mod broadcast_to;
mod concat;
mod constant;
mod gather;
mod identity;
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

pub use broadcast_to::*;
pub use concat::*;
pub use constant::*;
pub use gather::*;
pub use identity::*;
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

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    broadcast_to::OPS,
    concat::OPS,
    constant::OPS,
    gather::OPS,
    identity::OPS,
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
];
