//! What the examples share: flags as TensorFlow's scripts take them, and layers.

#![allow(dead_code)]

use ferroflow::ops::{array, nn};
use ferroflow::{DType, Graph, Output, PartialShape, Result, Shape, Status, Tensor, Variable, initializers};
use std::collections::HashMap;
use std::str::FromStr;

/// Flags such as `--task_index=1`.
#[derive(Clone, Debug, Default)]
pub struct Flags(HashMap<String, String>);

impl Flags {
    /// Reads the flags of this process.
    pub fn from_env() -> Flags {
        Flags::new(std::env::args().skip(1))
    }

    /// Reads flags; one without a value is true.
    pub fn new(arguments: impl IntoIterator<Item = String>) -> Flags {
        let pair = |argument: String| {
            let flag = argument.trim_start_matches('-').to_owned();
            match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (flag, "true".to_owned()),
            }
        };
        Flags(arguments.into_iter().map(pair).collect())
    }

    /// Returns a flag, or its default.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.0.get(name) {
            None => Ok(default),
            Some(text) => {
                text.to_lowercase().parse().map_err(|_| Status::invalid_argument(format!("--{name}={text}?")))
            }
        }
    }

    /// Returns a text, or its default.
    pub fn text(&self, name: &str, default: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }

    /// Returns a list, such as of hosts.
    pub fn list(&self, name: &str) -> Vec<String> {
        let text = self.text(name, "");
        text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }
}

/// Adds a placeholder for rows of so many numbers.
pub fn rows(graph: &Graph, columns: i64) -> Output {
    array::placeholder(graph, DType::Float, &PartialShape::from_dims(&[-1, columns]))
}

/// Adds `x w + b`, with variables `NAME_w` and `NAME_b`.
pub fn dense(graph: &Graph, x: &Output, name: &str, from: i64, to: i64) -> Result<Output> {
    let w = weights(graph, &format!("{name}_w"), &[from, to], 1.0 / (from as f64).sqrt())?;
    let b = biases(graph, &format!("{name}_b"), to)?;
    Ok(nn::xw_plus_b(x, w.value(), b.value()))
}

/// Adds weights that start as small random numbers.
pub fn weights(graph: &Graph, name: &str, dims: &[i64], stddev: f64) -> Result<Variable> {
    let normal = initializers::truncated_normal(0.0, stddev, Some(1));
    Ok(Variable::new(graph, name, &normal(graph, &Shape::new(dims)?, DType::Float)?))
}

/// Adds biases that start at zero.
pub fn biases(graph: &Graph, name: &str, len: i64) -> Result<Variable> {
    Ok(Variable::new(graph, name, &graph.constant_tensor(&Tensor::zeros(DType::Float, Shape::new(&[len])?)?)))
}
