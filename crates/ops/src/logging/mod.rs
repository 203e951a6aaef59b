//! What nodes tell people: assertions, printed values and summaries.

mod check_numerics;
mod histogram;
mod media;
mod print;
pub(crate) mod summarize;
mod summary;
mod summary_writer;

pub use check_numerics::*;
pub use histogram::*;
pub use media::*;
pub use print::*;
pub use summary::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] =
    &[check_numerics::OPS, histogram::OPS, media::OPS, print::OPS, summary::OPS, summary_writer::OPS];
