//! `ferroflow hello`: the hello world of distributed TensorFlow.

use crate::Failure;
use ferroflow::{Graph, Session, Tensor};

/// Builds a constant, runs it in a session and prints its value.
pub fn run() -> Result<(), Failure> {
    let graph = Graph::new();
    let hello = graph.constant_tensor(&Tensor::string("Hello, distributed TensorFlow!"));
    let session = Session::new(&graph)?;
    let values = session.run(&[&hello])?;
    println!("{}", String::from_utf8_lossy(&values[0].strings()?[0]));
    Ok(())
}
