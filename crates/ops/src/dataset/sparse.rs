//! Sparse tensors in datasets: SparseTensorSliceDataset iterates over the rows of one, DenseToSparseBatchDataset builds one from
//! tensors of different shapes.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, Nesting, Next, SHAPES, TYPES, argument, dataset_kernel, dataset_op,
    element_bytes, input_dataset, ready,
};
use super::batch::batches;
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use crate::sparse::sparse_variants;
use kernel::{KernelDef, Op, OpContext, OpFlags, Step};
use std::sync::Arc;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "SparseTensorSliceDataset",
        &["indices: int64", "values: Tvalues", "dense_shape: int64"],
        &["Tvalues: type"],
        OpFlags::STATEFUL,
        &[KernelDef::any(|_| dataset_kernel(|context| SparseSlices::new(context)))],
    ),
    dataset_op("DenseToSparseBatchDataset", BATCH_INPUTS, &[TYPES, SHAPES], OpFlags::NONE, BATCH),
    dataset_op("ExperimentalDenseToSparseBatchDataset", BATCH_INPUTS, &[TYPES, SHAPES], OpFlags::NONE, BATCH),
];

const BATCH_INPUTS: &[&str] = &[INPUT, "batch_size: int64", "row_shape: int64"];
const BATCH: &[KernelDef] = &[KernelDef::any(|_| {
    dataset_kernel(|context| {
        let size = argument::<i64>(context, 1, "batch_size")?;
        let Some(size) = usize::try_from(size).ok().filter(|&size| size > 0) else {
            return Err(Status::invalid_argument("Batch size must be greater than zero."));
        };
        let row = context.input(2)?;
        if !row.shape().is_vector() {
            return Err(Status::invalid_argument("row_shape must be a vector"));
        }
        let row_shape = PartialShape::from_dims(row.as_slice::<i64>()?);
        Ok(SparseBatches { input: input_dataset(context, 0)?, size, row_shape })
    })
})];

/// The rows of a sparse tensor.
#[derive(Clone)]
struct SparseSlices {
    indices: Tensor,
    values: Tensor,
    shape: Tensor,
    /// The end of each row's values.
    ends: Arc<[usize]>,
}

impl SparseSlices {
    fn new(context: &OpContext<'_>) -> Result<SparseSlices> {
        let (indices, values, shape) = (context.input(0)?, context.input(1)?, context.input(2)?);
        if !indices.shape().is_matrix() {
            return Err(Status::invalid_argument(format!("Input indices must be a matrix. Got: {}", indices.shape())));
        }
        if !values.shape().is_vector() {
            return Err(Status::invalid_argument(format!("Input values must be a vector. Got: {}", values.shape())));
        }
        if !shape.shape().is_vector() {
            return Err(Status::invalid_argument(format!("Input shape must be a vector. Got: {}", shape.shape())));
        }
        if values.dims()[0] != indices.dims()[0] {
            return Err(Status::invalid_argument(format!(
                "Number of values must match first dimension of indices. Got {} values, indices shape: {}",
                values.dims()[0],
                indices.shape()
            )));
        }
        if shape.dims()[0] != indices.dims()[1] {
            return Err(Status::invalid_argument(format!(
                "Number of dimensions must match second dimension of indices. Got {} dimensions, indices shape: {}",
                shape.dims()[0],
                indices.shape()
            )));
        }
        let sizes = shape.as_slice::<i64>()?;
        let Some(&rows) = sizes.first() else {
            return Err(Status::invalid_argument("The shape argument requires at least one element."));
        };
        let dense = Shape::new(sizes)?;
        tensor::check_elements_fit(usize::try_from(rows).unwrap_or(usize::MAX), size_of::<usize>())?;
        let rank = sizes.len();
        let positions = indices.as_slice::<i64>()?;
        let mut ends = Vec::with_capacity(rows.max(0) as usize);
        let mut last_row = 0;
        for (index, position) in positions.chunks_exact(rank).enumerate() {
            let is_within = position.iter().zip(dense.dims()).all(|(&at, &size)| (0..size).contains(&at));
            if !is_within {
                return Err(Status::invalid_argument(format!("indices[{index}] is out of bounds")));
            }
            if position[0] < last_row {
                return Err(Status::unimplemented(
                    "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered input is not \
                     currently supported.",
                ));
            }
            last_row = position[0];
            while ends.len() < last_row as usize {
                ends.push(index);
            }
        }
        while ends.len() < rows as usize {
            ends.push(positions.len() / rank);
        }
        Ok(SparseSlices { indices: indices.clone(), values: values.clone(), shape: shape.clone(), ends: ends.into() })
    }

    /// Returns a row as the three components of a sparse tensor.
    fn row(&self, row: usize) -> Result<Element> {
        let (from, to) = (if row == 0 { 0 } else { self.ends[row - 1] }, self.ends[row]);
        let sizes = self.shape.as_slice::<i64>()?;
        let rank = sizes.len();
        let all = &self.indices.as_slice::<i64>()?[from * rank..to * rank];
        let indices: Vec<i64> = all.chunks_exact(rank).flat_map(|position| &position[1..]).copied().collect();
        Ok(vec![
            Tensor::from_slice(&[(to - from) as i64, rank as i64 - 1], &indices)?,
            self.values.slice_rows(from, to)?,
            Tensor::vector(&sizes[1..]),
        ])
    }
}

impl Dataset for SparseSlices {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(SparseSliceIterator { slices: self.clone(), next: 0 }))
    }

    fn cardinality(&self) -> i64 {
        self.ends.len() as i64
    }
}

struct SparseSliceIterator {
    slices: SparseSlices,
    next: usize,
}

impl DatasetIterator for SparseSliceIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> Next<'a> {
        if self.next >= self.slices.ends.len() {
            return ready(Ok(None));
        }
        self.next += 1;
        ready(self.slices.row(self.next - 1).map(Some))
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

struct SparseBatches {
    input: Arc<dyn Dataset>,
    size: usize,
    /// The shape that rows must fit into; unknown sizes are those of the largest element.
    row_shape: PartialShape,
}

impl Dataset for SparseBatches {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = Some(self.input.iterator(nesting.deeper()?)?);
        Ok(Box::new(SparseBatchIterator { input, size: self.size, row_shape: self.row_shape.clone() }))
    }

    fn cardinality(&self) -> i64 {
        batches(self.input.cardinality(), self.size as i64, false)
    }
}

struct SparseBatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    size: usize,
    row_shape: PartialShape,
}

impl DatasetIterator for SparseBatchIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let Some(input) = &mut self.input else { return Ok(None) };
            let (mut elements, mut bytes): (Vec<Tensor>, usize) = (Vec::new(), 0);
            for _ in 0..self.size {
                turn(step).await?;
                let Some(element) = input.next(step).await? else {
                    self.input = None;
                    break;
                };
                // An element also takes an index for each of its values.
                let rank = self.row_shape.rank().unwrap_or(0) + 1;
                bytes = bytes.saturating_add(element_bytes(&element).saturating_mul(1 + rank));
                tensor::check_elements_fit(bytes, 1)?;
                let [component] = <[Tensor; 1]>::try_from(element).map_err(|_| {
                    Status::invalid_argument("DenseToSparseBatchDataset only supports inputs with a single component.")
                })?;
                elements.push(component);
            }
            if elements.is_empty() {
                return Ok(None);
            }
            Ok(Some(vec![sparse_batch(&elements, &self.row_shape)?]))
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within_maybe(&mut self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within_or_ended(&mut self.input, step).await })
    }
}

/// Returns elements as the rows of a sparse tensor, with all their values set.
fn sparse_batch(elements: &[Tensor], row_shape: &PartialShape) -> Result<Tensor> {
    let rank = row_shape.rank().unwrap_or(0);
    let mut dense: Vec<i64> = (0..rank).map(|axis| row_shape.dim(axis).unwrap_or(0)).collect();
    let mut indices = Vec::new();
    let mut flat = Vec::with_capacity(elements.len());
    for (row, element) in elements.iter().enumerate() {
        if element.shape().rank() != rank {
            return Err(Status::invalid_argument(format!(
                "Input element had shape ({}) that is incompatible with the row shape ({row_shape}).",
                element.shape()
            )));
        }
        for (axis, &size) in element.dims().iter().enumerate() {
            match row_shape.dim(axis) {
                Some(limit) if size > limit => {
                    return Err(Status::data_loss(format!(
                        "Input element had shape ({}) that is incompatible with the row shape ({row_shape}).",
                        element.shape()
                    )));
                }
                Some(_) => {}
                None => dense[axis] = dense[axis].max(size),
            }
        }
        let mut position = vec![0i64; rank];
        for _ in 0..element.num_elements() {
            indices.push(row as i64);
            indices.extend_from_slice(&position);
            for axis in (0..rank).rev() {
                position[axis] += 1;
                if position[axis] < element.dims()[axis] {
                    break;
                }
                position[axis] = 0;
            }
        }
        flat.push(element.reshape(Shape::vector(element.num_elements()))?);
    }
    let count = indices.len() / (rank + 1);
    let parts: Vec<&Tensor> = flat.iter().collect();
    let values = crate::array::join(&parts, 0, Shape::vector(count))?;
    dense.insert(0, elements.len() as i64);
    sparse_variants(Tensor::from_slice(&[count as i64, rank as i64 + 1], &indices)?, values, Tensor::vector(&dense))
}
