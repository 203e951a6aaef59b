//! Slices with steps, negative indices and new axes: StridedSlice, its gradient, and assignment to slices of variables.

use super::broadcast_to::broadcast;
use super::slice_index::SliceIndex;
use super::slice_spec::{SliceMasks, SliceSpec, sliced_shape};
use crate::compose::{call, constant, reshape, sum};
use crate::movement::{Movable, Rearrangement, rearranged};
use graph::builder::OpBuilder;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
    shape,
};
use numeric::slice_copy::{self, SliceAxis};
use smallvec::SmallVec;
use tensor::{DType, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "StridedSlice",
            inputs: &["input: T", "begin: Index", "end: Index", "strides: Index"],
            outputs: &["output: T"],
            attrs: &[
                "T: type",
                "Index: {int16, int32, int64}",
                "begin_mask: int = 0",
                "end_mask: int = 0",
                "ellipsis_mask: int = 0",
                "new_axis_mask: int = 0",
                "shrink_axis_mask: int = 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: strided_slice_shape,
        gradient: Gradient::Fn(strided_slice_gradient),
        kernels: &[KernelDef::any(StridedSlice::create)],
    },
    Op {
        def: OpDef {
            name: "StridedSliceGrad",
            inputs: &["shape: Index", "begin: Index", "end: Index", "strides: Index", "dy: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: type",
                "Index: {int32, int64}",
                "begin_mask: int = 0",
                "end_mask: int = 0",
                "ellipsis_mask: int = 0",
                "new_axis_mask: int = 0",
                "shrink_axis_mask: int = 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: strided_slice_grad_shape,
        gradient: Gradient::Fn(strided_slice_grad_gradient),
        kernels: &[KernelDef::any(StridedSliceGrad::create)],
    },
    Op {
        def: OpDef {
            name: "StridedSliceAssign",
            inputs: &["ref: Ref(T)", "begin: Index", "end: Index", "strides: Index", "value: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs: &[
                "T: type",
                "Index: {int32, int64}",
                "begin_mask: int = 0",
                "end_mask: int = 0",
                "ellipsis_mask: int = 0",
                "new_axis_mask: int = 0",
                "shrink_axis_mask: int = 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(StridedSliceAssign::create)],
    },
    Op {
        def: OpDef {
            name: "ResourceStridedSliceAssign",
            inputs: &["ref: resource", "begin: Index", "end: Index", "strides: Index", "value: T"],
            outputs: &[],
            attrs: &[
                "T: type",
                "Index: {int32, int64}",
                "begin_mask: int = 0",
                "end_mask: int = 0",
                "ellipsis_mask: int = 0",
                "new_axis_mask: int = 0",
                "shrink_axis_mask: int = 0",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(StridedSliceAssign::create)],
    },
    Op {
        def: OpDef {
            name: "TensorStridedSliceUpdate",
            inputs: &["input: T", "begin: Index", "end: Index", "strides: Index", "value: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: type",
                "Index: {int32, int64}",
                "begin_mask: int = 0",
                "end_mask: int = 0",
                "ellipsis_mask: int = 0",
                "new_axis_mask: int = 0",
                "shrink_axis_mask: int = 0",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(tensor_strided_slice_update_gradient),
        kernels: &[KernelDef::any(TensorStridedSliceUpdate::create)],
    },
];

/// Returns a slice of `input`, as Python's `input[entries]`.
#[track_caller]
pub fn strided_slice(input: &Output, entries: &[SliceIndex]) -> Output {
    let (mut begin, mut end, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    let mut masks = SliceMasks::default();
    for (index, entry) in entries.iter().enumerate() {
        let bit = 1i64 << index.min(62);
        let (from, to, stride) = match *entry {
            SliceIndex::At(at) => {
                masks.shrink_axis |= bit;
                (Some(at), Some(at.wrapping_add(1)), 1)
            }
            SliceIndex::Range(from, to) => (from, to, 1),
            SliceIndex::Strided(from, to, stride) => (from, to, stride),
            SliceIndex::Ellipsis => {
                masks.ellipsis |= bit;
                (Some(0), Some(0), 1)
            }
            SliceIndex::NewAxis => {
                masks.new_axis |= bit;
                (Some(0), Some(1), 1)
            }
        };
        masks.begin |= if from.is_none() { bit } else { 0 };
        masks.end |= if to.is_none() { bit } else { 0 };
        begin.push(from.unwrap_or(0));
        end.push(to.unwrap_or(0));
        strides.push(stride);
    }
    let graph = input.graph();
    let vector = |values: &[i32]| graph.constant_tensor(&Tensor::vector(values));
    let slice = graph.op("StridedSlice").input(input).input(&vector(&begin)).input(&vector(&end));
    with_masks(slice.input(&vector(&strides)), masks).output()
}

fn with_masks(builder: OpBuilder, masks: SliceMasks) -> OpBuilder {
    builder
        .attr("begin_mask", masks.begin)
        .attr("end_mask", masks.end)
        .attr("ellipsis_mask", masks.ellipsis)
        .attr("new_axis_mask", masks.new_axis)
        .attr("shrink_axis_mask", masks.shrink_axis)
}

fn strided_slice_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let graph = grad.graph();
    let index_type = args.input(1).dtype();
    let shape = shape_as(&args.input(0), index_type)?;
    let mut builder = graph.op("StridedSliceGrad").input(&shape);
    for index in 1..4 {
        builder = builder.input(&args.input(index));
    }
    let masks = SliceMasks::from_attrs(&args.op.attrs())?;
    let back = with_masks(builder.input(&grad), masks).try_build()?.try_output(0)?;
    Ok(vec![Some(back.into()), None, None, None])
}

fn strided_slice_grad_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 5]) };
    Ok(vec![None, None, None, None, Some(sliced_like(args, &grad)?.into())])
}

/// Slices a gradient in the same way as the op's input.
fn sliced_like(args: &GradientArgs<'_>, grad: &Output) -> Result<Output> {
    let mut builder = grad.graph().op("StridedSlice").input(grad);
    for index in 1..4 {
        builder = builder.input(&args.input(index));
    }
    with_masks(builder, SliceMasks::from_attrs(&args.op.attrs())?).try_build()?.try_output(0)
}

fn tensor_strided_slice_update_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 5]) };
    let graph = grad.graph();
    let part = sliced_like(args, &grad)?;
    let mut builder = graph.op("TensorStridedSliceUpdate").input(&grad);
    for index in 1..4 {
        builder = builder.input(&args.input(index));
    }
    let zeros = call("ZerosLike", &[&part])?;
    let masks = SliceMasks::from_attrs(&args.op.attrs())?;
    let rest = with_masks(builder.input(&zeros), masks).try_build()?.try_output(0)?;
    // The value may have been broadcast to the slice.
    let (slice_shape, value_shape) = (shape_as(&part, DType::Int32)?, shape_as(&args.input(4), DType::Int32)?);
    let axes = graph.op("BroadcastGradientArgs").input(&slice_shape).input(&value_shape).try_build()?.try_output(1)?;
    let value = reshape(&sum(&part, &axes, true)?, &value_shape)?;
    Ok(vec![Some(rest.into()), None, None, None, Some(value.into())])
}

fn shape_as(output: &Output, dtype: DType) -> Result<Output> {
    if let (Some(shape), DType::Int64) = (output.full_shape(), dtype) {
        return constant(output.graph(), &Tensor::vector(shape.dims()));
    }
    output.graph().op("Shape").input(output).attr("out_type", dtype).try_build()?.try_output(0)
}

fn strided_slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    for index in 1..4 {
        c.with_rank(index, 1)?;
    }
    let entries = c.input(1).merge(&c.input(2))?.merge(&c.input(3))?;
    let (Some(_), Some(strides)) = (entries.dim(0), c.constant(3)) else { return Ok(()) };
    let masks = SliceMasks::from_attrs(c.attrs)?;
    let bound = |index: usize| c.constant(index).map(|value| index_values(&value)).transpose();
    let (begin, end) = (bound(1)?, bound(2)?);
    let shape = sliced_shape(&input, begin.as_deref(), end.as_deref(), &index_values(&strides)?, masks)?;
    c.set_output(0, shape);
    if masks.shrink_axis == 0 && masks.new_axis == 0 {
        // Slices of handles are handles alike.
        if let (Some(from), Some(to)) = (c.input_handles.first(), c.output_handles.first_mut()) {
            to.clone_from(from);
        }
    }
    Ok(())
}

fn strided_slice_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?;
    c.set_output(0, shape);
    Ok(())
}

/// Returns indices of any type that slices support.
fn index_values(tensor: &Tensor) -> Result<Vec<i64>> {
    match tensor.dtype() {
        DType::Int16 => Ok(tensor.as_slice::<i16>()?.iter().map(|&value| i64::from(value)).collect()),
        _ => tensor.to_indices(),
    }
}

/// Resolves a slice from the inputs `1..4`.
fn spec_of(context: &OpContext<'_>, shape: &Shape, masks: SliceMasks) -> Result<SliceSpec> {
    let shapes = [context.input(1)?.shape(), context.input(2)?.shape(), context.input(3)?.shape()];
    if !shapes[0].is_vector() || shapes[1] != shapes[0] || shapes[2] != shapes[0] {
        return Err(Status::invalid_argument(format!(
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, and {} instead.",
            shapes[0], shapes[1], shapes[2]
        )));
    }
    let vector = |index: usize| index_values(context.input(index)?);
    SliceSpec::new(shape, &vector(1)?, &vector(2)?, &vector(3)?, masks)
}

struct StridedSlice {
    masks: SliceMasks,
}

impl StridedSlice {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(StridedSlice { masks: SliceMasks::from_attrs(builder.attrs())? })
    }
}

impl Kernel for StridedSlice {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = context.input(0)?.shape().clone();
        let spec = spec_of(context, &shape, self.masks)?;
        let output = if spec.is_everything(&shape) {
            context.take_input(0)?.into_shape(spec.shape)?
        } else if let Some((from, to)) = spec.rows(&shape) {
            context.input(0)?.slice_rows(from, to)?.into_shape(spec.shape)?
        } else {
            let axes = slice_axes(&spec);
            let slice = Take { dims: shape.to_usize(), axes };
            rearranged(context.input(0)?, spec.shape, &slice)?
        };
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

fn slice_axes(spec: &SliceSpec) -> SmallVec<[SliceAxis; 6]> {
    let axis = |range: &super::slice_spec::SliceRange| SliceAxis {
        begin: range.begin as usize,
        stride: range.stride as isize,
        len: range.len as usize,
    };
    spec.ranges.iter().map(axis).collect()
}

/// Returns a slice of a tensor.
pub(super) struct Take {
    pub(super) dims: SmallVec<[usize; 6]>,
    pub(super) axes: SmallVec<[SliceAxis; 6]>,
}

impl Rearrangement for Take {
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        slice_copy::strided_slice(from, &self.dims, &self.axes, to);
    }
}

/// Writes a tensor into a slice of another one.
pub(super) struct Put {
    pub(super) dims: SmallVec<[usize; 6]>,
    pub(super) axes: SmallVec<[SliceAxis; 6]>,
}

impl Rearrangement for Put {
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        slice_copy::strided_slice_assign(from, to, &self.dims, &self.axes);
    }
}

struct StridedSliceGrad {
    masks: SliceMasks,
}

impl StridedSliceGrad {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(StridedSliceGrad { masks: SliceMasks::from_attrs(builder.attrs())? })
    }
}

impl Kernel for StridedSliceGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let dims = context.input(0)?;
        if !dims.shape().is_vector() {
            return Err(Status::invalid_argument(format!("shape must be 1-D, got shape {}", dims.shape())));
        }
        let shape = Shape::new(&dims.to_indices()?)?;
        let spec = spec_of(context, &shape, self.masks)?;
        let grad = context.input(4)?;
        if grad.shape() != &spec.shape {
            return Err(Status::invalid_argument(format!(
                "shape of dy was {} instead of {}",
                grad.shape(),
                spec.shape
            )));
        }
        let output = if spec.is_everything(&shape) {
            context.take_input(4)?.into_shape(shape)?
        } else {
            put(Tensor::zeros(grad.dtype(), shape)?, &spec, grad)?
        };
        context.set_output(0, output);
        Ok(())
    }
}

/// Writes `value`, which has the shape of the slice, into a slice of `target`.
fn put(target: Tensor, spec: &SliceSpec, value: &Tensor) -> Result<Tensor> {
    let put = Put { dims: target.shape().to_usize(), axes: slice_axes(spec) };
    with_movable!(value.dtype(), E => {
        let from = E::view(value)?;
        E::modify(target, |to| {
            E::rearrange(&put, from, to);
            Ok(())
        })
    })
}

/// As [`put`], with a value that is broadcast to the slice.
fn put_broadcast(target: Tensor, spec: &SliceSpec, value: &Tensor) -> Result<Tensor> {
    if value.shape() == &spec.shape {
        return put(target, spec, value);
    }
    put(target, spec, &broadcast(value, spec.shape.clone())?)
}

struct StridedSliceAssign {
    masks: SliceMasks,
    dtype: DType,
}

impl StridedSliceAssign {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let masks = SliceMasks::from_attrs(builder.attrs())?;
        BoxedKernel::new(StridedSliceAssign { masks, dtype: builder.input_dtype(4) })
    }
}

impl Kernel for StridedSliceAssign {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        if variable.dtype() != self.dtype {
            return Err(Status::invalid_argument(format!(
                "l-value dtype {} does not match r-value dtype {}",
                variable.dtype(),
                self.dtype
            )));
        }
        let value = context.input(4)?;
        variable.update(|tensor| {
            let spec = spec_of(context, tensor.shape(), self.masks)?;
            // Checked first, so that an error leaves the variable unchanged.
            let value = match value.shape() == &spec.shape {
                true => value.clone(),
                false => broadcast(value, spec.shape.clone())?,
            };
            let empty = Tensor::zeros(self.dtype, Shape::vector(0))?;
            let old = std::mem::replace(tensor, empty);
            *tensor = put(old, &spec, &value)?;
            Ok(())
        })?;
        if context.num_outputs() > 0 {
            context.set_output_ref(0, variable);
        }
        Ok(())
    }
}

struct TensorStridedSliceUpdate {
    masks: SliceMasks,
}

impl TensorStridedSliceUpdate {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(TensorStridedSliceUpdate { masks: SliceMasks::from_attrs(builder.attrs())? })
    }
}

impl Kernel for TensorStridedSliceUpdate {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = context.input(0)?.shape().clone();
        let spec = spec_of(context, &shape, self.masks)?;
        let target = context.take_input(0)?;
        let output = put_broadcast(target, &spec, context.input(4)?)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// The mask attributes, for tests and other builders.
#[cfg(test)]
fn mask_attrs(masks: SliceMasks) -> graph::AttrMap {
    let mut attrs = graph::AttrMap::default();
    attrs.set("begin_mask", masks.begin);
    attrs.set("end_mask", masks.end);
    attrs.set("ellipsis_mask", masks.ellipsis);
    attrs.set("new_axis_mask", masks.new_axis);
    attrs.set("shrink_axis_mask", masks.shrink_axis);
    attrs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};
    use SliceIndex::{At, Ellipsis, NewAxis, Range, Strided};

    fn counted(dims: &[i64]) -> Tensor {
        let count: i64 = dims.iter().product();
        Tensor::from_slice(dims, &(0..count).map(|value| value as f64).collect::<Vec<_>>()).unwrap()
    }

    fn entries(values: &[i32]) -> Tensor {
        Tensor::vector(values)
    }

    #[test]
    fn values() {
        let x = counted(&[3, 4]);
        let slice = |begin: &[i32], end: &[i32], strides: &[i32], masks: SliceMasks| {
            let inputs = [x.clone(), entries(begin), entries(end), entries(strides)];
            run_op("StridedSlice", mask_attrs(masks), &inputs).map(|y| y.into_iter().next().unwrap())
        };
        let y = slice(&[0, 1], &[3, 4], &[2, 2], SliceMasks::default()).unwrap();
        assert_eq!((y.dims(), y.as_slice::<f64>().unwrap()), (&[2i64, 2][..], &[1., 3., 9., 11.][..]));
        let y = slice(&[2, 0], &[0, 0], &[-1, -1], SliceMasks { end: 3, begin: 2, ..Default::default() }).unwrap();
        assert_eq!(y.as_slice::<f64>().unwrap()[..4], [11., 10., 9., 8.]);
        let y = slice(&[1], &[2], &[1], SliceMasks { shrink_axis: 1, ..Default::default() }).unwrap();
        assert_eq!(y.as_slice::<f64>().unwrap(), &[4., 5., 6., 7.]);
        assert!(slice(&[5], &[6], &[1], SliceMasks { shrink_axis: 1, ..Default::default() }).is_err());
        assert!(slice(&[0, 0], &[1], &[1], SliceMasks::default()).is_err());
        let text = Tensor::from_strings(Shape::vector(3), vec!["a".into(), "b".into(), "c".into()]).unwrap();
        let y = run_op("StridedSlice", attrs![], &[text, entries(&[2]), entries(&[-4]), entries(&[-2])]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["c", "a"]);
    }

    #[test]
    fn updates() {
        let x = counted(&[2, 2]);
        let inputs = [x, entries(&[0, 0]), entries(&[2, 1]), entries(&[1, 1]), Tensor::scalar(9f64)];
        let y = run_op("TensorStridedSliceUpdate", attrs![], &inputs).unwrap();
        assert_eq!(y[0].as_slice::<f64>().unwrap(), &[9., 1., 9., 3.]);
    }

    #[test]
    fn assignment_changes_the_variable_in_place() {
        use kernel::{Outputs, Step, Value, Values, Variable};
        use std::sync::Arc;
        let variable = Arc::new(Variable::new("v", DType::Double, tensor::PartialShape::unknown()));
        variable.assign(counted(&[4])).unwrap();
        let kernel = StridedSliceAssign { masks: SliceMasks::default(), dtype: DType::Double };
        let assign = |begin: i32, value: Tensor| {
            let mut inputs: Values =
                [entries(&[begin]), entries(&[4]), entries(&[2]), value].into_iter().map(Value::Tensor).collect();
            inputs.insert(0, Value::Ref(variable.clone()));
            let mut outputs: Outputs = [Value::None].into_iter().collect();
            let step = Arc::new(Step::detached());
            kernel.compute(&mut OpContext::new(&mut inputs, &mut outputs, &step, "n", Default::default(), false))
        };
        assign(1, Tensor::vector(&[7f64, 8.0])).unwrap();
        assert_eq!(variable.read().unwrap().as_slice::<f64>().unwrap(), &[0., 7., 2., 8.]);
        assert!(assign(0, Tensor::vector(&[1f64, 2.0, 3.0])).is_err());
        assert_eq!(variable.read().unwrap().as_slice::<f64>().unwrap(), &[0., 7., 2., 8.]);
    }

    #[test]
    fn shapes() {
        let constants = [(1, entries(&[0, 1])), (2, entries(&[0, 3])), (3, entries(&[1, 1]))];
        let masks = mask_attrs(SliceMasks { begin: 1, end: 1, ..Default::default() });
        let shapes = infer("StridedSlice", masks, "[?,4];[2];[2];[2]", &constants).unwrap();
        assert_eq!(shapes[0].to_string(), "[?,2]");
        let shapes = infer("StridedSliceGrad", attrs![], "[2];[1];[1];[1];[3]", &[(0, entries(&[5, 6]))]).unwrap();
        assert_eq!(shapes[0].to_string(), "[5,6]");
    }

    #[test]
    fn gradients() {
        let x = counted(&[3, 4]);
        for slice in [
            &[Range(Some(1), None)][..],
            &[Strided(None, None, -2), At(1)],
            &[NewAxis, Ellipsis, Range(Some(-3), Some(-1))],
        ] {
            check_gradient(&[x.clone()], |_, xs| strided_slice(&xs[0], slice));
        }
        check_gradient(&[x, Tensor::scalar(3f64)], |graph, xs| {
            let vector = |values: &[i32]| graph.constant_tensor(&entries(values));
            let update = graph.op("TensorStridedSliceUpdate").input(&xs[0]).input(&vector(&[1])).input(&vector(&[3]));
            update.input(&vector(&[1])).input(&xs[1]).output()
        });
    }
}
