//! Systems without shared memory: no process has a heap, so no region of one can exist.

use crate::transport::stream::releases::Releases;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use tensor::{Buffer, Result, Status};

/// The heap of this process, which has none.
pub(crate) enum SharedHeap {}

impl SharedHeap {
    /// Returns the heap of this process.
    pub fn of_process() -> Option<&'static SharedHeap> {
        None
    }

    /// Returns the file for peers.
    pub fn file(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    /// Returns the position of a buffer in the heap.
    pub fn offset_of(&self, _buffer: &Buffer) -> Option<u64> {
        match *self {}
    }
}

/// The heap of a peer, which can't be mapped.
pub(crate) enum PeerMemory {}

impl PeerMemory {
    /// Refuses the file of a peer's heap.
    pub fn map(_file: &OwnedFd) -> Result<PeerMemory> {
        Err(Status::unimplemented("memory is shared with other tasks on Linux only"))
    }
}

/// A tensor's contents in a peer's heap.
pub(in crate::transport::stream) struct SharedRegion {
    memory: Arc<PeerMemory>,
}

impl SharedRegion {
    /// Returns a region of a peer's memory, which can't exist here.
    pub fn new(
        memory: Arc<PeerMemory>,
        _offset: u64,
        _len: usize,
        _token: u64,
        _releases: &Arc<Releases>,
    ) -> Result<SharedRegion> {
        Ok(SharedRegion { memory })
    }
}

impl AsRef<[u8]> for SharedRegion {
    fn as_ref(&self) -> &[u8] {
        match *self.memory {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Code;

    /// Uses a region as a stream does.
    fn as_streams_use_them(region: SharedRegion) -> bytes::Bytes {
        bytes::Bytes::from_owner(region)
    }

    #[test]
    fn there_is_no_heap_and_that_of_a_peer_is_refused() {
        assert!(SharedHeap::of_process().and_then(|heap| heap.offset_of(&Buffer::zeroed(64).unwrap())).is_none());
        assert!(SharedHeap::of_process().map(SharedHeap::file).is_none());
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let refused = PeerMemory::map(&file).and_then(|memory| {
            let region = SharedRegion::new(Arc::new(memory), 0, 64, 1, &Arc::new(Releases::default()))?;
            Ok(as_streams_use_them(region))
        });
        assert_eq!(refused.unwrap_err().code(), Code::Unimplemented);
    }
}
