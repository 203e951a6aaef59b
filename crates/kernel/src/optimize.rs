//! Optimizes a graph with the kernels of a registry.

use crate::{OpRegistry, Step, evaluate};
use graph::passes::{self, CONSTANT_BYTES_MAX, Fusion, OptimizeOptions, OptimizeReport};
use graph::{Edge, Graph, Node};
use std::sync::Arc;
use tensor::Result;

/// Optimizes a placed and pruned graph in place; constants are folded by running their kernels right here.
///
/// `may_fuse` says whether the task of a device knows the ops of a kind of fusion.
pub fn optimize(
    graph: &mut Graph,
    registry: &OpRegistry,
    may_fuse: &dyn Fn(&str, Fusion) -> bool,
) -> Result<OptimizeReport> {
    let step = Arc::new(Step::detached());
    let fold = |graph: &Graph, fetches: &[Edge]| evaluate(registry, graph, &[], fetches, &step);
    let has_kernel = |node: &Node| registry.has_kernel(node);
    let options = OptimizeOptions {
        evaluate: Some(&fold),
        has_kernel: &has_kernel,
        may_fuse,
        constant_bytes_max: CONSTANT_BYTES_MAX,
    };
    passes::optimize(graph, registry, &options)
}
