//! Values and errors: [`Status`] with TensorFlow's codes, [`DType`], [`Shape`], [`Tensor`] with its reference-counted
//! buffers, and the [`TensorProto`](proto::TensorProto) codec.
//!
//! Invariant: no threads and no I/O live here, and `unsafe` only in `buffer` and `copy`.

mod buffer;
mod codec;
mod copy;
mod dtype;
mod element;
mod huge_pages;
mod interrupt;
mod resource_handle;
mod shape;
mod status;
mod tensor;
mod variant;

pub use buffer::{
    Buffer, LargeBlocks, Recycler, check_elements_fit, set_large_blocks, set_tensor_bytes_max, tensor_bytes_max,
};
pub use codec::{tensor_from_proto, tensor_to_proto, tensor_to_proto_inline};
pub use copy::copy_bytes;
pub use dtype::DType;
pub use element::{Element, Numeric};
pub use interrupt::{Interrupt, check_interrupt};
pub use resource_handle::{DTypeAndShape, ResourceHandle};
pub use shape::{PartialShape, Shape};
pub use status::{Code, Result, ResultExt, Status};
pub use tensor::{StringElement, Tensor};
pub use variant::{SharedValue, Variant, VariantValue};

pub use half::{bf16, f16};
pub use num_complex::{Complex32, Complex64};
