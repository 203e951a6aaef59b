//! Reductions of rows by segment: SegmentSum, SegmentMean, SegmentProd, SegmentMax, SegmentMin, with sorted ids, and
//! UnsortedSegmentSum, UnsortedSegmentProd, UnsortedSegmentMax, UnsortedSegmentMin.

use super::segment_gradient::{
    gather_drop_negatives, segment_extreme_gradient, segment_mean_gradient, segment_prod_gradient,
    segment_sum_gradient, unsorted_extreme_gradient, unsorted_prod_gradient,
};
use crate::compose::Gradients;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::scatter::segment_combine;
use std::borrow::Cow;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// Lists the kernels of a reduction by segment: the value of an empty segment, and how rows are combined.
macro_rules! segment_kernels {
    ($rule:expr; $([$($ty:ident),* $(,)?] => $initial:expr, $function:expr),* $(,)?) => {
        &[$($(KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |_| Segments::<$ty, _>::boxed($rule, $initial, kernel_function!($ty, fn($ty, $ty) -> $ty, $function)),
        },)*)*]
    };
}

macro_rules! sum_kernels {
    ($rule:expr) => {
        segment_kernels!($rule;
            [f32, f64, f16, bf16, Complex32, Complex64] => Default::default(), |x, y| x + y,
            [i8, i16, i32, i64, u8, u16, u32, u64] => 0, |x, y| x.wrapping_add(y),
        )
    };
}

macro_rules! prod_kernels {
    ($rule:expr) => {
        segment_kernels!($rule;
            [f32, f64] => 1.0, |x, y| x * y,
            [f16] => f16::ONE, |x, y| x * y,
            [bf16] => bf16::ONE, |x, y| x * y,
            [Complex32] => Complex32::new(1.0, 0.0), |x, y| x * y,
            [Complex64] => Complex64::new(1.0, 0.0), |x, y| x * y,
            [i8, i16, i32, i64, u8, u16, u32, u64] => 1, |x, y| x.wrapping_mul(y),
        )
    };
}

macro_rules! max_kernels {
    ($rule:expr) => {
        extreme_kernels!($rule, MIN, |x, y| if y > x { y } else { x })
    };
}

macro_rules! min_kernels {
    ($rule:expr) => {
        extreme_kernels!($rule, MAX, |x, y| if y < x { y } else { x })
    };
}

macro_rules! extreme_kernels {
    ($rule:expr, $initial:ident, $function:expr) => {
        segment_kernels!($rule;
            [f32] => f32::$initial, $function,
            [f64] => f64::$initial, $function,
            [f16] => f16::$initial, $function,
            [bf16] => bf16::$initial, $function,
            [i8] => i8::$initial, $function,
            [i16] => i16::$initial, $function,
            [i32] => i32::$initial, $function,
            [i64] => i64::$initial, $function,
            [u8] => u8::$initial, $function,
            [u16] => u16::$initial, $function,
            [u32] => u32::$initial, $function,
            [u64] => u64::$initial, $function,
        )
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SegmentSum",
            inputs: &["data: T", "segment_ids: Tindices"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: sorted_shape,
        gradient: Gradient::Fn(segment_sum_gradient),
        kernels: sum_kernels!(Rule::Sorted),
    },
    Op {
        def: OpDef {
            name: "SegmentMean",
            inputs: &["data: T", "segment_ids: Tindices"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: sorted_shape,
        gradient: Gradient::Fn(segment_mean_gradient),
        kernels: sum_kernels!(Rule::SortedMean),
    },
    Op {
        def: OpDef {
            name: "SegmentProd",
            inputs: &["data: T", "segment_ids: Tindices"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: sorted_shape,
        gradient: Gradient::Fn(segment_prod_gradient),
        kernels: prod_kernels!(Rule::Sorted),
    },
    Op {
        def: OpDef {
            name: "SegmentMax",
            inputs: &["data: T", "segment_ids: Tindices"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tindices: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: sorted_shape,
        gradient: Gradient::Fn(segment_extreme_gradient),
        kernels: max_kernels!(Rule::SortedExtreme),
    },
    Op {
        def: OpDef {
            name: "SegmentMin",
            inputs: &["data: T", "segment_ids: Tindices"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tindices: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: sorted_shape,
        gradient: Gradient::Fn(segment_extreme_gradient),
        kernels: min_kernels!(Rule::SortedExtreme),
    },
    Op {
        def: OpDef {
            name: "UnsortedSegmentSum",
            inputs: &["data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int16, int32, int64}",
                "Tnumsegments: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: unsorted_shape,
        gradient: Gradient::Fn(unsorted_sum_gradient),
        kernels: sum_kernels!(Rule::Unsorted),
    },
    Op {
        def: OpDef {
            name: "UnsortedSegmentProd",
            inputs: &["data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "Tnumsegments: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: unsorted_shape,
        gradient: Gradient::Fn(unsorted_prod_gradient),
        kernels: prod_kernels!(Rule::Unsorted),
    },
    Op {
        def: OpDef {
            name: "UnsortedSegmentMax",
            inputs: &["data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "Tnumsegments: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: unsorted_shape,
        gradient: Gradient::Fn(unsorted_extreme_gradient),
        kernels: max_kernels!(Rule::Unsorted),
    },
    Op {
        def: OpDef {
            name: "UnsortedSegmentMin",
            inputs: &["data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"],
            outputs: &["output: T"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "Tindices: {int32, int64}",
                "Tnumsegments: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: unsorted_shape,
        gradient: Gradient::Fn(unsorted_extreme_gradient),
        kernels: min_kernels!(Rule::Unsorted),
    },
];

/// Returns the sums of the rows with equal ids; ids are sorted, and the result has one row more than the largest id.
#[track_caller]
pub fn segment_sum(data: &Output, segment_ids: &Output) -> Output {
    data.graph().op("SegmentSum").input(data).input(segment_ids).output()
}

/// Returns the sums of the rows with equal ids, in `num_segments` rows; negative ids are ignored.
#[track_caller]
pub fn unsorted_segment_sum(data: &Output, segment_ids: &Output, num_segments: &Output) -> Output {
    data.graph().op("UnsortedSegmentSum").input(data).input(segment_ids).input(num_segments).output()
}

fn sorted_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let data = c.with_rank_at_least(0, 1)?;
    let ids = c.with_rank(1, 1)?;
    ids.merge(&data.slice(0, 1)).or_else(|status| if data.rank().is_none() { Ok(ids.clone()) } else { Err(status) })?;
    c.set_output(0, data.with_dim(0, None));
    Ok(())
}

fn unsorted_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (data, ids) = (c.input(0), c.input(1));
    c.with_rank(2, 0)?;
    let (Some(rank), Some(ids_rank)) = (data.rank(), ids.rank()) else { return Ok(()) };
    data.slice(0, ids_rank).merge(&ids)?;
    let count = match c.constant(2) {
        Some(count) => Some(count.to_index()?),
        None => None,
    };
    if let Some(count) = count.filter(|&count| count < 0) {
        return Err(Status::invalid_argument(format!(
            "Dimension size, given by scalar input 2, must be non-negative but is {count}"
        )));
    }
    c.set_output(0, PartialShape::new(&[count]).concat(&data.slice(ids_rank, rank)));
    Ok(())
}

fn unsorted_sum_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let gathered = gather_drop_negatives(&grad, &args.input(1))?.values;
    Ok(vec![Some(gathered.into()), None, None])
}

/// How an op interprets ids.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Sorted, one for each row; empty segments have the initial value.
    Sorted,
    /// As `Sorted`, divided by the number of rows.
    SortedMean,
    /// As `Sorted`, but empty segments are zero.
    SortedExtreme,
    /// In any order, with a shape that is a prefix of the data's; the number of segments is an input.
    Unsorted,
}

struct Segments<T, F> {
    rule: Rule,
    initial: T,
    combine: F,
    element: PhantomData<fn(T)>,
}

impl<T: Element + Divide, F: Fn(T, T) -> T + Copy + Send + Sync + 'static> Segments<T, F> {
    fn boxed(rule: Rule, initial: T, combine: F) -> Result<BoxedKernel> {
        BoxedKernel::new(Segments { rule, initial, combine, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element + Divide, F: Fn(T, T) -> T + Copy + Send + Sync> Kernel for Segments<T, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (data, ids) = (context.input(0)?, context.input(1)?);
        let (rows, row_shape) = if self.rule == Rule::Unsorted {
            unsorted_sizes(data, ids, context.input(2)?)?
        } else {
            sorted_sizes(data, ids)?
        };
        let ids = indices(ids)?;
        if self.rule == Rule::Unsorted {
            check_unsorted(&ids, rows)?
        } else {
            check_sorted(&ids)?
        }
        let row_len = row_shape.num_elements();
        let values = data.as_slice::<T>()?;
        let shape = Shape::from_usize(&[rows])?.concat(&row_shape)?;
        let output = Tensor::build(shape, |out: &mut [T]| {
            if out.is_empty() {
                return;
            }
            segment_combine(values, row_len, &ids, self.initial, out, self.combine);
            if matches!(self.rule, Rule::SortedMean | Rule::SortedExtreme) {
                let counts = numeric::scatter::counts(&ids, rows);
                for (row, count) in out.chunks_exact_mut(row_len).zip(counts) {
                    if count == 0 {
                        row.fill(T::default());
                    } else if self.rule == Rule::SortedMean {
                        row.iter_mut().for_each(|value| *value = value.divided_by(count));
                    }
                }
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns ids as `i64`s, without a copy if they have that type.
pub(super) fn indices(ids: &Tensor) -> Result<Cow<'_, [i64]>> {
    match ids.dtype() {
        DType::Int64 => Ok(Cow::Borrowed(ids.as_slice::<i64>()?)),
        DType::Int16 => Ok(Cow::Owned(ids.as_slice::<i16>()?.iter().map(|&id| i64::from(id)).collect())),
        _ => Ok(Cow::Owned(ids.to_indices()?)),
    }
}

fn sorted_sizes(data: &Tensor, ids: &Tensor) -> Result<(usize, Shape)> {
    if !ids.shape().is_vector() {
        return Err(Status::invalid_argument("segment_ids should be a vector."));
    }
    let shape = data.shape();
    if shape.rank() < 1 {
        return Err(Status::invalid_argument("data must be at least rank 1"));
    }
    if shape.dim(0) != ids.shape().dim(0) {
        return Err(Status::invalid_argument("segment_ids should be the same size as dimension 0 of input."));
    }
    let last = indices(ids)?.last().copied().unwrap_or(-1);
    let rows = last.checked_add(1).and_then(|rows| usize::try_from(rows).ok());
    let rows = rows.ok_or_else(|| Status::invalid_argument("segment ids must be >= 0"))?;
    Ok((rows, shape.slice(1, shape.rank())))
}

/// Checks that ids are sorted and not negative.
pub(super) fn check_sorted(ids: &[i64]) -> Result<()> {
    if ids.windows(2).any(|pair| pair[0] > pair[1]) {
        return Err(Status::invalid_argument("segment ids are not increasing"));
    }
    match (ids.first(), ids.last()) {
        (Some(&first), Some(&last)) if first < 0 => Err(Status::invalid_argument(format!(
            "Segment id {first} out of range [0, {}), possibly because 'segment_ids' input is not sorted.",
            last.saturating_add(1)
        ))),
        _ => Ok(()),
    }
}

fn unsorted_sizes(data: &Tensor, ids: &Tensor, count: &Tensor) -> Result<(usize, Shape)> {
    if !count.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("num_segments should be a scalar, not shape {}", count.shape())));
    }
    let (shape, ids_shape) = (data.shape(), ids.shape());
    if shape.rank() < ids_shape.rank() || shape.dims()[..ids_shape.rank()] != *ids_shape.dims() {
        return Err(Status::invalid_argument(format!(
            "data.shape = {shape} does not start with segment_ids.shape = {ids_shape}"
        )));
    }
    let count = count.to_index()?;
    let rows = usize::try_from(count)
        .map_err(|_| Status::invalid_argument(format!("Input num_segments == {count} must not be negative.")))?;
    Ok((rows, shape.slice(ids_shape.rank(), shape.rank())))
}

fn check_unsorted(ids: &[i64], rows: usize) -> Result<()> {
    match ids.iter().position(|&id| id >= rows as i64) {
        None => Ok(()),
        Some(position) => Err(Status::invalid_argument(format!(
            "segment_ids[{position}] = {} is out of range [0, {rows})",
            ids[position]
        ))),
    }
}

/// Division by a number of rows.
trait Divide {
    fn divided_by(self, count: usize) -> Self;
}

macro_rules! divide {
    ($([$($ty:ty),*] => $divide:expr;)*) => {$($(
        impl Divide for $ty {
            fn divided_by(self, count: usize) -> Self {
                let divide: fn($ty, usize) -> $ty = $divide;
                divide(self, count)
            }
        }
    )*)*};
}

divide! {
    [f32, f64, i64, u64] => |value, count| value / count as Self;
    [i8, i16, i32, u8, u16, u32] => |value, count| (i64::from(value) / count as i64) as Self;
    [f16, bf16] => |value, count| Self::from_f32(value.to_f32() / count as f32);
    [Complex32] => |value, count| value / count as f32;
    [Complex64] => |value, count| value / count as f64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};

    fn run(op: &str, data: &[f32], ids: &[i32]) -> Result<Vec<f32>> {
        let outputs = run_op(op, attrs![], &[Tensor::vector(data), Tensor::vector(ids)])?;
        Ok(outputs[0].as_slice::<f32>()?.to_vec())
    }

    #[test]
    fn sorted_segments() {
        assert_eq!(run("SegmentSum", &[1., 2., 4.], &[0, 0, 2]).unwrap(), [3., 0., 4.]);
        assert_eq!(run("SegmentMean", &[1., 2., 4.], &[0, 0, 2]).unwrap(), [1.5, 0., 4.]);
        assert_eq!(run("SegmentProd", &[1., 2., 4.], &[0, 0, 2]).unwrap(), [2., 1., 4.]);
        assert_eq!(run("SegmentMax", &[1., 2., -4.], &[0, 0, 2]).unwrap(), [2., 0., -4.]);
        assert_eq!(run("SegmentMin", &[1., 2., 4.], &[0, 0, 2]).unwrap(), [1., 0., 4.]);
        assert_eq!(run("SegmentSum", &[], &[]).unwrap(), [0f32; 0]);
        for ids in [&[1, 0][..], &[-1, 0], &[-2, -1], &[0]] {
            assert!(run("SegmentSum", &[1., 2.], ids).is_err(), "{ids:?}");
        }
    }

    #[test]
    fn unsorted_segments() {
        let data = Tensor::from_slice(&[3, 2], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        let run = |op: &str, ids: &[i64], count: i32| {
            run_op(op, attrs![], &[data.clone(), Tensor::vector(ids), Tensor::scalar(count)])
                .map(|outputs| outputs[0].as_slice::<f32>().unwrap().to_vec())
        };
        assert_eq!(run("UnsortedSegmentSum", &[1, -1, 1], 2).unwrap(), [0., 0., 6., 8.]);
        assert_eq!(run("UnsortedSegmentMax", &[1, 1, 1], 2).unwrap(), [f32::MIN, f32::MIN, 5., 6.]);
        let status = run("UnsortedSegmentSum", &[0, 1, 2], 2).unwrap_err();
        assert!(status.message().starts_with("segment_ids[2] = 2 is out of range [0, 2)"), "{status}");
        assert!(run("UnsortedSegmentSum", &[0, 1, 2], -1).is_err());
        assert!(run("UnsortedSegmentSum", &[0, 1], 2).is_err());
    }

    #[test]
    fn shapes() {
        let shapes = infer(
            "UnsortedSegmentSum",
            attrs![("Tnumsegments", DType::Int32)],
            "[4,3,2];[4,3];[]",
            &[(2, Tensor::scalar(5i32))],
        );
        assert_eq!(shapes.unwrap()[0].to_string(), "[5,2]");
        let shapes = infer("SegmentSum", attrs![], "[4,3];[4]", &[]).unwrap();
        assert_eq!(shapes[0].to_string(), "[?,3]");
    }

    #[test]
    fn gradients() {
        let data = Tensor::from_slice(&[3, 2], &[1f64, -2., 3., 4., 5., 0.5]).unwrap();
        for op in ["SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"] {
            check_gradient(&[data.clone(), Tensor::vector(&[0i32, 0, 1])], |graph, x| graph.op(op).inputs(x).output());
        }
        for op in ["UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"] {
            let inputs = [data.clone(), Tensor::vector(&[0i32, -1, 0]), Tensor::scalar(1i32)];
            check_gradient(&inputs, |graph, x| graph.op(op).inputs(x).output());
        }
    }
}
