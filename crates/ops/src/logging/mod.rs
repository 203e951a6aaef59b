//! Output for people: assertions, printed values and summaries.
//!
//! ```
//! use graph::Graph;
//! use ops::logging;
//!
//! let g = Graph::new();
//! let checked = logging::check_numerics(&g.constant([1f32, f32::NAN]), "the loss is no number");
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let status = kernel::evaluate(ops::registry(), &g.graph(), &[], &[checked.edge()], &step).unwrap_err();
//! assert!(status.message().contains("the loss is no number"));
//! ```

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
