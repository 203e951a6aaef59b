//! Keeps mistakes of functions that build several nodes in the graph, with the line of the user's call.

use graph::builder::mistaken_output;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Returns the result of `build` on `inputs`. A mistake is kept in the graph of the first input, with the line of the user's
/// call, and the result is an inert output. `what` names what is built, such as "layer Dense".
#[track_caller]
pub(crate) fn kept(what: &str, inputs: &[&Output], build: impl FnOnce() -> Result<Output>) -> Output {
    kept_as(what, inputs, build, Output::clone)
}

/// As [`kept`], for results other than a single output: `instead` makes the result of an inert output.
#[track_caller]
pub(crate) fn kept_as<T>(
    what: &str,
    inputs: &[&Output],
    build: impl FnOnce() -> Result<T>,
    instead: impl FnOnce(&Output) -> T,
) -> T {
    let Some(first) = inputs.first() else {
        // Without inputs there is no graph to keep the mistake in; the inert result carries it to its users.
        return match build() {
            Ok(built) => built,
            Err(status) => instead(&mistaken_output(what, status)),
        };
    };
    kept_in(first.graph(), what, inputs, build, instead)
}

/// As [`kept_as`], in a given graph, for which `inputs` may be empty.
#[track_caller]
pub(crate) fn kept_in<T>(
    graph: &Graph,
    what: &str,
    inputs: &[&Output],
    build: impl FnOnce() -> Result<T>,
    instead: impl FnOnce(&Output) -> T,
) -> T {
    match graph.called_here(|_| build()) {
        Ok(built) => built,
        Err(status) => instead(&graph.mistaken_call(what, inputs, status)),
    }
}

/// As [`kept_in`], for an operation.
#[track_caller]
pub(crate) fn kept_operation(graph: &Graph, what: &str, build: impl FnOnce() -> Result<Operation>) -> Operation {
    kept_in(graph, what, &[], build, |instead| instead.op.clone())
}
