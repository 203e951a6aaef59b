//! Shuffling: ShuffleDataset, ShuffleAndRepeatDataset, and the generators of their seeds. For the same seeds the order is
//! TensorFlow's.

use super::base::{
    Dataset, DatasetIterator, Element, INFINITE, INPUT, METADATA, Nesting, Next, PLAIN, SHAPES, TYPES, argument,
    dataset_kernel, dataset_op, element_bytes, input_dataset,
};
use super::position::{Position, PositionReader, Restoring, Saving};
use super::task::turn;
use crate::random::SingleSample;
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Resource, Step};
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
    dataset_op(
        "ShuffleAndRepeatDatasetV2",
        &[INPUT, "buffer_size: int64", "seed: int64", "seed2: int64", "count: int64", "seed_generator: resource"],
        &["reshuffle_each_iteration: bool = true", TYPES, SHAPES, METADATA],
        OpFlags::STATEFUL,
        SHUFFLE,
    ),
    dataset_op(
        "ShuffleDatasetV2",
        &[INPUT, "buffer_size: int64", "seed_generator: resource"],
        PLAIN,
        OpFlags::STATEFUL,
        SHUFFLE_V2,
    ),
];

const SHUFFLE: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let reshuffles = builder.attrs().bool("reshuffle_each_iteration")?;
    let repeats = builder.node.op().starts_with("ShuffleAndRepeat");
    dataset_kernel(move |context| {
        let buffer_size = buffer_size(context)?;
        let seeds = (argument::<i64>(context, 2, "seed")?, argument::<i64>(context, 3, "seed2")?);
        let count = if repeats { argument::<i64>(context, 4, "count")? } else { 1 };
        if count == 0 || count < -1 {
            return Err(Status::invalid_argument("count must be greater than zero or equal to -1."));
        }
        let generator = if repeats { 5 } else { 4 };
        let seeds = match context.num_inputs() > generator && context.resource::<SeedGenerator>(generator).is_ok() {
            true => context.resource::<SeedGenerator>(generator)?,
            // Without seeds the order is different every time, but the same for all iterators of this dataset.
            false => Arc::new(SeedGenerator::new(seeds, reshuffles)),
        };
        Ok(Shuffle { input: input_dataset(context, 0)?, buffer_size, seeds, count })
    })
})];
const SHUFFLE_V2: &[KernelDef] = &[KernelDef::any(|_: &KernelBuilder<'_>| {
    dataset_kernel(move |context| {
        let (buffer_size, seeds) = (buffer_size(context)?, context.resource::<SeedGenerator>(2)?);
        Ok(Shuffle { input: input_dataset(context, 0)?, buffer_size, seeds, count: 1 })
    })
})];

fn buffer_size(context: &OpContext<'_>) -> Result<usize> {
    let size = argument::<i64>(context, 1, "buffer_size")?;
    usize::try_from(size).ok().filter(|&size| size > 0).ok_or_else(|| {
        Status::invalid_argument(format!("buffer_size must be greater than zero or UNKNOWN_CARDINALITY, got {size}"))
    })
}

/// A stream of random numbers that knows its position.
pub(super) struct Stream {
    seeds: (i64, i64),
    drawn: u64,
    numbers: SingleSample,
}

impl Stream {
    /// Starts a stream; unset seeds are drawn.
    pub(super) fn new(seeds: (i64, i64)) -> Stream {
        let seeds = match seeds {
            (0, 0) => {
                let mut random = SingleSample::new(seeds);
                (i64::from(random.next_u32()), i64::from(random.next_u32()))
            }
            given => given,
        };
        Stream { seeds, drawn: 0, numbers: SingleSample::new(seeds) }
    }

    pub(super) fn next_u32(&mut self) -> u32 {
        self.drawn += 1;
        self.numbers.next_u32()
    }

    pub(super) fn fraction(&mut self) -> f32 {
        self.drawn += 1;
        self.numbers.fraction()
    }

    pub(super) fn save(&self, position: Position) -> Position {
        position.number(self.seeds.0).number(self.seeds.1).number(self.drawn as i64)
    }

    pub(super) fn restore(reader: &mut PositionReader<'_>) -> Result<Stream> {
        let seeds = (reader.number()?, reader.number()?);
        let drawn = reader.number()? as u64;
        Ok(Stream { seeds, drawn, numbers: SingleSample::at(seeds, drawn) })
    }
}

/// The source of an iteration's seeds.
pub(super) struct SeedGenerator {
    stream: Mutex<Stream>,
    /// Whether each iteration has its own seeds.
    reshuffles: bool,
}

impl SeedGenerator {
    pub(super) fn new(seeds: (i64, i64), reshuffles: bool) -> SeedGenerator {
        SeedGenerator { stream: Mutex::new(Stream::new(seeds)), reshuffles }
    }

    /// Returns the seeds of the next iteration.
    pub(super) fn round(&self) -> Stream {
        let mut stream = self.stream.lock();
        match self.reshuffles {
            true => Stream::new((i64::from(stream.next_u32()), i64::from(stream.next_u32()))),
            false => Stream::new(stream.seeds),
        }
    }
}

impl Resource for SeedGenerator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data20SeedGeneratorManagerE"
    }

    fn describe(&self) -> String {
        "generator of the seeds of a dataset".to_owned()
    }
}

struct Shuffle {
    input: Arc<dyn Dataset>,
    buffer_size: usize,
    seeds: Arc<SeedGenerator>,
    /// The number of rounds; a negative one means without end.
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

    fn cardinality(&self) -> i64 {
        match (self.input.cardinality(), self.count) {
            (0, _) => 0,
            (_, count) if count < 0 => INFINITE,
            (all, _) if all < 0 => all,
            (all, count) => all.saturating_mul(count),
        }
    }
}

struct ShuffleIterator {
    dataset: Arc<dyn Dataset>,
    input: Option<Box<dyn DatasetIterator>>,
    rounds_left: i64,
    /// Whether the current round has yielded anything.
    gave: bool,
    seeds: Arc<SeedGenerator>,
    random: Stream,
    /// A ring buffer of elements, whose indices increase without end.
    slots: Vec<Option<Element>>,
    buffer_size: usize,
    /// The range of indices of each round's elements in the buffer; those of the first round are returned first.
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
                        // A buffer that exceeds memory fails before it has taken all of it.
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
    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let mut position = self.seeds.stream.lock().save(Position::of::<Self>());
            position = self.random.save(position).number(self.rounds_left).flag(self.gave).size(self.rounds.len());
            for (start, end) in self.rounds.clone() {
                position = position.size(start).size(end);
                for number in start..end {
                    position = position.element(self.slot(number).get_or_insert_default());
                }
            }
            position.within_maybe(&mut self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            let seeds = Stream::restore(&mut reader)?;
            *self.seeds.stream.lock() = seeds;
            self.random = Stream::restore(&mut reader)?;
            (self.rounds_left, self.gave) = (reader.number()?, reader.flag()?);
            for _ in 0..reader.size()? {
                let (start, end) = (reader.size()?, reader.size()?);
                self.rounds.push_back((start, end));
                for number in start..end {
                    if self.held >= self.buffer_size {
                        return Err(Status::failed_precondition("the saved position is that of a larger buffer"));
                    }
                    let element = reader.element()?;
                    self.held += 1;
                    self.held_bytes = self.held_bytes.saturating_add(element_bytes(&element));
                    *self.slot(number) = Some(element);
                }
            }
            self.input = reader.within_maybe(&*self.dataset, &self.nesting, step).await?;
            Ok(())
        })
    }
}
