//! Random order: ShuffleDataset, ShuffleAndRepeatDataset. For the same seeds it is TensorFlow's.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel,
    dataset_op, element_bytes, input_dataset,
};
use super::task::turn;
use crate::random::SingleSample;
use kernel::{KernelBuilder, KernelDef, Op, OpFlags, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, Status};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "ShuffleDataset",
        &[INPUT, "buffer_size: int64", "seed: int64", "seed2: int64"],
        &["reshuffle_each_iteration: bool = true", TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        SHUFFLE,
    ),
    dataset_op(
        "ShuffleDatasetV3",
        &[INPUT, "buffer_size: int64", "seed: int64", "seed2: int64", "seed_generator: resource"],
        &["reshuffle_each_iteration: bool = true", TYPES, SHAPES, METADATA],
        OpFlags::STATEFUL,
        SHUFFLE,
    ),
    dataset_op(
        "ShuffleAndRepeatDataset",
        &[INPUT, "buffer_size: int64", "seed: int64", "seed2: int64", "count: int64"],
        &[TYPES, SHAPES, "reshuffle_each_iteration: bool = true", METADATA],
        OpFlags::NONE,
        SHUFFLE,
    ),
];

const SHUFFLE: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let reshuffles = builder.attrs().bool("reshuffle_each_iteration")?;
    let repeats = builder.node.op() == "ShuffleAndRepeatDataset";
    dataset_kernel(move |context| {
        let buffer_size = argument::<i64>(context, 1, "buffer_size")?;
        let buffer_size = usize::try_from(buffer_size).ok().filter(|&size| size > 0).ok_or_else(|| {
            Status::invalid_argument(format!(
                "buffer_size must be greater than zero or UNKNOWN_CARDINALITY, got {buffer_size}"
            ))
        })?;
        let seeds = (argument::<i64>(context, 2, "seed")?, argument::<i64>(context, 3, "seed2")?);
        let count = if repeats { argument::<i64>(context, 4, "count")? } else { 1 };
        // Without seeds there is a new order every time, but the same for everyone who goes through this dataset again.
        let mut generator = SingleSample::new(seeds);
        let seeds = match seeds {
            (0, 0) => (i64::from(generator.next_u32()), i64::from(generator.next_u32())),
            given => given,
        };
        let seeds = match reshuffles {
            true => Seeds::Drawn(Mutex::new(SingleSample::new(seeds))),
            false => Seeds::Fixed(seeds),
        };
        Ok(Shuffle { input: input_dataset(context, 0)?, buffer_size, seeds: Arc::new(seeds), count })
    })
})];

/// Where the seeds of an iteration come from.
enum Seeds {
    Fixed((i64, i64)),
    Drawn(Mutex<SingleSample>),
}

impl Seeds {
    /// Returns the order of the next round.
    fn round(&self) -> SingleSample {
        SingleSample::new(match self {
            Seeds::Fixed(seeds) => *seeds,
            Seeds::Drawn(generator) => {
                let mut generator = generator.lock();
                (i64::from(generator.next_u32()), i64::from(generator.next_u32()))
            }
        })
    }
}

struct Shuffle {
    input: Arc<dyn Dataset>,
    buffer_size: usize,
    seeds: Arc<Seeds>,
    /// How many rounds; below zero means forever.
    count: i64,
}

impl Dataset for Shuffle {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(ShuffleIterator {
            dataset: self.input.clone(),
            input: None,
            rounds_left: self.count,
            gave: false,
            random: self.seeds.round(),
            seeds: self.seeds.clone(),
            slots: Vec::new(),
            buffer_size: self.buffer_size,
            rounds: VecDeque::new(),
            held: 0,
            held_bytes: 0,
            nesting,
        }))
    }
}

struct ShuffleIterator {
    dataset: Arc<dyn Dataset>,
    input: Option<Box<dyn DatasetIterator>>,
    rounds_left: i64,
    /// Whether the current round gave anything.
    gave: bool,
    seeds: Arc<Seeds>,
    random: SingleSample,
    /// A ring of elements; numbers of elements count on without end.
    slots: Vec<Option<Element>>,
    buffer_size: usize,
    /// From which to which number the buffer holds elements of each round; those of the first round come out first.
    rounds: VecDeque<(usize, usize)>,
    held: usize,
    held_bytes: usize,
    nesting: Nesting,
}

impl ShuffleIterator {
    fn slot(&mut self, number: usize) -> &mut Option<Element> {
        let index = number % self.buffer_size;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        &mut self.slots[index]
    }
}

impl DatasetIterator for ShuffleIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while self.held < self.buffer_size {
                turn(step).await?;
                if self.input.is_none() {
                    if self.rounds_left == 0 {
                        break;
                    }
                    self.rounds_left -= i64::from(self.rounds_left > 0);
                    self.input = Some(self.dataset.iterator(self.nesting.deeper()?)?);
                    self.gave = false;
                    let start = self.rounds.back().map_or(0, |round| round.1);
                    self.rounds.push_back((start, start));
                }
                let Some(input) = &mut self.input else { break };
                match input.next(step).await? {
                    Some(element) => {
                        self.gave = true;
                        self.held += 1;
                        // A buffer for more than there is memory fails before it has taken all of it.
                        self.held_bytes = self.held_bytes.saturating_add(element_bytes(&element));
                        tensor::check_elements_fit(self.held_bytes, 1)?;
                        let number = match self.rounds.back_mut() {
                            Some(round) => {
                                round.1 += 1;
                                round.1 - 1
                            }
                            None => 0,
                        };
                        *self.slot(number) = Some(element);
                    }
                    None => {
                        self.input = None;
                        if !self.gave && self.rounds_left < 0 {
                            self.rounds_left = 0;
                        }
                    }
                }
            }
            while self.rounds.len() > 1 && self.rounds.front().is_some_and(|(start, end)| start == end) {
                self.rounds.pop_front();
                self.random = self.seeds.round();
            }
            let Some(&(start, end)) = self.rounds.front() else { return Ok(None) };
            if self.held == 0 || start == end {
                return Ok(None);
            }
            let picked = start + self.random.next_u32() as usize % (end - start);
            let element = self.slot(picked).take();
            // The first element of the round takes its place.
            if picked != start {
                let first = self.slot(start).take();
                *self.slot(picked) = first;
            }
            if let Some(round) = self.rounds.front_mut() {
                round.0 += 1;
            }
            self.held -= 1;
            self.held_bytes = self.held_bytes.saturating_sub(element.as_ref().map_or(0, element_bytes));
            Ok(element)
        })
    }
}
