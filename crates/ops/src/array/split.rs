//! Splits: Split, SplitV, Unpack.

use super::concat::copy_run;
use crate::compose::grad_or_zeros;
use crate::movement::{Movable, copy_cost_ns};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Split",
            inputs: &["split_dim: int32", "value: T"],
            outputs: &["output: num_split * T"],
            attrs: &["num_split: int >= 1", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: split_shape,
        gradient: Gradient::Fn(split_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Split))],
    },
    Op {
        def: OpDef {
            name: "SplitV",
            inputs: &["value: T", "size_splits: Tlen", "split_dim: int32"],
            outputs: &["output: num_split * T"],
            attrs: &["num_split: int >= 1", "T: type", "Tlen: {int8, int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: split_v_shape,
        gradient: Gradient::Fn(split_v_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SplitV))],
    },
    Op {
        def: OpDef {
            name: "Unpack",
            inputs: &["value: T"],
            outputs: &["output: num * T"],
            attrs: &["num: int >= 0", "T: type", "axis: int = 0"],
            flags: OpFlags::NONE,
        },
        shape: unpack_shape,
        gradient: Gradient::Fn(unpack_gradient),
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Unpack { axis: builder.attrs().int("axis")? }))],
    },
];

/// Splits `value` into `count` parts of the same size along `axis`.
#[track_caller]
pub fn split(value: &Output, count: usize, axis: i32) -> Vec<Output> {
    let axis = value.graph().constant_tensor(&Tensor::scalar(axis));
    value.graph().op("Split").input(&axis).input(value).attr("num_split", count as i64).outputs()
}

/// Splits `value` into parts of the given sizes along `axis`; one size may be -1.
#[track_caller]
pub fn split_v(value: &Output, sizes: &[i64], axis: i32) -> Vec<Output> {
    let graph = value.graph();
    let (parts, axis) = (graph.constant_tensor(&Tensor::vector(sizes)), graph.constant_tensor(&Tensor::scalar(axis)));
    graph.op("SplitV").input(value).input(&parts).input(&axis).attr("num_split", sizes.len() as i64).outputs()
}

/// Splits `value` into its `count` slices along `axis`, which is removed.
#[track_caller]
pub fn unstack(value: &Output, count: usize, axis: i64) -> Vec<Output> {
    value.graph().op("Unpack").input(value).attr("num", count as i64).attr("axis", axis).outputs()
}

/// Concatenates the gradients of the parts.
fn join_gradients(args: &GradientArgs<'_>, op: &str) -> Result<Vec<Output>> {
    let count = args.op.num_outputs();
    if args.grads.iter().all(Option::is_none) || count == 0 {
        return Ok(Vec::new());
    }
    (0..count).map(|index| grad_or_zeros(args, index)).collect::<Result<Vec<_>>>().map_err(|status| status.context(op))
}

fn concatenated(args: &GradientArgs<'_>, axis: usize) -> Result<Option<Grad>> {
    let parts = join_gradients(args, "Split")?;
    Ok(match &parts[..] {
        [] => None,
        [only] => Some(only.clone().into()),
        [first, ..] => {
            let joined = first.graph().op("ConcatV2").inputs(&parts).input(&args.input(axis));
            Some(joined.attr("N", parts.len() as i64).try_build()?.try_output(0)?.into())
        }
    })
}

fn split_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    Ok(vec![None, concatenated(args, 0)?])
}

fn split_v_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    Ok(vec![concatenated(args, 2)?, None, None])
}

fn unpack_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let parts = join_gradients(args, "Unpack")?;
    let Some(first) = parts.first() else { return Ok(vec![None]) };
    let axis = args.op.attrs().int("axis")?;
    let packed = first.graph().op("Pack").inputs(&parts).attr("axis", axis).try_build()?;
    Ok(vec![Some(packed.try_output(0)?.into())])
}

fn split_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    let input = c.input(1);
    let count = c.num_outputs() as i64;
    let shape = match (input.rank(), c.constant(0)) {
        (None, _) => PartialShape::unknown(),
        (Some(rank), None) => PartialShape::unknown_of_rank(rank),
        (Some(rank), Some(axis)) => {
            let axis = split_axis(axis.to_index()?, rank)?;
            if let Some(size) = input.dim(axis).filter(|size| size % count != 0) {
                return Err(Status::invalid_argument(format!(
                    "Dimension size must be evenly divisible by {count} but is {size}"
                )));
            }
            input.with_dim(axis, input.dim(axis).map(|size| size / count))
        }
    };
    for index in 0..c.num_outputs() {
        c.set_output(index, shape.clone());
    }
    Ok(())
}

fn split_v_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let count = c.num_outputs();
    if let Some(given) = c.with_rank(1, 1)?.dim(0).filter(|&given| given != count as i64) {
        return Err(Status::invalid_argument(format!(
            "Length of size_splits should be equal to num_outputs, got {given} and {count}"
        )));
    }
    let Some(rank) = input.rank() else { return Ok(()) };
    let shapes = match (c.constant(2), c.constant(1)) {
        (Some(axis), Some(sizes)) => {
            let axis = split_axis(axis.to_index()?, rank)?;
            let sizes = sizes_of(&sizes)?;
            let sizes: Vec<Option<i64>> = match input.dim(axis) {
                Some(total) => part_sizes(&sizes, total)?.into_iter().map(Some).collect(),
                None => sizes.iter().map(|&size| (size >= 0).then_some(size)).collect(),
            };
            sizes.into_iter().map(|size| input.with_dim(axis, size)).collect()
        }
        (Some(axis), None) => vec![input.with_dim(split_axis(axis.to_index()?, rank)?, None); count],
        _ => vec![PartialShape::unknown_of_rank(rank); count],
    };
    for (index, shape) in shapes.into_iter().enumerate() {
        c.set_output(index, shape);
    }
    Ok(())
}

fn unpack_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let axis = unpack_axis(c.attrs.int("axis")?, dims.len())?;
    let count = c.num_outputs() as i64;
    if let Some(size) = dims[axis].filter(|&size| size != count) {
        return Err(Status::invalid_argument(format!("Dimension must be {count} but is {size}")));
    }
    let mut dims = dims.to_vec();
    dims.remove(axis);
    for index in 0..c.num_outputs() {
        c.set_output(index, PartialShape::new(&dims));
    }
    Ok(())
}

fn split_axis(axis: i64, rank: usize) -> Result<usize> {
    let bounds = rank as i64;
    if axis < -bounds || axis >= bounds {
        return Err(Status::invalid_argument(format!(
            "-input rank(-{bounds}) <= split_dim < input rank ({bounds}), but got {axis}"
        )));
    }
    Ok(if axis < 0 { axis + bounds } else { axis } as usize)
}

fn unpack_axis(axis: i64, rank: usize) -> Result<usize> {
    let bounds = rank as i64;
    if axis < -bounds || axis >= bounds {
        return Err(Status::invalid_argument(format!("axis = {axis} not in [{}, {bounds})", -bounds)));
    }
    Ok(if axis < 0 { axis + bounds } else { axis } as usize)
}

fn sizes_of(sizes: &Tensor) -> Result<Vec<i64>> {
    match sizes.dtype() {
        DType::Int8 => Ok(sizes.as_slice::<i8>()?.iter().map(|&size| i64::from(size)).collect()),
        _ => sizes.to_indices(),
    }
}

/// Returns the sizes of the parts of `total`, with a -1 replaced by the rest.
fn part_sizes(sizes: &[i64], total: i64) -> Result<Vec<i64>> {
    let mut unknown = None;
    let mut sum = 0i64;
    for (index, &size) in sizes.iter().enumerate() {
        if size == -1 {
            if unknown.replace(index).is_some() {
                return Err(Status::invalid_argument("There can only be one -1 in the input."));
            }
        } else if size < 0 {
            return Err(Status::invalid_argument(format!("Split size at index {index} must be >= 0. Got: {size}")));
        } else {
            sum = sum.saturating_add(size);
        }
    }
    let fits = if unknown.is_some() { sum <= total } else { sum == total };
    if !fits {
        return Err(Status::invalid_argument(format!(
            "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than \
             the size of the input along split_dim if not fully specified.  Got: {sum} for a size of {total}"
        )));
    }
    let mut sizes = sizes.to_vec();
    if let Some(index) = unknown {
        sizes[index] = total - sum;
    }
    Ok(sizes)
}

struct Split;

impl Kernel for Split {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        if context.input(0)?.num_elements() != 1 {
            let rank = context.input(0)?.shape().rank();
            return Err(Status::invalid_argument(format!("split_dim must be a scalar but has rank {rank}")));
        }
        let axis = i64::from(context.scalar::<i32>(0, "split_dim")?);
        let count = context.num_outputs();
        let value = context.take_input(1)?;
        let axis = split_axis(axis, value.shape().rank())?;
        let size = value.shape().size(axis);
        if !size.is_multiple_of(count) {
            return Err(Status::invalid_argument(format!(
                "Number of ways to split should evenly divide the split dimension, but got split_dim {axis} (size = \
                 {size}) and num_split {count}"
            )));
        }
        if count == 1 {
            context.set_output(0, value);
            return Ok(());
        }
        let part = size / count;
        for index in 0..count {
            context.set_output(index, cut(&value, axis, index * part, part)?);
        }
        Ok(())
    }
}

struct SplitV;

impl Kernel for SplitV {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let axis = i64::from(context.scalar::<i32>(2, "split_dim")?);
        let sizes = context.input(1)?;
        if !sizes.shape().is_vector() || sizes.num_elements() != context.num_outputs() {
            return Err(Status::invalid_argument(format!(
                "size of the split_tensor must be 1-D and have the same elements as outputs got {} -D and {} elements; there are \
                 {} outputs",
                sizes.shape().rank(),
                sizes.num_elements(),
                context.num_outputs()
            )));
        }
        let sizes = sizes_of(sizes)?;
        let value = context.take_input(0)?;
        let axis = split_axis(axis, value.shape().rank())?;
        let sizes = part_sizes(&sizes, value.shape().dim(axis))?;
        let mut start = 0;
        for (index, &size) in sizes.iter().enumerate() {
            context.set_output(index, cut(&value, axis, start, size as usize)?);
            start += size as usize;
        }
        Ok(())
    }
}

struct Unpack {
    axis: i64,
}

impl Kernel for Unpack {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_input(0)?;
        let axis = unpack_axis(self.axis, value.shape().rank())?;
        let count = context.num_outputs();
        if value.shape().size(axis) != count {
            return Err(Status::invalid_argument(format!(
                "Input shape axis {axis} must equal {count}, got shape {}",
                value.shape()
            )));
        }
        let mut dims: SmallVec<[i64; 8]> = SmallVec::from_slice(value.dims());
        dims.remove(axis);
        let shape = Shape::new(&dims)?;
        for index in 0..count {
            context.set_output(index, cut(&value, axis, index, 1)?.into_shape(shape.clone())?);
        }
        Ok(())
    }
}

/// Returns `len` slices along `axis` from `start`, which must be in range; rows of axis 0 are shared, not copied.
pub(crate) fn cut(value: &Tensor, axis: usize, start: usize, len: usize) -> Result<Tensor> {
    let outer: usize = value.dims()[..axis].iter().product::<i64>() as usize;
    if outer == 1 && value.dtype().is_plain() {
        // All dimensions before the axis are 1, so the slices are contiguous.
        let dims = value.shape().slice(axis, value.shape().rank());
        let rows = value.reshape(dims)?.slice_rows(start, start + len)?;
        return rows.into_shape(value.shape().with_dim(axis, len as i64)?);
    }
    let inner: usize = value.dims()[axis + 1..].iter().product::<i64>() as usize;
    let size = value.shape().size(axis);
    let shape = value.shape().with_dim(axis, len as i64)?;
    with_movable!(value.dtype(), E => cut_rows::<E>(value, size * inner, start * inner, len * inner, shape))
}

fn cut_rows<E: Movable>(value: &Tensor, row_len: usize, start: usize, len: usize, shape: Shape) -> Result<Tensor> {
    let elements = E::view(value)?;
    E::build(value.dtype(), shape, |out| {
        if out.is_empty() {
            return;
        }
        numeric::parallel::for_each_chunk_mut(out, len, copy_cost_ns::<E>(len), |first_row, run| {
            for (offset, to) in run.chunks_exact_mut(len).enumerate() {
                let from = (first_row + offset) * row_len + start;
                copy_run(&elements[from..from + len], to);
            }
        });
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use tensor::{Shape, Tensor};

    fn values(tensors: &[Tensor]) -> Vec<Vec<i32>> {
        tensors.iter().map(|tensor| tensor.as_slice::<i32>().unwrap().to_vec()).collect()
    }

    #[test]
    fn splits() {
        let x = Tensor::from_slice(&[2, 4], &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let y = run_op("Split", attrs![("num_split", 2i64)], &[Tensor::scalar(-1i32), x.clone()]).unwrap();
        assert_eq!(values(&y), [[1, 2, 5, 6], [3, 4, 7, 8]]);
        let y = run_op("Split", attrs![("num_split", 2i64)], &[Tensor::scalar(0i32), x.clone()]).unwrap();
        assert_eq!(values(&y), [[1, 2, 3, 4], [5, 6, 7, 8]]);
        assert!(run_op("Split", attrs![("num_split", 3i64)], &[Tensor::scalar(1i32), x.clone()]).is_err());
        assert!(run_op("Split", attrs![("num_split", 2i64)], &[Tensor::scalar(2i32), x.clone()]).is_err());
        let sizes = |sizes: &[i32]| {
            let attrs = attrs![("num_split", sizes.len() as i64)];
            run_op("SplitV", attrs, &[x.clone(), Tensor::vector(sizes), Tensor::scalar(1i32)])
        };
        assert_eq!(values(&sizes(&[1, -1, 0]).unwrap()), [vec![1, 5], vec![2, 3, 4, 6, 7, 8], vec![]]);
        for bad in [&[1, 1][..], &[-1, -1], &[5, -1], &[-2, 6]] {
            assert!(sizes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn unpacks() {
        let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4]).unwrap();
        let y = run_op("Unpack", attrs![("num", 2i64), ("axis", 1i64)], &[x.clone()]).unwrap();
        assert_eq!(values(&y), [[1, 3], [2, 4]]);
        let y = run_op("Unpack", attrs![("num", 2i64)], &[x.clone()]).unwrap();
        assert_eq!((values(&y), y[0].dims()), (vec![vec![1, 2], vec![3, 4]], &[2i64][..]));
        assert!(run_op("Unpack", attrs![("num", 3i64)], &[x]).is_err());
        let x = Tensor::from_strings(Shape::new(&[1, 2]).unwrap(), vec!["a".into(), "b".into()]).unwrap();
        let y = run_op("Unpack", attrs![("num", 2i64), ("axis", 1i64)], &[x]).unwrap();
        assert_eq!(y[1].strings().unwrap(), ["b"]);
    }

    #[test]
    fn shapes() {
        let split = infer("Split", attrs![("num_split", 2i64)], "[];[?,4]", &[(0, Tensor::scalar(1i32))]).unwrap();
        assert_eq!(split[1].to_string(), "[?,2]");
        check_shape("Split", attrs![("num_split", 1i64)], "[];[?,4]", "[?,?]");
        let constants = [(1, Tensor::vector(&[1i64, -1])), (2, Tensor::scalar(0i32))];
        let split = infer("SplitV", attrs![("num_split", 2i64)], "[4,?];[2];[]", &constants).unwrap();
        assert_eq!(split[1].to_string(), "[3,?]");
        check_shape("Unpack", attrs![("num", 2i64), ("axis", 1i64)], "[?,2,3]", "[?,3];[?,3]");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 4], &[1f64, 2., 3., 4., 5., 6., 7., 8.]).unwrap();
        check_gradient(&[x.clone()], |_, xs| super::split(&xs[0], 2, 1).remove(1));
        check_gradient(&[x.clone()], |_, xs| super::split_v(&xs[0], &[1, -1], 1).remove(1));
        check_gradient(&[x], |_, xs| super::unstack(&xs[0], 4, 1).remove(2));
    }
}
