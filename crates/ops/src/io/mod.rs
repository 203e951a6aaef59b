//! Files: checkpoints and readers.

mod checkpoint;
mod files;
mod reader;
mod reader_ops;
mod record_input;
mod remap;
mod slices;
mod work;

pub use files::*;
pub use reader_ops::*;
pub(crate) use work::{FixedLayout, FixedRecords, Lines};

use kernel::Op;
use std::sync::{Arc, LazyLock};
use storage::file_system::{FileSystem, FileSystems};
use tensor::{Result, Status, Tensor};

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[checkpoint::OPS, files::OPS, reader_ops::OPS, record_input::OPS, remap::OPS, slices::OPS];

static FILE_SYSTEMS: LazyLock<Arc<dyn FileSystem>> = LazyLock::new(|| Arc::new(FileSystems::local()));

/// Returns the file systems that ops read and write.
pub(crate) fn file_system() -> Arc<dyn FileSystem> {
    FILE_SYSTEMS.clone()
}

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
