//! Tensors and numbers in strings: ParseTensor, SerializeTensor, StringToNumber, DecodeCompressed.

use super::number::FromText;
use base64::Engine;
use bytes::Bytes;
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, kernels, shape};
use prost::Message;
use proto::TensorProto;
use std::marker::PhantomData;
use storage::record::CompressionType;
use storage::stream::decompress;
use tensor::{DType, Element, Result, Status, Tensor, tensor_from_proto, tensor_to_proto};

/// The longest result of `DecodeCompressed`.
const MAX_DECOMPRESSED_BYTES: u64 = 4 << 30;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ParseTensor",
            inputs: &["serialized: string"],
            outputs: &["output: out_type"],
            attrs: &["out_type: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(ParseTensor::create)],
    },
    Op {
        def: OpDef {
            name: "SerializeTensor",
            inputs: &["tensor: T"],
            outputs: &["serialized: string"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SerializeTensor))],
    },
    Op {
        def: OpDef {
            name: "StringToNumber",
            inputs: &["string_tensor: string"],
            outputs: &["output: out_type"],
            attrs: &["out_type: {float, double, int32, int64} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("out_type": [f32, f64, i32, i64] => StringToNumber),
    },
    Op {
        def: OpDef {
            name: "DecodeCompressed",
            inputs: &["bytes: string"],
            outputs: &["output: string"],
            attrs: &["compression_type: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(DecodeCompressed::create)],
    },
];

/// Returns the tensor of a serialized `TensorProto`.
#[track_caller]
pub fn parse_tensor(serialized: &Output, out_type: DType) -> Output {
    serialized.graph().op("ParseTensor").input(serialized).attr("out_type", out_type).output()
}

/// Returns a tensor as a serialized `TensorProto`.
#[track_caller]
pub fn serialize_tensor(tensor: &Output) -> Output {
    tensor.graph().op("SerializeTensor").input(tensor).output()
}

/// Parses numbers in strings.
#[track_caller]
pub fn string_to_number(strings: &Output, out_type: DType) -> Output {
    strings.graph().op("StringToNumber").input(strings).attr("out_type", out_type).output()
}

struct ParseTensor {
    dtype: DType,
}

impl ParseTensor {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ParseTensor { dtype: builder.attrs().dtype("out_type")? })
    }
}

impl Kernel for ParseTensor {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let serialized = context.input(0)?;
        let [text] = serialized.strings()? else {
            return Err(Status::invalid_argument(format!(
                "Expected `serialized` to be a scalar, got shape: {}",
                serialized.shape()
            )));
        };
        let unreadable = |_| {
            let text = base64::engine::general_purpose::STANDARD.encode(text);
            Status::invalid_argument(format!("Could not parse `serialized` as TensorProto, base64: {text}"))
        };
        let proto = TensorProto::decode(text.clone()).map_err(unreadable)?;
        let output = tensor_from_proto(&proto)?;
        if output.dtype() != self.dtype {
            return Err(Status::invalid_argument(format!(
                "Type mismatch between parsed tensor ({}) and dtype ({})",
                output.dtype(),
                self.dtype
            )));
        }
        context.set_output(0, output);
        Ok(())
    }
}

struct SerializeTensor;

impl Kernel for SerializeTensor {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let serialized = tensor_to_proto(context.input(0)?)?.encode_to_vec();
        context.set_output(0, Tensor::string(serialized));
        Ok(())
    }
}

struct StringToNumber<T>(PhantomData<T>);

impl<T: FromText + Element> StringToNumber<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(StringToNumber::<T>(PhantomData))
    }
}

impl<T: FromText + Element> Kernel for StringToNumber<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let number = |text: &Bytes| {
            T::from_text(text).ok_or_else(|| {
                let text = String::from_utf8_lossy(text);
                Status::invalid_argument(format!("StringToNumberOp could not correctly convert string: {text}"))
            })
        };
        let numbers: Vec<T> = input.strings()?.iter().map(number).collect::<Result<_>>()?;
        let output = Tensor::from_slice(input.dims(), &numbers)?;
        context.set_output(0, output);
        Ok(())
    }
}

struct DecodeCompressed {
    compression: CompressionType,
}

impl DecodeCompressed {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let compression = match builder.attrs().string("compression_type")?.as_str() {
            "" => CompressionType::None,
            "ZLIB" => CompressionType::Zlib,
            "GZIP" => CompressionType::Gzip,
            _ => return Err(Status::invalid_argument("Only ZLIB, GZIP or NONE are supported compressions")),
        };
        BoxedKernel::new(DecodeCompressed { compression })
    }
}

impl Kernel for DecodeCompressed {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        if self.compression == CompressionType::None {
            context.set_output(0, input);
            return Ok(());
        }
        let decoded = |text: &Bytes| Ok(Bytes::from(decompress(text, self.compression, MAX_DECOMPRESSED_BYTES)?));
        let texts = input.strings()?.iter().map(decoded).collect::<Result<_>>()?;
        context.set_output(0, Tensor::from_strings(input.shape().clone(), texts)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};
    use tensor::{Code, Shape};

    #[test]
    fn tensors_survive_as_strings() {
        // The bytes are TensorFlow's.
        let serialized = run_op("SerializeTensor", attrs![], &[Tensor::vector(&[1i32, 2])]).unwrap().remove(0);
        let expected = b"\x08\x03\x12\x04\x12\x02\x08\x02\"\x08\x01\x00\x00\x00\x02\x00\x00\x00";
        assert_eq!(serialized.strings().unwrap()[0], expected[..]);
        let parsed =
            run_op("ParseTensor", attrs![("out_type", DType::Int32)], std::slice::from_ref(&serialized)).unwrap();
        assert_eq!(parsed[0].as_slice::<i32>().unwrap(), &[1, 2]);
        let status = run_op("ParseTensor", attrs![("out_type", DType::Float)], &[serialized]).unwrap_err();
        assert!(status.message().starts_with("Type mismatch between parsed tensor (int32) and dtype (float)"));
        let status =
            run_op("ParseTensor", attrs![("out_type", DType::Float)], &[Tensor::string("nonsense")]).unwrap_err();
        assert!(status.message().contains("base64: bm9uc2Vuc2U="), "{status}");
    }

    #[test]
    fn numbers() {
        let texts = Tensor::from_strings(Shape::vector(2), vec![" 3 ".into(), "-7".into()]).unwrap();
        let output = run_op("StringToNumber", attrs![("out_type", DType::Int64)], &[texts]).unwrap().remove(0);
        assert_eq!(output.as_slice::<i64>().unwrap(), &[3, -7]);
        let status = run_op("StringToNumber", attrs![], &[Tensor::string("x")]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }

    #[test]
    fn compressed_strings() {
        // `zlib.compress(b"hello")`.
        let packed: &[u8] = b"x\x9c\xcbH\xcd\xc9\xc9\x07\x00\x06,\x02\x15";
        let zlib = attrs![("compression_type", "ZLIB")];
        let output = run_op("DecodeCompressed", zlib.clone(), &[Tensor::string(packed)]).unwrap().remove(0);
        assert_eq!(output.strings().unwrap()[0], "hello");
        assert_eq!(run_op("DecodeCompressed", zlib, &[Tensor::string("hello")]).unwrap_err().code(), Code::DataLoss);
        assert!(run_op("DecodeCompressed", attrs![("compression_type", "XX")], &[Tensor::string("")]).is_err());
    }
}
