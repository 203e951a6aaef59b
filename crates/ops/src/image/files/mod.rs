//! The lossless image formats.

pub(super) mod bmp;
pub(super) mod gif;
pub(super) mod png;
