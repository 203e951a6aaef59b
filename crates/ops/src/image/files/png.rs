//! Decoding of PNG files to the requested channels and depth, and encoding.

use super::{Picture, Samples};
use png::{BitDepth, ColorType, DeflateCompression, Filter, Info, Transformations};
use std::io::Cursor;
use tensor::{Result, Status};

/// The most pixels of an image, as in TensorFlow.
const MOST_PIXELS: u64 = 1 << 29;
/// The longest side, as in the library that TensorFlow uses.
const LARGEST_SIDE: u32 = 1_000_000;

/// Decodes an image; zero channels means those of the file.
pub(crate) fn read(contents: &[u8], channels: usize, wide: bool) -> Result<Picture> {
    let bad_head = |error| Status::invalid_argument(format!("Invalid PNG. Failed to initialize decoder. {error}"));
    let bad_data = |error| Status::invalid_argument(format!("Invalid PNG data, size {}: {error}", contents.len()));
    let mut decoder = png::Decoder::new(Cursor::new(contents));
    decoder.set_transformations(Transformations::IDENTITY);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let (width, height) = decoder.read_header_info().map_err(bad_head)?.size();
    if width.max(height) > LARGEST_SIDE || u64::from(width) * u64::from(height) >= MOST_PIXELS {
        return Err(Status::invalid_argument(format!("PNG size too large for int: {width} by {height}")));
    }
    let mut reader = decoder.read_info().map_err(bad_head)?;
    if reader.info().color_type == ColorType::Indexed && reader.info().palette.is_none() {
        return Err(Status::invalid_argument("Invalid PNG. Failed to initialize decoder. It has no palette."));
    }
    let size = reader.output_buffer_size().ok_or_else(|| Status::invalid_argument("PNG size too large"))?;
    // Fresh zeros take memory only as rows arrive, so a header alone can't make it grow.
    let mut raw = vec![0; size];
    let line = reader.next_frame(&mut raw).map_err(bad_data)?.line_size;
    reader.finish().map_err(bad_data)?;
    let conversion = Conversion::new(reader.info(), channels, wide);
    let (height, width) = (height as usize, width as usize);
    let samples = match wide {
        true => Samples::Words(conversion.all(&raw, line, width, |sample| sample)),
        false if conversion.is_copy() => Samples::Bytes(raw),
        false => Samples::Bytes(conversion.all(&raw, line, width, |sample| sample as u8)),
    };
    Ok(Picture { frames: None, height, width, channels: conversion.channels, samples })
}

/// The conversion from the file's pixels to the requested ones.
struct Conversion {
    color: ColorType,
    depth: u32,
    channels: usize,
    wide: bool,
    palette: Vec<u8>,
    /// For a palette the alpha of its colors, otherwise the transparent color.
    transparency: Option<Vec<u16>>,
    /// The conversion of colors to gray if the file declares a gamma.
    light: Option<Light>,
}

impl Conversion {
    fn new(info: &Info<'_>, channels: usize, wide: bool) -> Conversion {
        let indexed = info.color_type == ColorType::Indexed;
        let transparency = info.trns.as_ref().map(|bytes| match info.bit_depth {
            BitDepth::Sixteen if !indexed => {
                bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect()
            }
            _ => bytes.iter().map(|&byte| u16::from(byte)).collect(),
        });
        let own = match info.color_type {
            ColorType::Indexed => 3 + usize::from(transparency.is_some()),
            color => color.samples(),
        };
        let mixes = info.color_type.samples() > 2 || indexed;
        let mixes = mixes && matches!(channels, 1 | 2);
        Conversion {
            light: Light::new(info, wide).filter(|_| mixes),
            color: info.color_type,
            depth: info.bit_depth as u32,
            channels: if channels == 0 { own } else { channels },
            wide,
            palette: info.palette.as_ref().map(|palette| palette.to_vec()).unwrap_or_default(),
            transparency,
        }
    }

    fn is_copy(&self) -> bool {
        self.depth == 8 && !self.wide && self.color != ColorType::Indexed && self.color.samples() == self.channels
    }

    fn all<T>(&self, raw: &[u8], line: usize, width: usize, narrow: fn(u16) -> T) -> Vec<T> {
        let per_pixel = self.color.samples();
        let mut to = Vec::with_capacity(raw.len().div_ceil(line) * width * self.channels);
        let mut row_samples = vec![0u16; width * per_pixel];
        for row in raw.chunks_exact(line) {
            self.unpack(row, &mut row_samples);
            for pixel in row_samples.chunks_exact(per_pixel) {
                to.extend(self.pixel(pixel)[..self.channels].iter().map(|&sample| narrow(sample)));
            }
        }
        to
    }

    /// Extracts the samples from a row's bytes.
    fn unpack(&self, row: &[u8], samples: &mut [u16]) {
        for (index, sample) in samples.iter_mut().enumerate() {
            *sample = match self.depth {
                16 => u16::from_be_bytes([row[2 * index], row[2 * index + 1]]),
                8 => u16::from(row[index]),
                depth => {
                    let per_byte = 8 / depth as usize;
                    let shift = 8 - depth - depth * (index % per_byte) as u32;
                    u16::from(row[index / per_byte] >> shift) & ((1 << depth) - 1)
                }
            };
        }
    }

    /// Returns a pixel's channels in the requested form, in the first elements.
    fn pixel(&self, from: &[u16]) -> [u16; 4] {
        let full = if self.depth == 16 { u16::MAX } else { 255 };
        // A missing alpha is the maximum of the file's depth, even if that is not the maximum of the result.
        let opaque = ((1u32 << self.depth) - 1) as u16;
        let seen = |from: &[u16]| match &self.transparency {
            Some(color) if color == from => 0,
            Some(_) => full,
            None => opaque,
        };
        let (color, alpha) = match *from {
            [index] if self.color == ColorType::Indexed => {
                let start = usize::from(index) * 3;
                let color = self.palette.get(start..start + 3).map_or([0; 3], |color| [color[0], color[1], color[2]]);
                let alpha = match &self.transparency {
                    Some(alphas) => alphas.get(usize::from(index)).copied().unwrap_or(255),
                    None => opaque,
                };
                (color.map(u16::from), alpha)
            }
            [gray] => {
                let expanded = if self.depth < 8 { gray * (255 / opaque) } else { gray };
                ([expanded; 3], seen(from))
            }
            [gray, alpha] => ([gray; 3], alpha),
            [red, green, blue] => ([red, green, blue], seen(from)),
            [red, green, blue, alpha, ..] => ([red, green, blue], alpha),
            [] => ([0; 3], opaque),
        };
        let is_gray = matches!(self.color, ColorType::Grayscale | ColorType::GrayscaleAlpha);
        let pixel = match self.channels {
            1 | 2 if is_gray => [color[0], alpha, 0, 0],
            1 | 2 => [self.gray(color), alpha, 0, 0],
            _ => [color[0], color[1], color[2], alpha],
        };
        match (self.depth == 16, self.wide) {
            (true, false) => pixel.map(|sample| sample >> 8),
            (false, true) => pixel.map(|sample| sample * 257),
            _ => pixel,
        }
    }

    fn gray(&self, color: [u16; 3]) -> u16 {
        let is_gray = color[0] == color[1] && color[0] == color[2];
        if let Some(light) = &self.light {
            return if is_gray { light.equal(color[0]) } else { light.mixed(color) };
        }
        if is_gray {
            return color[0];
        }
        let half = if self.depth == 16 { 1 << 14 } else { 0 };
        ((weighted(color) + half) >> 15) as u16
    }
}

/// Returns 32768 times the gray of a color.
fn weighted(color: [u16; 3]) -> u32 {
    let [red, green, blue] = color.map(u32::from);
    9797 * red + 19234 * green + 3737 * blue
}

/// Tables from a file's numbers to linear light and back, rounded as in the library that TensorFlow uses.
struct Light {
    /// The number of bits by which the numbers are less precise than the tables' indices.
    shift: u32,
    to_light: Vec<u16>,
    from_light: Vec<u16>,
    /// The conversion of a color that is already gray.
    equal: Vec<u16>,
}

/// One, in the file's fixed-point format.
const GAMMA_ONE: f64 = 100_000.0;

impl Light {
    fn new(info: &Info<'_>, wide: bool) -> Option<Light> {
        let gamma = match info.srgb {
            Some(_) => 45_455,
            None => info.gama_chunk?.into_scaled(),
        };
        if !(16..=625_000_000).contains(&gamma) {
            return None;
        }
        let gamma = f64::from(gamma);
        let reciprocal = |gamma: f64| (1e10 / gamma + 0.5).floor();
        let screen = reciprocal(gamma);
        if !is_significant(gamma) && !is_significant(screen) {
            return None;
        }
        if info.bit_depth != BitDepth::Sixteen {
            let table = |exponent: f64| (0..=255).map(|value| corrected(value, 255, 255, exponent)).collect();
            return Some(Light {
                shift: 0,
                to_light: table(screen),
                from_light: table(reciprocal(screen)),
                equal: (0..=255).collect(),
            });
        }
        // If a number has fewer significant bits, or becomes a byte in the end, its lowest bits are dropped.
        let significant = info.sbit.as_ref().and_then(|bits| bits.iter().take(3).max().copied()).unwrap_or(16);
        let shift = if (1..16).contains(&significant) { 16 - u32::from(significant) } else { 0 };
        let shift = if wide { shift } else { shift.max(5) }.min(8);
        let last = (1u32 << (16 - shift)) - 1;
        let table = |exponent: f64| (0..=last).map(|value| corrected(value, last, 65_535, exponent)).collect();
        let equal = match wide {
            true => table((1e15 / gamma / screen + 0.5).floor()),
            false => narrowed(last, (gamma * screen / GAMMA_ONE + 0.5).floor()),
        };
        Some(Light { shift, to_light: table(screen), from_light: table(reciprocal(screen)), equal })
    }

    fn equal(&self, sample: u16) -> u16 {
        self.at(&self.equal, sample)
    }

    fn mixed(&self, color: [u16; 3]) -> u16 {
        let light = weighted(color.map(|sample| self.at(&self.to_light, sample)));
        self.at(&self.from_light, ((light + (1 << 14)) >> 15) as u16)
    }

    fn at(&self, table: &[u16], sample: u16) -> u16 {
        table.get(usize::from(sample >> self.shift)).copied().unwrap_or(sample)
    }
}

/// Returns whether an exponent differs enough from one to matter.
fn is_significant(gamma: f64) -> bool {
    !(95_000.0..=105_000.0).contains(&gamma)
}

/// Returns a number out of `0..=last` raised to a power, out of `0..=full`.
fn corrected(value: u32, last: u32, full: u32, exponent: f64) -> u16 {
    if !is_significant(exponent) {
        return ((value * full + last.div_ceil(2)) / last) as u16;
    }
    let part = f64::from(value) / f64::from(last);
    (f64::from(full) * part.powf(exponent / GAMMA_ONE) + 0.5).floor() as u16
}

/// Returns a table from numbers in `0..=last` to the nearest number that is a byte repeated twice.
fn narrowed(last: u32, exponent: f64) -> Vec<u16> {
    let mut table = Vec::with_capacity(last as usize + 1);
    for byte in 0..255u32 {
        let bound = (65_535.0 * (f64::from(byte * 257 + 128) / 65_535.0).powf(exponent / GAMMA_ONE) + 0.5).floor();
        let bound = (bound as u64 * u64::from(last) + 32_768) / 65_535 + 1;
        table.resize((bound as usize).clamp(table.len(), last as usize + 1), (byte * 257) as u16);
    }
    table.resize(last as usize + 1, 65_535);
    table
}

/// Encodes an image; samples of two bytes are big-endian.
pub(crate) fn write(
    samples: &[u8],
    (height, width, channels): (usize, usize, usize),
    depth: BitDepth,
    compression: i64,
) -> Result<Vec<u8>> {
    let failed = |error: String| Status::internal(format!("PNG encoding failed: {error}"));
    if height == 0 || width == 0 {
        return Err(failed("the picture is empty".to_owned()));
    }
    let side = |size: usize| u32::try_from(size).map_err(|error| failed(error.to_string()));
    let mut encoded = Vec::new();
    let mut encoder = png::Encoder::new(&mut encoded, side(width)?, side(height)?);
    encoder.set_depth(depth);
    encoder.set_color(match channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        _ => ColorType::Rgba,
    });
    match compression {
        0 => encoder.set_deflate_compression(DeflateCompression::NoCompression),
        level @ 1..=9 => {
            encoder.set_deflate_compression(DeflateCompression::Level(level as u8));
            encoder.set_filter(Filter::Adaptive);
        }
        _ => encoder.set_compression(png::Compression::Balanced),
    }
    let mut writer = encoder.write_header().map_err(|error| failed(error.to_string()))?;
    writer.write_image_data(samples).map_err(|error| failed(error.to_string()))?;
    writer.finish().map_err(|error| failed(error.to_string()))?;
    Ok(encoded)
}
