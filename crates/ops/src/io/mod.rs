//! Files: checkpoints and readers.
//!
//! ```
//! use graph::Graph;
//! use ops::io;
//!
//! let g = Graph::new();
//! let content = io::read_file(&g.constant("notes.txt"));
//! assert_eq!((content.dtype(), content.shape()), (tensor::DType::String, tensor::PartialShape::scalar()));
//! g.finish()?;
//! # Ok::<(), tensor::Status>(())
//! ```

mod checkpoint;
mod files;
mod reader;
mod reader_ops;
mod record_input;
mod remap;
mod slices;
mod work;

pub use crate::file_access::set_file_system;
pub use files::*;
pub use reader_ops::*;

use kernel::Op;
use tensor::{Result, Status, Tensor};

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[checkpoint::OPS, files::OPS, reader_ops::OPS, record_input::OPS, remap::OPS, slices::OPS];

/// Returns the one string of a tensor that must be a scalar.
fn scalar_text(tensor: &Tensor, name: &str) -> Result<String> {
    match tensor.strings()? {
        [text] if tensor.shape().rank() == 0 => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(Status::invalid_argument(format!("{name} must be a scalar, got shape {}", tensor.shape()))),
    }
}

/// Returns the strings of a tensor.
fn texts(tensor: &Tensor) -> Result<Vec<String>> {
    Ok(tensor.strings()?.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}
