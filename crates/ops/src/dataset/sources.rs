//! Datasets of tensors and numbers: TensorDataset, TensorSliceDataset, RangeDataset.

use super::base::{
    Dataset, DatasetIterator, Element, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel, dataset_op,
    ready,
};
use super::position::{Position, Restoring, Saving};
use kernel::{KernelDef, Op, OpContext, OpFlags, Step};
use std::sync::Arc;
use tensor::{DType, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "TensorDataset",
        &["components: Toutput_types"],
        &["Toutput_types: list(type) >= 1", SHAPES, METADATA],
        OpFlags::STATEFUL,
        &[KernelDef::any(|_| dataset_kernel(|context| Ok(TensorDataset { element: all_inputs(context)? })))],
    ),
    dataset_op(
        "TensorSliceDataset",
        &["components: Toutput_types"],
        &[
            "Toutput_types: list(type) >= 1",
            SHAPES,
            "is_files: bool = false",
            METADATA,
            "replicate_on_split: bool = false",
        ],
        OpFlags::STATEFUL,
        &[KernelDef::any(|_| dataset_kernel(TensorSliceDataset::new))],
    ),
    dataset_op(
        "RangeDataset",
        &["start: int64", "stop: int64", "step: int64"],
        &[TYPES, SHAPES, METADATA, "replicate_on_split: bool = false"],
        OpFlags::STATEFUL,
        &[KernelDef::any(|builder| {
            let dtype = builder.attrs().dtypes("output_types")?.first().copied().unwrap_or(DType::Int64);
            dataset_kernel(move |context| RangeDataset::new(context, dtype))
        })],
    ),
];

fn all_inputs(context: &OpContext<'_>) -> Result<Element> {
    (0..context.num_inputs()).map(|index| context.input(index).cloned()).collect()
}

struct TensorDataset {
    element: Element,
}

impl Dataset for TensorDataset {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(TensorIterator(Some(self.element.clone()))))
    }

    fn cardinality(&self) -> i64 {
        1
    }
}

struct TensorIterator(Option<Element>);

impl DatasetIterator for TensorIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        ready(Ok(self.0.take()))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(std::future::ready(Ok(Position::of::<Self>().flag(self.0.is_some()))))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            if !position.read::<Self>()?.flag()? {
                self.0 = None;
            }
            Ok(())
        })
    }
}

struct TensorSliceDataset {
    components: Element,
    count: usize,
}

impl TensorSliceDataset {
    fn new(context: &mut OpContext<'_>) -> Result<TensorSliceDataset> {
        let components = all_inputs(context)?;
        let mut count = None;
        for component in &components {
            let Some(&rows) = component.dims().first() else {
                return Err(Status::invalid_argument("All components must be at least 1-dimensional"));
            };
            if *count.get_or_insert(rows) != rows {
                return Err(Status::invalid_argument("All components must have the same size in the 0th dimension"));
            }
        }
        Ok(TensorSliceDataset { components, count: count.unwrap_or(0) as usize })
    }
}

impl Dataset for TensorSliceDataset {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(TensorSliceIterator { components: self.components.clone(), next: 0, count: self.count }))
    }

    fn cardinality(&self) -> i64 {
        self.count as i64
    }
}

struct TensorSliceIterator {
    components: Element,
    next: usize,
    count: usize,
}

impl DatasetIterator for TensorSliceIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        if self.next >= self.count {
            return ready(Ok(None));
        }
        self.next += 1;
        ready(self.components.iter().map(|component| row(component, self.next - 1)).collect::<Result<_>>().map(Some))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(std::future::ready(Ok(Position::of::<Self>().size(self.next))))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            self.next = position.read::<Self>()?.size()?;
            Ok(())
        })
    }
}

/// Returns a row of a tensor, which shares its memory.
pub(super) fn row(tensor: &Tensor, index: usize) -> Result<Tensor> {
    let row = tensor.slice_rows(index, index + 1)?;
    let shape: Shape = row.shape().slice(1, row.shape().rank());
    row.into_shape(shape)
}

struct RangeDataset {
    start: i64,
    stop: i64,
    step: i64,
    dtype: DType,
}

impl RangeDataset {
    fn new(context: &OpContext<'_>, dtype: DType) -> Result<RangeDataset> {
        let step = argument(context, 2, "step")?;
        if step == 0 {
            return Err(Status::invalid_argument("step must be a non-zero integer."));
        }
        Ok(RangeDataset { start: argument(context, 0, "start")?, stop: argument(context, 1, "stop")?, step, dtype })
    }
}

impl Dataset for RangeDataset {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let RangeDataset { start, stop, step, dtype } = *self;
        Ok(Box::new(RangeIterator { next: Some(start), stop, step, dtype }))
    }

    fn cardinality(&self) -> i64 {
        let (start, stop, step) = (i128::from(self.start), i128::from(self.stop), i128::from(self.step));
        let count = if step > 0 { (stop - start + step - 1) / step } else { (start - stop - step - 1) / -step };
        i64::try_from(count.max(0)).unwrap_or(i64::MAX)
    }
}

struct RangeIterator {
    next: Option<i64>,
    stop: i64,
    step: i64,
    dtype: DType,
}

impl DatasetIterator for RangeIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        let is_within = |next: &i64| if self.step > 0 { *next < self.stop } else { *next > self.stop };
        let Some(number) = self.next.filter(is_within) else { return ready(Ok(None)) };
        self.next = number.checked_add(self.step);
        ready(number_tensor(number, self.dtype).map(|tensor| Some(vec![tensor])))
    }

    fn save<'a>(&'a mut self, _: &'a Arc<Step>) -> Saving<'a> {
        let position = Position::of::<Self>().flag(self.next.is_some()).number(self.next.unwrap_or(0));
        Box::pin(std::future::ready(Ok(position)))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, _: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            let (is_some, next) = (reader.flag()?, reader.number()?);
            self.next = is_some.then_some(next);
            Ok(())
        })
    }
}

/// Returns a number as a scalar of a type.
fn number_tensor(number: i64, dtype: DType) -> Result<Tensor> {
    Ok(match dtype {
        DType::Int64 => Tensor::scalar(number),
        DType::Int32 => Tensor::scalar(number as i32),
        DType::Int16 => Tensor::scalar(number as i16),
        DType::Int8 => Tensor::scalar(number as i8),
        DType::UInt64 => Tensor::scalar(number as u64),
        DType::UInt32 => Tensor::scalar(number as u32),
        DType::UInt16 => Tensor::scalar(number as u16),
        DType::UInt8 => Tensor::scalar(number as u8),
        DType::Float => Tensor::scalar(number as f32),
        DType::Double => Tensor::scalar(number as f64),
        other => return Err(Status::invalid_argument(format!("Unsupported data type: {other}"))),
    })
}
