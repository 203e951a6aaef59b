//! Searches: ListDiff, LowerBound, UpperBound, UnravelIndex.

use super::shape::index_vector;
use super::unique::Comparable;
use crate::movement::Movable;
use foldhash::HashSet;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use std::hash::Hash;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ListDiff",
            inputs: &["x: T", "y: T"],
            outputs: &["out: T", "idx: out_idx"],
            attrs: &["T: type", "out_idx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: list_diff_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(ListDiff { wide: is_wide(builder, 1) }))],
    },
    Op {
        def: OpDef {
            name: "LowerBound",
            inputs: &["sorted_inputs: T", "values: T"],
            outputs: &["output: out_type"],
            attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: bound_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Bound { upper: false, wide: is_wide(builder, 0) }))],
    },
    Op {
        def: OpDef {
            name: "UpperBound",
            inputs: &["sorted_inputs: T", "values: T"],
            outputs: &["output: out_type"],
            attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: bound_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Bound { upper: true, wide: is_wide(builder, 0) }))],
    },
    Op {
        def: OpDef {
            name: "UnravelIndex",
            inputs: &["indices: Tidx", "dims: Tidx"],
            outputs: &["output: Tidx"],
            attrs: &["Tidx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: unravel_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(UnravelIndex))],
    },
];

/// Returns the elements of `x` that are not in `y`, and their positions.
#[track_caller]
pub fn list_diff(x: &Output, y: &Output) -> (Output, Output) {
    let op = x.graph().op("ListDiff").input(x).input(y).build();
    (op.output(0), op.output(1))
}

fn is_wide(builder: &KernelBuilder<'_>, output: usize) -> bool {
    builder.output_dtype(output) == DType::Int64
}

fn list_diff_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    c.with_rank(1, 1)?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    Ok(())
}

fn bound_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (sorted, values) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?);
    sorted.slice(0, 1).merge(&values.slice(0, 1))?;
    c.set_output(0, values);
    Ok(())
}

fn unravel_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (indices, dims) = (c.input(0), c.with_rank(1, 1)?);
    let shape = match indices.rank() {
        Some(0) => dims,
        Some(1) => dims.concat(&indices),
        Some(_) => return Err(Status::invalid_argument("indices must be a scalar or a vector")),
        None => PartialShape::unknown(),
    };
    c.set_output(0, shape);
    Ok(())
}

struct ListDiff {
    wide: bool,
}

impl Kernel for ListDiff {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (x, y) = (context.input(0)?, context.input(1)?);
        for (name, tensor) in [("x", x), ("y", y)] {
            if !tensor.shape().is_vector() {
                return Err(Status::invalid_argument(format!("{name} should be a 1D vector.")));
            }
        }
        macro_rules! by_type {
            ($($dtype:ident => $rust:ty),* $(,)?) => {
                match x.dtype() {
                    $(DType::$dtype => missing(x.as_slice::<$rust>()?, y.as_slice::<$rust>()?, |value| value.key()),)*
                    DType::String => missing(x.strings()?, y.strings()?, |text| Some(text.clone())),
                    other => return Err(Status::unimplemented(format!("{other} elements can't be compared"))),
                }
            };
        }
        let places = by_type!(
            Float => f32, Double => f64, Half => f16, BFloat16 => bf16, Bool => bool,
            Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
            UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64,
        );
        let values = with_movable!(x.dtype(), E => {
            let from = E::view(x)?;
            let shape = Shape::vector(places.len());
            E::build(x.dtype(), shape, |to| E::gather_rows(from, [1, from.len(), 1], &places, to))
        })?;
        let indices = index_vector(&places, self.wide)?;
        context.set_output(0, values);
        context.set_output(1, indices);
        Ok(())
    }
}

/// Returns the positions of the elements of `x` that are not in `y`; elements without a key are in no list.
fn missing<T, K: Hash + Eq>(x: &[T], y: &[T], key: impl Fn(&T) -> Option<K>) -> Vec<i64> {
    let known: HashSet<K> = y.iter().filter_map(&key).collect();
    let is_missing = |value: &T| key(value).is_none_or(|key| !known.contains(&key));
    x.iter().enumerate().filter(|(_, value)| is_missing(value)).map(|(index, _)| index as i64).collect()
}

struct Bound {
    upper: bool,
    wide: bool,
}

impl Kernel for Bound {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (sorted, values) = (context.input(0)?, context.input(1)?);
        for (tensor, name) in [(sorted, "sorted_inputs"), (values, "values")] {
            if !tensor.shape().is_matrix() {
                return Err(Status::invalid_argument(format!(
                    "Shape must be rank 2 but is rank {} for `{name}` argument",
                    tensor.shape().rank()
                )));
            }
        }
        if sorted.shape().dim(0) != values.shape().dim(0) {
            return Err(Status::invalid_argument(format!(
                "Leading dim_size of both tensors must match. They have shapes {} and {}",
                sorted.shape(),
                values.shape()
            )));
        }
        macro_rules! by_type {
            ($($dtype:ident => $rust:ty),* $(,)?) => {
                match sorted.dtype() {
                    $(DType::$dtype => self.places::<$rust>(sorted, values),)*
                    other => Err(Status::unimplemented(format!("{other} elements have no order"))),
                }
            };
        }
        let places = by_type!(
            Float => f32, Double => f64, Half => f16, BFloat16 => bf16,
            Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
            UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64,
        )?;
        let output = index_vector(&places, self.wide)?.into_shape(values.shape().clone())?;
        context.set_output(0, output);
        Ok(())
    }
}

impl Bound {
    fn places<T: Element + PartialOrd>(&self, sorted: &Tensor, values: &Tensor) -> Result<Vec<i64>> {
        let (columns, width) = (sorted.shape().size(1), values.shape().size(1));
        let (sorted, values) = (sorted.as_slice::<T>()?, values.as_slice::<T>()?);
        if width == 0 {
            return Ok(Vec::new());
        }
        let mut places = Vec::with_capacity(values.len());
        for (row, values) in values.chunks_exact(width).enumerate() {
            let sorted = &sorted[row * columns..(row + 1) * columns];
            places.extend(values.iter().map(|value| {
                sorted.partition_point(|element| if self.upper { element <= value } else { element < value }) as i64
            }));
        }
        Ok(places)
    }
}

struct UnravelIndex;

impl Kernel for UnravelIndex {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, dims) = (context.input(0)?, context.input(1)?);
        if indices.shape().rank() > 1 || !dims.shape().is_vector() {
            return Err(Status::invalid_argument("The indices can only be scalar or vector, and dims a vector"));
        }
        let sizes = dims.to_indices()?;
        if let Some(index) = sizes.iter().position(|&size| size == 0) {
            return Err(Status::invalid_argument(format!(
                "Input dims cannot contain a dim of zero, but dims contains zero at index {index}"
            )));
        }
        if let Some(size) = sizes.iter().find(|&&size| size < 0) {
            return Err(Status::invalid_argument(format!("dims must be positive, got {size}")));
        }
        let total = sizes.iter().try_fold(1i64, |total, &size| total.checked_mul(size)).ok_or_else(|| {
            let shown = sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
            Status::invalid_argument(format!("Input dims product is causing integer overflow: ({shown})"))
        })?;
        let values = indices.to_indices()?;
        if values.iter().any(|&index| index < 0 || index >= total) {
            return Err(Status::invalid_argument("index is out of bound as with dims"));
        }
        let mut output = vec![0i64; sizes.len() * values.len()];
        for (column, &index) in values.iter().enumerate() {
            let mut rest = index;
            for (row, &size) in sizes.iter().enumerate().rev() {
                output[row * values.len() + column] = rest % size;
                rest /= size;
            }
        }
        let shape = Shape::vector(sizes.len()).concat(indices.shape())?;
        let output = index_vector(&output, dims.dtype() == DType::Int64)?.into_shape(shape)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Shape, Tensor};

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn differences() {
        let y =
            run_op("ListDiff", attrs![], &[Tensor::vector(&[1i64, 2, 3, 4, 5, 6, 2]), Tensor::vector(&[1i64, 3, 5])]);
        let y = y.unwrap();
        assert_eq!(y[0].as_slice::<i64>().unwrap(), &[2, 4, 6, 2]);
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[1, 3, 5, 6]);
        let y =
            run_op("ListDiff", attrs![], &[Tensor::vector(&[1f32, f32::NAN]), Tensor::vector(&[f32::NAN])]).unwrap();
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[0, 1]);
        let texts = |texts: &[&'static str]| {
            Tensor::from_strings(Shape::vector(texts.len()), texts.iter().map(|&text| text.into()).collect()).unwrap()
        };
        let y = run_op("ListDiff", attrs![], &[texts(&["a", "b"]), texts(&["a"])]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["b"]);
        assert!(run_op("ListDiff", attrs![], &[Tensor::scalar(1i32), Tensor::vector(&[1i32])]).is_err());
    }

    #[test]
    fn bounds() {
        let sorted = Tensor::from_slice(&[2, 5], &[0i32, 3, 9, 9, 10, 1, 2, 3, 4, 5]).unwrap();
        let values = Tensor::from_slice(&[2, 3], &[2i32, 4, 9, 0, 2, 6]).unwrap();
        let y = run_op("LowerBound", attrs![], &[sorted.clone(), values.clone()]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[1, 2, 2, 0, 1, 5]);
        let y = run_op("UpperBound", attrs![], &[sorted.clone(), values]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[1, 2, 4, 0, 2, 5]);
        assert!(run_op("UpperBound", attrs![], &[sorted, Tensor::vector(&[1i32])]).is_err());
        check_shape("LowerBound", attrs![], "[2,5];[?,3]", "[?,3]");
    }

    #[test]
    fn indices() {
        let unravel =
            |indices: Tensor, dims: &[i32]| run_op("UnravelIndex", attrs![], &[indices, Tensor::vector(dims)]);
        let y = unravel(Tensor::vector(&[2i32, 5, 7]), &[3, 3]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i32>().unwrap()), (&[2i64, 3][..], &[0, 1, 2, 2, 2, 1][..]));
        let y = unravel(Tensor::scalar(22i32), &[4, 6]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i32>().unwrap()), (&[2i64][..], &[3, 4][..]));
        for (index, dims) in [(9, &[3, 3][..]), (-1, &[3, 3]), (0, &[0, 3])] {
            assert!(unravel(Tensor::vector(&[index]), dims).is_err());
        }
        check_shape("UnravelIndex", attrs![], "[3];[2]", "[2,3]");
    }
}
