//! Datasets, and iterators over them.
//!
//! A dataset is an element of a variant tensor; its work is done when an iterator requests the next element. An element may take
//! a while, since functions of the graph may have to run: it is a future, and no thread blocks.
//!
//! ```
//! use graph::Graph;
//! use ops::dataset;
//! use tensor::{DType, PartialShape};
//!
//! let g = Graph::new();
//! let (dtypes, shapes) = ([DType::Int64], [PartialShape::scalar()]);
//! let numbers = g.op("RangeDataset").input(&g.constant(0i64)).input(&g.constant(3i64)).input(&g.constant(1i64));
//! let numbers = numbers.attr("output_types", &dtypes[..]).attr("output_shapes", &shapes[..]).output();
//! let iterator = dataset::iterator(&g, &dtypes, &shapes);
//! dataset::make_iterator(&numbers, &iterator);
//! assert_eq!(dataset::iterator_get_next(&iterator, &dtypes, &shapes)[0].dtype(), DType::Int64);
//! g.finish()?;
//! # Ok::<(), tensor::Status>(())
//! ```

mod base;
mod batch;
mod cache;
mod csv;
mod examples;
mod files;
mod functional;
mod generator;
mod group;
mod interleave;
mod iterator;
mod iterator_ops;
mod iterator_state;
mod map_defun;
mod matching;
mod multi_device;
mod position;
mod predicate;
mod prefetch;
mod random_choice;
mod rebatch;
mod records;
mod scan;
mod shuffle;
mod sources;
mod sparse;
mod task;
mod thread_pool;
mod transform;
mod watch;
mod window;
mod wrap;

pub use iterator_ops::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    batch::OPS,
    cache::OPS,
    csv::OPS,
    examples::OPS,
    files::OPS,
    functional::OPS,
    generator::OPS,
    group::OPS,
    interleave::OPS,
    iterator_ops::OPS,
    iterator_state::OPS,
    matching::OPS,
    map_defun::OPS,
    multi_device::OPS,
    predicate::OPS,
    prefetch::OPS,
    random_choice::OPS,
    rebatch::OPS,
    records::OPS,
    scan::OPS,
    shuffle::OPS,
    sources::OPS,
    sparse::OPS,
    thread_pool::OPS,
    transform::OPS,
    watch::OPS,
    window::OPS,
    wrap::OPS,
];
