//! Slices by a vector of indices each: GatherNd.

use super::scatter_nd::wide;
use crate::compose::call;
use crate::rows::{NdSlices, gather_slices, nd_slices};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, IndexedSlices, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use tensor::{PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "GatherNd",
        inputs: &["params: Tparams", "indices: Tindices"],
        outputs: &["output: Tparams"],
        attrs: &["Tparams: type", "Tindices: {int16, int32, int64}"],
        flags: OpFlags::NONE,
    },
    shape: gather_nd_shape,
    gradient: Gradient::Fn(gather_nd_gradient),
    kernels: &[KernelDef::any(|_| BoxedKernel::new(GatherNd))],
}];

/// Returns the slices of `params` that the vectors in the last dimension of `indices` name.
#[track_caller]
pub fn gather_nd(params: &Output, indices: &Output) -> Output {
    params.graph().op("GatherNd").input(params).input(indices).output()
}

fn gather_nd_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let (params, indices) = (args.input(0), args.input(1));
    let shape = graph.op("Shape").input(&params).attr("out_type", indices.dtype()).try_build()?.try_output(0)?;
    let indices_shape = indices.shape();
    if indices_shape.rank() == Some(2) && indices_shape.dim(1) == Some(1) {
        let rows = graph.op("Squeeze").input(&indices).attr("squeeze_dims", &[-1i64][..]).try_build()?.try_output(0)?;
        let slices = IndexedSlices { values: grad, indices: rows, dense_shape: Some(shape) };
        return Ok(vec![Some(Grad::Slices(slices)), None]);
    }
    Ok(vec![Some(call("ScatterNd", &[&indices, &grad, &shape])?.into()), None])
}

fn gather_nd_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (params, indices) = (c.input(0), c.with_rank_at_least(1, 1)?);
    let (Some(rank), Some(indices_rank)) = (params.rank(), indices.rank()) else { return Ok(()) };
    let Some(depth) = indices.dim(indices_rank - 1) else { return Ok(()) };
    if depth > rank as i64 {
        return Err(Status::invalid_argument(format!(
            "indices.shape[-1] must be <= params.rank, but saw indices shape: {indices} and params shape: {params}"
        )));
    }
    let shape: PartialShape = indices.slice(0, indices_rank - 1).concat(&params.slice(depth as usize, rank));
    c.set_output(0, shape);
    Ok(())
}

struct GatherNd;

impl Kernel for GatherNd {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let indices = context.input(1)?;
        let output = context.with_rows(0, |params| gathered_nd(params, indices))?;
        context.set_output(0, output);
        Ok(())
    }

    fn takes_refs(&self) -> bool {
        true
    }
}

/// Returns the slices of `params` that `indices` name.
pub(crate) fn gathered_nd(params: &Tensor, indices: &Tensor) -> Result<Tensor> {
    if params.shape().is_scalar() {
        return Err(Status::invalid_argument("params must be at least a vector"));
    }
    let indices = wide(indices)?;
    if indices.shape().is_scalar() {
        return Err(Status::invalid_argument("indices must be at least a vector"));
    }
    let NdSlices { slices, slice_len, depth } = nd_slices(params.shape(), &indices, "param shape")?;
    let lead = indices.shape().slice(0, indices.shape().rank() - 1);
    let shape = lead.concat(&params.shape().slice(depth, params.shape().rank()))?;
    if shape.num_elements() != 0 && params.num_elements() == 0 {
        return Err(Status::invalid_argument(format!(
            "Requested more than 0 entries, but params is empty.  Params shape: {}",
            params.shape()
        )));
    }
    gather_slices(params, &slices, slice_len, shape)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[2, 3], &[1i32, 2, 3, 4, 5, 6]).unwrap();
        let indices = Tensor::from_slice(&[2, 2], &[0i32, 2, 1, 0]).unwrap();
        let y = run_op("GatherNd", attrs![], &[x.clone(), indices]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i32>().unwrap()), (&[2i64][..], &[3, 4][..]));
        let indices = Tensor::from_slice(&[1, 1], &[1i64]).unwrap();
        let y = run_op("GatherNd", attrs![], &[x.clone(), indices]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i32>().unwrap()), (&[1i64, 3][..], &[4, 5, 6][..]));
        let indices = Tensor::from_slice::<i64>(&[2, 0], &[]).unwrap();
        assert_eq!(run_op("GatherNd", attrs![], &[x.clone(), indices]).unwrap()[0].dims(), [2, 2, 3]);
        let indices = Tensor::from_slice(&[1, 2], &[0i64, 3]).unwrap();
        let status = run_op("GatherNd", attrs![], &[x.clone(), indices]).unwrap_err();
        assert!(status.message().contains("indices[0] = [0, 3] does not index into param shape [2,3]"), "{status}");
        let deep = Tensor::from_slice(&[1, 3], &[0i64, 0, 0]).unwrap();
        assert!(run_op("GatherNd", attrs![], &[x.clone(), deep]).is_err());
        assert!(run_op("GatherNd", attrs![], &[x, Tensor::scalar(0i32)]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("GatherNd", attrs![], "[5,?,3];[2,?,2]", "[2,?,3]");
        check_shape("GatherNd", attrs![], "[5,3];[2,?]", "?");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[3, 2], &[1f64, 2., 3., 4., 5., 6.]).unwrap();
        let indices = Tensor::from_slice(&[3, 1], &[2i32, 0, 2]).unwrap();
        check_gradient(&[x.clone(), indices], |_, xs| super::gather_nd(&xs[0], &xs[1]));
        let indices = Tensor::from_slice(&[3, 2], &[2i32, 0, 2, 0, 1, 1]).unwrap();
        check_gradient(&[x, indices], |_, xs| super::gather_nd(&xs[0], &xs[1]));
    }
}
