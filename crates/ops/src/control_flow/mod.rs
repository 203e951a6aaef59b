//! Ops that steer execution.

mod send_recv;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[send_recv::OPS];
