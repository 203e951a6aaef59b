//! Tensors with the same number everywhere, which a graph holds as that number and a shape: a constant that holds the number
//! once, or, from 1,000 elements on, a `Fill`, where TensorFlow's `zeros` and `ones` add one.

use super::expression::number;
use crate::variable::named_constant;
use graph::{Graph, Output};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The number of elements from which `tf.zeros` and `tf.ones` fill on the device.
const FILL_ELEMENTS_MIN: usize = 1000;

/// Adds a number broadcast to a shape, as `tf.zeros` and `tf.ones` do under the name `name`.
pub(crate) fn filled(graph: &Graph, name: &str, value: f64, dtype: DType, shape: &Shape) -> Result<Output> {
    filled_with(graph, name, &number(value, dtype)?, shape)
}

/// As [`filled`], with a scalar of any type.
pub(crate) fn filled_with(graph: &Graph, name: &str, scalar: &Tensor, shape: &Shape) -> Result<Output> {
    if shape.num_elements() < FILL_ELEMENTS_MIN {
        return repeated(graph, name, scalar, shape);
    }
    graph.name_scope(name, |graph| {
        let whole = format!("{}/", graph.current_name_scope());
        let dims: Option<Vec<i32>> = shape.dims().iter().map(|&size| i32::try_from(size).ok()).collect();
        let dims = match dims {
            Some(dims) => Tensor::vector(&dims),
            None => Tensor::vector(shape.dims()),
        };
        let dims = named_constant(graph, "shape_as_tensor", &dims);
        let scalar = named_constant(graph, "Const", scalar);
        Ok(graph.op("Fill").name(&whole).input(&dims).input(&scalar).try_build()?.output(0))
    })
}

/// Adds a constant with the same number everywhere, as `tf.constant(value, shape=…)` does.
pub(crate) fn filled_constant(graph: &Graph, name: &str, value: f64, dtype: DType, shape: &Shape) -> Result<Output> {
    repeated(graph, name, &number(value, dtype)?, shape)
}

fn repeated(graph: &Graph, name: &str, scalar: &Tensor, shape: &Shape) -> Result<Output> {
    let proto = repeated_proto(scalar, shape)?;
    Ok(graph.op("Const").name(name).attr("dtype", scalar.dtype()).attr("value", proto).try_build()?.output(0))
}

/// Encodes a tensor whose elements are all `scalar`: elements that a message omits repeat its last one.
fn repeated_proto(scalar: &Tensor, shape: &Shape) -> Result<proto::TensorProto> {
    let dtype = scalar.dtype();
    let mut proto = proto::TensorProto {
        dtype: dtype as i32,
        tensor_shape: Some(shape.to_proto()),
        ..proto::TensorProto::default()
    };
    if shape.num_elements() == 0 {
        return Ok(proto);
    }
    match dtype {
        DType::Float => proto.float_val = vec![scalar.to_scalar::<f32>()?],
        DType::Double => proto.double_val = vec![scalar.to_scalar::<f64>()?],
        DType::Half => proto.half_val = vec![scalar.to_scalar::<tensor::f16>()?.to_bits().into()],
        DType::BFloat16 => proto.half_val = vec![scalar.to_scalar::<tensor::bf16>()?.to_bits().into()],
        DType::Int32 => proto.int_val = vec![scalar.to_scalar::<i32>()?],
        DType::Int64 => proto.int64_val = vec![scalar.to_scalar::<i64>()?],
        DType::Bool => proto.bool_val = vec![scalar.to_scalar::<bool>()?],
        DType::String => proto.string_val = scalar.strings()?.to_vec(),
        other => return Err(Status::invalid_argument(format!("a constant of type {other} can't be filled"))),
    }
    Ok(proto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_number_reads_back_as_the_whole_tensor() -> Result<()> {
        let shape = Shape::new(&[3, 2])?;
        for dtype in [DType::Float, DType::Double, DType::Half, DType::BFloat16, DType::Int32, DType::Int64] {
            let proto = repeated_proto(&number(3.0, dtype)?, &shape)?;
            let whole = tensor::tensor_from_proto(&proto)?;
            assert_eq!((whole.dtype(), whole.shape()), (dtype, &shape));
            let expected = number(3.0, dtype)?;
            let bytes = expected.num_bytes();
            let (whole, expected) = (tensor::tensor_to_proto(&whole)?, tensor::tensor_to_proto(&expected)?);
            assert!(whole.tensor_content.chunks(bytes).all(|element| element == expected.tensor_content), "{dtype}");
        }
        Ok(())
    }

    #[test]
    fn a_type_without_numbers_is_refused() -> Result<()> {
        let scalar = Tensor::zeros(DType::Complex64, Shape::scalar())?;
        let status = repeated_proto(&scalar, &Shape::scalar()).unwrap_err();
        assert_eq!(status.code(), tensor::Code::InvalidArgument);
        Ok(())
    }
}
