//! The lossless image formats.

pub(super) mod bmp;
pub(super) mod gif;
pub(super) mod png;

/// What was read from a file.
pub(super) struct Picture {
    /// How many pictures there are, in a file that may have several.
    pub frames: Option<usize>,
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub samples: Samples,
}

/// The numbers of a picture.
pub(super) enum Samples {
    Bytes(Vec<u8>),
    Words(Vec<u16>),
}
