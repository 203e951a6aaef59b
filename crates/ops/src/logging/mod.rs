//! What nodes tell people: assertions, printed values and summaries.

mod histogram;
mod media;
mod print;
pub(crate) mod summarize;
mod summary;

pub use histogram::*;
pub use media::*;
pub use print::*;
pub use summary::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[histogram::OPS, media::OPS, print::OPS, summary::OPS];
