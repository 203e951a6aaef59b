//! Sets in the last dimension: DenseToDenseSetOperation, DenseToSparseSetOperation, SparseToSparseSetOperation, SetSize.

use super::coordinates::{Sparse, in_bounds, indices_tensor, out_of_bounds};
use graph::ShapeContext;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeFn, shape};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use tensor::{Element, PartialShape, Result, Shape, Status, StringElement, Tensor};

const TYPES: &str = "T: {int8, int16, int32, int64, uint8, uint16, string}";
const VALIDATE: &str = "validate_indices: bool = true";
const RESULT: &[&str] = &["result_indices: int64", "result_values: T", "result_shape: int64"];

macro_rules! member_kernels {
    ($kernel:ident $(, $operand:expr)*) => {
        member_kernels!(@list $kernel, ($($operand),*), [i8, i16, i32, i64, u8, u16, StringElement])
    };
    (@list $kernel:ident, $operands:tt, [$($ty:ty),*]) => {
        &[$(member_kernels!(@one $kernel, $operands, $ty),)*]
    };
    (@one $kernel:ident, ($($operand:expr),*), $ty:ty) => {
        KernelDef {
            types: &[("T", <$ty as Member>::DTYPE)],
            create: |builder| $kernel::<$ty>(builder $(, $operand)*),
        }
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    operation(
        "DenseToDenseSetOperation",
        &["set1: T", "set2: T"],
        dense_shape,
        member_kernels!(set_operation, Operand::Dense(0), Operand::Dense(1)),
    ),
    operation(
        "DenseToSparseSetOperation",
        &["set1: T", "set2_indices: int64", "set2_values: T", "set2_shape: int64"],
        mixed_shape,
        member_kernels!(set_operation, Operand::Dense(0), Operand::Sparse(1)),
    ),
    operation(
        "SparseToSparseSetOperation",
        &[
            "set1_indices: int64",
            "set1_values: T",
            "set1_shape: int64",
            "set2_indices: int64",
            "set2_values: T",
            "set2_shape: int64",
        ],
        sparse_shape,
        member_kernels!(set_operation, Operand::Sparse(0), Operand::Sparse(3)),
    ),
    Op {
        def: OpDef {
            name: "SetSize",
            inputs: &["set_indices: int64", "set_values: T", "set_shape: int64"],
            outputs: &["size: int32"],
            attrs: &[VALIDATE, TYPES],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: member_kernels!(set_size),
    },
];

const fn operation(
    name: &'static str,
    inputs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    Op {
        def: OpDef {
            name,
            inputs,
            outputs: RESULT,
            attrs: &["set_operation: string", VALIDATE, TYPES],
            flags: OpFlags::NONE,
        },
        shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

fn result_shape(c: &mut ShapeContext<'_>, rank: Option<i64>) -> Result<()> {
    c.set_output(0, PartialShape::new(&[None, rank]));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    c.set_output(2, PartialShape::new(&[rank]));
    Ok(())
}

fn dense_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (a, b) = (c.with_rank_at_least(0, 2)?, c.with_rank_at_least(1, 2)?);
    if let (Some(rank), Some(other)) = (a.rank(), b.rank()) {
        if rank != other {
            return Err(Status::invalid_argument(format!("Shapes must be equal rank, but are {rank} and {other}")));
        }
        a.slice(0, rank - 1).merge(&b.slice(0, rank - 1))?;
    }
    result_shape(c, a.rank().or(b.rank()).map(|rank| rank as i64))
}

fn mixed_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let a = c.with_rank_at_least(0, 2)?;
    let rank = a.rank().map(|rank| rank as i64).or(c.input(3).dim(0));
    result_shape(c, rank)
}

fn sparse_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rank = c.input(2).dim(0).or(c.input(5).dim(0));
    result_shape(c, rank)
}

/// The type of a set's members. Sets hold keys of only two types, for which the loops over sets are compiled.
trait Member: 'static {
    const DTYPE: tensor::DType;
    type Key: Clone + Ord + Send + Sync + 'static;

    fn keys(tensor: &Tensor) -> Result<Vec<Self::Key>>;

    fn vector(keys: Vec<Self::Key>) -> Result<Tensor>;
}

macro_rules! plain_members {
    ($($ty:ty),*) => {$(
        impl Member for $ty {
            const DTYPE: tensor::DType = <$ty as Element>::DTYPE;
            type Key = i64;

            fn keys(tensor: &Tensor) -> Result<Vec<i64>> {
                Ok(tensor.as_slice::<$ty>()?.iter().map(|&member| i64::from(member)).collect())
            }

            fn vector(keys: Vec<i64>) -> Result<Tensor> {
                Tensor::build(Shape::vector(keys.len()), |out: &mut [$ty]| {
                    out.iter_mut().zip(&keys).for_each(|(out, &key)| *out = key as $ty);
                })
            }
        }
    )*};
}

plain_members!(i8, i16, i32, i64, u8, u16);

impl Member for StringElement {
    const DTYPE: tensor::DType = tensor::DType::String;
    type Key = StringElement;

    fn keys(tensor: &Tensor) -> Result<Vec<StringElement>> {
        Ok(tensor.strings()?.to_vec())
    }

    fn vector(keys: Vec<StringElement>) -> Result<Tensor> {
        Tensor::from_strings(Shape::vector(keys.len()), keys)
    }
}

/// [`Member::keys`] of either type.
type Keys<K> = fn(&Tensor) -> Result<Vec<K>>;

/// The index of an operand's first tensor among the inputs.
#[derive(Clone, Copy)]
enum Operand {
    Dense(usize),
    Sparse(usize),
}

/// Sets by the index of all but the last dimension.
type Groups<K> = BTreeMap<Vec<i64>, BTreeSet<K>>;

impl Operand {
    /// Returns the sets and the sizes of all but the last dimension.
    fn groups<K: Clone + Ord>(
        self,
        keys: Keys<K>,
        validates: bool,
        context: &OpContext<'_>,
    ) -> Result<(Groups<K>, Vec<i64>)> {
        match self {
            Operand::Dense(input) => {
                let tensor = context.input(input)?;
                let Some((&width, outer)) = tensor.dims().split_last().filter(|(_, outer)| !outer.is_empty()) else {
                    return Err(Status::invalid_argument(format!("Invalid input shape {}: rank < 2", tensor.shape())));
                };
                let mut groups = Groups::new();
                if width > 0 {
                    for (row, members) in keys(tensor)?.chunks_exact(width as usize).enumerate() {
                        groups.insert(position(row as i64, outer), members.iter().cloned().collect());
                    }
                }
                Ok((groups, outer.to_vec()))
            }
            Operand::Sparse(input) => {
                let (indices, values) = (context.input(input)?, context.input(input + 1)?);
                let sparse = Sparse::new(indices, values, context.input(input + 2)?)?;
                if sparse.rank() < 2 {
                    return Err(Status::invalid_argument(format!("Invalid input rank {} < 2", sparse.rank())));
                }
                let mut groups = Groups::new();
                for (row, member) in keys(values)?.into_iter().enumerate() {
                    let index = sparse.index(row);
                    if !in_bounds(index, sparse.shape) {
                        return Err(out_of_bounds(row, index, sparse.shape));
                    }
                    if validates && row > 0 {
                        check_order(row, index, sparse.index(row - 1))?;
                    }
                    let group = index[..index.len() - 1].to_vec();
                    groups.entry(group).or_default().insert(member);
                }
                Ok((groups, sparse.shape[..sparse.rank() - 1].to_vec()))
            }
        }
    }
}

/// Fails unless the indices are increasing.
fn check_order(row: usize, index: &[i64], before: &[i64]) -> Result<()> {
    let text = || index.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    match index.cmp(before) {
        Ordering::Greater => Ok(()),
        Ordering::Equal => Err(Status::invalid_argument(format!("indices[{row}] = [{}] is repeated", text()))),
        Ordering::Less => Err(Status::invalid_argument(format!(
            "indices[{row}] = [{}] is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to \
             create a correctly ordered copy.\n\n",
            text()
        ))),
    }
}

/// Returns the index of a row among the outer dimensions.
fn position(row: i64, outer: &[i64]) -> Vec<i64> {
    let mut index = vec![0; outer.len()];
    let mut rest = row;
    for (place, &size) in index.iter_mut().zip(outer).rev() {
        *place = rest % size.max(1);
        rest /= size.max(1);
    }
    index
}

struct Operation<K> {
    operands: [Operand; 2],
    validates: bool,
    combine: fn(&BTreeSet<K>, &BTreeSet<K>) -> Vec<K>,
    keys: Keys<K>,
    vector: fn(Vec<K>) -> Result<Tensor>,
}

fn set_operation<T: Member>(builder: &KernelBuilder<'_>, first: Operand, second: Operand) -> Result<BoxedKernel> {
    Operation::create(builder, [first, second], T::keys, T::vector)
}

impl<K: Clone + Ord + Send + Sync + 'static> Operation<K> {
    fn create(
        builder: &KernelBuilder<'_>,
        operands: [Operand; 2],
        keys: Keys<K>,
        vector: fn(Vec<K>) -> Result<Tensor>,
    ) -> Result<BoxedKernel> {
        let combine: fn(&BTreeSet<K>, &BTreeSet<K>) -> Vec<K> = match builder.attrs().string("set_operation")?.as_str()
        {
            "a-b" => |a, b| a.difference(b).cloned().collect(),
            "b-a" => |a, b| b.difference(a).cloned().collect(),
            "intersection" => |a, b| a.intersection(b).cloned().collect(),
            "union" => |a, b| a.union(b).cloned().collect(),
            other => return Err(Status::invalid_argument(format!("Invalid set_operation {other}."))),
        };
        let validates = builder.attrs().bool("validate_indices")?;
        BoxedKernel::new(Operation { operands, validates, combine, keys, vector })
    }
}

impl<K: Clone + Ord + Send + Sync + 'static> Kernel for Operation<K> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let [first, second] = self.operands;
        let (a, outer) = first.groups(self.keys, self.validates, context)?;
        let (b, other) = second.groups(self.keys, self.validates, context)?;
        if outer != other {
            return Err(Status::invalid_argument(format!("Mismatched group shapes {outer:?} vs {other:?}")));
        }
        let none = BTreeSet::new();
        let (mut indices, mut members, mut widest) = (Vec::new(), Vec::new(), 0);
        let groups: BTreeSet<&Vec<i64>> = a.keys().chain(b.keys()).collect();
        for group in groups {
            let result = (self.combine)(a.get(group).unwrap_or(&none), b.get(group).unwrap_or(&none));
            widest = widest.max(result.len());
            for (place, member) in result.into_iter().enumerate() {
                indices.extend_from_slice(group);
                indices.push(place as i64);
                members.push(member);
            }
        }
        let shape = [&outer[..], &[widest as i64]].concat();
        let indices = indices_tensor(members.len(), shape.len(), &indices)?;
        context.set_output(0, indices);
        context.set_output(1, (self.vector)(members)?);
        context.set_output(2, Tensor::vector(&shape));
        Ok(())
    }
}

struct SetSize<K> {
    keys: Keys<K>,
    validates: bool,
}

fn set_size<T: Member>(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    BoxedKernel::new(SetSize { keys: T::keys, validates: builder.attrs().bool("validate_indices")? })
}

impl<K: Clone + Ord + Send + Sync + 'static> Kernel for SetSize<K> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (groups, outer) = Operand::Sparse(0).groups(self.keys, self.validates, context)?;
        let mut output = Tensor::zeros(tensor::DType::Int32, Shape::new(&outer)?)?;
        let sizes = output.make_mut::<i32>()?;
        for (group, members) in groups {
            let place = group.iter().zip(&outer).fold(0, |flat, (&index, &size)| flat * size + index);
            sizes[place as usize] = i32::try_from(members.len()).unwrap_or(i32::MAX);
        }
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    fn matrix(rows: i64, values: &[i64]) -> Tensor {
        Tensor::from_slice(&[rows, values.len() as i64 / rows], values).unwrap()
    }

    fn ints(tensor: &Tensor) -> &[i64] {
        tensor.as_slice().unwrap()
    }

    #[test]
    fn dense_sets() {
        let sets = [matrix(2, &[1, 2, 2, 5, 4, 3]), matrix(2, &[2, 9, 5, 5])];
        for (operation, indices, values, shape) in [
            ("intersection", &[0i64, 0, 1, 0][..], &[2i64, 5][..], [2i64, 1]),
            ("union", &[0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2], &[1, 2, 9, 3, 4, 5], [2, 3]),
            ("a-b", &[0, 0, 1, 0, 1, 1], &[1, 3, 4], [2, 2]),
            ("b-a", &[0, 0], &[9], [2, 1]),
        ] {
            let outputs = run_op("DenseToDenseSetOperation", attrs![("set_operation", operation)], &sets).unwrap();
            assert_eq!(ints(&outputs[0]), indices, "{operation}");
            assert_eq!(ints(&outputs[1]), values, "{operation}");
            assert_eq!(ints(&outputs[2]), shape, "{operation}");
        }
        let other = [sets[0].clone(), matrix(1, &[1])];
        assert!(run_op("DenseToDenseSetOperation", attrs![("set_operation", "union")], &other).is_err());
        assert!(run_op("DenseToDenseSetOperation", attrs![("set_operation", "sum")], &sets).is_err());
    }

    #[test]
    fn sparse_sets() {
        let sparse = [matrix(3, &[0, 0, 0, 1, 1, 0]), Tensor::vector(&[2i64, 9, 5]), Tensor::vector(&[2i64, 2])];
        let mut inputs = vec![matrix(2, &[1, 2, 2, 5, 4, 3])];
        inputs.extend(sparse.clone());
        let outputs = run_op("DenseToSparseSetOperation", attrs![("set_operation", "intersection")], &inputs).unwrap();
        assert_eq!(ints(&outputs[1]), &[2, 5]);
        let mut inputs = sparse.to_vec();
        inputs.extend([matrix(2, &[1, 0, 1, 1]), Tensor::vector(&[5i64, 7]), Tensor::vector(&[2i64, 2])]);
        let outputs = run_op("SparseToSparseSetOperation", attrs![("set_operation", "union")], &inputs).unwrap();
        assert_eq!(ints(&outputs[1]), &[2, 9, 5, 7]);
        assert_eq!(ints(&outputs[2]), &[2, 2]);
        let inputs = [matrix(3, &[0, 0, 0, 1, 1, 0]), Tensor::vector(&[2i64, 2, 5]), Tensor::vector(&[3i64, 2])];
        let sizes = run_op("SetSize", attrs![], &inputs).unwrap();
        assert_eq!(sizes[0].as_slice::<i32>().unwrap(), &[1, 1, 0]);
    }

    #[test]
    fn shapes() {
        let union = || attrs![("set_operation", "union")];
        check_shape("DenseToDenseSetOperation", union(), "[2,3];[2,5]", "[?,2];[?];[2]");
    }
}
