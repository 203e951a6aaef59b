//! [`Input`]: what an input function returns: a dataset, and what its components are called.

use super::Features;
use crate::data::Dataset;
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use tensor::{Result, Status};

/// A dataset of batches whose components have names: features, and perhaps labels.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::estimator::Input;
/// use ferroflow::prelude::*;
///
/// /// An input function: it builds its dataset in the graph that it is given.
/// fn flowers(g: &Graph) -> Input {
///     let rows = Dataset::from_tensor_slices(g, ([5.1f32, 5.9], [3.5f32, 3.0], [0i64, 1]));
///     Input::new(&rows.repeat(-1).batch(2, false), &["length", "width"]).label()
/// }
/// # flowers(&Graph::new());
/// ```
#[derive(Clone, Debug)]
pub struct Input {
    pub(super) dataset: Dataset,
    features: Vec<String>,
    has_label: bool,
}

/// A function that builds the input of a model in a graph.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::estimator::{Input, InputFn};
/// use std::sync::Arc;
///
/// let numbers: InputFn = Arc::new(|g| Input::new(&Dataset::range(g, 10).batch(5, false), &["x"]));
/// ```
pub type InputFn = Arc<dyn Fn(&Graph) -> Input + Send + Sync>;

/// What a model's graph draws in every step.
pub(super) struct Drawn {
    pub features: Features,
    pub labels: Option<Output>,
    pub initializer: Option<Operation>,
}

impl Input {
    /// Names the components of a dataset's elements: all of them, or all but the last, which is the label.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::estimator::Input;
    ///
    /// let g = ferroflow::Graph::new();
    /// let input = Input::new(&Dataset::from_tensor_slices(&g, [[1f32, 2.0]]).batch(1, false), &["x"]);
    /// ```
    pub fn new(dataset: &Dataset, features: &[&str]) -> Input {
        let features = features.iter().map(|name| (*name).to_owned()).collect();
        Input { dataset: dataset.clone(), features, has_label: false }
    }

    /// Says that the component behind the features is the label.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// use ferroflow::estimator::Input;
    ///
    /// let g = ferroflow::Graph::new();
    /// let rows = Dataset::from_tensor_slices(&g, ([1f32, 2.0], [0i64, 1]));
    /// let input = Input::new(&rows.batch(2, false), &["x"]).label();
    /// ```
    pub fn label(mut self) -> Input {
        self.has_label = true;
        self
    }

    /// Adds an iterator of the dataset to the graph.
    pub(super) fn draw(&self, graph: &Graph) -> Result<Drawn> {
        graph.finish()?;
        if !self.dataset.graph().same(graph) {
            return Err(Status::invalid_argument(
                "the input function's dataset is of another graph: it is built in the graph that the function gets",
            ));
        }
        let (given, named) = (self.dataset.types().len(), self.features.len() + usize::from(self.has_label));
        if given != named {
            return Err(Status::invalid_argument(format!(
                "the input function's dataset has {given} components, but there are names for {named}: {}{}",
                self.features.join(", "),
                if self.has_label { " and the label" } else { "" }
            )));
        }
        let iterator = self.dataset.make_initializable_iterator();
        let mut components = iterator.get_next();
        let labels = if self.has_label { components.pop() } else { None };
        let mut features = Features::new();
        for (name, component) in self.features.iter().zip(components) {
            features.insert(name, component);
        }
        graph.finish()?;
        Ok(Drawn { features, labels, initializer: iterator.initializer().cloned() })
    }
}
