//! Ops that make, move and reshape tensors.

mod broadcast_to;
mod concat;
mod constant;
mod identity;
mod placeholder;
mod reshape;
mod shape;
mod split;

pub use broadcast_to::*;
pub use concat::*;
pub use constant::*;
pub use identity::*;
pub use placeholder::*;
pub use reshape::*;
pub use shape::*;
pub use split::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    broadcast_to::OPS,
    concat::OPS,
    constant::OPS,
    identity::OPS,
    placeholder::OPS,
    reshape::OPS,
    shape::OPS,
    split::OPS,
];
