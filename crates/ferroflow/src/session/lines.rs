//! Errors of runs: they name the lines of the program that added the failing nodes, and that started the run.

use graph::{Graph, is_in_library};
use std::panic::Location;
use tensor::{Status, Tensor};

/// The most nodes of a message whose lines are named.
const NODES_MAX: usize = 3;

/// A fed value, and the line that fed it.
pub(super) struct Feed {
    pub(super) name: String,
    pub(super) value: Tensor,
    pub(super) caller: &'static Location<'static>,
}

impl Feed {
    /// Returns whether the fed value doesn't match the type or shape in the graph.
    fn is_wrong(&self, graph: &Graph) -> bool {
        graph.output(&self.name).is_ok_and(|output| {
            output.dtype() != self.value.dtype() || !output.shape().is_compatible_with(self.value.shape())
        })
    }
}

/// Appends to a run's error the lines of the program that added the nodes that it names, that fed values which don't match, and
/// that started the run.
pub(super) fn with_lines(status: Status, graph: &Graph, feeds: &[Feed], caller: &Location<'_>) -> Status {
    let mut places: Vec<String> = Vec::new();
    for name in named_nodes(status.message()) {
        let Some(line) = graph.operation(name).and_then(|op| op.line()) else { continue };
        let place = format!("node {name} at {line}");
        if places.len() < NODES_MAX && !places.contains(&place) {
            places.push(place);
        }
    }
    for feed in feeds.iter().filter(|feed| feed.is_wrong(graph) && !is_in_library(feed.caller)) {
        places.push(format!("feed of {} at {}", feed.name, feed.caller));
    }
    if !is_in_library(caller) {
        places.push(format!("run at {caller}"));
    }
    if status.message().contains("uninitialized value") {
        places.push("run global_variables_initializer, or local_variables_initializer, before".to_owned());
    }
    if places.is_empty() { status } else { status.append(format!(" [{}]", places.join(", "))) }
}

/// Appends the line of the program that an error is about.
pub(super) fn at_line(status: Status, caller: &Location<'_>) -> Status {
    if is_in_library(caller) { status } else { status.append(format!(" [at {caller}]")) }
}

/// Returns the nodes that a message names as `{{node NAME}}`.
fn named_nodes(message: &str) -> impl Iterator<Item = &str> {
    message.split("{{node ").skip(1).filter_map(|rest| rest.split_once("}}").map(|(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_in_a_message() {
        let message = "no\n\t [[{{node a/b}}]]\n\t [[{{node c}}]] {{node unfinished";
        assert_eq!(named_nodes(message).collect::<Vec<_>>(), ["a/b", "c"]);
    }
}
