//! Counts of values: Bincount, DenseBincount, RaggedBincount, HistogramFixedWidth.

use super::segment::indices;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels};
use num_traits::AsPrimitive;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Bincount",
            inputs: &["arr: int32", "size: int32", "weights: T"],
            outputs: &["bins: T"],
            attrs: &["T: {int32, int64, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: bincount_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64, i32, i64] => Bincount),
    },
    Op {
        def: OpDef {
            name: "DenseBincount",
            inputs: &["input: Tidx", "size: Tidx", "weights: T"],
            outputs: &["output: T"],
            attrs: &["Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: dense_bincount_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64, i32, i64] => DenseBincount),
    },
    Op {
        def: OpDef {
            name: "RaggedBincount",
            inputs: &["splits: int64", "values: Tidx", "size: Tidx", "weights: T"],
            outputs: &["output: T"],
            attrs: &["Tidx: {int32, int64}", "T: {int32, int64, float, double}", "binary_output: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: ragged_bincount_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64, i32, i64] => RaggedBincount),
    },
    Op {
        def: OpDef {
            name: "HistogramFixedWidth",
            inputs: &["values: T", "value_range: T", "nbins: int32"],
            outputs: &["out: dtype"],
            attrs: &["T: {int32, int64, float, double}", "dtype: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: histogram_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64, i32, i64] => HistogramFixedWidth),
    },
];

/// Returns the count of each integer below `size`.
#[track_caller]
pub fn bincount(values: &Output, size: i32) -> Output {
    let graph = values.graph();
    let size = graph.constant_tensor(&Tensor::scalar(size));
    let size = if values.dtype() == DType::Int64 { super::cast(&size, DType::Int64) } else { size };
    let weights = graph.constant_tensor(&Tensor::vector::<i32>(&[]));
    graph.op("DenseBincount").input(values).input(&size).input(&weights).output()
}

/// Returns a constant size after checking it, if it is known.
fn known_size(c: &ShapeContext<'_>, input: usize) -> Result<Option<i64>> {
    match c.constant(input) {
        None => Ok(None),
        Some(size) => match size.to_index()? {
            size if size < 0 => Err(Status::invalid_argument(format!("size ({size}) must be non-negative"))),
            size => Ok(Some(size)),
        },
    }
}

fn bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    let size = known_size(c, 1)?;
    c.set_output(0, PartialShape::new(&[size]));
    Ok(())
}

fn dense_bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank_at_most(0, 2)?;
    let size = known_size(c, 1)?;
    match input.rank() {
        None => {}
        Some(2) => c.set_output(0, PartialShape::new(&[input.dim(0), size])),
        Some(_) => c.set_output(0, PartialShape::new(&[size])),
    }
    Ok(())
}

fn ragged_bincount_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let splits = c.with_rank(0, 1)?;
    let size = known_size(c, 2)?;
    c.set_output(0, PartialShape::new(&[splits.dim(0).map(|splits| (splits - 1).max(0)), size]));
    Ok(())
}

fn histogram_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 1)?;
    c.with_rank(2, 0)?;
    let size = known_size(c, 2)?;
    c.set_output(0, PartialShape::new(&[size]));
    Ok(())
}

fn size_of(tensor: &Tensor) -> Result<usize> {
    if tensor.num_elements() != 1 {
        return Err(Status::invalid_argument(format!("Shape must be rank 0 but is rank {}", tensor.shape().rank())));
    }
    let size = tensor.to_index()?;
    usize::try_from(size).map_err(|_| Status::invalid_argument(format!("size ({size}) must be non-negative")))
}

/// Returns the weights, or `None` if all are one; there must be as many as values.
fn weights_of<'a, T: Element>(values: &Tensor, weights: &'a Tensor) -> Result<Option<&'a [T]>> {
    if weights.num_elements() == 0 {
        return Ok(None);
    }
    if weights.num_elements() != values.num_elements() {
        return Err(Status::invalid_argument(format!(
            "Input indices and weights must have the same size. `weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it acts as all weights equal to 1. Received {}",
            weights.shape()
        )));
    }
    weights.as_slice::<T>().map(Some)
}

/// Adds the weights of values to their bins; values beyond the last bin are ignored, and negative ones are refused.
fn count<T: Weight>(values: &[i64], weights: Option<&[T]>, binary: bool, bins: &mut [T]) -> Result<()> {
    for (position, &value) in values.iter().enumerate() {
        let value = usize::try_from(value).map_err(|_| Status::invalid_argument("Input arr must be non-negative!"))?;
        let Some(bin) = bins.get_mut(value) else { continue };
        *bin = match weights {
            _ if binary => T::ONE,
            Some(weights) => bin.plus(weights[position]),
            None => bin.plus(T::ONE),
        };
    }
    Ok(())
}

/// A type of weights; integers wrap.
trait Weight: Element {
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
}

macro_rules! weights {
    ($([$($ty:ty),*] => $one:expr, $plus:expr;)*) => {$($(
        impl Weight for $ty {
            const ONE: Self = $one;
            fn plus(self, other: Self) -> Self {
                let plus: fn($ty, $ty) -> $ty = $plus;
                plus(self, other)
            }
        }
    )*)*};
}

weights! {
    [f32, f64] => 1.0, |x, y| x + y;
    [i32, i64] => 1, |x, y| x.wrapping_add(y);
}

struct Bincount<T>(PhantomData<fn(T)>);

impl<T: Weight> Bincount<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Bincount::<T>(PhantomData))
    }
}

impl<T: Weight> Kernel for Bincount<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (values, size, weights) = (context.input(0)?, size_of(context.input(1)?)?, context.input(2)?);
        let weights = weights_of::<T>(values, weights)?;
        let mut bins = Tensor::zeros(T::DTYPE, Shape::vector(size))?;
        count(&indices(values)?, weights, false, bins.make_mut::<T>()?)?;
        context.set_output(0, bins);
        Ok(())
    }
}

struct DenseBincount<T> {
    binary: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Weight> DenseBincount<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(DenseBincount::<T> { binary: builder.attrs().bool("binary_output")?, element: PhantomData })
    }
}

impl<T: Weight> Kernel for DenseBincount<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (values, size) = (context.input(0)?, size_of(context.input(1)?)?);
        let weights = weights_of::<T>(values, context.input(2)?)?;
        let shape = values.shape();
        if shape.rank() > 2 {
            return Err(Status::invalid_argument(format!("Shape must be at most rank 2 but is rank {}", shape.rank())));
        }
        let rows = if shape.is_matrix() { shape.size(0) } else { 1 };
        let columns = values.num_elements().checked_div(rows).unwrap_or(0);
        let out_shape = if shape.is_matrix() { Shape::from_usize(&[rows, size])? } else { Shape::vector(size) };
        let all = indices(values)?;
        let mut bins = Tensor::zeros(T::DTYPE, out_shape)?;
        let elements = bins.make_mut::<T>()?;
        for row in 0..rows {
            let range = row * columns..(row + 1) * columns;
            let weights = weights.map(|weights| &weights[range.clone()]);
            count(&all[range], weights, self.binary, &mut elements[row * size..(row + 1) * size])?;
        }
        context.set_output(0, bins);
        Ok(())
    }
}

struct RaggedBincount<T> {
    binary: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Weight> RaggedBincount<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(RaggedBincount::<T> { binary: builder.attrs().bool("binary_output")?, element: PhantomData })
    }
}

impl<T: Weight> Kernel for RaggedBincount<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (splits, values, size) = (context.slice::<i64>(0)?, context.input(1)?, size_of(context.input(2)?)?);
        let weights = weights_of::<T>(values, context.input(3)?)?;
        let total = values.num_elements() as i64;
        let (Some(first), Some(last)) = (splits.first(), splits.last()) else {
            return Err(Status::invalid_argument("Splits must be non-empty"));
        };
        if *first != 0 {
            return Err(Status::invalid_argument(format!("Splits must start with 0, not with {first}")));
        }
        if *last != total {
            return Err(Status::invalid_argument(format!(
                "Splits must end with the number of values, got {last} instead of {total}"
            )));
        }
        if !splits.is_sorted() {
            return Err(Status::invalid_argument("Splits must not decrease"));
        }
        let all = indices(values)?;
        let rows = splits.len() - 1;
        let mut bins = Tensor::zeros(T::DTYPE, Shape::from_usize(&[rows, size])?)?;
        let elements = bins.make_mut::<T>()?;
        for (row, pair) in splits.windows(2).enumerate() {
            let range = pair[0] as usize..pair[1] as usize;
            let weights = weights.map(|weights| &weights[range.clone()]);
            count(&all[range], weights, self.binary, &mut elements[row * size..(row + 1) * size])?;
        }
        context.set_output(0, bins);
        Ok(())
    }
}

struct HistogramFixedWidth<T> {
    dtype: DType,
    element: PhantomData<fn(T)>,
}

impl<T: Element + AsPrimitive<f64>> HistogramFixedWidth<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(HistogramFixedWidth::<T> { dtype: builder.attrs().dtype("dtype")?, element: PhantomData })
    }
}

impl<T: Element + AsPrimitive<f64>> Kernel for HistogramFixedWidth<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (values, range, bins) = (context.slice::<T>(0)?, context.input(1)?, context.input(2)?);
        if !range.shape().is_vector() || range.num_elements() != 2 {
            return Err(Status::invalid_argument(format!(
                "value_range should be a vector of 2 elements. It has shape {}",
                range.shape()
            )));
        }
        let bins = context.scalar::<i32>(2, "nbins").and_then(|count| match usize::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(Status::invalid_argument(format!(
                "nbins should be a positive number, but got '{count}' of shape {}",
                bins.shape()
            ))),
        })?;
        let range = range.as_slice::<T>()?;
        let (low, high): (f64, f64) = (range[0].as_(), range[1].as_());
        // A range with NaN is unordered, too.
        if low.partial_cmp(&high) != Some(std::cmp::Ordering::Less) {
            return Err(Status::invalid_argument(format!(
                "value_range should satisfy value_range[0] < value_range[1], but got '[{low}, {high}]'"
            )));
        }
        let step = (high - low) / bins as f64;
        let mut counts = Tensor::zeros(DType::Int64, Shape::vector(bins))?;
        let totals = counts.make_mut::<i64>()?;
        for &value in values {
            let position = ((value.as_() - low) / step).floor();
            // NaN becomes 0, and values outside go to the first or the last bin.
            totals[(position.max(0.0) as usize).min(bins - 1)] += 1;
        }
        if self.dtype == DType::Int32 {
            let wide = counts.as_slice::<i64>()?;
            counts = Tensor::build(Shape::vector(bins), |out: &mut [i32]| {
                out.iter_mut().zip(wide).for_each(|(out, &count)| *out = count as i32);
            })?;
        }
        context.set_output(0, counts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, infer, run_op};
    use tensor::{DType, Tensor};

    #[test]
    fn counting() {
        let none = || Tensor::vector::<i32>(&[]);
        let y =
            run_op("Bincount", attrs![], &[Tensor::vector(&[1i32, 1, 7, 0]), Tensor::scalar(3i32), none()]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[1, 2, 0]);
        let weights = Tensor::vector(&[0.5f32, 1.5]);
        let y = run_op("Bincount", attrs![], &[Tensor::vector(&[1i32, 1]), Tensor::scalar(2i32), weights]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[0.0, 2.0]);
        let matrix = Tensor::from_slice(&[2, 2], &[0i64, 0, 1, 5]).unwrap();
        let y =
            run_op("DenseBincount", attrs![("binary_output", true)], &[matrix, Tensor::scalar(2i64), none()]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i32>().unwrap()), (&[2, 2][..], &[1, 0, 0, 1][..]));
        for (value, size) in [(-1, 3), (1, -3)] {
            let inputs = [Tensor::vector(&[value]), Tensor::scalar(size), none()];
            assert!(run_op("Bincount", attrs![], &inputs).is_err());
        }
        let splits = Tensor::vector(&[0i64, 1, 3]);
        let inputs = [splits, Tensor::vector(&[0i32, 1, 1]), Tensor::scalar(2i32), none()];
        let y = run_op("RaggedBincount", attrs![], &inputs).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[1, 0, 0, 2]);
    }

    #[test]
    fn histograms() {
        let values = Tensor::vector(&[-1f32, 0.0, 1.5, 2.0, 5.0, 15.0]);
        let run = |low: f32, high: f32, bins: i32| {
            run_op(
                "HistogramFixedWidth",
                attrs![],
                &[values.clone(), Tensor::vector(&[low, high]), Tensor::scalar(bins)],
            )
        };
        assert_eq!(run(0.0, 5.0, 5).unwrap()[0].as_slice::<i32>().unwrap(), &[2, 1, 1, 0, 2]);
        assert!(run(5.0, 5.0, 5).is_err());
        assert!(run(0.0, f32::NAN, 5).is_err());
        assert!(run(0.0, 5.0, 0).is_err());
    }

    #[test]
    fn shapes() {
        let attrs = attrs![("Tidx", DType::Int32), ("T", DType::Int32)];
        let shapes = infer("DenseBincount", attrs, "[4,?];[];[0]", &[(1, Tensor::scalar(7i32))]).unwrap();
        assert_eq!(shapes[0].to_string(), "[4,7]");
    }
}
