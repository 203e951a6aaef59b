//! The bytes of strings as numbers: DecodeRaw, DecodePaddedRaw.

use bytes::Bytes;
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use tensor::{Buffer, DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DecodeRaw",
            inputs: &["bytes: string"],
            outputs: &["output: out_type"],
            attrs: &[
                "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, bfloat16}",
                "little_endian: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.input(0).concat(&PartialShape::unknown_of_rank(1));
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(DecodeRaw::create)],
    },
    Op {
        def: OpDef {
            name: "DecodePaddedRaw",
            inputs: &["input_bytes: string", "fixed_length: int32"],
            outputs: &["output: out_type"],
            attrs: &[
                "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}",
                "little_endian: bool = true",
            ],
            flags: OpFlags::NONE,
        },
        shape: padded_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(DecodePaddedRaw::create)],
    },
];

/// Returns the bytes of equally long strings as numbers, in a new last dimension.
#[track_caller]
pub fn decode_raw(bytes: &Output, out_type: DType) -> Output {
    bytes.graph().op("DecodeRaw").input(bytes).attr("out_type", out_type).output()
}

fn padded_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    let width = match c.constant(1) {
        Some(length) => {
            let (length, size) = (i64::from(length.to_scalar::<i32>()?), c.output_types[0].dtype.size() as i64);
            Some(check_length(length, size)?)
        }
        None => None,
    };
    let shape = c.input(0).concat(&PartialShape::new(&[width]));
    c.set_output(0, shape);
    Ok(())
}

/// Returns the number of elements of a size in this many bytes.
fn check_length(length: i64, size: i64) -> Result<i64> {
    if length <= 0 {
        return Err(Status::invalid_argument(format!("fixed_length ({length}) must be greater than zero.")));
    }
    if length % size != 0 {
        return Err(Status::invalid_argument(format!(
            "fixed_length ({length}) must be a multiple of the size of out_type ({size})"
        )));
    }
    Ok(length / size)
}

struct DecodeRaw {
    dtype: DType,
    little_endian: bool,
}

impl DecodeRaw {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(DecodeRaw {
            dtype: builder.attrs().dtype("out_type")?,
            little_endian: builder.attrs().bool("little_endian")?,
        })
    }
}

impl Kernel for DecodeRaw {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let (strings, size) = (input.strings()?, self.dtype.size());
        let length = strings.first().map_or(0, Bytes::len);
        if let Some((index, other)) = strings.iter().enumerate().find(|(_, text)| text.len() != length) {
            return Err(Status::invalid_argument(format!(
                "DecodeRaw requires input strings to all be the same size, but element {index} has size {length} != {}",
                other.len()
            )));
        }
        if length % size != 0 {
            return Err(Status::invalid_argument(format!(
                "Input to DecodeRaw has length {length} that is not a multiple of {size}, the size of {}",
                self.dtype
            )));
        }
        let shape = input.shape().concat(&Shape::vector(length / size))?;
        let swap = !self.little_endian && component_size(self.dtype) > 1;
        let bytes = match strings {
            // A single string is shared if its memory is aligned.
            [one] if !swap => one.clone(),
            _ => strings.concat().into(),
        };
        let output = decoded(self.dtype, shape, bytes, swap)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the size of the unit that has a byte order: for complex numbers, one part.
fn component_size(dtype: DType) -> usize {
    if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() }
}

fn decoded(dtype: DType, shape: Shape, bytes: Bytes, swap: bool) -> Result<Tensor> {
    if !swap {
        return Tensor::from_buffer(dtype, shape, Buffer::foreign(bytes));
    }
    let mut swapped = bytes.to_vec();
    swapped.chunks_exact_mut(component_size(dtype)).for_each(<[u8]>::reverse);
    Tensor::from_buffer(dtype, shape, Buffer::foreign(Bytes::from(swapped)))
}

struct DecodePaddedRaw {
    dtype: DType,
    little_endian: bool,
}

impl DecodePaddedRaw {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(DecodePaddedRaw {
            dtype: builder.attrs().dtype("out_type")?,
            little_endian: builder.attrs().bool("little_endian")?,
        })
    }
}

impl Kernel for DecodePaddedRaw {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let length = i64::from(context.scalar::<i32>(1, "k")?);
        let width = check_length(length, self.dtype.size() as i64)?;
        let shape = input.shape().concat(&Shape::new(&[width])?)?;
        let length = length as usize;
        let mut buffer = Buffer::zeroed(shape.num_bytes(self.dtype.size())?)?;
        let Some(bytes) = buffer.bytes_mut() else { return Err(Status::internal("a new buffer is shared")) };
        for (row, text) in bytes.chunks_exact_mut(length).zip(input.strings()?) {
            let kept = text.len().min(length);
            row[..kept].copy_from_slice(&text[..kept]);
        }
        if !self.little_endian && component_size(self.dtype) > 1 {
            bytes.chunks_exact_mut(component_size(self.dtype)).for_each(<[u8]>::reverse);
        }
        let output = Tensor::from_buffer(self.dtype, shape, buffer)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use bytes::Bytes;
    use tensor::{DType, Shape, Tensor};

    fn strings(texts: &[&'static [u8]]) -> Tensor {
        let texts = texts.iter().map(|text| Bytes::from_static(text)).collect::<Vec<_>>();
        Tensor::from_strings(Shape::vector(texts.len()), texts).unwrap()
    }

    #[test]
    fn bytes_are_numbers() {
        let attrs = |dtype: DType, little: bool| attrs![("out_type", dtype), ("little_endian", little)];
        let input = strings(&[&[1, 2, 3, 4], &[5, 6, 7, 8]]);
        let output = run_op("DecodeRaw", attrs(DType::Int16, true), std::slice::from_ref(&input)).unwrap().remove(0);
        assert_eq!(output.dims(), &[2, 2]);
        assert_eq!(output.as_slice::<i16>().unwrap(), &[0x201, 0x403, 0x605, 0x807]);
        let output = run_op("DecodeRaw", attrs(DType::Int16, false), &[input]).unwrap().remove(0);
        assert_eq!(output.as_slice::<i16>().unwrap(), &[0x102, 0x304, 0x506, 0x708]);
        let output = run_op("DecodeRaw", attrs(DType::UInt8, true), &[Tensor::string("ab")]).unwrap().remove(0);
        assert_eq!(output.as_slice::<u8>().unwrap(), b"ab");
        let message =
            |input: Tensor| run_op("DecodeRaw", attrs(DType::Int16, true), &[input]).unwrap_err().message().to_owned();
        assert!(
            message(strings(&[b"abcd", b"ab"]))
                .starts_with("DecodeRaw requires input strings to all be the same size, but element 1 has size 4 != 2")
        );
        assert!(message(strings(&[b"abc"])).contains("length 3 that is not a multiple of 2, the size of int16"));
        assert_eq!(run_op("DecodeRaw", attrs(DType::Float, true), &[strings(&[])]).unwrap()[0].dims(), &[0, 0]);
    }

    #[test]
    fn strings_are_cut_and_padded() {
        let input = strings(&[&[1, 2, 3, 4, 5], &[6]]);
        let attrs = || attrs![("out_type", DType::UInt16)];
        let output = run_op("DecodePaddedRaw", attrs(), &[input.clone(), Tensor::scalar(4i32)]).unwrap().remove(0);
        assert_eq!(output.as_slice::<u16>().unwrap(), &[0x201, 0x403, 6, 0]);
        for bad in [3i32, 0, -2] {
            assert!(run_op("DecodePaddedRaw", attrs(), &[input.clone(), Tensor::scalar(bad)]).is_err());
        }
    }

    #[test]
    fn shapes() {
        check_shape("DecodeRaw", attrs![("out_type", DType::Float)], "[3]", "[3,?]");
        check_shape("DecodePaddedRaw", attrs![("out_type", DType::Float)], "[3];[]", "[3,?]");
    }
}
