//! Batches of elements of similar length.

use super::{Dataset, PaddedBatch};
use crate::data::function::Function;
use graph::Output;
use ops::array::gather;
use ops::math::{bucketize, cast};
use tensor::{DType, PartialShape, Result, Status, Tensor};

impl Dataset {
    /// Batches elements of similar length, padded to the longest of the batch.
    ///
    /// `length` returns an element's length, a scalar int32. Elements shorter than the first boundary form one group, those
    /// shorter than the second the next, and so on. There is one batch size per group, one more than there are boundaries.
    ///
    /// ```
    /// use ferroflow::data::{Dataset, PaddedBatch};
    /// use ferroflow::ops::array;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let rows = Dataset::range(&g, 8).map(|element| array::fill(&element[0].expand_dims(0), &element[0]));
    /// let length = |element: &[Output]| array::size(&element[0]);
    /// let batches = rows.bucket_by_length(&[3, 5], &[3, 2, 3], &PaddedBatch::default(), length);
    /// let next = batches.make_one_shot_iterator().get_next();
    /// // The rows of 0, 1 and 2 numbers come together.
    /// assert_eq!(Session::new(&g)?.run(&[&next[0]])?[0].dims(), [3, 2]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn bucket_by_length(
        &self,
        boundaries: &[i64],
        batch_sizes: &[i64],
        options: &PaddedBatch,
        length: impl FnOnce(&[Output]) -> Output,
    ) -> Dataset {
        match self.bucketed(boundaries, batch_sizes, options, length) {
            Ok(dataset) => dataset,
            Err(status) => Dataset::mistaken(self.graph(), "GroupByWindowDataset", status),
        }
    }

    #[track_caller]
    fn bucketed(
        &self,
        boundaries: &[i64],
        batch_sizes: &[i64],
        options: &PaddedBatch,
        length: impl FnOnce(&[Output]) -> Output,
    ) -> Result<Dataset> {
        if batch_sizes.len() != boundaries.len() + 1 {
            let (sizes, count) = (batch_sizes.len(), boundaries.len());
            return Err(Status::invalid_argument(format!("{sizes} batch sizes for {count} boundaries")));
        }
        let limits: Vec<f32> = boundaries.iter().map(|&boundary| boundary as f32).collect();
        let key = self.define("bucket_key", &[], |_, element, _| {
            vec![cast(&bucketize(&length(element), &limits), DType::Int64)]
        })?;
        let sizes = Tensor::from_slice(&[batch_sizes.len() as i64], batch_sizes)?;
        let key_only = [(DType::Int64, PartialShape::scalar())];
        let size = |graph: &graph::Graph, key: &Output| gather(&graph.constant_tensor(&sizes), key, 0);
        let window =
            Function::define(self.graph(), "bucket_size", &key_only, |graph, args| vec![size(graph, &args[0])])?;
        let [key_arg] = key_only;
        let with_window = [key_arg, (DType::Variant, PartialShape::scalar())];
        let mut shapes = Vec::new();
        let reduce = Function::define(self.graph(), "bucket_reduce", &with_window, |graph, args| {
            let elements = Dataset::from_variant(&args[1], self.types(), self.shapes());
            let batch = elements.padded_batch_by(&size(graph, &args[0]), None, options);
            shapes = batch.shapes().to_vec();
            vec![batch.variant().clone()]
        })?;
        let none: &[DType] = &[];
        let op = self.op("GroupByWindowDataset");
        let op = op.attr("key_func", key.attr()).attr("reduce_func", reduce.attr());
        let op = op.attr("window_size_func", window.attr()).attr("Tkey_func_other_arguments", none);
        let op = op.attr("Treduce_func_other_arguments", none).attr("Twindow_size_func_other_arguments", none);
        Ok(Dataset::built(op, self.types().to_vec(), shapes))
    }
}
