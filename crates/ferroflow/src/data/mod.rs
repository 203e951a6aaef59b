//! Input data: [`Dataset`] pipelines as in `tf.data`, and the digits of MNIST.

mod bucket;
mod callbacks;
pub mod census;
mod closures;
mod dataset;
mod element;
pub mod example;
mod files;
mod from_iter;
mod function;
mod functional;
mod iterator;
pub mod mnist;

pub use dataset::{Dataset, PaddedBatch};
pub use element::{IntoElement, IntoOutputs};
pub use files::{CsvOptions, RecordOptions};
pub use iterator::DatasetIterator;
/// A fixed-length feature of an example, for [`Dataset::parse_example`].
pub use ops::parsing::FixedLenFeature;
