//! [`Releases`]: the released blocks of a peer's heap, until the peer is told.

use parking_lot::Mutex;
use std::vec::Drain;
use tokio::sync::Notify;

/// The tokens of the released blocks. Its lock is the innermost of all, because tensors are dropped while frames are written.
#[derive(Default)]
pub(super) struct Releases {
    tokens: Mutex<Vec<u64>>,
    /// Notified when there is something to release.
    added: Notify,
}

impl Releases {
    /// Records that a block of the peer's heap is no longer needed.
    pub fn add(&self, token: u64) {
        let is_first = {
            let mut tokens = self.tokens.lock();
            tokens.push(token);
            tokens.len() == 1
        };
        if is_first {
            self.added.notify_one();
        }
    }

    /// Waits until there is something to release.
    pub async fn wait(&self) {
        self.added.notified().await;
    }

    /// Passes the released tokens to `write`, if there are any.
    pub fn take<R>(&self, write: impl FnOnce(Drain<'_, u64>) -> R) -> Option<R> {
        let mut tokens = self.tokens.lock();
        if tokens.is_empty() { None } else { Some(write(tokens.drain(..))) }
    }

    /// Returns the released tokens.
    #[cfg(test)]
    pub fn noted(&self) -> Vec<u64> {
        self.tokens.lock().clone()
    }
}
