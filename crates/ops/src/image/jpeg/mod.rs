//! Decoding of JPEG files: markers, frames and scans.
//!
//! DecodeJpeg has options that no crate supports: smaller sizes directly from the coefficients, two transforms, plain or smooth
//! chroma, truncated files. Its results equal those of the library that TensorFlow uses, including rounding, so that a model sees
//! the same pixels in both.

mod entropy;
mod pixels;
mod transform;

use entropy::{Bits, Huffman};

/// The most samples of an image, as in TensorFlow.
const MOST_SAMPLES: usize = 1 << 29;
/// The most coefficients that are kept, whatever the requested size.
const MOST_COEFFICIENTS: usize = 1 << 30;
const LARGEST_SIDE: usize = 65500;
/// The most scans. Normal files have about ten; each one costs a pass over the image.
const MOST_SCANS: usize = 1000;
/// The storage order of a block's coefficients.
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Decoding options.
#[derive(Clone)]
pub(super) struct Options {
    /// One for gray, three for colors, zero for those of the file.
    pub channels: usize,
    /// The factor by which the image is reduced: 1, 2, 4 or 8.
    pub ratio: usize,
    /// Whether chroma is smoothed when it is upsampled.
    pub fancy_upscaling: bool,
    /// Whether the missing part of a truncated file is taken as empty.
    pub recover_truncated: bool,
    /// The fraction of the rows that must be present.
    pub acceptable_fraction: f32,
    /// Whether the fast transform is used.
    pub fast_transform: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            channels: 0,
            ratio: 1,
            fancy_upscaling: true,
            recover_truncated: false,
            acceptable_fraction: 1.0,
            fast_transform: true,
        }
    }
}

/// A part of an image, in pixels of the result.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub top: i32,
    pub left: i32,
    pub height: i32,
    pub width: i32,
}

/// A decoded image: rows of pixels with this many channels.
pub(super) struct Picture {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub pixels: Vec<u8>,
}

/// Returns the image, or `None` if the file is invalid or the window isn't inside.
pub(super) fn decode(data: &[u8], options: &Options, window: Option<Window>) -> Option<Picture> {
    let mut file = File::new(data, options.recover_truncated)?;
    // Unsupported files are refused before their scans are read.
    let space = loop {
        match file.next_segment()? {
            Segment::Scan => break file.color_space()?,
            Segment::End => return None,
            Segment::Other => {}
        }
    };
    let layout = pixels::Layout::new(file.frame.as_ref()?, space, options, window)?;
    file.read_scans()?;
    let rows = file.complete_rows(options)?;
    let mut frame = file.frame?;
    frame.inverted_inks = file.adobe_transform.is_some();
    layout.render(frame, options, rows)
}

/// Returns height, width and channels from a file's header.
pub(super) fn shape(data: &[u8]) -> Option<(usize, usize, usize)> {
    let mut file = File::new(data, false)?;
    while !matches!(file.next_segment()?, Segment::Scan) {
        if file.ended {
            return None;
        }
    }
    let space = file.color_space()?;
    let frame = file.frame.as_ref()?;
    let (size, count, several) = ((frame.height, frame.width), frame.components.len(), frame.progressive);
    if several || file.scan.components.len() < count {
        file.read_scans()?;
        if file.truncated_at.is_some() {
            return None;
        }
    }
    let channels = match space {
        ColorSpace::Gray => 1,
        ColorSpace::Rgb | ColorSpace::Ycc => 3,
        ColorSpace::Cmyk | ColorSpace::Ycck => 4,
        ColorSpace::Unknown => count,
    };
    Some((size.0, size.1, channels))
}

/// The meaning of a file's components.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ColorSpace {
    Gray,
    Rgb,
    Ycc,
    Cmyk,
    Ycck,
    Unknown,
}

struct Component {
    id: u8,
    horizontal: usize,
    vertical: usize,
    quantization_index: usize,
    /// The table as it was when the component's first scan began.
    quantization: Option<[u16; 64]>,
    /// The number of blocks with samples of the image.
    blocks_wide: usize,
    blocks_high: usize,
    /// The number of blocks in a row of coefficients, including padding of the last unit.
    stride: usize,
    coefficients: Vec<i16>,
    prediction: i32,
}

struct Frame {
    progressive: bool,
    height: usize,
    width: usize,
    most_horizontal: usize,
    most_vertical: usize,
    units_wide: usize,
    units_high: usize,
    /// Whether inks are stored inverted.
    inverted_inks: bool,
    components: Vec<Component>,
}

#[derive(Default)]
struct Scan {
    /// Component, DC table, AC table.
    components: Vec<(usize, usize, usize)>,
    start: usize,
    end: usize,
    high: u32,
    low: u32,
}

enum Segment {
    Scan,
    End,
    Other,
}

struct File<'a> {
    data: &'a [u8],
    position: usize,
    recover: bool,
    quantization: [Option<[u16; 64]>; 4],
    dc_tables: [Option<Huffman>; 4],
    ac_tables: [Option<Huffman>; 4],
    restart_interval: usize,
    jfif: bool,
    adobe_transform: Option<u8>,
    frame: Option<Frame>,
    scan: Scan,
    ended: bool,
    /// The row of units in which the data ended.
    truncated_at: Option<usize>,
}

impl<'a> File<'a> {
    fn new(data: &'a [u8], recover: bool) -> Option<File<'a>> {
        if !data.starts_with(&[0xff, 0xd8]) {
            return None;
        }
        Some(File {
            data,
            position: 2,
            recover,
            quantization: [None; 4],
            dc_tables: Default::default(),
            ac_tables: Default::default(),
            restart_interval: 0,
            jfif: false,
            adobe_transform: None,
            frame: None,
            scan: Scan::default(),
            ended: false,
            truncated_at: None,
        })
    }

    /// Reads up to the next relevant marker, and its segment.
    fn next_segment(&mut self) -> Option<Segment> {
        let Some(marker) = self.next_marker() else {
            // If truncated files are accepted, the end of the file is treated as an end marker.
            self.ended = true;
            return self.recover.then_some(Segment::End);
        };
        match marker {
            0xc0..=0xc2 => {
                let body = self.body()?;
                self.frame = Some(Frame::read(body, marker == 0xc2).filter(|_| self.frame.is_none())?);
            }
            0xc4 => self.read_huffman_tables()?,
            0xdb => self.read_quantization()?,
            0xdd => {
                let &[high, low] = self.body()? else { return None };
                self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
            }
            0xda => {
                self.read_scan_head()?;
                return Some(Segment::Scan);
            }
            0xd9 => {
                self.ended = true;
                return Some(Segment::End);
            }
            0xe0 => self.jfif |= self.body()?.starts_with(b"JFIF\0"),
            0xee => {
                let body = self.body()?;
                if body.len() >= 12 && body.starts_with(b"Adobe") {
                    self.adobe_transform = Some(body[11]);
                }
            }
            0xe1..=0xef | 0xfe | 0xdc => drop(self.body()?),
            0x01 | 0xd0..=0xd7 => {}
            _ => return None,
        }
        Some(Segment::Other)
    }

    fn next_marker(&mut self) -> Option<u8> {
        loop {
            let start = self.data.get(self.position..)?.iter().position(|&byte| byte == 0xff)?;
            self.position += start;
            while *self.data.get(self.position)? == 0xff {
                self.position += 1;
            }
            let marker = self.data[self.position];
            self.position += 1;
            if marker != 0 {
                return Some(marker);
            }
        }
    }

    /// Returns the bytes of a marker's segment.
    fn body(&mut self) -> Option<&'a [u8]> {
        let length = self.data.get(self.position..self.position + 2)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let body = self.data.get(self.position + 2..self.position.checked_add(length)?)?;
        self.position += length;
        Some(body)
    }

    fn read_quantization(&mut self) -> Option<()> {
        let mut body = self.body()?;
        while let Some((&head, rest)) = body.split_first() {
            let wide = head >> 4 != 0;
            let size = if wide { 128 } else { 64 };
            let values = rest.get(..size)?;
            let mut table = [0u16; 64];
            for (index, &place) in ZIGZAG.iter().enumerate() {
                table[usize::from(place)] = match wide {
                    true => u16::from_be_bytes([values[2 * index], values[2 * index + 1]]),
                    false => u16::from(values[index]),
                };
            }
            *self.quantization.get_mut(usize::from(head & 15))? = Some(table);
            body = &rest[size..];
        }
        Some(())
    }

    fn read_huffman_tables(&mut self) -> Option<()> {
        let mut body = self.body()?;
        while let Some((&head, rest)) = body.split_first() {
            let counts = rest.get(..16)?;
            let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let symbols = rest.get(16..16 + total)?;
            let is_dc = head & 0x10 == 0;
            let tables = if is_dc { &mut self.dc_tables } else { &mut self.ac_tables };
            *tables.get_mut(usize::from(head & 0xef))? = Some(Huffman::new(counts, symbols, is_dc)?);
            body = &rest[16 + total..];
        }
        Some(())
    }

    fn read_scan_head(&mut self) -> Option<()> {
        let body = self.body()?;
        let frame = self.frame.as_mut()?;
        let (&count, rest) = body.split_first()?;
        let count = usize::from(count);
        if !(1..=4).contains(&count) || rest.len() != 2 * count + 3 {
            return None;
        }
        let mut scan = Scan::default();
        for pair in rest[..2 * count].chunks_exact(2) {
            let index = frame.components.iter().position(|component| component.id == pair[0])?;
            if scan.components.iter().any(|&(other, ..)| other == index) {
                return None;
            }
            scan.components.push((index, usize::from(pair[1] >> 4), usize::from(pair[1] & 15)));
            let component = &mut frame.components[index];
            if component.quantization.is_none() {
                component.quantization = Some((*self.quantization.get(component.quantization_index)?)?);
            }
        }
        let &[start, end, bits] = &rest[2 * count..] else { return None };
        (scan.start, scan.end) = if frame.progressive { (usize::from(start), usize::from(end)) } else { (0, 63) };
        (scan.high, scan.low) = if frame.progressive { (u32::from(bits >> 4), u32::from(bits & 15)) } else { (0, 0) };
        let bad_spectrum = match scan.start {
            0 => frame.progressive && scan.end != 0,
            start => start > scan.end || scan.end > 63 || count != 1,
        };
        if bad_spectrum || scan.low > 13 || (scan.high != 0 && scan.high != scan.low + 1) {
            return None;
        }
        self.scan = scan;
        Some(())
    }

    fn color_space(&self) -> Option<ColorSpace> {
        let components = &self.frame.as_ref()?.components;
        Some(match (components.len(), self.adobe_transform) {
            (1, _) => ColorSpace::Gray,
            (3, _) if self.jfif => ColorSpace::Ycc,
            (3, Some(0)) => ColorSpace::Rgb,
            (3, None) if components.iter().map(|one| one.id).eq(*b"RGB") => ColorSpace::Rgb,
            (3, _) => ColorSpace::Ycc,
            (4, None | Some(0)) => ColorSpace::Cmyk,
            (4, _) => ColorSpace::Ycck,
            _ => ColorSpace::Unknown,
        })
    }

    /// Reads the scan whose header has been read, and all others.
    fn read_scans(&mut self) -> Option<()> {
        let frame = self.frame.as_mut()?;
        if frame.coefficient_count() > MOST_COEFFICIENTS {
            return None;
        }
        frame.allocate();
        for _ in 0..MOST_SCANS {
            self.read_scan()?;
            if self.truncated_at.is_some() {
                return Some(());
            }
            loop {
                match self.next_segment()? {
                    Segment::Scan => break,
                    Segment::End => return Some(()),
                    Segment::Other => {}
                }
            }
        }
        None
    }

    fn read_scan(&mut self) -> Option<()> {
        let frame = self.frame.as_mut()?;
        let scan = &self.scan;
        let tables = |wanted: bool, tables: &'_ [Option<Huffman>; 4], index: usize| {
            let table = tables.get(index).and_then(Option::as_ref);
            if wanted && table.is_none() { None } else { Some(table.cloned().unwrap_or_default()) }
        };
        let first = scan.high == 0;
        let mut decoder = entropy::Blocks {
            bits: Bits::new(self.data, self.position),
            progressive: frame.progressive,
            start: scan.start,
            end: scan.end,
            refining: !first,
            low: scan.low,
            run: 0,
        };
        let mut parts = Vec::with_capacity(scan.components.len());
        for &(index, dc, ac) in &scan.components {
            let needs_dc = scan.start == 0 && first;
            let needs_ac = !frame.progressive || scan.start > 0;
            parts.push((index, tables(needs_dc, &self.dc_tables, dc)?, tables(needs_ac, &self.ac_tables, ac)?));
            frame.components[index].prediction = 0;
        }
        let single = parts.len() == 1;
        let (wide, high) = match (single, parts.first()) {
            (true, Some(&(index, ..))) => (frame.components[index].blocks_wide, frame.components[index].blocks_high),
            _ => (frame.units_wide, frame.units_high),
        };
        let blocks_in_unit: usize = parts
            .iter()
            .map(|&(index, ..)| frame.components[index].horizontal * frame.components[index].vertical)
            .sum();
        if !single && blocks_in_unit > 10 {
            return None;
        }
        let total = wide * high;
        let mut unit = 0;
        while unit < total {
            let until = match self.restart_interval {
                0 => total,
                interval => total.min(unit + interval),
            };
            while unit < until && !decoder.bits.exhausted() {
                let (row, column) = (unit / wide, unit % wide);
                for (index, dc, ac) in &parts {
                    let component = &mut frame.components[*index];
                    let (across, down) = if single { (1, 1) } else { (component.horizontal, component.vertical) };
                    for y in row * down..(row + 1) * down {
                        for x in column * across..(column + 1) * across {
                            let place = (y * component.stride + x) * 64;
                            let block = component.coefficients.get_mut(place..place + 64)?;
                            decoder.read(block.try_into().ok()?, dc, ac, &mut component.prediction);
                        }
                    }
                }
                if decoder.bits.ended() && !self.recover {
                    // Incomplete units make their row of units incomplete.
                    let rows = if single { row / frame.components[parts[0].0].vertical } else { row };
                    let whole = frame.progressive || parts.len() < frame.components.len();
                    self.truncated_at = Some(if whole { 0 } else { rows });
                    return (!whole).then_some(());
                }
                unit += 1;
            }
            unit = until;
            if unit < total && !decoder.restart() {
                break;
            }
            for (index, ..) in &parts {
                frame.components[*index].prediction = 0;
            }
        }
        self.position = decoder.bits.position();
        Some(())
    }

    /// Returns the number of rows that could be read, unless they are too few.
    fn complete_rows(&self, options: &Options) -> Option<usize> {
        let frame = self.frame.as_ref()?;
        let Some(units) = self.truncated_at else { return Some(usize::MAX) };
        let scaled = 8 / options.ratio;
        // Smoothing uses the row below, so a complete row of units gives all rows except its last.
        let smooth = options.fancy_upscaling && scaled > 1 && frame.components.len() > 1 && frame.most_vertical == 2;
        let rows = (units * frame.most_vertical * scaled).saturating_sub(if smooth { 2 } else { 0 });
        let height = (frame.height * scaled).div_ceil(8);
        let fraction = rows as f32 / height as f32;
        (fraction >= options.acceptable_fraction.min(1.0)).then_some(rows)
    }
}

impl Frame {
    fn read(body: &[u8], progressive: bool) -> Option<Frame> {
        let (head, rest) = body.split_at_checked(6)?;
        let height = usize::from(u16::from_be_bytes([head[1], head[2]]));
        let width = usize::from(u16::from_be_bytes([head[3], head[4]]));
        let count = usize::from(head[5]);
        let sides = 1..=LARGEST_SIDE;
        if head[0] != 8 || !sides.contains(&height) || !sides.contains(&width) {
            return None;
        }
        if !(1..=10).contains(&count) || rest.len() != 3 * count {
            return None;
        }
        let mut components = Vec::with_capacity(count);
        for part in rest.chunks_exact(3) {
            let (horizontal, vertical) = (usize::from(part[1] >> 4), usize::from(part[1] & 15));
            if !(1..=4).contains(&horizontal) || !(1..=4).contains(&vertical) {
                return None;
            }
            components.push(Component {
                id: part[0],
                horizontal,
                vertical,
                quantization_index: usize::from(part[2]),
                quantization: None,
                blocks_wide: 0,
                blocks_high: 0,
                stride: 0,
                coefficients: Vec::new(),
                prediction: 0,
            });
        }
        let most_horizontal = components.iter().map(|one| one.horizontal).max()?;
        let most_vertical = components.iter().map(|one| one.vertical).max()?;
        let (units_wide, units_high) = (width.div_ceil(8 * most_horizontal), height.div_ceil(8 * most_vertical));
        for component in &mut components {
            component.blocks_wide = (width * component.horizontal).div_ceil(8 * most_horizontal);
            component.blocks_high = (height * component.vertical).div_ceil(8 * most_vertical);
            component.stride = units_wide * component.horizontal;
        }
        Some(Frame {
            progressive,
            height,
            width,
            most_horizontal,
            most_vertical,
            units_wide,
            units_high,
            inverted_inks: false,
            components,
        })
    }

    fn coefficient_count(&self) -> usize {
        self.components.iter().map(|one| self.coefficients_of(one)).sum()
    }

    fn coefficients_of(&self, component: &Component) -> usize {
        component.stride * self.units_high * component.vertical * 64
    }

    fn allocate(&mut self) {
        for index in 0..self.components.len() {
            let count = self.coefficients_of(&self.components[index]);
            // Fresh zeros take memory only where the file has data.
            self.components[index].coefficients = vec![0; count];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    const HEIGHT: usize = 29;
    const WIDTH: usize = 37;

    fn picture(channels: usize) -> Vec<u8> {
        let sample = |index: usize| {
            let (pixel, channel) = (index / channels, (index % channels) as f64);
            let (y, x) = ((pixel / WIDTH) as f64, (pixel % WIDTH) as f64);
            (128.0 + 90.0 * (x / 9.0 + channel).sin() * (y / 8.0 - channel).cos()) as u8
        };
        (0..HEIGHT * WIDTH * channels).map(sample).collect()
    }

    fn encoded(color: ColorType, pixels: &[u8], set: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 95);
        set(&mut encoder);
        encoder.encode(pixels, WIDTH as u16, HEIGHT as u16, color).unwrap();
        file
    }

    fn mean_error(a: &[u8], b: &[u8]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(&a, &b)| f64::from(a.abs_diff(b))).sum::<f64>() / a.len() as f64
    }

    #[test]
    fn every_sampling_and_order_gives_the_picture_back() {
        let pixels = picture(3);
        for sampling in [
            SamplingFactor::F_1_1,
            SamplingFactor::F_2_1,
            SamplingFactor::F_1_2,
            SamplingFactor::F_2_2,
            SamplingFactor::F_4_1,
        ] {
            for (progressive, restarts) in [(false, 0), (false, 3), (true, 0), (true, 2)] {
                let file = encoded(ColorType::Rgb, &pixels, |encoder| {
                    encoder.set_sampling_factor(sampling);
                    encoder.set_progressive(progressive);
                    encoder.set_restart_interval(restarts);
                });
                for fast_transform in [false, true] {
                    let options = Options { fast_transform, ..Options::default() };
                    let read = decode(&file, &options, None).unwrap();
                    assert_eq!((read.height, read.width, read.channels), (HEIGHT, WIDTH, 3));
                    let error = mean_error(&read.pixels, &pixels);
                    // Means of four pixels in a row differ more from the image's colors.
                    let bound = if matches!(sampling, SamplingFactor::F_4_1) { 7.0 } else { 5.0 };
                    assert!(error < bound, "{sampling:?} {progressive} {restarts}: {error}");
                }
                assert_eq!(shape(&file), Some((HEIGHT, WIDTH, 3)));
            }
        }
    }

    #[test]
    fn gray_and_inks() {
        let gray = encoded(ColorType::Luma, &picture(1), |_| ());
        let read = decode(&gray, &Options::default(), None).unwrap();
        assert!(mean_error(&read.pixels, &picture(1)) < 2.0);
        let colors = decode(&gray, &Options { channels: 3, ..Options::default() }, None).unwrap();
        assert!(colors.pixels.as_chunks::<3>().0.iter().zip(&read.pixels).all(|(color, &gray)| *color == [gray; 3]));
        for color in [ColorType::Cmyk, ColorType::CmykAsYcck] {
            let file = encoded(color, &picture(4), |_| ());
            assert_eq!(shape(&file), Some((HEIGHT, WIDTH, 4)));
            assert_eq!(decode(&file, &Options::default(), None).unwrap().channels, 3);
            assert!(decode(&file, &Options { channels: 1, ..Options::default() }, None).is_none());
        }
    }

    #[test]
    fn windows_are_parts_of_the_whole() {
        // Without subsampled chroma, whose smoothing ends at a window's edges.
        let file = encoded(ColorType::Rgb, &picture(3), |encoder| encoder.set_sampling_factor(SamplingFactor::F_1_1));
        let whole = decode(&file, &Options::default(), None).unwrap();
        let window = Window { top: 5, left: 7, height: 11, width: 13 };
        let part = decode(&file, &Options::default(), Some(window)).unwrap();
        for y in 0..11 {
            let from = ((5 + y) * WIDTH + 7) * 3;
            assert_eq!(part.pixels[y * 39..(y + 1) * 39], whole.pixels[from..from + 39]);
        }
        for window in [(0, 0, 30, 1), (0, 0, 1, 38), (-1, 0, 2, 2), (0, 0, 0, 1), (1, i32::MAX, 1, i32::MAX)] {
            let (top, left, height, width) = window;
            assert!(decode(&file, &Options::default(), Some(Window { top, left, height, width })).is_none());
        }
    }

    #[test]
    fn a_smaller_picture_is_still_the_picture() {
        let file = encoded(ColorType::Luma, &picture(1), |_| ());
        for ratio in [2, 4, 8] {
            let small = decode(&file, &Options { ratio, ..Options::default() }, None).unwrap();
            assert_eq!((small.height, small.width), (HEIGHT.div_ceil(ratio), WIDTH.div_ceil(ratio)));
            let mean = |pixels: &[u8]| pixels.iter().map(|&x| f64::from(x)).sum::<f64>() / pixels.len() as f64;
            assert!((mean(&small.pixels) - mean(&picture(1))).abs() < 8.0);
        }
    }

    #[test]
    fn files_that_are_cut_or_damaged_do_no_harm() {
        let pixels = picture(3);
        let recover = Options { recover_truncated: true, ..Options::default() };
        for progressive in [false, true] {
            let file = encoded(ColorType::Rgb, &pixels, |encoder| encoder.set_progressive(progressive));
            for length in 0..file.len() {
                assert!(decode(&file[..length], &Options::default(), None).is_none(), "{length}");
                decode(&file[..length], &recover, None);
            }
            let mut state = 7u32;
            let mut random = |below: usize| {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                (state >> 8) as usize % below
            };
            let frame = file.windows(2).position(|pair| matches!(pair, [0xff, 0xc0 | 0xc2])).unwrap();
            for _ in 0..300 {
                let mut damaged = file.clone();
                for _ in 0..3 {
                    let place = random(damaged.len());
                    damaged[place] = random(256) as u8;
                }
                // Another size would work as well, but take longer.
                damaged[frame + 5..frame + 9].copy_from_slice(&file[frame + 5..frame + 9]);
                decode(&damaged, &recover, None);
                shape(&damaged);
            }
        }
    }
}
