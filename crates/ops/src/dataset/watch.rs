//! Datasets that observe their elements: UniqueDataset, IgnoreErrorsDataset, AssertCardinalityDataset, SleepDataset, and
//! DatasetCardinality, the number of a dataset's elements.

use super::base::{
    Dataset, DatasetIterator, INFINITE, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, UNKNOWN, argument,
    dataset_kernel, dataset_op, element_bytes, input_dataset,
};
use super::position::{Position, Restoring, Saving};
use super::task::{or_cancelled, promise, turn};
use bytes::Bytes;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, Step, shape};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tensor::{DType, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("UniqueDataset", &[INPUT], &[TYPES, SHAPES, METADATA], OpFlags::NONE, UNIQUE),
    dataset_op("ExperimentalUniqueDataset", &[INPUT], &[TYPES, SHAPES], OpFlags::NONE, UNIQUE),
    dataset_op("IgnoreErrorsDataset", &[INPUT], &[TYPES, SHAPES, LOG], OpFlags::NONE, IGNORE_ERRORS),
    dataset_op("ExperimentalIgnoreErrorsDataset", &[INPUT], &[TYPES, SHAPES, LOG], OpFlags::NONE, IGNORE_ERRORS),
    dataset_op(
        "AssertCardinalityDataset",
        &[INPUT, "cardinality: int64"],
        &[TYPES, SHAPES],
        OpFlags::NONE,
        &[KernelDef::any(|_| {
            dataset_kernel(|context| {
                let cardinality = argument(context, 1, "cardinality")?;
                Ok(AssertCardinality { input: input_dataset(context, 0)?, cardinality })
            })
        })],
    ),
    dataset_op("SleepDataset", &[INPUT, "sleep_microseconds: int64"], &[TYPES, SHAPES], OpFlags::NONE, SLEEP),
    dataset_op(
        "ExperimentalSleepDataset",
        &[INPUT, "sleep_microseconds: int64"],
        &[TYPES, SHAPES],
        OpFlags::NONE,
        SLEEP,
    ),
    counter("DatasetCardinality", &["cardinality_options: string = ''"]),
    counter("ExperimentalDatasetCardinality", &[]),
];

const LOG: &str = "log_warning: bool = false";

const UNIQUE: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let dtypes = builder.attrs().dtypes("output_types")?;
    dataset_kernel(move |context| {
        let [dtype] = dtypes[..] else {
            return Err(Status::invalid_argument("UniqueDataset only supports inputs with a single component."));
        };
        if !matches!(dtype, DType::Int32 | DType::Int64 | DType::String) {
            return Err(Status::invalid_argument(
                "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or `tf.string` component.",
            ));
        }
        Ok(Unique { input: input_dataset(context, 0)? })
    })
})];
const IGNORE_ERRORS: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let logs = builder.attrs().bool("log_warning")?;
    dataset_kernel(move |context| Ok(IgnoreErrors { input: input_dataset(context, 0)?, logs }))
})];
const SLEEP: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let pause = Duration::from_micros(argument::<i64>(context, 1, "sleep_microseconds")?.max(0) as u64);
        Ok(Sleep { input: input_dataset(context, 0)?, pause })
    })
})];
const COUNT: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(Cardinality))];

const fn counter(name: &'static str, attrs: &'static [&'static str]) -> Op {
    let def = OpDef { name, inputs: &[INPUT], outputs: &["cardinality: int64"], attrs, flags: OpFlags::NONE };
    Op { def, shape: shape::scalar, gradient: Gradient::Unsupported, kernels: COUNT }
}

struct Cardinality;

impl Kernel for Cardinality {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let cardinality = input_dataset(context, 0)?.cardinality();
        context.set_output(0, Tensor::scalar(cardinality));
        Ok(())
    }
}

struct Unique {
    input: Arc<dyn Dataset>,
}

impl Dataset for Unique {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(Box::new(UniqueIterator { input, seen: HashSet::new(), bytes: 0 }))
    }
}

struct UniqueIterator {
    input: Box<dyn DatasetIterator>,
    seen: HashSet<Vec<Bytes>>,
    bytes: usize,
}

/// Returns the identity of an element: its shape and its values.
fn identity(tensor: &Tensor) -> Result<Vec<Bytes>> {
    let mut parts = vec![tensor.dims().iter().flat_map(|size| size.to_le_bytes()).collect()];
    match tensor.buffer() {
        Some(buffer) => parts.push(Bytes::copy_from_slice(buffer.bytes())),
        None => parts.extend(tensor.strings()?.iter().cloned()),
    }
    Ok(parts)
}

impl DatasetIterator for UniqueIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while let Some(element) = self.input.next(step).await? {
                let [component] = &element[..] else {
                    return Err(Status::invalid_argument(
                        "UniqueDataset only supports inputs with a single component.",
                    ));
                };
                if self.seen.insert(identity(component)?) {
                    // An endless sequence of new elements can't be remembered.
                    self.bytes = self.bytes.saturating_add(element_bytes(&element));
                    tensor::check_elements_fit(self.bytes, 1)?;
                    return Ok(Some(element));
                }
                turn(step).await?;
            }
            Ok(None)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let mut position = Position::of::<Self>().size(self.seen.len());
            for parts in &self.seen {
                position = parts.iter().fold(position.size(parts.len()), |position, part| position.bytes(part.clone()));
            }
            position.within(&mut *self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            for _ in 0..reader.size()? {
                let parts = (0..reader.size()?).map(|_| reader.bytes()).collect::<Result<Vec<_>>>()?;
                self.bytes = parts.iter().map(Bytes::len).fold(self.bytes, usize::saturating_add);
                self.seen.insert(parts);
            }
            reader.within(&mut *self.input, step).await
        })
    }
}

struct IgnoreErrors {
    input: Arc<dyn Dataset>,
    logs: bool,
}

impl Dataset for IgnoreErrors {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(IgnoreErrorsIterator { input: self.input.iterator(nesting.deeper()?)?, logs: self.logs }))
    }

    fn cardinality(&self) -> i64 {
        match self.input.cardinality() {
            INFINITE => INFINITE,
            _ => UNKNOWN,
        }
    }
}

struct IgnoreErrorsIterator {
    input: Box<dyn DatasetIterator>,
    logs: bool,
}

impl DatasetIterator for IgnoreErrorsIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                match self.input.next(step).await {
                    Err(status) if !step.cancellation.is_cancelled() => {
                        if self.logs {
                            step.logger
                                .log("warning", &format!("Error raised with error message {}", status.message()));
                        }
                    }
                    next => return next,
                }
                turn(step).await?;
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

struct AssertCardinality {
    input: Arc<dyn Dataset>,
    cardinality: i64,
}

impl Dataset for AssertCardinality {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(Box::new(AssertCardinalityIterator { input, cardinality: self.cardinality, seen: 0 }))
    }

    fn cardinality(&self) -> i64 {
        self.cardinality
    }
}

struct AssertCardinalityIterator {
    input: Box<dyn DatasetIterator>,
    cardinality: i64,
    seen: i64,
}

fn elements_text(count: i64) -> String {
    match count {
        INFINITE => "an infinite number of elements".to_owned(),
        UNKNOWN => "an unknown number of elements".to_owned(),
        1 => "1 element".to_owned(),
        count => format!("{count} elements"),
    }
}

impl DatasetIterator for AssertCardinalityIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let element = self.input.next(step).await?;
            self.seen += i64::from(element.is_some());
            let expected = elements_text(self.cardinality);
            let problem = match element.is_some() {
                true if self.cardinality != INFINITE && self.seen > self.cardinality => "at least ",
                false if self.seen != self.cardinality => "only ",
                _ => return Ok(element),
            };
            Err(Status::failed_precondition(format!(
                "Input dataset was expected to contain {expected} but contained {problem}{}.",
                elements_text(self.seen)
            )))
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().number(self.seen).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.seen = reader.number()?;
            reader.within(&mut *self.input, step).await
        })
    }
}

struct Sleep {
    input: Arc<dyn Dataset>,
    pause: Duration,
}

impl Dataset for Sleep {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(SleepIterator { input: self.input.iterator(nesting.deeper()?)?, pause: self.pause }))
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }
}

struct SleepIterator {
    input: Box<dyn DatasetIterator>,
    pause: Duration,
}

impl DatasetIterator for SleepIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let (fulfil, passed) = promise();
            let runner = step.runner.clone();
            // The continuation may have a lot to do, and the thread of such jobs is shared.
            let wake = move || runner.spawn(Box::new(move || fulfil.set(())));
            step.runner.spawn_after(self.pause, Box::new(wake));
            or_cancelled(step, passed).await?;
            self.input.next(step).await
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within(&mut *self.input, step).await })
    }
}
