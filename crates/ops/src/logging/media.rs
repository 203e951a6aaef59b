//! Images and audio in summaries: ImageSummary, AudioSummary, AudioSummaryV2.

use super::summary::{serialized, tag_of};
use crate::signal::encode_samples;
use graph::Output;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use num_traits::Float;
use proto::Summary;
use proto::summary::{Audio, Image, Value, value};
use std::ops::Range;
use tensor::{DType, Element, Result, Status, Tensor, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ImageSummary",
            inputs: &["tag: string", "tensor: T"],
            outputs: &["summary: string"],
            attrs: &[
                "max_images: int >= 1 = 3",
                "T: {uint8, float, half, double} = DT_FLOAT",
                "bad_color: tensor = { dtype: DT_UINT8 tensor_shape { dim { size: 4 } } int_val: 255 int_val: 0 int_val: 0 int_val: 255 }",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(ImageSummary::create)],
    },
    Op {
        def: OpDef {
            name: "AudioSummary",
            inputs: &["tag: string", "tensor: float"],
            outputs: &["summary: string"],
            attrs: &["sample_rate: float", "max_outputs: int >= 1 = 3"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(AudioSummary::create)],
    },
    Op {
        def: OpDef {
            name: "AudioSummaryV2",
            inputs: &["tag: string", "tensor: float", "sample_rate: float"],
            outputs: &["summary: string"],
            attrs: &["max_outputs: int >= 1 = 3"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(AudioSummary::create)],
    },
];

/// Returns a summary of up to `max_outputs` images (batch, rows, columns, channels).
#[track_caller]
pub fn image_summary(tag: &str, images: &Output, max_outputs: i64) -> Output {
    let graph = images.graph();
    let tag = graph.constant_tensor(&Tensor::string(tag.to_owned()));
    graph.op("ImageSummary").input(&tag).input(images).attr("max_images", max_outputs).output()
}

/// Returns a summary of up to `max_outputs` audio clips (batch, frames, channels).
#[track_caller]
pub fn audio_summary(tag: &str, sounds: &Output, sample_rate: f32, max_outputs: i64) -> Output {
    let graph = sounds.graph();
    let tag = graph.constant_tensor(&Tensor::string(tag.to_owned()));
    let rate = graph.constant_tensor(&Tensor::scalar(sample_rate));
    graph.op("AudioSummaryV2").input(&tag).input(sounds).input(&rate).attr("max_outputs", max_outputs).output()
}

/// Returns the tag of one of several values.
fn numbered(tag: &str, kind: &str, index: usize, max: usize) -> String {
    if max > 1 { format!("{tag}/{kind}/{index}") } else { format!("{tag}/{kind}") }
}

/// Returns an attribute that bounds how many values a summary has.
pub(super) fn at_most(builder: &KernelBuilder<'_>, attr: &str) -> Result<usize> {
    let max = builder.attrs().int(attr)?;
    usize::try_from(max).map_err(|_| Status::invalid_argument(format!("{attr} must be positive, got {max}")))
}

struct ImageSummary {
    max_images: usize,
    /// The replacement for pixels that aren't finite, by channel.
    bad_color: Vec<u8>,
}

impl ImageSummary {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let color = builder.attrs().tensor("bad_color")?;
        if color.dtype() != DType::UInt8 || !color.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "bad_color must be a uint8 vector, got shape {}",
                color.shape()
            )));
        }
        let bad_color = color.as_slice::<u8>()?.to_vec();
        BoxedKernel::new(ImageSummary { max_images: at_most(builder, "max_images")?, bad_color })
    }

    /// Maps the pixels of an image to bytes: values that are all positive to 0 up to 255, others to 128 ± 127. Everything is in
    /// the precision of the pixels: what TensorFlow truncates to integers is often just one.
    fn normalized<T: Float>(&self, pixels: &[T], depth: usize) -> Vec<u8> {
        let number = |value: f64| T::from(value).unwrap_or_else(T::zero);
        let is_finite = |pixel: &[T]| pixel.iter().all(|value| value.is_finite());
        let finite = || pixels.chunks_exact(depth).filter(|pixel| is_finite(pixel)).flatten().copied();
        let (low, high) = (finite().fold(T::infinity(), T::min), finite().fold(T::neg_infinity(), T::max));
        // Below this an image counts as black.
        let black = number(1e-6);
        let (scale, offset) = if low < T::zero() {
            let largest = low.abs().max(high.abs());
            (if largest < black { T::zero() } else { number(127.0) / largest }, number(128.0))
        } else {
            (if high < black { T::zero() } else { number(255.0) / high }, T::zero())
        };
        let mut bytes = Vec::with_capacity(pixels.len());
        for pixel in pixels.chunks_exact(depth) {
            if is_finite(pixel) {
                bytes.extend(pixel.iter().map(|&value| (value * scale + offset).to_f64().unwrap_or(0.0) as u8));
            } else {
                bytes.extend(self.bad_color[..depth].iter());
            }
        }
        bytes
    }

    /// Returns the bytes of the image in `range` of the elements.
    fn bytes<T: Element + Float>(&self, images: &Tensor, range: Range<usize>, depth: usize) -> Result<Vec<u8>> {
        Ok(self.normalized(&images.as_slice::<T>()?[range], depth))
    }
}

impl ImageSummary {
    /// Returns the summary of a batch of pictures.
    fn summary(&self, tag: &str, images: &Tensor) -> Result<Summary> {
        let shape = images.shape();
        let fits = shape.rank() == 4 && matches!(shape.dim(3), 1 | 3 | 4);
        if !fits {
            return Err(Status::invalid_argument(format!("Tensor must be 4-D with last dim 1, 3, or 4, not {shape}")));
        }
        let dims = shape.to_usize();
        let (rows, columns, depth) = (dims[1], dims[2], dims[3]);
        let bounds = (u32::try_from(rows), u32::try_from(columns));
        let (Ok(height), Ok(width)) = bounds else {
            return Err(Status::invalid_argument(format!("hw and batch_size dims must be < 2^31, got {shape}")));
        };
        if height > i32::MAX as u32 || width > i32::MAX as u32 {
            return Err(Status::invalid_argument(format!("hw and batch_size dims must be < 2^31, got {shape}")));
        }
        if self.bad_color.len() < depth {
            return Err(Status::invalid_argument(format!(
                "expected depth <= bad_color.size, got depth = {depth}, bad_color.size = {}",
                self.bad_color.len()
            )));
        }
        let size = rows * columns * depth;
        let mut summary = Summary::default();
        for index in 0..dims[0].min(self.max_images) {
            let range = index * size..(index + 1) * size;
            let bytes = match images.dtype() {
                DType::UInt8 => images.as_slice::<u8>()?[range].to_vec(),
                DType::Double => self.bytes::<f64>(images, range, depth)?,
                DType::Half => self.bytes::<f16>(images, range, depth)?,
                _ => self.bytes::<f32>(images, range, depth)?,
            };
            let image = Image {
                height: height as i32,
                width: width as i32,
                colorspace: depth as i32,
                encoded_image_string: encode_png(&bytes, width, height, depth)?.into(),
            };
            let tag = numbered(tag, "image", index, self.max_images);
            summary.value.push(Value { tag, value: Some(value::Value::Image(image)), ..Default::default() });
        }
        Ok(summary)
    }
}

impl Kernel for ImageSummary {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let summary = self.summary(&tag_of(context.input(0)?)?, context.input(1)?)?;
        context.set_output(0, serialized(&summary));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Returns the summary of a batch of pictures; `bad_color` replaces pixels that aren't numbers.
pub(super) fn summary_of_images(tag: &str, images: &Tensor, bad_color: &[u8], max_images: usize) -> Result<Summary> {
    ImageSummary { max_images, bad_color: bad_color.to_vec() }.summary(tag, images)
}

/// Encodes a picture of 1 (grey), 3 (RGB) or 4 (RGBA) bytes for each pixel.
fn encode_png(bytes: &[u8], width: u32, height: u32, depth: usize) -> Result<Vec<u8>> {
    let failed = |error: png::EncodingError| Status::internal(format!("Error while encoding PNG: {error}"));
    if width == 0 || height == 0 {
        return Err(Status::invalid_argument("Empty image cannot be encoded"));
    }
    let mut encoded = Vec::new();
    let mut encoder = png::Encoder::new(&mut encoded, width, height);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match depth {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(bytes).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(encoded)
}

struct AudioSummary {
    /// The rate if it is an attribute.
    sample_rate: Option<f32>,
    max_outputs: usize,
}

impl AudioSummary {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let sample_rate = builder.attrs().float("sample_rate").ok();
        BoxedKernel::new(AudioSummary { sample_rate, max_outputs: at_most(builder, "max_outputs")? })
    }
}

impl Kernel for AudioSummary {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let rate = match self.sample_rate {
            Some(rate) => rate,
            None => context.scalar::<f32>(2, "sample_rate")?,
        };
        let summary = summary_of_sounds(&tag_of(context.input(0)?)?, context.input(1)?, rate, self.max_outputs)?;
        context.set_output(0, serialized(&summary));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Returns the summary of a batch of sounds.
pub(super) fn summary_of_sounds(tag: &str, sounds: &Tensor, rate: f32, max_outputs: usize) -> Result<Summary> {
    let shape = sounds.shape();
    if !(2..=3).contains(&shape.rank()) {
        return Err(Status::invalid_argument(format!("Tensor must be 3-D or 2-D, got: {shape}")));
    }
    if rate.is_nan() || rate <= 0.0 || rate > u32::MAX as f32 {
        return Err(Status::invalid_argument("sample_rate must be > 0"));
    }
    let dims = shape.to_usize();
    let (frames, channels) = (dims[1], dims.get(2).copied().unwrap_or(1));
    let size = frames * channels;
    let samples = sounds.as_slice::<f32>()?;
    let mut summary = Summary::default();
    for index in 0..dims[0].min(max_outputs) {
        let wave = encode_samples(&samples[index * size..(index + 1) * size], rate as u32, channels)?;
        let audio = Audio {
            sample_rate: rate,
            num_channels: channels as i64,
            length_frames: frames as i64,
            encoded_audio_string: wave.into(),
            content_type: "audio/wav".to_owned(),
        };
        let tag = numbered(tag, "audio", index, max_outputs);
        summary.value.push(Value { tag, value: Some(value::Value::Audio(audio)), ..Default::default() });
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};
    use prost::Message;

    fn summary(tensor: &Tensor) -> Summary {
        Summary::decode(tensor.strings().unwrap()[0].clone()).unwrap()
    }

    fn decode(image: &Image) -> Vec<u8> {
        let mut reader = png::Decoder::new(std::io::Cursor::new(&image.encoded_image_string[..])).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        bytes.truncate(info.buffer_size());
        bytes
    }

    fn pictures(values: &[f32], dims: &[i64], max: i64) -> Vec<(String, Vec<u8>)> {
        let inputs = [Tensor::string("t"), Tensor::from_slice(dims, values).unwrap()];
        let y = run_op("ImageSummary", attrs![("max_images", max)], &inputs).unwrap();
        let image = |value: Value| match value.value {
            Some(value::Value::Image(image)) => (value.tag, decode(&image)),
            other => panic!("{other:?}"),
        };
        summary(&y[0]).value.into_iter().map(image).collect()
    }

    /// The numbers come from TensorFlow.
    #[test]
    fn images() {
        assert_eq!(
            pictures(&[0., 0.5, 1., f32::NAN], &[1, 2, 2, 1], 1),
            [("t/image".to_owned(), vec![0, 127, 255, 255])]
        );
        let two = pictures(&[-1., 0.5, 1., 0.], &[2, 1, 2, 1], 3);
        assert_eq!(two[0], ("t/image/0".to_owned(), vec![1, 191]));
        assert_eq!(two[1].0, "t/image/1");
        let inputs = [Tensor::string("t"), Tensor::from_slice(&[1, 1, 1, 2], &[0f32; 2]).unwrap()];
        let status = run_op("ImageSummary", attrs![], &inputs).unwrap_err();
        assert!(status.message().starts_with("Tensor must be 4-D with last dim 1, 3, or 4, not [1,1,1,2]"), "{status}");
    }

    #[test]
    fn sounds() {
        let inputs =
            [Tensor::string("t"), Tensor::from_slice(&[2, 2], &[0f32, 0.5, 2., -1.]).unwrap(), Tensor::scalar(8000f32)];
        let y = run_op("AudioSummaryV2", attrs![], &inputs).unwrap();
        let summary = summary(&y[0]);
        assert_eq!(summary.value[1].tag, "t/audio/1");
        let Some(value::Value::Audio(audio)) = &summary.value[1].value else { panic!("no sound") };
        let expected: &[u8] = b"RIFF(\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00\x02\x00\x10\x00data\x04\x00\x00\x00\xff\x7f\x00\x80";
        assert_eq!(&audio.encoded_audio_string[..], expected);
        let bad = [inputs[0].clone(), inputs[1].clone(), Tensor::scalar(f32::NAN)];
        assert!(run_op("AudioSummaryV2", attrs![], &bad).is_err());
    }
}
