//! Numeric columns.

use graph::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, Result, Shape, Status, Tensor};

/// Transforms a column's numbers, for example to their logarithms.
///
/// ```
/// use ferroflow::feature_column::{Normalizer, numeric_column};
/// use ferroflow::ops::math;
///
/// let log: Normalizer = std::sync::Arc::new(|x| math::log(x));
/// let income = numeric_column("income").normalizer(log);
/// ```
pub type Normalizer = Arc<dyn Fn(&Output) -> Output + Send + Sync>;

/// A numeric column, as in `tf.feature_column.numeric_column`.
///
/// ```
/// use ferroflow::feature_column::*;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let features = Features::new().with("size", g.constant([[3i64, 4], [5, 6]]));
/// let first_layer = input_layer(&features, &[numeric_column("size").shape(&[2]).into()]);
/// assert_eq!(Session::new(&g)?.run(&[&first_layer])?[0].to_vec::<f32>()?, [3.0, 4.0, 5.0, 6.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct NumericColumn {
    pub(super) id: ColumnId,
    pub(super) key: String,
    pub(super) dims: Vec<i64>,
    pub(super) dtype: DType,
    pub(super) default: Option<Vec<f64>>,
    pub(super) normalizer: Option<Normalizer>,
}

/// Identifies a column, so that its results can be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ColumnId(u64);

impl ColumnId {
    /// Returns an unused id.
    pub(super) fn new() -> ColumnId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ColumnId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns a column with one number in each row.
///
/// ```
/// use ferroflow::feature_column::numeric_column;
///
/// assert_eq!(numeric_column("age").name(), "age");
/// ```
pub fn numeric_column(key: &str) -> NumericColumn {
    let (id, key) = (ColumnId::new(), key.to_owned());
    NumericColumn { id, key, dims: vec![1], dtype: DType::Float, default: None, normalizer: None }
}

impl NumericColumn {
    /// Sets the shape of a row's numbers.
    ///
    /// ```
    /// let position = ferroflow::feature_column::numeric_column("position").shape(&[3]);
    /// ```
    pub fn shape(self, dims: &[i64]) -> NumericColumn {
        NumericColumn { id: ColumnId::new(), dims: dims.to_vec(), ..self }
    }

    /// Sets the type of the numbers in parsed examples. A model always gets `float`.
    ///
    /// ```
    /// use ferroflow::DType;
    /// use ferroflow::feature_column::numeric_column;
    ///
    /// let age = numeric_column("age").dtype(DType::Int64);
    /// ```
    pub fn dtype(self, dtype: DType) -> NumericColumn {
        NumericColumn { id: ColumnId::new(), dtype, ..self }
    }

    /// Sets the default for numbers that an example lacks. Without one they are required.
    ///
    /// ```
    /// let age = ferroflow::feature_column::numeric_column("age").default_value(40.0);
    /// ```
    pub fn default_value(self, value: f64) -> NumericColumn {
        self.default_values(&[value])
    }

    /// Sets the defaults for numbers that an example lacks: one for each number of a row, or one for all.
    ///
    /// ```
    /// let origin = ferroflow::feature_column::numeric_column("position").shape(&[2]).default_values(&[0.5, 1.5]);
    /// ```
    pub fn default_values(self, values: &[f64]) -> NumericColumn {
        NumericColumn { id: ColumnId::new(), default: Some(values.to_vec()), ..self }
    }

    /// Sets a transformation of the numbers.
    ///
    /// ```
    /// use ferroflow::feature_column::numeric_column;
    /// use std::sync::Arc;
    ///
    /// let age = numeric_column("age").normalizer(Arc::new(|x| (x - 40.0) / 10.0));
    /// ```
    pub fn normalizer(self, normalizer: Normalizer) -> NumericColumn {
        NumericColumn { id: ColumnId::new(), normalizer: Some(normalizer), ..self }
    }

    /// Returns the name, that of the feature.
    ///
    /// ```
    /// assert_eq!(ferroflow::feature_column::numeric_column("age").name(), "age");
    /// ```
    pub fn name(&self) -> String {
        self.key.clone()
    }

    /// Fails unless the column's options are valid.
    pub(super) fn check(&self) -> Result<()> {
        check_dims(&self.dims, &self.key)?;
        if !self.dtype.is_floating() && !self.dtype.is_integer() {
            return Err(Status::invalid_argument(format!(
                "dtype must be convertible to float. dtype: {}, key: {}",
                self.dtype, self.key
            )));
        }
        self.default_tensor().map(drop)
    }

    /// Returns the number of values per row.
    pub(super) fn num_elements(&self) -> i64 {
        self.dims.iter().copied().fold(1, i64::saturating_mul)
    }

    /// Returns the default as a tensor of the column's shape and type.
    pub(super) fn default_tensor(&self) -> Result<Option<Tensor>> {
        let Some(values) = &self.default else { return Ok(None) };
        let shape = Shape::new(&self.dims)?;
        let count = shape.num_elements();
        if values.len() != 1 && values.len() != count {
            return Err(Status::invalid_argument(format!(
                "The shape of default_value must be equal to given shape. {} numbers, shape: {shape}, key: {}",
                values.len(),
                self.key
            )));
        }
        let at = |index: usize| values.get(index).or(values.first()).copied().unwrap_or_default();
        let all = (0..count).map(at);
        let tensor = match self.dtype {
            DType::Float => Tensor::from_slice(&self.dims, &all.map(|value| value as f32).collect::<Vec<_>>()),
            DType::Int64 => {
                if let Some(part) = values.iter().find(|value| value.fract() != 0.0) {
                    return Err(Status::invalid_argument(format!(
                        "default_value must be compatible with dtype. default_value: {part}, dtype: {}, key: {}",
                        self.dtype, self.key
                    )));
                }
                Tensor::from_slice(&self.dims, &all.map(|value| value as i64).collect::<Vec<_>>())
            }
            other => {
                return Err(Status::invalid_argument(format!(
                    "examples have numbers of type float and int64, and column {} has a default of type {other}",
                    self.key
                )));
            }
        };
        tensor.map(Some)
    }
}

/// Fails unless all sizes of a column are positive.
pub(super) fn check_dims(dims: &[i64], key: &str) -> Result<()> {
    if dims.iter().any(|&size| size < 1) {
        return Err(Status::invalid_argument(format!(
            "shape dimensions must be greater than 0. shape: {dims:?}, key: {key}"
        )));
    }
    Shape::new(dims).map(drop)
}
