//! Datasets filtered by a function: FilterDataset, ParallelFilterDataset, TakeWhileDataset.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, dataset_kernel, dataset_op,
    input_dataset,
};
use super::functional::{
    ARGUMENTS, CAPTURED, CapturedFunction, CapturedFunctionDef, DETERMINISTIC, not_the_end, parallel_calls,
};
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use kernel::{KernelDef, Op, OpFlags, Step};
use std::sync::Arc;
use tensor::{DType, Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "FilterDataset",
        &[INPUT, CAPTURED],
        &["predicate: func", ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        FILTER,
    ),
    dataset_op(
        "ParallelFilterDataset",
        &[INPUT, CAPTURED, "num_parallel_calls: int64"],
        &["predicate: func", DETERMINISTIC, ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        FILTER,
    ),
    dataset_op(
        "TakeWhileDataset",
        &[INPUT, CAPTURED],
        &["predicate: func", ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        TAKE_WHILE,
    ),
    dataset_op(
        "ExperimentalTakeWhileDataset",
        &[INPUT, CAPTURED],
        &["predicate: func", ARGUMENTS, TYPES, SHAPES],
        OpFlags::NONE,
        TAKE_WHILE,
    ),
];

const FILTER: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "predicate")?;
    dataset_kernel(move |context| {
        // The order of elements doesn't depend on the parallelism; here it is one.
        if context.num_inputs() > captured.end() {
            parallel_calls(context, captured.end())?;
        }
        Ok(Filter { input: input_dataset(context, 0)?, predicate: captured.bind(context)? })
    })
})];
const TAKE_WHILE: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "predicate")?;
    dataset_kernel(move |context| {
        Ok(TakeWhile { input: input_dataset(context, 0)?, predicate: captured.bind(context)? })
    })
})];

/// Returns whether a function accepts an element.
async fn chosen(name: &str, predicate: &CapturedFunction, element: &Element, step: &Arc<Step>) -> Result<bool> {
    let results = predicate.call(element.clone(), step).await.map_err(not_the_end)?;
    match &results[..] {
        [verdict] if verdict.dtype() == DType::Bool && verdict.num_elements() == 1 => verdict.to_scalar(),
        _ => Err(Status::invalid_argument(format!("{name} `f` must return a scalar bool."))),
    }
}

struct Filter {
    input: Arc<dyn Dataset>,
    predicate: CapturedFunction,
}

impl Dataset for Filter {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let predicate = self.predicate.own(&nesting)?;
        Ok(Box::new(FilterIterator { input: self.input.iterator(nesting.deeper()?)?, predicate }))
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
                if chosen("Filter predicate", &self.predicate, &element, step).await? {
                    return Ok(Some(element));
                }
                turn(step).await?;
            }
            Ok(None)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within(&mut *self.input, step).await })
    }
}

struct TakeWhile {
    input: Arc<dyn Dataset>,
    predicate: CapturedFunction,
}

impl Dataset for TakeWhile {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let predicate = self.predicate.own(&nesting)?;
        Ok(Box::new(TakeWhileIterator { input: Some(self.input.iterator(nesting.deeper()?)?), predicate }))
    }
}

struct TakeWhileIterator {
    /// `None` after the first rejected element.
    input: Option<Box<dyn DatasetIterator>>,
    predicate: CapturedFunction,
}

impl DatasetIterator for TakeWhileIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let Some(input) = &mut self.input else { return Ok(None) };
            if let Some(element) = input.next(step).await?
                && chosen("TakeWhile predicate", &self.predicate, &element, step).await?
            {
                return Ok(Some(element));
            }
            self.input = None;
            Ok(None)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within_maybe(&mut self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within_or_ended(&mut self.input, step).await })
    }
}
