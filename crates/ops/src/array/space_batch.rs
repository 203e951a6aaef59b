//! Moves blocks of spatial dimensions to the batch or to the depth, and back: SpaceToBatchND, BatchToSpaceND, SpaceToDepth,
//! DepthToSpace, and the older forms.
//!
//! Each is a reshape, a permutation of axes and a reshape, with padding before or cropping after.

use super::pad::pad_with_zeros;
use super::slice::slice_of;
use super::transpose::permuted;
use graph::{AttrMap, Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SpaceToBatchND",
            inputs: &["input: T", "block_shape: Tblock_shape", "paddings: Tpaddings"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tblock_shape: {int32, int64} = DT_INT32", "Tpaddings: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: |c| batch_nd_shape(c, true),
        gradient: Gradient::Fn(|args| nd_gradient(args, "BatchToSpaceND")),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SpaceBatch { to_batch: true, block: None }))],
    },
    Op {
        def: OpDef {
            name: "BatchToSpaceND",
            inputs: &["input: T", "block_shape: Tblock_shape", "crops: Tcrops"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tblock_shape: {int32, int64} = DT_INT32", "Tcrops: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: |c| batch_nd_shape(c, false),
        gradient: Gradient::Fn(|args| nd_gradient(args, "SpaceToBatchND")),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(SpaceBatch { to_batch: false, block: None }))],
    },
    Op {
        def: OpDef {
            name: "SpaceToBatch",
            inputs: &["input: T", "paddings: Tpaddings"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32", "block_size: int >= 2"],
            flags: OpFlags::NONE,
        },
        shape: |c| batch_shape(c, true),
        gradient: Gradient::Fn(|args| batch_gradient(args, "BatchToSpace")),
        kernels: &[KernelDef::any(|builder| SpaceBatch::create(builder, true))],
    },
    Op {
        def: OpDef {
            name: "BatchToSpace",
            inputs: &["input: T", "crops: Tidx"],
            outputs: &["output: T"],
            attrs: &["T: type", "block_size: int >= 2", "Tidx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: |c| batch_shape(c, false),
        gradient: Gradient::Fn(|args| batch_gradient(args, "SpaceToBatch")),
        kernels: &[KernelDef::any(|builder| SpaceBatch::create(builder, false))],
    },
    Op {
        def: OpDef {
            name: "SpaceToDepth",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "block_size: int >= 2", "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"],
            flags: OpFlags::NONE,
        },
        shape: |c| depth_shape(c, true),
        gradient: Gradient::Fn(|args| depth_gradient(args, "DepthToSpace")),
        kernels: &[KernelDef::any(|builder| SpaceDepth::create(builder, true))],
    },
    Op {
        def: OpDef {
            name: "DepthToSpace",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "block_size: int >= 2", "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'"],
            flags: OpFlags::NONE,
        },
        shape: |c| depth_shape(c, false),
        gradient: Gradient::Fn(|args| depth_gradient(args, "SpaceToDepth")),
        kernels: &[KernelDef::any(|builder| SpaceDepth::create(builder, false))],
    },
];

/// Moves blocks of the spatial dimensions into the batch, after padding.
#[track_caller]
pub fn space_to_batch_nd(input: &Output, block_shape: &Output, paddings: &Output) -> Output {
    input.graph().op("SpaceToBatchND").input(input).input(block_shape).input(paddings).output()
}

/// Moves the batch back into blocks of the spatial dimensions, and crops.
#[track_caller]
pub fn batch_to_space_nd(input: &Output, block_shape: &Output, crops: &Output) -> Output {
    input.graph().op("BatchToSpaceND").input(input).input(block_shape).input(crops).output()
}

/// Moves blocks of height and width into the depth.
#[track_caller]
pub fn space_to_depth(input: &Output, block_size: i64) -> Output {
    input.graph().op("SpaceToDepth").input(input).attr("block_size", block_size).output()
}

/// Moves the depth into blocks of height and width.
#[track_caller]
pub fn depth_to_space(input: &Output, block_size: i64) -> Output {
    input.graph().op("DepthToSpace").input(input).attr("block_size", block_size).output()
}

fn nd_gradient(args: &GradientArgs<'_>, op: &str) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let back = grad.graph().op(op).input(&grad).input(&args.input(1)).input(&args.input(2)).try_build()?;
    Ok(vec![Some(back.try_output(0)?.into()), None, None])
}

fn batch_gradient(args: &GradientArgs<'_>, op: &str) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 2]) };
    let block = args.op.attrs().int("block_size")?;
    let back = grad.graph().op(op).input(&grad).input(&args.input(1)).attr("block_size", block).try_build()?;
    Ok(vec![Some(back.try_output(0)?.into()), None])
}

fn depth_gradient(args: &GradientArgs<'_>, op: &str) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let attrs = args.op.attrs();
    let back = grad.graph().op(op).input(&grad).attr("block_size", attrs.int("block_size")?);
    let back = back.attr("data_format", attrs.string("data_format")?).try_build()?;
    Ok(vec![Some(back.try_output(0)?.into())])
}

fn batch_nd_shape(c: &mut ShapeContext<'_>, to_batch: bool) -> Result<()> {
    let block_shape = c.with_rank(1, 1)?;
    let Some(dims) = block_shape.dim(0).and_then(|dims| usize::try_from(dims).ok()) else { return Ok(()) };
    let input = c.with_rank_at_least(0, dims.saturating_add(1))?;
    let block = c.constant(1).map(|block| block.to_indices()).transpose()?;
    let edges = c.constant(2).map(|edges| edges.to_indices()).transpose()?;
    let shape = moved_shape(&input, dims, block.as_deref(), edges.as_deref(), to_batch)?;
    c.set_output(0, shape);
    Ok(())
}

fn batch_shape(c: &mut ShapeContext<'_>, to_batch: bool) -> Result<()> {
    let input = c.with_rank(0, 4)?;
    c.with_rank(1, 2)?;
    let block = c.attrs.int("block_size")?;
    let edges = c.constant(1).map(|edges| edges.to_indices()).transpose()?;
    let shape = moved_shape(&input, 2, Some(&[block, block]), edges.as_deref(), to_batch)?;
    c.set_output(0, shape);
    Ok(())
}

fn moved_shape(
    input: &PartialShape,
    dims: usize,
    block: Option<&[i64]>,
    edges: Option<&[i64]>,
    to_batch: bool,
) -> Result<PartialShape> {
    let Some(sizes) = input.dims() else { return Ok(PartialShape::unknown()) };
    let (Some(block), Some(edges)) = (block, edges) else {
        let unknown = vec![None; dims + 1];
        return Ok(PartialShape::new(&unknown).concat(&input.slice(dims + 1, sizes.len())));
    };
    check_block(block, edges, dims, to_batch)?;
    let volume: i64 = block.iter().product();
    let mut moved = sizes.to_vec();
    moved[0] = match (sizes[0], to_batch) {
        (Some(batch), true) => Some(batch.saturating_mul(volume)),
        (Some(batch), false) => Some(divided(batch, volume, || {
            format!("Input batch dimension ({batch}) is not divisible by product of block sizes ({volume})")
        })?),
        (None, _) => None,
    };
    for axis in 0..dims {
        let edge = edges[2 * axis].saturating_add(edges[2 * axis + 1]);
        moved[axis + 1] = match (sizes[axis + 1], to_batch) {
            (Some(size), true) => {
                let (size, by) = (size.saturating_add(edge), block[axis]);
                Some(divided(size, by, || {
                    format!("padded_shape[{axis}]={size} is not divisible by block_shape[{axis}]={by}")
                })?)
            }
            (Some(size), false) => {
                let size = size.saturating_mul(block[axis]) - edge;
                if size < 0 {
                    return Err(Status::invalid_argument("crops are larger than the space"));
                }
                Some(size)
            }
            (None, _) => None,
        };
    }
    Ok(PartialShape::new(&moved))
}

/// Divides without a remainder.
fn evenly(size: i64, by: i64) -> Result<i64> {
    match size % by {
        0 => Ok(size / by),
        _ => Err(Status::invalid_argument(format!("Dimension size must be evenly divisible by {by} but is {size}"))),
    }
}

/// Divides without a remainder. TensorFlow's kernel reports `problem`, and its shape function the following text.
fn divided(size: i64, by: i64, problem: impl Fn() -> String) -> Result<i64> {
    if size % by != 0 {
        return Err(Status::invalid_argument(format!(
            "{}. Dimension size must be evenly divisible by {by} but is {size}",
            problem()
        )));
    }
    Ok(size / by)
}

fn check_block(block: &[i64], edges: &[i64], dims: usize, to_batch: bool) -> Result<()> {
    if block.len() != dims || edges.len() != 2 * dims {
        return Err(Status::invalid_argument(format!(
            "block_shape and the edges should be [{dims}] and [{dims}, 2], got {} and {} elements",
            block.len(),
            edges.len()
        )));
    }
    if let Some(index) = block.iter().position(|&size| size < 1) {
        let positive =
            format!("All values in block_shape must be positive, got value, {} at index {index}.", block[index]);
        let product = block.iter().fold(1i64, |volume, &size| volume.saturating_mul(size));
        return Err(Status::invalid_argument(match to_batch {
            true => positive,
            false => format!("Product of block sizes must be positive, got {product}. {positive}"),
        }));
    }
    if block.iter().try_fold(1i64, |volume, &size| volume.checked_mul(size)).is_none() {
        return Err(Status::invalid_argument("Product of block sizes must be positive and not overflow"));
    }
    if let Some(edge) = edges.iter().find(|&&edge| edge < 0) {
        let edges = if to_batch { "Paddings" } else { "Crops" };
        return Err(Status::invalid_argument(format!("{edges} must be non-negative, got {edge}")));
    }
    Ok(())
}

struct SpaceBatch {
    to_batch: bool,
    /// The block size of the older forms; the others have it as an input.
    block: Option<i64>,
}

impl SpaceBatch {
    fn create(builder: &KernelBuilder<'_>, to_batch: bool) -> Result<BoxedKernel> {
        BoxedKernel::new(SpaceBatch { to_batch, block: Some(builder.attrs().int("block_size")?) })
    }
}

impl Kernel for SpaceBatch {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (block, edges) = match self.block {
            Some(block) => (vec![block, block], context.input(1)?),
            None => {
                let block = context.input(1)?;
                if !block.shape().is_vector() {
                    return Err(Status::invalid_argument(format!(
                        "block_shape rank should be 1, got {}",
                        block.shape()
                    )));
                }
                (block.to_indices()?, context.input(2)?)
            }
        };
        let dims = block.len();
        if edges.dims() != [dims as i64, 2] {
            return Err(Status::invalid_argument(format!(
                "{} should have shape [{dims}, 2] instead of {}",
                if self.to_batch { "paddings" } else { "crops" },
                edges.shape()
            )));
        }
        let edges = edges.to_indices()?;
        check_block(&block, &edges, dims, self.to_batch)?;
        let input = context.take_input(0)?;
        if input.shape().rank() < dims + 1 {
            return Err(Status::invalid_argument(format!(
                "input rank should be >= {} instead of {}",
                dims + 1,
                input.shape().rank()
            )));
        }
        let edges: Vec<(i64, i64)> = edges.chunks_exact(2).map(|edge| (edge[0], edge[1])).collect();
        let output =
            if self.to_batch { space_to_batch(input, &block, &edges)? } else { batch_to_space(input, &block, &edges)? };
        context.set_output(0, output);
        Ok(())
    }
}

type Dims = SmallVec<[i64; 8]>;

fn space_to_batch(input: Tensor, block: &[i64], paddings: &[(i64, i64)]) -> Result<Tensor> {
    let rank = input.shape().rank();
    let dims = block.len();
    let mut all = vec![(0, 0); rank];
    for (axis, &padding) in paddings.iter().enumerate() {
        all[axis + 1] = (padding.0 as usize, padding.1 as usize);
    }
    let padded = pad_with_zeros(input, &all)?;
    let sizes: Dims = padded.dims().into();
    let rest = &sizes[dims + 1..];
    // Each spatial axis becomes two: the blocks, and the position within one.
    let mut split: Dims = [sizes[0]].into_iter().collect();
    for axis in 0..dims {
        let (size, by) = (sizes[axis + 1], block[axis]);
        let count =
            divided(size, by, || format!("padded_shape[{axis}]={size} is not divisible by block_shape[{axis}]={by}"))?;
        split.extend([count, by]);
    }
    split.extend_from_slice(rest);
    let mut order: SmallVec<[usize; 8]> = (0..dims).map(|axis| 2 * axis + 2).collect();
    order.push(0);
    order.extend((0..dims).map(|axis| 2 * axis + 1));
    order.extend(2 * dims + 1..split.len());
    let moved = permuted(&padded.into_shape(Shape::new(&split)?)?, order)?;
    let volume: i64 = block.iter().product();
    let mut out: Dims = [sizes[0].saturating_mul(volume)].into_iter().collect();
    out.extend((0..dims).map(|axis| sizes[axis + 1] / block[axis]));
    out.extend_from_slice(rest);
    moved.into_shape(Shape::new(&out)?)
}

fn batch_to_space(input: Tensor, block: &[i64], crops: &[(i64, i64)]) -> Result<Tensor> {
    let dims = block.len();
    let sizes: Dims = input.dims().into();
    let volume: i64 = block.iter().product();
    let batch = divided(sizes[0], volume, || {
        format!("Input batch dimension ({}) is not divisible by product of block sizes ({volume})", sizes[0])
    })?;
    let rest = &sizes[dims + 1..];
    let mut split: Dims = block.into();
    split.push(batch);
    split.extend_from_slice(&sizes[1..]);
    let mut order: SmallVec<[usize; 8]> = [dims].into_iter().collect();
    for axis in 0..dims {
        order.extend([dims + 1 + axis, axis]);
    }
    order.extend(2 * dims + 1..split.len());
    let moved = permuted(&input.into_shape(Shape::new(&split)?)?, order)?;
    let mut whole: Dims = [batch].into_iter().collect();
    whole.extend((0..dims).map(|axis| sizes[axis + 1].saturating_mul(block[axis])));
    whole.extend_from_slice(rest);
    let moved = moved.into_shape(Shape::new(&whole)?)?;
    let mut begin: Dims = SmallVec::from_elem(0, whole.len());
    let mut size = whole;
    for (axis, &(before, after)) in crops.iter().enumerate() {
        begin[axis + 1] = before;
        let cropped = size[axis + 1].saturating_sub(before).saturating_sub(after);
        if cropped < 0 {
            return Err(Status::invalid_argument(format!("cropped_shape[{axis}]={cropped} must be non-negative")));
        }
        size[axis + 1] = cropped;
    }
    slice_of(moved, &begin, &size)
}

/// Returns the block size, whose square must not overflow.
fn block_size(attrs: &AttrMap) -> Result<i64> {
    const BLOCK_MAX: i64 = 1 << 20;
    let block = attrs.int("block_size")?;
    if !(2..=BLOCK_MAX).contains(&block) {
        return Err(Status::invalid_argument(format!("Block size should be > 1, and at most {BLOCK_MAX}: {block}")));
    }
    Ok(block)
}

struct SpaceDepth {
    to_depth: bool,
    block: i64,
    channels_first: bool,
}

impl SpaceDepth {
    fn create(builder: &KernelBuilder<'_>, to_depth: bool) -> Result<BoxedKernel> {
        let channels_first = match builder.attrs().string("data_format")?.as_str() {
            "NHWC" => false,
            "NCHW" => true,
            other => return Err(Status::unimplemented(format!("data format {other} is not supported on a CPU"))),
        };
        BoxedKernel::new(SpaceDepth { to_depth, block: block_size(builder.attrs())?, channels_first })
    }
}

fn depth_shape(c: &mut ShapeContext<'_>, to_depth: bool) -> Result<()> {
    let format = c.attrs.string("data_format")?;
    if format == "NCHW_VECT_C" {
        return Ok(());
    }
    let input = c.with_rank(0, 4)?;
    let block = block_size(c.attrs)?;
    let channels_first = format == "NCHW";
    let (height, depth) = if channels_first { (2, 1) } else { (1, 3) };
    let mut shape = input.clone();
    for axis in [height, height + 1, depth] {
        let grows = (axis == depth) == to_depth;
        let factor = if axis == depth { block * block } else { block };
        shape = match input.dim(axis) {
            Some(size) if grows => shape.with_dim(axis, Some(size.saturating_mul(factor))),
            Some(size) => shape.with_dim(axis, Some(evenly(size, factor)?)),
            None => shape,
        };
    }
    c.set_output(0, shape);
    Ok(())
}

impl Kernel for SpaceDepth {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        let &[n, a, b, c] = input.dims() else {
            return Err(Status::invalid_argument(format!(
                "Input rank should be 4 instead of {}",
                input.shape().rank()
            )));
        };
        let block = self.block;
        let (height, width, depth) = if self.channels_first { (b, c, a) } else { (a, b, c) };
        // The axes of a block are called y and x, those of the grid h and w.
        let (split, order, out): ([i64; 6], [usize; 6], [i64; 4]) = match (self.to_depth, self.channels_first) {
            (true, first) => {
                let uneven =
                    || format!("Image width {width} and height {height} should be divisible by block_size: {block}");
                let (h, w) = (divided(height, block, uneven)?, divided(width, block, uneven)?);
                let deep = depth.saturating_mul(block * block);
                if first {
                    ([n, depth, h, block, w, block], [0, 3, 5, 1, 2, 4], [n, deep, h, w])
                } else {
                    ([n, h, block, w, block, depth], [0, 1, 3, 2, 4, 5], [n, h, w, deep])
                }
            }
            (false, first) => {
                let uneven = || format!("Input depth dimension {depth} should be divisible by: {}", block * block);
                let shallow = divided(depth, block * block, uneven)?;
                let (tall, wide) = (height.saturating_mul(block), width.saturating_mul(block));
                if first {
                    ([n, block, block, shallow, height, width], [0, 3, 4, 1, 5, 2], [n, shallow, tall, wide])
                } else {
                    ([n, height, width, block, block, shallow], [0, 1, 3, 2, 4, 5], [n, tall, wide, shallow])
                }
            }
        };
        let moved = permuted(&input.into_shape(Shape::new(&split)?)?, order.into_iter().collect())?;
        context.set_output(0, moved.into_shape(Shape::new(&out)?)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use graph::AttrMap;
    use tensor::Tensor;

    fn counted(dims: &[i64], first: i32) -> Tensor {
        let count = dims.iter().product::<i64>() as i32;
        Tensor::from_slice(dims, &(first..first + count).collect::<Vec<_>>()).unwrap()
    }

    fn pairs(values: &[i32]) -> Tensor {
        Tensor::from_slice(&[values.len() as i64 / 2, 2], values).unwrap()
    }

    fn run(op: &str, attrs: AttrMap, inputs: &[Tensor]) -> (Vec<i64>, Vec<i32>) {
        let y = run_op(op, attrs, inputs).unwrap();
        (y[0].dims().to_vec(), y[0].as_slice::<i32>().unwrap().to_vec())
    }

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn batches() {
        let block = || Tensor::vector(&[2i32, 2]);
        let x = || counted(&[1, 4, 4, 1], 1);
        let expected = [0, 1, 3, 0, 9, 11, 0, 2, 4, 0, 10, 12, 0, 5, 7, 0, 13, 15, 0, 6, 8, 0, 14, 16];
        let (dims, values) = run("SpaceToBatchND", attrs![], &[x(), block(), pairs(&[0, 0, 2, 0])]);
        assert_eq!((&dims[..], &values[..]), (&[4, 2, 3, 1][..], &expected[..]));
        let old = run("SpaceToBatch", attrs![("block_size", 2i64)], &[x(), pairs(&[0, 0, 2, 0])]);
        assert_eq!(old.1, expected);
        let y = counted(&[4, 1, 2, 1], 0);
        let crops = || pairs(&[0, 1, 1, 0]);
        let (dims, values) = run("BatchToSpaceND", attrs![], &[y.clone(), block(), crops()]);
        assert_eq!((&dims[..], &values[..]), (&[1, 1, 3, 1][..], &[2, 1, 3][..]));
        assert_eq!(run("BatchToSpace", attrs![("block_size", 2i64)], &[y.clone(), crops()]).1, [2, 1, 3]);
        assert!(run_op("SpaceToBatchND", attrs![], &[x(), block(), pairs(&[0, 1, 0, 0])]).is_err());
        assert!(run_op("BatchToSpaceND", attrs![], &[x(), block(), crops()]).is_err());
        assert!(run_op("BatchToSpaceND", attrs![], &[y, Tensor::vector(&[0i32, 2]), crops()]).is_err());
    }

    #[test]
    fn depths() {
        let attrs = || attrs![("block_size", 2i64)];
        let (dims, values) = run("SpaceToDepth", attrs(), &[counted(&[1, 4, 4, 1], 1)]);
        assert_eq!(dims, [1, 2, 2, 4]);
        assert_eq!(values, [1, 2, 5, 6, 3, 4, 7, 8, 9, 10, 13, 14, 11, 12, 15, 16]);
        let (dims, values) = run("DepthToSpace", attrs(), &[counted(&[1, 2, 2, 4], 0)]);
        assert_eq!(dims, [1, 4, 4, 1]);
        assert_eq!(values, [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]);
        let first = || attrs![("block_size", 2i64), ("data_format", "NCHW")];
        let x = counted(&[1, 2, 4, 2], 0);
        let y = run_op("SpaceToDepth", first(), &[x.clone()]).unwrap();
        assert_eq!(y[0].dims(), [1, 8, 2, 1]);
        let back = run_op("DepthToSpace", first(), &y).unwrap();
        assert_eq!(back[0].as_slice::<i32>().unwrap(), x.as_slice::<i32>().unwrap());
        assert!(run_op("SpaceToDepth", attrs(), &[counted(&[1, 3, 4, 1], 1)]).is_err());
    }

    #[test]
    fn shapes_and_gradients() {
        let constants = [(1, Tensor::vector(&[2i32, 2])), (2, pairs(&[0, 0, 2, 0]))];
        let shape = infer("SpaceToBatchND", attrs![], "[?,4,4,3];[2];[2,2]", &constants).unwrap();
        assert_eq!(shape[0].to_string(), "[?,2,3,3]");
        check_shape("DepthToSpace", attrs![("block_size", 2i64)], "[?,2,3,8]", "[?,4,6,2]");
        let x = Tensor::from_slice(&[1, 2, 2, 1], &[1f64, 2., 3., 4.]).unwrap();
        check_gradient(&[x.clone()], |_, xs| super::space_to_depth(&xs[0], 2));
        check_gradient(&[x], |graph, xs| {
            let block = graph.constant_tensor(&Tensor::vector(&[2i32, 2]));
            let paddings = graph.constant_tensor(&pairs(&[1, 1, 0, 0]));
            super::space_to_batch_nd(&xs[0], &block, &paddings)
        });
    }
}
