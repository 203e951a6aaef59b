//! Ops that steer execution.

mod branch;
mod frame;
mod send_recv;
mod trigger;

pub use branch::*;
pub use frame::*;
pub use trigger::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[branch::OPS, frame::OPS, send_recv::OPS, trigger::OPS];
