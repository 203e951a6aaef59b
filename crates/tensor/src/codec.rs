//! Tensors to and from [`TensorProto`], in both of its encodings: packed bytes, and typed fields whose last value repeats.

use crate::{Buffer, DType, Element, ResourceHandle, Result, Shape, Status, Tensor, Variant};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use proto::TensorProto;
use std::sync::Arc;

/// Reads a tensor from the wire.
///
/// Packed bytes are shared with the message where they are aligned. A shape that its values don't fit, a dimension that is
/// negative or overflows, and an invalid type are `InvalidArgument`.
pub fn tensor_from_proto(proto: &TensorProto) -> Result<Tensor> {
    let dtype = DType::from_i32(proto.dtype)?;
    if DType::number_is_ref(proto.dtype) {
        return Err(Status::invalid_argument("a tensor's data type can't be a reference"));
    }
    let shape = match &proto.tensor_shape {
        // TensorFlow looks at the dimensions only, of which a shape of unknown rank has none.
        Some(shape) if !shape.unknown_rank => Shape::from_proto(shape)?,
        _ => Shape::scalar(),
    };
    if !proto.tensor_content.is_empty() {
        return from_content(dtype, shape, &proto.tensor_content);
    }
    match dtype {
        DType::Float => repeated(shape, proto.float_val.iter().copied()),
        DType::Double => repeated(shape, proto.double_val.iter().copied()),
        DType::Int32 => repeated(shape, proto.int_val.iter().copied()),
        DType::QInt32 => repeated(shape, proto.int_val.iter().copied())?.with_dtype(dtype),
        DType::Int16 => repeated(shape, proto.int_val.iter().map(|&v| v as i16)),
        DType::QInt16 => repeated(shape, proto.int_val.iter().map(|&v| v as i16))?.with_dtype(dtype),
        DType::UInt16 => repeated(shape, proto.int_val.iter().map(|&v| v as u16)),
        DType::QUInt16 => repeated(shape, proto.int_val.iter().map(|&v| v as u16))?.with_dtype(dtype),
        DType::Int8 => repeated(shape, proto.int_val.iter().map(|&v| v as i8)),
        DType::QInt8 | DType::Int4 => repeated(shape, proto.int_val.iter().map(|&v| v as i8))?.with_dtype(dtype),
        DType::UInt8 => repeated(shape, proto.int_val.iter().map(|&v| v as u8)),
        DType::QUInt8 | DType::UInt4 => repeated(shape, proto.int_val.iter().map(|&v| v as u8))?.with_dtype(dtype),
        DType::Float8E5M2 | DType::Float8E4M3Fn => repeated(shape, proto.float8_val.iter().copied())?.with_dtype(dtype),
        DType::Int64 => repeated(shape, proto.int64_val.iter().copied()),
        DType::UInt32 => repeated(shape, proto.uint32_val.iter().copied()),
        DType::UInt64 => repeated(shape, proto.uint64_val.iter().copied()),
        DType::Bool => repeated(shape, proto.bool_val.iter().copied()),
        DType::Half => repeated(shape, proto.half_val.iter().map(|&v| f16::from_bits(v as u16))),
        DType::BFloat16 => repeated(shape, proto.half_val.iter().map(|&v| bf16::from_bits(v as u16))),
        DType::Complex64 => repeated(shape, proto.scomplex_val.chunks_exact(2).map(|v| Complex32::new(v[0], v[1]))),
        DType::Complex128 => repeated(shape, proto.dcomplex_val.chunks_exact(2).map(|v| Complex64::new(v[0], v[1]))),
        DType::String => {
            let count = checked_count(&shape, proto.string_val.len(), size_of::<Bytes>())?;
            let mut values = proto.string_val.clone();
            let last = values.last().cloned().unwrap_or_default();
            values.resize(count, last);
            Tensor::from_strings(shape, values)
        }
        DType::Resource => {
            let handles: Result<Vec<_>> = proto.resource_handle_val.iter().map(ResourceHandle::from_proto).collect();
            Tensor::from_resources(shape, handles?)
        }
        DType::Variant => {
            let count = checked_count(&shape, proto.variant_val.len(), size_of::<Variant>())?;
            let mut values: Vec<Variant> =
                proto.variant_val.iter().map(|value| Variant::Encoded(Arc::new(value.clone()))).collect();
            values.resize(count, Variant::Empty);
            Tensor::from_variants(shape, values)
        }
    }
}

/// Writes a tensor for the wire with its plain elements as packed bytes, shared and not copied.
pub fn tensor_to_proto(tensor: &Tensor) -> Result<TensorProto> {
    let mut proto = empty_proto(tensor);
    if let Some(buffer) = tensor.buffer() {
        proto.tensor_content = Bytes::from_owner(buffer.clone());
        return Ok(proto);
    }
    match tensor.dtype() {
        DType::String => proto.string_val = tensor.strings()?.to_vec(),
        DType::Resource => {
            proto.resource_handle_val = tensor.resources()?.iter().map(ResourceHandle::to_proto).collect();
        }
        _ => proto.variant_val = tensor.variants()?.iter().map(Variant::encode).collect::<Result<_>>()?,
    }
    Ok(proto)
}

/// Writes a tensor with everything in `tensor_content`, strings too (varint lengths, then the bytes), as `RecvTensor` does.
pub fn tensor_to_proto_inline(tensor: &Tensor) -> Result<TensorProto> {
    use prost::Message;
    let mut proto = empty_proto(tensor);
    let items: Vec<Bytes> = match tensor.dtype() {
        DType::String => tensor.strings()?.to_vec(),
        DType::Resource => tensor.resources()?.iter().map(|handle| handle.to_proto().encode_to_vec().into()).collect(),
        DType::Variant => {
            let encode = |value: &Variant| Ok(Bytes::from(value.encode()?.encode_to_vec()));
            tensor.variants()?.iter().map(encode).collect::<Result<_>>()?
        }
        _ => return tensor_to_proto(tensor),
    };
    let mut content = BytesMut::with_capacity(items.iter().map(|item| item.len() + 10).sum());
    for item in &items {
        prost::encoding::encode_varint(item.len() as u64, &mut content);
    }
    for item in &items {
        content.put_slice(item);
    }
    proto.tensor_content = content.freeze();
    Ok(proto)
}

fn empty_proto(tensor: &Tensor) -> TensorProto {
    TensorProto {
        dtype: tensor.dtype() as i32,
        tensor_shape: Some(tensor.shape().to_proto()),
        ..TensorProto::default()
    }
}

fn from_content(dtype: DType, shape: Shape, content: &Bytes) -> Result<Tensor> {
    use prost::Message;
    if dtype.is_plain() {
        return Tensor::from_buffer(dtype, shape, Buffer::foreign(content.clone()));
    }
    let count = shape.num_elements();
    let malformed = || Status::invalid_argument(format!("malformed {dtype} tensor content for shape {shape}"));
    if count > content.len() {
        return Err(malformed());
    }
    let mut rest = content.clone();
    let mut lengths = Vec::with_capacity(count);
    for _ in 0..count {
        let length = prost::encoding::decode_varint(&mut rest).map_err(|_| malformed())?;
        lengths.push(usize::try_from(length).map_err(|_| malformed())?);
    }
    let mut items = Vec::with_capacity(count);
    for length in lengths {
        if length > rest.remaining() {
            return Err(malformed());
        }
        items.push(rest.split_to(length));
    }
    if rest.has_remaining() {
        return Err(malformed());
    }
    match dtype {
        DType::String => Tensor::from_strings(shape, items),
        DType::Resource => {
            let handles: Result<Vec<_>> = items
                .into_iter()
                .map(|item| {
                    let proto = proto::ResourceHandleProto::decode(item).map_err(|_| malformed())?;
                    ResourceHandle::from_proto(&proto)
                })
                .collect();
            Tensor::from_resources(shape, handles?)
        }
        _ => {
            let values: Result<Vec<_>> = items
                .into_iter()
                .map(|item| {
                    let proto = proto::VariantTensorDataProto::decode(item).map_err(|_| malformed())?;
                    Ok(Variant::Encoded(Arc::new(proto)))
                })
                .collect();
            Tensor::from_variants(shape, values?)
        }
    }
}

/// How many times larger than its message a tensor may be, beyond what small constants need: a short message must not
/// be able to make the server allocate without bound.
const REPEATED_BYTES_MAX: usize = 4 << 30;

fn checked_count(shape: &Shape, values: usize, element_size: usize) -> Result<usize> {
    let count = shape.num_elements();
    if values < count {
        crate::check_elements_fit(count, element_size)?;
    }
    if shape.num_bytes(element_size)? > REPEATED_BYTES_MAX && values < count {
        return Err(Status::resource_exhausted(format!(
            "a tensor of shape {shape} with one repeated value is too large"
        )));
    }
    Ok(count)
}

/// Makes a tensor from the first values, of which the last repeats; no values at all mean zeros. Values beyond the shape are
/// not read, as in TensorFlow: its Python writes an empty tensor of strings with one value.
fn repeated<T: Element>(shape: Shape, values: impl ExactSizeIterator<Item = T>) -> Result<Tensor> {
    checked_count(&shape, values.len(), size_of::<T>())?;
    Tensor::build(shape, |elements: &mut [T]| {
        let mut last = T::default();
        let mut filled = 0;
        for (element, value) in elements.iter_mut().zip(values) {
            *element = value;
            last = value;
            filled += 1;
        }
        elements[filled..].fill(last);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{TensorShapeProto, tensor_shape_proto::Dim};

    fn shape_proto(dims: &[i64]) -> Option<TensorShapeProto> {
        Some(TensorShapeProto {
            dim: dims.iter().map(|&size| Dim { size, name: String::new() }).collect(),
            unknown_rank: false,
        })
    }

    #[test]
    fn values_beyond_the_shape_are_not_read() {
        let proto = TensorProto {
            dtype: proto::DataType::DtString as i32,
            tensor_shape: shape_proto(&[0]),
            string_val: vec![Bytes::new()],
            ..Default::default()
        };
        assert_eq!(tensor_from_proto(&proto).unwrap().strings().unwrap().len(), 0);
        let string_val = vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let proto = TensorProto { tensor_shape: shape_proto(&[1]), string_val, ..proto };
        assert_eq!(tensor_from_proto(&proto).unwrap().strings().unwrap(), ["a"]);
        let unknown = TensorShapeProto { unknown_rank: true, ..Default::default() };
        for (shape, expected) in [(shape_proto(&[1]), &[1][..]), (Some(unknown), &[])] {
            let proto = TensorProto { dtype: 1, tensor_shape: shape, float_val: vec![1.0, 2.0], ..Default::default() };
            let tensor = tensor_from_proto(&proto).unwrap();
            assert_eq!((tensor.shape().dims(), tensor.as_slice::<f32>().unwrap()), (expected, &[1f32][..]));
        }
    }

    #[test]
    fn the_last_value_repeats() {
        let proto = TensorProto {
            dtype: DType::Float as i32,
            tensor_shape: shape_proto(&[2, 2]),
            float_val: vec![1.0, 2.0],
            ..Default::default()
        };
        assert_eq!(tensor_from_proto(&proto).unwrap().as_slice::<f32>().unwrap(), &[1., 2., 2., 2.]);
    }

    #[test]
    fn round_trips() {
        let tensors = [
            Tensor::from_slice(&[2], &[1.5f64, -2.0]).unwrap(),
            Tensor::vector(&[true, false]),
            Tensor::scalar(f16::from_f32(0.5)),
            Tensor::from_slice(&[1, 1], &[Complex32::new(1.0, -1.0)]).unwrap(),
            Tensor::zeros(DType::Int64, Shape::new(&[0, 4]).unwrap()).unwrap(),
        ];
        for tensor in tensors {
            let back = tensor_from_proto(&tensor_to_proto(&tensor).unwrap()).unwrap();
            assert_eq!(back.shape(), tensor.shape());
            assert_eq!(back.dtype(), tensor.dtype());
            assert_eq!(back.buffer().unwrap().bytes(), tensor.buffer().unwrap().bytes());
        }
        let strings = Tensor::from_strings(Shape::vector(2), vec!["a".into(), vec![0u8, 255].into()]).unwrap();
        for proto in [tensor_to_proto(&strings).unwrap(), tensor_to_proto_inline(&strings).unwrap()] {
            assert_eq!(tensor_from_proto(&proto).unwrap().strings().unwrap(), strings.strings().unwrap());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cases = [
            TensorProto { dtype: 1, tensor_shape: shape_proto(&[-1]), ..Default::default() },
            TensorProto { dtype: 1, tensor_shape: shape_proto(&[i64::MAX, i64::MAX]), ..Default::default() },
            TensorProto { dtype: 77, tensor_shape: shape_proto(&[1]), ..Default::default() },
            TensorProto { dtype: 101, tensor_shape: shape_proto(&[1]), ..Default::default() },
            TensorProto {
                dtype: 1,
                tensor_shape: shape_proto(&[2]),
                tensor_content: Bytes::from_static(b"abc"),
                ..Default::default()
            },
            TensorProto {
                dtype: 7,
                tensor_shape: shape_proto(&[2]),
                tensor_content: Bytes::from_static(b"\x05\x05abc"),
                ..Default::default()
            },
            TensorProto { dtype: 1, tensor_shape: shape_proto(&[1 << 40]), float_val: vec![1.0], ..Default::default() },
        ];
        for proto in cases {
            assert!(tensor_from_proto(&proto).is_err(), "{proto:?}");
        }
    }
}
