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

pub use files::*;
pub use reader_ops::*;
pub(crate) use work::{FixedLayout, FixedRecords, Lines};

use kernel::Op;
use std::sync::{Arc, OnceLock};
use storage::file_system::{FileSystem, FileSystems};
use tensor::{Result, Status, Tensor};

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[checkpoint::OPS, files::OPS, reader_ops::OPS, record_input::OPS, remap::OPS, slices::OPS];

/// One for the whole process: what a process may touch doesn't depend on which of its ops asks, and nobody can forget to pass
/// it on.
static FILE_SYSTEMS: OnceLock<Arc<dyn FileSystem>> = OnceLock::new();

/// Sets what the ops of this process read and write, for good. It has to come before the first op that touches a file, since
/// what an op has opened stays open.
pub fn set_file_system(files: FileSystems) -> Result<()> {
    let set = FILE_SYSTEMS.set(Arc::new(files));
    set.map_err(|_| {
        Status::failed_precondition("ops of this process have used files already; which ones they may is set before")
    })
}

/// Returns the file systems that ops read and write.
pub(crate) fn file_system() -> Arc<dyn FileSystem> {
    FILE_SYSTEMS.get_or_init(|| Arc::new(FileSystems::local())).clone()
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
