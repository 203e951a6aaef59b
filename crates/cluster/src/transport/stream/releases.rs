//! [`Releases`]: what this task needs no longer of a peer's heap, until the peer is told.

use parking_lot::Mutex;
use std::vec::Drain;
use tokio::sync::Notify;

/// The tokens of what is needed no longer. It has a lock of its own, the innermost of all, because tensors end while frames are
/// written.
#[derive(Default)]
pub(super) struct Releases {
    tokens: Mutex<Vec<u64>>,
    /// Told when there is something to be given back.
    added: Notify,
}

impl Releases {
    /// Notes that a part of the peer's heap is needed no longer.
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

    /// Waits until there is something to be given back.
    pub async fn wait(&self) {
        self.added.notified().await;
    }

    /// Takes what is to be given back and gives it to `write`, if there is anything.
    pub fn take<R>(&self, write: impl FnOnce(Drain<'_, u64>) -> R) -> Option<R> {
        let mut tokens = self.tokens.lock();
        if tokens.is_empty() { None } else { Some(write(tokens.drain(..))) }
    }

    /// Returns what is to be given back.
    #[cfg(test)]
    pub fn noted(&self) -> Vec<u64> {
        self.tokens.lock().clone()
    }
}
