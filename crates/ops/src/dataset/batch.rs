//! Batches: BatchDataset, PaddedBatchDataset, ParallelBatchDataset, UnbatchDataset.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, PLAIN, SHAPES, TYPES, argument, dataset_kernel,
    dataset_op, element_bytes, input_dataset,
};
use super::position::{Position, Restoring, Saving};
use super::sources::row;
use super::task::turn;
use crate::data_flow::{stack, stack_padded_with};
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use tensor::{PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("BatchDataset", &[INPUT, "batch_size: int64"], PLAIN, OpFlags::NONE, BATCH),
    dataset_op(
        "BatchDatasetV2",
        &[INPUT, "batch_size: int64", "drop_remainder: bool"],
        &["parallel_copy: bool = false", TYPES, SHAPES, METADATA],
        OpFlags::NONE,
        BATCH,
    ),
    dataset_op(
        "ParallelBatchDataset",
        &[INPUT, "batch_size: int64", "num_parallel_calls: int64", "drop_remainder: bool"],
        &["parallel_copy: bool = false", TYPES, SHAPES, "deterministic: string = 'default'", METADATA],
        OpFlags::NONE,
        BATCH,
    ),
    dataset_op(
        "PaddedBatchDataset",
        &[INPUT, "batch_size: int64", "padded_shapes: N * int64", "padding_values: Toutput_types"],
        &["Toutput_types: list(type) >= 1", SHAPES, "N: int >= 1", METADATA],
        OpFlags::NONE,
        PADDED,
    ),
    dataset_op(
        "PaddedBatchDatasetV2",
        &[
            INPUT,
            "batch_size: int64",
            "padded_shapes: N * int64",
            "padding_values: Toutput_types",
            "drop_remainder: bool",
        ],
        &["parallel_copy: bool = false", "Toutput_types: list(type) >= 1", SHAPES, "N: int >= 1", METADATA],
        OpFlags::NONE,
        PADDED,
    ),
    dataset_op("UnbatchDataset", &[INPUT], PLAIN, OpFlags::NONE, UNBATCH),
    dataset_op("ExperimentalUnbatchDataset", &[INPUT], &[TYPES, SHAPES], OpFlags::NONE, UNBATCH),
];

const BATCH: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let last = context.num_inputs() - 1;
        let drop_remainder = last > 1 && argument(context, last, "drop_remainder")?;
        let batch = Batch::new(input_dataset(context, 0)?, argument(context, 1, "batch_size")?, drop_remainder, None)?;
        Ok(if batch.input.fails_by_batch() { batch.that_fails_whole() } else { batch })
    })
})];
const PADDED: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let (shapes, values) = (builder.input_range("padded_shapes")?, builder.input_range("padding_values")?);
    dataset_kernel(move |context| {
        let padding = padding(context, &shapes, &values)?;
        let drop_remainder = context.num_inputs() > values.end && argument(context, values.end, "drop_remainder")?;
        Batch::new(input_dataset(context, 0)?, argument(context, 1, "batch_size")?, drop_remainder, Some(padding))
    })
})];
const UNBATCH: &[KernelDef] =
    &[KernelDef::any(|_| dataset_kernel(|context| Ok(Unbatch { input: input_dataset(context, 0)? })))];

/// The padded shape and the padding value of each component.
pub(super) type Padding = Arc<Vec<(PartialShape, Tensor)>>;

fn padding(context: &OpContext<'_>, shapes: &Range<usize>, values: &Range<usize>) -> Result<Padding> {
    let mut padding = Vec::new();
    for (shape, value) in shapes.clone().zip(values.clone()) {
        let (shape, value) = (context.input(shape)?, context.input(value)?);
        if !shape.shape().is_vector() {
            return Err(Status::invalid_argument("All padded shapes must be vectors"));
        }
        if !value.shape().is_scalar() {
            return Err(Status::invalid_argument("All padding values must be scalars"));
        }
        padding.push((PartialShape::from_dims(shape.as_slice::<i64>()?), value.clone()));
    }
    Ok(Arc::new(padding))
}

pub(super) struct Batch {
    input: Arc<dyn Dataset>,
    size: usize,
    drop_remainder: bool,
    padding: Option<Padding>,
    fails_whole: bool,
}

impl Batch {
    /// Returns a batch; if one of its elements fails, all of them are dropped.
    pub(super) fn that_fails_whole(self) -> Batch {
        Batch { fails_whole: true, ..self }
    }

    pub(super) fn new(
        input: Arc<dyn Dataset>,
        size: i64,
        drop_remainder: bool,
        padding: Option<Padding>,
    ) -> Result<Batch> {
        let size = usize::try_from(size).ok().filter(|&size| size > 0);
        let size = size.ok_or_else(|| Status::invalid_argument("Batch size must be greater than zero."))?;
        Ok(Batch { input, size, drop_remainder, padding, fails_whole: false })
    }
}

impl Dataset for Batch {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(BatchIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            size: self.size,
            drop_remainder: self.drop_remainder,
            padding: self.padding.clone(),
            fails_whole: self.fails_whole,
        }))
    }

    fn cardinality(&self) -> i64 {
        batches(self.input.cardinality(), self.size as i64, self.drop_remainder)
    }
}

/// Returns the number of batches of a size for this many elements.
pub(super) fn batches(elements: i64, size: i64, drop_remainder: bool) -> i64 {
    match elements {
        elements if elements < 0 => elements,
        elements => elements / size + i64::from(!drop_remainder && elements % size != 0),
    }
}

struct BatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    size: usize,
    drop_remainder: bool,
    padding: Option<Padding>,
    fails_whole: bool,
}

impl DatasetIterator for BatchIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let Some(input) = &mut self.input else { return Ok(None) };
            let mut elements: Vec<Element> = Vec::new();
            let mut bytes: usize = 0;
            let mut failed = None;
            for _ in 0..self.size {
                turn(step).await?;
                let next = match input.next(step).await {
                    Err(status) if self.fails_whole && !step.cancellation.is_cancelled() => {
                        failed.get_or_insert(status);
                        continue;
                    }
                    next => next?,
                };
                match next {
                    Some(element) => {
                        // They will be one tensor; without a bound, an endless dataset would take all memory first.
                        bytes = bytes.saturating_add(element_bytes(&element));
                        tensor::check_elements_fit(bytes, 1)?;
                        elements.push(element);
                    }
                    None => {
                        self.input = None;
                        break;
                    }
                }
            }
            if let Some(status) = failed {
                return Err(status);
            }
            if elements.is_empty() || (self.drop_remainder && elements.len() < self.size) {
                return Ok(None);
            }
            batched(&elements, self.padding.as_ref()).map(Some)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within_maybe(&mut self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within_or_ended(&mut self.input, step).await })
    }
}

/// Stacks elements, component by component.
pub(super) fn batched(elements: &[Element], padding: Option<&Padding>) -> Result<Element> {
    let Some(first) = elements.first() else { return Ok(Element::new()) };
    if elements.iter().any(|element| element.len() != first.len()) {
        return Err(Status::invalid_argument("Elements of a batch must have the same number of components"));
    }
    let mut batch = Element::with_capacity(first.len());
    for (component, example) in first.iter().enumerate() {
        let parts: Vec<&Tensor> = elements.iter().map(|element| &element[component]).collect();
        let Some(padding) = padding else {
            let different = parts.iter().enumerate().find(|(_, part)| part.shape() != example.shape());
            if let Some((position, part)) = different {
                return Err(Status::invalid_argument(format!(
                    "Cannot batch tensors with different shapes in component {component}. First element had shape {} and \
                     element {position} had shape {}.",
                    example.shape(),
                    part.shape()
                )));
            }
            batch.push(stack(example.dtype(), example.shape(), &parts)?);
            continue;
        };
        let Some((shape, value)) = padding.get(component) else {
            return Err(Status::invalid_argument("Elements have more components than there are padded shapes"));
        };
        for part in &parts {
            if shape.rank() != Some(part.shape().rank()) {
                return Err(Status::invalid_argument(format!(
                    "All elements in a batch must have the same rank as the padded shape for component{component}: \
                     expected rank {} but got element with rank {}",
                    shape.rank().unwrap_or(0),
                    part.shape().rank()
                )));
            }
            for (axis, &size) in part.dims().iter().enumerate() {
                if shape.dim(axis).is_some_and(|limit| size > limit) {
                    return Err(Status::data_loss("Attempted to pad to a smaller size than the input element."));
                }
            }
        }
        batch.push(stack_padded_with(example.dtype(), shape, &parts, value)?);
    }
    Ok(batch)
}

struct Unbatch {
    input: Arc<dyn Dataset>,
}

impl Dataset for Unbatch {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(UnbatchIterator { input: self.input.iterator(nesting.deeper()?)?, rows: VecDeque::new() }))
    }
}

struct UnbatchIterator {
    input: Box<dyn DatasetIterator>,
    rows: VecDeque<Element>,
}

impl DatasetIterator for UnbatchIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                if let Some(element) = self.rows.pop_front() {
                    return Ok(Some(element));
                }
                turn(step).await?;
                let Some(batch) = self.input.next(step).await? else { return Ok(None) };
                let Some(&count) = batch.first().and_then(|component| component.dims().first()) else {
                    return Err(Status::invalid_argument("Each component must have at least one dimension"));
                };
                if batch.iter().any(|component| component.dims().first() != Some(&count)) {
                    return Err(Status::invalid_argument(
                        "All components must have the same size in the 0th dimension",
                    ));
                }
                for index in 0..count as usize {
                    self.rows.push_back(batch.iter().map(|component| row(component, index)).collect::<Result<_>>()?);
                }
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().elements(self.rows.iter()).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.rows = reader.elements()?.into();
            reader.within(&mut *self.input, step).await
        })
    }
}
