//! Keeps the mistakes of functions that build several nodes in the graph, with the line of the user's call.

use graph::builder::mistaken_output;
use graph::{Graph, Operation, Output};
use tensor::Result;

/// Returns what `build` builds of `inputs`. A mistake is kept in the graph of the first input with the line of the user's call, and
/// what is returned then does nothing. `what` says what is built, such as "layer Dense".
#[track_caller]
pub(crate) fn kept(what: &str, inputs: &[&Output], build: impl FnOnce() -> Result<Output>) -> Output {
    kept_as(what, inputs, build, Output::clone)
}

/// As [`kept`], for what is more than an output: `instead` makes it of an output that does nothing.
#[track_caller]
pub(crate) fn kept_as<T>(
    what: &str,
    inputs: &[&Output],
    build: impl FnOnce() -> Result<T>,
    instead: impl FnOnce(&Output) -> T,
) -> T {
    let Some(first) = inputs.first() else {
        // Nothing says which graph it would be in; whatever uses the result takes the mistake there.
        return match build() {
            Ok(built) => built,
            Err(status) => instead(&mistaken_output(what, status)),
        };
    };
    kept_in(first.graph(), what, inputs, build, instead)
}

/// As [`kept_as`], in a graph that is known although there may be no inputs.
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
