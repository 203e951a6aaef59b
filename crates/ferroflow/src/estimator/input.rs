//! [`Input`]: the result of an input function: a dataset with names for its components, or tensors.

use super::Features;
use crate::data::Dataset;
use crate::feature_column::Feature;
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use tensor::{Result, Status};

/// Batches of named features, and labels if there are any. They come from a dataset, or are tensors of the graph.
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
pub struct Input(Source);

#[derive(Clone, Debug)]
enum Source {
    Dataset { dataset: Dataset, features: Vec<String>, has_label: bool },
    Tensors { features: Features, labels: Option<Output> },
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

/// The tensors that a model's graph gets in every step.
pub(super) struct Drawn {
    pub features: Features,
    pub labels: Option<Output>,
    pub initializer: Option<Operation>,
}

impl Input {
    /// Names the components of a dataset's elements: all of them, or all except the last, which is the label.
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
        Input(Source::Dataset { dataset: dataset.clone(), features, has_label: false })
    }

    /// Uses tensors of the graph, such as the outputs of queues, or placeholders that a hook feeds.
    ///
    /// ```
    /// use ferroflow::estimator::Input;
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// fn input(g: &Graph) -> Input {
    ///     let noise = ferroflow::ops::random::random_uniform(&g.constant([8i32]), DType::Float, Some(1));
    ///     Input::from_tensors(Features::new().with("x", noise.clone()), Some(&noise))
    /// }
    /// # input(&Graph::new());
    /// ```
    pub fn from_tensors(features: Features, labels: Option<&Output>) -> Input {
        Input(Source::Tensors { features, labels: labels.cloned() })
    }

    /// Declares that the component after the features is the label.
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
        if let Source::Dataset { has_label, .. } = &mut self.0 {
            *has_label = true;
        }
        self
    }

    /// Adds the inputs to the graph; for a dataset, an iterator.
    pub(super) fn draw(self, graph: &Graph) -> Result<Drawn> {
        graph.finish()?;
        match self.0 {
            Source::Dataset { dataset, features, has_label } => draw(graph, &dataset, &features, has_label),
            Source::Tensors { features, labels } => {
                let others = labels.iter().chain(features.iter().filter_map(|(_, feature)| match feature {
                    Feature::Dense(tensor) => Some(tensor),
                    Feature::Sparse(_) => None,
                }));
                if others.into_iter().any(|tensor| !tensor.graph().same(graph)) {
                    return Err(of_another_graph("tensors are", "they are"));
                }
                Ok(Drawn { features, labels, initializer: None })
            }
        }
    }
}

fn draw(graph: &Graph, dataset: &Dataset, names: &[String], has_label: bool) -> Result<Drawn> {
    if !dataset.graph().same(graph) {
        return Err(of_another_graph("dataset is", "it is"));
    }
    let (given, named) = (dataset.types().len(), names.len() + usize::from(has_label));
    if given != named {
        return Err(Status::invalid_argument(format!(
            "the input function's dataset has {given} components, but there are names for {named}: {}{}",
            names.join(", "),
            if has_label { " and the label" } else { "" }
        )));
    }
    let iterator = dataset.make_initializable_iterator();
    let mut components = iterator.get_next();
    let labels = if has_label { components.pop() } else { None };
    let mut features = Features::new();
    for (name, component) in names.iter().zip(components) {
        features.insert(name, component);
    }
    graph.finish()?;
    Ok(Drawn { features, labels, initializer: iterator.initializer().cloned() })
}

fn of_another_graph(what: &str, pronoun: &str) -> Status {
    Status::invalid_argument(format!(
        "the input function's {what} of another graph: {pronoun} built in the graph that the function gets"
    ))
}
