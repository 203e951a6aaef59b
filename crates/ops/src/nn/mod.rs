//! Neural networks.

mod activation;
mod avg_pool;
mod bias;
mod conv;
mod depthwise;
mod fused;
mod loss;
mod max_pool;
mod pool_plan;
mod relu;
mod softmax;
mod window;

pub use activation::*;
pub use avg_pool::*;
pub use bias::*;
pub use conv::*;
pub use depthwise::*;
pub use loss::*;
pub use max_pool::*;
pub use relu::*;
pub use softmax::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    activation::OPS,
    avg_pool::OPS,
    bias::OPS,
    conv::OPS,
    depthwise::OPS,
    fused::OPS,
    loss::OPS,
    max_pool::OPS,
    relu::OPS,
    softmax::OPS,
];
