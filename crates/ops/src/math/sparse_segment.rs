//! Reductions by segment of indexed rows: SparseSegmentSum, SparseSegmentMean, SparseSegmentSqrtN, with and without a number of
//! segments, and their gradient ops.

use super::segment::{check_sorted, indices};
use crate::compose::{Gradients, constant, int_vector, unary};
use graph::ShapeContext;
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, IndexedSlices, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags,
};
use numeric::float::Float;
use numeric::scatter::{SegmentScale, segment_combine, sparse_segment_grad, sparse_segment_reduce};
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SparseSegmentSum",
            inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
                "sparse_gradient: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduce_shape,
        gradient: Gradient::Fn(sum_gradient),
        kernels: SUM_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSumWithNumSegments",
            inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tnumsegments: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
                "sparse_gradient: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduce_with_num_segments_shape,
        gradient: Gradient::Fn(sum_gradient),
        kernels: SUM_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentMean",
            inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
                "sparse_gradient: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduce_shape,
        gradient: Gradient::Fn(mean_gradient),
        kernels: FLOAT_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentMeanWithNumSegments",
            inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tnumsegments: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
                "sparse_gradient: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduce_with_num_segments_shape,
        gradient: Gradient::Fn(mean_gradient),
        kernels: FLOAT_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSqrtN",
            inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
                "sparse_gradient: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduce_shape,
        gradient: Gradient::Fn(sqrt_n_gradient),
        kernels: FLOAT_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSqrtNWithNumSegments",
            inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tnumsegments: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
                "sparse_gradient: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: reduce_with_num_segments_shape,
        gradient: Gradient::Fn(sqrt_n_gradient),
        kernels: FLOAT_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSumGrad",
            inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "output_dim0: int32"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: grad_shape,
        gradient: Gradient::Unsupported,
        kernels: GRAD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentMeanGrad",
            inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "output_dim0: int32"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: grad_shape,
        gradient: Gradient::Unsupported,
        kernels: GRAD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSqrtNGrad",
            inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "output_dim0: int32"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: grad_shape,
        gradient: Gradient::Unsupported,
        kernels: GRAD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSumGradV2",
            inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "dense_output_dim0: int32"],
            outputs: &["output: T", "sorted_unique_indices: Tidx"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: grad_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: GRAD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentMeanGradV2",
            inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "dense_output_dim0: int32"],
            outputs: &["output: T", "sorted_unique_indices: Tidx"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: grad_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: GRAD_KERNELS,
    },
    Op {
        def: OpDef {
            name: "SparseSegmentSqrtNGradV2",
            inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "dense_output_dim0: int32"],
            outputs: &["output: T", "sorted_unique_indices: Tidx"],
            attrs: &[
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
                "Tsegmentids: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: grad_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: GRAD_KERNELS,
    },
];

const FLOAT_KERNELS: &[KernelDef] = &[float::<f32>(), float::<f64>(), float::<f16>(), float::<bf16>()];

const SUM_KERNELS: &[KernelDef] = &[
    float::<f32>(),
    float::<f64>(),
    float::<f16>(),
    float::<bf16>(),
    integer::<i8>(),
    integer::<i16>(),
    integer::<i32>(),
    integer::<i64>(),
    integer::<u8>(),
    integer::<u16>(),
    integer::<u32>(),
    integer::<u64>(),
];

const GRAD_KERNELS: &[KernelDef] = &[grad::<f32>(), grad::<f64>(), grad::<f16>(), grad::<bf16>()];

fn reduce_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.with_rank_at_least(0, 1)?;
    c.with_rank(1, 1)?.merge(&c.with_rank(2, 1)?)?;
    c.set_output(0, data.with_dim(0, None));
    Ok(())
}

fn reduce_with_num_segments_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    reduce_shape(c)?;
    c.with_rank(3, 0)?;
    if let Some(count) = c.constant(3) {
        let count = count.to_index()?;
        if count < 0 {
            return Err(Status::invalid_argument("Cannot specify a negative value for num_segments"));
        }
        let shape = c.outputs[0].with_dim(0, Some(count));
        c.set_output(0, shape);
    }
    Ok(())
}

fn grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let grad = c.with_rank_at_least(0, 1)?;
    c.with_rank(1, 1)?.merge(&c.with_rank(2, 1)?)?;
    c.with_rank(3, 0)?;
    let rows = match c.constant(3) {
        Some(rows) => Some(rows.to_index()?).filter(|&rows| rows >= 0),
        None => None,
    };
    c.set_output(0, grad.with_dim(0, rows));
    Ok(())
}

fn grad_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let grad = c.with_rank_at_least(0, 1)?;
    c.with_rank(1, 1)?.merge(&c.with_rank(2, 1)?)?;
    c.set_output(0, grad.with_dim(0, None));
    c.set_output(1, PartialShape::new(&[None]));
    Ok(())
}

fn sum_gradient(args: &GradientArgs<'_>) -> Gradients {
    reduce_gradient(args, "SparseSegmentSumGrad")
}

fn mean_gradient(args: &GradientArgs<'_>) -> Gradients {
    reduce_gradient(args, "SparseSegmentMeanGrad")
}

fn sqrt_n_gradient(args: &GradientArgs<'_>) -> Gradients {
    reduce_gradient(args, "SparseSegmentSqrtNGrad")
}

fn reduce_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let mut grads = vec![None; args.op.num_inputs()];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let data = args.input(0);
    let graph = data.graph();
    let rows = match data.shape().dim(0).and_then(|rows| i32::try_from(rows).ok()) {
        Some(rows) => constant(graph, &Tensor::scalar(rows))?,
        None => {
            let slice = graph.op("StridedSlice").input(&unary("Shape", &data)?).input(&int_vector(graph, &[0])?);
            let slice = slice.input(&int_vector(graph, &[1])?).input(&int_vector(graph, &[1])?);
            slice.attr("shrink_axis_mask", 1i64).try_build()?.output(0)
        }
    };
    let is_sparse = args.op.attrs().bool("sparse_gradient").unwrap_or(false);
    let name = if is_sparse { format!("{op}V2") } else { op.to_owned() };
    let back = graph.op(&name).input(&grad).input(&args.input(1)).input(&args.input(2)).input(&rows).try_build()?;
    grads[0] = Some(if is_sparse {
        let dense_shape = Some(unary("Shape", &data)?);
        Grad::Slices(IndexedSlices { values: back.output(0), indices: back.output(1), dense_shape })
    } else {
        back.output(0).into()
    });
    Ok(grads)
}

/// Returns the weighting of rows, from an op's name.
fn scale_of(builder: &KernelBuilder<'_>) -> SegmentScale {
    let op = builder.node.op();
    if op.starts_with("SparseSegmentMean") {
        SegmentScale::Mean
    } else if op.starts_with("SparseSegmentSqrtN") {
        SegmentScale::SqrtN
    } else {
        SegmentScale::Sum
    }
}

/// The checked inputs of a reduction.
struct Picked<'a> {
    row_len: usize,
    indices: std::borrow::Cow<'a, [i64]>,
    segment_ids: std::borrow::Cow<'a, [i64]>,
    shape: Shape,
}

/// Checks the inputs of a reduction: data, indices, segment ids, and the number of segments if there is one.
fn picked<'a>(context: &'a OpContext<'_>) -> Result<Picked<'a>> {
    let (data, index, ids) = (context.input(0)?, context.input(1)?, context.input(2)?);
    let shape = data.shape();
    if shape.rank() < 1 {
        return Err(Status::invalid_argument("Shape must be at least rank 1: data is a scalar"));
    }
    let (index, ids) = vectors(index, ids)?;
    if ids.first().is_some_and(|&first| first < 0) && ids.is_sorted() {
        return Err(Status::invalid_argument(format!("segment ids must be >= 0: the first is {}", ids[0])));
    }
    check_sorted(&ids)?;
    let rows = shape.dim(0);
    if let Some(position) = index.iter().position(|&row| row < 0 || row >= rows) {
        return Err(Status::invalid_argument(format!(
            "Bad: indices[{position}] == {} out of range [0, {rows})",
            index[position]
        )));
    }
    let needed = ids.last().map_or(0, |last| last.saturating_add(1));
    let segments = if context.num_inputs() > 3 {
        let count = context.input(3)?;
        if !count.shape().is_scalar() {
            return Err(Status::invalid_argument(format!(
                "num_segments should be a scalar, not shape {}",
                count.shape()
            )));
        }
        let count = count.to_index()?;
        if count < 0 {
            return Err(Status::invalid_argument(format!("segment ids must be >= 0: num_segments is {count}")));
        }
        if needed > count {
            return Err(Status::invalid_argument("segment ids must be < num_segments"));
        }
        count
    } else {
        needed
    };
    let row_len = shape.slice(1, shape.rank()).num_elements();
    Ok(Picked { row_len, indices: index, segment_ids: ids, shape: shape.with_dim(0, segments)? })
}

fn vectors<'a>(
    index: &'a Tensor,
    ids: &'a Tensor,
) -> Result<(std::borrow::Cow<'a, [i64]>, std::borrow::Cow<'a, [i64]>)> {
    if !index.shape().is_vector() {
        return Err(Status::invalid_argument("indices should be a vector."));
    }
    if !ids.shape().is_vector() {
        return Err(Status::invalid_argument("segment_ids should be a vector."));
    }
    if index.num_elements() != ids.num_elements() {
        return Err(Status::invalid_argument("segment_ids and indices should have same size."));
    }
    Ok((indices(index)?, indices(ids)?))
}

struct FloatReduce<T> {
    scale: SegmentScale,
    element: PhantomData<fn(T)>,
}

const fn float<T: Element + Float>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| BoxedKernel::new(FloatReduce::<T> { scale: scale_of(builder), element: PhantomData }),
    }
}

impl<T: Element + Float> Kernel for FloatReduce<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let picked = picked(context)?;
        let data = context.slice::<T>(0)?;
        let output = Tensor::build(picked.shape.clone(), |out: &mut [T]| {
            sparse_segment_reduce(
                data,
                picked.row_len,
                Some(&picked.indices[..]),
                &picked.segment_ids,
                self.scale,
                out,
            );
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Sums of integers, which wrap.
struct IntegerSum<T>(PhantomData<fn(T)>);

const fn integer<T: Element + num_traits::PrimInt + num_traits::WrappingAdd>() -> KernelDef {
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: |_| BoxedKernel::new(IntegerSum::<T>(PhantomData)) }
}

impl<T: Element + num_traits::PrimInt + num_traits::WrappingAdd> Kernel for IntegerSum<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let picked = picked(context)?;
        let data = context.slice::<T>(0)?;
        let rows = picked.indices.iter().flat_map(|&row| &data[row as usize * picked.row_len..][..picked.row_len]);
        let gathered: Vec<T> = rows.copied().collect();
        let add: fn(T, T) -> T = |x, y| x.wrapping_add(&y);
        let output = Tensor::build(picked.shape.clone(), |out: &mut [T]| {
            segment_combine(&gathered, picked.row_len, &picked.segment_ids, T::zero(), out, add);
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct ReduceGrad<T> {
    scale: SegmentScale,
    /// Whether only the indexed rows are returned, with their numbers.
    is_sparse: bool,
    element: PhantomData<fn(T)>,
}

const fn grad<T: Element + Float>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let is_sparse = builder.node.op().ends_with("V2");
            BoxedKernel::new(ReduceGrad::<T> { scale: scale_of(builder), is_sparse, element: PhantomData })
        },
    }
}

impl<T: Element + Float> Kernel for ReduceGrad<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (gradient, rows) = (context.input(0)?, context.input(3)?);
        let (index, ids) = vectors(context.input(1)?, context.input(2)?)?;
        let shape = gradient.shape();
        if shape.rank() < 1 {
            return Err(Status::invalid_argument("grad must be at least rank 1"));
        }
        if rows.num_elements() != 1 {
            return Err(Status::invalid_argument("output_dim0 should be a scalar."));
        }
        let rows = rows.to_index()?;
        if rows < 0 {
            return Err(Status::invalid_argument(format!("Expected a non-negative size, got {rows} for output_dim0")));
        }
        if let Some(row) = index.iter().find(|&&row| row < 0 || row >= rows) {
            return Err(Status::invalid_argument(format!("Index {row} out of range [0, {rows}).")));
        }
        let segments = shape.dim(0);
        if let Some(id) = ids.iter().find(|&&id| id < 0 || id >= segments) {
            return Err(Status::invalid_argument(format!(
                "Invalid number of segments: segment id {id} is out of range [0, {segments})."
            )));
        }
        let row_len = shape.slice(1, shape.rank()).num_elements();
        let values = gradient.as_slice::<T>()?;
        if !self.is_sparse {
            let output = Tensor::build(shape.with_dim(0, rows)?, |out: &mut [T]| {
                sparse_segment_grad(values, row_len, &index, &ids, self.scale, out);
            })?;
            context.set_output(0, output);
            return Ok(());
        }
        let mut unique = index.to_vec();
        unique.sort_unstable();
        unique.dedup();
        let places: Vec<usize> = index.iter().map(|row| unique.partition_point(|other| other < row)).collect();
        let output = Tensor::build(shape.with_dim(0, unique.len() as i64)?, |out: &mut [T]| {
            sparse_segment_grad(values, row_len, &places, &ids, self.scale, out);
        })?;
        let numbers = match context.input(1)?.dtype() {
            tensor::DType::Int32 => Tensor::vector(&unique.iter().map(|&row| row as i32).collect::<Vec<_>>()),
            _ => Tensor::vector(&unique),
        };
        context.set_output(0, output);
        context.set_output(1, numbers);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};

    fn data() -> Tensor {
        Tensor::from_slice(&[3, 2], &[1f32, 2., 3., 4., 5., 6.]).unwrap()
    }

    #[test]
    fn picked_rows() {
        let run = |op: &str, index: &[i32], ids: &[i64]| {
            run_op(op, attrs![], &[data(), Tensor::vector(index), Tensor::vector(ids)])
                .map(|outputs| outputs[0].as_slice::<f32>().unwrap().to_vec())
        };
        assert_eq!(run("SparseSegmentSum", &[2, 0, 0], &[0, 0, 2]).unwrap(), [6., 8., 0., 0., 1., 2.]);
        assert_eq!(run("SparseSegmentMean", &[2, 0, 0], &[0, 0, 1]).unwrap(), [3., 4., 1., 2.]);
        let root = 2f32.sqrt();
        let y = run("SparseSegmentSqrtN", &[2, 0], &[0, 0]).unwrap();
        assert!((y[0] - 6. / root).abs() < 1e-6);
        let status = run("SparseSegmentSum", &[2, 7], &[0, 0]).unwrap_err();
        assert!(status.message().starts_with("Bad: indices[1] == 7 out of range [0, 3)"), "{status}");
        for (index, ids) in [(&[0, 1][..], &[1i64, 0][..]), (&[0, 1], &[-1, 0]), (&[0], &[0, 0]), (&[-1], &[0])] {
            assert!(run("SparseSegmentSum", index, ids).is_err(), "{index:?} {ids:?}");
        }
        let inputs = [Tensor::vector(&[100i8, 100]), Tensor::vector(&[0i32, 1]), Tensor::vector(&[0i32, 0])];
        assert_eq!(run_op("SparseSegmentSum", attrs![], &inputs).unwrap()[0].as_slice::<i8>().unwrap(), &[-56]);
    }

    #[test]
    fn a_number_of_segments() {
        let run = |ids: &[i32], count: i32| {
            let inputs = [data(), Tensor::vector(&[0i32, 1]), Tensor::vector(ids), Tensor::scalar(count)];
            run_op("SparseSegmentMeanWithNumSegments", attrs![], &inputs)
                .map(|outputs| outputs[0].as_slice::<f32>().unwrap().to_vec())
        };
        assert_eq!(run(&[0, 0], 3).unwrap(), [2., 3., 0., 0., 0., 0.]);
        assert!(run(&[0, 3], 3).is_err());
        assert!(run(&[0, 0], -1).is_err());
    }

    #[test]
    fn gradient_ops() {
        let run = |op: &str, index: &[i32], ids: &[i32], rows: i32| {
            run_op(op, attrs![], &[data(), Tensor::vector(index), Tensor::vector(ids), Tensor::scalar(rows)])
        };
        let y = run("SparseSegmentMeanGrad", &[2, 0, 0], &[0, 0, 1], 4).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[3.5, 5., 0., 0., 0.5, 1., 0., 0.]);
        let y = run("SparseSegmentSumGradV2", &[5, 0, 5], &[0, 0, 1], 9).unwrap();
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[0, 5]);
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[1., 2., 4., 6.]);
        assert!(run("SparseSegmentSumGrad", &[9], &[0], 4).is_err());
        assert!(run("SparseSegmentSumGrad", &[0], &[7], 4).is_err());
    }

    #[test]
    fn shapes_and_gradients() {
        let shapes = infer("SparseSegmentSum", attrs![], "[4,3];[2];[?]", &[]).unwrap();
        assert_eq!(shapes[0].to_string(), "[?,3]");
        let data = Tensor::from_slice(&[3, 2], &[1f64, 2., 3., 4., 5., 6.]).unwrap();
        for op in ["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"] {
            for sparse in [false, true] {
                let inputs = [data.clone(), Tensor::vector(&[2i32, 0, 0]), Tensor::vector(&[0i32, 0, 1])];
                check_gradient(&inputs, |graph, x| graph.op(op).inputs(x).attr("sparse_gradient", sparse).output());
            }
        }
    }
}
