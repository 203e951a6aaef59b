//! Images: batches of height, width and channels.

mod glimpse;
mod pixels;
mod resize;

pub use resize::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[glimpse::OPS, resize::OPS];
