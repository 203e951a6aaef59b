//! SparseReduceSum, SparseReduceMax, their sparse forms, and SparseSoftmax.

use super::coordinates::{Sparse, in_bounds, indices_tensor, list, out_of_bounds};
use super::gradients;
use crate::arithmetic::Arithmetic;
use graph::ShapeContext;
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeFn, kernels, shape,
};
use num_traits::ToPrimitive;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

const INPUTS: &[&str] = &["input_indices: int64", "input_values: T", "input_shape: int64", "reduction_axes: int32"];
const SPARSE: &[&str] = &["output_indices: int64", "output_values: T", "output_shape: int64"];
const KEEP: &str = "keep_dims: bool = false";
const REAL: &str = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}";

macro_rules! reductions {
    ($combine:expr, $is_sparse:literal) => {
        reductions!(@list $combine, $is_sparse, [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64])
    };
    (@list $combine:expr, $is_sparse:literal, [$($ty:ty),*]) => {
        &[$(KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |builder| Reduce::<$ty>::create(builder, $combine, $is_sparse),
        },)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    reduction(
        "SparseReduceSum",
        &["output: T"],
        &[KEEP, numbertype!("T")],
        reduce_shape,
        Gradient::Fn(gradients::reduce_sum),
        reductions!(|x, y| x.plus(y), false),
    ),
    reduction(
        "SparseReduceSumSparse",
        SPARSE,
        &[KEEP, numbertype!("T")],
        shape::unknown,
        Gradient::Unsupported,
        reductions!(|x, y| x.plus(y), true),
    ),
    reduction(
        "SparseReduceMax",
        &["output: T"],
        &[KEEP, REAL],
        reduce_shape,
        Gradient::Unsupported,
        reductions!(|x, y| if y > x { y } else { x }, false),
    ),
    reduction(
        "SparseReduceMaxSparse",
        SPARSE,
        &[KEEP, REAL],
        shape::unknown,
        Gradient::Unsupported,
        reductions!(|x, y| if y > x { y } else { x }, true),
    ),
    Op {
        def: OpDef {
            name: "SparseSoftmax",
            inputs: &["sp_indices: int64", "sp_values: T", "sp_shape: int64"],
            outputs: &["output: T"],
            attrs: &["T: {half, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 2)?;
            let values = c.with_rank(1, 1)?;
            c.set_output(0, values);
            Ok(())
        },
        gradient: Gradient::Fn(gradients::softmax),
        kernels: kernels!("T": [f16, f32, f64] => Softmax),
    },
];

const fn reduction(
    name: &'static str,
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    gradient: Gradient,
    kernels: &'static [KernelDef],
) -> Op {
    Op { def: OpDef { name, inputs: INPUTS, outputs, attrs, flags: OpFlags::NONE }, shape, gradient, kernels }
}

fn reduce_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(2)?;
    let (Some(axes), Some(dims)) = (c.constant(3), shape.dims()) else { return Ok(()) };
    let reduced = reduced_axes(&axes.to_indices()?, dims.len())?;
    let keeps = c.attrs.bool("keep_dims")?;
    let sizes: Vec<Option<i64>> = dims
        .iter()
        .zip(reduced)
        .filter_map(|(&size, is_reduced)| if is_reduced { keeps.then_some(Some(1)) } else { Some(size) })
        .collect();
    c.set_output(0, PartialShape::new(&sizes));
    Ok(())
}

/// Returns for each axis whether it is reduced.
fn reduced_axes(axes: &[i64], rank: usize) -> Result<Vec<bool>> {
    let mut reduced = vec![false; rank];
    for &axis in axes {
        let place = if axis < 0 { axis + rank as i64 } else { axis };
        let place = usize::try_from(place).ok().filter(|&place| place < rank).ok_or_else(|| {
            Status::invalid_argument(format!("Invalid reduction dimension {axis}, for input with {rank} dimensions."))
        })?;
        reduced[place] = true;
    }
    Ok(reduced)
}

struct Reduce<T> {
    combine: fn(T, T) -> T,
    keeps: bool,
    is_sparse: bool,
}

impl<T: Arithmetic + PartialOrd> Reduce<T> {
    fn create(builder: &KernelBuilder<'_>, combine: fn(T, T) -> T, is_sparse: bool) -> Result<BoxedKernel> {
        BoxedKernel::new(Reduce { combine, keeps: builder.attrs().bool("keep_dims")?, is_sparse })
    }
}

impl<T: Arithmetic + PartialOrd> Kernel for Reduce<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::new(context.input(0)?, context.input(1)?, context.input(2)?)?;
        sparse.check_size()?;
        let reduced = reduced_axes(&context.input(3)?.to_indices()?, sparse.rank())?;
        let groups = groups(&sparse, &reduced, self.keeps)?;
        let values = sparse.values.as_slice::<T>()?;
        let totals: Vec<T> = groups
            .values()
            .filter_map(|rows| rows.iter().map(|&row| values[row]).reduce(|total, value| (self.combine)(total, value)))
            .collect();
        let shape = kept(sparse.shape, &reduced, self.keeps, 1);
        if self.is_sparse {
            let indices: Vec<i64> = groups.keys().flatten().copied().collect();
            let indices = indices_tensor(totals.len(), shape.len(), &indices)?;
            context.set_output(0, indices);
            context.set_output(1, Tensor::vector(&totals));
            context.set_output(2, Tensor::vector(&shape));
            return Ok(());
        }
        let mut output = Tensor::zeros(T::DTYPE, Shape::new(&shape)?)?;
        let into = output.make_mut::<T>()?;
        for (index, total) in groups.keys().zip(totals) {
            into[index.iter().zip(&shape).fold(0, |flat, (&index, &size)| flat * size + index) as usize] = total;
        }
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the numbers of the kept axes, with `fill` for the others if they are kept as dimensions.
fn kept(numbers: &[i64], reduced: &[bool], keeps: bool, fill: i64) -> Vec<i64> {
    let parts = numbers.iter().zip(reduced);
    parts.filter_map(|(&n, &gone)| if gone { keeps.then_some(fill) } else { Some(n) }).collect()
}

/// Returns the rows of each group, in the order of the groups' indices. It doesn't depend on the type of values, so it is
/// compiled once.
fn groups(sparse: &Sparse<'_>, reduced: &[bool], keeps: bool) -> Result<BTreeMap<Vec<i64>, Vec<usize>>> {
    let mut groups: BTreeMap<Vec<i64>, Vec<usize>> = BTreeMap::new();
    for row in 0..sparse.values.num_elements() {
        let index = sparse.index(row);
        if !in_bounds(index, sparse.shape) {
            return Err(out_of_bounds(row, index, sparse.shape));
        }
        groups.entry(kept(index, reduced, keeps, 0)).or_default().push(row);
    }
    Ok(groups)
}

struct Softmax<T>(PhantomData<fn(T)>);

/// A floating-point number.
trait Real: Element + ToPrimitive {
    fn from_double(value: f64) -> Self;
}

impl Real for f16 {
    fn from_double(value: f64) -> Self {
        f16::from_f64(value)
    }
}

impl Real for f32 {
    fn from_double(value: f64) -> Self {
        value as f32
    }
}

impl Real for f64 {
    fn from_double(value: f64) -> Self {
        value
    }
}

impl<T: Real> Softmax<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Softmax::<T>(PhantomData))
    }
}

impl<T: Real> Kernel for Softmax<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let sparse = Sparse::new(context.input(0)?, context.input(1)?, context.input(2)?)?;
        sparse.check_size()?;
        let rank = sparse.rank();
        if rank < 2 {
            return Err(Status::invalid_argument(format!(
                "Input should have rank >= 2, but received shape: [{}]",
                list(sparse.shape)
            )));
        }
        let values: Vec<f64> = sparse.values.as_slice::<T>()?.iter().map(|x| x.to_f64().unwrap_or(f64::NAN)).collect();
        let mut rows: BTreeMap<&[i64], Vec<usize>> = BTreeMap::new();
        for position in 0..values.len() {
            rows.entry(&sparse.index(position)[..rank - 1]).or_default().push(position);
        }
        let mut results = vec![T::default(); values.len()];
        for members in rows.into_values() {
            let largest = members.iter().map(|&member| values[member]).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = members.iter().map(|&member| (values[member] - largest).exp()).sum();
            for member in members {
                results[member] = T::from_double((values[member] - largest).exp() / total);
            }
        }
        context.set_output(0, Tensor::vector(&results));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, infer, run_op};
    use graph::AttrMap;

    fn reduce(op: &str, attrs: AttrMap, rows: i64, axes: &[i32]) -> Result<Vec<Tensor>> {
        let indices = Tensor::from_slice(&[3, 2], &[0i64, 0, 0, 2, 1, 1]).unwrap();
        let inputs = [indices, Tensor::vector(&[1f32, 2., 3.]), Tensor::vector(&[rows, 3]), Tensor::vector(axes)];
        run_op(op, attrs, &inputs)
    }

    #[test]
    fn reductions() {
        let floats = |outputs: Vec<Tensor>| outputs[0].as_slice::<f32>().unwrap().to_vec();
        assert_eq!(floats(reduce("SparseReduceSum", attrs![], 2, &[1]).unwrap()), [3., 3.]);
        let kept = reduce("SparseReduceSum", attrs![("keep_dims", true)], 2, &[-1]).unwrap();
        assert_eq!(kept[0].dims(), &[2, 1]);
        assert_eq!(floats(reduce("SparseReduceSum", attrs![], 2, &[]).unwrap()), [1., 0., 2., 0., 3., 0.]);
        assert_eq!(floats(reduce("SparseReduceMax", attrs![], 3, &[1]).unwrap()), [2., 3., 0.]);
        let sparse = reduce("SparseReduceMaxSparse", attrs![], 3, &[1]).unwrap();
        assert_eq!(sparse[0].as_slice::<i64>().unwrap(), &[0, 1]);
        assert_eq!(sparse[1].as_slice::<f32>().unwrap(), &[2., 3.]);
        assert_eq!(sparse[2].as_slice::<i64>().unwrap(), &[3]);
        assert!(reduce("SparseReduceSum", attrs![], 2, &[2]).is_err());
        assert!(reduce("SparseReduceSum", attrs![], 1, &[1]).is_err());
        let constants = [(2, Tensor::vector(&[2i64, 3])), (3, Tensor::vector(&[1i32]))];
        let shapes = infer("SparseReduceSum", attrs![], "[3,2];[3];[2];[1]", &constants).unwrap();
        assert_eq!(shapes[0].to_string(), "[2]");
    }

    #[test]
    fn softmax() {
        let indices = Tensor::from_slice(&[3, 2], &[0i64, 0, 0, 2, 1, 1]).unwrap();
        let inputs = [indices, Tensor::vector(&[1f32, 2., 3.]), Tensor::vector(&[2i64, 3])];
        let output = run_op("SparseSoftmax", attrs![], &inputs).unwrap().remove(0);
        let expected = [0.26894143f32, 0.7310586, 1.];
        let close = output.as_slice::<f32>().unwrap().iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-6);
        assert!(close, "{output:?}");
    }
}
