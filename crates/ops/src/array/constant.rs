//! Tensors of constant values: Const, Fill, ZerosLike, OnesLike, Empty.

use crate::compose::{call, int_scalar};
use crate::movement::{Movable, copy_cost_ns};
use graph::{Graph, Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    kernels, shape,
};
use num_traits::One;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Const",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["value: tensor", "dtype: type"],
            flags: OpFlags::NONE,
        },
        shape: constant_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Constant::create)],
    },
    Op {
        def: OpDef {
            name: "HostConst",
            inputs: &[],
            outputs: &["output: dtype"],
            attrs: &["value: tensor", "dtype: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Constant::create)],
    },
    Op {
        def: OpDef {
            name: "Fill",
            inputs: &["dims: index_type", "value: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "index_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: fill_shape,
        gradient: Gradient::Fn(fill_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Fill))],
    },
    Op {
        def: OpDef {
            name: "ZerosLike",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ZerosLike))],
    },
    Op {
        def: OpDef {
            name: "OnesLike",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, complex64, complex128, bool}",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [
            bf16, f16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, Complex32, Complex64, bool
        ] => OnesLike),
    },
    Op {
        def: OpDef {
            name: "Empty",
            inputs: &["shape: int32"],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "init: bool = false"],
            flags: OpFlags::STATEFUL,
        },
        shape: empty_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Empty { dtype: builder.output_dtype(0) }))],
    },
];

/// Returns a constant.
#[track_caller]
pub fn constant(graph: &Graph, value: &Tensor) -> Output {
    graph.constant_tensor(value)
}

/// Returns a tensor of shape `dims` filled with the scalar `value`.
#[track_caller]
pub fn fill(dims: &Output, value: &Output) -> Output {
    dims.graph().op("Fill").input(dims).input(value).output()
}

/// Returns zeros in the shape and type of `input`.
#[track_caller]
pub fn zeros_like(input: &Output) -> Output {
    input.graph().op("ZerosLike").input(input).output()
}

/// Returns ones in the shape and type of `input`.
#[track_caller]
pub fn ones_like(input: &Output) -> Output {
    input.graph().op("OnesLike").input(input).output()
}

/// Returns zeros, as TensorFlow's `zeros` builds them: a constant when small, a `Fill` otherwise.
#[track_caller]
pub fn zeros(graph: &Graph, dtype: DType, shape: &Shape) -> Output {
    /// Larger constants would only make the graph large.
    const CONSTANT_ELEMENTS_MAX: usize = 1000;
    if shape.num_elements() < CONSTANT_ELEMENTS_MAX {
        return graph.constant(Tensor::zeros(dtype, shape.clone()));
    }
    let dims = shape_vector(shape.dims(), shape.dims().iter().any(|&dim| dim > i64::from(i32::MAX)));
    fill(&graph.constant_tensor(&dims), &graph.constant(Tensor::zeros(dtype, Shape::scalar())))
}

fn shape_vector(dims: &[i64], wide: bool) -> Tensor {
    if wide { Tensor::vector(dims) } else { Tensor::vector(&dims.iter().map(|&dim| dim as i32).collect::<Vec<_>>()) }
}

fn fill_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let rank = call("Rank", &[&grad])?;
    let axes = call("Range", &[&int_scalar(graph, 0)?, &rank, &int_scalar(graph, 1)?])?;
    Ok(vec![None, Some(call("Sum", &[&grad, &axes])?.into())])
}

fn constant_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = match c.attrs.value("value")? {
        proto::attr_value::Value::Tensor(value) => match &value.tensor_shape {
            Some(shape) => PartialShape::from_proto(shape)?,
            None => PartialShape::scalar(),
        },
        _ => return Err(Status::invalid_argument("attr 'value' is not a tensor")),
    };
    c.set_output(0, shape);
    Ok(())
}

fn fill_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    c.with_rank(1, 0)?;
    if let Some(dims) = c.constant(0) {
        check_dims(&dims.to_indices()?)?;
    }
    let shape = c.constant_as_shape(0)?;
    c.set_output(0, shape);
    Ok(())
}

fn empty_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?;
    c.set_output(0, shape);
    Ok(())
}

fn check_dims(dims: &[i64]) -> Result<()> {
    match dims.iter().find(|&&dim| dim < 0) {
        Some(dim) => Err(Status::invalid_argument(format!("Dimension {dim} must be >= 0"))),
        None => Ok(()),
    }
}

struct Constant {
    value: Tensor,
}

impl Constant {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let value = builder.attrs().tensor("value")?;
        if value.dtype() != builder.output_dtype(0) {
            return Err(Status::invalid_argument(format!(
                "Type mismatch between value ({}) and dtype ({})",
                value.dtype(),
                builder.output_dtype(0)
            )));
        }
        BoxedKernel::new(Constant { value })
    }
}

impl Kernel for Constant {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.set_output(0, self.value.clone());
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Fill;

impl Kernel for Fill {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (dims, value) = (context.input(0)?, context.input(1)?);
        if dims.shape().rank() > 1 {
            return Err(Status::invalid_argument(format!("dims must represent a vector, got shape {}", dims.shape())));
        }
        if !(value.shape().is_scalar() || value.shape().dims() == [1]) {
            return Err(Status::invalid_argument(format!(
                "value must represent a scalar, got shape {}",
                value.shape()
            )));
        }
        let dims = dims.to_indices()?;
        check_dims(&dims)?;
        let shape = Shape::new(&dims)?;
        let output = with_movable!(value.dtype(), E => filled::<E>(value, shape)?);
        context.set_output(0, output);
        Ok(())
    }
}

fn filled<E: Movable>(value: &Tensor, shape: Shape) -> Result<Tensor> {
    let element = E::view(value)?.first().ok_or_else(|| Status::invalid_argument("value must be a scalar"))?;
    E::build(value.dtype(), shape, |out| {
        numeric::parallel::for_each_chunk_mut(out, 1, copy_cost_ns::<E>(1) / 8.0, |_, run| run.fill(element.clone()));
    })
}

struct ZerosLike;

impl Kernel for ZerosLike {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (dtype, shape) = (context.input(0)?.dtype(), context.input(0)?.shape().clone());
        if dtype == DType::Variant {
            if !shape.is_scalar() {
                return Err(Status::invalid_argument(
                    "ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported.",
                ));
            }
            let zeros = context.input(0)?.variants()?.iter().map(crate::list::zeros_like_variant);
            let zeros = zeros.collect::<Result<_>>()?;
            context.set_output(0, Tensor::from_variants(shape, zeros)?);
            return Ok(());
        }
        let output = if dtype.is_plain() {
            let reused = context.reuse_or_new(0, dtype, &shape)?;
            with_movable!(dtype, E => E::modify(reused, |out| {
                if let Some(zero) = E::zero() {
                    out.fill(zero);
                }
                Ok(())
            })?)
        } else {
            Tensor::zeros(dtype, shape)?
        };
        context.set_output(0, output);
        Ok(())
    }
}

struct OnesLike<T>(PhantomData<fn(T)>);

/// A type that has a one.
trait HasOne: Element {
    fn one() -> Self;
}

macro_rules! has_one {
    ($($ty:ty),*) => {$(impl HasOne for $ty { fn one() -> Self { <$ty as One>::one() } })*};
}

has_one!(bf16, f16, f32, f64, i8, u8, i16, u16, i32, u32, i64, u64, Complex32, Complex64);

impl HasOne for bool {
    fn one() -> Self {
        true
    }
}

impl<T: HasOne> OnesLike<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(OnesLike::<T>(PhantomData))
    }
}

impl<T: HasOne> Kernel for OnesLike<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = context.input(0)?.shape().clone();
        let mut output = context.reuse_or_new(0, T::DTYPE, &shape)?;
        output.make_mut::<T>()?.fill(T::one());
        context.set_output(0, output);
        Ok(())
    }
}

struct Empty {
    dtype: DType,
}

impl Kernel for Empty {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        // Zeros even without `init`: the previous contents of the memory must not be visible.
        let shape = Shape::new(&context.input(0)?.to_indices()?)?;
        context.set_output(0, Tensor::zeros(self.dtype, shape)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, infer, run_op};
    use tensor::{DType, Shape, Tensor};

    #[test]
    fn constants() {
        let value = tensor::tensor_to_proto(&Tensor::vector(&[1i32, 2])).unwrap();
        let y = run_op("Const", attrs![("dtype", DType::Int32), ("value", value.clone())], &[]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[1, 2]);
        assert!(run_op("Const", attrs![("dtype", DType::Float), ("value", value.clone())], &[]).is_err());
        check_shape("Const", attrs![("dtype", DType::Int32), ("value", value)], "", "[2]");
    }

    #[test]
    fn fills() {
        let y = run_op("Fill", attrs![], &[Tensor::vector(&[2i64, 2]), Tensor::scalar(3f32)]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<f32>().unwrap()), (&[2, 2][..], &[3f32; 4][..]));
        let y = run_op("Fill", attrs![], &[Tensor::vector(&[2i32]), Tensor::string("a")]).unwrap();
        assert_eq!(y[0].strings().unwrap().len(), 2);
        let y = run_op("Fill", attrs![], &[Tensor::vector::<i32>(&[]), Tensor::scalar(true)]).unwrap();
        assert!(y[0].to_scalar::<bool>().unwrap() && y[0].shape().is_scalar());
        assert!(run_op("Fill", attrs![], &[Tensor::vector(&[-1i32]), Tensor::scalar(1u8)]).is_err());
        assert!(run_op("Fill", attrs![], &[Tensor::vector(&[1i64 << 60]), Tensor::scalar(1f64)]).is_err());
        let shapes = infer("Fill", attrs![], "[2];[]", &[(0, Tensor::vector(&[4i32, 5]))]).unwrap();
        assert_eq!(shapes[0].to_string(), "[4,5]");
        check_shape("Fill", attrs![], "[2];[]", "[?,?]");
    }

    #[test]
    fn likes() {
        let x = Tensor::from_slice(&[1, 2], &[true, false]).unwrap();
        assert_eq!(run_op("OnesLike", attrs![], &[x.clone()]).unwrap()[0].as_slice::<bool>().unwrap(), &[true, true]);
        let zeros = run_op("ZerosLike", attrs![], &[x]).unwrap();
        assert_eq!(zeros[0].as_slice::<bool>().unwrap(), &[false, false]);
        let strings = Tensor::from_strings(Shape::vector(1), vec!["x".into()]).unwrap();
        assert!(run_op("ZerosLike", attrs![], &[strings]).unwrap()[0].strings().unwrap()[0].is_empty());
        let quantized = Tensor::vector(&[3i8]).with_dtype(DType::QInt8).unwrap();
        assert_eq!(run_op("ZerosLike", attrs![], &[quantized]).unwrap()[0].dtype(), DType::QInt8);
    }
}
