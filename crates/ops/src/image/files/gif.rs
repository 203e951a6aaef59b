//! Decoding of GIF files: the frames as they are displayed.

use super::{Picture, Samples};
use gif::{ColorOutput, DecodeOptions, MemoryLimit};
use tensor::{Result, Status};

/// The most pixels of a frame, and of all frames together.
const MOST_PIXELS: usize = 1 << 29;

/// A stored frame: color indices for a part of the image.
struct Frame {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    transparent: Option<u8>,
    palette: Vec<u8>,
    indices: Vec<u8>,
}

pub(crate) fn read(contents: &[u8], expand_animations: bool) -> Result<Picture> {
    let invalid = |why: String| Status::invalid_argument(format!("Invalid GIF data (size {}), {why}", contents.len()));
    let frames = stored_frames(contents).map_err(invalid)?;
    let count = if expand_animations { frames.len() } else { 1 };
    let height = frames.iter().map(|frame| frame.height).max().unwrap_or(0);
    let width = frames.iter().map(|frame| frame.width).max().unwrap_or(0);
    let length = width * height * 3;
    if length.saturating_mul(count) >= 3 * MOST_PIXELS {
        return Err(Status::resource_exhausted(format!("{count} frames of {width} by {height} pixels are too many")));
    }
    let mut samples = vec![0u8; length * count];
    for (index, frame) in frames.iter().take(count).enumerate() {
        let (done, rest) = samples.split_at_mut(index * length);
        let canvas = &mut rest[..length];
        if let Some(last) = done.rchunks_exact(length).next() {
            canvas.copy_from_slice(last);
        }
        for y in frame.top..height.min(frame.top + frame.height) {
            for x in frame.left..width.min(frame.left + frame.width) {
                let color = frame.indices[(y - frame.top) * frame.width + x - frame.left];
                if frame.transparent == Some(color) {
                    continue;
                }
                let start = usize::from(color) * 3;
                let Some(from) = frame.palette.get(start..start + 3) else {
                    let colors = frame.palette.len() / 3;
                    return Err(invalid(format!("found color index {color} outside of color map range {colors}")));
                };
                canvas[(y * width + x) * 3..][..3].copy_from_slice(from);
            }
        }
    }
    Ok(Picture { frames: Some(count), height, width, channels: 3, samples: Samples::Bytes(samples) })
}

/// Returns the frames of a file, or those before the first error.
fn stored_frames(contents: &[u8]) -> std::result::Result<Vec<Frame>, String> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    // The size of the frames is bounded below, before they are read.
    options.set_memory_limit(MemoryLimit::Unlimited);
    let mut decoder = options.read_info(contents).map_err(|error| format!("failed to open gif file: {error}"))?;
    let global_palette = decoder.global_palette().map(<[u8]>::to_vec);
    let mut frames: Vec<Frame> = Vec::new();
    let mut pixels = 0;
    let problem = loop {
        let frame = match decoder.next_frame_info() {
            Ok(Some(frame)) => frame,
            Ok(None) => break "gif file does not contain any image".to_owned(),
            Err(error) => break error.to_string(),
        };
        let (width, height) = (usize::from(frame.width), usize::from(frame.height));
        pixels += width * height;
        if width == 0 || height == 0 || pixels >= MOST_PIXELS {
            break format!("a frame of {width} by {height} pixels");
        }
        let mut stored = Frame {
            left: usize::from(frame.left),
            top: usize::from(frame.top),
            width,
            height,
            transparent: frame.transparent,
            palette: frame.palette.clone().or_else(|| global_palette.clone()).unwrap_or_default(),
            indices: vec![0; width * height],
        };
        let read = decoder.read_into_buffer(&mut stored.indices);
        // An incomplete frame is shown as far as it goes.
        frames.push(stored);
        if let Err(error) = read {
            break error.to_string();
        }
    };
    if frames.is_empty() {
        return Err(format!("failed to slurp gif file: {problem}"));
    }
    Ok(frames)
}
