//! Rust closures as functions of datasets, for sessions of this process: threads of the program run them on tensors.

use super::Dataset;
use super::callbacks::{Function, call, serve};
use super::element::IntoElement;
use graph::Output;
use kernel::Callback;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The most threads of one function of a dataset.
const THREADS_MAX: usize = 256;

impl Dataset {
    /// Applies a Rust function to each element. `results` declares the types and shapes that it returns.
    ///
    /// The function runs on a thread of this program, so the session must be in this process; on a remote server, the dataset
    /// fails with an error that says so. [`map`](Self::map) takes a function of graph ops instead, which runs anywhere.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let words = Dataset::from_tensor_slices(&g, ["to", "be"]);
    /// let shouted = words.map_fn(&[(DType::String, PartialShape::scalar())], |element| {
    ///     Ok(element[0].to_strings()?[0].to_uppercase())
    /// });
    /// let next = shouted.make_one_shot_iterator().get_next();
    /// let session = Session::new(&g)?;
    /// assert_eq!(session.run(&[&next[0]])?[0].to_strings()?, ["TO"]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn map_fn<R: IntoElement>(
        &self,
        results: &[(DType, PartialShape)],
        function: impl Fn(&[Tensor]) -> Result<R> + Send + Sync + 'static,
    ) -> Dataset {
        match self.served(1, results, function) {
            Ok(client) => self.map(|element| returned(&client, element, results)),
            Err(status) => Dataset::mistaken(self.graph(), "MapDataset", status),
        }
    }

    /// As [`map_fn`](Self::map_fn), for several elements in parallel, each on its own thread. The order is preserved.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let squares = Dataset::range(&g, 4).parallel_map_fn(2, &[(DType::Int64, PartialShape::scalar())], |element| {
    ///     let number: i64 = element[0].to_scalar()?;
    ///     Ok(number * number)
    /// });
    /// let next = squares.batch(4, true).make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_vec::<i64>()?, [0, 1, 4, 9]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn parallel_map_fn<R: IntoElement>(
        &self,
        num_parallel_calls: usize,
        results: &[(DType, PartialShape)],
        function: impl Fn(&[Tensor]) -> Result<R> + Send + Sync + 'static,
    ) -> Dataset {
        match self.served(num_parallel_calls, results, function) {
            Ok(client) => {
                let num_parallel_calls = num_parallel_calls as i64;
                self.parallel_map(num_parallel_calls, |element| returned(&client, element, results))
            }
            Err(status) => Dataset::mistaken(self.graph(), "ParallelMapDatasetV2", status),
        }
    }

    /// Keeps the elements for which a Rust function returns true. It runs as that of [`map_fn`](Self::map_fn).
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let long = Dataset::from_tensor_slices(&g, ["to", "be", "whale"])
    ///     .filter_fn(|element| Ok(element[0].to_strings()?[0].len() > 2));
    /// let next = long.make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].to_strings()?, ["whale"]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn filter_fn(&self, predicate: impl Fn(&[Tensor]) -> Result<bool> + Send + Sync + 'static) -> Dataset {
        let result = [(DType::Bool, PartialShape::scalar())];
        match self.served(1, &result, predicate) {
            Ok(client) => self.filter(|element| returned(&client, element, &result).remove(0)),
            Err(status) => Dataset::mistaken(self.graph(), "FilterDataset", status),
        }
    }

    /// Starts the threads that run a function; returns the id under which ops find them.
    fn served<R: IntoElement>(
        &self,
        num_threads: usize,
        results: &[(DType, PartialShape)],
        function: impl Fn(&[Tensor]) -> Result<R> + Send + Sync + 'static,
    ) -> Result<String> {
        if results.is_empty() || num_threads == 0 || num_threads > THREADS_MAX {
            return Err(Status::invalid_argument(format!(
                "a function with {} results in {num_threads} calls at once: there must be one of each, and at most \
                 {THREADS_MAX} calls",
                results.len()
            )));
        }
        let function = Arc::new(function);
        let results: Arc<[(DType, PartialShape)]> = results.into();
        let on_thread = || -> Function {
            let (function, results) = (function.clone(), results.clone());
            Box::new(move |call: &Callback| checked(function(&call.args)?.into_element()?, &results))
        };
        let functions = (0..num_threads).map(|_| on_thread()).collect();
        serve(self.graph(), "a function of this program", functions)
    }
}

/// Adds a call of a function whose results have these types and shapes.
fn returned(client: &str, element: &[Output], results: &[(DType, PartialShape)]) -> Vec<Output> {
    let Some(graph) = element.first().map(Output::graph) else { return Vec::new() };
    let types: Vec<DType> = results.iter().map(|(dtype, _)| *dtype).collect();
    let made = call(graph, client, "function", element, &types);
    for (output, (_, shape)) in made.iter().zip(results) {
        graph.kept(output.set_shape(shape), || ());
    }
    made
}

/// Checks that an element has the declared types and shapes.
fn checked(element: Vec<Tensor>, results: &[(DType, PartialShape)]) -> Result<Vec<Tensor>> {
    let fits = |(tensor, (dtype, shape)): (&Tensor, &(DType, PartialShape))| {
        tensor.dtype() == *dtype && shape.is_compatible_with(tensor.shape())
    };
    if element.len() == results.len() && element.iter().zip(results).all(fits) {
        return Ok(element);
    }
    let found: Vec<String> = element.iter().map(|tensor| format!("{} {}", tensor.dtype(), tensor.shape())).collect();
    let promised: Vec<String> = results.iter().map(|(dtype, shape)| format!("{dtype} {shape}")).collect();
    Err(Status::invalid_argument(format!(
        "the function of a dataset returned {}, but it declared {}",
        found.join(", "),
        promised.join(", ")
    )))
}
