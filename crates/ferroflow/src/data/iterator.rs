//! [`DatasetIterator`]: draws the elements of a dataset, one in every run.

use super::Dataset;
use super::function::{Function, mistaken};
use graph::{Operation, Output};
use tensor::{DType, PartialShape};

/// Draws the elements of a dataset. At the end a run fails as out of range.
#[derive(Clone, Debug)]
pub struct DatasetIterator {
    resource: Output,
    initializer: Option<Operation>,
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
}

impl DatasetIterator {
    /// Returns the operation that starts the iterator at the first element, again and again; a one-shot iterator has none.
    pub fn initializer(&self) -> Option<&Operation> {
        self.initializer.as_ref()
    }

    /// Returns the next element's components. Call it once: every call adds an op that draws for itself.
    #[track_caller]
    pub fn get_next(&self) -> Vec<Output> {
        ops::dataset::iterator_get_next(&self.resource, &self.types, &self.shapes)
    }

    /// Returns an operation that starts the iterator at the first element of another dataset of the same types.
    #[track_caller]
    pub fn make_initializer(&self, dataset: &Dataset) -> Operation {
        ops::dataset::make_iterator(dataset.variant(), &self.resource)
    }

    /// Returns the resource, such as for a saver of positions.
    pub fn resource(&self) -> &Output {
        &self.resource
    }
}

impl Dataset {
    /// Returns an iterator that an operation starts, which may depend on what a run is fed.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let iterator = Dataset::range(&g, 3).make_initializable_iterator();
    /// let next = iterator.get_next();
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[iterator.initializer().unwrap()])?;
    /// for number in 0..3 {
    ///     assert_eq!(session.eval::<i64>(&next[0])?, number);
    /// }
    /// assert_eq!(session.run(&[&next[0]]).unwrap_err().code(), ferroflow::Code::OutOfRange);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn make_initializable_iterator(&self) -> DatasetIterator {
        let resource = ops::dataset::iterator(self.graph(), self.types(), self.shapes());
        let initializer = Some(ops::dataset::make_iterator(self.variant(), &resource));
        DatasetIterator { resource, initializer, types: self.types().to_vec(), shapes: self.shapes().to_vec() }
    }

    /// Returns an iterator that starts by itself and goes through the dataset once. The dataset must not depend on placeholders or
    /// variables.
    #[track_caller]
    pub fn make_one_shot_iterator(&self) -> DatasetIterator {
        let graph = self.graph();
        let made = Function::copied(graph, "one_shot", self.variant());
        let resource = match made {
            Ok(factory) => {
                let op = graph.op("OneShotIterator").attr("dataset_factory", factory.attr());
                op.attr("output_types", self.types()).attr("output_shapes", self.shapes()).output()
            }
            Err(status) => mistaken(graph, "OneShotIterator", status).output(0),
        };
        DatasetIterator { resource, initializer: None, types: self.types().to_vec(), shapes: self.shapes().to_vec() }
    }
}
