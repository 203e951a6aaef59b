//! EncodeBase64 and DecodeBase64, with the URL-safe alphabet.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "EncodeBase64",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &["pad: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(EncodeBase64 { pads: builder.attrs().bool("pad")? }))],
    },
    Op {
        def: OpDef {
            name: "DecodeBase64",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DecodeBase64))],
    },
];

/// Returns strings as base64 text without padding.
#[track_caller]
pub fn encode_base64(input: &Output) -> Output {
    input.graph().op("EncodeBase64").input(input).output()
}

/// Decodes base64 strings.
#[track_caller]
pub fn decode_base64(input: &Output) -> Output {
    input.graph().op("DecodeBase64").input(input).output()
}

/// Padding is optional; bits after the last byte are ignored.
const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const PADDED: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, CONFIG);
const UNPADDED: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, CONFIG.with_encode_padding(false));

struct EncodeBase64 {
    pads: bool,
}

impl Kernel for EncodeBase64 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let engine = if self.pads { &PADDED } else { &UNPADDED };
        let mut output = context.take_input(0)?;
        output.strings_mut()?.iter_mut().for_each(|text| *text = engine.encode(&text[..]).into());
        context.set_output(0, output);
        Ok(())
    }
}

struct DecodeBase64;

impl Kernel for DecodeBase64 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut output = context.take_input(0)?;
        for text in output.strings_mut()? {
            let invalid = || Status::invalid_argument("Invalid character found in base64.");
            // If there is padding, it must be complete.
            if text.ends_with(b"=") && !text.len().is_multiple_of(4) {
                return Err(invalid());
            }
            *text = PADDED.decode(&text[..]).map_err(|_| invalid())?.into();
        }
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    /// The answers are TensorFlow's.
    #[test]
    fn round_trips() {
        for (text, unpadded, padded) in [
            (&b""[..], "", ""),
            (b"a", "YQ", "YQ=="),
            (b"ab", "YWI", "YWI="),
            (b"abc", "YWJj", "YWJj"),
            (b"\xff\xfe\xfd\xfc", "__79_A", "__79_A=="),
        ] {
            for (pad, expected) in [(false, unpadded), (true, padded)] {
                let y = run_op("EncodeBase64", attrs![("pad", pad)], &[Tensor::string(text)]).unwrap();
                assert_eq!(y[0].strings().unwrap(), [expected]);
                let back = run_op("DecodeBase64", attrs![], &[y[0].clone()]).unwrap();
                assert_eq!(back[0].strings().unwrap(), [text]);
            }
        }
        let y = run_op("DecodeBase64", attrs![], &[Tensor::string("YR")]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["a"]);
        for bad in ["+/", "Y", "YQ=", "YQ===", "Y=Q="] {
            assert!(run_op("DecodeBase64", attrs![], &[Tensor::string(bad)]).is_err(), "{bad}");
        }
    }
}
