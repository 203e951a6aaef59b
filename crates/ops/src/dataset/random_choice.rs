//! Random numbers, and selection of elements by number: RandomDataset, SamplingDataset, DirectedInterleaveDataset.

use super::base::{
    Dataset, DatasetIterator, INFINITE, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel,
    dataset_op, input_dataset, ready,
};
use super::position::{Position, Restoring, Saving};
use super::shuffle::{SeedGenerator, Stream};
use super::task::turn;
use kernel::{KernelBuilder, KernelDef, Op, OpFlags, Step};
use std::sync::Arc;
use tensor::{DType, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("RandomDataset", &SEEDS, &[TYPES, SHAPES, METADATA], OpFlags::STATEFUL, RANDOM),
    dataset_op("ExperimentalRandomDataset", &SEEDS, &[TYPES, SHAPES], OpFlags::STATEFUL, RANDOM),
    dataset_op(
        "RandomDatasetV2",
        &[SEEDS[0], SEEDS[1], "seed_generator: resource"],
        &["rerandomize_each_iteration: bool = false", TYPES, SHAPES, METADATA],
        OpFlags::STATEFUL,
        RANDOM,
    ),
    dataset_op(
        "SamplingDataset",
        &[INPUT, "rate: float", SEEDS[0], SEEDS[1]],
        &[TYPES, SHAPES],
        OpFlags::NONE,
        &[KernelDef::any(|_| {
            dataset_kernel(|context| {
                let seeds = (argument(context, 2, "seed")?, argument(context, 3, "seed2")?);
                let (input, rate) = (input_dataset(context, 0)?, argument::<f32>(context, 1, "rate")?);
                Ok(Sampling { input, rate, seeds: SeedGenerator::new(seeds, false) })
            })
        })],
    ),
    dataset_op(
        "DirectedInterleaveDataset",
        DIRECTED_INPUTS,
        &[TYPES, SHAPES, "N: int >= 1", "stop_on_empty_dataset: bool = false"],
        OpFlags::NONE,
        DIRECTED,
    ),
    dataset_op(
        "ExperimentalDirectedInterleaveDataset",
        DIRECTED_INPUTS,
        &[TYPES, SHAPES, "N: int >= 1"],
        OpFlags::NONE,
        DIRECTED,
    ),
];

const SEEDS: [&str; 2] = ["seed: int64", "seed2: int64"];
const DIRECTED_INPUTS: &[&str] = &["selector_input_dataset: variant", "data_input_datasets: N * variant"];

const RANDOM: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let changes = builder.attrs().bool("rerandomize_each_iteration").unwrap_or(false);
    dataset_kernel(move |context| {
        let seeds = (argument(context, 0, "seed")?, argument(context, 1, "seed2")?);
        let given = if context.num_inputs() > 2 { context.resource::<SeedGenerator>(2).ok() } else { None };
        Ok(Random { seeds: given.unwrap_or_else(|| Arc::new(SeedGenerator::new(seeds, changes))) })
    })
})];
const DIRECTED: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let stops = builder.attrs().bool("stop_on_empty_dataset").unwrap_or(false);
    dataset_kernel(move |context| {
        let inputs = (1..context.num_inputs()).map(|index| input_dataset(context, index)).collect::<Result<_>>()?;
        Ok(DirectedInterleave { selector: input_dataset(context, 0)?, inputs, stops })
    })
})];

struct Random {
    seeds: Arc<SeedGenerator>,
}

impl Dataset for Random {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(RandomIterator { stream: self.seeds.round() }))
    }

    fn cardinality(&self) -> i64 {
        INFINITE
    }
}

struct RandomIterator {
    stream: Stream,
}

impl DatasetIterator for RandomIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        ready(Ok(Some(vec![Tensor::scalar(i64::from(self.stream.next_u32()))])))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(std::future::ready(Ok(self.stream.save(Position::of::<Self>()))))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            self.stream = Stream::restore(&mut position.read::<Self>()?)?;
            Ok(())
        })
    }
}

struct Sampling {
    input: Arc<dyn Dataset>,
    rate: f32,
    seeds: SeedGenerator,
}

impl Dataset for Sampling {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(Box::new(SamplingIterator { input, rate: self.rate, stream: self.seeds.round() }))
    }
}

struct SamplingIterator {
    input: Box<dyn DatasetIterator>,
    rate: f32,
    stream: Stream,
}

impl DatasetIterator for SamplingIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while let Some(element) = self.input.next(step).await? {
                if self.stream.fraction() < self.rate {
                    return Ok(Some(element));
                }
                turn(step).await?;
            }
            Ok(None)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(self.stream.save(Position::of::<Self>()).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.stream = Stream::restore(&mut reader)?;
            reader.within(&mut *self.input, step).await
        })
    }
}

struct DirectedInterleave {
    selector: Arc<dyn Dataset>,
    inputs: Vec<Arc<dyn Dataset>>,
    /// Whether the first exhausted dataset ends the whole dataset.
    stops: bool,
}

impl Dataset for DirectedInterleave {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let open = |dataset: &Arc<dyn Dataset>| Ok(Some(dataset.iterator(nesting.deeper()?)?));
        Ok(Box::new(DirectedInterleaveIterator {
            selector: open(&self.selector)?,
            inputs: self.inputs.iter().map(open).collect::<Result<_>>()?,
            stops: self.stops,
        }))
    }
}

struct DirectedInterleaveIterator {
    /// `None` at the end.
    selector: Option<Box<dyn DatasetIterator>>,
    inputs: Vec<Option<Box<dyn DatasetIterator>>>,
    stops: bool,
}

impl DatasetIterator for DirectedInterleaveIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while let Some(selector) = &mut self.selector {
                turn(step).await?;
                let Some(choice) = selector.next(step).await? else {
                    self.selector = None;
                    break;
                };
                let selected = match &choice[..] {
                    [selected] if selected.dtype() == DType::Int64 => selected.to_scalar::<i64>()?,
                    _ => return Err(Status::invalid_argument("The selector dataset must give int64 scalars.")),
                };
                let count = self.inputs.len();
                let input = usize::try_from(selected).ok().and_then(|index| self.inputs.get_mut(index));
                let Some(input) = input else {
                    let message = format!("Selector index out of range: {selected} >= {count}");
                    return Err(Status::invalid_argument(message));
                };
                let Some(open) = input else { continue };
                if let Some(element) = open.next(step).await? {
                    return Ok(Some(element));
                }
                *input = None;
                if self.stops || self.inputs.iter().all(Option::is_none) {
                    self.selector = None;
                }
            }
            Ok(None)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let mut position = Position::of::<Self>().size(self.inputs.len());
            position = position.within_maybe(&mut self.selector, step).await?;
            for input in &mut self.inputs {
                position = position.within_maybe(input, step).await?;
            }
            Ok(position)
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            if reader.size()? != self.inputs.len() {
                return Err(Status::failed_precondition("the saved position is that of other datasets"));
            }
            reader.within_or_ended(&mut self.selector, step).await?;
            for input in &mut self.inputs {
                reader.within_or_ended(input, step).await?;
            }
            Ok(())
        })
    }
}
