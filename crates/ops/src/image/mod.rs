//! Images: batches of height, width and channels.

mod boxes;
mod color;
mod crop;
mod decode;
mod encode;
mod files;
mod glimpse;
mod jpeg;
mod patches;
mod pixels;
mod resize;
mod scale;
mod suppression;

pub use crop::*;
pub use decode::*;
pub use encode::*;
pub use resize::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    boxes::OPS,
    color::OPS,
    crop::OPS,
    decode::OPS,
    encode::OPS,
    glimpse::OPS,
    patches::OPS,
    resize::OPS,
    scale::OPS,
    suppression::OPS,
];
