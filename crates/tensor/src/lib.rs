//! Values and errors: [`Status`] with TensorFlow's codes, [`DType`], [`Shape`], [`Tensor`] with its reference-counted
//! buffers, and the [`TensorProto`](proto::TensorProto) codec.
//!
//! Invariant: there are no threads and no I/O here, except to read the machine's memory, and `unsafe` only in `buffer`, `recycler`,
//! `huge_pages` and `copy`.

mod account;
#[cfg(feature = "ndarray")]
mod arrays;
mod buffer;
mod codec;
mod convert;
mod copy;
mod display;
mod dtype;
mod element;
mod equality;
mod huge_pages;
mod interrupt;
mod machine_memory;
mod recycler;
mod resource_handle;
mod shape;
mod status;
mod tensor;
mod variant;

pub use account::{
    Account, AccountScope, AccountState, Charge, MemoryGroup, MemoryState, memory_limit, memory_state,
    set_memory_limit, set_session_memory_limit,
};
pub use buffer::{Buffer, LargeBlocks, check_elements_fit, set_large_blocks, set_tensor_bytes_max, tensor_bytes_max};
pub use codec::{tensor_from_proto, tensor_to_proto, tensor_to_proto_inline};
pub use convert::{ConversionError, IntoTensor, Nested, Scalar, View};
pub use copy::copy_bytes;
pub use dtype::DType;
pub use element::{Element, Numeric};
pub use interrupt::{Interrupt, check_interrupt};
pub use machine_memory::parse_memory_limit;
pub use recycler::Recycler;
pub use resource_handle::{DTypeAndShape, ResourceHandle};
pub use shape::{Dimension, PartialShape, Shape};
pub use status::{Code, Result, ResultExt, Status};
pub use tensor::{StringElement, Tensor};
pub use variant::{SharedValue, Variant, VariantValue};

pub use half::{bf16, f16};
pub use num_complex::{Complex32, Complex64};
