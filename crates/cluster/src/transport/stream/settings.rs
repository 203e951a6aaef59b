//! [`StreamSettings`] and [`StreamLimits`]: the users that a task's streams serve, and their bounds.

use super::given::Dialer;
use crate::tls::Tls;
use crate::{PeerPolicy, PeerTimes};
use std::sync::Arc;
use std::time::Duration;

/// The default of the most bytes queued for a peer that doesn't read.
const WAITING_BYTES_MAX: usize = 1 << 30;

/// The most frames queued for a peer.
const WAITING_FRAMES_MAX: usize = 1 << 20;

/// The settings of a task's streams.
#[derive(Clone, Default)]
pub(crate) struct StreamSettings {
    /// Whether large tensors are shared with tasks of the same user on this machine.
    pub shares_memory: bool,
    /// The users of this machine that are served.
    pub peers: PeerPolicy,
    /// The encryption of streams over TCP.
    pub tls: Option<Arc<Tls>>,
    /// The bounds.
    pub limits: StreamLimits,
    /// Opens streams over TCP in place of the system, if it is set.
    pub dialer: Option<Arc<dyn Dialer>>,
}

/// The timeouts and queue bounds of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLimits {
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the greeting may take.
    pub greeting_timeout: Duration,
    /// A peer that neither reads nor sends anything for this long, although something is queued for it, counts as silent.
    pub silence_max: Duration,
    /// The most bytes for a silent peer: queued frames, and what it was lent.
    pub waiting_bytes_max: usize,
    /// The most frames queued for a peer, of any size. A peer that sends requests and never reads the answers is disconnected
    /// then.
    pub waiting_frames_max: usize,
    /// The most streams that a user of this machine may open; by default, as many as the process's descriptors allow.
    pub connections_per_user_max: Option<u64>,
}

impl StreamLimits {
    /// Returns the limits of a task with these timeouts.
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
