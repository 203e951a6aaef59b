//! All ops. There is one file per small family. Each contains, in this order: a description of the family, `OPS`, builder
//! functions, gradient functions, kernels, tests.
//!
//! To add an op, add its record to a family's `OPS` (`cargo xtask opdef NAME` prints the definition), with its shape
//! function, gradient and kernels. Heavy loops belong to `numeric`.

#[macro_use]
mod arithmetic;
#[macro_use]
mod elementwise;
#[macro_use]
mod movement;

mod compose;
mod file_access;

pub mod array;
mod batch;
pub mod collective;
pub mod control_flow;
pub mod ctc;
pub mod data_flow;
pub mod dataset;
pub mod function;
pub mod image;
pub mod io;
pub mod linalg;
pub mod list;
pub mod logging;
pub mod lookup;
pub mod math;
mod methods;
pub mod nn;
pub mod parsing;
pub mod ragged;
pub mod random;
mod rows;
pub mod signal;
mod sizes;
pub mod sparse;
pub mod state;
pub mod string;
#[cfg(test)]
mod testing;
pub mod training;

pub use methods::TensorOps;

use kernel::{Op, OpRegistry};
use std::sync::LazyLock;

/// The families, in the order of the directories.
const FAMILIES: &[&[&[Op]]] = &[
    array::FILES,
    batch::FILES,
    collective::FILES,
    control_flow::FILES,
    ctc::FILES,
    data_flow::FILES,
    dataset::FILES,
    function::FILES,
    image::FILES,
    io::FILES,
    linalg::FILES,
    list::FILES,
    logging::FILES,
    lookup::FILES,
    math::FILES,
    nn::FILES,
    parsing::FILES,
    ragged::FILES,
    random::FILES,
    signal::FILES,
    sparse::FILES,
    state::FILES,
    string::FILES,
    training::FILES,
];

static REGISTRY: LazyLock<OpRegistry> =
    LazyLock::new(|| OpRegistry::new(FAMILIES.iter().flat_map(|files| files.iter().copied())));

/// Returns the registry of all ops.
pub fn registry() -> &'static OpRegistry {
    &REGISTRY
}

#[linkme::distributed_slice(graph::LIBRARIES)]
static LIBRARY: graph::Library = graph::Library { root: file!(), ops: Some(|| registry()) };

#[cfg(test)]
mod tests {
    use graph::OpLookup;

    #[test]
    fn every_definition_parses_and_no_name_occurs_twice() {
        let registry = super::registry();
        for name in registry.names() {
            assert!(registry.op(name).is_some());
        }
        let records: usize = super::FAMILIES.iter().flat_map(|files| files.iter()).map(|ops| ops.len()).sum();
        assert_eq!(records, registry.names().len(), "an op is defined twice");
    }
}
