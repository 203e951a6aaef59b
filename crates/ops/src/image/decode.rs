//! Decoding of image files: DecodePng, DecodeJpeg, DecodeAndCropJpeg, DecodeGif, DecodeBmp, DecodeImage, ExtractJpegShape.
//!
//! As in TensorFlow, the file's first bytes determine its format, and most of the ops decode most formats; they differ in their
//! attributes and in the shape that they promise.

use super::files::{Picture, Samples};
use super::{files, jpeg};
use graph::Output;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const CONTENTS: &[&str] = &["contents: string"];
const CHANNELS: &str = "channels: int = 0";
const JPEG_ATTRS: &[&str] = &[
    CHANNELS,
    "ratio: int = 1",
    "fancy_upscaling: bool = true",
    "try_recover_truncated: bool = false",
    "acceptable_fraction: float = 1.0",
    "dct_method: string = ''",
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DecodePng",
            inputs: CONTENTS,
            outputs: &["image: dtype"],
            attrs: &[CHANNELS, "dtype: {uint8, uint16} = DT_UINT8"],
            flags: OpFlags::NONE,
        },
        shape: picture_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Decode::create(builder, Reader::Png))],
    },
    Op {
        def: OpDef {
            name: "DecodeJpeg",
            inputs: CONTENTS,
            outputs: &["image: uint8"],
            attrs: JPEG_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: picture_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Decode::create(builder, Reader::Jpeg))],
    },
    Op {
        def: OpDef {
            name: "DecodeAndCropJpeg",
            inputs: &["contents: string", "crop_window: int32"],
            outputs: &["image: uint8"],
            attrs: JPEG_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: window_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Decode::create(builder, Reader::JpegWindow))],
    },
    Op {
        def: OpDef {
            name: "DecodeGif",
            inputs: CONTENTS,
            outputs: &["image: uint8"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: animation_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Decode::create(builder, Reader::Gif))],
    },
    Op {
        def: OpDef {
            name: "DecodeBmp",
            inputs: CONTENTS,
            outputs: &["image: uint8"],
            attrs: &[CHANNELS],
            flags: OpFlags::NONE,
        },
        shape: picture_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Decode::create(builder, Reader::Bmp))],
    },
    Op {
        def: OpDef {
            name: "DecodeImage",
            inputs: CONTENTS,
            outputs: &["image: dtype"],
            attrs: &[CHANNELS, "dtype: {uint8, uint16, float} = DT_UINT8", "expand_animations: bool = true"],
            flags: OpFlags::NONE,
        },
        shape: any_picture_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| Decode::create(builder, Reader::Any))],
    },
    Op {
        def: OpDef {
            name: "ExtractJpegShape",
            inputs: CONTENTS,
            outputs: &["image_shape: output_type"],
            attrs: &["output_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 0)?;
            c.set_output(0, PartialShape::from_dims(&[3]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(JpegShape { is_long: builder.output_dtype(0) == DType::Int64 })
        })],
    },
];

/// Returns the pixels of a JPEG file: height, width and channels. Zero channels means as many as in the file.
#[track_caller]
pub fn decode_jpeg(contents: &Output, channels: i64) -> Output {
    contents.graph().op("DecodeJpeg").input(contents).attr("channels", channels).output()
}

/// Returns the pixels of a PNG file as bytes: height, width and channels. Zero channels means as many as in the file.
#[track_caller]
pub fn decode_png(contents: &Output, channels: i64) -> Output {
    contents.graph().op("DecodePng").input(contents).attr("channels", channels).output()
}

/// Returns the frames of a GIF file: frames, height, width and three channels.
#[track_caller]
pub fn decode_gif(contents: &Output) -> Output {
    contents.graph().op("DecodeGif").input(contents).output()
}

/// Returns the pixels of a BMP file.
#[track_caller]
pub fn decode_bmp(contents: &Output, channels: i64) -> Output {
    contents.graph().op("DecodeBmp").input(contents).attr("channels", channels).output()
}

fn channels_of(c: &ShapeContext<'_>) -> Result<Option<i64>> {
    match c.attrs.int("channels")? {
        0 => Ok(None),
        channels if channels < 0 => {
            Err(Status::invalid_argument(format!("channels must be non-negative, got {channels}")))
        }
        channels => Ok(Some(channels)),
    }
}

fn picture_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let channels = channels_of(c)?;
    c.set_output(0, PartialShape::new(&[None, None, channels]));
    Ok(())
}

fn window_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let channels = channels_of(c)?;
    c.with_rank(1, 1)?.merge(&PartialShape::from_dims(&[4]))?;
    let (mut height, mut width) = (None, None);
    if let Some(window) = c.constant(1)
        && let &[_, _, rows, columns] = window.as_slice::<i32>()?
    {
        (height, width) = (Some(i64::from(rows)), Some(i64::from(columns)));
    }
    c.set_output(0, PartialShape::new(&[height, width, channels]));
    Ok(())
}

fn animation_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    c.set_output(0, PartialShape::new(&[None, None, None, Some(3)]));
    Ok(())
}

fn any_picture_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let channels = channels_of(c)?;
    match c.attrs.bool("expand_animations")? {
        true => c.set_output(0, PartialShape::unknown()),
        false => c.set_output(0, PartialShape::new(&[None, None, channels])),
    }
    Ok(())
}

/// Which op reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Png,
    Jpeg,
    JpegWindow,
    Gif,
    Bmp,
    Any,
}

/// The format of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Jpeg,
    Png,
    Gif,
    Bmp,
}

impl Format {
    fn of(contents: &[u8]) -> Result<Format> {
        const BEGINNINGS: [(&[u8], Format); 4] = [
            (b"\xff\xd8\xff", Format::Jpeg),
            (b"\x89PNG\r\n\x1a\n", Format::Png),
            (b"GIF8", Format::Gif),
            (b"BM", Format::Bmp),
        ];
        let found = BEGINNINGS.iter().find(|(beginning, _)| contents.starts_with(beginning));
        found
            .map(|&(_, format)| format)
            .ok_or_else(|| Status::invalid_argument("Unknown image file format. One of JPEG, PNG, GIF, BMP required."))
    }

    fn name(self) -> &'static str {
        match self {
            Format::Jpeg => "JPEG",
            Format::Png => "PNG",
            Format::Gif => "GIF",
            Format::Bmp => "BMP",
        }
    }
}

struct Decode {
    reader: Reader,
    channels: usize,
    dtype: DType,
    expand_animations: bool,
    jpeg: jpeg::Options,
}

impl Decode {
    fn create(builder: &KernelBuilder<'_>, reader: Reader) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let mut options = jpeg::Options::default();
        if matches!(reader, Reader::Jpeg | Reader::JpegWindow) {
            let ratio = attrs.int("ratio")?;
            options.ratio = match ratio {
                1 | 2 | 4 | 8 => ratio as usize,
                _ => return Err(Status::invalid_argument(format!("ratio must be 1, 2, 4, or 8, got {ratio}"))),
            };
            options.fancy_upscaling = attrs.bool("fancy_upscaling")?;
            options.recover_truncated = attrs.bool("try_recover_truncated")?;
            options.acceptable_fraction = attrs.float("acceptable_fraction")?;
            options.fast_transform = match attrs.string("dct_method")?.as_str() {
                "" | "INTEGER_FAST" => true,
                "INTEGER_ACCURATE" => false,
                _ => {
                    return Err(Status::invalid_argument(
                        "dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}",
                    ));
                }
            };
        }
        let channels = if reader == Reader::Gif { 3 } else { attrs.int("channels")? };
        if !matches!(channels, 0 | 1 | 3 | 4) {
            return Err(Status::invalid_argument(format!("`channels` must be 0, 1, 3 or 4 but got {channels}")));
        }
        BoxedKernel::new(Decode {
            reader,
            channels: channels as usize,
            dtype: builder.output_dtype(0),
            expand_animations: reader != Reader::Any || attrs.bool("expand_animations")?,
            jpeg: options,
        })
    }

    fn read(&self, contents: &[u8], window: Option<&Tensor>) -> Result<Picture> {
        let format = Format::of(contents)?;
        self.check_format(format)?;
        match format {
            Format::Jpeg => self.read_jpeg(contents, window),
            Format::Png => files::png::read(contents, self.channels, self.dtype != DType::UInt8),
            Format::Gif => {
                if self.channels != 0 && self.channels != 3 {
                    let message = format!("channels must be 0 or 3 for GIF, got {}", self.channels);
                    return Err(Status::invalid_argument(message));
                }
                let still = matches!(self.reader, Reader::Png | Reader::Jpeg);
                let mut picture = files::gif::read(contents, self.expand_animations)?;
                if let Some(count) = picture.frames.filter(|&count| still && count != 1) {
                    return Err(Status::invalid_argument(format!(
                        "Got {count} frames, but animated gifs can only be decoded by tf.io.decode_gif or \
                         tf.io.decode_image"
                    )));
                }
                if still || !self.expand_animations {
                    picture.frames = None;
                }
                Ok(picture)
            }
            Format::Bmp => {
                if self.channels == 1 {
                    return Err(Status::invalid_argument("`channels` must be 0, 3 or 4 for BMP, but got 1"));
                }
                files::bmp::read(contents, self.channels)
            }
        }
    }

    /// Refuses formats that the op doesn't decode.
    fn check_format(&self, format: Format) -> Result<()> {
        let refused = match (self.reader, format) {
            (Reader::Bmp, Format::Bmp) | (Reader::JpegWindow, Format::Jpeg) | (Reader::Any, _) => return Ok(()),
            (Reader::Bmp, _) => format!(
                "Trying to decode {} format using DecodeBmp op. Use `decode_{}` or `decode_image` instead.",
                format.name(),
                format.name().to_lowercase()
            ),
            (Reader::JpegWindow, _) => {
                format!("DecodeAndCropJpeg operation can run on JPEG only, but detected {}.", format.name())
            }
            (_, Format::Bmp) => {
                "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead.".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Status::invalid_argument(refused))
    }

    fn read_jpeg(&self, contents: &[u8], window: Option<&Tensor>) -> Result<Picture> {
        if self.channels == 4 {
            return Err(Status::invalid_argument("JPEG does not support 4 channels"));
        }
        let window = match window {
            None => None,
            Some(window) => match (window.shape().is_vector(), window.as_slice::<i32>()?) {
                (true, &[top, left, height, width]) => Some(jpeg::Window { top, left, height, width }),
                _ => {
                    let message = format!("crop_window must be 1-D with four elements, got shape {}", window.shape());
                    return Err(Status::invalid_argument(message));
                }
            },
        };
        let options = jpeg::Options { channels: self.channels, ..self.jpeg.clone() };
        let picture = jpeg::decode(contents, &options, window)
            .ok_or_else(|| Status::invalid_argument("jpeg::Uncompress failed. Invalid JPEG data or crop window."))?;
        let jpeg::Picture { height, width, channels, pixels } = picture;
        Ok(Picture { frames: None, height, width, channels, samples: Samples::Bytes(pixels) })
    }
}

impl Kernel for Decode {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let window = if self.reader == Reader::JpegWindow { Some(context.input(1)?) } else { None };
        let mut picture = self.read(contents_of(context)?, window)?;
        if self.reader == Reader::Gif {
            // This op promises frames, whatever the format is.
            picture.frames.get_or_insert(1);
        }
        let output = to_tensor(&picture, self.dtype)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

fn contents_of<'a>(context: &'a OpContext<'_>) -> Result<&'a [u8]> {
    let contents = context.input(0)?;
    match contents.strings()? {
        [text] if contents.shape().is_scalar() && text.is_empty() => Err(Status::invalid_argument("Input is empty.")),
        [text] if contents.shape().is_scalar() && text.len() <= i32::MAX as usize => Ok(text),
        [text] if contents.shape().is_scalar() => {
            Err(Status::invalid_argument(format!("Input contents are too large for int: {}", text.len())))
        }
        _ => Err(Status::invalid_argument(format!("`contents` must be scalar but got shape{}", contents.shape()))),
    }
}

fn to_tensor(picture: &Picture, dtype: DType) -> Result<Tensor> {
    let mut sizes = vec![picture.height, picture.width, picture.channels];
    sizes.splice(0..0, picture.frames);
    let shape = Shape::from_usize(&sizes)?;
    match (&picture.samples, dtype) {
        (Samples::Bytes(from), DType::UInt8) => Tensor::build::<u8>(shape, |to| to.copy_from_slice(from)),
        (Samples::Bytes(from), DType::UInt16) => Tensor::build::<u16>(shape, |to| {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = u16::from(from) * 256)
        }),
        (Samples::Bytes(from), _) => {
            const SCALE: f32 = (1.0 / 255.0) as f32;
            Tensor::build::<f32>(shape, |to| {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = f32::from(from) * SCALE)
            })
        }
        (Samples::Words(from), DType::Float) => {
            const SCALE: f32 = (1.0 / 65535.0) as f32;
            Tensor::build::<f32>(shape, |to| {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = f32::from(from) * SCALE)
            })
        }
        (Samples::Words(from), _) => Tensor::build::<u16>(shape, |to| to.copy_from_slice(from)),
    }
}

struct JpegShape {
    is_long: bool,
}

impl Kernel for JpegShape {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let contents = contents_of(context)?;
        let (height, width, channels) = jpeg::shape(contents)
            .ok_or_else(|| Status::invalid_argument(format!("Invalid JPEG data, size {}", contents.len())))?;
        let sizes = [height, width, channels];
        context.set_output(
            0,
            match self.is_long {
                true => Tensor::vector(&sizes.map(|size| size as i64)),
                false => Tensor::vector(&sizes.map(|size| size as i32)),
            },
        );
        Ok(())
    }
}
