//! Padding of tensors: Pad, PadV2, MirrorPad and its gradient.

use super::strided_slice::Put;
use crate::arithmetic::Arithmetic;
use crate::compose::{call, int_scalar, int_vector, reshape};
use crate::movement::{Movable, Rearrangement, rearranged};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, kernels,
};
use numeric::slice_copy::{self, SliceAxis};
use smallvec::SmallVec;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Pad",
            inputs: &["input: T", "paddings: Tpaddings"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: pad_shape,
        gradient: Gradient::Fn(pad_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Pad))],
    },
    Op {
        def: OpDef {
            name: "PadV2",
            inputs: &["input: T", "paddings: Tpaddings", "constant_values: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: pad_shape,
        gradient: Gradient::Fn(pad_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Pad))],
    },
    Op {
        def: OpDef {
            name: "MirrorPad",
            inputs: &["input: T", "paddings: Tpaddings"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32", "mode: {'REFLECT', 'SYMMETRIC'}"],
            flags: OpFlags::NONE,
        },
        shape: pad_shape,
        gradient: Gradient::Fn(mirror_pad_gradient),
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(MirrorPad { offset: mirror_offset(builder)? }))],
    },
    Op {
        def: OpDef {
            name: "MirrorPadGrad",
            inputs: &["input: T", "paddings: Tpaddings"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32", "mode: {'REFLECT', 'SYMMETRIC'}"],
            flags: OpFlags::NONE,
        },
        shape: mirror_pad_grad_shape,
        gradient: Gradient::Fn(mirror_pad_grad_gradient),
        kernels: kernels!("T": [
            f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex32, Complex64
        ] => MirrorPadGrad),
    },
];

/// Pads `input` with zeros: `paddings` has their numbers before and after each axis.
#[track_caller]
pub fn pad(input: &Output, paddings: &[(i32, i32)]) -> Output {
    input.graph().op("Pad").input(input).input(&paddings_output(input, paddings)).output()
}

/// The treatment of the edge in a reflection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorMode {
    /// The elements at the edge are not repeated.
    Reflect,
    /// The elements at the edge are repeated.
    Symmetric,
}

/// Pads `input` with its own reflection.
///
/// ```
/// use ops::array::{MirrorMode, mirror_pad};
///
/// let g = graph::Graph::new();
/// let padded = mirror_pad(&g.constant([1, 2, 3]), &[(2, 0)], MirrorMode::Reflect);
/// assert_eq!(padded.shape(), [5].into());
/// ```
#[track_caller]
pub fn mirror_pad(input: &Output, paddings: &[(i32, i32)], mode: MirrorMode) -> Output {
    let paddings = paddings_output(input, paddings);
    let mode = match mode {
        MirrorMode::Reflect => "REFLECT",
        MirrorMode::Symmetric => "SYMMETRIC",
    };
    input.graph().op("MirrorPad").input(input).input(&paddings).attr("mode", mode).output()
}

#[track_caller]
fn paddings_output(input: &Output, paddings: &[(i32, i32)]) -> Output {
    let flat: Vec<i32> = paddings.iter().flat_map(|&(before, after)| [before, after]).collect();
    input.graph().constant(Tensor::from_slice(&[paddings.len() as i64, 2], &flat))
}

/// Slices the input's part out of the gradient.
fn pad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let mut grads = vec![None; args.op.num_inputs()];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let graph = grad.graph();
    let (input, paddings) = (args.input(0), args.input(1));
    let column = call("Pack", &[&call("Rank", &[&input])?, &int_scalar(graph, 1)?])?;
    let before = call("Slice", &[&paddings, &int_vector(graph, &[0, 0])?, &column])?;
    let begin = reshape(&before, &int_vector(graph, &[-1])?)?;
    let sizes = graph.op("Shape").input(&input).attr("out_type", begin.dtype()).try_build()?.try_output(0)?;
    let back = call("Slice", &[&grad, &begin, &sizes])?;
    back.set_shape(&input.shape())?;
    grads[0] = Some(back.into());
    Ok(grads)
}

fn mirror_gradient(args: &GradientArgs<'_>, op: &str) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let mode = args.op.attrs().string("mode")?;
    let back = grad.graph().op(op).input(&grad).input(&args.input(1)).attr("mode", mode).try_build()?;
    Ok(vec![Some(back.try_output(0)?.into()), None])
}

fn mirror_pad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    mirror_gradient(args, "MirrorPadGrad")
}

fn mirror_pad_grad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    mirror_gradient(args, "MirrorPad")
}

fn pad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    resized_shape(c, |dim, padding| dim.checked_add(padding))
}

fn mirror_pad_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    resized_shape(c, |dim, padding| dim.checked_sub(padding).filter(|&dim| dim >= 0))
}

fn resized_shape(c: &mut ShapeContext<'_>, resize: impl Fn(i64, i64) -> Option<i64>) -> Result<()> {
    let input = c.input(0);
    let pairs = c.with_rank(1, 2)?;
    if pairs.dim(1).is_some_and(|columns| columns != 2) {
        return Err(Status::invalid_argument(format!("Dimension must be 2 but is {}", pairs.dim(1).unwrap_or(0))));
    }
    let rank = match (input.rank(), pairs.dim(0)) {
        (Some(rank), Some(rows)) if rank as i64 != rows => {
            return Err(Status::invalid_argument(format!("Shape must be rank {rows} but is rank {rank}")));
        }
        (Some(rank), _) => rank,
        (None, Some(rows)) if (0..=254).contains(&rows) => rows as usize,
        _ => return Ok(()),
    };
    let Some(paddings) = c.constant(1) else {
        c.set_output(0, PartialShape::unknown_of_rank(rank));
        return Ok(());
    };
    let paddings = paddings.to_indices()?;
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        let (Some(&before), Some(&after)) = (paddings.get(2 * axis), paddings.get(2 * axis + 1)) else {
            return Ok(());
        };
        if before < 0 || after < 0 {
            return Err(Status::invalid_argument("paddings must be non-negative"));
        }
        dims.push(match input.dim(axis) {
            Some(dim) => {
                let size = before.checked_add(after).and_then(|padding| resize(dim, padding));
                Some(size.ok_or_else(|| Status::invalid_argument("paddings don't fit the input"))?)
            }
            None => None,
        });
    }
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

/// Returns the paddings of each axis of the first input.
fn paddings_of(context: &OpContext<'_>, negative: fn(i64, i64) -> String) -> Result<SmallVec<[(usize, usize); 6]>> {
    let rank = context.input(0)?.shape().rank();
    let paddings = context.input(1)?;
    if paddings.dims() != [rank as i64, 2] {
        return Err(Status::invalid_argument(match paddings.dims() {
            [_, 2] => format!(
                "The first dimension of paddings must be the rank of inputs{} {}",
                paddings.shape(),
                context.input(0)?.shape()
            ),
            _ => format!("paddings must be a matrix with 2 columns: {}", paddings.shape()),
        }));
    }
    let pair = |pair: &[i64]| match (usize::try_from(pair[0]), usize::try_from(pair[1])) {
        (Ok(before), Ok(after)) => Ok((before, after)),
        _ => Err(Status::invalid_argument(negative(pair[0], pair[1]))),
    };
    paddings.to_indices()?.chunks_exact(2).map(pair).collect()
}

fn padded(shape: &Shape, paddings: &[(usize, usize)]) -> Result<Shape> {
    let size = |(&dim, &(before, after)): (&i64, &(usize, usize))| {
        let padding = before.checked_add(after).and_then(|padding| i64::try_from(padding).ok());
        padding
            .and_then(|padding| dim.checked_add(padding))
            .ok_or_else(|| Status::invalid_argument("the padded shape is too large"))
    };
    let dims: Result<SmallVec<[i64; 8]>> = shape.dims().iter().zip(paddings).map(size).collect();
    Shape::new(&dims?)
}

struct Pad;

impl Kernel for Pad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let negative = |before, after| format!("Paddings must be non-negative: {before} {after}");
        let paddings = paddings_of(context, negative)?;
        let value = if context.num_inputs() > 2 { Some(context.input(2)?.clone()) } else { None };
        if let Some(value) = &value
            && value.num_elements() != 1
        {
            return Err(Status::invalid_argument(format!(
                "constant_values must be a scalar. Found: {}",
                value.shape()
            )));
        }
        if paddings.iter().all(|&padding| padding == (0, 0)) {
            let input = context.take_input(0)?;
            context.set_output(0, input);
            return Ok(());
        }
        let input = context.input(0)?;
        let output = with_movable!(input.dtype(), E => padded_with::<E>(input, &paddings, value.as_ref()))?;
        context.set_output(0, output);
        Ok(())
    }
}

fn padded_with<E: Movable>(input: &Tensor, paddings: &[(usize, usize)], value: Option<&Tensor>) -> Result<Tensor> {
    let value = match value {
        Some(value) => E::view(value)?.first().cloned(),
        None => E::zero(),
    };
    let value = value.ok_or_else(|| Status::invalid_argument(format!("{} has no value to pad with", input.dtype())))?;
    let shape = padded(input.shape(), paddings)?;
    let sizes = input.shape().to_usize();
    let axes = sizes.iter().zip(paddings).map(|(&len, &(begin, _))| SliceAxis { begin, stride: 1, len }).collect();
    let put = Put { dims: shape.to_usize(), axes };
    let from = E::view(input)?;
    E::build(input.dtype(), shape, |to| {
        numeric::parallel::for_each_chunk_mut(to, 1, 0.1 * E::BYTES as f64, |_, run| run.fill(value.clone()));
        E::rearrange(&put, from, to);
    })
}

/// Returns a tensor padded with zeros.
pub(super) fn pad_with_zeros(input: Tensor, paddings: &[(usize, usize)]) -> Result<Tensor> {
    if paddings.iter().all(|&padding| padding == (0, 0)) {
        return Ok(input);
    }
    with_movable!(input.dtype(), E => padded_with::<E>(&input, paddings, None))
}

/// Returns 1 if the edge is not repeated, and 0 if it is.
fn mirror_offset(builder: &KernelBuilder<'_>) -> Result<usize> {
    match builder.attrs().string("mode")?.as_str() {
        "REFLECT" => Ok(1),
        "SYMMETRIC" => Ok(0),
        other => Err(Status::invalid_argument(format!("mode must be either REFLECT or SYMMETRIC, not {other}"))),
    }
}

struct MirrorPad {
    offset: usize,
}

impl Kernel for MirrorPad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let negative = |before, after| format!("paddings must be non-negative: {before} {after}");
        let paddings = paddings_of(context, negative)?;
        let input = context.input(0)?;
        let shape = padded(input.shape(), &paddings)?;
        check_reflection(&input.shape().to_usize(), &paddings, self.offset)?;
        let mirror = Mirror { dims: input.shape().to_usize(), paddings, offset: self.offset };
        let output = rearranged(input, shape, &mirror)?;
        context.set_output(0, output);
        Ok(())
    }
}

fn check_reflection(sizes: &[usize], paddings: &[(usize, usize)], offset: usize) -> Result<()> {
    for (axis, (&size, &(before, after))) in sizes.iter().zip(paddings).enumerate() {
        if before.max(after) + offset > size && (before, after) != (0, 0) {
            let bound = if offset == 1 { "less than" } else { "no greater than" };
            return Err(Status::invalid_argument(format!(
                "paddings must be {bound} the dimension size: {before}, {after} not {bound} {size} (axis {axis})"
            )));
        }
    }
    Ok(())
}

struct Mirror {
    dims: SmallVec<[usize; 6]>,
    paddings: SmallVec<[(usize, usize); 6]>,
    offset: usize,
}

impl Rearrangement for Mirror {
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        slice_copy::mirror_pad(from, &self.dims, &self.paddings, self.offset, to);
    }
}

struct MirrorPadGrad<T> {
    offset: usize,
    element: PhantomData<fn(T)>,
}

impl<T: Arithmetic> MirrorPadGrad<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(MirrorPadGrad::<T> { offset: mirror_offset(builder)?, element: PhantomData })
    }
}

impl<T: Arithmetic> Kernel for MirrorPadGrad<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let negative = |before, after| format!("Paddings must be non-negative: {before}, {after}");
        let paddings = paddings_of(context, negative)?;
        let input = context.input(0)?;
        let mut dims: SmallVec<[usize; 6]> = SmallVec::new();
        for (size, &(before, after)) in input.shape().to_usize().into_iter().zip(&paddings) {
            let inside = size.checked_sub(before).and_then(|size| size.checked_sub(after));
            let inside = inside.filter(|&inside| inside > 0 || size == 0).ok_or_else(|| {
                Status::invalid_argument(format!(
                    "Total paddings must be less than the input dimension size: {} was not less than {size}",
                    before.saturating_add(after)
                ))
            })?;
            dims.push(inside);
        }
        check_reflection(&dims, &paddings, self.offset)?;
        // The forward op, run on positions, says where each padded element came from.
        let count: usize = dims.iter().product();
        let sources: Vec<u64> = (0..count as u64).collect();
        let mut positions = vec![0u64; input.num_elements()];
        slice_copy::mirror_pad(&sources, &dims, &paddings, self.offset, &mut positions);
        let from = input.as_slice::<T>()?;
        let output = Tensor::build(Shape::from_usize(&dims)?, |to: &mut [T]| {
            to.fill(T::default());
            for (&value, &position) in from.iter().zip(&positions) {
                let to = &mut to[position as usize];
                *to = to.plus(value);
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use tensor::{DType, Shape, Tensor};

    fn paddings(values: &[i32]) -> Tensor {
        Tensor::from_slice(&[values.len() as i64 / 2, 2], values).unwrap()
    }

    #[test]
    fn pads() {
        let x = Tensor::from_slice(&[1, 2], &[1f32, 2.0]).unwrap();
        let y = run_op("Pad", attrs![], &[x.clone(), paddings(&[1, 0, 0, 1])]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<f32>().unwrap()), (&[2i64, 3][..], &[0., 0., 0., 1., 2., 0.][..]));
        let y = run_op("PadV2", attrs![], &[x.clone(), paddings(&[0, 0, 1, 0]), Tensor::scalar(9f32)]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[9., 1., 2.]);
        assert!(run_op("Pad", attrs![], &[x.clone(), paddings(&[-1, 0, 0, 1])]).is_err());
        assert!(run_op("Pad", attrs![], &[x, paddings(&[1, 0])]).is_err());
        let text = Tensor::from_strings(Shape::vector(1), vec!["a".into()]).unwrap();
        let y = run_op("PadV2", attrs![], &[text, paddings(&[1, 1]), Tensor::string("-")]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["-", "a", "-"]);
    }

    #[test]
    fn mirrors() {
        let x = Tensor::vector(&[1i32, 2, 3]);
        let mirror = |mode: &str, values: &[i32]| {
            run_op("MirrorPad", attrs![("mode", mode)], &[x.clone(), paddings(values)])
                .map(|y| y[0].as_slice::<i32>().unwrap().to_vec())
        };
        assert_eq!(mirror("REFLECT", &[2, 1]).unwrap(), [3, 2, 1, 2, 3, 2]);
        assert_eq!(mirror("SYMMETRIC", &[2, 3]).unwrap(), [2, 1, 1, 2, 3, 3, 2, 1]);
        assert!(mirror("REFLECT", &[3, 0]).is_err());
        assert!(mirror("SYMMETRIC", &[4, 0]).is_err());
        // As TensorFlow answers.
        let grad = run_op(
            "MirrorPadGrad",
            attrs![("mode", "REFLECT")],
            &[Tensor::vector(&[1i32, 2, 3, 4, 5, 6]), paddings(&[2, 1])],
        );
        assert_eq!(grad.unwrap()[0].as_slice::<i32>().unwrap(), &[3, 2 + 4 + 6, 1 + 5]);
    }

    #[test]
    fn shapes() {
        let shape = infer("Pad", attrs![], "[2,?];[2,2]", &[(1, paddings(&[1, 1, 0, 2]))]).unwrap();
        assert_eq!(shape[0].to_string(), "[4,?]");
        check_shape("PadV2", attrs![("Tpaddings", DType::Int32)], "?;[2,2];[]", "[?,?]");
        let attrs = attrs![("mode", "REFLECT")];
        let shape = infer("MirrorPadGrad", attrs, "[5];[1,2]", &[(1, paddings(&[1, 1]))]).unwrap();
        assert_eq!(shape[0].to_string(), "[3]");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 2], &[1f64, 2., 3., 4.]).unwrap();
        check_gradient(&[x.clone()], |_, xs| super::pad(&xs[0], &[(1, 0), (0, 2)]));
        check_gradient(&[x.clone()], |_, xs| super::mirror_pad(&xs[0], &[(1, 0), (0, 1)], super::MirrorMode::Reflect));
        check_gradient(&[x], |_, xs| super::mirror_pad(&xs[0], &[(2, 0), (0, 1)], super::MirrorMode::Symmetric));
    }
}
