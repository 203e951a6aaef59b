//! Common parts of this family's kernels: a checked view of a sparse tensor, and selection of values.

use crate::movement::Movable;
use crate::sizes::shape_of_sizes;
use tensor::{Result, Shape, Status, Tensor};

/// The source of the error texts for a sparse tensor: TensorFlow's kernels check the same conditions with different functions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Of the kernels that make a `SparseTensor` object.
    Created,
    /// Of the kernels that validate the three tensors.
    Validated,
    /// Of `SparseSlice`, which validates them by another function.
    Sliced,
    /// Of `SparseFillEmptyRows`.
    FillEmptyRows,
    /// Of the element-wise ops with a dense operand.
    Cwise,
}

impl Words {
    /// Returns the error if the numbers of indices and values differ.
    fn counts(self, indices: i64, values: i64) -> Status {
        Status::invalid_argument(match self {
            Words::Created => format!(
                "indices and values rows (indexing dimension) must match. (indices = {indices}, values = {values})"
            ),
            Words::Validated | Words::Sliced => {
                format!("Number of elements in indices ({indices}) and values ({values}) do not match")
            }
            Words::FillEmptyRows => {
                format!("The length of `values` ({values}) must match the first dimension of `indices` ({indices}).")
            }
            Words::Cwise => {
                format!("The first dimension of values and indices should match. ({values} vs. {indices})")
            }
        })
    }
}

/// The three tensors of a sparse tensor, whose sizes match. Indices may still be out of bounds.
#[derive(Clone, Copy)]
pub(super) struct Sparse<'a> {
    /// `count` rows of `rank` numbers.
    pub indices: &'a [i64],
    pub values: &'a Tensor,
    pub shape: &'a [i64],
}

impl<'a> Sparse<'a> {
    pub(super) fn new(indices: &'a Tensor, values: &'a Tensor, shape: &'a Tensor) -> Result<Sparse<'a>> {
        Sparse::in_words(Words::Created, indices, values, shape)
    }

    /// As [`new`](Self::new), with the error texts of the given source.
    pub(super) fn in_words(
        words: Words,
        indices: &'a Tensor,
        values: &'a Tensor,
        shape: &'a Tensor,
    ) -> Result<Sparse<'a>> {
        if !indices.shape().is_matrix() {
            return Err(Status::invalid_argument(format!(
                "Input indices should be a matrix but received shape {}",
                indices.shape()
            )));
        }
        if !values.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Input values should be a vector but received shape {}",
                values.shape()
            )));
        }
        if !shape.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Input shape should be a vector but received shape {}",
                shape.shape()
            )));
        }
        if indices.dims()[0] != values.dims()[0] {
            return Err(words.counts(indices.dims()[0], values.dims()[0]).append(format!(
                ": Number of values must match first dimension of indices. Got {} values, indices shape: {}",
                values.dims()[0],
                indices.shape()
            )));
        }
        if indices.dims()[1] != shape.dims()[0] {
            return Err(Status::invalid_argument(format!(
                "Number of dimensions must match second dimension of indices. Got {} dimensions, indices shape: {}",
                shape.dims()[0],
                indices.shape()
            )));
        }
        let shape = shape.as_slice::<i64>()?;
        if let Some(size) = shape.iter().find(|&&size| size < 0) {
            if words == Words::Validated {
                return Err(tuple_out_of_bounds(
                    0,
                    &indices.as_slice::<i64>()?[..shape.len().min(indices.num_elements())],
                ));
            }
            return Err(Status::invalid_argument(format!(
                "Expected shape dimensions to be non-negative, got {size}: Dimension {size} must be >= 0"
            )));
        }
        Ok(Sparse { indices: indices.as_slice()?, values, shape })
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> usize {
        self.values.num_elements()
    }

    /// Returns an error if the dense tensor would have more elements than can be counted.
    pub(super) fn check_size(&self) -> Result<()> {
        shape_of_sizes(self.shape).map(drop)
    }

    /// Returns an error if an index is out of bounds.
    pub(super) fn check_bounds(&self) -> Result<()> {
        match (0..self.count()).find(|&row| !in_bounds(self.index(row), self.shape)) {
            Some(row) => Err(out_of_bounds(row, self.index(row), self.shape)),
            None => Ok(()),
        }
    }

    /// As [`check_bounds`](Self::check_bounds), with the texts of [`Words::Validated`].
    pub(super) fn validate_bounds(&self) -> Result<()> {
        match (0..self.count()).find(|&row| !in_bounds(self.index(row), self.shape)) {
            Some(row) => Err(tuple_out_of_bounds(row, self.index(row))),
            None => Ok(()),
        }
    }

    /// Returns the coordinates of a value.
    pub(super) fn index(&self, row: usize) -> &'a [i64] {
        let rank = self.rank();
        &self.indices[row * rank..(row + 1) * rank]
    }
}

/// Returns whether an index is within a shape.
pub(super) fn in_bounds(index: &[i64], shape: &[i64]) -> bool {
    index.iter().zip(shape).all(|(&index, &size)| index >= 0 && index < size)
}

/// Returns the error for an index outside a shape.
pub(super) fn out_of_bounds(row: usize, index: &[i64], shape: &[i64]) -> Status {
    let (index, shape) = (list(index), list(shape));
    Status::invalid_argument(format!("indices[{row}] = [{index}] is out of bounds: need 0 <= index < [{shape}]"))
}

/// Returns the error for an index outside a shape, with the text of [`Words::Validated`].
pub(super) fn tuple_out_of_bounds(row: usize, index: &[i64]) -> Status {
    Status::invalid_argument(format!("Sparse index tuple indices[{row}, :] = {index:?} is out of bounds"))
}

/// Formats numbers with commas between them.
pub(super) fn list(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the values at some positions, as a vector.
pub(super) fn pick(values: &Tensor, positions: &[usize]) -> Result<Tensor> {
    with_movable!(values.dtype(), E => {
        let from = E::view(values)?;
        if positions.iter().any(|&position| position >= from.len()) {
            return Err(Status::internal("a position beyond the values"));
        }
        E::build(values.dtype(), Shape::vector(positions.len()), |to| {
            for (to, &position) in to.iter_mut().zip(positions) {
                to.clone_from(&from[position]);
            }
        })
    })
}

/// Returns a matrix of indices.
pub(super) fn indices_tensor(rows: usize, rank: usize, indices: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(Shape::from_usize(&[rows, rank])?.dims(), indices)
}

/// Returns the order that sorts the rows of indices.
pub(super) fn sorted_order(indices: &[i64], rank: usize, rows: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|&a, &b| indices[a * rank..(a + 1) * rank].cmp(&indices[b * rank..(b + 1) * rank]));
    order
}
