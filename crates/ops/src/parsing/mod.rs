//! Conversion of records to tensors: examples, CSV, raw bytes, numbers in text.
//!
//! ```
//! use graph::Graph;
//! use ops::parsing;
//!
//! let g = Graph::new();
//! let columns = parsing::decode_csv(&g.constant(["1.5,2", "2.5,3"]), &[g.constant([0f32]), g.constant([0i32])]);
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[columns[1].edge()], &step)?;
//! assert_eq!(values[0].to_vec::<i32>()?, [2, 3]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod decode_csv;
mod decode_raw;
mod example;
mod feature_list;
mod json_example;
mod number;
mod parse_example;
mod sequence;
mod tensor_text;
mod wire;

pub use decode_csv::*;
pub use decode_raw::*;
pub use parse_example::*;
pub use tensor_text::*;

pub(crate) use number::FromText;
pub(crate) use parse_example::ExampleFeatures;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[decode_csv::OPS, decode_raw::OPS, json_example::OPS, parse_example::OPS, sequence::OPS, tensor_text::OPS];
