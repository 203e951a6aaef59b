//! Records to tensors: examples, CSV, raw bytes, numbers in text.

mod decode_csv;
mod decode_raw;
mod example;
mod feature_list;
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

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[decode_csv::OPS, decode_raw::OPS, parse_example::OPS, sequence::OPS, tensor_text::OPS];
