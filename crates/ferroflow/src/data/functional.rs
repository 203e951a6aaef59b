//! Transformations of a [`Dataset`] by functions, which are written with graph ops and run where the dataset runs.

use super::Dataset;
use super::element::IntoOutputs;
use super::function::Function;
use graph::builder::OpBuilder;
use graph::{Graph, Output};
use ops::parsing::{FixedLenFeature, parse_example};
use tensor::{DType, PartialShape, Result, Status};

impl Dataset {
    /// Applies a function to each element.
    ///
    /// The function builds its own graph, so it can't use tensors from outside: [`map_with`](Self::map_with) passes them as
    /// arguments.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 3).map(|element| &element[0] * 10).batch(3, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 10, 20]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn map<R: IntoOutputs>(&self, function: impl FnOnce(&[Output]) -> R) -> Dataset {
        self.map_with(&[], |element, _| function(element))
    }

    /// Applies a function to each element and to tensors from outside, which are its second argument.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let factor = g.placeholder::<i64>(());
    /// let scaled = Dataset::range(&g, 4).map_with(&[&factor], |element, outside| &element[0] * &outside[0]);
    /// let iterator = scaled.make_initializable_iterator();
    /// let next = iterator.get_next();
    /// let session = Session::new(&g)?;
    /// session.runner().feed(&factor, 10i64).target(iterator.initializer().unwrap()).run()?;
    /// session.run(&[&next[0]])?;
    /// assert_eq!(session.eval::<i64>(&next[0])?, 10);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn map_with<R: IntoOutputs>(
        &self,
        outside: &[&Output],
        function: impl FnOnce(&[Output], &[Output]) -> R,
    ) -> Dataset {
        match self.define("map", outside, |_, element, outside| function(element, outside).into_outputs()) {
            Ok(function) => self.mapped(self.calling("MapDataset", "f", outside, &function), &function),
            Err(status) => Dataset::mistaken(self.graph(), "MapDataset", status),
        }
    }

    /// As [`map`](Self::map), for several elements in parallel; -1 lets the server choose the number. The order is preserved.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 3).parallel_map(2, |element| &element[0] * 10).batch(3, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 10, 20]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn parallel_map<R: IntoOutputs>(
        &self,
        num_parallel_calls: i64,
        function: impl FnOnce(&[Output]) -> R,
    ) -> Dataset {
        match self.define("map", &[], |_, element, _| function(element).into_outputs()) {
            Ok(function) => {
                let op = self.calling("ParallelMapDatasetV2", "f", &[], &function);
                self.mapped(op.input(&self.graph().constant(num_parallel_calls)), &function)
            }
            Err(status) => Dataset::mistaken(self.graph(), "ParallelMapDatasetV2", status),
        }
    }

    /// Keeps the elements for which a function returns true, a scalar.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 5).filter(|element| element[0].greater(2)).batch(2, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [3, 4]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn filter(&self, predicate: impl FnOnce(&[Output]) -> Output) -> Dataset {
        self.filter_with(&[], |element, _| predicate(element))
    }

    /// As [`filter`](Self::filter), with tensors from outside as the function's second argument.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let least = g.placeholder::<i64>(());
    /// let numbers = Dataset::range(&g, 5).filter_with(&[&least], |element, outside| element[0].greater_equal(&outside[0]));
    /// let iterator = numbers.make_initializable_iterator();
    /// let next = iterator.get_next();
    /// let session = Session::new(&g)?;
    /// session.runner().feed(&least, 3i64).target(iterator.initializer().unwrap()).run()?;
    /// assert_eq!(session.eval::<i64>(&next[0])?, 3);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn filter_with(&self, outside: &[&Output], predicate: impl FnOnce(&[Output], &[Output]) -> Output) -> Dataset {
        self.chosen("FilterDataset", outside, predicate)
    }

    /// Keeps the elements up to the first one for which a function returns false, a scalar.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 5).take_while(|element| element[0].less(2)).batch(5, false);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn take_while(&self, predicate: impl FnOnce(&[Output]) -> Output) -> Dataset {
        self.chosen("TakeWhileDataset", &[], |element, _| predicate(element))
    }

    #[track_caller]
    fn chosen(&self, op: &str, outside: &[&Output], predicate: impl FnOnce(&[Output], &[Output]) -> Output) -> Dataset {
        let function = self.define("filter", outside, |_, element, outside| vec![predicate(element, outside)]);
        let function = function.and_then(|function| match function.types[..] {
            [DType::Bool] => Ok(function),
            _ => Err(Status::invalid_argument(format!("the function of a filter returns {:?}", function.types))),
        });
        match function {
            Ok(function) => self.like(self.calling(op, "predicate", outside, &function)),
            Err(status) => Dataset::mistaken(self.graph(), op, status),
        }
    }

    /// Maps each element to a dataset, and concatenates these datasets. The function builds them in the graph of its arguments.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 3).flat_map(|_, element| Dataset::from_tensors_of(element).repeat(2)).batch(6, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 0, 1, 1, 2, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn flat_map(&self, function: impl FnOnce(&Graph, &[Output]) -> Dataset) -> Dataset {
        match self.define_dataset("flat_map", function) {
            Ok((function, inner)) => {
                let op = self.calling("FlatMapDataset", "f", &[], &function);
                Dataset::built(op, inner.types().to_vec(), inner.shapes().to_vec())
            }
            Err(status) => Dataset::mistaken(self.graph(), "FlatMapDataset", status),
        }
    }

    /// As [`flat_map`](Self::flat_map), with `cycle_length` datasets at a time, which yield `block_length` elements each in turn.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let numbers = Dataset::range(&g, 2).interleave(2, 1, |_, element| Dataset::from_tensors_of(element).repeat(2)).batch(4, true);
    /// let next = numbers.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 0, 1]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn interleave(
        &self,
        cycle_length: i64,
        block_length: i64,
        function: impl FnOnce(&Graph, &[Output]) -> Dataset,
    ) -> Dataset {
        match self.define_dataset("interleave", function) {
            Ok((function, inner)) => {
                let graph = self.graph();
                let op = self.calling("InterleaveDataset", "f", &[], &function);
                let op = op.input(&graph.constant(cycle_length)).input(&graph.constant(block_length));
                Dataset::built(op, inner.types().to_vec(), inner.shapes().to_vec())
            }
            Err(status) => Dataset::mistaken(self.graph(), "InterleaveDataset", status),
        }
    }

    /// Parses serialized examples, which must be the only component: one example per element, or a batch of them.
    ///
    /// ```
    /// use ferroflow::data::example::ExampleWriter;
    /// use ferroflow::data::{Dataset, FixedLenFeature, RecordOptions};
    /// use ferroflow::prelude::*;
    /// # let directory = tempfile::tempdir().unwrap();
    ///
    /// let path = directory.path().join("examples.tfrecords");
    /// let mut writer = ExampleWriter::create(&path)?;
    /// writer.write([("label", 7.into())])?;
    /// writer.close()?;
    /// let g = Graph::new();
    /// let records = Dataset::tf_records(&g, &[path.to_str().unwrap()], &RecordOptions::default());
    /// let label = FixedLenFeature { key: "label".to_owned(), dtype: DType::Int64, shape: Shape::scalar(), default: None };
    /// let next = records.batch(32, false).parse_example(&[label]).make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [7]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn parse_example(&self, features: &[FixedLenFeature]) -> Dataset {
        if self.types() != [DType::String] {
            let what = format!("examples are one component of type string, not {:?}", self.types());
            return Dataset::mistaken(self.graph(), "ParseExampleV2", Status::invalid_argument(what));
        }
        self.map(|serialized| parse_example(&serialized[0], features))
    }

    /// Adds a function of an element and of tensors from outside.
    pub(super) fn define(
        &self,
        label: &str,
        outside: &[&Output],
        build: impl FnOnce(&Graph, &[Output], &[Output]) -> Vec<Output>,
    ) -> Result<Function> {
        self.graph().finish()?;
        let own = self.types().iter().copied().zip(self.shapes().iter().cloned());
        let others = outside.iter().map(|output| (output.dtype(), output.shape()));
        let args: Vec<(DType, PartialShape)> = own.chain(others).collect();
        let count = self.types().len();
        Function::define(self.graph(), label, &args, |graph, args| build(graph, &args[..count], &args[count..]))
    }

    fn define_dataset(
        &self,
        label: &str,
        build: impl FnOnce(&Graph, &[Output]) -> Dataset,
    ) -> Result<(Function, Dataset)> {
        let mut made = None;
        let function = self.define(label, &[], |graph, element, _| {
            let dataset = build(graph, element);
            let variant = dataset.variant().clone();
            made = Some(dataset);
            vec![variant]
        })?;
        made.map(|dataset| (function, dataset)).ok_or_else(|| Status::internal("a function without a dataset"))
    }

    /// Begins an op of this dataset that calls a function.
    #[track_caller]
    fn calling(&self, op: &str, attr: &str, outside: &[&Output], function: &Function) -> OpBuilder {
        let types: Vec<DType> = outside.iter().map(|output| output.dtype()).collect();
        let op = self.op(op).inputs(outside.iter().copied());
        op.attr(attr, function.attr()).attr("Targuments", &types[..])
    }

    #[track_caller]
    fn mapped(&self, op: OpBuilder, function: &Function) -> Dataset {
        // The function returns a single element for each element.
        let op = op.attr("preserve_cardinality", true);
        Dataset::built(op, function.types.clone(), function.shapes.clone())
    }
}
