//! [`DatasetIterator`]: yields the elements of a dataset, one in every run.

use super::Dataset;
use super::function::{Function, mistaken};
use crate::saveable::{self, Saveable};
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use tensor::{DType, PartialShape};

/// Yields the elements of a dataset. At the end, a run fails with `OutOfRange`.
///
/// ```
/// use ferroflow::data::{Dataset, DatasetIterator};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let iterator: DatasetIterator = Dataset::range(&g, 2).make_one_shot_iterator();
/// let next = iterator.get_next();
/// let session = Session::new(&g)?;
/// assert_eq!((session.eval::<i64>(&next[0])?, session.eval::<i64>(&next[0])?), (0, 1));
/// assert_eq!(session.eval::<i64>(&next[0]).unwrap_err().code(), ferroflow::Code::OutOfRange);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct DatasetIterator {
    resource: Output,
    initializer: Option<Operation>,
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
}

impl DatasetIterator {
    /// Returns the operation that restarts the iterator at the first element; a one-shot iterator has none.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert!(Dataset::range(&g, 2).make_initializable_iterator().initializer().is_some());
    /// assert!(Dataset::range(&g, 2).make_one_shot_iterator().initializer().is_none());
    /// ```
    pub fn initializer(&self) -> Option<&Operation> {
        self.initializer.as_ref()
    }

    /// Returns the next element's components. Call it once: every call adds an op that takes an element of its own.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let next = Dataset::range(&g, 2).batch(2, true).make_one_shot_iterator().get_next();
    /// assert_eq!((next.len(), next[0].shape()), (1, [2].into()));
    /// ```
    #[track_caller]
    pub fn get_next(&self) -> Vec<Output> {
        ops::dataset::iterator_get_next(&self.resource, &self.types, &self.shapes)
    }

    /// Returns an operation that restarts the iterator at the first element of another dataset of the same types.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let iterator = Dataset::range(&g, 2).make_initializable_iterator();
    /// let next = iterator.get_next();
    /// let other = iterator.make_initializer(&Dataset::range_by(&g, 7, 9, 1));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&other])?;
    /// assert_eq!(session.eval::<i64>(&next[0])?, 7);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn make_initializer(&self, dataset: &Dataset) -> Operation {
        ops::dataset::make_iterator(dataset.variant(), &self.resource)
    }

    /// Adds the iterator's position to what savers created from now on save and restore, so that training that resumes from a
    /// checkpoint continues with the next elements. The iterator must have an initializer, which must run before the position is
    /// restored.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::Saver;
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let prefix = directory.path().join("model").to_str().unwrap().to_owned();
    ///
    /// let g = Graph::new();
    /// let iterator = Dataset::range(&g, 100).shuffle(100, Some(1), true).make_initializable_iterator();
    /// iterator.make_saveable();
    /// let (next, saver) = (iterator.get_next(), Saver::new(&g)?);
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[iterator.initializer().unwrap()])?;
    /// session.eval::<i64>(&next[0])?;
    /// let path = saver.save(&session, &prefix, None)?;
    ///
    /// let later = Session::new(&g)?;
    /// later.run_ops(&[iterator.initializer().unwrap()])?;
    /// saver.restore(&later, &path)?;
    /// assert_eq!(later.eval::<i64>(&next[0])?, session.eval::<i64>(&next[0])?);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn make_saveable(&self) {
        let (resource, graph) = (self.resource.clone(), self.resource.graph());
        let value = graph.colocate_with(&resource.op, |graph| graph.op("SerializeIterator").input(&resource).output());
        let owner = resource.edge();
        // TensorFlow uses this name.
        let name = format!("{}:0-state", resource.op.name());
        let restore = move |graph: &Graph, position: &Output| {
            graph.op("DeserializeIterator").input(&graph.from_edge(owner)).input(position).try_build()
        };
        let saveable = Saveable { name, owner, value: value.edge(), dtype: value.dtype(), restore: Arc::new(restore) };
        saveable::add(graph, saveable);
    }

    /// Returns the iterator resource, for example for a saver of positions.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Dataset::range(&g, 2).make_one_shot_iterator().resource().dtype(), DType::Resource);
    /// ```
    pub fn resource(&self) -> &Output {
        &self.resource
    }
}

impl Dataset {
    /// Returns an iterator with an initializer, which may depend on fed values.
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

    /// Returns an iterator that needs no initializer and yields the dataset once. The dataset must not depend on placeholders or
    /// variables.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let next = Dataset::range(&g, 2).make_one_shot_iterator().get_next();
    /// assert_eq!(Session::new(&g)?.eval::<i64>(&next[0])?, 0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
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
