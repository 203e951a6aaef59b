//! Function calls, arguments and results.

mod argument;
mod branch;
mod call;
mod iterate;
mod py_func;
mod runner;

pub use call::*;

#[cfg(test)]
pub(crate) use runner::tests as testing;
pub(crate) use runner::{Callee, Function};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[argument::OPS, branch::OPS, call::OPS, iterate::OPS, py_func::OPS];
