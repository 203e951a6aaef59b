//! Positions of extremes along an axis: ArgMax, ArgMin.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::reduce::{ArgElement, argmax as find_largest, argmin as find_smallest};
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ArgMax",
            inputs: &["input: T", "dimension: Tidx"],
            outputs: &["output: output_type"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16, bool}",
                "Tidx: {int16, int32, int64} = DT_INT32",
                "output_type: {int16, uint16, int32, int64} = DT_INT64",
            ],
            flags: OpFlags::NONE,
        },
        shape: arg_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| create(builder, true))],
    },
    Op {
        def: OpDef {
            name: "ArgMin",
            inputs: &["input: T", "dimension: Tidx"],
            outputs: &["output: output_type"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16, bool}",
                "Tidx: {int32, int64} = DT_INT32",
                "output_type: {int32, int64} = DT_INT64",
            ],
            flags: OpFlags::NONE,
        },
        shape: arg_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| create(builder, false))],
    },
];

/// Returns the position of the largest element along an axis, as `int64`.
#[track_caller]
pub fn argmax(x: &Output, axis: i32) -> Output {
    let graph = x.graph();
    graph.op("ArgMax").input(x).input(&graph.constant_tensor(&Tensor::scalar(axis))).output()
}

/// Returns the position of the smallest element along an axis, as `int64`.
#[track_caller]
pub fn argmin(x: &Output, axis: i32) -> Output {
    let graph = x.graph();
    graph.op("ArgMin").input(x).input(&graph.constant_tensor(&Tensor::scalar(axis))).output()
}

fn arg_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    c.with_rank(1, 0)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    if dims.len() <= 1 {
        // Reducing a scalar or a vector gives a scalar, whatever the axis.
        c.set_output(0, PartialShape::scalar());
        return Ok(());
    }
    let Some(axis) = c.constant(1) else {
        c.set_output(0, PartialShape::unknown_of_rank(dims.len() - 1));
        return Ok(());
    };
    let rank = dims.len() as i64;
    let axis = index_of(&axis)?;
    if axis < -rank || axis >= rank {
        return Err(Status::invalid_argument(format!(
            "Dimension ({axis}) must be in the range [{}, {rank}), where {rank} is the number of dimensions in the input.",
            -rank
        )));
    }
    let axis = (if axis < 0 { axis + rank } else { axis }) as usize;
    let kept: Vec<Option<i64>> =
        dims.iter().enumerate().filter(|(index, _)| *index != axis).map(|(_, dim)| *dim).collect();
    c.set_output(0, PartialShape::new(&kept));
    Ok(())
}

fn index_of(axis: &Tensor) -> Result<i64> {
    if axis.dtype() == DType::Int16 { axis.to_scalar::<i16>().map(i64::from) } else { axis.to_index() }
}

type Find = fn(&Tensor, [usize; 3], Shape, bool) -> Result<Tensor>;

struct Arg {
    largest: bool,
    find: Find,
    output: DType,
}

fn create(builder: &KernelBuilder<'_>, largest: bool) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    // Narrow types are compared as wider ones with the same order.
    let find: Find = match attrs.dtype("T")? {
        DType::Float => find::<f32>,
        DType::Double => find::<f64>,
        DType::Half => |x, dims, shape, largest| find::<f32>(&widen::<f16, f32>(x)?, dims, shape, largest),
        DType::BFloat16 => |x, dims, shape, largest| find::<f32>(&widen::<bf16, f32>(x)?, dims, shape, largest),
        DType::Int8 | DType::QInt8 => {
            |x, dims, shape, largest| find::<i32>(&widen::<i8, i32>(x)?, dims, shape, largest)
        }
        DType::Int16 | DType::QInt16 => {
            |x, dims, shape, largest| find::<i32>(&widen::<i16, i32>(x)?, dims, shape, largest)
        }
        DType::UInt8 | DType::QUInt8 => {
            |x, dims, shape, largest| find::<i32>(&widen::<u8, i32>(x)?, dims, shape, largest)
        }
        DType::UInt16 | DType::QUInt16 => {
            |x, dims, shape, largest| find::<i32>(&widen::<u16, i32>(x)?, dims, shape, largest)
        }
        DType::Bool => |x, dims, shape, largest| find::<i32>(&widen::<bool, i32>(x)?, dims, shape, largest),
        DType::Int32 | DType::QInt32 => find::<i32>,
        DType::UInt32 => |x, dims, shape, largest| find::<i64>(&widen::<u32, i64>(x)?, dims, shape, largest),
        DType::Int64 => find::<i64>,
        DType::UInt64 => find::<u64>,
        other => return Err(Status::unimplemented(format!("no order among elements of type {other}"))),
    };
    BoxedKernel::new(Arg { largest, find, output: attrs.dtype("output_type")? })
}

fn widen<A: Element + Into<B>, B: Element>(x: &Tensor) -> Result<Tensor> {
    let values = x.as_slice::<A>()?;
    Tensor::build(x.shape().clone(), |out: &mut [B]| {
        out.iter_mut().zip(values).for_each(|(out, &value)| *out = value.into());
    })
}

fn find<T: Element + ArgElement>(x: &Tensor, dims: [usize; 3], shape: Shape, largest: bool) -> Result<Tensor> {
    let values = x.as_slice::<T>()?;
    Tensor::build(
        shape,
        |out: &mut [i64]| {
            if largest { find_largest(values, dims, out) } else { find_smallest(values, dims, out) }
        },
    )
}

/// Returns positions in the op's output type.
fn narrow(positions: Tensor, dtype: DType) -> Result<Tensor> {
    fn convert<T: Element>(positions: &Tensor, narrow: impl Fn(i64) -> T) -> Result<Tensor> {
        let from = positions.as_slice::<i64>()?;
        Tensor::build(positions.shape().clone(), |to: &mut [T]| {
            to.iter_mut().zip(from).for_each(|(to, &from)| *to = narrow(from));
        })
    }
    match dtype {
        DType::Int16 => convert(&positions, |position| position as i16),
        DType::UInt16 => convert(&positions, |position| position as u16),
        DType::Int32 => convert(&positions, |position| position as i32),
        _ => Ok(positions),
    }
}

impl Kernel for Arg {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, axis) = (context.input(0)?, context.input(1)?);
        if axis.num_elements() != 1 {
            return Err(Status::invalid_argument(format!(
                "dim must be a scalar, but received tensor of shape: {}",
                axis.shape()
            )));
        }
        let shape = input.shape();
        let axis = shape.axis(index_of(axis)?)?;
        if shape.dim(axis) == 0 {
            return Err(Status::invalid_argument(format!("Reduction axis {axis} is empty in shape {shape}")));
        }
        let dims = shape.to_usize();
        let (outer, inner) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
        let kept = [&dims[..axis], &dims[axis + 1..]].concat();
        let positions = (self.find)(input, [outer, dims[axis], inner], Shape::from_usize(&kept)?, self.largest)?;
        context.set_output(0, narrow(positions, self.output)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, infer, run_op};
    use tensor::{DType, Tensor};

    #[test]
    fn positions() {
        let x = Tensor::from_slice(&[2, 3], &[1f32, f32::NAN, 2.0, 9.0, 9.0, 3.0]).unwrap();
        let y = run_op("ArgMax", attrs![], &[x.clone(), Tensor::scalar(1i32)]).unwrap();
        assert_eq!(y[0].as_slice::<i64>().unwrap(), &[2, 0]);
        let y = run_op("ArgMin", attrs![("output_type", DType::Int32)], &[x, Tensor::scalar(-2i64)]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[0, 1, 0]);
        let y = run_op("ArgMax", attrs![], &[Tensor::vector(&[false, true]), Tensor::scalar(0i32)]).unwrap();
        assert_eq!(y[0].to_scalar::<i64>().unwrap(), 1);
        let status = run_op("ArgMax", attrs![], &[Tensor::vector::<f32>(&[]), Tensor::scalar(0i32)]).unwrap_err();
        assert!(status.message().starts_with("Reduction axis 0 is empty in shape [0]"), "{status}");
        assert!(run_op("ArgMax", attrs![], &[Tensor::scalar(1f32), Tensor::scalar(0i32)]).is_err());
    }

    #[test]
    fn shapes() {
        let shape = |axis: Option<i32>| {
            let constants: Vec<_> = axis.map(|axis| (1, Tensor::scalar(axis))).into_iter().collect();
            let attrs = attrs![("Tidx", DType::Int32)];
            infer("ArgMax", attrs, "[2,?,4];[]", &constants).unwrap()[0].to_string()
        };
        assert_eq!(shape(Some(-1)), "[2,?]");
        assert_eq!(shape(None), "[?,?]");
    }
}
