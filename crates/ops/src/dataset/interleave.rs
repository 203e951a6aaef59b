//! Datasets of datasets: FlatMapDataset, InterleaveDataset, ParallelInterleaveDataset.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel,
    dataset_of, dataset_op, input_dataset,
};
use super::functional::{
    ARGUMENTS, CAPTURED, CapturedFunction, CapturedFunctionDef, DETERMINISTIC, not_the_end, parallel_calls,
};
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use std::sync::Arc;
use tensor::{Result, Status};

const CYCLE: &str = "cycle_length: int64";
const BLOCK: &str = "block_length: int64";
const CALLS: &str = "num_parallel_calls: int64";
const BUFFERS: [&str; 2] = ["buffer_output_elements: int64", "prefetch_input_elements: int64"];

/// The longest cycle.
const MAX_CYCLE_LENGTH: i64 = 1 << 16;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "FlatMapDataset",
        &[INPUT, CAPTURED],
        &["f: func", ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        FLAT_MAP,
    ),
    dataset_op(
        "InterleaveDataset",
        &[INPUT, CAPTURED, CYCLE, BLOCK],
        &["f: func", ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        INTERLEAVE,
    ),
    dataset_op(
        "ParallelInterleaveDatasetV2",
        &[INPUT, CAPTURED, CYCLE, BLOCK, CALLS],
        &["f: func", ARGUMENTS, TYPES, SHAPES, "sloppy: bool = false", METADATA],
        OpFlags::NONE,
        INTERLEAVE,
    ),
    dataset_op(
        "ParallelInterleaveDatasetV3",
        &[INPUT, CAPTURED, CYCLE, BLOCK, CALLS],
        &["f: func", DETERMINISTIC, ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        INTERLEAVE,
    ),
    dataset_op(
        "ParallelInterleaveDatasetV4",
        &[INPUT, CAPTURED, CYCLE, BLOCK, "buffer_output_elements: int64", "prefetch_input_elements: int64", CALLS],
        &["f: func", DETERMINISTIC, ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        INTERLEAVE,
    ),
    dataset_op(
        "ParallelInterleaveDataset",
        &[INPUT, CAPTURED, CYCLE, BLOCK, "sloppy: bool", BUFFERS[0], BUFFERS[1]],
        &["f: func", ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        LEGACY,
    ),
    dataset_op(
        "ExperimentalParallelInterleaveDataset",
        &[INPUT, CAPTURED, CYCLE, BLOCK, "sloppy: bool", BUFFERS[0], BUFFERS[1]],
        &["f: func", ARGUMENTS, TYPES, SHAPES],
        OpFlags::NONE,
        LEGACY,
    ),
    dataset_op(
        "LegacyParallelInterleaveDatasetV2",
        &[INPUT, CAPTURED, CYCLE, BLOCK, BUFFERS[0], BUFFERS[1]],
        &["f: func", DETERMINISTIC, ARGUMENTS, TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        LEGACY,
    ),
];

const FLAT_MAP: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context| {
        let function = captured.bind(context)?;
        Ok(Interleave {
            input: input_dataset(context, 0)?,
            function,
            cycle_length: 1,
            block_length: i64::MAX,
            is_parallel: false,
        })
    })
})];
const LEGACY: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context: &mut OpContext<'_>| {
        let (end, last) = (captured.end(), context.num_inputs() - 1);
        let positive = |name: &str, number: i64| match number {
            number if number > 0 => Ok(number),
            _ => Err(Status::invalid_argument(format!("`{name}` must be > 0"))),
        };
        let cycle_length = positive("cycle_length", argument(context, end, "cycle_length")?)?;
        let block_length = positive("block_length", argument(context, end + 1, "block_length")?)?;
        // In this order nothing has to be buffered; the buffer sizes only have to be valid.
        match argument::<i64>(context, last - 1, "buffer_output_elements")? {
            -1 => {}
            number => drop(positive("buffer_output_elements", number)?),
        }
        match argument::<i64>(context, last, "prefetch_input_elements")? {
            number if number < -1 => return Err(Status::invalid_argument("`prefetch_input_elements` must be >= 0")),
            _ => {}
        }
        let (input, function) = (input_dataset(context, 0)?, captured.bind(context)?);
        Ok(Interleave { input, function, cycle_length: checked_cycle(cycle_length)?, block_length, is_parallel: true })
    })
})];
const INTERLEAVE: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context: &mut OpContext<'_>| {
        let end = captured.end();
        let mut cycle_length = argument::<i64>(context, end, "cycle_length")?;
        let block_length = argument::<i64>(context, end + 1, "block_length")?;
        if cycle_length == -1 && context.num_inputs() > end + 2 {
            cycle_length = parallel_calls(context, context.num_inputs() - 1)? as i64;
        }
        if cycle_length < 1 {
            return Err(Status::invalid_argument("cycle_length must be greater than zero."));
        }
        if block_length < 1 {
            return Err(Status::invalid_argument("block_length must be greater than zero."));
        }
        let cycle_length = checked_cycle(cycle_length)?;
        let (input, function) = (input_dataset(context, 0)?, captured.bind(context)?);
        let is_parallel = context.num_inputs() > end + 2;
        Ok(Interleave { input, function, cycle_length, block_length, is_parallel })
    })
})];

fn checked_cycle(length: i64) -> Result<usize> {
    match length {
        length if length > MAX_CYCLE_LENGTH => {
            Err(Status::invalid_argument(format!("cycle_length must be at most {MAX_CYCLE_LENGTH}")))
        }
        length => Ok(length as usize),
    }
}

struct Interleave {
    input: Arc<dyn Dataset>,
    function: CapturedFunction,
    cycle_length: usize,
    block_length: i64,
    is_parallel: bool,
}

impl Dataset for Interleave {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(InterleaveIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            function: self.function.own(&nesting)?,
            open: (0..self.cycle_length).map(|_| None).collect(),
            num_open: 0,
            current: 0,
            taken: 0,
            block_length: self.block_length,
            is_parallel: self.is_parallel,
            nesting,
        }))
    }
}

/// A dataset of the cycle, and the element that it was created from.
struct Open {
    element: Element,
    /// `None`, without an element, if the dataset could not be created: it keeps its place in the cycle until its next turn.
    iterator: Option<Box<dyn DatasetIterator>>,
}

struct InterleaveIterator {
    input: Option<Box<dyn DatasetIterator>>,
    function: CapturedFunction,
    open: Vec<Option<Open>>,
    num_open: usize,
    current: usize,
    /// The number of elements taken from the current block.
    taken: i64,
    block_length: i64,
    /// Whether this is one of the ops whose datasets run ahead: there an error takes the place of an element in its block.
    is_parallel: bool,
    nesting: Nesting,
}

impl InterleaveIterator {
    fn turn(&mut self) {
        self.current = (self.current + 1) % self.open.len();
        self.taken = 0;
    }

    /// Counts an element of the current block.
    fn count(&mut self) {
        self.taken += 1;
        if self.taken == self.block_length {
            self.turn();
        }
    }

    /// Returns an error of the current dataset, or of creating one.
    fn failed(&mut self, status: Status, step: &Step) -> Status {
        if self.is_parallel && !step.cancellation.is_cancelled() {
            if self.open[self.current].is_none() {
                self.open[self.current] = Some(Open { element: Element::new(), iterator: None });
                self.num_open += 1;
            }
            self.count();
        }
        status
    }
}

/// Creates the dataset of an element.
async fn opened(function: &CapturedFunction, element: Element, nesting: &Nesting, step: &Arc<Step>) -> Result<Open> {
    let results = function.call(element.clone(), step).await.map_err(not_the_end)?;
    let [dataset] = &results[..] else {
        return Err(Status::invalid_argument("Function must return a single dataset."));
    };
    Ok(Open { element, iterator: Some(dataset_of(dataset)?.iterator(nesting.deeper()?)?) })
}

impl DatasetIterator for InterleaveIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                turn(step).await?;
                if let Some(open) = &mut self.open[self.current] {
                    let next = match &mut open.iterator {
                        Some(iterator) => iterator.next(step).await,
                        None => Ok(None),
                    };
                    match next {
                        Ok(Some(element)) => {
                            self.count();
                            return Ok(Some(element));
                        }
                        Ok(None) => {
                            self.open[self.current] = None;
                            self.num_open -= 1;
                            self.turn();
                        }
                        Err(status) => return Err(self.failed(status, step)),
                    }
                } else if let Some(input) = &mut self.input {
                    let opened = match input.next(step).await {
                        Ok(Some(element)) => opened(&self.function, element, &self.nesting, step).await.map(Some),
                        Ok(None) => Ok(None),
                        Err(status) => Err(status),
                    };
                    match opened {
                        Ok(Some(opened)) => {
                            self.open[self.current] = Some(opened);
                            self.num_open += 1;
                        }
                        Ok(None) => self.input = None,
                        Err(status) => return Err(self.failed(status, step)),
                    }
                } else if self.num_open == 0 {
                    return Ok(None);
                } else {
                    self.turn();
                }
            }
        })
    }
    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let mut position = Position::of::<Self>().size(self.current).number(self.taken).size(self.open.len());
            for open in &mut self.open {
                position = match open {
                    Some(open) => {
                        position.flag(true).element(&open.element).within_maybe(&mut open.iterator, step).await?
                    }
                    None => position.flag(false),
                };
            }
            position.within_maybe(&mut self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            (self.current, self.taken) = (reader.size()?, reader.number()?);
            if reader.size()? != self.open.len() || self.current >= self.open.len() {
                return Err(Status::failed_precondition("the saved position is that of a cycle of another length"));
            }
            for slot in 0..self.open.len() {
                turn(step).await?;
                if reader.flag()? {
                    let element = reader.element()?;
                    let mut open = match element.is_empty() {
                        true => Open { element, iterator: None },
                        false => opened(&self.function, element, &self.nesting, step).await?,
                    };
                    reader.within_or_ended(&mut open.iterator, step).await?;
                    self.open[slot] = Some(open);
                    self.num_open += 1;
                }
            }
            reader.within_or_ended(&mut self.input, step).await
        })
    }
}
