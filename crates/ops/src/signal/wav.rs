//! Audio files of 16-bit samples: DecodeWav, EncodeWav.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

const BYTES_PER_SAMPLE: usize = 2;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DecodeWav",
            inputs: &["contents: string"],
            outputs: &["audio: float", "sample_rate: int32"],
            attrs: &["desired_channels: int = -1", "desired_samples: int = -1"],
            flags: OpFlags::NONE,
        },
        shape: decode_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(DecodeWav::create)],
    },
    Op {
        def: OpDef {
            name: "EncodeWav",
            inputs: &["audio: float", "sample_rate: int32"],
            outputs: &["contents: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 2)?;
            c.with_rank(1, 0)?;
            c.set_output(0, PartialShape::scalar());
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(EncodeWav))],
    },
];

/// Returns the samples of a WAV file between -1 and 1, as `[samples, channels]`, and their rate.
#[track_caller]
pub fn decode_wav(contents: &Output) -> (Output, Output) {
    let outputs = contents.graph().op("DecodeWav").input(contents).outputs();
    (outputs[0].clone(), outputs[1].clone())
}

/// Returns the contents of a WAV file with the samples `[samples, channels]`.
#[track_caller]
pub fn encode_wav(audio: &Output, sample_rate: &Output) -> Output {
    audio.graph().op("EncodeWav").input(audio).input(sample_rate).output()
}

fn decode_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let wanted = |name: &str| match c.attrs.int(name)? {
        -1 => Ok(None),
        size if size >= 0 => Ok(Some(size)),
        size => {
            Err(Status::invalid_argument(format!("{} must be non-negative, got {size}", name.replace("desired_", ""))))
        }
    };
    let (channels, samples) = (wanted("desired_channels")?, wanted("desired_samples")?);
    c.set_output(0, PartialShape::new(&[samples, channels]));
    c.set_output(1, PartialShape::scalar());
    Ok(())
}

/// Encodes interleaved samples between -1 and 1 as 16-bit PCM.
pub(crate) fn encode_samples(samples: &[f32], rate: u32, channels: usize) -> Result<Vec<u8>> {
    const BYTES: u32 = BYTES_PER_SAMPLE as u32;
    const HEADER: u32 = 36;
    let too_large = || Status::invalid_argument("Provided channels and frames cannot be encoded as a WAV.");
    let channels = u16::try_from(channels).map_err(|_| too_large())?;
    let data = u32::try_from(samples.len()).ok().and_then(|count| count.checked_mul(BYTES)).ok_or_else(too_large)?;
    let total = data.checked_add(HEADER).ok_or_else(too_large)?;
    let frame = channels.checked_mul(BYTES_PER_SAMPLE as u16).ok_or_else(too_large)?;
    let per_second = rate.checked_mul(u32::from(frame)).ok_or_else(too_large)?;
    let mut wav = Vec::with_capacity(total as usize + 8);
    wav.extend_from_slice(b"RIFF");
    wav.extend_from_slice(&total.to_le_bytes());
    wav.extend_from_slice(b"WAVEfmt ");
    wav.extend_from_slice(&16u32.to_le_bytes());
    wav.extend_from_slice(&1u16.to_le_bytes());
    wav.extend_from_slice(&channels.to_le_bytes());
    wav.extend_from_slice(&rate.to_le_bytes());
    wav.extend_from_slice(&per_second.to_le_bytes());
    wav.extend_from_slice(&frame.to_le_bytes());
    wav.extend_from_slice(&16u16.to_le_bytes());
    wav.extend_from_slice(b"data");
    wav.extend_from_slice(&data.to_le_bytes());
    for sample in samples {
        // The conversion clips at the ends of the range.
        wav.extend_from_slice(&((sample * 32768.0).round() as i16).to_le_bytes());
    }
    Ok(wav)
}

struct EncodeWav;

impl Kernel for EncodeWav {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (audio, rate) = (context.input(0)?, context.input(1)?);
        let [_, channels] = audio.shape().to_usize()[..] else {
            return Err(Status::invalid_argument(format!("audio must be 2-dimensional{}", audio.shape())));
        };
        if !rate.shape().is_scalar() {
            return Err(Status::invalid_argument(format!(
                "Input sample_rate should be a scalar tensor, got {} instead.",
                rate.shape()
            )));
        }
        let rate = rate.to_scalar::<i32>()?;
        if rate <= 0 {
            // TensorFlow treats the number as unsigned.
            let rate = i64::from(rate) as u64;
            return Err(Status::invalid_argument(format!("sample_rate must be in (0, 2^32), got: {rate}")));
        }
        if channels == 0 || channels > usize::from(u16::MAX) {
            return Err(Status::invalid_argument(format!("num_channels must be in (0, 2^16), got: {channels}")));
        }
        let wav = encode_samples(audio.as_slice::<f32>()?, rate as u32, channels)?;
        context.set_output(0, Tensor::string(wav));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// The bytes of a file from a position on.
struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(Status::invalid_argument("Data too short when trying to read string"));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        let found = self.take(text.len())?;
        if found == text.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(found);
        Err(Status::invalid_argument(format!("Header mismatch: Expected {text} but found {found}")))
    }

    /// Reads a little-endian number.
    fn number(&mut self, bytes: usize) -> Result<u32> {
        let taken = self.take(bytes)?;
        Ok(taken.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }
}

/// The header of a file.
struct Sound<'a> {
    rate: u32,
    channels: usize,
    /// Two bytes for each sample.
    data: &'a [u8],
}

impl<'a> Sound<'a> {
    fn read(file: &'a [u8]) -> Result<Sound<'a>> {
        let mut bytes = Bytes { rest: file };
        bytes.expect("RIFF")?;
        bytes.number(4)?;
        bytes.expect("WAVE")?;
        bytes.expect("fmt ")?;
        let format_size = bytes.number(4)?;
        if format_size != 16 && format_size != 18 {
            return Err(Status::invalid_argument(format!(
                "Bad format chunk size for WAV: Expected 16 or 18, but got{format_size}"
            )));
        }
        let format = bytes.number(2)?;
        if format != 1 {
            return Err(Status::invalid_argument(format!(
                "Bad audio format for WAV: Expected 1 (PCM), but got{format}"
            )));
        }
        let channels = bytes.number(2)?;
        if channels < 1 {
            return Err(Status::invalid_argument(format!(
                "Bad number of channels for WAV: Expected at least 1, but got {channels}"
            )));
        }
        let (rate, per_second, frame) = (bytes.number(4)?, bytes.number(4)?, bytes.number(2)?);
        let bits = bytes.number(2)?;
        if bits != 16 {
            return Err(Status::invalid_argument(format!("Can only read 16-bit WAV files, but received {bits}")));
        }
        let expected = channels * BYTES_PER_SAMPLE as u32;
        if frame != expected {
            return Err(Status::invalid_argument(format!(
                "Bad bytes per sample in WAV header: Expected {expected} but got {frame}"
            )));
        }
        let expected = frame.wrapping_mul(rate);
        if per_second != expected {
            return Err(Status::invalid_argument(format!(
                "Bad bytes per second in WAV header: Expected {expected} but got {per_second} (sample_rate={rate}, bytes_per_sample={frame})"
            )));
        }
        if format_size == 18 {
            // Two unused bytes.
            bytes.take(2)?;
        }
        let mut data = None;
        while !bytes.rest.is_empty() {
            let id = bytes.take(4)?;
            let size = bytes.number(4)?;
            if size > i32::MAX as u32 {
                return Err(Status::invalid_argument(format!(
                    "WAV data chunk '{}' is too large: {size} bytes, but the limit is {}",
                    String::from_utf8_lossy(id),
                    i32::MAX
                )));
            }
            if id == b"data" {
                if data.is_some() {
                    return Err(Status::invalid_argument("More than one data chunk found in WAV"));
                }
                data = Some(bytes.take((size / frame * frame) as usize)?);
            } else {
                // A chunk that extends beyond the end is the last one.
                bytes.rest = bytes.rest.get(size as usize..).unwrap_or(&[]);
            }
        }
        match data {
            Some(data) => Ok(Sound { rate, channels: channels as usize, data }),
            None => Err(Status::invalid_argument("No data chunk found in WAV")),
        }
    }

    fn frames(&self) -> usize {
        self.data.len() / (self.channels * BYTES_PER_SAMPLE)
    }

    fn sample(&self, frame: usize, channel: usize) -> f32 {
        let at = (frame * self.channels + channel) * BYTES_PER_SAMPLE;
        f32::from(i16::from_le_bytes([self.data[at], self.data[at + 1]])) / 32768.0
    }
}

struct DecodeWav {
    channels: i64,
    samples: i64,
}

impl DecodeWav {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(DecodeWav { channels: attrs.int("desired_channels")?, samples: attrs.int("desired_samples")? })
    }
}

impl Kernel for DecodeWav {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let contents = context.input(0)?;
        if !contents.shape().is_scalar() {
            let shape = contents.shape();
            return Err(Status::invalid_argument(format!("contents must be scalar, got shape {shape}")));
        }
        let sound = Sound::read(&contents.strings()?[0])?;
        let frames = if self.samples == -1 { sound.frames() as i64 } else { self.samples };
        let channels = if self.channels == -1 { sound.channels as i64 } else { self.channels };
        let shape = Shape::new(&[frames, channels])?;
        let audio = Tensor::build(shape, |out: &mut [f32]| {
            if out.is_empty() {
                return;
            }
            for (frame, out) in out.chunks_exact_mut(channels as usize).enumerate() {
                for (channel, out) in out.iter_mut().enumerate() {
                    // A missing channel repeats the last one, and after the end there is silence.
                    let there = frame < sound.frames();
                    *out = if there { sound.sample(frame, channel.min(sound.channels - 1)) } else { 0.0 };
                }
            }
        })?;
        let rate = sound.rate as i32;
        context.set_output(0, audio);
        context.set_output(1, Tensor::scalar(rate));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Tensor};

    #[test]
    fn what_is_encoded_is_decoded() {
        let audio = Tensor::from_slice(&[3, 2], &[0f32, 0.5, -1.0, 2.0, 0.25, -0.25]).unwrap();
        let file = run_op("EncodeWav", attrs![], &[audio, Tensor::scalar(8000i32)]).unwrap();
        let decode = |channels: i64, samples: i64| {
            let attrs = attrs![("desired_channels", channels), ("desired_samples", samples)];
            let outputs = run_op("DecodeWav", attrs, &[file[0].clone()]).unwrap();
            assert_eq!(outputs[1].to_scalar::<i32>().unwrap(), 8000);
            outputs[0].as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(decode(-1, -1), [0.0, 0.5, -1.0, 32767.0 / 32768.0, 0.25, -0.25]);
        assert_eq!(decode(1, 4), [0.0, -1.0, 0.25, 0.0]);
        assert_eq!(decode(3, 1), [0.0, 0.5, 0.5]);
        assert_eq!(decode(0, 1), [0f32; 0]);
    }

    /// A file that was truncated or changed anywhere is refused or decoded, but nothing beyond it is read.
    #[test]
    fn damaged_files_are_no_danger() {
        let audio = Tensor::from_slice(&[2, 1], &[0.1f32, 0.2]).unwrap();
        let file = run_op("EncodeWav", attrs![], &[audio, Tensor::scalar(8000i32)]).unwrap();
        let bytes = file[0].strings().unwrap()[0].to_vec();
        for len in 0..bytes.len() {
            let cut = run_op("DecodeWav", attrs![], &[Tensor::string(bytes[..len].to_vec())]);
            assert_eq!(cut.unwrap_err().code(), Code::InvalidArgument, "{len}");
        }
        for place in 0..bytes.len() {
            for value in [0, 1, 255] {
                let mut changed = bytes.clone();
                changed[place] = value;
                if let Err(status) = run_op("DecodeWav", attrs![], &[Tensor::string(changed)]) {
                    assert_eq!(status.code(), Code::InvalidArgument);
                }
            }
        }
    }

    #[test]
    fn mistakes_and_shapes() {
        let code = |dims: &[i64], rate: i32| {
            let audio = Tensor::zeros(tensor::DType::Float, tensor::Shape::new(dims).unwrap()).unwrap();
            run_op("EncodeWav", attrs![], &[audio, Tensor::scalar(rate)]).unwrap_err().code()
        };
        for (dims, rate) in [(&[2i64][..], 1), (&[2, 1], 0), (&[1, 0], 1), (&[1, 1], -1)] {
            assert_eq!(code(dims, rate), Code::InvalidArgument);
        }
        check_shape("DecodeWav", attrs![("desired_channels", 2i64)], "[]", "[?,2];[]");
    }
}
