//! [`ExampleParser`]: the requested features of examples, and their conversion to tensors.

use super::wire::{RawFeature, Values, visit_example};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// A feature that becomes a tensor of a given shape.
#[derive(Clone)]
pub(crate) struct DenseFeature {
    pub dtype: DType,
    pub shape: PartialShape,
    /// The default of a missing feature; empty if the feature is required.
    pub default: Tensor,
}

/// The requested features.
pub(super) struct ExampleParser<'a> {
    pub sparse: Vec<(&'a [u8], DType)>,
    pub dense: Vec<(&'a [u8], DenseFeature)>,
    /// Name, type of the values, type of the row splits.
    pub ragged: Vec<(&'a [u8], DType, DType)>,
}

/// The results, in the order of the outputs.
#[derive(Default)]
pub(crate) struct Parsed {
    pub sparse_indices: Vec<Tensor>,
    pub sparse_values: Vec<Tensor>,
    pub sparse_shapes: Vec<Tensor>,
    pub dense_values: Vec<Tensor>,
    pub ragged_values: Vec<Tensor>,
    pub ragged_row_splits: Vec<Tensor>,
}

/// The values of one feature in all examples so far.
struct Column {
    values: Values,
    /// The end of each example's values.
    ends: Vec<usize>,
    /// The number of values per example, for a dense feature of fixed size.
    expected: Option<usize>,
    /// The number of values per step of a dense feature of variable length.
    stride: Option<usize>,
    /// The expected shape of a dense feature.
    shape: PartialShape,
    is_dense: bool,
}

impl ExampleParser<'_> {
    /// Parses a batch; `names` are for messages, and may be empty.
    pub(super) fn parse_batch(&self, serialized: &[Bytes], names: &[Bytes]) -> Result<Parsed> {
        let columns = self.parse(serialized, |index| Place::InBatch { index, name: names.get(index) })?;
        let count = serialized.len();
        let mut parsed = Parsed::default();
        let (sparse, rest) = columns.split_at(self.sparse.len());
        let (dense, ragged) = rest.split_at(self.dense.len());
        for column in sparse {
            let longest = column.longest();
            let total = column.values.len();
            let indices = Tensor::build::<i64>(Shape::from_usize(&[total, 2])?, |indices| {
                let mut place = indices.iter_mut();
                for (row, length) in column.lengths().enumerate() {
                    for position in 0..length {
                        for (to, value) in place.by_ref().zip([row as i64, position as i64]).take(2) {
                            *to = value;
                        }
                    }
                }
            })?;
            parsed.sparse_indices.push(indices);
            parsed.sparse_values.push(column.values.to_tensor(Shape::vector(total))?);
            parsed.sparse_shapes.push(Tensor::vector(&[count as i64, longest as i64]));
        }
        for (column, (_, feature)) in dense.iter().zip(&self.dense) {
            parsed.dense_values.push(column.to_dense(feature, Some(count))?);
        }
        for (column, (_, _, split_dtype)) in ragged.iter().zip(&self.ragged) {
            parsed.ragged_values.push(column.values.to_tensor(Shape::vector(column.values.len()))?);
            parsed.ragged_row_splits.push(column.row_splits(*split_dtype)?);
        }
        Ok(parsed)
    }

    /// Parses one example, whose tensors have no batch dimension.
    pub(super) fn parse_one(&self, serialized: &Bytes) -> Result<Parsed> {
        let columns = self.parse(std::slice::from_ref(serialized), |_| Place::Alone)?;
        let mut parsed = Parsed::default();
        let (sparse, rest) = columns.split_at(self.sparse.len());
        let (dense, ragged) = rest.split_at(self.dense.len());
        for column in sparse {
            let count = column.values.len();
            let indices: Vec<i64> = (0..count as i64).collect();
            parsed.sparse_indices.push(Tensor::vector(&indices).into_shape(Shape::from_usize(&[count, 1])?)?);
            parsed.sparse_values.push(column.values.to_tensor(Shape::vector(count))?);
            parsed.sparse_shapes.push(Tensor::vector(&[count as i64]));
        }
        for (column, (_, feature)) in dense.iter().zip(&self.dense) {
            parsed.dense_values.push(column.to_dense(feature, None)?);
        }
        for (column, (_, _, split_dtype)) in ragged.iter().zip(&self.ragged) {
            parsed.ragged_values.push(column.values.to_tensor(Shape::vector(column.values.len()))?);
            parsed.ragged_row_splits.push(Tensor::zeros(*split_dtype, Shape::vector(0))?);
        }
        Ok(parsed)
    }

    fn parse<'n>(&self, serialized: &[Bytes], place: impl Fn(usize) -> Place<'n>) -> Result<Vec<Column>> {
        let mut columns = Vec::with_capacity(self.sparse.len() + self.dense.len() + self.ragged.len());
        let mut by_name = HashMap::with_capacity(columns.capacity());
        for (name, dtype) in &self.sparse {
            by_name.entry(*name).or_insert(columns.len());
            columns.push(Column::new(*dtype)?);
        }
        for (name, feature) in &self.dense {
            by_name.entry(*name).or_insert(columns.len());
            columns.push(Column::dense(feature)?);
        }
        for (name, dtype, _) in &self.ragged {
            by_name.entry(*name).or_insert(columns.len());
            columns.push(Column::new(*dtype)?);
        }
        let mut error = None;
        for (index, example) in serialized.iter().enumerate() {
            let whole = visit_example(example, |name, feature| {
                if error.is_none()
                    && let Some(&column) = by_name.get(name)
                    && let Err(status) = columns[column].take(index, &feature, example, (place(index), name))
                {
                    error = Some(status);
                }
            });
            if let Some(status) = error.take() {
                return Err(status);
            }
            if whole.is_none() {
                return Err(cannot_parse(example));
            }
            let first_dense = self.sparse.len();
            for (at, column) in columns.iter_mut().enumerate().filter(|(_, column)| column.ends.len() <= index) {
                if let Some((name, feature)) = at.checked_sub(first_dense).and_then(|at| self.dense.get(at))
                    && column.expected.is_some()
                {
                    column.take_default(feature).ok_or_else(|| {
                        let text = place(index).feature();
                        let name = String::from_utf8_lossy(name);
                        let dtype = feature.dtype;
                        Status::invalid_argument(format!(
                            "{text}Feature: {name} (data type: {dtype}) is required but could not be found."
                        ))
                    })?;
                }
                column.ends.push(column.values.len());
            }
        }
        Ok(columns)
    }
}

/// Returns the error for bytes that aren't an example.
pub(super) fn cannot_parse(example: &[u8]) -> Status {
    Status::invalid_argument(format!("Could not parse example input, value: '{}'", String::from_utf8_lossy(example)))
}

/// Where an example comes from, for messages.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Alone,
    InBatch { index: usize, name: Option<&'a Bytes> },
}

impl Place<'_> {
    /// Returns the start of a message about a key.
    pub(super) fn key(&self, key: &[u8]) -> String {
        let key = String::from_utf8_lossy(key);
        match self {
            Place::Alone => format!("Key: {key}.  "),
            Place::InBatch { index, .. } => format!("{}Key: {key}, Index: {index}.  ", self.feature()),
        }
    }

    fn feature(&self) -> String {
        match self {
            Place::Alone => String::new(),
            Place::InBatch { name: Some(name), .. } => format!("Name: {}, ", String::from_utf8_lossy(name)),
            Place::InBatch { name: None, .. } => "Name: <unknown>, ".to_owned(),
        }
    }
}

impl Column {
    fn new(dtype: DType) -> Result<Column> {
        let values = Values::new(dtype)
            .ok_or_else(|| Status::invalid_argument(format!("Invalid data type {dtype} of a feature")))?;
        Ok(Column {
            values,
            ends: Vec::new(),
            expected: None,
            stride: None,
            shape: PartialShape::unknown(),
            is_dense: false,
        })
    }

    fn dense(feature: &DenseFeature) -> Result<Column> {
        let mut column = Column::new(feature.dtype)?;
        column.is_dense = true;
        column.shape = feature.shape.clone();
        match feature.shape.to_shape() {
            Some(shape) => column.expected = Some(shape.num_elements()),
            None => column.stride = Some(stride(&feature.shape)?.num_elements()),
        }
        Ok(column)
    }

    fn start_of(&self, index: usize) -> usize {
        index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// Adds the values of a feature of example `index`; among two of the same name the last counts.
    fn take(
        &mut self,
        index: usize,
        feature: &RawFeature<'_>,
        whole: &Bytes,
        (place, key): (Place<'_>, &[u8]),
    ) -> Result<()> {
        let Some(dtype) = feature.dtype() else { return Ok(()) };
        let expected = match &self.values {
            Values::Float(_) => DType::Float,
            Values::Int64(_) => DType::Int64,
            Values::Bytes(_) => DType::String,
        };
        let error = |text: String| Err(Status::invalid_argument(format!("{}{text}", place.key(key))));
        if dtype != expected {
            return error(match self.is_dense {
                true => format!("Data types don't match. Data type: {dtype} but expected type: {expected}"),
                false => format!("Data types don't match. Expected type: {expected}, Actual type: {dtype}"),
            });
        }
        self.ends.truncate(index);
        self.values.truncate(self.start_of(index));
        let Some(count) = feature.append_to(&mut self.values, whole) else {
            return error("Can't parse serialized Example.".to_owned());
        };
        if let Some(wanted) = self.expected
            && count != wanted
        {
            return error(match place {
                Place::Alone => "Can't parse serialized Example.".to_owned(),
                _ => {
                    let shape = &self.shape;
                    format!("Number of {dtype} values != expected.  Values size: {count} but output shape: {shape}")
                }
            });
        }
        if let Some(stride) = self.stride
            && (stride == 0 && count > 0 || stride > 0 && count % stride != 0)
        {
            return error(match place {
                Place::Alone => "Can't parse serialized Example.".to_owned(),
                _ => format!(
                    "Number of {dtype} values is not a multiple of stride length. Saw {count} values but output shape is: \
                     {}",
                    self.shape
                ),
            });
        }
        self.ends.push(self.values.len());
        Ok(())
    }

    /// Adds the default, if there is one.
    fn take_default(&mut self, feature: &DenseFeature) -> Option<()> {
        let default = &feature.default;
        if default.num_elements() == 0 && self.expected != Some(0) {
            return None;
        }
        match &mut self.values {
            Values::Float(values) => values.extend_from_slice(default.as_slice().ok()?),
            Values::Int64(values) => values.extend_from_slice(default.as_slice().ok()?),
            Values::Bytes(values) => values.extend_from_slice(default.strings().ok()?),
        }
        Some(())
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start)
    }

    fn longest(&self) -> usize {
        self.lengths().max().unwrap_or(0)
    }

    fn row_splits(&self, dtype: DType) -> Result<Tensor> {
        let ends = std::iter::once(0).chain(self.ends.iter().copied());
        match dtype {
            DType::Int32 => {
                let too_many = |_| Status::invalid_argument("too many values for int32 row splits");
                let ends: Vec<i32> = ends.map(|end| i32::try_from(end).map_err(too_many)).collect::<Result<_>>()?;
                Ok(Tensor::vector(&ends))
            }
            _ => Ok(Tensor::vector(&ends.map(|end| end as i64).collect::<Vec<i64>>())),
        }
    }

    /// Returns the dense tensor, with the batch as its first dimension if there is one.
    fn to_dense(&self, feature: &DenseFeature, batch: Option<usize>) -> Result<Tensor> {
        let batch: Shape = batch.map_or_else(Shape::scalar, Shape::vector);
        if let Some(shape) = feature.shape.to_shape() {
            return self.values.to_tensor(batch.concat(&shape)?);
        }
        let step = stride(&feature.shape)?;
        let steps = self.longest().checked_div(step.num_elements()).unwrap_or(0);
        let shape = batch.concat(&Shape::vector(steps))?.concat(&step)?;
        let per_row = steps * step.num_elements();
        shape.num_bytes(16)?;
        fn padded<T: Clone>(column: &Column, values: &[T], padding: T, per_row: usize) -> Vec<T> {
            let mut rows = Vec::with_capacity(per_row * column.ends.len());
            let mut start = 0;
            for (row, &end) in column.ends.iter().enumerate() {
                rows.extend_from_slice(&values[start..end]);
                rows.resize((row + 1) * per_row, padding.clone());
                start = end;
            }
            rows
        }
        let default = &feature.default;
        match &self.values {
            Values::Float(values) => {
                let padding = default.as_slice::<f32>()?.first().copied().unwrap_or_default();
                Values::Float(padded(self, values, padding, per_row)).to_tensor(shape)
            }
            Values::Int64(values) => {
                let padding = default.as_slice::<i64>()?.first().copied().unwrap_or_default();
                Values::Int64(padded(self, values, padding, per_row)).to_tensor(shape)
            }
            Values::Bytes(values) => {
                let padding = default.strings()?.first().cloned().unwrap_or_default();
                Values::Bytes(padded(self, values, padding, per_row)).to_tensor(shape)
            }
        }
    }
}

/// Returns the shape of one step of a feature of any length.
pub(super) fn stride(shape: &PartialShape) -> Result<Shape> {
    let rank = shape.rank().unwrap_or(0);
    match shape.slice(1, rank.max(1)).to_shape() {
        Some(step) if rank > 0 => Ok(step),
        _ => {
            Err(Status::invalid_argument(format!("dense_shapes has unknown rank or unknown inner dimensions: {shape}")))
        }
    }
}

impl Values {
    /// Returns the values as a tensor.
    pub(super) fn to_tensor(&self, shape: Shape) -> Result<Tensor> {
        match self {
            Values::Float(values) => Tensor::from_slice(shape.dims(), values),
            Values::Int64(values) => Tensor::from_slice(shape.dims(), values),
            Values::Bytes(values) => Tensor::from_strings(shape, values.clone()),
        }
    }
}
