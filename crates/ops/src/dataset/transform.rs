//! Datasets from datasets, element by element: TakeDataset, SkipDataset, RepeatDataset, ZipDataset, ConcatenateDataset,
//! ShardDataset, and those that only carry hints.

use super::base::{
    Dataset, DatasetIterator, Element, INFINITE, INPUT, METADATA, Nesting, Next, PLAIN, SHAPES, TYPES, UNKNOWN,
    argument, dataset_kernel, dataset_op, input_dataset, ready, shared_dataset_kernel,
};
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use kernel::{KernelDef, Op, OpFlags, Step};
use std::sync::Arc;
use tensor::{Result, Status};

const HINTS: &[KernelDef] = &[KernelDef::any(|_| shared_dataset_kernel(|context| input_dataset(context, 0)))];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("TakeDataset", &[INPUT, "count: int64"], PLAIN, OpFlags::NONE, TAKE),
    dataset_op("SkipDataset", &[INPUT, "count: int64"], PLAIN, OpFlags::NONE, SKIP),
    dataset_op("RepeatDataset", &[INPUT, "count: int64"], PLAIN, OpFlags::NONE, REPEAT),
    dataset_op("ConcatenateDataset", &[INPUT, "another_dataset: variant"], PLAIN, OpFlags::NONE, CONCATENATE),
    dataset_op(
        "ZipDataset",
        &["input_datasets: N * variant"],
        &[TYPES, SHAPES, "N: int >= 1", METADATA],
        OpFlags::NONE,
        ZIP,
    ),
    dataset_op(
        "ShardDataset",
        &[INPUT, "num_shards: int64", "index: int64"],
        &["require_non_empty: bool = false", TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        SHARD,
    ),
    dataset_op(
        "OptionsDataset",
        &[INPUT],
        &["serialized_options: string", TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        HINTS,
    ),
    dataset_op(
        "ModelDataset",
        &[INPUT],
        &["algorithm: int = 0", "cpu_budget: int = 0", "ram_budget: int = 0", TYPES, SHAPES],
        OpFlags::NONE,
        HINTS,
    ),
    dataset_op(
        "OptimizeDataset",
        &[INPUT, "optimizations: string"],
        &[TYPES, SHAPES, "optimization_configs: list(string) = []"],
        OpFlags::NONE,
        HINTS,
    ),
    dataset_op("FinalizeDataset", &[INPUT], &["has_captured_ref: bool = false", TYPES, SHAPES], OpFlags::NONE, HINTS),
    dataset_op(
        "OptimizeDatasetV2",
        &[INPUT, "optimizations_enabled: string", "optimizations_disabled: string", "optimizations_default: string"],
        &[TYPES, SHAPES, "optimization_configs: list(string) = []"],
        OpFlags::NONE,
        HINTS,
    ),
    // The rewrites that it names change the pipeline but not its elements: how they are sharded, which steps are fused.
    hint("RewriteDataset", &[INPUT, "rewrite_name: string"]),
    hint("NonSerializableDataset", &[INPUT]),
    hint("ExperimentalNonSerializableDataset", &[INPUT]),
    hint("MaxIntraOpParallelismDataset", &[INPUT, "max_intra_op_parallelism: int64"]),
    hint("ExperimentalMaxIntraOpParallelismDataset", &[INPUT, "max_intra_op_parallelism: int64"]),
    hint("PrivateThreadPoolDataset", &[INPUT, "num_threads: int64"]),
    hint("ExperimentalPrivateThreadPoolDataset", &[INPUT, "num_threads: int64"]),
    hint("BytesProducedStatsDataset", &[INPUT, "tag: string"]),
    hint("ExperimentalBytesProducedStatsDataset", &[INPUT, "tag: string"]),
    hint("LatencyStatsDataset", &[INPUT, "tag: string"]),
    hint("ExperimentalLatencyStatsDataset", &[INPUT, "tag: string"]),
];

/// The record of an op that changes how elements are computed, but not their values.
const fn hint(name: &'static str, inputs: &'static [&'static str]) -> Op {
    dataset_op(name, inputs, &[TYPES, SHAPES], OpFlags::NONE, HINTS)
}

const TAKE: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| Ok(Take { input: input_dataset(context, 0)?, count: argument(context, 1, "count")? }))
})];
const SKIP: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| Ok(Skip { input: input_dataset(context, 0)?, count: argument(context, 1, "count")? }))
})];
const REPEAT: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| Ok(Repeat { input: input_dataset(context, 0)?, count: argument(context, 1, "count")? }))
})];
const CONCATENATE: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| Ok(Concatenate { inputs: [input_dataset(context, 0)?, input_dataset(context, 1)?] }))
})];
const ZIP: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let inputs = (0..context.num_inputs()).map(|index| input_dataset(context, index)).collect::<Result<_>>()?;
        Ok(Zip { inputs })
    })
})];
const SHARD: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let (shards, index) = (argument::<i64>(context, 1, "num_shards")?, argument::<i64>(context, 2, "index")?);
        if shards < 1 {
            let message = format!("Number of shards must be greater than zero (currently num_shards = {shards}).");
            return Err(Status::invalid_argument(message));
        }
        if !(0..shards).contains(&index) {
            return Err(Status::invalid_argument(format!(
                "Index must be between 0 and {} (currently index = {index}).",
                shards - 1
            )));
        }
        Ok(Shard { input: input_dataset(context, 0)?, shards, index })
    })
})];
struct Take {
    input: Arc<dyn Dataset>,
    /// A negative number means all.
    count: i64,
}

impl Dataset for Take {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(if self.count < 0 { input } else { Box::new(TakeIterator { input, left: self.count }) })
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            all if self.count < 0 => all,
            UNKNOWN => UNKNOWN,
            INFINITE => self.count,
            all => all.min(self.count),
        }
    }
}

struct TakeIterator {
    input: Box<dyn DatasetIterator>,
    left: i64,
}

impl DatasetIterator for TakeIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        if self.left == 0 {
            return ready(Ok(None));
        }
        Box::pin(async move {
            // An element that fails doesn't count as taken.
            let element = self.input.next(step).await?;
            self.left -= 1;
            Ok(element)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().number(self.left).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.left = reader.number()?;
            reader.within(&mut *self.input, step).await
        })
    }
}

struct Skip {
    input: Arc<dyn Dataset>,
    /// A negative number means all.
    count: i64,
}

impl Dataset for Skip {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        if self.count < 0 {
            return Ok(Box::new(TakeIterator { input: self.input.iterator(nesting.deeper()?)?, left: 0 }));
        }
        Ok(Box::new(SkipIterator { input: self.input.iterator(nesting.deeper()?)?, left: self.count }))
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            _ if self.count < 0 => 0,
            all if all < 0 => all,
            all => (all - self.count).max(0),
        }
    }
}

struct SkipIterator {
    input: Box<dyn DatasetIterator>,
    left: i64,
}

impl DatasetIterator for SkipIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        if self.left == 0 {
            return self.input.next(step);
        }
        Box::pin(async move {
            // After an error TensorFlow skips as many again. A cancelled step doesn't change the count.
            let mut left = self.left;
            while left > 0 {
                let skipped = match turn(step).await {
                    Ok(()) => self.input.next(step).await,
                    Err(status) => Err(status),
                };
                match skipped {
                    Ok(Some(_)) => left -= 1,
                    Ok(None) => {
                        self.left = 0;
                        return Ok(None);
                    }
                    Err(status) => {
                        if step.cancellation.is_cancelled() {
                            self.left = left;
                        }
                        return Err(status);
                    }
                }
            }
            self.left = 0;
            self.input.next(step).await
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().number(self.left).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.left = reader.number()?;
            reader.within(&mut *self.input, step).await
        })
    }
}

struct Repeat {
    input: Arc<dyn Dataset>,
    /// A negative number means without end.
    count: i64,
}

impl Dataset for Repeat {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(RepeatIterator { input: self.input.clone(), left: self.count, current: None, nesting }))
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            0 => 0,
            _ if self.count == 0 => 0,
            _ if self.count < 0 => INFINITE,
            all if all < 0 => all,
            all => all.saturating_mul(self.count),
        }
    }
}

struct RepeatIterator {
    input: Arc<dyn Dataset>,
    left: i64,
    /// The current round, and whether it has yielded anything yet.
    current: Option<(Box<dyn DatasetIterator>, bool)>,
    nesting: Nesting,
}

impl DatasetIterator for RepeatIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                turn(step).await?;
                if self.current.is_none() {
                    if self.left == 0 {
                        return Ok(None);
                    }
                    self.left = if self.left > 0 { self.left - 1 } else { self.left };
                    self.current = Some((self.input.iterator(self.nesting.deeper()?)?, false));
                }
                let Some((round, gave)) = &mut self.current else { return Ok(None) };
                if let Some(element) = round.next(step).await? {
                    *gave = true;
                    return Ok(Some(element));
                }
                // An empty dataset would be repeated forever.
                if !*gave && self.left < 0 {
                    self.left = 0;
                }
                self.current = None;
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let position = Position::of::<Self>().number(self.left);
            match &mut self.current {
                Some((round, gave)) => position.flag(true).flag(*gave).within(&mut **round, step).await,
                None => Ok(position.flag(false)),
            }
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.left = reader.number()?;
            self.current = None;
            if reader.flag()? {
                let gave = reader.flag()?;
                let mut round = self.input.iterator(self.nesting.deeper()?)?;
                reader.within(&mut *round, step).await?;
                self.current = Some((round, gave));
            }
            Ok(())
        })
    }
}

struct Concatenate {
    inputs: [Arc<dyn Dataset>; 2],
}

impl Dataset for Concatenate {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let (current, then) = (self.inputs[0].iterator(nesting.deeper()?)?, Some(self.inputs[1].clone()));
        Ok(Box::new(ConcatenateIterator { current, then, nesting }))
    }

    fn cardinality(&self) -> i64 {
        match (self.inputs[0].cardinality(), self.inputs[1].cardinality()) {
            (INFINITE, _) | (_, INFINITE) => INFINITE,
            (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
            (first, second) => first.saturating_add(second),
        }
    }
}

struct ConcatenateIterator {
    current: Box<dyn DatasetIterator>,
    then: Option<Arc<dyn Dataset>>,
    nesting: Nesting,
}

impl DatasetIterator for ConcatenateIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            if let Some(element) = self.current.next(step).await? {
                return Ok(Some(element));
            }
            match self.then.take() {
                Some(then) => {
                    self.current = then.iterator(self.nesting.deeper()?)?;
                    self.current.next(step).await
                }
                None => Ok(None),
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().flag(self.then.is_none()).within(&mut *self.current, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            if reader.flag()?
                && let Some(then) = self.then.take()
            {
                self.current = then.iterator(self.nesting.deeper()?)?;
            }
            reader.within(&mut *self.current, step).await
        })
    }
}

struct Zip {
    inputs: Vec<Arc<dyn Dataset>>,
}

impl Dataset for Zip {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let inputs = self.inputs.iter().map(|input| input.iterator(nesting.deeper()?)).collect::<Result<_>>()?;
        Ok(Box::new(ZipIterator { inputs, ended: false }))
    }

    fn cardinality(&self) -> i64 {
        let mut least = INFINITE;
        for input in &self.inputs {
            match input.cardinality() {
                UNKNOWN => return UNKNOWN,
                INFINITE => {}
                all => least = if least == INFINITE { all } else { least.min(all) },
            }
        }
        least
    }
}

struct ZipIterator {
    inputs: Vec<Box<dyn DatasetIterator>>,
    ended: bool,
}

impl DatasetIterator for ZipIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let mut element = Element::new();
            let mut failed = None;
            for input in &mut self.inputs {
                match input.next(step).await {
                    Ok(Some(part)) if !self.ended => element.extend(part),
                    Ok(_) => {
                        self.ended = true;
                        return Ok(None);
                    }
                    Err(status) if step.cancellation.is_cancelled() => return Err(status),
                    // The others drop the element as well, so that matching elements stay together.
                    Err(status) => {
                        failed.get_or_insert(status);
                    }
                }
            }
            failed.map_or(Ok(Some(element)), Err)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let mut position = Position::of::<Self>().flag(self.ended).size(self.inputs.len());
            for input in &mut self.inputs {
                position = position.within(&mut **input, step).await?;
            }
            Ok(position)
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.ended = reader.flag()?;
            if reader.size()? != self.inputs.len() {
                return Err(Status::failed_precondition("the saved position is that of a zip of other datasets"));
            }
            for input in &mut self.inputs {
                reader.within(&mut **input, step).await?;
            }
            Ok(())
        })
    }
}

struct Shard {
    input: Arc<dyn Dataset>,
    shards: i64,
    index: i64,
}

impl Dataset for Shard {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(ShardIterator {
            input: self.input.iterator(nesting.deeper()?)?,
            shards: self.shards,
            skip: self.index,
        }))
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            all if all < 0 => all,
            all => all / self.shards + i64::from(self.index < all % self.shards),
        }
    }
}

struct ShardIterator {
    input: Box<dyn DatasetIterator>,
    shards: i64,
    /// The number of other shards' elements before the next one of this shard.
    skip: i64,
}

impl DatasetIterator for ShardIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while self.skip > 0 {
                turn(step).await?;
                if self.input.next(step).await?.is_none() {
                    return Ok(None);
                }
                self.skip -= 1;
            }
            let element = self.input.next(step).await?;
            self.skip = self.shards - 1;
            Ok(element)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().number(self.skip).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.skip = reader.number()?;
            reader.within(&mut *self.input, step).await
        })
    }
}
