//! Collective ops, in which devices of one or several tasks take part as equals: reductions, gathers, broadcasts, exchanges, and
//! the groups that they work in. The worker moves the tensors ([`kernel::Collectives`]).

mod all_to_all;
mod broadcast;
mod communicator;
mod gather;
mod group;
mod kernel_op;
mod reduce;
mod reduction;

pub use broadcast::*;
pub use gather::*;
pub use reduce::*;

use kernel::{Op, OpFlags};

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[all_to_all::OPS, broadcast::OPS, gather::OPS, group::OPS, reduce::OPS];

/// What all collective ops are.
const FLAGS: OpFlags = OpFlags::STATEFUL.union(OpFlags::DISTRIBUTED_COMMUNICATION);
