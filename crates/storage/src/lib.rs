//! Everything that TensorFlow keeps in files: TFRecords, event files, the sorted table with both formats of checkpoints
//! on top of it, the `checkpoint` state file, and the file systems they live in.
//!
//! Invariant: no graph here, and no threads but those that send requests to stores (feature `object_store`). Errors carry
//! TensorFlow's codes: what is damaged is `DATA_LOSS`, what is missing is `NOT_FOUND`, and no file content, however mutilated,
//! makes this crate panic or allocate without bound.

pub mod bundle;
pub mod checkpoint_state;
pub mod event;
pub mod file_system;
pub mod record;
pub mod slices;
pub mod stream;
pub mod table;

mod coding;
