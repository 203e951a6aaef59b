//! Softmax and cross entropy: Softmax, LogSoftmax, SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits.

use crate::compose::{Gradients, binary, constant, int_vector, sum, unary, unary_gradient};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape,
};
use numeric::elementwise::BroadcastPlan;
use numeric::float::Float;
use numeric::softmax as loops;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Softmax",
            inputs: &["logits: T"],
            outputs: &["softmax: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: softmax_shape,
        gradient: Gradient::Fn(softmax_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => Softmax),
    },
    Op {
        def: OpDef {
            name: "LogSoftmax",
            inputs: &["logits: T"],
            outputs: &["logsoftmax: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: softmax_shape,
        gradient: Gradient::Fn(log_softmax_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => LogSoftmax),
    },
    Op {
        def: OpDef {
            name: "SoftmaxCrossEntropyWithLogits",
            inputs: &["features: T", "labels: T"],
            outputs: &["loss: T", "backprop: T"],
            attrs: &["T: {half, bfloat16, float, double}"],
            flags: OpFlags::NONE,
        },
        shape: cross_entropy_shape,
        gradient: Gradient::Fn(cross_entropy_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => CrossEntropy),
    },
    Op {
        def: OpDef {
            name: "SparseSoftmaxCrossEntropyWithLogits",
            inputs: &["features: T", "labels: Tlabels"],
            outputs: &["loss: T", "backprop: T"],
            attrs: &["T: {half, bfloat16, float, double}", "Tlabels: {int32, int64} = DT_INT64"],
            flags: OpFlags::NONE,
        },
        shape: sparse_cross_entropy_shape,
        gradient: Gradient::Fn(sparse_cross_entropy_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16] => SparseCrossEntropy),
    },
];

/// Returns the softmax along the last axis.
#[track_caller]
pub fn softmax(logits: &Output) -> Output {
    logits.graph().op("Softmax").input(logits).output()
}

/// Returns the logarithm of the softmax along the last axis.
#[track_caller]
pub fn log_softmax(logits: &Output) -> Output {
    logits.graph().op("LogSoftmax").input(logits).output()
}

/// Marks the labels among the arguments of a loss. They have the same type as the logits, and if the two were swapped, nothing
/// would be trained.
///
/// ```
/// use ops::nn::{Labels, softmax_cross_entropy_with_logits};
///
/// let g = graph::Graph::new();
/// let (y, logits) = (g.placeholder::<f32>((None, 10)), g.placeholder::<f32>((None, 10)));
/// let losses = softmax_cross_entropy_with_logits(Labels(&y), &logits);
/// # g.finish().unwrap();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a>(pub &'a Output);

/// Returns the cross entropy of each row of logits and label probabilities; no gradient flows to the labels.
#[track_caller]
pub fn softmax_cross_entropy_with_logits(labels: Labels<'_>, logits: &Output) -> Output {
    let labels = logits.graph().op("StopGradient").input(labels.0).output();
    softmax_cross_entropy_with_logits_v2(Labels(&labels), logits)
}

/// Returns the cross entropy of each row of logits and label probabilities; gradients flow to both.
#[track_caller]
pub fn softmax_cross_entropy_with_logits_v2(labels: Labels<'_>, logits: &Output) -> Output {
    let graph = logits.graph();
    let (rows_of_labels, rows_of_logits) = (flatten(labels.0), flatten(logits));
    let loss = graph.op("SoftmaxCrossEntropyWithLogits").input(&rows_of_logits).input(&rows_of_labels).output();
    unflatten(&loss, logits)
}

/// Returns the cross entropy of each row of logits and the index of its true class.
#[track_caller]
pub fn sparse_softmax_cross_entropy_with_logits(labels: Labels<'_>, logits: &Output) -> Output {
    let Labels(labels) = labels;
    let graph = logits.graph();
    if logits.shape().rank().is_none_or(|rank| rank == 2) {
        return graph.op("SparseSoftmaxCrossEntropyWithLogits").input(logits).input(labels).output();
    }
    if let (Some(labels_rank), Some(logits_rank)) = (labels.shape().rank(), logits.shape().rank())
        && labels_rank + 1 != logits_rank
    {
        let status = Status::invalid_argument(format!(
            "Rank mismatch: Rank of labels (received {labels_rank}) should equal rank of logits minus 1 (received {logits_rank})."
        ));
        let op = graph.op("SparseSoftmaxCrossEntropyWithLogits").input(logits).input(labels);
        return op.mistaken(status).output(0);
    }
    let all = graph.constant_tensor(&Tensor::vector(&[-1i32]));
    let flat_labels = graph.op("Reshape").input(labels).input(&all).output();
    let loss = graph.op("SparseSoftmaxCrossEntropyWithLogits").input(&flatten(logits)).input(&flat_labels).output();
    let shape = graph.op("Shape").input(labels).output();
    graph.op("Reshape").input(&loss).input(&shape).output()
}

/// Flattens all axes except the last into one.
#[track_caller]
fn flatten(x: &Output) -> Output {
    if x.shape().rank().is_none_or(|rank| rank == 2) {
        return x.clone();
    }
    let graph = x.graph();
    let classes = match x.shape().rank().and_then(|rank| x.shape().dim(rank.saturating_sub(1))) {
        Some(classes) => graph.constant_tensor(&Tensor::vector(&[-1, i32::try_from(classes).unwrap_or(i32::MAX)])),
        None => {
            let number = |value: i32| graph.constant_tensor(&Tensor::vector(&[value]));
            let shape = graph.op("Shape").input(x).output();
            let last = graph.op("StridedSlice").input(&shape).input(&number(-1)).input(&number(0)).input(&number(1));
            let last = last.attr("end_mask", 1i64).output();
            let axis = graph.constant_tensor(&Tensor::scalar(0i32));
            graph.op("ConcatV2").input(&number(-1)).input(&last).input(&axis).attr("N", 2i64).output()
        }
    };
    graph.op("Reshape").input(x).input(&classes).output()
}

/// Reshapes the losses of the rows to the shape of the logits without their last axis.
#[track_caller]
fn unflatten(loss: &Output, logits: &Output) -> Output {
    if logits.shape().rank().is_none_or(|rank| rank == 2) {
        return loss.clone();
    }
    let graph = logits.graph();
    let number = |value: i32| graph.constant_tensor(&Tensor::vector(&[value]));
    let shape = graph.op("Shape").input(logits).output();
    let outer = graph.op("StridedSlice").input(&shape).input(&number(0)).input(&number(-1)).input(&number(1));
    graph.op("Reshape").input(loss).input(&outer.attr("begin_mask", 1i64).output()).output()
}

fn softmax_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let logits = c.with_rank_at_least(0, 1)?;
    c.set_output(0, logits);
    Ok(())
}

fn cross_entropy_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let matrix = PartialShape::unknown_of_rank(2);
    let both = shape::broadcast(&c.input(0), &c.input(1))?.merge(&matrix)?;
    c.set_output(0, both.slice(0, 1));
    c.set_output(1, both);
    Ok(())
}

fn sparse_cross_entropy_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let features = c.with_rank(0, 2)?;
    let labels = c.with_rank(1, 1)?;
    let rows = features.slice(0, 1).merge(&labels)?;
    c.set_output(1, features.with_dim(0, rows.dim(0)));
    c.set_output(0, rows);
    Ok(())
}

fn last_axis(x: &Output) -> Result<Output> {
    int_vector(x.graph(), &[-1])
}

fn softmax_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, softmax| {
        let total = sum(&binary("Mul", grad, softmax)?, &last_axis(grad)?, true)?;
        binary("Mul", &binary("Sub", grad, &total)?, softmax)
    })
}

fn log_softmax_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, y| {
        let total = sum(grad, &last_axis(grad)?, true)?;
        binary("Sub", grad, &binary("Mul", &total, &unary("Exp", y)?)?)
    })
}

/// Returns a matrix with each row multiplied by the element of a vector.
fn scale_rows(vector: &Output, matrix: &Output) -> Result<Output> {
    let axis = constant(vector.graph(), &Tensor::scalar(-1i32))?;
    binary("Mul", &binary("ExpandDims", vector, &axis)?, matrix)
}

/// Returns the gradient with respect to the logits, from those of the loss and, rarely, of the op's own gradient.
fn logits_gradient(args: &GradientArgs<'_>) -> Result<Option<Output>> {
    let backprop = args.output(1);
    let first = match args.grad(0) {
        Some(grad_loss) => Some(scale_rows(&grad_loss, &backprop)?),
        None => None,
    };
    let Some(grad_backprop) = args.grad(1) else { return Ok(first) };
    let softmax = unary("Softmax", &args.input(0))?;
    let product = sum(&binary("Mul", &grad_backprop, &softmax)?, &last_axis(&softmax)?, true)?;
    let second = binary("Mul", &binary("Sub", &grad_backprop, &product)?, &softmax)?;
    Ok(Some(match first {
        Some(first) => binary("AddV2", &first, &second)?,
        None => second,
    }))
}

fn cross_entropy_gradient(args: &GradientArgs<'_>) -> Gradients {
    let grad_logits = logits_gradient(args)?;
    let grad_labels = match args.grad(0) {
        Some(grad_loss) => {
            let negative = unary("Neg", &unary("LogSoftmax", &args.input(0))?)?;
            Some(scale_rows(&grad_loss, &negative)?)
        }
        None => None,
    };
    Ok(vec![grad_logits.map(Into::into), grad_labels.map(Into::into)])
}

fn sparse_cross_entropy_gradient(args: &GradientArgs<'_>) -> Gradients {
    Ok(vec![logits_gradient(args)?.map(Into::into), None])
}

/// Runs a loop over the rows of the last axis, in place if the logits aren't shared.
fn map_rows<T: Element>(context: &mut OpContext<'_>, rows: impl Fn(&[T], usize, &mut [T])) -> Result<()> {
    let logits = context.input(0)?;
    let shape = logits.shape().clone();
    let Some(&classes) = shape.last() else {
        return Err(Status::invalid_argument(format!("logits must have >= 1 dimension, got {shape}")));
    };
    let elements = logits.as_slice::<T>()?;
    let output = Tensor::build(shape, |out: &mut [T]| {
        if !out.is_empty() {
            rows(elements, classes as usize, out);
        }
    })?;
    context.set_output(0, output);
    Ok(())
}

struct Softmax<T>(PhantomData<fn(T)>);

impl<T: Element + Float> Softmax<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Softmax::<T>(PhantomData))
    }
}

impl<T: Element + Float> Kernel for Softmax<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        map_rows::<T>(context, |logits, classes, out| loops::softmax(logits, classes, out))
    }
}

struct LogSoftmax<T>(PhantomData<fn(T)>);

impl<T: Element + Float> LogSoftmax<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(LogSoftmax::<T>(PhantomData))
    }
}

impl<T: Element + Float> Kernel for LogSoftmax<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        map_rows::<T>(context, |logits, classes, out| loops::log_softmax(logits, classes, out))
    }
}

struct CrossEntropy<T>(PhantomData<fn(T)>);

impl<T: Element + Float> CrossEntropy<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(CrossEntropy::<T>(PhantomData))
    }
}

impl<T: Element + Float> Kernel for CrossEntropy<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (logits, labels) = (context.input(0)?, context.input(1)?);
        let plan = BroadcastPlan::new(&logits.shape().to_usize(), &labels.shape().to_usize()).ok_or_else(|| {
            Status::invalid_argument(format!(
                "logits and labels must be broadcastable: logits_size={} labels_size={}",
                logits.shape(),
                labels.shape()
            ))
        })?;
        let shape = Shape::from_usize(plan.out_dims())?;
        if !shape.is_matrix() {
            return Err(Status::invalid_argument(
                "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional",
            ));
        }
        let (rows, classes) = (shape.size(0), shape.size(1));
        let broadcast = |tensor: &Tensor, first: bool| -> Result<Tensor> {
            if tensor.shape() == &shape {
                return Ok(tensor.clone());
            }
            let (a, b) = (logits.as_slice::<T>()?, labels.as_slice::<T>()?);
            Tensor::build(shape.clone(), |out: &mut [T]| {
                numeric::elementwise::binary(a, b, out, &plan, |a: T, b: T| if first { a } else { b });
            })
        };
        let (logits, labels) = (broadcast(logits, true)?, broadcast(labels, false)?);
        let (logits, labels) = (logits.as_slice::<T>()?, labels.as_slice::<T>()?);
        let mut loss = Tensor::zeros(T::DTYPE, Shape::vector(rows))?;
        let loss_elements = loss.make_mut::<T>()?;
        let backprop = Tensor::build(shape.clone(), |out: &mut [T]| {
            if !out.is_empty() {
                loops::softmax_cross_entropy(logits, labels, classes, loss_elements, out);
            }
        })?;
        context.set_output(0, loss);
        context.set_output(1, backprop);
        Ok(())
    }
}

struct SparseCrossEntropy<T>(PhantomData<fn(T)>);

impl<T: Element + Float> SparseCrossEntropy<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(SparseCrossEntropy::<T>(PhantomData))
    }
}

impl<T: Element + Float> Kernel for SparseCrossEntropy<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (logits, labels) = (context.input(0)?, context.input(1)?);
        let shape = logits.shape().clone();
        if !shape.is_matrix() {
            return Err(Status::invalid_argument(format!("logits must be 2-D, but got shape {shape}")));
        }
        if !labels.shape().is_vector() {
            return Err(Status::invalid_argument(format!("labels must be 1-D, but got shape {}", labels.shape())));
        }
        if shape.dim(0) != labels.shape().dim(0) {
            return Err(Status::invalid_argument(format!(
                "logits and labels must have the same first dimension, got logits shape {shape} and labels shape {}",
                labels.shape()
            )));
        }
        if shape.dim(1) == 0 {
            return Err(Status::invalid_argument(format!(
                "Must have at least one class, but got logits shape {shape}"
            )));
        }
        let (rows, classes) = (shape.size(0), shape.size(1));
        check_labels(labels, classes)?;
        let elements = logits.as_slice::<T>()?;
        let mut loss = Tensor::new(T::DTYPE, Shape::vector(rows))?;
        let loss_elements = loss.make_mut::<T>()?;
        let mut outcome = Ok(());
        let backprop = Tensor::build(shape, |out: &mut [T]| {
            outcome = match labels.dtype() {
                DType::Int32 => labels.as_slice::<i32>().map(|labels| {
                    loops::sparse_softmax_cross_entropy(elements, labels, classes, loss_elements, out);
                }),
                _ => labels.as_slice::<i64>().map(|labels| {
                    loops::sparse_softmax_cross_entropy(elements, labels, classes, loss_elements, out);
                }),
            };
        })?;
        outcome?;
        context.set_output(0, loss);
        context.set_output(1, backprop);
        Ok(())
    }
}

fn check_labels(labels: &Tensor, classes: usize) -> Result<()> {
    let valid = 0..classes as i64;
    let bad = match labels.dtype() {
        DType::Int32 => {
            labels.as_slice::<i32>()?.iter().find(|&&label| !valid.contains(&i64::from(label))).map(|&l| i64::from(l))
        }
        _ => labels.as_slice::<i64>()?.iter().find(|&label| !valid.contains(label)).copied(),
    };
    let Some(bad) = bad else { return Ok(()) };
    let all: Vec<String> = labels.to_indices()?.iter().map(i64::to_string).collect();
    Err(Status::invalid_argument(format!(
        "Received a label value of {bad} which is outside the valid range of [0, {classes}).  Label values: {}",
        all.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};

    fn close(actual: &Tensor, expected: &[f32]) {
        for (actual, expected) in actual.as_slice::<f32>().unwrap().iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-6, "{actual} instead of {expected}");
        }
        assert_eq!(actual.num_elements(), expected.len());
    }

    #[test]
    fn probabilities() {
        let x = Tensor::from_slice(&[2, 3], &[1f32, 2., 3., 1000., 0., 0.]).unwrap();
        let y = run_op("Softmax", attrs![], &[x.clone()]).unwrap();
        close(&y[0], &[0.09003057, 0.24472848, 0.66524094, 1.0, 0.0, 0.0]);
        let y = run_op("LogSoftmax", attrs![], &[x]).unwrap();
        close(&y[0], &[-2.407606, -1.4076059, -0.40760595, 0.0, -1000.0, -1000.0]);
        assert!(run_op("Softmax", attrs![], &[Tensor::scalar(1f32)]).is_err());
        let none = Tensor::from_slice::<f32>(&[2, 0], &[]).unwrap();
        assert_eq!(run_op("Softmax", attrs![], &[none]).unwrap()[0].dims(), &[2, 0]);
    }

    #[test]
    fn losses() {
        let logits = Tensor::from_slice(&[2, 2], &[1f32, 2., 3., 5.]).unwrap();
        let y = run_op("SparseSoftmaxCrossEntropyWithLogits", attrs![], &[logits.clone(), Tensor::vector(&[0i32, 1])])
            .unwrap();
        close(&y[0], &[1.3132616, 0.12692805]);
        close(&y[1], &[-0.7310586, 0.7310586, 0.11920292, -0.11920292]);
        let labels = Tensor::from_slice(&[1, 2], &[0.5f32, 0.5]).unwrap();
        let y = run_op("SoftmaxCrossEntropyWithLogits", attrs![], &[logits.clone(), labels]).unwrap();
        close(&y[0], &[0.8132616, 1.126928]);
        let status = run_op("SparseSoftmaxCrossEntropyWithLogits", attrs![], &[logits, Tensor::vector(&[0i64, 2])]);
        let status = status.unwrap_err();
        assert!(
            status.message().starts_with(
                "Received a label value of 2 which is outside the valid range of [0, 2).  Label values: 0 2"
            ),
            "{status}"
        );
    }

    #[test]
    fn shapes() {
        check_shape("SoftmaxCrossEntropyWithLogits", attrs![], "[2,?];[?,3]", "[2];[2,3]");
        check_shape("SparseSoftmaxCrossEntropyWithLogits", attrs![], "[?,3];[2]", "[2];[2,3]");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 3], &[1f64, -2., 3., 0.5, 1., 0.]).unwrap();
        let labels = Tensor::from_slice(&[2, 3], &[0.2f64, 0.3, 0.5, 1.0, 0., 0.]).unwrap();
        check_gradient(&[x.clone()], |_, x| softmax(&x[0]));
        check_gradient(&[x.clone()], |_, x| log_softmax(&x[0]));
        check_gradient(&[labels, x.clone()], |_, x| softmax_cross_entropy_with_logits_v2(Labels(&x[0]), &x[1]));
        check_gradient(&[Tensor::vector(&[2i32, 0]), x], |_, x| {
            sparse_softmax_cross_entropy_with_logits(Labels(&x[0]), &x[1])
        });
    }
}
