//! Queues, accumulators, tensor arrays, stacks, barriers, staging areas: resources through which graphs pass tensors.
//!
//! ```
//! use graph::Graph;
//! use ops::data_flow::{QueueSpec, fifo_queue, queue_dequeue, queue_enqueue};
//! use tensor::{DType, PartialShape};
//!
//! let g = Graph::new();
//! let spec = QueueSpec { capacity: 10, dtypes: &[DType::Float], shapes: &[PartialShape::from([2])], shared_name: "" };
//! let queue = fifo_queue(&g, &spec);
//! queue_enqueue(&queue, &[g.constant([1f32, 2.0])]);
//! assert_eq!(queue_dequeue(&queue, &[DType::Float])[0].shape(), PartialShape::from([2]));
//! g.finish()?;
//! # Ok::<(), tensor::Status>(())
//! ```

mod accumulator;
mod accumulator_ops;
mod barrier;
mod dynamic;
mod map_stage;
mod monitor;
mod queue;
mod queue_ops;
mod resource_op;
mod session_handle;
mod stack;
mod stacking;
mod stage;
mod tensor_array;
mod tensor_array_grad;
mod tensor_array_kernels;
mod tensor_array_ops;

pub use accumulator_ops::*;
pub use barrier::*;
pub use dynamic::*;
pub use queue_ops::*;
pub use session_handle::*;
pub use stack::*;
pub use stage::*;
pub use tensor_array_ops::*;

pub(crate) use queue::{DequeueMode, Queue};
pub(crate) use resource_op::ResourceOp;
pub(crate) use stacking::{stack, stack_padded_with};

use kernel::Op;

/// The ops of each file.
pub(crate) const FILES: &[&[Op]] = &[
    accumulator_ops::OPS,
    barrier::OPS,
    dynamic::OPS,
    map_stage::OPS,
    queue_ops::OPS,
    session_handle::OPS,
    stack::OPS,
    stage::OPS,
    tensor_array_ops::OPS,
];
