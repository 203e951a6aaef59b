//! Encoding of image files: EncodePng, EncodeJpeg, EncodeJpegVariableQuality.

use super::files;
use graph::Output;
use jpeg_encoder::{ColorType, Density, Encoder, SamplingFactor};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "EncodePng",
            inputs: &["image: T"],
            outputs: &["contents: string"],
            attrs: &["compression: int = -1", "T: {uint8, uint16} = DT_UINT8"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let images = c.with_rank_at_least(0, 3)?;
            c.set_output(
                0,
                match images.rank() {
                    Some(rank) => images.slice(0, rank - 3),
                    None => PartialShape::unknown(),
                },
            );
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(EncodePng::create)],
    },
    Op {
        def: OpDef {
            name: "EncodeJpeg",
            inputs: &["image: uint8"],
            outputs: &["contents: string"],
            attrs: &[
                "format: {'', 'grayscale', 'rgb'} = ''",
                "quality: int = 95",
                "progressive: bool = false",
                "optimize_size: bool = false",
                "chroma_downsampling: bool = true",
                "density_unit: {'in', 'cm'} = 'in'",
                "x_density: int = 300",
                "y_density: int = 300",
                "xmp_metadata: string = ''",
            ],
            flags: OpFlags::NONE,
        },
        shape: one_picture,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(EncodeJpeg::create)],
    },
    Op {
        def: OpDef {
            name: "EncodeJpegVariableQuality",
            inputs: &["images: uint8", "quality: int32"],
            outputs: &["contents: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(1, 0)?;
            one_picture(c)
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(EncodeJpeg::default()))],
    },
];

/// Returns an image as a PNG file; a batch of images gives a file for each.
#[track_caller]
pub fn encode_png(image: &Output) -> Output {
    image.graph().op("EncodePng").input(image).output()
}

/// Returns an image of bytes as a JPEG file with a quality from 0 to 100.
#[track_caller]
pub fn encode_jpeg(image: &Output, quality: i64) -> Output {
    image.graph().op("EncodeJpeg").input(image).attr("quality", quality).output()
}

fn one_picture(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 3)?;
    c.set_output(0, PartialShape::scalar());
    Ok(())
}

struct EncodePng {
    compression: i64,
}

impl EncodePng {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let compression = builder.attrs().int("compression")?;
        if !(-1..=9).contains(&compression) {
            return Err(Status::invalid_argument(format!("compression should be in [-1,9], got {compression}")));
        }
        BoxedKernel::new(EncodePng { compression })
    }
}

impl Kernel for EncodePng {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let images = context.input(0)?;
        let shape = images.shape();
        if shape.rank() < 3 {
            return Err(Status::invalid_argument(format!("images must be at least rank 3{shape}")));
        }
        if images.num_elements() >= i32::MAX as usize {
            return Err(Status::invalid_argument("image cannot have >= int32 max elements"));
        }
        let batch = shape.slice(0, shape.rank() - 3);
        let sizes = shape.slice(shape.rank() - 3, shape.rank());
        let sizes = (sizes.size(0), sizes.size(1), sizes.size(2));
        if !(1..=4).contains(&sizes.2) {
            return Err(Status::invalid_argument(format!("image must have 1, 2, 3, or 4 channels, got {}", sizes.2)));
        }
        let length = sizes.0 * sizes.1 * sizes.2;
        let mut files = Vec::with_capacity(batch.num_elements());
        for index in 0..batch.num_elements() {
            let part = index * length..(index + 1) * length;
            files.push(match images.dtype() {
                DType::UInt8 => {
                    files::png::write(&images.as_slice::<u8>()?[part], sizes, png::BitDepth::Eight, self.compression)?
                }
                _ => {
                    let samples = &images.as_slice::<u16>()?[part];
                    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_be_bytes()).collect();
                    files::png::write(&bytes, sizes, png::BitDepth::Sixteen, self.compression)?
                }
            });
        }
        context.set_output(0, Tensor::from_strings(batch, files.into_iter().map(Into::into).collect())?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct EncodeJpeg {
    format: String,
    /// An input if it is not an attribute.
    quality: Option<i64>,
    progressive: bool,
    optimize_size: bool,
    chroma_downsampling: bool,
    density: Density,
    xmp_metadata: Vec<u8>,
}

impl Default for EncodeJpeg {
    fn default() -> EncodeJpeg {
        EncodeJpeg {
            format: String::new(),
            quality: None,
            progressive: false,
            optimize_size: false,
            chroma_downsampling: true,
            density: Density::Inch { x: 300, y: 300 },
            xmp_metadata: Vec::new(),
        }
    }
}

impl EncodeJpeg {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let quality = attrs.int("quality")?;
        if !(0..=100).contains(&quality) {
            return Err(Status::invalid_argument(format!("quality must be in [0,100], got {quality}")));
        }
        // The file has sixteen bits per channel.
        let (x, y) = (attrs.int("x_density")? as u16, attrs.int("y_density")? as u16);
        BoxedKernel::new(EncodeJpeg {
            format: attrs.string("format")?,
            quality: Some(quality),
            progressive: attrs.bool("progressive")?,
            optimize_size: attrs.bool("optimize_size")?,
            chroma_downsampling: attrs.bool("chroma_downsampling")?,
            density: match attrs.string("density_unit")?.as_str() {
                "cm" => Density::Centimeter { x, y },
                _ => Density::Inch { x, y },
            },
            xmp_metadata: attrs.bytes("xmp_metadata")?.to_vec(),
        })
    }

    fn encode(&self, pixels: &[u8], height: usize, width: usize, color: ColorType, quality: i64) -> Option<Vec<u8>> {
        let side = |size: usize| u16::try_from(size).ok().filter(|size| (1..=65500).contains(size));
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, quality.clamp(1, 100) as u8);
        encoder.set_density(self.density);
        encoder.set_progressive(self.progressive);
        encoder.set_optimized_huffman_tables(self.optimize_size || self.progressive);
        let smaller = self.chroma_downsampling && color == ColorType::Rgb;
        encoder.set_sampling_factor(if smaller { SamplingFactor::F_2_2 } else { SamplingFactor::F_1_1 });
        if !self.xmp_metadata.is_empty() {
            let segment = [b"http://ns.adobe.com/xap/1.0/\0", &self.xmp_metadata[..]].concat();
            encoder.add_app_segment(1, &segment).ok()?;
        }
        let (columns, rows) = (side(width)?, side(height)?);
        match smaller {
            true => encoder.encode(&with_mean_chroma(pixels, width), columns, rows, ColorType::Ycbcr).ok()?,
            false => encoder.encode(pixels, columns, rows, color).ok()?,
        }
        Some(file)
    }
}

/// Returns RGB pixels as luma and chroma. The chroma of each pixel is the mean of its block of four, of which the encoder uses
/// one.
fn with_mean_chroma(pixels: &[u8], width: usize) -> Vec<u8> {
    let mut converted: Vec<u8> = Vec::with_capacity(pixels.len());
    for pixel in pixels.as_chunks::<3>().0 {
        let [red, green, blue] = pixel.map(i32::from);
        let middle = (128 << 16) + (1 << 15) - 1;
        let values = [
            19595 * red + 38470 * green + 7471 * blue + (1 << 15),
            -11059 * red - 21709 * green + 32768 * blue + middle,
            32768 * red - 27439 * green - 5329 * blue + middle,
        ];
        converted.extend(values.map(|value| (value >> 16) as u8));
    }
    for pair in converted.chunks_mut(2 * 3 * width) {
        let (upper, lower) = pair.split_at_mut(3 * width);
        for cell in 0..width.div_ceil(2) {
            let (left, right) = (cell * 2, (cell * 2 + 1).min(width - 1));
            // Halves are rounded down and up alternately.
            let bias = 1 + cell as u32 % 2;
            for channel in 1..3 {
                let sample = |row: &[u8], column: usize| u32::from(row[column * 3 + channel]);
                let below =
                    |column: usize| if lower.is_empty() { sample(upper, column) } else { sample(lower, column) };
                let edge = 2 * (sample(upper, right) + below(right));
                let sum = sample(upper, left) + below(left) + edge / 2;
                let mean = ((sum + bias) >> 2) as u8;
                // The last column is repeated beyond the image, as before the mean was taken.
                let last = if right + 1 == width { ((edge + bias) >> 2) as u8 } else { mean };
                for row in [&mut *upper, &mut *lower] {
                    if !row.is_empty() {
                        row[right * 3 + channel] = last;
                        row[left * 3 + channel] = mean;
                    }
                }
            }
        }
    }
    converted
}

impl Kernel for EncodeJpeg {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let image = context.input(0)?;
        let shape = image.shape();
        if shape.rank() != 3 {
            return Err(Status::invalid_argument(format!("image must be 3-dimensional{shape}")));
        }
        if image.num_elements() >= i32::MAX as usize {
            return Err(Status::invalid_argument("Cannot encode images with >= max int32 elements"));
        }
        let color = match (self.format.as_str(), shape.size(2)) {
            ("" | "grayscale", 1) => ColorType::Luma,
            ("" | "rgb", 3) => ColorType::Rgb,
            ("", _) => {
                return Err(Status::invalid_argument(format!("image must have 1 or 3 channels, got {shape}")));
            }
            (format, _) => {
                let channels = if format == "rgb" { 3 } else { 1 };
                return Err(Status::invalid_argument(format!(
                    "format {format} expects {channels} channels, got {shape}"
                )));
            }
        };
        let quality = match self.quality {
            Some(quality) => quality,
            None => i64::from(context.scalar::<i32>(1, "quality")?),
        };
        if !(0..=100).contains(&quality) {
            return Err(Status::invalid_argument(format!("quality must be in [0,100], got {quality}")));
        }
        let file = self
            .encode(image.as_slice::<u8>()?, shape.size(0), shape.size(1), color, quality)
            .ok_or_else(|| Status::internal("JPEG encoding failed"))?;
        context.set_output(0, Tensor::from_strings(Shape::scalar(), vec![file.into()])?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}
