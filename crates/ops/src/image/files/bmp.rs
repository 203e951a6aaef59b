//! Decoding of BMP files: uncompressed pixels of 8, 24 or 32 bits, without a palette.

use super::{Picture, Samples};
use tensor::{Result, Status};

/// The length of the fields in a file's header.
const HEAD_BYTES: usize = 32;

pub(crate) fn read(contents: &[u8], channels: usize) -> Result<Picture> {
    let invalid = |message: String| Err(Status::invalid_argument(message));
    let Some(head) = contents.first_chunk::<HEAD_BYTES>() else {
        return invalid(format!(
            "Incomplete bmp content, requires at least 32 bytes to find the header size, width, height, and bpp, got {} \
             bytes",
            contents.len()
        ));
    };
    let number = |at: usize| i64::from(i32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let (start, width, height) = (number(10), number(18), number(22));
    let own_channels = i16::from_le_bytes([head[28], head[29]]) / 8;
    if !matches!(own_channels, 1 | 3 | 4) {
        return invalid(format!("Number of channels inherent in the image must be 1, 3 or 4, was {own_channels}"));
    }
    if width <= 0 {
        return invalid("Width must be positive".to_owned());
    }
    if height == 0 {
        return invalid("Height must be nonzero".to_owned());
    }
    if start < 0 {
        return invalid("header size must be nonnegative".to_owned());
    }
    if width * height.abs() >= i64::from(i32::MAX / 8) {
        return invalid("Total possible pixel bytes must be less than 2^30".to_owned());
    }
    let (start, width, rows) = (start as usize, width as usize, height.unsigned_abs() as usize);
    let from_channels = own_channels as usize;
    let row_bytes = (from_channels * width).div_ceil(4) * 4;
    if start + row_bytes * rows != contents.len() {
        return invalid(format!(
            "Input size should match (header_size + row_size * abs_height) but they differ by {}",
            contents.len() as i64 - (start + row_bytes * rows) as i64
        ));
    }
    let to_channels = if channels == 0 { from_channels } else { channels };
    let mut samples = vec![0; width * rows * to_channels];
    for (row, to) in samples.chunks_exact_mut(width * to_channels).enumerate() {
        // Rows are stored from the bottom up unless the height is negative.
        let stored = if height < 0 { row } else { rows - 1 - row };
        let from = &contents[start + stored * row_bytes..][..width * from_channels];
        for (to, from) in to.chunks_exact_mut(to_channels).zip(from.chunks_exact(from_channels)) {
            let color = match *from {
                [gray] => [gray, gray, gray, 255],
                [blue, green, red] => [red, green, blue, 255],
                [blue, green, red, alpha, ..] => [red, green, blue, alpha],
                _ => [0; 4],
            };
            to.copy_from_slice(&color[..to_channels]);
        }
    }
    Ok(Picture { frames: None, height: rows, width, channels: to_channels, samples: Samples::Bytes(samples) })
}
