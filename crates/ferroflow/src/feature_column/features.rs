//! [`Features`]: named tensors, the inputs of columns.

use graph::{Graph, Output};
use std::collections::BTreeMap;
use tensor::DType;

/// A tensor with only some of its elements.
///
/// ```
/// use ferroflow::feature_column::SparseTensor;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// // Two rows: the first has the words "to" and "be", the second has none.
/// let words = SparseTensor {
///     indices: g.constant([[0i64, 0], [0, 1]]),
///     values: g.constant(["to", "be"]),
///     dense_shape: g.constant([2i64, 2]),
/// };
/// assert_eq!(words.values.dtype(), DType::String);
/// ```
#[derive(Clone, Debug)]
pub struct SparseTensor {
    /// The indices of the elements: a matrix of `int64` with a row for each, in order.
    pub indices: Output,
    /// The values of the elements, a vector.
    pub values: Output,
    /// The shape of the whole tensor, a vector of `int64`.
    pub dense_shape: Output,
}

/// A feature of a batch: its first axis is the batch.
///
/// ```
/// use ferroflow::feature_column::Feature;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let age: Feature = g.constant([25f32, 50.0]).into();
/// assert_eq!(age.dtype(), DType::Float);
/// ```
#[derive(Clone, Debug)]
pub enum Feature {
    /// Every row has the same number of values.
    Dense(Output),
    /// Rows have any number of values, or none.
    Sparse(SparseTensor),
}

impl Feature {
    /// Returns the type of the values.
    ///
    /// ```
    /// use ferroflow::feature_column::Feature;
    /// use ferroflow::prelude::*;
    ///
    /// assert_eq!(Feature::from(Graph::new().constant(["a", "b"])).dtype(), DType::String);
    /// ```
    pub fn dtype(&self) -> DType {
        self.values().dtype()
    }

    /// Returns the tensor of the values.
    ///
    /// ```
    /// use ferroflow::feature_column::Feature;
    /// use ferroflow::prelude::*;
    ///
    /// let age = Graph::new().constant([25f32, 50.0]);
    /// assert_eq!(Feature::from(&age).values().name(), age.name());
    /// ```
    pub fn values(&self) -> &Output {
        match self {
            Feature::Dense(values) | Feature::Sparse(SparseTensor { values, .. }) => values,
        }
    }
}

impl From<Output> for Feature {
    fn from(values: Output) -> Feature {
        Feature::Dense(values)
    }
}

impl From<&Output> for Feature {
    fn from(values: &Output) -> Feature {
        Feature::Dense(values.clone())
    }
}

impl From<SparseTensor> for Feature {
    fn from(sparse: SparseTensor) -> Feature {
        Feature::Sparse(sparse)
    }
}

/// The features of a batch, by name.
///
/// ```
/// use ferroflow::feature_column::Features;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let features = Features::new().with("age", g.constant([25f32, 50.0])).with("job", g.constant(["smith", "cook"]));
/// assert_eq!(features.names().collect::<Vec<_>>(), ["age", "job"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Features(BTreeMap<String, Feature>);

impl Features {
    /// Returns no features.
    ///
    /// ```
    /// assert!(ferroflow::feature_column::Features::new().is_empty());
    /// ```
    pub fn new() -> Features {
        Features::default()
    }

    /// Adds a dense feature; replaces an existing one of that name.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let features = Features::new().with("age", Graph::new().constant([25f32, 50.0]));
    /// assert_eq!(features.len(), 1);
    /// ```
    #[must_use]
    pub fn with(mut self, name: &str, feature: impl Into<Feature>) -> Features {
        self.insert(name, feature);
        self
    }

    /// Adds a sparse feature; replaces an existing one of that name.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let mut features = Features::new();
    /// features.insert("age", &Graph::new().constant([25f32, 50.0]));
    /// assert!(features.get("age").is_some());
    /// ```
    pub fn insert(&mut self, name: &str, feature: impl Into<Feature>) {
        self.0.insert(name.to_owned(), feature.into());
    }

    /// Removes a feature, and returns it.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let mut features = Features::new().with("label", Graph::new().constant([0i64, 1]));
    /// assert!(features.remove("label").is_some() && features.is_empty());
    /// ```
    pub fn remove(&mut self, name: &str) -> Option<Feature> {
        self.0.remove(name)
    }

    /// Returns a feature.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    ///
    /// assert!(Features::new().get("age").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&Feature> {
        self.0.get(name)
    }

    /// Returns the names, sorted.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let features = Features::new().with("b", g.constant([1f32])).with("a", g.constant([2f32]));
    /// assert_eq!(features.names().collect::<Vec<_>>(), ["a", "b"]);
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the features with their names, sorted by name.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let features = Features::new().with("age", Graph::new().constant([25f32, 50.0]));
    /// assert!(features.iter().all(|(name, feature)| name == "age" && feature.dtype() == DType::Float));
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Feature)> {
        self.0.iter().map(|(name, feature)| (name.as_str(), feature))
    }

    /// Returns the number of features.
    ///
    /// ```
    /// assert_eq!(ferroflow::feature_column::Features::new().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no features.
    ///
    /// ```
    /// assert!(ferroflow::feature_column::Features::new().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the graph of the features, if there are any.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert!(Features::new().with("age", g.constant([25f32])).graph().is_some());
    /// assert!(Features::new().graph().is_none());
    /// ```
    pub fn graph(&self) -> Option<&Graph> {
        self.0.values().next().map(|feature| feature.values().graph())
    }
}

impl<N: Into<String>, F: Into<Feature>> FromIterator<(N, F)> for Features {
    fn from_iter<I: IntoIterator<Item = (N, F)>>(features: I) -> Features {
        Features(features.into_iter().map(|(name, feature)| (name.into(), feature.into())).collect())
    }
}
