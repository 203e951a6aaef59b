//! Images: tensors of batch, height, width and channels.
//!
//! ```
//! use graph::Graph;
//! use ops::image;
//!
//! let g = Graph::new();
//! let picture = g.constant([[[[1f32], [3.0]], [[1.0], [3.0]]]]);
//! let larger = image::resize_nearest_neighbor(&picture, 2, 4);
//! let step = std::sync::Arc::new(kernel::Step::detached());
//! let values = kernel::evaluate(ops::registry(), &g.graph(), &[], &[larger.edge()], &step)?;
//! assert_eq!(values[0].to_vec::<f32>()?, [1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 3.0, 3.0]);
//! # Ok::<(), tensor::Status>(())
//! ```

mod boxes;
mod color;
mod combined_suppression;
mod crop;
mod decode;
mod encode;
mod files;
mod glimpse;
mod jpeg;
mod patches;
mod pixels;
mod projective;
mod resize;
mod scale;
mod suppression;

pub use crop::*;
pub use decode::*;
pub use encode::*;
pub use projective::image_projective_transform;
pub use resize::*;

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    boxes::OPS,
    color::OPS,
    combined_suppression::OPS,
    crop::OPS,
    decode::OPS,
    encode::OPS,
    glimpse::OPS,
    patches::OPS,
    projective::OPS,
    resize::OPS,
    scale::OPS,
    suppression::OPS,
];
