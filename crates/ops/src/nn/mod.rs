//! Neural networks.

mod activation;
mod bias;
mod loss;
mod relu;
mod softmax;

pub use activation::*;
pub use bias::*;
pub use loss::*;
pub use relu::*;
pub use softmax::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[activation::OPS, bias::OPS, loss::OPS, relu::OPS, softmax::OPS];
