//! Gathers from the variable of a handle: ResourceGather, ResourceGatherNd.

use super::{handle_shape, variable_shape};
use crate::rows::{gather_slices, nd_slices, row_indices};
use graph::Output;
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, IndexedSlices, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags,
    ShapeContext,
};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ResourceGather",
            inputs: &["resource: resource", "indices: Tindices"],
            outputs: &["output: dtype"],
            attrs: &["batch_dims: int = 0", "validate_indices: bool = true", "dtype: type", "Tindices: {int32, int64}"],
            flags: OpFlags::STATEFUL,
        },
        shape: gather_shape,
        gradient: Gradient::Fn(gather_gradient),
        kernels: &[KernelDef::any(|builder| {
            let dtype = builder.output_dtype(0);
            BoxedKernel::new(ResourceGather { dtype, batch_dims: builder.attrs().int("batch_dims")? })
        })],
    },
    Op {
        def: OpDef {
            name: "ResourceGatherNd",
            inputs: &["resource: resource", "indices: Tindices"],
            outputs: &["output: dtype"],
            attrs: &["dtype: type", "Tindices: {int32, int64}"],
            flags: OpFlags::STATEFUL,
        },
        shape: gather_nd_shape,
        gradient: Gradient::Fn(gather_nd_gradient),
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(ResourceGatherNd { dtype: builder.output_dtype(0) }))],
    },
];

/// Returns rows of the variable of a handle.
#[track_caller]
pub fn resource_gather(handle: &Output, indices: &Output, dtype: DType) -> Output {
    handle.graph().op("ResourceGather").input(handle).input(indices).attr("dtype", dtype).output()
}

/// Returns slices of the variable of a handle at the indices in the last dimension of `indices`.
#[track_caller]
pub fn resource_gather_nd(handle: &Output, indices: &Output, dtype: DType) -> Output {
    handle.graph().op("ResourceGatherNd").input(handle).input(indices).attr("dtype", dtype).output()
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (_, params) = handle_shape(c, 0)?;
    let batch_dims = c.attrs.int("batch_dims")?;
    let Ok(batch_dims) = usize::try_from(batch_dims) else {
        return Err(Status::invalid_argument(format!("batch_dims is negative ({batch_dims})")));
    };
    let indices = c.with_rank_at_least(1, batch_dims)?;
    if let Some(rank) = params.rank() {
        if rank <= batch_dims {
            return Err(Status::invalid_argument(format!(
                "Shape must be at least rank {} but is rank {rank}",
                batch_dims + 1
            )));
        }
        let indices = match indices.rank() {
            Some(index_rank) => indices.slice(batch_dims, index_rank),
            None => PartialShape::unknown(),
        };
        c.set_output(0, params.slice(0, batch_dims).concat(&indices).concat(&params.slice(batch_dims + 1, rank)));
    }
    Ok(())
}

fn gather_nd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (_, params) = handle_shape(c, 0)?;
    let indices = c.with_rank_at_least(1, 1)?;
    if let (Some(rank), Some(index_rank)) = (params.rank(), indices.rank())
        && let Some(depth) = indices.dim(index_rank - 1)
    {
        if depth > rank as i64 {
            return Err(Status::invalid_argument(format!(
                "indices.shape[-1] must be <= params.rank, but saw indices shape: {indices} and params shape: {params}"
            )));
        }
        c.set_output(0, indices.slice(0, index_rank - 1).concat(&params.slice(depth as usize, rank)));
    }
    Ok(())
}

/// Returns the shape of a handle's variable: a constant if it is completely known.
fn shape_of(handle: &Output, dtype: DType) -> Output {
    let known = handle.handle_data().first().and_then(|data| data.shape.to_shape());
    let Some(shape) = known else { return variable_shape(handle, dtype) };
    let small: Result<Vec<i32>, _> = shape.iter().map(|&dim| i32::try_from(dim)).collect();
    match (dtype, small) {
        (DType::Int32, Ok(dims)) => handle.graph().constant_tensor(&Tensor::vector(&dims)),
        _ => handle.graph().constant_tensor(&Tensor::vector(shape.dims())),
    }
}

fn gather_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (handle, indices) = (args.input(0), args.input(1));
    let graph = handle.graph();
    let params_shape = shape_of(&handle, DType::Int32);
    let axis = graph.constant_tensor(&Tensor::scalar(0i32));
    let size = graph.op("Size").input(&indices).try_build()?.output(0);
    let size = graph.op("ExpandDims").input(&size).input(&axis).try_build()?.output(0);
    let bound = |value: i32| graph.constant_tensor(&Tensor::vector(&[value]));
    let row = graph.op("StridedSlice").input(&params_shape).input(&bound(1)).input(&bound(0)).input(&bound(1));
    let row = row.attr("end_mask", 1i64).try_build()?.output(0);
    let values_shape = graph.op("ConcatV2").inputs([&size, &row]).input(&axis).attr("N", 2i64).try_build()?.output(0);
    let values = graph.op("Reshape").input(&grad).input(&values_shape).try_build()?.output(0);
    let indices = graph.op("Reshape").input(&indices).input(&size).try_build()?.output(0);
    Ok(vec![Some(Grad::Slices(IndexedSlices { values, indices, dense_shape: Some(params_shape) })), None])
}

fn gather_nd_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (handle, indices) = (args.input(0), args.input(1));
    let graph = handle.graph();
    let shape = shape_of(&handle, indices.dtype());
    let known = indices.shape();
    if known.rank() == Some(2) && known.dim(1) == Some(1) {
        let rows = graph.op("Squeeze").input(&indices).attr("squeeze_dims", &[-1i64][..]).try_build()?.output(0);
        let slices = IndexedSlices { values: grad, indices: rows, dense_shape: Some(shape) };
        return Ok(vec![Some(Grad::Slices(slices)), None]);
    }
    let dense = graph.op("ScatterNd").input(&indices).input(&grad).input(&shape).try_build()?.output(0);
    Ok(vec![Some(dense.into()), None])
}

struct ResourceGather {
    dtype: DType,
    batch_dims: i64,
}

impl Kernel for ResourceGather {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let indices = context.input(1)?;
        let output = variable.read_rows_with(|params| {
            check_dtype(params, self.dtype)?;
            let shape = params.shape();
            let batch = usize::try_from(self.batch_dims).unwrap_or(usize::MAX);
            if batch >= shape.rank().max(1) {
                return Err(Status::invalid_argument(format!(
                    "params must be at least {} dimensional",
                    batch.saturating_add(1)
                )));
            }
            if shape.is_scalar() {
                return Err(Status::invalid_argument("params must be at least 1 dimensional"));
            }
            if batch > indices.shape().rank() || indices.dims()[..batch] != shape.dims()[..batch] {
                return Err(Status::invalid_argument(format!(
                    "batch_dims={batch} dimensions of indices (shape {}) and params (shape {shape}) must be equal",
                    indices.shape()
                )));
            }
            let rows = shape.size(batch);
            let mut slices = row_indices(indices, rows)?;
            let batches = shape.slice(0, batch).num_elements();
            if batch > 0 && batches > 0 {
                let per_batch = slices.len() / batches;
                slices.chunks_mut(per_batch.max(1)).enumerate().for_each(|(index, chunk)| {
                    chunk.iter_mut().for_each(|slice| *slice += index * rows);
                });
            }
            let row = shape.slice(batch + 1, shape.rank());
            gather_slices(params, &slices, row.num_elements(), indices.shape().concat(&row)?)
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct ResourceGatherNd {
    dtype: DType,
}

impl Kernel for ResourceGatherNd {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let indices = context.input(1)?;
        let output = variable.read_rows_with(|params| {
            check_dtype(params, self.dtype)?;
            if params.shape().is_scalar() {
                return Err(Status::invalid_argument("params must be at least a vector"));
            }
            if indices.shape().is_scalar() {
                return Err(Status::invalid_argument("indices must be at least a vector"));
            }
            let slices = nd_slices(params.shape(), indices, "param shape")?;
            let outer: Shape = indices.shape().slice(0, indices.shape().rank() - 1);
            let inner = params.shape().slice(slices.depth, params.shape().rank());
            gather_slices(params, &slices.slices, slices.slice_len, outer.concat(&inner)?)
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

fn check_dtype(params: &Tensor, dtype: DType) -> Result<()> {
    if params.dtype() == dtype {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "Trying to read variable with wrong dtype. Expected {dtype} got {}",
        params.dtype()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{assign_variable_op, var_handle_op};
    use crate::testing::TestSession;

    fn session() -> (TestSession, Output, Output) {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[3, 2]));
        let value = session.placeholder(DType::Float);
        let start = Tensor::from_slice(&[3, 2], &[0f32, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        session.run(&assign_variable_op(&handle, &value), &[(&value, start)]).unwrap();
        let indices = session.placeholder(DType::Int32);
        (session, handle, indices)
    }

    #[test]
    fn rows() {
        let (session, handle, indices) = session();
        let gather = resource_gather(&handle, &indices, DType::Float);
        let feed = Tensor::from_slice(&[1, 2], &[2i32, 0]).unwrap();
        let rows = session.fetch(&gather, &[(&indices, feed)]).unwrap();
        assert_eq!(rows.dims(), &[1, 2, 2]);
        assert_eq!(rows.as_slice::<f32>().unwrap(), &[4.0, 5.0, 0.0, 1.0]);
        let status = session.fetch(&gather, &[(&indices, Tensor::scalar(3i32))]).unwrap_err();
        assert_eq!(status.message(), "indices = 3 is not in [0, 3)");
        let batched = session.graph.op("ResourceGather").input(&handle).input(&indices).attr("dtype", DType::Float);
        let batched = batched.attr("batch_dims", 1i64).output();
        let feed = Tensor::from_slice(&[3, 1], &[1i32, 0, 1]).unwrap();
        let picked = session.fetch(&batched, &[(&indices, feed)]).unwrap();
        assert_eq!((picked.dims(), picked.as_slice::<f32>().unwrap()), (&[3i64, 1][..], &[1f32, 2.0, 5.0][..]));
    }

    #[test]
    fn elements() {
        let (session, handle, indices) = session();
        let gather = resource_gather_nd(&handle, &indices, DType::Float);
        let feed = Tensor::from_slice(&[2, 2], &[2i32, 0, 1, 1]).unwrap();
        let picked = session.fetch(&gather, &[(&indices, feed)]).unwrap();
        assert_eq!((picked.dims(), picked.as_slice::<f32>().unwrap()), (&[2i64][..], &[4f32, 3.0][..]));
        let feed = Tensor::from_slice(&[1, 1], &[7i32]).unwrap();
        let status = session.fetch(&gather, &[(&indices, feed)]).unwrap_err();
        assert_eq!(status.message(), "indices[0] = [7] does not index into param shape [3,2]");
    }

    #[test]
    fn shapes() {
        let (session, handle, _) = session();
        let shape = PartialShape::from_dims(&[-1, 4]);
        let indices = session.graph.op("Placeholder").attr("dtype", DType::Int32).attr("shape", shape).output();
        assert_eq!(resource_gather(&handle, &indices, DType::Float).shape().to_string(), "[?,4,2]");
        let shape = PartialShape::from_dims(&[-1, 1]);
        let indices = session.graph.op("Placeholder").attr("dtype", DType::Int32).attr("shape", shape).output();
        assert_eq!(resource_gather_nd(&handle, &indices, DType::Float).shape().to_string(), "[?,2]");
    }
}
