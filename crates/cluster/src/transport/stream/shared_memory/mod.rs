//! Memory that tasks of one user on one machine share: large tensors go to another task without being copied.
//!
//! Every process has one [`SharedHeap`], a file in memory from which the contents of all its large tensors come. A peer of the
//! same user gets the file when both have said who they are, opened so that it can only be read, and maps it
//! ([`PeerMemory`]). From then on a large tensor is sent as its place in the heap: the sender keeps it alive until the receiver
//! has said that it needs it no longer ([`SharedRegion`]). Nobody writes to a peer's heap, and no pointer lies in one.
//!
//! That needs files in memory with seals, which only Linux has. Elsewhere there is no heap, and tensors are copied.

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
