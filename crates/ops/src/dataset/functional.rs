//! Datasets from functions of the graph: MapDataset, ParallelMapDataset, FilterDataset, MapAndBatchDataset.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel,
    dataset_op, input_dataset,
};
use super::batch::Batch;
use super::task::{Promise, background, call, call_elsewhere, or_cancelled, turn};
use crate::function::{Callee, Function};
use kernel::{Cancellation, KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tensor::{DType, Result, Status, Tensor};

const CAPTURED: &str = "other_arguments: Targuments";
const ARGUMENTS: &str = "Targuments: list(type) >= 0";
const PARALLELISM: &str = "use_inter_op_parallelism: bool = true";
const CARDINALITY: &str = "preserve_cardinality: bool = false";

/// No dataset runs more calls at once.
const MAX_PARALLEL_CALLS: i64 = 1024;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "MapDataset",
        &[INPUT, CAPTURED],
        &["f: func", ARGUMENTS, TYPES, SHAPES, PARALLELISM, CARDINALITY, METADATA],
        OpFlags::NONE,
        MAP,
    ),
    dataset_op(
        "ParallelMapDataset",
        &[INPUT, CAPTURED, "num_parallel_calls: int32"],
        &["f: func", ARGUMENTS, TYPES, SHAPES, PARALLELISM, "sloppy: bool = false", CARDINALITY, METADATA],
        OpFlags::NONE,
        PARALLEL_MAP,
    ),
    dataset_op(
        "ParallelMapDatasetV2",
        &[INPUT, CAPTURED, "num_parallel_calls: int64"],
        &["f: func", ARGUMENTS, TYPES, SHAPES, PARALLELISM, "deterministic: string = 'default'", CARDINALITY, METADATA],
        OpFlags::NONE,
        PARALLEL_MAP,
    ),
    dataset_op(
        "FilterDataset",
        &[INPUT, CAPTURED],
        &["predicate: func", ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        FILTER,
    ),
    dataset_op(
        "MapAndBatchDataset",
        &[INPUT, CAPTURED, "batch_size: int64", "num_parallel_calls: int64", "drop_remainder: bool"],
        &["f: func", ARGUMENTS, TYPES, SHAPES, CARDINALITY, METADATA],
        OpFlags::NONE,
        MAP_AND_BATCH,
    ),
];

const MAP: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context| Ok(Map { input: input_dataset(context, 0)?, function: captured.bind(context)? }))
})];
const PARALLEL_MAP: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context| {
        let calls = parallel_calls(context, captured.end())?;
        Ok(ParallelMap { input: input_dataset(context, 0)?, function: captured.bind(context)?, calls })
    })
})];
const FILTER: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "predicate")?;
    dataset_kernel(move |context| Ok(Filter { input: input_dataset(context, 0)?, predicate: captured.bind(context)? }))
})];
const MAP_AND_BATCH: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context| {
        let end = captured.end();
        let calls = parallel_calls(context, end + 1)?;
        let mapped = ParallelMap { input: input_dataset(context, 0)?, function: captured.bind(context)?, calls };
        let (size, drop_remainder) =
            (argument(context, end, "batch_size")?, argument(context, end + 2, "drop_remainder")?);
        Batch::new(Arc::new(mapped), size, drop_remainder, None)
    })
})];

/// Returns how many calls may run at once; below zero the number of processors decides.
pub(super) fn parallel_calls(context: &OpContext<'_>, index: usize) -> Result<usize> {
    let calls = match context.input(index)?.dtype() {
        DType::Int32 => i64::from(argument::<i32>(context, index, "num_parallel_calls")?),
        _ => argument::<i64>(context, index, "num_parallel_calls")?,
    };
    match calls {
        -1 => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        calls if calls > 0 => Ok(calls.min(MAX_PARALLEL_CALLS) as usize),
        _ => Err(Status::invalid_argument("num_parallel_calls must be greater than zero.")),
    }
}

/// A function that a node names, and which of its inputs the function takes after an element's components.
pub(super) struct CapturedFunctionDef {
    callee: Callee,
    captured: Range<usize>,
}

impl CapturedFunctionDef {
    pub(super) fn new(builder: &KernelBuilder<'_>, attr: &str) -> Result<CapturedFunctionDef> {
        CapturedFunctionDef::with_inputs(builder, attr, "other_arguments")
    }

    /// As [`new`](Self::new), for a node that names its inputs otherwise.
    pub(super) fn with_inputs(builder: &KernelBuilder<'_>, attr: &str, inputs: &str) -> Result<CapturedFunctionDef> {
        let callee = Callee::new(builder.attrs().func(attr)?);
        Ok(CapturedFunctionDef { callee, captured: builder.input_range(inputs)? })
    }

    /// Returns the first input after those that the function takes.
    pub(super) fn end(&self) -> usize {
        self.captured.end
    }

    pub(super) fn bind(&self, context: &OpContext<'_>) -> Result<CapturedFunction> {
        let captured = self.captured.clone().map(|index| context.input(index).cloned()).collect::<Result<_>>()?;
        Ok(CapturedFunction { function: self.callee.bind(context.step())?, captured })
    }
}

/// A function with the tensors that it takes after an element's components.
#[derive(Clone)]
pub(super) struct CapturedFunction {
    function: Function,
    captured: Vec<Tensor>,
}

impl CapturedFunction {
    /// Calls the function on this thread, as far as it goes.
    pub(super) fn call(&self, element: Element, step: &Arc<Step>) -> Promise<Result<Vec<Tensor>>> {
        call(&self.function, self.args(element), step)
    }

    /// Calls the function on another thread.
    pub(super) fn call_elsewhere(&self, element: Element, step: &Arc<Step>) -> Promise<Result<Vec<Tensor>>> {
        call_elsewhere(&self.function, self.args(element), step)
    }

    fn args(&self, mut element: Element) -> Vec<Tensor> {
        element.extend(self.captured.iter().cloned());
        element
    }
}

struct Map {
    input: Arc<dyn Dataset>,
    function: CapturedFunction,
}

impl Dataset for Map {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(MapIterator { input: self.input.iterator(nesting.deeper()?)?, function: self.function.clone() }))
    }
}

struct MapIterator {
    input: Box<dyn DatasetIterator>,
    function: CapturedFunction,
}

impl DatasetIterator for MapIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            match self.input.next(step).await? {
                Some(element) => mapped(self.function.call(element, step).await).map(Some),
                None => Ok(None),
            }
        })
    }
}

/// A function that says that its input is out of range must not look like the end of the dataset.
fn mapped(result: Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    result.map_err(|status| match status.code() {
        tensor::Code::OutOfRange => {
            Status::invalid_argument(format!("Function invocation produced OutOfRangeError: {}", status.message()))
        }
        _ => status,
    })
}

struct ParallelMap {
    input: Arc<dyn Dataset>,
    function: CapturedFunction,
    calls: usize,
}

impl Dataset for ParallelMap {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(ParallelMapIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            function: self.function.clone(),
            calls: self.calls,
            running: VecDeque::new(),
            cancellation: Cancellation::new(),
        }))
    }
}

struct ParallelMapIterator {
    input: Option<Box<dyn DatasetIterator>>,
    function: CapturedFunction,
    calls: usize,
    /// In the order of their elements.
    running: VecDeque<Promise<Result<Vec<Tensor>>>>,
    /// Calls may outlive the step that starts them, but not the iterator.
    cancellation: Cancellation,
}

impl DatasetIterator for ParallelMapIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let within = background(step, self.cancellation.clone());
            while self.running.len() < self.calls
                && let Some(input) = &mut self.input
            {
                turn(step).await?;
                match input.next(step).await {
                    Ok(Some(element)) => self.running.push_back(self.function.call_elsewhere(element, &within)),
                    Ok(None) => self.input = None,
                    Err(status) => {
                        // The error takes its element's place in the order.
                        let (fulfil, failed) = super::task::promise();
                        fulfil.set(Err(status));
                        self.running.push_back(failed);
                        break;
                    }
                }
            }
            match self.running.pop_front() {
                Some(call) => match or_cancelled(step, call).await {
                    Ok(results) => mapped(results).map(Some),
                    Err(status) => {
                        // A step that is cancelled takes along what it waited for: nobody else may ever ask for it.
                        self.running.clear();
                        std::mem::take(&mut self.cancellation).cancel(status.clone());
                        Err(status)
                    }
                },
                None => Ok(None),
            }
        })
    }
}

impl Drop for ParallelMapIterator {
    fn drop(&mut self) {
        self.cancellation.cancel(Status::cancelled("the iterator was destroyed"));
    }
}

struct Filter {
    input: Arc<dyn Dataset>,
    predicate: CapturedFunction,
}

impl Dataset for Filter {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(FilterIterator {
            input: self.input.iterator(nesting.deeper()?)?,
            predicate: self.predicate.clone(),
        }))
    }
}

struct FilterIterator {
    input: Box<dyn DatasetIterator>,
    predicate: CapturedFunction,
}

impl DatasetIterator for FilterIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while let Some(element) = self.input.next(step).await? {
                let results = mapped(self.predicate.call(element.clone(), step).await)?;
                let [verdict] = &results[..] else {
                    return Err(Status::invalid_argument("Filter predicate `f` must return a scalar bool."));
                };
                if verdict.dtype() != DType::Bool || verdict.num_elements() != 1 {
                    return Err(Status::invalid_argument("Filter predicate `f` must return a scalar bool."));
                }
                if verdict.to_scalar::<bool>()? {
                    return Ok(Some(element));
                }
                turn(step).await?;
            }
            Ok(None)
        })
    }
}
