//! The values of a slice as the typed fields of a `TensorProto`, without a type or a shape: the list of contents has those.

use proto::TensorProto;
use tensor::{Complex32, Complex64, DType, Element, Result, Shape, Status, Tensor, f16, tensor_from_proto};

/// The longest message that TensorFlow makes.
const MESSAGE_BYTES_MAX: u128 = 1 << 31;
/// What TensorFlow sets aside for what a message holds besides its values.
const HEADER_BYTES: u128 = 1 << 10;

/// Fails for a tensor that TensorFlow doesn't write: one of a type that the format lacks, or one that is too large.
pub(super) fn check_writable(tensor: &Tensor, names_bytes: usize) -> Result<()> {
    let dtype = tensor.dtype();
    let element_bytes = match dtype {
        DType::Bool => 1,
        DType::UInt8 | DType::QUInt8 => 2,
        DType::UInt16 | DType::Half => 3,
        DType::Float => 4,
        DType::Double | DType::Complex64 => 8,
        // Negative numbers take ten bytes, and strings as much for their lengths.
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 | DType::QInt8 | DType::QInt32 | DType::String => 10,
        DType::Complex128 => 16,
        DType::UInt32 | DType::UInt64 => {
            return Err(Status::invalid_argument(format!(
                "Tensor slice serialization not implemented for dtype {dtype}"
            )));
        }
        _ => return Err(Status::unimplemented(format!("Saving data type {dtype} not yet supported"))),
    };
    let mut bytes = names_bytes as u128 + HEADER_BYTES + tensor.num_elements() as u128 * element_bytes;
    if dtype == DType::String {
        bytes += tensor.strings()?.iter().map(|text| text.len() as u128).sum::<u128>();
    }
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "Tensor slice is too large to serialize (conservative estimate: {bytes} bytes)"
        )));
    }
    Ok(())
}

/// Returns the values of a tensor.
pub(super) fn encode(tensor: &Tensor) -> Result<TensorProto> {
    let mut proto = TensorProto::default();
    match tensor.dtype() {
        DType::Float => proto.float_val = tensor.as_slice()?.to_vec(),
        DType::Double => proto.double_val = tensor.as_slice()?.to_vec(),
        DType::Int32 | DType::QInt32 => proto.int_val = tensor.as_slice()?.to_vec(),
        DType::Int64 => proto.int64_val = tensor.as_slice()?.to_vec(),
        DType::Bool => proto.bool_val = tensor.as_slice()?.to_vec(),
        DType::String => proto.string_val = tensor.strings()?.to_vec(),
        DType::Int8 | DType::QInt8 => proto.int_val = widened::<i8>(tensor)?,
        DType::UInt8 | DType::QUInt8 => proto.int_val = widened::<u8>(tensor)?,
        DType::Int16 => proto.int_val = widened::<i16>(tensor)?,
        DType::UInt16 => proto.int_val = widened::<u16>(tensor)?,
        DType::Half => proto.half_val = tensor.as_slice::<f16>()?.iter().map(|value| value.to_bits().into()).collect(),
        DType::Complex64 => {
            proto.scomplex_val =
                tensor.as_slice::<Complex32>()?.iter().flat_map(|value| [value.re, value.im]).collect();
        }
        DType::Complex128 => {
            proto.dcomplex_val =
                tensor.as_slice::<Complex64>()?.iter().flat_map(|value| [value.re, value.im]).collect();
        }
        other => return Err(Status::unimplemented(format!("Saving data type {other} not yet supported"))),
    }
    Ok(proto)
}

fn widened<T: Element + Into<i32>>(tensor: &Tensor) -> Result<Vec<i32>> {
    Ok(tensor.as_slice::<T>()?.iter().map(|&value| value.into()).collect())
}

/// Returns the tensor of a type and shape that has these values, one for each of its elements.
pub(super) fn decode(mut proto: TensorProto, dtype: DType, shape: &Shape) -> Result<Tensor> {
    let count = match dtype {
        DType::Float => proto.float_val.len(),
        DType::Double => proto.double_val.len(),
        DType::Int64 => proto.int64_val.len(),
        DType::Bool => proto.bool_val.len(),
        DType::String => proto.string_val.len(),
        DType::Half => proto.half_val.len(),
        DType::Complex64 => proto.scomplex_val.len() / 2,
        DType::Complex128 => proto.dcomplex_val.len() / 2,
        DType::Int32 | DType::Int16 | DType::Int8 | DType::UInt16 | DType::UInt8 => proto.int_val.len(),
        DType::QInt32 | DType::QInt8 | DType::QUInt8 => proto.int_val.len(),
        other => return Err(Status::unimplemented(format!("Restoring data type {other} not yet supported"))),
    };
    if count != shape.num_elements() {
        return Err(Status::data_loss(format!("a slice of shape {shape} has {count} values")));
    }
    proto.tensor_content = Default::default();
    proto.dtype = dtype as i32;
    proto.tensor_shape = Some(shape.to_proto());
    tensor_from_proto(&proto)
}
