//! Neural networks.
//!
//! ```
//! use graph::Graph;
//! use ops::nn;
//!
//! let g = Graph::new();
//! let chances = nn::softmax(&nn::relu(&g.constant([[-1f32, 0.0]])));
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[chances.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<f32>()?, [0.5, 0.5]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod activation;
mod avg_pool;
mod batch_norm;
mod bias;
mod conv;
mod conv_check;
mod data_format;
mod depthwise;
mod dilation;
mod fractional_pool;
mod fused;
mod global_batch_norm;
mod gru_cell;
mod loss;
mod lrn;
mod lstm;
mod lstm_cell;
mod max_pool;
mod padding;
mod pool_plan;
mod quantized;
mod relu;
mod softmax;
mod top_k;
mod window;

pub use activation::*;
pub use avg_pool::*;
pub use batch_norm::*;
pub use bias::*;
pub use conv::*;
pub use depthwise::*;
pub use dilation::*;
pub use loss::*;
pub use lrn::*;
pub use max_pool::*;
pub use padding::Padding;
pub use relu::*;
pub use softmax::*;
pub use top_k::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    activation::OPS,
    avg_pool::OPS,
    batch_norm::OPS,
    bias::OPS,
    conv::OPS,
    data_format::OPS,
    depthwise::OPS,
    dilation::OPS,
    fractional_pool::OPS,
    fused::OPS,
    global_batch_norm::OPS,
    gru_cell::OPS,
    loss::OPS,
    lrn::OPS,
    lstm::OPS,
    lstm_cell::OPS,
    max_pool::OPS,
    quantized::OPS,
    relu::OPS,
    softmax::OPS,
    top_k::OPS,
];
