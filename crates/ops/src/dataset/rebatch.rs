//! RebatchDatasetV2: changes batch sizes.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel, dataset_op,
    input_dataset,
};
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use kernel::{KernelDef, Op, OpFlags, Step};
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[dataset_op(
    "RebatchDatasetV2",
    &[INPUT, "batch_sizes: int64", "drop_remainder: bool"],
    &[TYPES, SHAPES],
    OpFlags::NONE,
    &[KernelDef::any(|_| {
        dataset_kernel(|context| {
            let sizes = context.input(1)?;
            if sizes.shape().rank() > 1 {
                return Err(Status::invalid_argument("`batch_sizes` must be a scalar or a vector."));
            }
            let sizes = sizes.as_slice::<i64>()?.iter().map(|&size| usize::try_from(size));
            let sizes = sizes.collect::<std::result::Result<Vec<_>, _>>();
            // A size of zero gives an occasional empty batch; if all are zero, there would be nothing else, forever.
            let sizes = sizes.ok().filter(|sizes| sizes.iter().any(|&size| size > 0));
            let sizes = sizes.ok_or_else(|| {
                Status::invalid_argument("`batch_sizes` must not be negative, and one of them must be positive.")
            })?;
            let drop_remainder = argument(context, 2, "drop_remainder")?;
            Ok(Rebatch { input: input_dataset(context, 0)?, sizes: sizes.into(), drop_remainder })
        })
    })],
)];

struct Rebatch {
    input: Arc<dyn Dataset>,
    /// Used in turn, repeatedly.
    sizes: Arc<[usize]>,
    drop_remainder: bool,
}

impl Dataset for Rebatch {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(RebatchIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            sizes: self.sizes.clone(),
            drop_remainder: self.drop_remainder,
            turn: 0,
            rest: None,
        }))
    }
}

struct RebatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    sizes: Arc<[usize]>,
    drop_remainder: bool,
    /// The index of the next size.
    turn: usize,
    /// The rest of a batch of the input.
    rest: Option<Element>,
}

fn rows(batch: &Element) -> Result<usize> {
    let first = batch.first().and_then(|component| component.dims().first());
    let count = *first.ok_or_else(|| Status::invalid_argument("Cannot rebatch scalars: elements must be batches."))?;
    if batch.iter().any(|component| component.dims().first() != Some(&count)) {
        return Err(Status::invalid_argument("All components must have the same size in the 0th dimension"));
    }
    Ok(count as usize)
}

fn cut(batch: &Element, from: usize, to: usize) -> Result<Element> {
    batch.iter().map(|component| component.slice_rows(from, to)).collect()
}

/// Concatenates parts of batches, component by component.
fn joined(parts: &[Element]) -> Result<Element> {
    let [first, rest @ ..] = parts else { return Err(Status::internal("nothing to join")) };
    if rest.is_empty() {
        return Ok(first.clone());
    }
    (0..first.len())
        .map(|component| {
            let tensors = parts.iter().map(|part| part.get(component)).collect::<Option<Vec<&Tensor>>>();
            let tensors = tensors.unwrap_or_default();
            let example = first[component].shape().slice(1, first[component].shape().rank());
            let differs = |tensor: &&&Tensor| tensor.shape().slice(1, tensor.shape().rank()) != example;
            if tensors.len() != parts.len() || tensors.iter().any(|tensor| differs(&tensor)) {
                return Err(Status::invalid_argument(format!(
                    "Cannot rebatch: batches differ in the shape of the rows of component {component}"
                )));
            }
            let count = tensors.iter().map(|tensor| tensor.dims()[0]).sum();
            crate::array::join(&tensors, 0, first[component].shape().with_dim(0, count)?)
        })
        .collect()
}

impl DatasetIterator for RebatchIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let size = self.sizes[self.turn % self.sizes.len()];
            let (mut parts, mut missing): (Vec<Element>, usize) = (Vec::new(), size);
            while missing > 0 || parts.is_empty() {
                turn(step).await?;
                let batch = match (self.rest.take(), &mut self.input) {
                    (Some(rest), _) => rest,
                    (None, Some(input)) => match input.next(step).await? {
                        Some(batch) => batch,
                        None => {
                            self.input = None;
                            break;
                        }
                    },
                    (None, None) => break,
                };
                let count = rows(&batch)?;
                let taken = count.min(missing);
                if taken > 0 || size == 0 {
                    parts.push(cut(&batch, 0, taken)?);
                }
                missing -= taken;
                if taken < count {
                    self.rest = Some(cut(&batch, taken, count)?);
                }
            }
            if parts.is_empty() || (missing > 0 && self.drop_remainder) {
                return Ok(None);
            }
            self.turn = (self.turn + 1) % self.sizes.len();
            joined(&parts).map(Some)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        let position = Position::of::<Self>().size(self.turn).elements(self.rest.iter());
        Box::pin(position.within_maybe(&mut self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.turn = reader.size()?;
            self.rest = reader.elements()?.pop();
            reader.within_or_ended(&mut self.input, step).await
        })
    }
}
