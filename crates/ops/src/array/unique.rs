//! Distinct values: Unique, UniqueV2, and both with counts.

use super::shape::index_vector;
use crate::movement::Movable;
use foldhash::HashMap;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use std::hash::Hash;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Unique",
            inputs: &["x: T"],
            outputs: &["y: T", "idx: out_idx"],
            attrs: &["T: type", "out_idx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: unique_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Unique::create)],
    },
    Op {
        def: OpDef {
            name: "UniqueV2",
            inputs: &["x: T", "axis: Taxis"],
            outputs: &["y: T", "idx: out_idx"],
            attrs: &["T: type", "Taxis: {int32, int64} = DT_INT64", "out_idx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: unique_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Unique::create)],
    },
    Op {
        def: OpDef {
            name: "UniqueWithCounts",
            inputs: &["x: T"],
            outputs: &["y: T", "idx: out_idx", "count: out_idx"],
            attrs: &["T: type", "out_idx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: unique_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Unique::create)],
    },
    Op {
        def: OpDef {
            name: "UniqueWithCountsV2",
            inputs: &["x: T", "axis: Taxis"],
            outputs: &["y: T", "idx: out_idx", "count: out_idx"],
            attrs: &["T: type", "Taxis: {int32, int64} = DT_INT64", "out_idx: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: unique_v2_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Unique::create)],
    },
];

/// Returns the distinct values of the vector `x` in the order of their first occurrence, and for each element the index of its
/// value.
#[track_caller]
pub fn unique(x: &Output) -> (Output, Output) {
    let op = x.graph().op("Unique").input(x).build();
    (op.output(0), op.output(1))
}

fn unique_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.with_rank(0, 1)?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    c.set_output(1, input);
    c.set_output(2, PartialShape::unknown_of_rank(1));
    Ok(())
}

fn unique_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let axes = c.with_rank(1, 1)?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    c.set_output(2, PartialShape::unknown_of_rank(1));
    if axes.dim(0) == Some(0) {
        let len = c.with_rank(0, 1)?;
        c.set_output(1, len);
        return Ok(());
    }
    let Some(rank) = input.rank() else {
        c.set_output(0, PartialShape::unknown());
        return Ok(());
    };
    c.set_output(0, PartialShape::unknown_of_rank(rank));
    if let Some(axis) = c.constant(1).filter(|axes| axes.num_elements() == 1) {
        let axis = axis.to_index()?;
        let axis = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        let Some(axis) = usize::try_from(axis).ok().filter(|&axis| axis < rank) else {
            return Err(Status::invalid_argument(format!("axis expected to be in the range [-{rank}, {rank})")));
        };
        c.set_output(0, input.with_dim(axis, None));
        c.set_output(1, PartialShape::new(&[input.dim(axis)]));
    }
    Ok(())
}

struct Unique {
    wide: bool,
}

impl Unique {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let dtype = builder.input_dtype(0);
        if matches!(dtype, DType::Resource | DType::Variant) {
            return Err(Status::invalid_argument(format!("{dtype} elements can't be compared")));
        }
        BoxedKernel::new(Unique { wide: builder.output_dtype(1) == DType::Int64 })
    }
}

impl Kernel for Unique {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let axes = if context.num_inputs() > 1 { Some(context.input(1)?) } else { None };
        let axis = unique_axis(input.shape(), axes)?;
        let count = |dims: &[i64]| dims.iter().product::<i64>() as usize;
        let (outer, size, inner) =
            (count(&input.dims()[..axis]), input.shape().size(axis), count(&input.dims()[axis + 1..]));
        let groups = group(input, [outer, size, inner])?;
        let shape = input.shape().with_dim(axis, groups.first.len() as i64)?;
        let values = with_movable!(input.dtype(), E => {
            let from = E::view(input)?;
            E::build(input.dtype(), shape, |to| E::gather_rows(from, [outer, size, inner], &groups.first, to))
        })?;
        let counts = if context.num_outputs() > 2 { Some(groups.counts()) } else { None };
        context.set_output(0, values);
        context.set_output(1, index_vector(&groups.group_of, self.wide)?);
        if let Some(counts) = counts {
            context.set_output(2, index_vector(&counts, self.wide)?);
        }
        Ok(())
    }
}

fn unique_axis(shape: &Shape, axes: Option<&Tensor>) -> Result<usize> {
    match axes.map(Tensor::num_elements) {
        None | Some(0) => {
            if !shape.is_vector() {
                return Err(Status::invalid_argument("unique expects a 1D vector."));
            }
            Ok(0)
        }
        Some(1) => {
            let axis = axes.map_or(Ok(0), Tensor::to_index)?;
            let rank = shape.rank() as i64;
            if axis < -rank || axis >= rank {
                return Err(Status::invalid_argument(format!("axis has to be between [0, {rank}), got {axis}")));
            }
            Ok(if axis < 0 { axis + rank } else { axis } as usize)
        }
        Some(_) => Err(Status::invalid_argument("axis does not support input tensors larger than 1 elements.")),
    }
}

/// Which slices are equal.
struct Groups {
    /// The first slice of each group.
    first: Vec<i64>,
    /// The group of each slice.
    group_of: Vec<i64>,
}

impl Groups {
    fn counts(&self) -> Vec<i64> {
        let mut counts = vec![0; self.first.len()];
        for &group in &self.group_of {
            counts[group as usize] += 1;
        }
        counts
    }

    /// Groups by a key; slices without one equal no other slice, not even themselves.
    fn by_key<K: Hash + Eq>(size: usize, key: impl Fn(usize) -> Option<K>) -> Groups {
        /// Large enough that for most inputs the table doesn't have to grow.
        const EXPECTED_MAX: usize = 1 << 16;
        let mut groups = Groups { first: Vec::new(), group_of: Vec::with_capacity(size) };
        let mut known: HashMap<K, i64> = HashMap::with_capacity_and_hasher(size.min(EXPECTED_MAX), Default::default());
        for index in 0..size {
            let next = groups.first.len() as i64;
            let group = match key(index) {
                Some(key) => *known.entry(key).or_insert(next),
                None => next,
            };
            if group == next {
                groups.first.push(index as i64);
            }
            groups.group_of.push(group);
        }
        groups
    }
}

/// Returns bits that are equal if and only if two numbers are; NaN has none.
pub(super) trait Comparable: Copy {
    type Key: Hash + Eq + Copy;
    fn key(self) -> Option<Self::Key>;
}

macro_rules! comparable {
    (integers: $($int:ty),*; floats: $($float:ty => $bits:ty),*) => {
        $(impl Comparable for $int {
            type Key = $int;
            fn key(self) -> Option<$int> {
                Some(self)
            }
        })*
        $(impl Comparable for $float {
            type Key = $bits;
            fn key(self) -> Option<$bits> {
                let zero = <$float>::from_bits(0);
                match self {
                    value if value.is_nan() => None,
                    value if value == zero => Some(0),
                    value => Some(value.to_bits()),
                }
            }
        })*
    };
}

comparable!(
    integers: bool, i8, i16, i32, i64, u8, u16, u32, u64;
    floats: f32 => u32, f64 => u64, tensor::f16 => u16, tensor::bf16 => u16
);

fn group(input: &Tensor, sizes: [usize; 3]) -> Result<Groups> {
    macro_rules! by_type {
        ($($dtype:ident => $rust:ty),* $(,)?) => {
            match input.dtype() {
                $(DType::$dtype => Ok(group_numbers(input.as_slice::<$rust>()?, sizes)),)*
                DType::String => Ok(group_strings(input, sizes)?),
                other => Err(Status::unimplemented(format!("{other} elements can't be compared"))),
            }
        };
    }
    by_type!(
        Float => f32, Double => f64, Half => tensor::f16, BFloat16 => tensor::bf16, Bool => bool,
        Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
        UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64,
        QInt8 => i8, QUInt8 => u8, QInt32 => i32, QInt16 => i16, QUInt16 => u16,
    )
}

fn group_numbers<T: Comparable>(elements: &[T], [outer, size, inner]: [usize; 3]) -> Groups {
    if outer == 1 && inner == 1 {
        return Groups::by_key(size, |index| elements[index].key());
    }
    Groups::by_key(size, |index| {
        let slice = (0..outer).flat_map(|part| &elements[(part * size + index) * inner..][..inner]);
        slice.map(|element| element.key()).collect::<Option<Vec<_>>>()
    })
}

fn group_strings(input: &Tensor, [outer, size, inner]: [usize; 3]) -> Result<Groups> {
    let elements = input.strings()?;
    if outer == 1 && inner == 1 {
        return Ok(Groups::by_key(size, |index| Some(&elements[index])));
    }
    Ok(Groups::by_key(size, |index| {
        Some((0..outer).flat_map(|part| &elements[(part * size + index) * inner..][..inner]).collect::<Vec<_>>())
    }))
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, infer, run_op};
    use tensor::{DType, Shape, Tensor};

    #[test]
    fn values() {
        let y = run_op("Unique", attrs![], &[Tensor::vector(&[1i64, 1, 2, 4, 4, 4, 7, 8, 8])]).unwrap();
        assert_eq!(y[0].as_slice::<i64>().unwrap(), &[1, 2, 4, 7, 8]);
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[0, 0, 1, 2, 2, 2, 3, 4, 4]);
        // NaN equals nothing, and both zeros are equal, as in TensorFlow.
        let floats = Tensor::vector(&[1f32, f32::NAN, -0.0, 0.0, f32::NAN, 1.0]);
        let y = run_op("Unique", attrs![("out_idx", DType::Int64)], &[floats]).unwrap();
        assert_eq!(y[1].as_slice::<i64>().unwrap(), &[0, 1, 2, 2, 3, 0]);
        let text = Tensor::from_strings(Shape::vector(3), vec!["a".into(), "b".into(), "a".into()]).unwrap();
        let y = run_op("UniqueWithCounts", attrs![], &[text]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["a", "b"]);
        assert_eq!(y[2].as_slice::<i32>().unwrap(), &[2, 1]);
        assert!(run_op("Unique", attrs![], &[Tensor::scalar(1i32)]).is_err());
        let y = run_op("Unique", attrs![], &[Tensor::vector::<i32>(&[])]).unwrap();
        assert_eq!((y[0].dims(), y[1].dims()), (&[0i64][..], &[0i64][..]));
    }

    #[test]
    fn along_an_axis() {
        let x = Tensor::from_slice(&[2, 3], &[1i32, 1, 2, 1, 1, 3]).unwrap();
        let y = run_op("UniqueV2", attrs![], &[x.clone(), Tensor::vector(&[1i64])]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i32>().unwrap()), (&[2i64, 2][..], &[1, 2, 1, 3][..]));
        assert_eq!(y[1].as_slice::<i32>().unwrap(), &[0, 0, 1]);
        let rows = Tensor::from_slice(&[3, 2], &[1i32, 2, 1, 2, 3, 2]).unwrap();
        let y = run_op("UniqueWithCountsV2", attrs![], &[rows, Tensor::vector(&[0i32])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[1, 2, 3, 2]);
        assert_eq!(y[2].as_slice::<i32>().unwrap(), &[2, 1]);
        assert!(run_op("UniqueV2", attrs![], &[x.clone(), Tensor::vector(&[2i64])]).is_err());
        assert!(run_op("UniqueV2", attrs![], &[x, Tensor::vector::<i64>(&[])]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("Unique", attrs![], "[5]", "[?];[5]");
        let shape = infer("UniqueV2", attrs![], "[5,3];[1]", &[(1, Tensor::vector(&[-1i64]))]).unwrap();
        assert_eq!((shape[0].to_string(), shape[1].to_string()), ("[5,?]".into(), "[3]".into()));
    }
}
