//! Optimizes a graph with the kernels of a registry.

use crate::{OpRegistry, Step, evaluate};
use graph::passes::{self, CONSTANT_BYTES_MAX, Fusion, OptimizeOptions, OptimizeReport, OptimizeSwitches};
use graph::{Edge, Node, NodeGraph};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor::{Result, Status};

/// Optimizes a placed and pruned graph in place. Folds constants by running their kernels on this thread.
///
/// `may_fuse` returns whether the task of a device supports a kind of fusion.
pub fn optimize(
    graph: &mut NodeGraph,
    registry: &OpRegistry,
    switches: OptimizeSwitches,
    may_fuse: &dyn Fn(&str, Fusion) -> bool,
) -> Result<OptimizeReport> {
    let step = Arc::new(Step::detached());
    let fold = |graph: &NodeGraph, fetches: &[Edge]| {
        // Nodes whose kernels panic are left to the step, whose error names the node.
        let values = catch_unwind(AssertUnwindSafe(|| evaluate(registry, graph, &[], fetches, &step)));
        values.unwrap_or_else(|_| Err(Status::internal("a kernel panicked")))
    };
    let has_kernel = |node: &Node| registry.has_kernel(node);
    let options = OptimizeOptions {
        switches,
        evaluate: Some(&fold),
        has_kernel: &has_kernel,
        may_fuse,
        constant_bytes_max: CONSTANT_BYTES_MAX,
    };
    passes::optimize(graph, registry, &options)
}
