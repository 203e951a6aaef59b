//! Access to [`Features`] for model functions.

use crate::feature_column::{Feature, Features};
use graph::Output;
use tensor::{Result, Status};

impl Features {
    /// Returns the tensor of a dense feature; the error for a missing one lists the existing ones.
    ///
    /// ```
    /// use ferroflow::feature_column::Features;
    /// use ferroflow::prelude::*;
    ///
    /// let features = Features::new().with("age", Graph::new().constant([39f32, 50.0]));
    /// assert_eq!(features.dense("age")?.shape(), PartialShape::from([2]));
    /// assert!(features.dense("size").unwrap_err().message().contains("the features are: age"));
    /// # Ok::<(), Status>(())
    /// ```
    pub fn dense(&self, name: &str) -> Result<Output> {
        match self.get(name) {
            Some(Feature::Dense(tensor)) => Ok(tensor.clone()),
            Some(Feature::Sparse(_)) => {
                Err(Status::invalid_argument(format!("the feature '{name}' is sparse, and a dense one is asked for")))
            }
            None => {
                let names: Vec<&str> = self.names().collect();
                let names = names.join(", ");
                Err(Status::invalid_argument(format!("there is no feature '{name}'; the features are: {names}")))
            }
        }
    }
}
