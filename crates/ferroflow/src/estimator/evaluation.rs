//! [`Evaluation`]: the result of an evaluation.

use std::collections::BTreeMap;
use tensor::{DType, Result, Status, Tensor};

/// The result of an evaluation: the values of the metrics by name, including `loss` and `global_step`.
///
/// ```
/// use ferroflow::Tensor;
/// use ferroflow::estimator::Evaluation;
///
/// let values = [("loss".to_owned(), Tensor::scalar(0.25f32)), ("global_step".to_owned(), Tensor::scalar(100i64))];
/// let measured = Evaluation { values: values.into() };
/// assert_eq!((measured.get("loss")?, measured.global_step()?), (0.25, 100));
/// assert!(measured.get("auc").unwrap_err().message().contains("global_step, loss"));
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The values by name.
    pub values: BTreeMap<String, Tensor>,
}

impl Evaluation {
    /// Returns a scalar metric; the error for a missing one lists the existing ones.
    ///
    /// ```
    /// use ferroflow::estimator::Evaluation;
    ///
    /// let values = [("auc".to_owned(), ferroflow::Tensor::scalar(0.5f32))];
    /// assert_eq!(Evaluation { values: values.into() }.get("auc")?, 0.5);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn get(&self, name: &str) -> Result<f64> {
        let value = self.values.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.values.keys().map(String::as_str).collect();
            Status::not_found(format!("there is no metric '{name}'; the metrics are: {}", names.join(", ")))
        })?;
        number(value).ok_or_else(|| {
            let (dtype, shape) = (value.dtype(), value.shape());
            Status::invalid_argument(format!("the metric '{name}' is {dtype} {shape}, and no single number"))
        })
    }

    /// Returns the global step of the checkpoint.
    ///
    /// ```
    /// use ferroflow::estimator::Evaluation;
    ///
    /// let values = [("global_step".to_owned(), ferroflow::Tensor::scalar(7i64))];
    /// assert_eq!(Evaluation { values: values.into() }.global_step()?, 7);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn global_step(&self) -> Result<i64> {
        self.get("global_step").map(|step| step as i64)
    }

    /// Returns the scalar metrics.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().filter_map(|(name, value)| Some((name.as_str(), number(value)?)))
    }
}

impl std::fmt::Display for Evaluation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.numbers().map(|(name, number)| format!("{name} = {number}")).collect();
        f.write_str(&all.join(", "))
    }
}

fn number(value: &Tensor) -> Option<f64> {
    if value.num_elements() != 1 {
        return None;
    }
    match value.dtype() {
        DType::Float => value.as_slice::<f32>().ok()?.first().copied().map(f64::from),
        DType::Double => value.as_slice::<f64>().ok()?.first().copied(),
        DType::Int64 => value.as_slice::<i64>().ok()?.first().map(|&number| number as f64),
        DType::Int32 => value.as_slice::<i32>().ok()?.first().copied().map(f64::from),
        _ => None,
    }
}
