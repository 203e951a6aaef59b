//! Reductions over axes: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm.

use crate::compose::{
    Gradients, binary, cast, conj, constant, int_vector, reshape, shape_of, sum, unary, unary_gradient,
};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use num_traits::AsPrimitive;
use numeric::reduce::{self, ReducePlan, Reducer};
use smallvec::SmallVec;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The kernels of a numeric reduction. Types without a loop of their own are reduced in a wider one.
macro_rules! numeric_kernels {
    ($reducer:ty) => {
        &[
            own::<$reducer, f32>(),
            own::<$reducer, f64>(),
            own::<$reducer, i32>(),
            own::<$reducer, i64>(),
            own::<$reducer, Complex32>(),
            own::<$reducer, Complex64>(),
            through::<$reducer, f16, f32>(),
            through::<$reducer, bf16, f32>(),
            through::<$reducer, i8, i32>(),
            through::<$reducer, i16, i32>(),
            through::<$reducer, u8, i32>(),
            through::<$reducer, u16, i32>(),
            through::<$reducer, u32, i64>(),
            own::<$reducer, u64>(),
        ]
    };
}

/// The kernels of a reduction of ordered numbers.
macro_rules! ordered_kernels {
    ($reducer:ty) => {
        &[
            own::<$reducer, f32>(),
            own::<$reducer, f64>(),
            own::<$reducer, i32>(),
            own::<$reducer, i64>(),
            through::<$reducer, f16, f32>(),
            through::<$reducer, bf16, f32>(),
            own::<$reducer, i8>(),
            own::<$reducer, i16>(),
            own::<$reducer, u8>(),
            own::<$reducer, u16>(),
            own::<$reducer, u32>(),
            own::<$reducer, u64>(),
        ]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Sum",
            inputs: &["input: T", "reduction_indices: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "keep_dims: bool = false",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::Fn(sum_gradient),
        kernels: numeric_kernels!(reduce::Sum),
    },
    Op {
        def: OpDef {
            name: "Mean",
            inputs: &["input: T", "reduction_indices: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "keep_dims: bool = false",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::Fn(mean_gradient),
        kernels: &[
            own::<reduce::Mean, f32>(),
            own::<reduce::Mean, f64>(),
            own::<reduce::Mean, i64>(),
            own::<reduce::Mean, u64>(),
            own::<reduce::Mean, Complex32>(),
            own::<reduce::Mean, Complex64>(),
            through::<reduce::Mean, f16, f32>(),
            through::<reduce::Mean, bf16, f32>(),
            // The sum behind a mean of narrow integers doesn't overflow.
            through::<reduce::Mean, i8, i64>(),
            through::<reduce::Mean, i16, i64>(),
            through::<reduce::Mean, i32, i64>(),
            through::<reduce::Mean, u8, i64>(),
            through::<reduce::Mean, u16, i64>(),
            through::<reduce::Mean, u32, i64>(),
        ],
    },
    Op {
        def: OpDef {
            name: "Prod",
            inputs: &["input: T", "reduction_indices: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "keep_dims: bool = false",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::Fn(prod_gradient),
        kernels: numeric_kernels!(reduce::Product),
    },
    Op {
        def: OpDef {
            name: "EuclideanNorm",
            inputs: &["input: T", "reduction_indices: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "keep_dims: bool = false",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::Fn(euclidean_norm_gradient),
        kernels: &[
            own::<reduce::EuclideanNorm, f32>(),
            own::<reduce::EuclideanNorm, f64>(),
            own::<reduce::EuclideanNorm, Complex32>(),
            own::<reduce::EuclideanNorm, Complex64>(),
            through::<reduce::EuclideanNorm, f16, f32>(),
            through::<reduce::EuclideanNorm, bf16, f32>(),
            // Squares of narrow integers overflow, as in TensorFlow.
            own::<reduce::EuclideanNorm, i8>(),
            own::<reduce::EuclideanNorm, i16>(),
            own::<reduce::EuclideanNorm, i32>(),
            own::<reduce::EuclideanNorm, i64>(),
            own::<reduce::EuclideanNorm, u8>(),
            own::<reduce::EuclideanNorm, u16>(),
            own::<reduce::EuclideanNorm, u32>(),
            own::<reduce::EuclideanNorm, u64>(),
        ],
    },
    Op {
        def: OpDef {
            name: "Max",
            inputs: &["input: T", "reduction_indices: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "keep_dims: bool = false",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::Fn(extreme_gradient),
        kernels: ordered_kernels!(reduce::Max),
    },
    Op {
        def: OpDef {
            name: "Min",
            inputs: &["input: T", "reduction_indices: Tidx"],
            outputs: &["output: T"],
            attrs: &[
                "keep_dims: bool = false",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::Fn(extreme_gradient),
        kernels: ordered_kernels!(reduce::Min),
    },
    Op {
        def: OpDef {
            name: "All",
            inputs: &["input: bool", "reduction_indices: Tidx"],
            outputs: &["output: bool"],
            attrs: &["keep_dims: bool = false", "Tidx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Reduction::<reduce::All, bool>::create)],
    },
    Op {
        def: OpDef {
            name: "Any",
            inputs: &["input: bool", "reduction_indices: Tidx"],
            outputs: &["output: bool"],
            attrs: &["keep_dims: bool = false", "Tidx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: reduction_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Reduction::<reduce::Any, bool>::create)],
    },
];

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// `axes` may be negative; `None` means all of them. With `keep_dims` they remain as dimensions of size 1.
        #[track_caller]
        pub fn $name(x: &Output, axes: Option<&[i32]>, keep_dims: bool) -> Output {
            let axes = reduction_axes(x, axes);
            x.graph().op($op).input(x).input(&axes).attr("keep_dims", keep_dims).output()
        }
    )*};
}

reductions! {
    /// Returns the sum over axes.
    reduce_sum => "Sum";
    /// Returns the mean over axes.
    reduce_mean => "Mean";
    /// Returns the product over axes.
    reduce_prod => "Prod";
    /// Returns the largest element over axes.
    reduce_max => "Max";
    /// Returns the smallest element over axes.
    reduce_min => "Min";
    /// Returns whether all elements over axes are true.
    reduce_all => "All";
    /// Returns whether any element over axes is true.
    reduce_any => "Any";
    /// Returns the Euclidean norm over axes.
    reduce_euclidean_norm => "EuclideanNorm";
}

/// Returns `log(sum(exp(x)))` over axes, without overflow.
#[track_caller]
pub fn reduce_logsumexp(x: &Output, axes: Option<&[i32]>, keep_dims: bool) -> Output {
    let graph = x.graph();
    let raw_max = reduce_max(x, axes, true);
    let is_finite = graph.op("IsFinite").input(&raw_max).output();
    let zeros = graph.op("ZerosLike").input(&raw_max).output();
    let chosen = graph.op("Select").input(&is_finite).input(&raw_max).input(&zeros).output();
    let max = graph.op("StopGradient").input(&chosen).output();
    let sum = reduce_sum(&super::exp(&(x - &max)), axes, keep_dims);
    let log = super::log(&sum);
    let max = if keep_dims {
        max
    } else {
        graph.op("Reshape").input(&max).input(&graph.op("Shape").input(&log).output()).output()
    };
    log + max
}

/// Returns the axes to reduce as an op's input: the given ones, or all.
#[track_caller]
fn reduction_axes(x: &Output, axes: Option<&[i32]>) -> Output {
    let graph = x.graph();
    match (axes, x.shape().rank()) {
        (Some(axes), _) => graph.constant_tensor(&Tensor::vector(axes)),
        (None, Some(rank)) => graph.constant_tensor(&Tensor::vector(&(0..rank as i32).collect::<Vec<_>>())),
        (None, None) => {
            let number = |value: i32| graph.constant_tensor(&Tensor::scalar(value));
            let rank = graph.op("Rank").input(x).output();
            graph.op("Range").input(&number(0)).input(&rank).input(&number(1)).output()
        }
    }
}

fn reduction_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let axes_shape = c.with_rank_at_most(1, 1)?;
    let keep_dims = c.attrs.bool("keep_dims")?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let Some(axes) = c.constant(1) else {
        let output = if keep_dims {
            PartialShape::unknown_of_rank(dims.len())
        } else if axes_shape.dims() == Some(&[Some(0)]) {
            input.clone()
        } else {
            PartialShape::unknown()
        };
        c.set_output(0, output);
        return Ok(());
    };
    let rank = dims.len() as i64;
    let mut reduced = vec![false; dims.len()];
    for axis in axes.to_indices()? {
        if axis < -rank || axis >= rank {
            return Err(Status::invalid_argument(format!(
                "Invalid reduction dimension {axis} for input with {rank} dimensions."
            )));
        }
        reduced[(if axis < 0 { axis + rank } else { axis }) as usize] = true;
    }
    let mut output: SmallVec<[Option<i64>; 8]> = SmallVec::new();
    for (&dim, &is_reduced) in dims.iter().zip(&reduced) {
        if !is_reduced {
            output.push(dim);
        } else if keep_dims {
            output.push(Some(1));
        }
    }
    c.set_output(0, PartialShape::new(&output));
    Ok(())
}

/// Returns an op's reduced axes as nonnegative numbers, if they are constant and the rank is known.
fn constant_axes(args: &GradientArgs<'_>) -> Option<Vec<usize>> {
    let rank = args.input(0).shape().rank()? as i64;
    let axes = args.input(1).constant_value()?.to_indices().ok()?;
    let fold =
        |axis: i64| usize::try_from(if axis < 0 { axis + rank } else { axis }).ok().filter(|&a| (a as i64) < rank);
    axes.into_iter().map(fold).collect()
}

/// Returns the shape of an op's output as if its axes had been kept.
fn kept_shape(args: &GradientArgs<'_>) -> Result<Output> {
    let x = args.input(0);
    let graph = x.graph();
    if let (Some(axes), Some(shape)) = (constant_axes(args), x.full_shape()) {
        let mut dims: Vec<i32> = shape.dims().iter().map(|&dim| i32::try_from(dim).unwrap_or(i32::MAX)).collect();
        axes.into_iter().for_each(|axis| dims[axis] = 1);
        return int_vector(graph, &dims);
    }
    let shape = unary("Shape", &x)?;
    let axes = cast(&args.input(1), DType::Int32)?;
    let scalar = |value: i32| constant(graph, &Tensor::scalar(value));
    let rank = unary("Size", &shape)?;
    let positive = binary("FloorMod", &binary("AddV2", &axes, &rank)?, &rank)?;
    let all = graph.op("Range").input(&scalar(0)?).input(&rank).input(&scalar(1)?).try_build()?.output(0);
    let ones = unary("OnesLike", &positive)?;
    let stitch = graph.op("DynamicStitch").input(&all).input(&positive).input(&shape).input(&ones);
    Ok(stitch.attr("N", 2i64).try_build()?.output(0))
}

/// Broadcasts a gradient of the output's shape to the input's shape.
fn spread(args: &GradientArgs<'_>, grad: &Output) -> Result<Output> {
    let x = args.input(0);
    let graph = x.graph();
    if let (Some(axes), Some(dims)) = (constant_axes(args), x.shape().dims()) {
        let all = (0..dims.len()).all(|axis| axes.contains(&axis));
        if all {
            let grad = reshape(grad, &int_vector(graph, &vec![1; dims.len()])?)?;
            return binary("Tile", &grad, &shape_of(&x)?);
        }
        let sizes: Option<Vec<i32>> = dims.iter().map(|dim| dim.and_then(|dim| i32::try_from(dim).ok())).collect();
        if let Some(sizes) = sizes {
            let scale: Vec<i32> =
                sizes.iter().enumerate().map(|(axis, &size)| if axes.contains(&axis) { size } else { 1 }).collect();
            let grad = reshape(grad, &kept_shape(args)?)?;
            return binary("Tile", &grad, &int_vector(graph, &scale)?);
        }
    }
    let grad = if args.op.attrs().bool("keep_dims")? { grad.clone() } else { reshape(grad, &kept_shape(args)?)? };
    binary("BroadcastTo", &grad, &shape_of(&x)?)
}

fn sum_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, _| spread(args, grad))
}

fn mean_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let total = spread(args, grad)?;
        let factor = match (x.full_shape(), y.full_shape()) {
            (Some(x), Some(y)) => {
                let ratio = x.num_elements() / y.num_elements().max(1);
                crate::compose::scalar(&total, ratio as f64)?
            }
            _ => {
                let count = |operand: &Output| unary("Size", operand);
                let one = crate::compose::scalar(&count(y)?, 1.0)?;
                let ratio = binary("FloorDiv", &count(x)?, &binary("Maximum", &count(y)?, &one)?)?;
                cast(&ratio, total.dtype())?
            }
        };
        binary("RealDiv", &total, &factor)
    })
}

fn extreme_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let kept = kept_shape(args)?;
        let (y, grad) = if args.op.attrs().bool("keep_dims")? {
            (y.clone(), grad.clone())
        } else {
            (reshape(y, &kept)?, reshape(grad, &kept)?)
        };
        let indicators = cast(&binary("Equal", &y, x)?, grad.dtype())?;
        let selected = reshape(&sum(&indicators, &args.input(1), false)?, &kept)?;
        binary("Mul", &binary("RealDiv", &indicators, &selected)?, &grad)
    })
}

fn euclidean_norm_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let (y, grad) = if args.op.attrs().bool("keep_dims")? {
            (y.clone(), grad.clone())
        } else {
            let kept = kept_shape(args)?;
            (reshape(y, &kept)?, reshape(grad, &kept)?)
        };
        binary("RealDiv", x, &binary("RealDiv", &y, &grad)?)
    })
}

/// The product of all others is the product of those before and of those after.
fn prod_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let graph = x.graph();
        let scalar = |value: i32| constant(graph, &Tensor::scalar(value));
        let shape = shape_of(x)?;
        let grad = if args.op.attrs().bool("keep_dims")? { grad.clone() } else { reshape(grad, &kept_shape(args)?)? };
        let grad = binary("BroadcastTo", &grad, &shape)?;
        let axes = reshape(&args.input(1), &int_vector(graph, &[-1])?)?;
        let axes = cast(&axes, DType::Int32)?;
        let rank = unary("Rank", x)?;
        let reduced = binary("FloorMod", &binary("AddV2", &axes, &rank)?, &rank)?;
        let all = graph.op("Range").input(&scalar(0)?).input(&rank).input(&scalar(1)?).try_build()?.output(0);
        let other = graph.op("ListDiff").input(&all).input(&reduced).try_build()?.output(0);
        let zero = scalar(0)?;
        let permutation = graph.op("ConcatV2").input(&reduced).input(&other).input(&zero).attr("N", 2i64);
        let permutation = permutation.try_build()?.output(0);
        let count = |axes: &Output| -> Result<Output> {
            let sizes = graph.op("GatherV2").input(&shape).input(axes).input(&zero).try_build()?.output(0);
            binary("Prod", &sizes, &int_vector(graph, &[0])?)
        };
        let sizes = graph.op("Pack").input(&count(&reduced)?).input(&count(&other)?).attr("N", 2i64);
        let sizes = sizes.try_build()?.output(0);
        let permuted = binary("Transpose", x, &permutation)?;
        let permuted_shape = shape_of(&permuted)?;
        let matrix = reshape(&permuted, &sizes)?;
        let product = |reverse: bool| -> Result<Output> {
            let op = graph.op("Cumprod").input(&matrix).input(&zero).attr("exclusive", true).attr("reverse", reverse);
            conj(&op.try_build()?.output(0))
        };
        let others = reshape(&binary("Mul", &product(false)?, &product(true)?)?, &permuted_shape)?;
        let back = binary("Transpose", &others, &unary("InvertPermutation", &permutation)?)?;
        reshape(&binary("Mul", &grad, &back)?, &shape)
    })
}

/// A reduction over the axes that the second input names.
struct Reduction<R, T> {
    keep_dims: bool,
    reducer: PhantomData<fn(R, T)>,
}

impl<R: Reducer<T> + 'static, T: Element> Reduction<R, T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let keep_dims = builder.attrs().bool("keep_dims")?;
        BoxedKernel::new(Reduction::<R, T> { keep_dims, reducer: PhantomData })
    }
}

impl<R: Reducer<T> + 'static, T: Element> Kernel for Reduction<R, T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        if R::KEEPS_ONE && keep_elements(context, self.keep_dims)? {
            return Ok(());
        }
        let output = reduce_tensor::<R, T>(context.input(0)?, context.input(1)?, self.keep_dims)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the input if every element is reduced by itself, as when the gradient of a broadcast has nothing to sum.
fn keep_elements(context: &mut OpContext<'_>, keep_dims: bool) -> Result<bool> {
    let shape = context.input(0)?.shape();
    let axes = reduced_axes(shape, context.input(1)?)?;
    if axes.iter().any(|&axis| shape.dims()[axis] != 1) {
        return Ok(false);
    }
    let shape = reduced_shape(&ReducePlan::new(&shape.to_usize(), &axes), keep_dims)?;
    let output = context.take_input(0)?.into_shape(shape)?;
    context.set_output(0, output);
    Ok(true)
}

fn reduced_shape(plan: &ReducePlan, keep_dims: bool) -> Result<Shape> {
    Shape::from_usize(&plan.out_dims(keep_dims))
}

fn reduce_tensor<R: Reducer<T>, T: Element>(input: &Tensor, axes: &Tensor, keep_dims: bool) -> Result<Tensor> {
    let axes = reduced_axes(input.shape(), axes)?;
    let plan = ReducePlan::new(&input.shape().to_usize(), &axes);
    let shape = reduced_shape(&plan, keep_dims)?;
    let values = input.as_slice::<T>()?;
    Tensor::build(shape, |out: &mut [T]| reduce::reduce::<R, T>(values, out, &plan))
}

const fn own<R: Reducer<T> + 'static, T: Element>() -> KernelDef {
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: Reduction::<R, T>::create }
}

/// A reduction in a wider type; integers wrap in the same way in both.
struct Wider<R, T, W> {
    keep_dims: bool,
    types: PhantomData<fn(R, T) -> W>,
}

const fn through<R, T, W>() -> KernelDef
where
    R: Reducer<W> + 'static,
    T: Element + AsPrimitive<W>,
    W: Element + AsPrimitive<T>,
{
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let keep_dims = builder.attrs().bool("keep_dims")?;
            BoxedKernel::new(Wider { keep_dims, types: PhantomData::<fn(R, T) -> W> })
        },
    }
}

impl<R, T, W> Kernel for Wider<R, T, W>
where
    R: Reducer<W> + 'static,
    T: Element + AsPrimitive<W>,
    W: Element + AsPrimitive<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        fn convert<A: Element + AsPrimitive<B>, B: Element>(tensor: &Tensor) -> Result<Tensor> {
            let from = tensor.as_slice::<A>()?;
            Tensor::build(tensor.shape().clone(), |to: &mut [B]| {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from.as_());
            })
        }
        if R::KEEPS_ONE && keep_elements(context, self.keep_dims)? {
            return Ok(());
        }
        let wide = convert::<T, W>(context.input(0)?)?;
        let output = convert::<W, T>(&reduce_tensor::<R, W>(&wide, context.input(1)?, self.keep_dims)?)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the axes in a tensor, checked against the shape to be reduced.
fn reduced_axes(shape: &Shape, axes: &Tensor) -> Result<SmallVec<[usize; 8]>> {
    let rank = shape.rank() as i64;
    let mut result: SmallVec<[usize; 8]> = SmallVec::new();
    for axis in axes.to_indices()? {
        if axis < -rank || axis >= rank {
            return Err(Status::invalid_argument(format!(
                "Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
            )));
        }
        let axis = (if axis < 0 { axis + rank } else { axis }) as usize;
        if result.contains(&axis) {
            return Err(Status::invalid_argument(format!(
                "Invalid reduction arguments: Axes contains duplicate dimension: {axis}"
            )));
        }
        result.push(axis);
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};

    fn run(op: &str, x: &Tensor, axes: &[i32], keep_dims: bool) -> Tensor {
        run_op(op, attrs![("keep_dims", keep_dims)], &[x.clone(), Tensor::vector(axes)]).unwrap().remove(0)
    }

    #[test]
    fn an_element_alone_is_handed_on() {
        let x = Tensor::from_slice(&[2, 1], &[-0f32, -3.0]).unwrap();
        for op in ["Sum", "Mean", "Prod", "Max", "Min"] {
            for (axes, keep_dims, dims) in [(&[][..], false, &[2, 1][..]), (&[1], true, &[2, 1]), (&[-1], false, &[2])]
            {
                let y = run(op, &x, axes, keep_dims);
                assert_eq!(y.shape().dims(), dims, "{op}");
                assert!(y.as_slice::<f32>().unwrap()[0].is_sign_negative() && y.shares_memory(&x), "{op}");
            }
        }
        assert_eq!(run("EuclideanNorm", &x, &[1], false).as_slice::<f32>().unwrap(), &[0.0, 3.0]);
        let empty = Tensor::from_slice::<f32>(&[0, 1], &[]).unwrap();
        assert_eq!(run("Sum", &empty, &[1], false).shape().dims(), &[0]);
        let none = Tensor::from_slice::<f32>(&[2, 0], &[]).unwrap();
        assert_eq!(run("Sum", &none, &[1], false).as_slice::<f32>().unwrap(), &[0.0, 0.0]);
    }

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[2, 3], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        assert_eq!(run("Sum", &x, &[0], false).as_slice::<f32>().unwrap(), &[5., 7., 9.]);
        assert_eq!(run("Mean", &x, &[-1], true).as_slice::<f32>().unwrap(), &[2., 5.]);
        assert_eq!(run("Mean", &x, &[-1], true).dims(), &[2, 1]);
        assert_eq!(run("Prod", &x, &[1, 0], false).as_slice::<f32>().unwrap(), &[720.]);
        assert_eq!(run("Max", &x, &[], false).as_slice::<f32>().unwrap(), x.as_slice::<f32>().unwrap());
        assert_eq!(run("Any", &Tensor::vector(&[false, true]), &[0], false).to_scalar::<bool>().unwrap(), true);
    }

    #[test]
    fn empty_inputs_give_the_identity() {
        let none = Tensor::from_slice::<f32>(&[0, 2], &[]).unwrap();
        assert_eq!(run("Max", &none, &[0], false).as_slice::<f32>().unwrap(), &[f32::NEG_INFINITY; 2]);
        assert!(run("Mean", &none, &[0], false).as_slice::<f32>().unwrap()[0].is_nan());
        assert_eq!(run("Min", &Tensor::vector::<i32>(&[]), &[0], false).to_scalar::<i32>().unwrap(), i32::MAX);
        assert!(run("Max", &Tensor::vector(&[1f32, f32::NAN]), &[0], false).to_scalar::<f32>().unwrap().is_nan());
    }

    #[test]
    fn axes_are_checked() {
        let x = Tensor::vector(&[1f32]);
        let status = run_op("Sum", attrs![], &[x.clone(), Tensor::scalar(1i32)]).unwrap_err();
        assert!(
            status.message().starts_with("Invalid reduction dimension (1 for input with 1 dimension(s)"),
            "{status}"
        );
        let status = run_op("Sum", attrs![], &[x, Tensor::vector(&[0i64, -1])]).unwrap_err();
        assert!(status.message().contains("duplicate dimension: 0"), "{status}");
    }

    #[test]
    fn shapes() {
        let shape = |keep: bool, axes: Option<&[i32]>| {
            let constants: Vec<_> = axes.map(|axes| (1, Tensor::vector(axes))).into_iter().collect();
            infer("Sum", attrs![("keep_dims", keep)], "[2,?,4];[1]", &constants).unwrap()[0].to_string()
        };
        assert_eq!(shape(false, Some(&[-1])), "[2,?]");
        assert_eq!(shape(true, Some(&[0])), "[1,?,4]");
        assert_eq!(shape(true, None), "[?,?,?]");
        assert_eq!(shape(false, None), "<unknown>");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 3], &[1f64, -2., 3., 0.5, 5., 6.]).unwrap();
        for function in [reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_euclidean_norm] {
            for axes in [None, Some(&[1][..]), Some(&[0][..])] {
                check_gradient(std::slice::from_ref(&x), |_, x| function(&x[0], axes, false));
                check_gradient(std::slice::from_ref(&x), |_, x| function(&x[0], axes, true));
            }
        }
    }
}
