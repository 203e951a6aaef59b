//! Memory that tasks of one user on one machine share: large tensors are passed to another task without a copy.
//!
//! Every process has one [`SharedHeap`], an in-memory file in which the contents of all its large tensors are allocated. A peer of
//! the same user gets a read-only descriptor of the file when both have identified themselves, and maps it ([`PeerMemory`]). From
//! then on a large tensor is sent as its position in the heap: the sender keeps it alive until the receiver has released it
//! ([`SharedRegion`]). Nobody writes to a peer's heap, and a heap contains no pointers.
//!
//! This requires in-memory files with seals, which only Linux has. Elsewhere there is no heap, and tensors are copied.

#[cfg(any(not(target_os = "linux"), test))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod free_space;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{PeerMemory, SharedHeap, SharedRegion};
#[cfg(all(target_os = "linux", test))]
pub(super) use linux::tensor_in_heap;
#[cfg(target_os = "linux")]
pub(super) use linux::{PeerMemory, SharedHeap, SharedRegion};
