//! ParseExampleDataset in its versions: parses a batch of examples at a time.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, Nesting, Next, SHAPES, TYPES, dataset_kernel, dataset_op, input_dataset,
};
use super::functional::{DETERMINISTIC, parallel_calls};
use super::position::{Position, Restoring, Saving};
use crate::parsing::ExampleFeatures;
use crate::ragged::ragged_variant;
use crate::sparse::sparse_variants;
use bytes::Bytes;
use kernel::{KernelBuilder, KernelDef, Op, OpFlags, Step};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DType, Result, Status};

const INPUTS: &[&str] = &[INPUT, "num_parallel_calls: int64", "dense_defaults: Tdense"];
const KEYS: [&str; 5] = [
    "sparse_keys: list(string) >= 0",
    "dense_keys: list(string) >= 0",
    "sparse_types: list({float, int64, string}) >= 0",
    "Tdense: list({float, int64, string}) >= 0",
    "dense_shapes: list(shape) >= 0",
];
const RAGGED: [&str; 3] = [
    "ragged_keys: list(string) >= 0 = []",
    "ragged_value_types: list({float, int64, string}) >= 0 = []",
    "ragged_split_types: list({int32, int64}) >= 0 = []",
];
const SLOPPY: &str = "sloppy: bool = false";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "ParseExampleDataset",
        INPUTS,
        &[KEYS[0], KEYS[1], KEYS[2], KEYS[3], KEYS[4], TYPES, SHAPES, SLOPPY, RAGGED[0], RAGGED[1], RAGGED[2]],
        OpFlags::NONE,
        KERNELS,
    ),
    dataset_op(
        "ParseExampleDatasetV2",
        INPUTS,
        &[KEYS[0], KEYS[1], KEYS[2], KEYS[3], KEYS[4], TYPES, SHAPES, DETERMINISTIC, RAGGED[0], RAGGED[1], RAGGED[2]],
        OpFlags::NONE,
        KERNELS,
    ),
    dataset_op(
        "ExperimentalParseExampleDataset",
        INPUTS,
        &[KEYS[0], KEYS[1], KEYS[2], KEYS[3], KEYS[4], TYPES, SHAPES, SLOPPY],
        OpFlags::NONE,
        KERNELS,
    ),
];

const KERNELS: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let (defaults, attrs) = (builder.input_range("dense_defaults")?, builder.attrs().clone());
    dataset_kernel(move |context| {
        // The number of calls affects only the speed.
        parallel_calls(context, 1)?;
        let features = ExampleFeatures::new(context, &attrs, &defaults)?;
        Ok(Parse { input: input_dataset(context, 0)?, features: Arc::new(features) })
    })
})];

struct Parse {
    input: Arc<dyn Dataset>,
    features: Arc<ExampleFeatures>,
}

impl Dataset for Parse {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(Box::new(ParseIterator { input, features: self.features.clone() }))
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }
}

struct ParseIterator {
    input: Box<dyn DatasetIterator>,
    features: Arc<ExampleFeatures>,
}

impl DatasetIterator for ParseIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let Some(element) = self.input.next(step).await? else { return Ok(None) };
            parsed(&element, &self.features).map(Some)
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move { position.read::<Self>()?.within(&mut *self.input, step).await })
    }
}

/// Returns the features of a batch, in the order of their names.
fn parsed(element: &Element, features: &ExampleFeatures) -> Result<Element> {
    let [batch] = &element[..] else {
        return Err(Status::invalid_argument(format!(
            "Input dataset should have one component of strings, but its elements have {}",
            element.len()
        )));
    };
    if batch.dtype() != DType::String || !batch.shape().is_vector() {
        return Err(Status::invalid_argument(format!(
            "Input dataset should consist of vectors of strings, but an element is a {} tensor of shape {}",
            batch.dtype(),
            batch.shape()
        )));
    }
    let parsed = features.parse(batch.strings()?)?;
    let mut by_name: BTreeMap<&Bytes, tensor::Tensor> = BTreeMap::new();
    for ((name, _), value) in features.dense.iter().zip(parsed.dense_values) {
        by_name.insert(name, value);
    }
    let sparse = parsed.sparse_indices.into_iter().zip(parsed.sparse_values).zip(parsed.sparse_shapes);
    for ((name, _), ((indices, values), shape)) in features.sparse.iter().zip(sparse) {
        by_name.insert(name, sparse_variants(indices, values, shape)?);
    }
    let ragged = parsed.ragged_values.into_iter().zip(parsed.ragged_row_splits);
    for ((name, _, _), (values, splits)) in features.ragged.iter().zip(ragged) {
        by_name.insert(name, ragged_variant(&splits, values)?);
    }
    Ok(by_name.into_values().collect())
}
