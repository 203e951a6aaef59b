//! [`Silence`]: whether a peer has stopped reading, as a suspended or swapping process does.
//!
//! Such a peer's connection stays open, so nothing else would show it; `peer_watch` detects it.

use crate::clock::elapsed;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::{info, warn};

/// Whether a peer has stopped reading.
#[derive(Default)]
pub(crate) struct Silence {
    /// The number of received frames.
    num_heard: AtomicU64,
    is_silent: AtomicBool,
    /// Since when it has been silent.
    since: Mutex<Option<Instant>>,
    /// Notified when that changes.
    pub changed: Notify,
}

impl Silence {
    /// Records that a frame has arrived.
    pub fn heard(&self, peer: impl Fn() -> String) {
        // Only one thread at a time reads a connection, so there are no concurrent updates.
        self.num_heard.store(self.num_heard.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) {
            self.ends(&peer());
        }
    }

    /// Returns the number of received frames.
    pub fn num_heard(&self) -> u64 {
        self.num_heard.load(Ordering::Relaxed)
    }

    /// Returns whether the peer is silent.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Returns for how long the peer has been silent, if it is.
    pub fn lasts_for(&self) -> Option<Duration> {
        if !self.is_silent.load(Ordering::Relaxed) {
            return None;
        }
        self.since.lock().map(elapsed)
    }

    /// Records that a peer is silent, and logs it.
    pub fn begins(&self, peer: &str, since: Instant, waiting: usize) {
        *self.since.lock() = Some(since);
        self.is_silent.store(true, Ordering::Relaxed);
        warn!(
            "{} has taken and answered nothing for {} s: it was stopped, or is too busy. {} kB wait for it, and so do the steps \
             that need it",
            peer,
            elapsed(since).as_secs(),
            waiting >> 10
        );
        self.changed.notify_waiters();
    }

    /// Records that a peer responds again, and logs it.
    pub fn ends(&self, peer: &str) {
        let Some(since) = self.since.lock().take() else { return };
        self.is_silent.store(false, Ordering::Relaxed);
        info!("{} goes on, after {} s in which it took nothing", peer, elapsed(since).as_secs());
        self.changed.notify_waiters();
    }
}
