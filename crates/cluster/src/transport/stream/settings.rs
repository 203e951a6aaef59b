//! [`StreamSettings`] and [`StreamLimits`]: whom a task's streams serve, and their bounds.

use super::given::Dialer;
use crate::tls::Tls;
use crate::{PeerPolicy, PeerTimes};
use std::sync::Arc;
use std::time::Duration;

/// How many bytes may wait for a peer that takes nothing, unless it is set.
const WAITING_BYTES_MAX: usize = 1 << 30;

/// How many frames may wait for a peer.
const WAITING_FRAMES_MAX: usize = 1 << 20;

/// How the streams of a task are.
#[derive(Clone, Default)]
pub(crate) struct StreamSettings {
    /// Whether large tensors are shared with tasks of the same user on this machine.
    pub shares_memory: bool,
    /// Which users of this machine are served.
    pub peers: PeerPolicy,
    /// What encrypts those that go over TCP.
    pub tls: Option<Arc<Tls>>,
    /// The bounds.
    pub limits: StreamLimits,
    /// What opens those that go over TCP, in place of the system.
    pub dialer: Option<Arc<dyn Dialer>>,
}

/// What a stream waits for, for how long, and how much may wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLimits {
    /// How long making a connection may take.
    pub connect_timeout: Duration,
    /// How long the peers may take to say who they are.
    pub greeting_timeout: Duration,
    /// A peer that takes nothing and says nothing for as long, though something waits for it, counts as silent.
    pub silence_max: Duration,
    /// How many bytes may wait for a peer that is silent: frames that were not written, and what it was lent.
    pub waiting_bytes_max: usize,
    /// How many frames may wait for a peer, whatever their size. One that asks and never reads the answers is given up then.
    pub waiting_frames_max: usize,
    /// How many streams a user of this machine may open; without it, as many as the descriptors of the process allow.
    pub connections_per_user_max: Option<u64>,
}

impl StreamLimits {
    /// Makes the limits of a task that waits for others as long as this.
    pub fn new(times: &PeerTimes, waiting_bytes_max: Option<usize>) -> StreamLimits {
        StreamLimits {
            connect_timeout: times.connect,
            greeting_timeout: times.connect,
            silence_max: times.silence,
            waiting_bytes_max: waiting_bytes_max.unwrap_or(WAITING_BYTES_MAX),
            waiting_frames_max: WAITING_FRAMES_MAX,
            connections_per_user_max: None,
        }
    }
}

impl Default for StreamLimits {
    fn default() -> StreamLimits {
        StreamLimits::new(&PeerTimes::default(), None)
    }
}
