//! Files: checkpoints and readers.

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[];
