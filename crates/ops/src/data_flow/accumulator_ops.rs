//! Ops on accumulators, which collect the gradients of synchronous replicas: ConditionalAccumulator and the ops on it, in the
//! versions by string ref, by resource, and for sparse gradients.

use super::accumulator::{Accumulator, AccumulatorOptions};
use super::resource_op::ResourceOp;
use graph::{Graph, Operation, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, ShapeContext, ShapeFn, shape,
};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Status, Tensor};

const STRINGS: &str = "handle: Ref(string)";
const RESOURCE: &str = "handle: resource";
const DTYPE: &str = numbertype!("dtype");
const MAKING: &[&str] = &[
    DTYPE,
    "shape: shape",
    "container: string = ''",
    "shared_name: string = ''",
    "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ConditionalAccumulator",
            inputs: &[],
            outputs: &[STRINGS],
            attrs: MAKING,
            flags: OpFlags::STATEFUL,
        },
        shape: strings_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: DENSE,
    },
    Op {
        def: OpDef {
            name: "SparseConditionalAccumulator",
            inputs: &[],
            outputs: &[STRINGS],
            attrs: MAKING,
            flags: OpFlags::STATEFUL,
        },
        shape: strings_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: SPARSE,
    },
    Op {
        def: OpDef {
            name: "ResourceConditionalAccumulator",
            inputs: &[],
            outputs: &[RESOURCE],
            attrs: MAKING,
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: DENSE,
    },
    user(
        "AccumulatorApplyGradient",
        &[STRINGS, "local_step: int64", "gradient: dtype"],
        &[],
        &[DTYPE],
        shape::unknown,
        APPLY,
    ),
    user(
        "ResourceAccumulatorApplyGradient",
        &[RESOURCE, "local_step: int64", "gradient: dtype"],
        &[],
        &[DTYPE],
        shape::unknown,
        APPLY,
    ),
    user(
        "SparseAccumulatorApplyGradient",
        &[STRINGS, "local_step: int64", "gradient_indices: int64", "gradient_values: dtype", "gradient_shape: int64"],
        &[],
        &[DTYPE, "has_known_shape: bool"],
        shape::unknown,
        APPLY_ROWS,
    ),
    user(
        "AccumulatorTakeGradient",
        &[STRINGS, "num_required: int32"],
        &["average: dtype"],
        &[DTYPE],
        shape::unknown,
        TAKE,
    ),
    user(
        "ResourceAccumulatorTakeGradient",
        &[RESOURCE, "num_required: int32"],
        &["average: dtype"],
        &[DTYPE],
        shape::unknown,
        TAKE,
    ),
    user(
        "SparseAccumulatorTakeGradient",
        &[STRINGS, "num_required: int32"],
        &["indices: int64", "values: dtype", "shape: int64"],
        &[DTYPE],
        shape::unknown,
        TAKE,
    ),
    user("AccumulatorNumAccumulated", &[STRINGS], &["num_accumulated: int32"], &[], shape::scalar, NUM_ACCUMULATED),
    user(
        "ResourceAccumulatorNumAccumulated",
        &[RESOURCE],
        &["num_accumulated: int32"],
        &[],
        shape::scalar,
        NUM_ACCUMULATED,
    ),
    user("AccumulatorSetGlobalStep", &[STRINGS, "new_global_step: int64"], &[], &[], shape::unknown, SET_GLOBAL_STEP),
    user(
        "ResourceAccumulatorSetGlobalStep",
        &[RESOURCE, "new_global_step: int64"],
        &[],
        &[],
        shape::unknown,
        SET_GLOBAL_STEP,
    ),
];

const DENSE: &[KernelDef] = &[KernelDef::any(|builder| create_accumulator(builder, false))];
const SPARSE: &[KernelDef] = &[KernelDef::any(|builder| create_accumulator(builder, true))];
const APPLY: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(ApplyGradient))];
const APPLY_ROWS: &[KernelDef] = &[KernelDef::any(|builder| {
    BoxedKernel::new(ApplyRows { has_known_shape: builder.attrs().bool("has_known_shape")? })
})];
const TAKE: &[KernelDef] = &[KernelDef::any(|builder| {
    BoxedKernel::new_async(TakeGradient { dtype: builder.attrs().dtype("dtype")?, outputs: builder.output_dtypes() })
})];
const NUM_ACCUMULATED: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(NumAccumulated))];
const SET_GLOBAL_STEP: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(SetGlobalStep))];

/// An op on an accumulator; those by resource are stateful, those by ref aren't.
const fn user(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let flags = if name.as_bytes()[0] == b'R' { OpFlags::STATEFUL } else { OpFlags::NONE };
    Op { def: OpDef { name, inputs, outputs, attrs, flags }, shape, gradient: Gradient::NotDifferentiable, kernels }
}

/// Returns an accumulator of dense gradients; `mean` says whether it returns their mean or their sum.
#[track_caller]
pub fn conditional_accumulator(
    graph: &Graph,
    dtype: DType,
    shape: &PartialShape,
    shared_name: &str,
    mean: bool,
) -> Output {
    maker(graph, "ResourceConditionalAccumulator", dtype, shape, shared_name, mean)
}

/// Returns an accumulator of sparse gradients.
#[track_caller]
pub fn sparse_conditional_accumulator(
    graph: &Graph,
    dtype: DType,
    shape: &PartialShape,
    shared_name: &str,
    mean: bool,
) -> Output {
    maker(graph, "SparseConditionalAccumulator", dtype, shape, shared_name, mean)
}

#[track_caller]
fn maker(graph: &Graph, op: &str, dtype: DType, shape: &PartialShape, shared_name: &str, mean: bool) -> Output {
    let op = graph.op(op).attr("dtype", dtype).attr("shape", shape.clone()).attr("shared_name", shared_name);
    op.attr("reduction_type", if mean { "MEAN" } else { "SUM" }).output()
}

/// Adds a dense gradient that was computed in `local_step`.
#[track_caller]
pub fn accumulator_apply_gradient(accumulator: &Output, local_step: &Output, gradient: &Output) -> Operation {
    let op = accumulator.graph().op("ResourceAccumulatorApplyGradient").input(accumulator);
    op.input(local_step).input(gradient).build()
}

/// Adds rows of a gradient that was computed in `local_step`; `shape` is the shape of the whole gradient, if it is known.
#[track_caller]
pub fn sparse_accumulator_apply_gradient(
    accumulator: &Output,
    local_step: &Output,
    indices: &Output,
    values: &Output,
    shape: Option<&Output>,
) -> Operation {
    let graph = accumulator.graph();
    let known = shape.is_some();
    let shape = shape.cloned().unwrap_or_else(|| graph.constant_tensor(&Tensor::vector::<i64>(&[])));
    let op = graph.op("SparseAccumulatorApplyGradient").input(accumulator).input(local_step);
    op.input(indices).input(values).input(&shape).attr("has_known_shape", known).build()
}

/// Returns the mean or sum of the dense gradients, as soon as there are `num_required`.
#[track_caller]
pub fn accumulator_take_gradient(accumulator: &Output, num_required: &Output, dtype: DType) -> Output {
    let op = accumulator.graph().op("ResourceAccumulatorTakeGradient").input(accumulator);
    op.input(num_required).attr("dtype", dtype).output()
}

/// Returns indices, values and shape of the mean or sum of sparse gradients, as soon as there are `num_required`.
#[track_caller]
pub fn sparse_accumulator_take_gradient(accumulator: &Output, num_required: &Output, dtype: DType) -> Vec<Output> {
    let op = accumulator.graph().op("SparseAccumulatorTakeGradient").input(accumulator);
    op.input(num_required).attr("dtype", dtype).outputs()
}

/// Returns the number of gradients added since the last result was taken.
#[track_caller]
pub fn accumulator_num_accumulated(accumulator: &Output) -> Output {
    let resource = accumulator.dtype() == DType::Resource;
    let op = if resource { "ResourceAccumulatorNumAccumulated" } else { "AccumulatorNumAccumulated" };
    accumulator.graph().op(op).input(accumulator).output()
}

/// Sets the step; gradients of earlier steps are dropped.
#[track_caller]
pub fn accumulator_set_global_step(accumulator: &Output, new_global_step: &Output) -> Operation {
    let resource = accumulator.dtype() == DType::Resource;
    let op = if resource { "ResourceAccumulatorSetGlobalStep" } else { "AccumulatorSetGlobalStep" };
    accumulator.graph().op(op).input(accumulator).input(new_global_step).build()
}

fn strings_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::from_dims(&[2]));
    Ok(())
}

fn create_accumulator(builder: &KernelBuilder<'_>, sparse: bool) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let dtype = attrs.dtype("dtype")?;
    if !matches!(dtype, DType::Float | DType::Double | DType::Half | DType::BFloat16) {
        return Err(Status::invalid_argument(format!(
            "No OpKernel was registered to support Op '{}' with dtype {dtype}",
            builder.node.op()
        )));
    }
    let mean = attrs.string("reduction_type")? == "MEAN";
    let options = AccumulatorOptions { dtype, shape: attrs.shape("shape")?, mean, sparse };
    let wanted = options.clone();
    ResourceOp::boxed(
        builder,
        move |name| Ok(Accumulator::new(name, options.clone())),
        move |accumulator: &Accumulator, name| {
            let have = accumulator.options();
            if have.dtype != wanted.dtype || have.sparse != wanted.sparse {
                return Err(Status::invalid_argument(format!(
                    "Shared accumulator '{name}' collects {} {} but the requested one {} {}",
                    if have.sparse { "sparse" } else { "dense" },
                    have.dtype,
                    if wanted.sparse { "sparse" } else { "dense" },
                    wanted.dtype
                )));
            }
            Ok(())
        },
    )
}

fn scalar_argument(context: &OpContext<'_>, index: usize, name: &str) -> Result<i64> {
    let tensor = context.input(index)?;
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument(format!(
            "Argument {name} must be scalar, but had bad shape {}",
            tensor.shape()
        )));
    }
    tensor.to_index()
}

struct ApplyGradient;

impl Kernel for ApplyGradient {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let accumulator = context.resource::<Accumulator>(0)?;
        let local_step = scalar_argument(context, 1, "local_step")?;
        let gradient = context.take_input(2)?;
        accumulator.apply(local_step, gradient)
    }
}

struct ApplyRows {
    has_known_shape: bool,
}

impl Kernel for ApplyRows {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let accumulator = context.resource::<Accumulator>(0)?;
        let local_step = scalar_argument(context, 1, "local_step")?;
        let values = context.take_input(3)?;
        let shape = if self.has_known_shape { Some(context.input(4)?) } else { None };
        accumulator.apply_rows(local_step, context.input(2)?, values, shape)
    }
}

struct TakeGradient {
    dtype: DType,
    outputs: Vec<DType>,
}

impl TakeGradient {
    fn prepare(&self, context: &OpContext<'_>) -> Result<(Arc<Accumulator>, usize)> {
        let accumulator = context.resource::<Accumulator>(0)?;
        let required = scalar_argument(context, 1, "num_required")?;
        let Ok(required @ 1..) = usize::try_from(required) else {
            return Err(Status::invalid_argument(format!(
                "Argument num_required must be positive, but was {required}"
            )));
        };
        let options = accumulator.options();
        if options.dtype != self.dtype || options.sparse != (self.outputs.len() == 3) {
            return Err(Status::invalid_argument(format!(
                "the accumulator collects {} gradients of {}, not what this op takes",
                if options.sparse { "sparse" } else { "dense" },
                options.dtype
            )));
        }
        Ok((accumulator, required))
    }
}

impl AsyncKernel for TakeGradient {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        match prepared {
            Ok((accumulator, required)) => accumulator.take(context, required),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct NumAccumulated;

impl Kernel for NumAccumulated {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let count = context.resource::<Accumulator>(0)?.num_accumulated();
        context.set_output(0, Tensor::scalar(i32::try_from(count).unwrap_or(i32::MAX)));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct SetGlobalStep;

impl Kernel for SetGlobalStep {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let global_step = scalar_argument(context, 1, "new_global_step")?;
        context.resource::<Accumulator>(0)?.set_global_step(global_step);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, finished, waits};
    use tensor::Code;

    struct Dense {
        session: TestSession,
        accumulator: Output,
        step: Output,
        gradient: Output,
        apply: Operation,
        required: Output,
        take: Output,
    }

    impl Dense {
        fn new(shape: &[i64], mean: bool) -> Dense {
            let session = TestSession::new();
            let shape = PartialShape::from_dims(shape);
            let accumulator = conditional_accumulator(&session.graph, DType::Float, &shape, "", mean);
            let (step, gradient) = (session.placeholder(DType::Int64), session.placeholder(DType::Float));
            let required = session.placeholder(DType::Int32);
            Dense {
                apply: accumulator_apply_gradient(&accumulator, &step, &gradient),
                take: accumulator_take_gradient(&accumulator, &required, DType::Float),
                session,
                accumulator,
                step,
                gradient,
                required,
            }
        }

        fn apply(&self, step: i64, gradient: &[f32]) -> Result<()> {
            let feeds = [(&self.step, Tensor::scalar(step)), (&self.gradient, Tensor::vector(gradient))];
            self.session.run(&self.apply, &feeds).map(|_| ())
        }
    }

    #[test]
    fn the_mean_of_enough_gradients_and_none_that_are_old() {
        let dense = Dense::new(&[2], true);
        let feeds = [(&dense.required, Tensor::scalar(2i32))];
        let take = dense.session.start(&dense.take.op, &feeds).unwrap();
        dense.apply(0, &[1.0, 2.0]).unwrap();
        assert!(waits(&take));
        dense.apply(0, &[3.0, 6.0]).unwrap();
        assert_eq!(finished(&take).unwrap()[0].as_slice::<f32>().unwrap(), &[2.0, 4.0]);
        let count = accumulator_num_accumulated(&dense.accumulator);
        dense.apply(0, &[9.0, 9.0]).unwrap();
        assert_eq!(
            dense.session.fetch(&count, &[]).unwrap().to_scalar::<i32>().unwrap(),
            0,
            "taking starts a new step"
        );
        let set = accumulator_set_global_step(&dense.accumulator, &dense.step);
        dense.session.run(&set, &[(&dense.step, Tensor::scalar(5i64))]).unwrap();
        dense.apply(4, &[9.0, 9.0]).unwrap();
        dense.apply(5, &[1.0, 1.0]).unwrap();
        assert_eq!(dense.session.fetch(&count, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
    }

    #[test]
    fn the_sum_when_asked_for() {
        let dense = Dense::new(&[-1], false);
        dense.apply(0, &[1.0, 2.0]).unwrap();
        let status = dense.apply(0, &[1.0]).unwrap_err();
        assert_eq!(status.message(), "Shape mismatch: expected [2], got [1]");
        dense.apply(0, &[1.0, 2.0]).unwrap();
        let taken = dense.session.fetch(&dense.take, &[(&dense.required, Tensor::scalar(1i32))]).unwrap();
        assert_eq!(taken.as_slice::<f32>().unwrap(), &[2.0, 4.0]);
        let status = dense.session.fetch(&dense.take, &[(&dense.required, Tensor::scalar(0i32))]).unwrap_err();
        assert_eq!(status.message(), "Argument num_required must be positive, but was 0");
    }

    #[test]
    fn a_cancelled_taker_takes_nothing() {
        let dense = Dense::new(&[1], true);
        let other = dense.session.another_step();
        let feeds = [(&dense.required, Tensor::scalar(2i32))];
        let many = other.start(&dense.take.op, &feeds).unwrap();
        dense.apply(0, &[1.0]).unwrap();
        let one = dense.session.start(&dense.take.op, &[(&dense.required, Tensor::scalar(1i32))]).unwrap();
        assert!(waits(&many) && waits(&one));
        other.step.cancellation.cancel(Status::cancelled("stop"));
        assert_eq!(finished(&many).unwrap_err().code(), Code::Cancelled);
        assert_eq!(finished(&one).unwrap()[0].as_slice::<f32>().unwrap(), &[1.0]);
    }

    #[test]
    fn rows_are_averaged_by_how_often_they_came() {
        let session = TestSession::new();
        let shape = PartialShape::from_dims(&[5, 2]);
        let accumulator = sparse_conditional_accumulator(&session.graph, DType::Float, &shape, "", true);
        let (step, indices) = (session.placeholder(DType::Int64), session.placeholder(DType::Int64));
        let (values, whole) = (session.placeholder(DType::Float), session.placeholder(DType::Int64));
        let apply = sparse_accumulator_apply_gradient(&accumulator, &step, &indices, &values, Some(&whole));
        let add = |index: &[i64], rows: &[f32], width: i64| {
            let feeds = [
                (&step, Tensor::scalar(0i64)),
                (&indices, Tensor::vector(index)),
                (&values, Tensor::from_slice(&[rows.len() as i64 / width, width], rows).unwrap()),
                (&whole, Tensor::vector(&[5i64, 2])),
            ];
            session.run(&apply, &feeds).map(|_| ())
        };
        add(&[0, 2], &[1.0, 1.0, 2.0, 2.0], 2).unwrap();
        add(&[1, 2], &[1.0, 1.0, 4.0, 4.0], 2).unwrap();
        add(&[4, 0], &[9.0, 9.0, 4.0, 4.0], 2).unwrap();
        let message = |result: Result<()>| result.unwrap_err().message().to_owned();
        assert_eq!(message(add(&[4], &[9.0; 3], 3)), "Shape mismatch: expected values dim 1 to be 2, got 3");
        assert_eq!(
            message(add(&[7], &[9.0; 2], 2)),
            "Shape mismatch: index of slice 0 exceeded limits of shape; index is 7 exceeded 5"
        );
        assert_eq!(message(add(&[4], &[9.0; 4], 2)), "Expected 1 non-empty input values, got 2");
        let required = session.placeholder(DType::Int32);
        let take = sparse_accumulator_take_gradient(&accumulator, &required, DType::Float);
        let taken = session.run(&take[0].op, &[(&required, Tensor::scalar(3i32))]).unwrap();
        // As TensorFlow merges them: rows that aren't sorted stay separate.
        assert_eq!(taken[0].as_slice::<i64>().unwrap(), &[0, 1, 2, 4, 0]);
        assert_eq!(taken[1].as_slice::<f32>().unwrap(), &[1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 9.0, 9.0, 4.0, 4.0]);
        assert_eq!(taken[2].as_slice::<i64>().unwrap(), &[5, 2]);
    }

    #[test]
    fn a_declared_shape_is_a_prefix_and_may_say_nothing() {
        for declared in [PartialShape::unknown(), PartialShape::from_dims(&[]), PartialShape::from_dims(&[5])] {
            let session = TestSession::new();
            let accumulator = sparse_conditional_accumulator(&session.graph, DType::Float, &declared, "", true);
            let (step, indices) = (session.placeholder(DType::Int64), session.placeholder(DType::Int64));
            let values = session.placeholder(DType::Float);
            let apply = sparse_accumulator_apply_gradient(&accumulator, &step, &indices, &values, None);
            let feeds = [
                (&step, Tensor::scalar(0i64)),
                (&indices, Tensor::vector(&[3i64])),
                (&values, Tensor::from_slice(&[1, 2], &[1f32, 2.0]).unwrap()),
            ];
            session.run(&apply, &feeds).unwrap();
            let required = session.placeholder(DType::Int32);
            let take = sparse_accumulator_take_gradient(&accumulator, &required, DType::Float);
            let taken = session.run(&take[0].op, &[(&required, Tensor::scalar(1i32))]).unwrap();
            assert_eq!(taken[2].as_slice::<i64>().unwrap(), &[declared.dim(0).unwrap_or(-1), 2]);
        }
    }
}
