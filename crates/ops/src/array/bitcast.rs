//! Bitcast: the same bytes as elements of another type.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Bitcast",
        inputs: &["input: T"],
        outputs: &["output: type"],
        attrs: &[
            "T: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, quint8, qint16, quint16, qint32}",
            "type: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, quint8, qint16, quint16, qint32}",
        ],
        flags: OpFlags::NONE,
    },
    shape: bitcast_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(|builder| BoxedKernel::new(Bitcast { dtype: builder.output_dtype(0) }))],
}];

/// Returns the bytes of `input` as elements of `dtype`; a dimension is added or removed if their sizes differ.
#[track_caller]
pub fn bitcast(input: &Output, dtype: DType) -> Output {
    input.graph().op("Bitcast").input(input).attr("type", dtype).output()
}

fn bitcast_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let (from, to) = (c.attrs.dtype("T")?.size() as i64, c.attrs.dtype("type")?.size() as i64);
    let shape = if from == to {
        input.clone()
    } else if from > to {
        input.concat(&PartialShape::new(&[Some(from / to.max(1))]))
    } else {
        let Some(last) = dims.last() else {
            return Err(Status::invalid_argument(format!(
                "Cannot bitcast from {from} to {to} bytes: a scalar is too small"
            )));
        };
        if last.is_some_and(|last| last != to / from.max(1)) {
            return Err(Status::invalid_argument(format!(
                "Cannot bitcast due to shape: the last dimension must be {}",
                to / from.max(1)
            )));
        }
        input.slice(0, dims.len() - 1)
    };
    c.set_output(0, shape);
    Ok(())
}

struct Bitcast {
    dtype: DType,
}

impl Kernel for Bitcast {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        let (from, to) = (input.dtype().size(), self.dtype.size());
        let mut dims: SmallVec<[i64; 8]> = input.dims().into();
        if from > to && to > 0 {
            dims.push((from / to) as i64);
        } else if from < to {
            let expected = (to / from.max(1)) as i64;
            if dims.pop() != Some(expected) {
                return Err(Status::invalid_argument(format!(
                    "Cannot bitcast from {to} to {from}: the last dimension of {} {} must be {expected} for {}",
                    input.dtype(),
                    input.shape(),
                    self.dtype
                )));
            }
        }
        let buffer = input.buffer().ok_or_else(|| Status::invalid_argument("the elements are not plain bytes"))?;
        let output = Tensor::from_buffer(self.dtype, Shape::new(&dims)?, buffer.clone())?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{DType, Tensor};

    #[test]
    fn values() {
        let cast = |x: Tensor, dtype: DType| run_op("Bitcast", attrs![("type", dtype)], &[x]).map(|y| y[0].clone());
        let y = cast(Tensor::vector(&[1i64, 2]), DType::Int32).unwrap();
        assert_eq!((y.dims(), y.as_slice::<i32>().unwrap()), (&[2i64, 2][..], &[1, 0, 2, 0][..]));
        let y = cast(y, DType::Int64).unwrap();
        assert_eq!((y.dims(), y.as_slice::<i64>().unwrap()), (&[2i64][..], &[1, 2][..]));
        assert_eq!(cast(Tensor::scalar(1f32), DType::Int32).unwrap().to_scalar::<i32>().unwrap(), 1065353216);
        assert!(cast(Tensor::vector(&[1u8, 2, 3]), DType::Int32).is_err());
        assert!(cast(Tensor::scalar(1u8), DType::Int32).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("Bitcast", attrs![("T", DType::Int64), ("type", DType::Int32)], "[?]", "[?,2]");
        check_shape("Bitcast", attrs![("T", DType::Int32), ("type", DType::Int64)], "[3,2]", "[3]");
    }
}
