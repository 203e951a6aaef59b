//! Images: batches of height, width and channels.

mod color;
mod glimpse;
mod pixels;
mod resize;

pub use resize::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[color::OPS, glimpse::OPS, resize::OPS];
