//! Watches whether the peer of a connection reads. A peer that owes an answer and is silent is pinged; one with a long queue
//! before the ping counts as alive while the queue moves.

use super::connection::{Connection, Progress};
use super::frame::Kind;
use crate::clock::{elapsed, now, sleep};
use std::convert::Infallible;
use std::time::Instant;

/// The number of checks within the time after which a peer counts as silent.
const LOOKS: u32 = 3;

/// A queue that moves by less between two checks doesn't count as moving.
const PROGRESS_BYTES_MIN: u64 = 64 << 10;

/// The state at the last check.
struct Seen {
    num_heard: u64,
    written: u64,
    num_sent: u64,
    /// A lower bound of the sent frames that the peer has reacted to.
    num_covered: u64,
    /// Whether a ping is unanswered.
    is_asked: bool,
    /// When it was last seen to do something, or to have nothing to do.
    active_at: Instant,
}

impl Connection {
    /// Watches whether the peer reads, as long as the connection lasts.
    pub(super) async fn watch_peer(&self) -> Infallible {
        let interval = self.limits().silence_max / LOOKS;
        let mut seen =
            Seen { num_heard: 0, written: 0, num_sent: 0, num_covered: 0, is_asked: false, active_at: now() };
        loop {
            sleep(interval).await;
            self.look_at_peer(&mut seen);
        }
    }

    fn look_at_peer(&self, seen: &mut Seen) {
        let progress = self.progress();
        let num_heard = self.silence.num_heard();
        if num_heard != seen.num_heard {
            // Frames sent since the last check may have arrived after the peer's last frame.
            seen.num_covered = seen.num_sent;
            seen.is_asked = false;
            seen.active_at = now();
        } else if !progress.is_up || !has_to_answer(seen, &progress) {
            seen.active_at = now();
        } else if progress.waiting > 0 && progress.written - seen.written >= PROGRESS_BYTES_MIN {
            seen.active_at = now();
            if self.silence.is_silent() {
                self.silence.ends(&self.peer_at());
            }
        } else {
            if progress.waiting == 0 && !seen.is_asked {
                // If it can't be sent, the connection closes.
                seen.is_asked = self.send_word(Kind::Ping).is_ok();
            }
            let is_late = elapsed(seen.active_at) >= self.limits().silence_max;
            if is_late && !self.silence.is_silent() {
                self.silence.begins(&self.peer_at(), seen.active_at, progress.waiting);
            }
        }
        (seen.num_heard, seen.num_sent, seen.written) = (num_heard, progress.num_sent, progress.written);
    }
}

fn has_to_answer(seen: &Seen, now: &Progress) -> bool {
    seen.is_asked || now.waiting > 0 || now.num_sent > seen.num_covered
}
