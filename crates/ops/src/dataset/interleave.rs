//! Datasets of datasets: FlatMapDataset, InterleaveDataset, ParallelInterleaveDataset.

use super::base::{
    Dataset, DatasetIterator, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel, dataset_of,
    dataset_op, input_dataset,
};
use super::functional::{CapturedFunction, CapturedFunctionDef, parallel_calls};
use super::task::turn;
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use std::sync::Arc;
use tensor::{Result, Status};

const CAPTURED: &str = "other_arguments: Targuments";
const ARGUMENTS: &str = "Targuments: list(type) >= 0";
const CYCLE: &str = "cycle_length: int64";
const BLOCK: &str = "block_length: int64";
const CALLS: &str = "num_parallel_calls: int64";
const DETERMINISTIC: &str = "deterministic: string = 'default'";

/// No cycle is longer.
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
];

const FLAT_MAP: &[KernelDef] = &[KernelDef::any(|builder| {
    let captured = CapturedFunctionDef::new(builder, "f")?;
    dataset_kernel(move |context| {
        let function = captured.bind(context)?;
        Ok(Interleave { input: input_dataset(context, 0)?, function, cycle_length: 1, block_length: i64::MAX })
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
        if cycle_length > MAX_CYCLE_LENGTH {
            return Err(Status::invalid_argument(format!("cycle_length must be at most {MAX_CYCLE_LENGTH}")));
        }
        let function = captured.bind(context)?;
        Ok(Interleave {
            input: input_dataset(context, 0)?,
            function,
            cycle_length: cycle_length as usize,
            block_length,
        })
    })
})];

struct Interleave {
    input: Arc<dyn Dataset>,
    function: CapturedFunction,
    cycle_length: usize,
    block_length: i64,
}

impl Dataset for Interleave {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(InterleaveIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            function: self.function.clone(),
            open: (0..self.cycle_length).map(|_| None).collect(),
            num_open: 0,
            current: 0,
            taken: 0,
            block_length: self.block_length,
            nesting,
        }))
    }
}

struct InterleaveIterator {
    input: Option<Box<dyn DatasetIterator>>,
    function: CapturedFunction,
    open: Vec<Option<Box<dyn DatasetIterator>>>,
    num_open: usize,
    current: usize,
    /// How many elements of the current block were taken.
    taken: i64,
    block_length: i64,
    nesting: Nesting,
}

impl InterleaveIterator {
    fn turn(&mut self) {
        self.current = (self.current + 1) % self.open.len();
        self.taken = 0;
    }
}

impl DatasetIterator for InterleaveIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                turn(step).await?;
                if let Some(open) = &mut self.open[self.current] {
                    match open.next(step).await? {
                        Some(element) => {
                            self.taken += 1;
                            if self.taken == self.block_length {
                                self.turn();
                            }
                            return Ok(Some(element));
                        }
                        None => {
                            self.open[self.current] = None;
                            self.num_open -= 1;
                            self.turn();
                        }
                    }
                } else if let Some(input) = &mut self.input {
                    match input.next(step).await? {
                        Some(element) => {
                            let results = self.function.call(element, step).await?;
                            let [dataset] = &results[..] else {
                                return Err(Status::invalid_argument("Function must return a single dataset."));
                            };
                            self.open[self.current] = Some(dataset_of(dataset)?.iterator(self.nesting.deeper()?)?);
                            self.num_open += 1;
                        }
                        None => self.input = None,
                    }
                } else if self.num_open == 0 {
                    return Ok(None);
                } else {
                    self.turn();
                }
            }
        })
    }
}
