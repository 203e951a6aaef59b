//! Datasets that call functions of the graph for each element: MapDataset, ParallelMapDataset, MapAndBatchDataset.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel,
    dataset_op, input_dataset,
};
use super::batch::Batch;
use super::position::{Position, Restoring, Saving};
use super::task::{Promise, background, call, call_elsewhere, or_cancelled, promise, turn};
use crate::function::{Callee, Function};
use kernel::{Cancellation, KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tensor::{Code, DType, Result, Status, Tensor};

pub(super) const CAPTURED: &str = "other_arguments: Targuments";
pub(super) const ARGUMENTS: &str = "Targuments: list(type) >= 0";
const PARALLELISM: &str = "use_inter_op_parallelism: bool = true";
pub(super) const CARDINALITY: &str = "preserve_cardinality: bool = false";
pub(super) const DETERMINISTIC: &str = "deterministic: string = 'default'";

/// The most parallel calls of a dataset.
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
        "ExperimentalMapDataset",
        &[INPUT, CAPTURED],
        &["f: func", ARGUMENTS, TYPES, SHAPES, PARALLELISM, CARDINALITY],
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
        &["f: func", ARGUMENTS, TYPES, SHAPES, PARALLELISM, DETERMINISTIC, CARDINALITY, METADATA],
        OpFlags::NONE,
        PARALLEL_MAP,
    ),
    dataset_op(
        "MapAndBatchDataset",
        &[INPUT, CAPTURED, "batch_size: int64", "num_parallel_calls: int64", "drop_remainder: bool"],
        &["f: func", ARGUMENTS, TYPES, SHAPES, CARDINALITY, METADATA],
        OpFlags::NONE,
        MAP_AND_BATCH,
    ),
    dataset_op(
        "ExperimentalMapAndBatchDataset",
        &[INPUT, CAPTURED, "batch_size: int64", "num_parallel_calls: int64", "drop_remainder: bool"],
        &["f: func", ARGUMENTS, TYPES, SHAPES, CARDINALITY],
        OpFlags::NONE,
        MAP_AND_BATCH,
    ),
];

const MAP: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    let preserves = builder.attrs().bool("preserve_cardinality")?;
    dataset_kernel(move |context| {
        Ok(Map { input: input_dataset(context, 0)?, function: captured.bind(context)?, preserves })
    })
})];
const PARALLEL_MAP: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    let preserves = builder.attrs().bool("preserve_cardinality")?;
    dataset_kernel(move |context| {
        let calls = parallel_calls(context, captured.end())?;
        Ok(ParallelMap { input: input_dataset(context, 0)?, function: captured.bind(context)?, calls, preserves })
    })
})];
const MAP_AND_BATCH: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    let preserves = builder.attrs().bool("preserve_cardinality")?;
    dataset_kernel(move |context| {
        let end = captured.end();
        let calls = parallel_calls(context, end + 1)?;
        let function = captured.bind(context)?;
        let mapped = ParallelMap { input: input_dataset(context, 0)?, function, calls, preserves };
        let (size, drop_remainder) =
            (argument(context, end, "batch_size")?, argument(context, end + 2, "drop_remainder")?);
        Ok(Batch::new(Arc::new(mapped), size, drop_remainder, None)?.that_fails_whole())
    })
})];

/// Returns the number of parallel calls; a negative number means the number of processors.
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

/// A function that a node names, and the inputs that it takes after an element's components.
pub(super) struct CapturedFunctionDef {
    callee: Callee,
    captured: Range<usize>,
}

impl CapturedFunctionDef {
    /// Returns the function of an attribute, which takes the node's `other_arguments`.
    pub(super) fn new(builder: &KernelBuilder<'_>, attr: &str) -> Result<CapturedFunctionDef> {
        CapturedFunctionDef::with_inputs(builder, attr, "other_arguments")
    }

    /// Returns the function of an attribute, with the inputs that it takes.
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

/// A function with its arguments after an element's components.
#[derive(Clone)]
pub(super) struct CapturedFunction {
    function: Function,
    captured: Vec<Tensor>,
}

impl CapturedFunction {
    /// Returns the function with its state in an iterator.
    pub(super) fn own(&self, nesting: &Nesting) -> Result<CapturedFunction> {
        Ok(CapturedFunction { function: nesting.own(&self.function)?, captured: self.captured.clone() })
    }

    /// Calls the function; it runs on this thread until it waits.
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
    preserves: bool,
}

impl Dataset for Map {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let function = self.function.own(&nesting)?;
        Ok(Box::new(MapIterator {
            input: self.input.iterator(nesting.deeper()?)?,
            function,
            preserves: self.preserves,
        }))
    }

    fn cardinality(&self) -> i64 {
        mapped_cardinality(&*self.input, self.preserves)
    }

    fn fails_by_batch(&self) -> bool {
        true
    }
}

/// Returns the number of elements of a dataset after a function that may end it early.
pub(super) fn mapped_cardinality(input: &dyn Dataset, preserves: bool) -> i64 {
    match preserves {
        true => input.cardinality(),
        false => super::base::UNKNOWN,
    }
}

struct MapIterator {
    input: Box<dyn DatasetIterator>,
    function: CapturedFunction,
    preserves: bool,
}

impl DatasetIterator for MapIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            match self.input.next(step).await? {
                Some(element) => mapped(self.function.call(element, step).await, self.preserves),
                None => Ok(None),
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within(&mut *self.input, step).await })
    }
}

/// Returns the effect of a function's result on the dataset. `OutOfRange` ends it, for example when a queue that the function
/// reads is closed, unless the dataset was declared to have as many elements as its input.
pub(super) fn mapped(result: Result<Vec<Tensor>>, preserves: bool) -> Result<Option<Element>> {
    match result {
        Ok(element) => Ok(Some(element)),
        Err(status) if status.code() != Code::OutOfRange => Err(status),
        Err(status) if preserves => {
            Err(Status::invalid_argument(format!("Function invocation produced OutOfRangeError: {}", status.message())))
        }
        Err(_) => Ok(None),
    }
}

/// Returns the error of a function that may not end its dataset; it must not look like the end.
pub(super) fn not_the_end(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::internal(format!(
            "a function of the dataset returned `OutOfRange`, which is not the end of the sequence here. Original message: {}",
            status.message()
        )),
        _ => status,
    }
}

struct ParallelMap {
    input: Arc<dyn Dataset>,
    function: CapturedFunction,
    calls: usize,
    preserves: bool,
}

impl Dataset for ParallelMap {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let function = self.function.own(&nesting)?;
        Ok(Box::new(ParallelMapIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            calls: Calls::new(function, self.calls),
            preserves: self.preserves,
        }))
    }

    fn cardinality(&self) -> i64 {
        mapped_cardinality(&*self.input, self.preserves)
    }

    fn fails_by_batch(&self) -> bool {
        true
    }
}

struct ParallelMapIterator {
    input: Option<Box<dyn DatasetIterator>>,
    calls: Calls,
    preserves: bool,
}

impl DatasetIterator for ParallelMapIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            match self.calls.next(&mut self.input, step).await? {
                Some(results) => mapped(results, self.preserves),
                None => Ok(None),
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let position = self.calls.save(Position::of::<Self>(), step).await?;
            position.within_maybe(&mut self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.calls.restore(&mut reader)?;
            reader.within_or_ended(&mut self.input, step).await
        })
    }
}

/// Parallel calls of a function, in the order of their elements.
pub(super) struct Calls {
    function: CapturedFunction,
    max: usize,
    running: VecDeque<Promise<Result<Vec<Tensor>>>>,
    /// Calls may outlive the step that starts them, but not the iterator.
    cancellation: Cancellation,
}

impl Calls {
    pub(super) fn new(function: CapturedFunction, max: usize) -> Calls {
        Calls { function, max, running: VecDeque::new(), cancellation: Cancellation::new() }
    }

    /// Starts as many calls as allowed, on elements of `input`, and returns the result of the first; `None` at the end.
    async fn next(
        &mut self,
        input: &mut Option<Box<dyn DatasetIterator>>,
        step: &Arc<Step>,
    ) -> Result<Option<Result<Vec<Tensor>>>> {
        let within = background(step, self.cancellation.clone());
        while self.running.len() < self.max
            && let Some(from) = input
        {
            turn(step).await?;
            match from.next(step).await {
                Ok(Some(element)) => self.running.push_back(self.function.call_elsewhere(element, &within)),
                Ok(None) => *input = None,
                // A step that ends doesn't consume an element; the next request takes it.
                Err(status) if step.cancellation.is_cancelled() => return Err(status),
                Err(status) => {
                    // The error takes its element's place in the order.
                    self.running.push_back(kept(Err(status)));
                    break;
                }
            }
        }
        let Some(call) = self.running.pop_front() else { return Ok(None) };
        match or_cancelled(step, call).await {
            Ok(results) => Ok(Some(results)),
            Err(status) => {
                // A cancelled step drops the call that it waited for: its result may never be requested.
                self.running.clear();
                std::mem::take(&mut self.cancellation).cancel(status.clone());
                Err(status)
            }
        }
    }

    /// Waits for the running calls, and adds their results.
    async fn save(&mut self, position: Position, step: &Arc<Step>) -> Result<Position> {
        let mut position = position.size(self.running.len());
        for call in &mut self.running {
            let results = or_cancelled(step, std::mem::replace(call, promise().1)).await?;
            position = position.result(&results.clone().map(Some));
            *call = kept(results);
        }
        Ok(position)
    }

    fn restore(&mut self, reader: &mut super::position::PositionReader<'_>) -> Result<()> {
        self.running.clear();
        for _ in 0..reader.size()? {
            let results = reader.result()?.map(Option::unwrap_or_default);
            self.running.push_back(kept(results));
        }
        Ok(())
    }
}

/// Returns a promise that is already set.
fn kept<T>(value: T) -> Promise<T> {
    let (fulfil, kept) = promise();
    fulfil.set(value);
    kept
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.cancellation.cancel(Status::cancelled("the iterator was destroyed"));
    }
}
