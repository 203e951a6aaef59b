//! Batch and BatchFunction: combine rows of several steps into one tensor, for the last step that arrives or for a function.

use super::batcher::{Batcher, Options};
use super::request::Request;
use super::table_rows::num_rows;
use crate::random::random_bits;
use graph::ShapeContext;
use kernel::{
    AsyncContext, AsyncKernel, BoundFunction, BoxedKernel, Callee, Gradient, KernelBuilder, KernelDef, Op, OpDef,
    OpFlags, shape,
};
use std::sync::Arc;
use std::time::Duration;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Batch",
            inputs: &["in_tensors: T"],
            outputs: &["batched_tensors: T", "batch_index: int64", "id: int64"],
            attrs: &[
                "num_batch_threads: int",
                "max_batch_size: int",
                "max_enqueued_batches: int = 10",
                "batch_timeout_micros: int",
                "allowed_batch_sizes: list(int) = []",
                "grad_timeout_micros: int",
                "container: string = ''",
                "shared_name: string = ''",
                "batching_queue: string = ''",
                "T: list(type) >= 1",
            ],
            flags: OpFlags::DISTRIBUTED_COMMUNICATION,
        },
        shape: batch_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BatchKernel::create(builder, None, false))],
    },
    Op {
        def: OpDef {
            name: "BatchFunction",
            inputs: &["in_tensors: Tin", "captured_tensors: Tcaptured"],
            outputs: &["out_tensors: Tout"],
            attrs: &[
                "f: func",
                "num_batch_threads: int",
                "max_batch_size: int",
                "batch_timeout_micros: int",
                "max_enqueued_batches: int = 10",
                "allowed_batch_sizes: list(int) = []",
                "container: string = ''",
                "shared_name: string = ''",
                "batching_queue: string = ''",
                "low_priority_max_batch_size: int = 0",
                "low_priority_batch_timeout_micros: int = 0",
                "low_priority_allowed_batch_sizes: list(int) = []",
                "low_priority_max_enqueued_batches: int = 0",
                "Tin: list(type) >= 1",
                "Tcaptured: list(type) >= 0",
                "Tout: list(type) >= 1",
                "enable_large_batch_splitting: bool = false",
            ],
            flags: OpFlags::DISTRIBUTED_COMMUNICATION,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let function = Callee::new(builder.attrs().func("f")?);
            BatchKernel::create(builder, Some(function), builder.attrs().bool("enable_large_batch_splitting")?)
        })],
    },
];

/// The number of batches that run at once if a program leaves it to TensorFlow, which uses this as the maximum.
const ADAPTIVE_BATCHES_MAX: usize = 64;

/// The number of rows is unknown; everything else is as in the inputs.
fn batch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let count = c.num_inputs();
    for index in 0..count {
        let rows = without_row_count(c, index)?;
        c.set_output(index, rows);
    }
    c.set_output(count, PartialShape::from_dims(&[-1, 3]));
    c.set_output(count + 1, PartialShape::from_dims(&[]));
    Ok(())
}

/// Returns the shape of an input with an unknown number of rows.
pub(super) fn without_row_count(c: &ShapeContext<'_>, index: usize) -> Result<PartialShape> {
    let shape = c.input(index);
    Ok(match shape.rank() {
        None => shape,
        Some(0) => return Err(Status::invalid_argument("Shape must be at least rank 1 but is rank 0")),
        Some(rank) => PartialShape::from_dims(&[-1]).concat(&shape.slice(1, rank)),
    })
}

struct BatchKernel {
    container: String,
    name: String,
    queue: String,
    options: Options,
    /// The number of inputs that are rows; the others are captured.
    num_batched: usize,
    function: Option<Callee>,
    output_dtypes: Vec<DType>,
}

impl BatchKernel {
    fn create(builder: &KernelBuilder<'_>, function: Option<Callee>, split: bool) -> Result<BoxedKernel> {
        let (container, name) = builder.resource_name();
        let num_batched = builder.input_range("in_tensors")?.len();
        if let Some(index) = (0..num_batched).find(|&index| builder.input_dtype(index) == DType::Resource) {
            return Err(Status::invalid_argument(format!(
                "BatchFunction cannot take resource inputs but input {index} is a resource."
            )));
        }
        BoxedKernel::new_async(BatchKernel {
            container,
            name,
            queue: builder.attrs().string("batching_queue")?,
            options: options(builder, function.is_some(), split)?,
            num_batched,
            function,
            output_dtypes: builder.output_dtypes(),
        })
    }
}

fn options(builder: &KernelBuilder<'_>, may_adapt: bool, split: bool) -> Result<Options> {
    let attrs = builder.attrs();
    let positive = |name: &str| match attrs.int(name)? {
        value if value > 0 => Ok(usize::try_from(value).unwrap_or(usize::MAX)),
        value => {
            // TensorFlow's text has the name of its own option.
            let shown = if name == "max_batch_size" { "input_batch_size_limit" } else { name };
            Err(Status::invalid_argument(format!("{shown} must be positive; was {value}: {name}")))
        }
    };
    let threads = match attrs.int("num_batch_threads")? {
        threads if threads <= 0 && may_adapt => ADAPTIVE_BATCHES_MAX,
        _ => positive("num_batch_threads")?,
    };
    let timeout = attrs.int("batch_timeout_micros")?;
    let timeout = u64::try_from(timeout)
        .map_err(|_| Status::invalid_argument(format!("batch_timeout_micros must be non-negative; was {timeout}")))?;
    let request_rows_max = positive("max_batch_size")?;
    let allowed_sizes = allowed_sizes(attrs.ints("allowed_batch_sizes")?, request_rows_max, split)?;
    let batch_rows_max = match allowed_sizes.last() {
        Some(&largest) if split => largest,
        _ => request_rows_max,
    };
    Ok(Options {
        threads,
        request_rows_max,
        batch_rows_max,
        split,
        timeout: Duration::from_micros(timeout),
        batches_max: positive("max_enqueued_batches")?,
        allowed_sizes,
    })
}

fn allowed_sizes(sizes: &[i64], rows_max: usize, split: bool) -> Result<Vec<usize>> {
    let sizes: Vec<usize> = sizes
        .iter()
        .map(|&size| usize::try_from(size).ok().filter(|&size| size > 0))
        .collect::<Option<_>>()
        .ok_or_else(|| Status::invalid_argument("allowed_batch_sizes entries must be positive"))?;
    if !sizes.is_sorted_by(|a, b| a < b) {
        return Err(Status::invalid_argument("allowed_batch_sizes entries must be monotonically increasing"));
    }
    match sizes.last() {
        Some(&last) if !split && last != rows_max => Err(Status::invalid_argument(
            "final entry in allowed_batch_sizes must equal max_batch_size when enable_large_batch_splitting is False",
        )),
        Some(&last) if last > rows_max => {
            Err(Status::invalid_argument("allowed_batch_sizes entries must be at most max_batch_size"))
        }
        _ => Ok(sizes),
    }
}

impl AsyncKernel for BatchKernel {
    fn compute(&self, mut context: AsyncContext) {
        match self.prepare(&mut context) {
            Ok(Some((batcher, function, inputs, captured))) => {
                let request = Request::new(random_bits() as i64, captured, function, context);
                if let Err(status) = batcher.add(&self.queue, &request, inputs) {
                    request.finish(Err(status));
                }
            }
            Ok(None) => context.finish(Ok(())),
            Err(status) => context.finish(Err(status)),
        }
    }
}

type Prepared = (Arc<Batcher>, Option<BoundFunction>, Vec<Tensor>, Vec<Tensor>);

impl BatchKernel {
    /// Returns the rows to batch, or `None` if there are none and the outputs are empty.
    fn prepare(&self, context: &mut AsyncContext) -> Result<Option<Prepared>> {
        let function = self.function.as_ref().map(|function| function.bind(context.step())).transpose()?;
        let mut op = context.op();
        let mut tensors = (0..op.num_inputs()).map(|index| op.take_input(index)).collect::<Result<Vec<_>>>()?;
        let captured = tensors.split_off(self.num_batched);
        let shapes = || tensors.iter().map(|tensor| tensor.shape().to_string()).collect::<Vec<_>>().join(", ");
        if tensors.iter().any(|tensor| tensor.shape().is_scalar()) {
            return Err(Status::invalid_argument(format!(
                "Batching input tensors must have at least one dimension.\nBelow are the input tensors: {}",
                shapes()
            )));
        }
        let rows = tensors.iter().map(num_rows).collect::<Result<Vec<_>>>()?;
        if rows.iter().any(|count| *count != rows[0]) {
            return Err(Status::invalid_argument(format!(
                "Batching input tensors supplied in a given op invocation must have equal 0th-dimension size, but have \
                 shapes {}",
                shapes()
            )));
        }
        if rows.first() == Some(&0) {
            // Not even the other sizes are those of the inputs; this is the same in TensorFlow.
            for (index, &dtype) in self.output_dtypes.iter().enumerate() {
                op.set_output(index, Tensor::zeros(dtype, Shape::vector(0))?);
            }
            return Ok(None);
        }
        let batcher =
            op.resources().lookup_or_create(&self.container, &self.name, || Ok(Batcher::new(self.options.clone())))?;
        Ok(Some((batcher, function, tensors, captured)))
    }
}
