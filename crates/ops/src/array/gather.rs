//! Rows by index: Gather, GatherV2.
//!
//! A variable is gathered from under its lock, so that a table of any size is never copied for a few of its rows.

use crate::compose::{call, cast, constant, int_scalar, int_vector, reshape};
use crate::movement::Movable;
use crate::rows::position_text;
use graph::{Graph, Output, ShapeContext};
use kernel::{
    BoxedKernel, Grad, Gradient, GradientArgs, IndexedSlices, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use smallvec::SmallVec;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Gather",
            inputs: &["params: Tparams", "indices: Tindices"],
            outputs: &["output: Tparams"],
            attrs: &["validate_indices: bool = true", "Tparams: type", "Tindices: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: gather_shape,
        gradient: Gradient::Fn(gather_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Gather { batch_dims: 0 }))],
    },
    Op {
        def: OpDef {
            name: "GatherV2",
            inputs: &["params: Tparams", "indices: Tindices", "axis: Taxis"],
            outputs: &["output: Tparams"],
            attrs: &[
                "batch_dims: int = 0",
                "Tparams: type",
                "Tindices: {int16, int32, int64}",
                "Taxis: {int32, int64}",
            ],
            flags: OpFlags::NONE,
        },
        shape: gather_v2_shape,
        gradient: Gradient::Fn(gather_v2_gradient),
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(Gather { batch_dims: builder.attrs().int("batch_dims")? })
        })],
    },
];

/// Returns the slices of `params` along `axis` that `indices` names.
#[track_caller]
pub fn gather(params: &Output, indices: &Output, axis: i32) -> Output {
    let axis = params.graph().constant_tensor(&Tensor::scalar(axis));
    params.graph().op("GatherV2").input(params).input(indices).input(&axis).output()
}

fn gather_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    Ok(vec![Some(rows_gradient(args, &grad)?), None])
}

/// The gradient of rows of `params` is sparse: it has only those rows.
fn rows_gradient(args: &GradientArgs<'_>, grad: &Output) -> Result<Grad> {
    let graph = grad.graph();
    let (params, indices) = (args.input(0), args.input(1));
    let dense_shape = params_shape(&params)?;
    let flat = int_vector(graph, &[-1])?;
    let values_shape = match params.shape().dims().map(|dims| dims.iter().skip(1).copied().collect::<Option<Vec<_>>>())
    {
        // If the sizes of the rows are known, the shape is a constant.
        Some(Some(row)) if !row.contains(&0) => {
            let dims: Vec<i64> = std::iter::once(-1).chain(row).collect();
            constant(graph, &Tensor::vector(&dims))?
        }
        _ => {
            let size = call("ExpandDims", &[&call("Size", &[&indices])?, &int_scalar(graph, 0)?])?;
            let row = graph
                .op("StridedSlice")
                .input(&dense_shape)
                .input(&int_vector(graph, &[1])?)
                .input(&int_vector(graph, &[0])?)
                .input(&int_vector(graph, &[1])?)
                .attr("end_mask", 1i64)
                .try_build()?
                .try_output(0)?;
            concat(&[&size, &row])?
        }
    };
    let values = reshape(grad, &values_shape)?;
    let indices = reshape(&indices, &flat)?;
    Ok(Grad::Slices(IndexedSlices { values, indices, dense_shape: Some(dense_shape) }))
}

/// Returns the shape of `params` as `int32`, computed on the device of `params`.
fn params_shape(params: &Output) -> Result<Output> {
    params.graph().colocate_with(&params.op, |_| crate::compose::shape_of(params))
}

fn concat(parts: &[&Output]) -> Result<Output> {
    let graph = parts[0].graph();
    let joined = graph.op("ConcatV2").inputs(parts.iter().copied()).input(&int_scalar(graph, 0)?);
    joined.attr("N", parts.len() as i64).try_build()?.try_output(0)
}

fn gather_v2_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None]) };
    let axis = args.input(2).constant_value().and_then(|axis| axis.to_index().ok());
    if axis == Some(0) {
        return Ok(vec![Some(rows_gradient(args, &grad)?), None, None]);
    }
    let (params, indices) = (args.input(0), args.input(1));
    let graph = grad.graph();
    let shape = params_shape(&params)?;
    let rank = match params.shape().rank() {
        Some(rank) => Number::Known(rank as i32),
        None => Number::Computed(call("Size", &[&shape])?),
    };
    let axis = match (axis, &rank) {
        (Some(axis), &Number::Known(rank)) => Number::Known(checked_axis(axis, rank as usize, 0)? as i32),
        _ => Number::Computed(call("FloorMod", &[&cast(&args.input(2), DType::Int32)?, &rank.scalar(graph)?])?),
    };
    let mut batch_dims = args.op.attrs().int("batch_dims")?;
    if batch_dims < 0 {
        batch_dims += indices.shape().rank().ok_or_else(|| {
            Status::invalid_argument("the gradient of a gather with negative batch_dims needs the rank of the indices")
        })? as i64;
    }
    if !(0..=MAX_RANK).contains(&batch_dims) {
        return Err(Status::invalid_argument(format!("batch_dims = {batch_dims} is no number of dimensions")));
    }
    let batch_dims = Number::Known(batch_dims as i32);
    let back = axis_gradient(&shape, &indices, &grad, [rank, axis, batch_dims])?;
    back.set_shape(&params.shape())?;
    Ok(vec![Some(back.into()), None, None])
}

/// No tensor has more dimensions.
const MAX_RANK: i64 = 254;

/// A number that is known when the graph is built, or only when it runs.
enum Number {
    Known(i32),
    Computed(Output),
}

impl Number {
    fn scalar(&self, graph: &Graph) -> Result<Output> {
        match self {
            Number::Known(number) => int_scalar(graph, *number),
            Number::Computed(number) => Ok(number.clone()),
        }
    }

    fn vector(&self, graph: &Graph) -> Result<Output> {
        match self {
            Number::Known(number) => int_vector(graph, &[*number]),
            Number::Computed(number) => reshape(number, &int_vector(graph, &[1])?),
        }
    }

    fn plus_one(&self) -> Result<Number> {
        Ok(match self {
            Number::Known(number) => Number::Known(number + 1),
            Number::Computed(number) => Number::Computed(call("AddV2", &[number, &int_scalar(number.graph(), 1)?])?),
        })
    }

    /// Returns the integers from this number up to another.
    fn range(&self, end: &Number, graph: &Graph) -> Result<Output> {
        if let (&Number::Known(from), &Number::Known(to)) = (self, end) {
            return int_vector(graph, &(from..to).collect::<Vec<i32>>());
        }
        call("Range", &[&self.scalar(graph)?, &end.scalar(graph)?, &int_scalar(graph, 1)?])
    }
}

/// Moves the gathered axis after the batch dimensions, sums the gradients of each index, and moves it back.
fn axis_gradient(shape: &Output, indices: &Output, grad: &Output, numbers: [Number; 3]) -> Result<Output> {
    let [rank, axis, batch_dims] = numbers;
    let graph = grad.graph();
    let (zero, after_axis) = (Number::Known(0), axis.plus_one()?);
    let dims = |from: &Number, to: &Number| -> Result<Output> {
        let slice = graph.op("StridedSlice").input(shape).input(&from.vector(graph)?).input(&to.vector(graph)?);
        slice.input(&int_vector(graph, &[1])?).try_build()?.try_output(0)
    };
    let axes_up_to_batch = zero.range(&batch_dims, graph)?;
    let axes_up_to_axis = batch_dims.range(&axis, graph)?;
    let axes_after_axis = after_axis.range(&rank, graph)?;
    let minus_one = int_vector(graph, &[-1])?;
    let values_shape = concat(&[&dims(&zero, &axis)?, &minus_one, &dims(&after_axis, &rank)?])?;
    let values = reshape(grad, &values_shape)?;
    let forward = concat(&[&axes_up_to_batch, &axis.vector(graph)?, &axes_up_to_axis, &axes_after_axis])?;
    let moved_back = call("AddV2", &[&axes_up_to_axis, &int_scalar(graph, 1)?])?;
    let backward = concat(&[&axes_up_to_batch, &moved_back, &batch_dims.vector(graph)?, &axes_after_axis])?;
    let values = call("Transpose", &[&values, &forward])?;
    let axis_dim = dims(&axis, &after_axis)?;
    let axis_size = reshape(&axis_dim, &int_vector(graph, &[])?)?;
    // Each batch is summed into its own range.
    let batch_shape = dims(&zero, &batch_dims)?;
    let batches = call("Prod", &[&batch_shape, &int_vector(graph, &[0])?])?;
    let inner_shape = concat(&[&dims(&batch_dims, &axis)?, &dims(&after_axis, &rank)?])?;
    let flat_values = reshape(&values, &concat(&[&minus_one, &inner_shape])?)?;
    let rows = cast(indices, DType::Int32)?;
    let rows = call("Reshape", &[&rows, &call("Pack", &[&batches, &int_scalar(graph, -1)?])?])?;
    let offsets = call("Range", &[&int_scalar(graph, 0)?, &batches, &int_scalar(graph, 1)?])?;
    let offsets = call("Mul", &[&offsets, &axis_size])?;
    let offsets = call("ExpandDims", &[&offsets, &int_scalar(graph, 1)?])?;
    let rows = reshape(&call("AddV2", &[&rows, &offsets])?, &minus_one)?;
    let count = call("Mul", &[&batches, &axis_size])?;
    let summed = call("UnsortedSegmentSum", &[&flat_values, &rows, &count])?;
    let summed = reshape(&summed, &concat(&[&batch_shape, &axis_dim, &inner_shape])?)?;
    call("Transpose", &[&summed, &backward])
}

fn gather_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let params = c.with_rank_at_least(0, 1)?;
    let shape = match params.rank() {
        Some(rank) => c.input(1).concat(&params.slice(1, rank)),
        None => PartialShape::unknown(),
    };
    c.set_output(0, shape);
    Ok(())
}

fn gather_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let params = c.with_rank_at_least(0, 1)?;
    let indices = c.input(1);
    c.with_rank(2, 0)?;
    let batch_dims = c.attrs.int("batch_dims")?;
    let (Some(rank), Some(indices_rank)) = (params.rank(), indices.rank()) else { return Ok(()) };
    let batch_dims = checked_batch_dims(batch_dims, rank, indices_rank)?;
    let shape = match c.constant(2) {
        Some(axis) => {
            let axis = checked_axis(axis.to_index()?, rank, batch_dims)?;
            let batch = params.slice(0, batch_dims).merge(&indices.slice(0, batch_dims))?;
            batch
                .concat(&params.slice(batch_dims, axis))
                .concat(&indices.slice(batch_dims, indices_rank))
                .concat(&params.slice(axis + 1, rank))
        }
        None => PartialShape::unknown_of_rank(rank + indices_rank - 1 - batch_dims),
    };
    c.set_output(0, shape);
    Ok(())
}

fn checked_batch_dims(batch_dims: i64, rank: usize, indices_rank: usize) -> Result<usize> {
    let bound = indices_rank as i64;
    let wrapped = if batch_dims < 0 { batch_dims.saturating_add(bound) } else { batch_dims };
    if wrapped < 0 || wrapped > bound {
        return Err(Status::invalid_argument(format!(
            "Expected batch_dims in the range [{}, {bound}], but got {batch_dims}",
            -bound
        )));
    }
    if wrapped >= rank as i64 && wrapped > 0 {
        return Err(Status::invalid_argument(format!(
            "batch_dims ({wrapped}) must be less than rank(params) ({rank})."
        )));
    }
    Ok(wrapped as usize)
}

fn checked_axis(axis: i64, rank: usize, batch_dims: usize) -> Result<usize> {
    let bound = rank as i64;
    if axis < -bound || axis >= bound {
        return Err(Status::invalid_argument(format!(
            "Expected axis in the range [{}, {bound}), but got {axis}",
            -bound
        )));
    }
    let axis = if axis < 0 { axis + bound } else { axis } as usize;
    if axis < batch_dims {
        return Err(Status::invalid_argument(format!(
            "batch_dims ({batch_dims}) must be less than or equal to axis ({axis})."
        )));
    }
    Ok(axis)
}

struct Gather {
    batch_dims: i64,
}

impl Kernel for Gather {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let indices = context.input(1)?;
        let axis = if context.num_inputs() > 2 {
            let axis = context.input(2)?;
            if axis.num_elements() != 1 {
                return Err(Status::invalid_argument(format!("axis must be scalar, got shape {}", axis.shape())));
            }
            axis.to_index()?
        } else {
            0
        };
        let output = context.with_rows(0, |params| gathered(params, indices, axis, self.batch_dims))?;
        context.set_output(0, output);
        Ok(())
    }

    fn takes_refs(&self) -> bool {
        true
    }
}

/// Returns slices of `params` along `axis`.
pub(crate) fn gathered(params: &Tensor, indices: &Tensor, axis: i64, batch_dims: i64) -> Result<Tensor> {
    let rank = params.shape().rank();
    if rank == 0 {
        return Err(Status::invalid_argument("params must be at least 1 dimensional"));
    }
    let batch_dims = checked_batch_dims(batch_dims, rank, indices.shape().rank())?;
    let axis = checked_axis(axis, rank, batch_dims)?;
    if let Some(axis) = (0..batch_dims).find(|&axis| params.dims()[axis] != indices.dims()[axis]) {
        return Err(Status::invalid_argument(format!(
            "params.shape[{axis}]: {} should be equal to indices.shape[{axis}]: {}",
            params.dims()[axis],
            indices.dims()[axis]
        )));
    }
    let dims: SmallVec<[i64; 8]> = params.dims()[..axis]
        .iter()
        .chain(&indices.dims()[batch_dims..])
        .chain(&params.dims()[axis + 1..])
        .copied()
        .collect();
    let shape = Shape::new(&dims)?;
    let count = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let plan = GatherPlan {
        batches: count(&params.dims()[..batch_dims]),
        outer: count(&params.dims()[batch_dims..axis]),
        size: params.shape().size(axis),
        inner: count(&params.dims()[axis + 1..]),
    };
    match indices.dtype() {
        DType::Int16 => plan.run(params, indices, indices.as_slice::<i16>()?, shape),
        DType::Int32 => plan.run(params, indices, indices.as_slice::<i32>()?, shape),
        _ => plan.run(params, indices, indices.as_slice::<i64>()?, shape),
    }
}

struct GatherPlan {
    batches: usize,
    outer: usize,
    /// The number of slices along the axis.
    size: usize,
    inner: usize,
}

impl GatherPlan {
    fn run<I: Element + TryInto<usize>>(
        &self,
        params: &Tensor,
        indices: &Tensor,
        values: &[I],
        shape: Shape,
    ) -> Result<Tensor> {
        check_indices(values, indices.shape(), self.size)?;
        with_movable!(params.dtype(), E => {
            let from = E::view(params)?;
            E::build(params.dtype(), shape, |to| self.copy(from, values, to))
        })
    }

    fn copy<E: Movable, I: Element + TryInto<usize>>(&self, from: &[E], indices: &[I], to: &mut [E]) {
        if to.is_empty() {
            return;
        }
        let per_batch = indices.len() / self.batches;
        let (from_len, to_len) = (self.outer * self.size * self.inner, self.outer * per_batch * self.inner);
        let batches = from.chunks_exact(from_len).zip(to.chunks_exact_mut(to_len)).zip(indices.chunks_exact(per_batch));
        for ((from, to), indices) in batches {
            E::gather_rows(from, [self.outer, self.size, self.inner], indices, to);
        }
    }
}

/// Checks that every index is in `0..size`.
pub(crate) fn check_indices<I: Element + TryInto<usize>>(indices: &[I], shape: &Shape, size: usize) -> Result<()> {
    let is_outside = |&index: &I| index.try_into().map_or(true, |index: usize| index >= size);
    match indices.iter().position(is_outside) {
        Some(position) => {
            let place = position_text(shape.dims(), position);
            Err(Status::invalid_argument(format!("indices{place} = {:?} is not in [0, {size})", indices[position])))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use graph::Graph;
    use tensor::{DType, Shape, Tensor};

    fn counted(dims: &[i64]) -> Tensor {
        let count: i64 = dims.iter().product();
        Tensor::from_slice(dims, &(0..count).map(|value| value as f64).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn rows() {
        let x = counted(&[3, 2]);
        let y = run_op("Gather", attrs![], &[x.clone(), Tensor::vector(&[2i32, 0])]).unwrap();
        assert_eq!(y[0].as_slice::<f64>().unwrap(), &[4., 5., 0., 1.]);
        let y = run_op("GatherV2", attrs![], &[x.clone(), Tensor::scalar(1i64), Tensor::scalar(-1i32)]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<f64>().unwrap()), (&[3i64][..], &[1., 3., 5.][..]));
        let indices = Tensor::from_slice(&[1, 2], &[0i32, 3]).unwrap();
        let status = run_op("GatherV2", attrs![], &[x.clone(), indices, Tensor::scalar(0i64)]).unwrap_err();
        assert!(status.message().contains("indices[0,1] = 3 is not in [0, 3)"), "{status}");
        assert!(run_op("Gather", attrs![], &[x.clone(), Tensor::vector(&[-1i32])]).is_err());
        assert!(run_op("GatherV2", attrs![], &[x, Tensor::vector(&[0i32]), Tensor::scalar(2i32)]).is_err());
        let text = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        let y = run_op("Gather", attrs![], &[text, Tensor::vector(&[1i64, 1])]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["b", "b"]);
    }

    #[test]
    fn batches() {
        let x = counted(&[2, 2, 3]);
        let indices = Tensor::from_slice(&[2, 2], &[2i32, 0, 1, 1]).unwrap();
        let attrs = attrs![("batch_dims", 1i64)];
        let y = run_op("GatherV2", attrs.clone(), &[x.clone(), indices.clone(), Tensor::scalar(2i32)]).unwrap();
        assert_eq!(y[0].dims(), [2, 2, 2]);
        assert_eq!(y[0].as_slice::<f64>().unwrap(), &[2., 0., 5., 3., 7., 7., 10., 10.]);
        assert!(run_op("GatherV2", attrs, &[x, indices, Tensor::scalar(0i32)]).is_err());
    }

    #[test]
    fn a_variable_is_not_copied_for_its_rows() {
        use kernel::{BoxedKernel, OpContext, Outputs, Step, Value, Values, Variable};
        use std::sync::Arc;
        let graph = Graph::with_ops(crate::registry());
        let params = graph.op("Placeholder").attr("dtype", DType::Double).output();
        let indices = graph.op("Placeholder").attr("dtype", DType::Int32).output();
        let id = super::gather(&params, &indices, 0).op.id();
        let node = graph.graph().node(id).clone();
        let BoxedKernel::Sync(kernel) = crate::registry().create_kernel(&node, "").unwrap() else { panic!() };
        assert!(kernel.takes_refs());
        let variable = Arc::new(Variable::new("v", DType::Double, Default::default()));
        variable.assign(counted(&[3, 2])).unwrap();
        let mut inputs: Values =
            [Value::Ref(variable.clone()), Value::Tensor(Tensor::vector(&[1i32])), Value::Tensor(Tensor::scalar(0i32))]
                .into_iter()
                .collect();
        let mut outputs: Outputs = [Value::None].into_iter().collect();
        let step = Arc::new(Step::detached());
        let mut context = OpContext::new(&mut inputs, &mut outputs, &step, "n", Default::default(), false);
        kernel.compute(&mut context).unwrap();
        assert_eq!(context.output(0).unwrap().as_slice::<f64>().unwrap(), &[2., 3.]);
        variable.update(|tensor| Ok(assert!(tensor.is_unique()))).unwrap();
    }

    #[test]
    fn shapes() {
        check_shape("Gather", attrs![], "[5,?,3];[2,?]", "[2,?,?,3]");
        let shape = infer("GatherV2", attrs![], "[5,?,3];[2]", &[(2, Tensor::scalar(1i32))]).unwrap();
        assert_eq!(shape[0].to_string(), "[5,2,3]");
        check_shape("GatherV2", attrs![], "[5,3];[2];[]", "[?,?]");
        let attrs = attrs![("batch_dims", -1i64)];
        let shape = infer("GatherV2", attrs, "[5,7,3];[?,2]", &[(2, Tensor::scalar(1i32))]).unwrap();
        assert_eq!(shape[0].to_string(), "[5,2,3]");
    }

    #[test]
    fn gradients() {
        let x = counted(&[3, 2]);
        let indices = Tensor::from_slice(&[2, 2], &[2i32, 0, 2, 2]).unwrap();
        check_gradient(&[x.clone(), indices.clone()], |_, xs| super::gather(&xs[0], &xs[1], 0));
        check_gradient(&[x.clone(), Tensor::vector(&[1i64, 1])], |_, xs| super::gather(&xs[0], &xs[1], 1));
        check_gradient(&[x, indices], |graph: &Graph, xs| graph.op("Gather").input(&xs[0]).input(&xs[1]).output());
        let indices = Tensor::from_slice(&[2, 2], &[2i32, 0, 1, 1]).unwrap();
        check_gradient(&[counted(&[2, 2, 3]), indices], |graph: &Graph, xs| {
            let axis = graph.constant_tensor(&Tensor::scalar(2i32));
            graph.op("GatherV2").inputs([&xs[0], &xs[1], &axis]).attr("batch_dims", 1i64).output()
        });
    }
}
