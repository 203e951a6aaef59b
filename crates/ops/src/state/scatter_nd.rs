//! Scatters to slices of a variable with indices of any depth: ScatterNdUpdate and so on, by ref and by handle.

use super::handle_shape;
use super::scatter::{Add, Maximum, Minimum, Replace, RowOperator, Subtract};
use crate::rows::nd_slices;
use graph::{Operation, Output};
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, Variable,
};
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor};

const INDICES: &str = "Tindices: {int32, int64}";
const UNLOCKED: &str = "use_locking: bool = false";
const LOCKED: &str = "use_locking: bool = true";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    by_ref("ScatterNdUpdate", &["T: type", INDICES, LOCKED], UPDATE),
    by_ref("ScatterNdAdd", &[numbertype!("T"), INDICES, UNLOCKED], ADD),
    by_ref("ScatterNdSub", &[numbertype!("T"), INDICES, UNLOCKED], SUBTRACT),
    by_ref("ScatterNdMin", &[numbertype!("T"), INDICES, UNLOCKED], MINIMUM),
    by_ref("ScatterNdMax", &[numbertype!("T"), INDICES, UNLOCKED], MAXIMUM),
    by_handle("ResourceScatterNdUpdate", UPDATE),
    by_handle("ResourceScatterNdAdd", ADD),
    by_handle("ResourceScatterNdSub", SUBTRACT),
    by_handle("ResourceScatterNdMin", MINIMUM),
    by_handle("ResourceScatterNdMax", MAXIMUM),
];

const UPDATE: &[KernelDef] = update_kernels!("T" => ScatterNd<Replace>, ScatterNdStrings);
const ADD: &[KernelDef] = number_kernels!("T" => ScatterNd<Add>);
const SUBTRACT: &[KernelDef] = number_kernels!("T" => ScatterNd<Subtract>);
const MINIMUM: &[KernelDef] = real_kernels!("T" => ScatterNd<Minimum>);
const MAXIMUM: &[KernelDef] = real_kernels!("T" => ScatterNd<Maximum>);

const fn by_ref(name: &'static str, attrs: &'static [&'static str], kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["ref: Ref(T)", "indices: Tindices", "updates: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs,
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let variable = c.input(0);
            check_updates(c, &variable)?;
            c.set_output(0, variable);
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

const fn by_handle(name: &'static str, kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["ref: resource", "indices: Tindices", "updates: T"],
            outputs: &[],
            attrs: &["T: type", INDICES, LOCKED],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            let (_, variable) = handle_shape(c, 0)?;
            check_updates(c, &variable)
        },
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident, $resource_name:ident => $op:literal, $resource_op:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(variable: &Output, indices: &Output, updates: &Output) -> Output {
            variable.graph().op($op).input(variable).input(indices).input(updates).output()
        }

        $(#[$doc])*
        #[track_caller]
        pub fn $resource_name(handle: &Output, indices: &Output, updates: &Output) -> Operation {
            handle.graph().op($resource_op).input(handle).input(indices).input(updates).build()
        }
    )*};
}

builders! {
    /// Replaces slices of a variable.
    scatter_nd_update, resource_scatter_nd_update => "ScatterNdUpdate", "ResourceScatterNdUpdate";
    /// Adds to slices of a variable.
    scatter_nd_add, resource_scatter_nd_add => "ScatterNdAdd", "ResourceScatterNdAdd";
    /// Subtracts from slices of a variable.
    scatter_nd_sub, resource_scatter_nd_sub => "ScatterNdSub", "ResourceScatterNdSub";
    /// Sets slices of a variable to the minimum with the updates.
    scatter_nd_min, resource_scatter_nd_min => "ScatterNdMin", "ResourceScatterNdMin";
    /// Sets slices of a variable to the maximum with the updates.
    scatter_nd_max, resource_scatter_nd_max => "ScatterNdMax", "ResourceScatterNdMax";
}

fn check_updates(c: &ShapeContext<'_>, variable: &PartialShape) -> Result<()> {
    let (indices, updates) = (c.with_rank_at_least(1, 1)?, c.with_rank_at_least(2, 1)?);
    let (Some(rank), Some(index_rank)) = (variable.rank(), indices.rank()) else { return Ok(()) };
    let outer = index_rank - 1;
    let Some(depth) = indices.dim(outer) else { return Ok(()) };
    let expected = indices.slice(0, outer).concat(&variable.slice(depth as usize, rank));
    updates.merge(&expected).map(drop)
}

struct ScatterNd<T, O>(PhantomData<fn() -> (T, O)>);

impl<T: Element, O: RowOperator<T>> ScatterNd<T, O> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ScatterNd::<T, O>(PhantomData))
    }
}

impl<T: Element, O: RowOperator<T>> Kernel for ScatterNd<T, O> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, updates) = (context.take_input(1)?, context.take_input(2)?);
        let variable = context.variable(0)?;
        let values = updates.as_slice::<T>()?;
        update_slices(&variable, indices, updates.shape(), &mut |tensor, slices, len| {
            let table = tensor.make_mut::<T>()?;
            for (&slice, update) in slices.iter().zip(values.chunks_exact(len)) {
                let slice = &mut table[slice * len..(slice + 1) * len];
                slice.iter_mut().zip(update).for_each(|(old, &update)| *old = O::apply(*old, update));
            }
            Ok(())
        })?;
        // Only the form by ref has an output, which is the variable.
        context.set_output_ref(0, variable);
        Ok(())
    }
}

/// ScatterNdUpdate for strings and variants.
struct ScatterNdStrings;

impl Kernel for ScatterNdStrings {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, updates) = (context.take_input(1)?, context.take_input(2)?);
        let variable = context.variable(0)?;
        update_slices(&variable, indices, updates.shape(), &mut |tensor, slices, len| {
            for (position, &slice) in slices.iter().enumerate() {
                let (from, to) = (position * len..(position + 1) * len, slice * len..(slice + 1) * len);
                if let Ok(strings) = updates.strings() {
                    tensor.strings_mut()?[to].clone_from_slice(&strings[from]);
                } else {
                    tensor.variants_mut()?[to].clone_from_slice(&updates.variants()?[from]);
                }
            }
            Ok(())
        })?;
        context.set_output_ref(0, variable);
        Ok(())
    }
}

/// Checks the inputs of a scatter, and calls `write` with the table, the slices and the length of a slice.
fn update_slices(
    variable: &Variable,
    indices: Tensor,
    updates: &Shape,
    write: &mut dyn FnMut(&mut Tensor, &[usize], usize) -> Result<()>,
) -> Result<()> {
    variable.update_rows(|tensor| {
        let shape = tensor.shape();
        if shape.is_scalar() {
            return Err(Status::invalid_argument(format!("Output must be at least 1-D, got shape: {shape}")));
        }
        if shape.num_elements() == 0 && (indices.num_elements() > 0 || updates.num_elements() > 0) {
            return Err(Status::invalid_argument(format!(
                "Indices and updates specified for empty output.  indices shape: {}",
                indices.shape()
            )));
        }
        // A vector of indices stands for one-element indices.
        let indices = match indices.shape().rank() {
            0 => return Err(Status::invalid_argument("Indices shape must have rank at least one. Found: []")),
            1 => {
                let column = Shape::new(&[indices.dims()[0], 1])?;
                indices.into_shape(column)?
            }
            _ => indices,
        };
        let outer = indices.shape().rank() - 1;
        if updates.rank() < outer || updates.dims()[..outer] != indices.dims()[..outer] {
            let (index_dims, update_dims) = (&indices.dims()[..outer], &updates.dims()[..outer.min(updates.rank())]);
            return Err(Status::invalid_argument(format!(
                "Dimensions [0,{outer}) of indices[shape={}] = {} must match dimensions [0,{outer}) of \
                 updates[shape={updates}] = {}",
                indices.shape(),
                dims_text(index_dims),
                dims_text(update_dims)
            )));
        }
        if let Some(&depth) = indices.dims().last().filter(|&&depth| depth > shape.rank() as i64) {
            return Err(Status::invalid_argument(format!(
                "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{depth},{}) of \
                 updates[shape={updates}]: the indices have {depth} components",
                shape.rank(),
                updates.rank()
            )));
        }
        let slices = nd_slices(shape, &indices, "shape")?;
        let depth = slices.depth;
        if updates.dims()[outer..] != shape.dims()[depth..] {
            return Err(Status::invalid_argument(format!(
                "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{outer},{}) of \
                 updates[shape={updates}]",
                shape.rank(),
                updates.rank()
            )));
        }
        if slices.slices.is_empty() || slices.slice_len == 0 {
            return Ok(());
        }
        write(tensor, &slices.slices, slices.slice_len)
    })
}

/// Formats one dimension as a number and several as a list.
fn dims_text(dims: &[i64]) -> String {
    match dims {
        [dim] => dim.to_string(),
        _ => PartialShape::from_dims(dims).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{assign, variable_op_v2};
    use crate::testing::{TestSession, attrs, check_shape};
    use tensor::DType;

    fn run(indices: Tensor, updates: Tensor, build: fn(&Output, &Output, &Output) -> Output) -> Result<Vec<i32>> {
        let session = TestSession::new();
        let variable = variable_op_v2(&session.graph, "v", DType::Int32, &PartialShape::from_dims(&[2, 3]));
        let (value, places) = (session.placeholder(DType::Int32), session.placeholder(DType::Int32));
        let start = Tensor::from_slice(&[2, 3], &[0i32, 1, 2, 3, 4, 5])?;
        session.fetch(&assign(&variable, &value), &[(&value, start)])?;
        let result = session.fetch(&build(&variable, &places, &value), &[(&places, indices), (&value, updates)])?;
        Ok(result.as_slice::<i32>()?.to_vec())
    }

    #[test]
    fn elements_and_rows() {
        let elements = || Tensor::from_slice(&[2, 2], &[0i32, 1, 1, 2]).unwrap();
        let updates = || Tensor::vector(&[10i32, -20]);
        assert_eq!(run(elements(), updates(), scatter_nd_update).unwrap(), [0, 10, 2, 3, 4, -20]);
        assert_eq!(run(elements(), updates(), scatter_nd_add).unwrap(), [0, 11, 2, 3, 4, -15]);
        assert_eq!(run(elements(), updates(), scatter_nd_sub).unwrap(), [0, -9, 2, 3, 4, 25]);
        assert_eq!(run(elements(), updates(), scatter_nd_min).unwrap(), [0, 1, 2, 3, 4, -20]);
        assert_eq!(run(elements(), updates(), scatter_nd_max).unwrap(), [0, 10, 2, 3, 4, 5]);
        let rows = Tensor::from_slice(&[1, 1], &[1i32]).unwrap();
        let updates = Tensor::from_slice(&[1, 3], &[7i32, 8, 9]).unwrap();
        assert_eq!(run(rows, updates, scatter_nd_update).unwrap(), [0, 1, 2, 7, 8, 9]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let indices = Tensor::from_slice(&[2, 2], &[0i32, 1, 1, 3]).unwrap();
        let status = run(indices.clone(), Tensor::vector(&[1i32, 2]), scatter_nd_add).unwrap_err();
        assert_eq!(status.message(), "indices[1] = [1, 3] does not index into shape [2,3]");
        let status = run(indices, Tensor::vector(&[1i32, 2, 3]), scatter_nd_add).unwrap_err();
        assert_eq!(
            status.message(),
            "Dimensions [0,1) of indices[shape=[2,2]] = 2 must match dimensions [0,1) of updates[shape=[3]] = 3"
        );
        let deep = Tensor::from_slice(&[1, 3], &[0i32, 0, 0]).unwrap();
        assert!(run(deep, Tensor::vector(&[1i32]), scatter_nd_add).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("ScatterNdAdd", attrs![("Tindices", DType::Int32)], "[5,3];[2,1];[2,3]", "[5,3]");
        check_shape("ScatterNdUpdate", attrs![("Tindices", DType::Int32)], "[5,3];[2,2];[?]", "[5,3]");
    }
}
