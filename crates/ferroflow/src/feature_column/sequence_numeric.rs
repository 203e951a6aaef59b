//! Columns of sequences of numbers: [`SequenceNumericColumn`].

use super::features::{Feature, SparseTensor};
use super::ids::sequence_length;
use super::numeric::{Normalizer, check_dims};
use super::transform::Transformations;
use crate::compose::{cast, concat, ints, node, rows, scalar, shape_of};
use graph::Output;
use tensor::{DType, PartialShape, Result, Status};

/// A column of sequences of numbers, as `tf.feature_column.sequence_numeric_column` describes it. Its feature is sparse.
///
/// ```
/// use ferroflow::feature_column::{SequenceNumericColumn, sequence_numeric_column};
///
/// let speed: SequenceNumericColumn = sequence_numeric_column("speed").shape(&[3]);
/// assert_eq!(speed.name(), "speed");
/// ```
#[derive(Clone)]
pub struct SequenceNumericColumn {
    key: String,
    dims: Vec<i64>,
    dtype: DType,
    default: f64,
    normalizer: Option<Normalizer>,
}

/// Describes a column of sequences of numbers, with one number per time step.
///
/// ```
/// assert_eq!(ferroflow::feature_column::sequence_numeric_column("speed").name(), "speed");
/// ```
pub fn sequence_numeric_column(key: &str) -> SequenceNumericColumn {
    SequenceNumericColumn { key: key.to_owned(), dims: vec![1], dtype: DType::Float, default: 0.0, normalizer: None }
}

impl SequenceNumericColumn {
    /// Sets the shape of the numbers of a time step.
    ///
    /// ```
    /// let position = ferroflow::feature_column::sequence_numeric_column("position").shape(&[3]);
    /// ```
    pub fn shape(self, dims: &[i64]) -> SequenceNumericColumn {
        SequenceNumericColumn { dims: dims.to_vec(), ..self }
    }

    /// Sets the type of the numbers in parsed examples.
    ///
    /// ```
    /// let steps = ferroflow::feature_column::sequence_numeric_column("steps").dtype(ferroflow::DType::Int64);
    /// ```
    pub fn dtype(self, dtype: DType) -> SequenceNumericColumn {
        SequenceNumericColumn { dtype, ..self }
    }

    /// Sets the number that pads a sequence after its end; the default is zero.
    ///
    /// ```
    /// let speed = ferroflow::feature_column::sequence_numeric_column("speed").default_value(-1.0);
    /// ```
    pub fn default_value(self, value: f64) -> SequenceNumericColumn {
        SequenceNumericColumn { default: value, ..self }
    }

    /// Sets a function that is applied to the numbers first. The padding after the end of a sequence stays as it is.
    ///
    /// ```
    /// use ferroflow::feature_column::sequence_numeric_column;
    /// use std::sync::Arc;
    ///
    /// let speed = sequence_numeric_column("speed").normalizer(Arc::new(|x| x / 3.6));
    /// ```
    pub fn normalizer(self, normalizer: Normalizer) -> SequenceNumericColumn {
        SequenceNumericColumn { normalizer: Some(normalizer), ..self }
    }

    /// Returns the name, which is that of the feature.
    ///
    /// ```
    /// assert_eq!(ferroflow::feature_column::sequence_numeric_column("speed").name(), "speed");
    /// ```
    pub fn name(&self) -> String {
        self.key.clone()
    }

    pub(super) fn key_and_type(&self) -> (&str, DType) {
        (&self.key, self.dtype)
    }

    pub(super) fn num_elements(&self) -> i64 {
        self.dims.iter().copied().fold(1, i64::saturating_mul)
    }

    pub(super) fn check(&self) -> Result<()> {
        check_dims(&self.dims, &self.key)?;
        match self.dtype.is_floating() || self.dtype.is_integer() {
            true => Ok(()),
            false => Err(Status::invalid_argument(format!(
                "dtype must be convertible to float. dtype: {}, key: {}",
                self.dtype, self.key
            ))),
        }
    }

    /// Adds the numbers of each row and time step, and the length of each row.
    pub(super) fn dense(&self, made: &mut Transformations<'_>) -> Result<(Output, Output)> {
        let Feature::Sparse(sparse) = made.feature(&self.key)? else {
            return Err(Status::invalid_argument(format!(
                "column {} is a sequence column, but its feature is dense: it must be a SparseTensor",
                self.key
            )));
        };
        if !sparse.values.dtype().is_floating() && !sparse.values.dtype().is_integer() {
            return Err(Status::invalid_argument(format!(
                "column {} is of numbers, and its feature of type {}",
                self.key,
                sparse.values.dtype()
            )));
        }
        let values = match &self.normalizer {
            Some(normalizer) => normalizer(&sparse.values),
            None => sparse.values.clone(),
        };
        let sparse = SparseTensor { values: cast(&values, DType::Float)?, ..sparse };
        let graph = sparse.values.graph();
        let default = scalar(graph, DType::Float, self.default)?;
        let op = graph.op("SparseToDense").input(&sparse.indices).input(&sparse.dense_shape);
        let whole = op.input(&sparse.values).input(&default).try_build()?.output(0);
        let dense = by_time(&whole, self.num_elements())?;
        let per_time = if sparse.dense_shape.shape().dim(0) == Some(2) { self.num_elements() } else { 1 };
        Ok((dense, sequence_length(&sparse, per_time)?))
    }
}

/// Reshapes to batch, time step, and this many numbers per time step.
pub(super) fn by_time(x: &Output, num_elements: i64) -> Result<Output> {
    let width = i32::try_from(num_elements)
        .map_err(|_| Status::invalid_argument(format!("{num_elements} numbers of a time are too many")))?;
    let graph = x.graph();
    let batch = rows(&shape_of(x)?, 0, Some(1))?;
    let shape = concat(&[&batch, &ints(graph, &[-1, width])], 0)?;
    let reshaped = node("Reshape", &[x, &shape])?;
    reshaped.set_shape(&PartialShape::new(&[x.shape().dim(0), None, Some(num_elements)]))?;
    Ok(reshaped)
}
