//! [`FeatureLists`]: the feature lists of sequence examples, and their conversion to tensors.

use super::example::cannot_parse;
use super::wire::{Values, features_of_list, visit_feature_lists};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The form of a list's result.
pub(super) enum ListKind {
    Sparse,
    /// Every step has the same shape.
    Dense {
        step: Shape,
        may_be_missing: bool,
    },
    Ragged {
        splits: DType,
    },
}

/// A requested list.
pub(super) struct ListWanted<'a> {
    pub key: &'a Bytes,
    pub dtype: DType,
    pub kind: ListKind,
}

/// The values of one list in all examples.
struct Column {
    values: Values,
    /// For each example, the number of values of each step.
    steps: Vec<Vec<usize>>,
}

/// The values of the lists, in their order.
pub(super) struct FeatureLists {
    columns: Vec<Column>,
}

/// The results, in the order of the outputs.
#[derive(Default)]
pub(super) struct ListTensors {
    pub sparse_indices: Vec<Tensor>,
    pub sparse_values: Vec<Tensor>,
    pub sparse_shapes: Vec<Tensor>,
    pub dense_values: Vec<Tensor>,
    pub dense_lengths: Vec<Tensor>,
    pub ragged_values: Vec<Tensor>,
    pub ragged_outer_splits: Vec<Tensor>,
    pub ragged_inner_splits: Vec<Tensor>,
}

impl FeatureLists {
    /// Reads the lists of all examples.
    pub(super) fn parse(wanted: &[ListWanted<'_>], examples: &[Bytes], names: &[Bytes]) -> Result<FeatureLists> {
        let mut columns = Vec::with_capacity(wanted.len());
        let mut by_key: HashMap<&[u8], Vec<usize>> = HashMap::with_capacity(wanted.len());
        for (index, list) in wanted.iter().enumerate() {
            let values = Values::new(list.dtype)
                .ok_or_else(|| Status::invalid_argument(format!("Invalid data type {} of a feature", list.dtype)))?;
            columns.push(Column { values, steps: Vec::with_capacity(examples.len()) });
            by_key.entry(&list.key[..]).or_default().push(index);
        }
        for (index, example) in examples.iter().enumerate() {
            let mut found: HashMap<&[u8], &[u8]> = HashMap::new();
            let whole = visit_feature_lists(example, &mut |key, list| {
                if by_key.contains_key(key) {
                    found.insert(key, list);
                }
                Some(())
            });
            if whole.is_none() {
                return Err(cannot_parse(example));
            }
            let name = names.get(index).map_or("<unknown>".into(), |name| String::from_utf8_lossy(name));
            for (list, column) in wanted.iter().zip(&mut columns) {
                column.take(list, found.get(&list.key[..]).copied(), example, &name)?;
            }
        }
        Ok(FeatureLists { columns })
    }

    /// Returns the tensors, with a batch dimension if there is a batch.
    pub(super) fn into_tensors(self, wanted: &[ListWanted<'_>], is_batch: bool) -> Result<ListTensors> {
        let mut tensors = ListTensors::default();
        for (column, list) in self.columns.iter().zip(wanted) {
            match &list.kind {
                ListKind::Sparse => {
                    tensors.sparse_indices.push(column.indices(is_batch)?);
                    tensors.sparse_values.push(column.values.to_tensor(Shape::vector(column.values.len()))?);
                    let widest = column.steps.iter().flatten().copied().max().unwrap_or(0);
                    let shape = [column.steps.len() as i64, column.longest() as i64, widest as i64];
                    tensors.sparse_shapes.push(Tensor::vector(if is_batch { &shape[..] } else { &shape[1..] }));
                }
                ListKind::Dense { step, .. } => {
                    let (values, lengths) = column.dense(step, is_batch)?;
                    tensors.dense_values.push(values);
                    tensors.dense_lengths.push(lengths);
                }
                ListKind::Ragged { splits } => {
                    tensors.ragged_values.push(column.values.to_tensor(Shape::vector(column.values.len()))?);
                    let outer: Vec<usize> = column.steps.iter().map(Vec::len).collect();
                    let inner: Vec<usize> = column.steps.iter().flatten().copied().collect();
                    tensors.ragged_outer_splits.push(match is_batch {
                        true => row_splits(*splits, &outer)?,
                        false => Tensor::zeros(*splits, Shape::vector(0))?,
                    });
                    tensors.ragged_inner_splits.push(row_splits(*splits, &inner)?);
                }
            }
        }
        Ok(tensors)
    }
}

/// Returns the row splits of rows with these lengths.
fn row_splits(dtype: DType, lengths: &[usize]) -> Result<Tensor> {
    let mut splits = vec![0i64];
    for &length in lengths {
        splits.push(splits[splits.len() - 1] + length as i64);
    }
    if dtype != DType::Int32 {
        return Ok(Tensor::vector(&splits));
    }
    let narrow = |&split: &i64| {
        i32::try_from(split).map_err(|_| Status::invalid_argument("too many values for int32 row splits"))
    };
    Ok(Tensor::vector(&splits.iter().map(narrow).collect::<Result<Vec<i32>>>()?))
}

impl Column {
    fn take(&mut self, wanted: &ListWanted<'_>, list: Option<&[u8]>, example: &Bytes, name: &str) -> Result<()> {
        let key = String::from_utf8_lossy(wanted.key);
        let Some(list) = list else {
            if matches!(wanted.kind, ListKind::Dense { may_be_missing: false, .. }) {
                return Err(Status::invalid_argument(format!(
                    "Name: {name}, Feature list '{key}' is required but could not be found.  Did you mean to include \
                     it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
                )));
            }
            self.steps.push(Vec::new());
            return Ok(());
        };
        let features = features_of_list(list).ok_or_else(|| cannot_parse(example))?;
        let mut steps = Vec::with_capacity(features.len());
        for (step, feature) in features.iter().enumerate() {
            let error = |text: String| {
                Status::invalid_argument(format!("Name: {name}, Feature list: {key}, Index: {step}.  {text}"))
            };
            if let Some(dtype) = feature.dtype()
                && dtype != wanted.dtype
            {
                return Err(error(format!(
                    "Data types don't match. Expected type: {}  Feature is: {dtype}",
                    wanted.dtype
                )));
            }
            let count = feature.append_to(&mut self.values, example).ok_or_else(|| cannot_parse(example))?;
            if let ListKind::Dense { step, .. } = &wanted.kind
                && count != step.num_elements()
            {
                return Err(error(format!(
                    "Number of {} values != expected.  values size: {count} but output shape: {step}",
                    wanted.dtype
                )));
            }
            steps.push(count);
        }
        self.steps.push(steps);
        Ok(())
    }

    fn longest(&self) -> usize {
        self.steps.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns for each value its example, its step and its position in the step.
    fn indices(&self, is_batch: bool) -> Result<Tensor> {
        let columns = if is_batch { 3 } else { 2 };
        let mut indices = Vec::with_capacity(self.values.len() * columns);
        for (example, steps) in self.steps.iter().enumerate() {
            for (step, &count) in steps.iter().enumerate() {
                for place in 0..count {
                    let index = [example as i64, step as i64, place as i64];
                    indices.extend_from_slice(&index[3 - columns..]);
                }
            }
        }
        Tensor::from_slice(Shape::from_usize(&[self.values.len(), columns])?.dims(), &indices)
    }

    /// Returns the steps of all examples, padded to the longest, and the number of each.
    fn dense(&self, step: &Shape, is_batch: bool) -> Result<(Tensor, Tensor)> {
        let (longest, width) = (self.longest(), step.num_elements());
        let counts: Vec<i64> = self.steps.iter().map(|steps| steps.len() as i64).collect();
        let shape = Shape::vector(longest).concat(step)?;
        let (shape, lengths) = match is_batch {
            true => (Shape::vector(self.steps.len()).concat(&shape)?, Tensor::vector(&counts)),
            false => (shape, Tensor::scalar(counts.first().copied().unwrap_or(0))),
        };
        shape.num_bytes(16)?;
        let per_example = longest * width;
        fn padded<T: Clone + Default>(values: &[T], counts: &[i64], width: usize, per_example: usize) -> Vec<T> {
            let mut all = Vec::with_capacity(counts.len() * per_example);
            let mut start = 0;
            for (example, &count) in counts.iter().enumerate() {
                let end = start + count as usize * width;
                all.extend_from_slice(&values[start..end]);
                all.resize((example + 1) * per_example, T::default());
                start = end;
            }
            all
        }
        let values = match &self.values {
            Values::Float(values) => Values::Float(padded(values, &counts, width, per_example)),
            Values::Int64(values) => Values::Int64(padded(values, &counts, width, per_example)),
            Values::Bytes(values) => Values::Bytes(padded(values, &counts, width, per_example)),
        };
        Ok((values.to_tensor(shape)?, lengths))
    }
}
