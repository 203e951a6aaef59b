//! Scatters of slices by vectors of indices: ScatterNd, TensorScatterUpdate and related ops, ScatterNdNonAliasingAdd.

use crate::arithmetic::{Arithmetic, Ordered};
use crate::compose::{binary, call, cast, unary};
use crate::movement::Movable;
use crate::rows::{NdSlices, nd_slices};
use bytes::Bytes;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{Complex32, Complex64, DType, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ScatterNd",
            inputs: &["indices: Tindices", "updates: T", "shape: Tindices"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tindices: {int16, int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: scatter_nd_shape,
        gradient: Gradient::Fn(scatter_nd_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ScatterNd))],
    },
    Op {
        def: OpDef {
            name: "TensorScatterUpdate",
            inputs: &["tensor: T", "indices: Tindices", "updates: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tindices: {int16, int32, int64, uint16}"],
            flags: OpFlags::NONE,
        },
        shape: tensor_scatter_shape,
        gradient: Gradient::Fn(update_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorScatter(Combine::Replace)))],
    },
    Op {
        def: OpDef {
            name: "TensorScatterAdd",
            inputs: &["tensor: T", "indices: Tindices", "updates: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tindices: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: tensor_scatter_shape,
        gradient: Gradient::Fn(add_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorScatter(Combine::Add)))],
    },
    Op {
        def: OpDef {
            name: "TensorScatterSub",
            inputs: &["tensor: T", "indices: Tindices", "updates: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tindices: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: tensor_scatter_shape,
        gradient: Gradient::Fn(sub_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorScatter(Combine::Subtract)))],
    },
    Op {
        def: OpDef {
            name: "TensorScatterMin",
            inputs: &["tensor: T", "indices: Tindices", "updates: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tindices: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: tensor_scatter_shape,
        gradient: Gradient::Fn(extreme_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorScatter(Combine::Minimum)))],
    },
    Op {
        def: OpDef {
            name: "TensorScatterMax",
            inputs: &["tensor: T", "indices: Tindices", "updates: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tindices: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: tensor_scatter_shape,
        gradient: Gradient::Fn(extreme_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorScatter(Combine::Maximum)))],
    },
    Op {
        def: OpDef {
            name: "ScatterNdNonAliasingAdd",
            inputs: &["input: T", "indices: Tindices", "updates: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool}",
                "Tindices: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: tensor_scatter_shape,
        gradient: Gradient::Fn(add_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(TensorScatter(Combine::Add)))],
    },
];

/// Returns zeros of a shape with `updates` added at the vectors in `indices`.
#[track_caller]
pub fn scatter_nd(indices: &Output, updates: &Output, shape: &Output) -> Output {
    indices.graph().op("ScatterNd").input(indices).input(updates).input(shape).output()
}

/// Returns `tensor` with the slices that `indices` name replaced.
#[track_caller]
pub fn tensor_scatter_update(tensor: &Output, indices: &Output, updates: &Output) -> Output {
    tensor.graph().op("TensorScatterUpdate").input(tensor).input(indices).input(updates).output()
}

/// Returns `tensor` with `updates` added to the slices that `indices` name.
#[track_caller]
pub fn tensor_scatter_add(tensor: &Output, indices: &Output, updates: &Output) -> Output {
    tensor.graph().op("TensorScatterAdd").input(tensor).input(indices).input(updates).output()
}

fn scatter_nd_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    Ok(vec![None, Some(binary("GatherNd", &grad, &args.input(0))?.into()), None])
}

fn update_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let indices = args.input(1);
    let zeros = unary("ZerosLike", &args.input(2))?;
    let rest = call("TensorScatterUpdate", &[&unary("Identity", &grad)?, &indices, &zeros])?;
    Ok(vec![Some(rest.into()), None, Some(binary("GatherNd", &grad, &indices)?.into())])
}

fn add_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let updates = binary("GatherNd", &grad, &args.input(1))?;
    Ok(vec![Some(grad.into()), None, Some(updates.into())])
}

fn sub_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let updates = unary("Neg", &binary("GatherNd", &grad, &args.input(1))?)?;
    Ok(vec![Some(grad.into()), None, Some(updates.into())])
}

/// The gradient is shared among all elements that are equal to the result.
fn extreme_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let (x, indices, y, output) = (args.input(0), args.input(1), args.input(2), args.output(0));
    let x_equal = cast(&binary("Equal", &x, &output)?, grad.dtype())?;
    let y_output = binary("GatherNd", &output, &indices)?;
    let y_equal = cast(&binary("Equal", &y, &y_output)?, grad.dtype())?;
    let shape = x.graph().op("Shape").input(&x).attr("out_type", indices.dtype()).try_build()?.try_output(0)?;
    let ys_equal = call("ScatterNd", &[&indices, &y_equal, &shape])?;
    let shares = binary("AddV2", &x_equal, &ys_equal)?;
    let share = binary("RealDiv", &grad, &shares)?;
    let x_grad = binary("Mul", &share, &x_equal)?;
    let y_grad = binary("Mul", &binary("GatherNd", &share, &indices)?, &y_equal)?;
    Ok(vec![Some(x_grad.into()), None, Some(y_grad.into())])
}

fn scatter_nd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(2)?;
    check_updates(&shape, &c.input(0), &c.input(1))?;
    c.set_output(0, shape);
    Ok(())
}

fn tensor_scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank_at_least(0, 1)?;
    check_updates(&shape, &c.input(1), &c.input(2))?;
    c.set_output(0, shape);
    Ok(())
}

fn check_updates(shape: &PartialShape, indices: &PartialShape, updates: &PartialShape) -> Result<()> {
    if indices.rank() == Some(0) {
        return Err(Status::invalid_argument("Shape must be at least rank 1 but is rank 0"));
    }
    let (Some(rank), Some(index_rank)) = (shape.rank(), indices.rank()) else { return Ok(()) };
    let Some(depth) = indices.dim(index_rank - 1) else { return Ok(()) };
    if depth > rank as i64 {
        return Err(Status::invalid_argument(format!(
            "The inner dimension of indices ({depth}) must not be larger than the rank of the output ({rank})"
        )));
    }
    let expected = indices.slice(0, index_rank - 1).concat(&shape.slice(depth as usize, rank));
    updates.merge(&expected).map(drop)
}

/// How an element is combined with its update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    Replace,
    Add,
    Subtract,
    Minimum,
    Maximum,
}

struct ScatterNd;

impl Kernel for ScatterNd {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, updates, dims) = (context.input(0)?, context.input(1)?, context.input(2)?);
        if !dims.shape().is_vector() {
            return Err(Status::invalid_argument(format!("Shape must be a vector, got {}", dims.shape())));
        }
        let shape = Shape::new(&wide(dims)?.to_indices()?)?;
        let target = Tensor::zeros(updates.dtype(), shape)?;
        let output = scattered(target, indices, updates, Combine::Add, true)?;
        context.set_output(0, output);
        Ok(())
    }
}

struct TensorScatter(Combine);

impl Kernel for TensorScatter {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let target = context.take_input(0)?;
        if target.shape().is_scalar() {
            return Err(Status::invalid_argument("Output must be at least 1-D, got shape: []"));
        }
        let output = scattered(target, context.input(1)?, context.input(2)?, self.0, false)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns indices in a type that all index functions support.
pub(super) fn wide(indices: &Tensor) -> Result<Tensor> {
    let values: Vec<i32> = match indices.dtype() {
        DType::Int16 => indices.as_slice::<i16>()?.iter().map(|&index| i32::from(index)).collect(),
        DType::UInt16 => indices.as_slice::<u16>()?.iter().map(|&index| i32::from(index)).collect(),
        _ => return Ok(indices.clone()),
    };
    Tensor::from_slice(indices.dims(), &values)
}

/// Fails unless the updates' shape matches that of the indices; TensorFlow's message differs if the output is new.
fn check_scattered(shape: &Shape, indices: &Shape, updates: &Shape, is_new: bool) -> Result<()> {
    let outer = indices.rank() - 1;
    let depth = indices.dim(outer) as usize;
    if updates.rank() < outer || updates.dims()[..outer] != indices.dims()[..outer] {
        return Err(Status::invalid_argument(match is_new {
            true => format!(
                "Dimensions [0,{outer}) of indices[shape={indices}] must match dimensions [0,{outer}) of \
                 updates[shape={updates}]"
            ),
            false => format!(
                "Outer dimensions of indices and update must match. Indices shape: {indices}, updates shape:{updates}"
            ),
        }));
    }
    if depth > shape.rank() || updates.dims()[outer..] != shape.dims()[depth..] {
        return Err(Status::invalid_argument(match is_new {
            true => format!(
                "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{outer},{}) of \
                 updates[shape={updates}]",
                shape.rank(),
                updates.rank()
            ),
            false => format!(
                "Inner dimensions of output shape must match inner dimensions of updates shape. Output: {shape} updates: \
                 {updates}"
            ),
        }));
    }
    Ok(())
}

/// Combines a tensor with updates; `is_new` means that the tensor was created for them.
fn scattered(target: Tensor, indices: &Tensor, updates: &Tensor, combine: Combine, is_new: bool) -> Result<Tensor> {
    let shape = target.shape().clone();
    let indices = wide(indices)?;
    if indices.shape().is_scalar() {
        return Err(Status::invalid_argument("Indices shape must have rank at least one. Found: []"));
    }
    if shape.num_elements() == 0 {
        if indices.num_elements() > 0 || updates.num_elements() > 0 {
            return Err(Status::invalid_argument(format!(
                "Indices and updates specified for empty output.  indices shape: {}",
                indices.shape()
            )));
        }
        return Ok(target);
    }
    check_scattered(&shape, indices.shape(), updates.shape(), is_new)?;
    let slices = nd_slices(&shape, &indices, "shape")?;
    if updates.num_elements() == 0 {
        return Ok(target);
    }
    if combine == Combine::Replace {
        return with_movable!(target.dtype(), E => {
            let from = E::view(updates)?;
            E::modify(target, |to| {
                write(to, from, &slices, |to, from| to.clone_from(from));
                Ok(())
            })
        });
    }
    combine_numbers(target, updates, &slices, combine)
}

/// Calls `change` with each indexed element and its update.
fn write<T>(to: &mut [T], from: &[T], slices: &NdSlices, change: impl Fn(&mut T, &T)) {
    let len = slices.slice_len;
    for (&slice, update) in slices.slices.iter().zip(from.chunks_exact(len)) {
        to[slice * len..(slice + 1) * len].iter_mut().zip(update).for_each(|(to, from)| change(to, from));
    }
}

fn combine_numbers(target: Tensor, updates: &Tensor, slices: &NdSlices, combine: Combine) -> Result<Tensor> {
    macro_rules! by_type {
        (ordered: $($dtype:ident => $rust:ty),*; complex: $($complex:ident => $complex_rust:ty),*) => {
            match target.dtype() {
                $(DType::$dtype => combine_ordered::<$rust>(target, updates, slices, combine),)*
                $(DType::$complex => combine_sums::<$complex_rust>(target, updates, slices, combine),)*
                DType::Bool => combine_flags(target, updates, slices, combine),
                DType::String if combine == Combine::Add => {
                    let from = updates.strings()?;
                    <Bytes as Movable>::modify(target, |to| {
                        write(to, from, slices, |to, from| *to = [&to[..], &from[..]].concat().into());
                        Ok(())
                    })
                }
                other => Err(unsupported(other)),
            }
        };
    }
    by_type!(
        ordered: Float => f32, Double => f64, Half => f16, BFloat16 => bf16, Int8 => i8, Int16 => i16, Int32 => i32,
            Int64 => i64, UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64;
        complex: Complex64 => Complex32, Complex128 => Complex64
    )
}

fn unsupported(dtype: DType) -> Status {
    Status::unimplemented(format!("{dtype} elements can't be combined like this"))
}

fn combine_sums<T: Arithmetic>(
    mut target: Tensor,
    updates: &Tensor,
    slices: &NdSlices,
    combine: Combine,
) -> Result<Tensor> {
    let from = updates.as_slice::<T>()?;
    let to = target.make_mut::<T>()?;
    match combine {
        Combine::Add => write(to, from, slices, |to, from| *to = to.plus(*from)),
        Combine::Subtract => write(to, from, slices, |to, from| *to = to.minus(*from)),
        _ => return Err(unsupported(T::DTYPE)),
    }
    Ok(target)
}

fn combine_ordered<T: Ordered>(
    mut target: Tensor,
    updates: &Tensor,
    slices: &NdSlices,
    combine: Combine,
) -> Result<Tensor> {
    match combine {
        Combine::Minimum => {
            write(target.make_mut::<T>()?, updates.as_slice::<T>()?, slices, |to, from| *to = to.lesser(*from));
        }
        Combine::Maximum => {
            write(target.make_mut::<T>()?, updates.as_slice::<T>()?, slices, |to, from| *to = to.greater(*from));
        }
        _ => return combine_sums::<T>(target, updates, slices, combine),
    }
    Ok(target)
}

fn combine_flags(mut target: Tensor, updates: &Tensor, slices: &NdSlices, combine: Combine) -> Result<Tensor> {
    if combine != Combine::Add {
        return Err(unsupported(DType::Bool));
    }
    write(target.make_mut::<bool>()?, updates.as_slice::<bool>()?, slices, |to, from| *to |= *from);
    Ok(target)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use graph::Graph;
    use tensor::{Shape, Tensor};

    fn column(values: &[i32]) -> Tensor {
        Tensor::from_slice(&[values.len() as i64, 1], values).unwrap()
    }

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn scatters() {
        let scatter = |indices: &[i32], updates: Tensor, shape: &[i32]| {
            run_op("ScatterNd", attrs![], &[column(indices), updates, Tensor::vector(shape)])
        };
        let y = scatter(&[4, 3, 1, 4], Tensor::vector(&[9i32, 10, 11, 12]), &[8]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[0, 11, 0, 10, 21, 0, 0, 0]);
        let y = scatter(&[0], Tensor::vector(&[true]), &[2]).unwrap();
        assert_eq!(y[0].as_slice::<bool>().unwrap(), &[true, false]);
        let text = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        assert_eq!(scatter(&[0, 0], text, &[2]).unwrap()[0].strings().unwrap(), ["ab", ""]);
        let rows = Tensor::from_slice(&[1, 2], &[1i32, 2]).unwrap();
        assert_eq!(scatter(&[1], rows, &[2, 2]).unwrap()[0].as_slice::<i32>().unwrap(), &[0, 0, 1, 2]);
        assert!(scatter(&[5], Tensor::vector(&[1i32]), &[2]).is_err());
        assert!(scatter(&[0], Tensor::vector(&[1i32, 2]), &[2]).is_err());
        assert!(scatter(&[0], Tensor::vector(&[1i32]), &[0]).is_err());
        assert!(scatter(&[0], Tensor::vector(&[1i32]), &[-1]).is_err());
    }

    #[test]
    fn changes() {
        let x = Tensor::vector(&[1i32, 5, 3]);
        let run = |op: &str, indices: &[i32]| {
            let y = run_op(op, attrs![], &[x.clone(), column(indices), Tensor::vector(&[4i32, 4])]).unwrap();
            y[0].as_slice::<i32>().unwrap().to_vec()
        };
        assert_eq!(run("TensorScatterMax", &[0, 1]), [4, 5, 3]);
        assert_eq!(run("TensorScatterMin", &[0, 1]), [1, 4, 3]);
        assert_eq!(run("TensorScatterSub", &[0, 0]), [-7, 5, 3]);
        assert_eq!(run("TensorScatterAdd", &[0, 2]), [5, 5, 7]);
        assert_eq!(run("TensorScatterUpdate", &[0, 2]), [4, 5, 4]);
        assert_eq!(run("ScatterNdNonAliasingAdd", &[1, 1]), [1, 13, 3]);
        assert_eq!(x.as_slice::<i32>().unwrap(), &[1, 5, 3]);
    }

    #[test]
    fn shapes() {
        let shape = infer("ScatterNd", attrs![], "[4,1];[4,?];[2]", &[(2, Tensor::vector(&[8i32, 3]))]).unwrap();
        assert_eq!(shape[0].to_string(), "[8,3]");
        check_shape("TensorScatterAdd", attrs![], "[8,3];[4,1];[4,3]", "[8,3]");
        assert!(infer("TensorScatterAdd", attrs![], "[8,3];[4,1];[4,2]", &[]).is_err());
        assert!(infer("TensorScatterAdd", attrs![], "[8];[4,2];[4]", &[]).is_err());
    }

    #[test]
    fn gradients() {
        let x = Tensor::vector(&[1f64, 5., 3., 4.]);
        let updates = Tensor::vector(&[2f64, 7.]);
        for op in
            ["TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin"]
        {
            check_gradient(&[x.clone(), updates.clone()], |graph: &Graph, xs| {
                let indices = graph.constant_tensor(&column(&[2, 0]));
                graph.op(op).input(&xs[0]).input(&indices).input(&xs[1]).output()
            });
        }
        check_gradient(&[updates], |graph: &Graph, xs| {
            let indices = graph.constant_tensor(&column(&[1, 1]));
            super::scatter_nd(&indices, &xs[0], &graph.constant_tensor(&Tensor::vector(&[3i32])))
        });
    }
}
