//! [`Dataset`]: a pipeline of elements, as in `tf.data.Dataset`: sources, and transformations without functions.

use super::element::IntoElement;
use super::function::mistaken;
use graph::builder::OpBuilder;
use graph::{Graph, Output};
use tensor::{DType, PartialShape, Shape, Status, Tensor};

/// A pipeline of elements in a graph. An element has one or more components, each a tensor of a type and a shape.
///
/// The ops are those of TensorFlow's `tf.data`, so a pipeline runs wherever its graph runs, yields the same elements in the same
/// order, and its position is saved by the same ops.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let squares = Dataset::range(&g, 10).map(|element| element[0].square()).filter(|element| element[0].greater(10)).batch(2, true);
/// let next = squares.make_one_shot_iterator().get_next();
/// let session = Session::new(&g)?;
/// assert_eq!(session.run(&[&next[0]])?[0].to_vec::<i64>()?, [16, 25]);
/// assert_eq!(session.run(&[&next[0]])?[0].to_vec::<i64>()?, [36, 49]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a dataset does nothing until an iterator draws from it"]
pub struct Dataset {
    variant: Output,
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
}

/// Options of [`Dataset::padded_batch`].
///
/// ```
/// use ferroflow::data::{Dataset, PaddedBatch};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let options = PaddedBatch { values: Some(vec![Tensor::scalar(-1i64)]), ..PaddedBatch::default() };
/// let rows = Dataset::from_tensor_slices(&g, [[1i64, 2], [3, 4]]).padded_batch(2, &options);
/// # g.finish()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PaddedBatch {
    /// The shape of each component; an unknown size is padded to the largest in the batch. If empty, the shapes are those of the
    /// dataset.
    pub shapes: Option<Vec<PartialShape>>,
    /// The padding value of each component, a scalar; by default zero or the empty string.
    pub values: Option<Vec<Tensor>>,
    /// Whether a last batch that is too small is dropped.
    pub drop_remainder: bool,
}

impl Dataset {
    /// Wraps a dataset that an op returned, such as a window of another dataset.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let windows = Dataset::range(&g, 4).window(2, 2, 1, true);
    /// let pairs = windows.flat_map(|_, window| Dataset::from_variant(&window[0], &[DType::Int64], &[().into()]).batch(2, true));
    /// let next = pairs.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn from_variant(variant: &Output, types: &[DType], shapes: &[PartialShape]) -> Dataset {
        Dataset { variant: variant.clone(), types: types.to_vec(), shapes: shapes.to_vec() }
    }

    /// Returns a dataset of one element.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let pair = Dataset::from_tensors(&g, ([1i64, 2], "words"));
    /// let next = pair.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn from_tensors(graph: &Graph, element: impl IntoElement) -> Dataset {
        match constants(graph, element) {
            Ok(components) => Dataset::from_tensors_of(&components),
            Err(status) => Dataset::mistaken(graph, "TensorDataset", status),
        }
    }

    /// Returns a dataset of one element, whose components are tensors of a graph, at least one.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let twice = Dataset::from_tensors_of(&[g.constant([1i64, 2]) * 2]);
    /// let next = twice.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [2, 4]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn from_tensors_of(components: &[Output]) -> Dataset {
        let shapes: Vec<PartialShape> = components.iter().map(Output::shape).collect();
        Dataset::from_components("TensorDataset", components, shapes)
    }

    /// Returns a dataset of the rows of tensors. All of them must have the same number of rows.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    ///
    /// let g = ferroflow::Graph::new();
    /// let rows = Dataset::from_tensor_slices(&g, ([[1f32, 2.0], [3.0, 4.0]], [0i64, 1]));
    /// assert_eq!(rows.types(), [ferroflow::DType::Float, ferroflow::DType::Int64]);
    /// # g.finish()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn from_tensor_slices(graph: &Graph, element: impl IntoElement) -> Dataset {
        match constants(graph, element) {
            Ok(components) => Dataset::from_tensor_slices_of(&components),
            Err(status) => Dataset::mistaken(graph, "TensorSliceDataset", status),
        }
    }

    /// Returns a dataset of the rows of tensors of a graph, such as placeholders; at least one.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let rows = g.placeholder::<i64>((None, 2));
    /// let iterator = Dataset::from_tensor_slices_of(&[rows.clone()]).make_initializable_iterator();
    /// let next = iterator.get_next();
    /// let session = Session::new(&g)?;
    /// session.runner().feed(&rows, [[1i64, 2], [3, 4]]).target(iterator.initializer().unwrap()).run()?;
    /// assert_eq!(session.run(&[&next[0]])?[0].to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn from_tensor_slices_of(components: &[Output]) -> Dataset {
        let shapes: Vec<PartialShape> = components.iter().map(|component| row_shape(&component.shape())).collect();
        Dataset::from_components("TensorSliceDataset", components, shapes)
    }

    #[track_caller]
    fn from_components(op: &str, components: &[Output], shapes: Vec<PartialShape>) -> Dataset {
        let types: Vec<DType> = components.iter().map(Output::dtype).collect();
        let Some(first) = components.first() else {
            let graph = Graph::with_ops(ops::registry());
            return Dataset::mistaken(&graph, op, Status::invalid_argument("a dataset's element has no components"));
        };
        let builder = first.graph().op(op).inputs(components).attr("Toutput_types", &types[..]);
        let variant = builder.attr("output_shapes", &shapes[..]).output();
        Dataset { variant, types, shapes }
    }

    /// Returns a dataset of the integers from 0 up to, but excluding, `stop`.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 3).batch(3, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn range(graph: &Graph, stop: i64) -> Dataset {
        Dataset::range_by(graph, 0, stop, 1)
    }

    /// Returns a dataset of the integers from `start` in steps of `step` up to, but excluding, `stop`.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range_by(&g, 1, 10, 4).batch(3, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [1, 5, 9]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn range_by(graph: &Graph, start: i64, stop: i64, step: i64) -> Dataset {
        let inputs = [start, stop, step].map(|number| graph.constant(number));
        let op = graph.op("RangeDataset").inputs(&inputs);
        Dataset::built(op, vec![DType::Int64], vec![PartialShape::scalar()])
    }

    /// Combines the elements of several datasets into one element, until one of them ends. There must be at least one dataset.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let (numbers, words) = (Dataset::range(&g, 9), Dataset::from_tensor_slices(&g, ["a", "b"]));
    /// let both = Dataset::zip(&[&numbers, &words]);
    /// assert_eq!(both.types(), [DType::Int64, DType::String]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn zip(datasets: &[&Dataset]) -> Dataset {
        let types: Vec<DType> = datasets.iter().flat_map(|dataset| dataset.types.clone()).collect();
        let shapes: Vec<PartialShape> = datasets.iter().flat_map(|dataset| dataset.shapes.clone()).collect();
        let Some(first) = datasets.first() else {
            let graph = Graph::with_ops(ops::registry());
            return Dataset::mistaken(&graph, "ZipDataset", Status::invalid_argument("there are no datasets to zip"));
        };
        let op = first.graph().op("ZipDataset").inputs(datasets.iter().map(|dataset| &dataset.variant));
        Dataset::built(op.attr("N", datasets.len() as i64), types, shapes)
    }

    /// Appends the elements of another dataset of the same types.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 2).concatenate(&Dataset::range_by(&g, 7, 9, 1)).batch(4, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 7, 8]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn concatenate(&self, other: &Dataset) -> Dataset {
        if self.types != other.types || self.shapes.len() != other.shapes.len() {
            let what = format!("elements of {:?} don't go behind elements of {:?}", other.types, self.types);
            return Dataset::mistaken(self.graph(), "ConcatenateDataset", Status::invalid_argument(what));
        }
        let shapes = self.shapes.iter().zip(&other.shapes).map(|(one, two)| common_shape(one, two)).collect();
        let op = self.op("ConcatenateDataset").input(&other.variant);
        Dataset::built(op, self.types.clone(), shapes)
    }

    /// Keeps the first `count` elements; -1 keeps all.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 9).take(2).batch(9, false);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn take(&self, count: i64) -> Dataset {
        self.with_number("TakeDataset", count)
    }

    /// Skips the first `count` elements; -1 skips all.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 9).skip(7).batch(9, false);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [7, 8]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn skip(&self, count: i64) -> Dataset {
        self.with_number("SkipDataset", count)
    }

    /// Repeats the dataset `count` times; -1 means without end.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 2).repeat(2).batch(9, false);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn repeat(&self, count: i64) -> Dataset {
        self.with_number("RepeatDataset", count)
    }

    /// Keeps every `num_shards`-th element, starting at `index`: the share of one of several workers.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 9).shard(4, 1).batch(9, false);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [1, 5]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn shard(&self, num_shards: i64, index: i64) -> Dataset {
        let graph = self.graph();
        let op = self.op("ShardDataset").input(&graph.constant(num_shards)).input(&graph.constant(index));
        self.like(op)
    }

    /// Shuffles the elements: each is drawn from a buffer of the next ones. With a seed, the order is TensorFlow's for this seed;
    /// every epoch has another one, unless `reshuffle_each_iteration` is false.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let shuffled = Dataset::range(&g, 5).shuffle(5, Some(1), true).batch(5, true);
    /// let next = shuffled.make_one_shot_iterator().get_next();
    /// let mut numbers = Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?;
    /// assert_ne!(numbers, [0, 1, 2, 3, 4]);
    /// numbers.sort();
    /// assert_eq!(numbers, [0, 1, 2, 3, 4]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn shuffle(&self, buffer_size: i64, seed: Option<i64>, reshuffle_each_iteration: bool) -> Dataset {
        let graph = self.graph();
        let (seed, seed2) = graph.random_seeds(seed);
        let inputs = [buffer_size, seed, seed2].map(|number| graph.constant(number));
        let op = self.op("ShuffleDataset").inputs(&inputs);
        self.like(op.attr("reshuffle_each_iteration", reshuffle_each_iteration))
    }

    /// Caches the elements during the first epoch, in memory, or in files if a name is given.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 2).map(|element| element[0].square()).cache("").repeat(2).batch(4, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn cache(&self, filename: &str) -> Dataset {
        let op = self.op("CacheDataset").input(&self.graph().constant(filename));
        self.like(op)
    }

    /// Prefetches up to this many elements; -1 lets the server choose the number.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 4).batch(2, true).prefetch(1);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn prefetch(&self, buffer_size: i64) -> Dataset {
        self.with_number("PrefetchDataset", buffer_size)
    }

    /// Prepends a number to each element's components, counted from `start`.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let words = Dataset::from_tensor_slices(&g, ["a", "b"]).enumerate(5).batch(2, true);
    /// let next = words.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [5, 6]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn enumerate(&self, start: i64) -> Dataset {
        Dataset::zip(&[&Dataset::range_by(self.graph(), start, i64::MAX, 1), self])
    }

    /// Stacks this many elements into one; the last batch may be smaller, or is dropped.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 5).batch(2, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn batch(&self, batch_size: i64, drop_remainder: bool) -> Dataset {
        let graph = self.graph();
        let op = self.op("BatchDatasetV2").input(&graph.constant(batch_size)).input(&graph.constant(drop_remainder));
        let rows = drop_remainder.then_some(batch_size);
        let shapes = self.shapes.iter().map(|shape| batched(shape, rows)).collect();
        Dataset::built(op, self.types.clone(), shapes)
    }

    /// Stacks this many elements into one, padded at their ends to the same size.
    ///
    /// ```
    /// use ferroflow::data::{Dataset, PaddedBatch};
    /// use ferroflow::ops::array;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let rows = Dataset::range(&g, 3).map(|element| array::fill(&element[0].expand_dims(0), &element[0]));
    /// let next = rows.padded_batch(3, &PaddedBatch::default()).make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 0, 1, 0, 2, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn padded_batch(&self, batch_size: i64, options: &PaddedBatch) -> Dataset {
        let size = self.graph().constant(batch_size);
        self.padded_batch_by(&size, options.drop_remainder.then_some(batch_size), options)
    }

    /// As [`padded_batch`](Self::padded_batch), with the batch size in a tensor; `rows` is the number of rows if it is known to
    /// be the same in every batch.
    #[track_caller]
    pub(super) fn padded_batch_by(&self, size: &Output, rows: Option<i64>, options: &PaddedBatch) -> Dataset {
        let shapes = options.shapes.as_ref().unwrap_or(&self.shapes);
        match self.padding(shapes, options) {
            Ok((sizes, values)) => {
                let graph = self.graph();
                let op = self.op("PaddedBatchDatasetV2").input(size).inputs(&sizes);
                let op = op.inputs(&values).input(&graph.constant(options.drop_remainder));
                let shapes: Vec<PartialShape> = shapes.iter().map(|shape| batched(shape, rows)).collect();
                let op = op.attr("Toutput_types", &self.types[..]).attr("N", sizes.len() as i64);
                let variant = op.attr("output_shapes", &shapes[..]).output();
                Dataset { variant, types: self.types.clone(), shapes }
            }
            Err(status) => Dataset::mistaken(self.graph(), "PaddedBatchDatasetV2", status),
        }
    }

    /// Returns the shapes and padding values of a padded batch as tensors.
    fn padding(&self, shapes: &[PartialShape], options: &PaddedBatch) -> tensor::Result<(Vec<Output>, Vec<Output>)> {
        let graph = self.graph();
        let values = options.values.as_ref().map_or(self.types.len(), Vec::len);
        if shapes.len() != self.types.len() || values != self.types.len() {
            let count = self.types.len();
            let what = format!("{} shapes and {values} values for padding, and {count} components", shapes.len());
            return Err(Status::invalid_argument(what));
        }
        let size = |shape: &PartialShape| {
            let dims = shape.dims().ok_or_else(|| {
                Status::invalid_argument("a component of unknown rank can't be padded: give its shape")
            })?;
            let dims: Vec<i64> = dims.iter().map(|dim| dim.unwrap_or(-1)).collect();
            Ok(graph.constant_tensor(&Tensor::from_slice(&[dims.len() as i64], &dims)?))
        };
        let sizes = shapes.iter().map(size).collect::<tensor::Result<_>>()?;
        let value = |(index, &dtype): (usize, &DType)| match options.values.as_ref().and_then(|all| all.get(index)) {
            Some(given) => Ok(graph.constant_tensor(given)),
            None => Ok(graph.constant_tensor(&Tensor::zeros(dtype, Shape::scalar())?)),
        };
        let values = self.types.iter().enumerate().map(value).collect::<tensor::Result<_>>()?;
        Ok((sizes, values))
    }

    /// Splits each element into its rows.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::from_tensors(&g, [[1i64, 2], [3, 4]]).unbatch();
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn unbatch(&self) -> Dataset {
        let shapes = self.shapes.iter().map(row_shape).collect();
        Dataset::built(self.op("UnbatchDataset"), self.types.clone(), shapes)
    }

    /// Returns windows of `size` elements, each with one dataset per component. Windows start `shift` elements apart, and their
    /// elements are `stride` apart. [`Dataset::from_variant`] and `flat_map` turn them back into elements.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let windows = Dataset::range(&g, 4).window(3, 1, 1, true);
    /// let sums = windows.flat_map(|_, window| Dataset::from_variant(&window[0], &[DType::Int64], &[().into()]).batch(3, true));
    /// let next = sums.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn window(&self, size: i64, shift: i64, stride: i64, drop_remainder: bool) -> Dataset {
        let graph = self.graph();
        let inputs = [size, shift, stride].map(|number| graph.constant(number));
        let op = self.op("WindowDataset").inputs(&inputs).input(&graph.constant(drop_remainder));
        let count = self.types.len();
        Dataset::built(op, vec![DType::Variant; count], vec![PartialShape::scalar(); count])
    }

    /// Returns the types of an element's components.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Dataset::range(&g, 3).types(), [DType::Int64]);
    /// ```
    pub fn types(&self) -> &[DType] {
        &self.types
    }

    /// Returns the shapes of an element's components.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Dataset::range(&g, 3).batch(2, true).shapes(), [PartialShape::from([2])]);
    /// ```
    pub fn shapes(&self) -> &[PartialShape] {
        &self.shapes
    }

    /// Returns the variant tensor of the dataset.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Dataset::range(&g, 3).variant().op.op_type(), "RangeDataset");
    /// ```
    pub fn variant(&self) -> &Output {
        &self.variant
    }

    /// Returns the graph.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert!(Dataset::range(&g, 3).graph().same(&g));
    /// ```
    pub fn graph(&self) -> &Graph {
        self.variant.graph()
    }

    /// Begins an op that takes this dataset.
    #[track_caller]
    pub(super) fn op(&self, op: &str) -> OpBuilder {
        self.graph().op(op).input(&self.variant)
    }

    /// Adds an op whose elements have the types and shapes of this dataset's.
    #[track_caller]
    pub(super) fn like(&self, op: OpBuilder) -> Dataset {
        Dataset::built(op, self.types.clone(), self.shapes.clone())
    }

    /// Adds an op that returns a dataset.
    #[track_caller]
    pub(super) fn built(op: OpBuilder, types: Vec<DType>, shapes: Vec<PartialShape>) -> Dataset {
        let variant = op.attr("output_types", &types[..]).attr("output_shapes", &shapes[..]).output();
        Dataset { variant, types, shapes }
    }

    /// Keeps a mistake in a graph, and returns an inert dataset in place of the one that could not be built.
    #[track_caller]
    pub(super) fn mistaken(graph: &Graph, op: &str, status: Status) -> Dataset {
        let variant = mistaken(graph, op, status).output(0);
        Dataset { variant, types: vec![DType::Float], shapes: vec![PartialShape::unknown()] }
    }

    #[track_caller]
    fn with_number(&self, op: &str, number: i64) -> Dataset {
        self.like(self.op(op).input(&self.graph().constant(number)))
    }
}

fn constants(graph: &Graph, element: impl IntoElement) -> tensor::Result<Vec<Output>> {
    Ok(element.into_element()?.iter().map(|tensor| graph.constant_tensor(tensor)).collect())
}

fn batched(shape: &PartialShape, rows: Option<i64>) -> PartialShape {
    PartialShape::new(&[rows]).concat(shape)
}

fn row_shape(shape: &PartialShape) -> PartialShape {
    match shape.rank() {
        Some(rank) if rank > 0 => shape.slice(1, rank),
        _ => PartialShape::unknown(),
    }
}

/// Returns the most specific shape that both shapes are compatible with.
fn common_shape(one: &PartialShape, two: &PartialShape) -> PartialShape {
    match (one.dims(), two.dims()) {
        (Some(one), Some(two)) if one.len() == two.len() => {
            let dims: Vec<Option<i64>> =
                one.iter().zip(two).map(|(one, two)| one.filter(|size| Some(*size) == *two)).collect();
            PartialShape::new(&dims)
        }
        _ => PartialShape::unknown(),
    }
}
