//! [`Recording`]: traces the nodes of the next steps, for monitoring.
//!
//! Other steps are not traced; they check a single atomic.

use crate::clock::timeout;
use parking_lot::Mutex;
use proto::StepStats;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The most steps of one recording.
pub(crate) const STEPS_MAX: u64 = 32;

/// The most nodes of a recording, in all steps.
const NODES_MAX: usize = 50_000;

/// How long a recording waits for steps.
const RECORDING_TIMEOUT: Duration = Duration::from_secs(5);

/// What is recorded.
#[derive(Default)]
pub(super) struct Recording {
    /// The number of steps left to trace.
    wanted: AtomicU64,
    recorded: Mutex<Recorded>,
    /// Notified of every recorded step.
    progress: Notify,
    /// Held during a recording: one at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Recorded {
    steps: Vec<(i64, StepStats)>,
    num_nodes: usize,
}

impl Recording {
    /// Returns whether a new step is to be traced.
    pub fn wants_step(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
            && self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Takes the trace of such a step.
    pub fn take_step(&self, step_id: i64, stats: StepStats) {
        let num_nodes: usize = stats.dev_stats.iter().map(|device| device.node_stats.len()).sum();
        let mut recorded = self.recorded.lock();
        if recorded.num_nodes + num_nodes <= NODES_MAX && recorded.steps.len() < STEPS_MAX as usize {
            recorded.num_nodes += num_nodes;
            recorded.steps.push((step_id, stats));
        }
        drop(recorded);
        self.progress.notify_waiters();
    }

    /// Records the next steps, as many as there are within five seconds.
    pub async fn record(&self, steps: u64) -> Vec<(i64, StepStats)> {
        let _turn = self.turn.lock().await;
        let steps = steps.clamp(1, STEPS_MAX);
        *self.recorded.lock() = Recorded::default();
        let _ends = EndOfRecording(self);
        self.wanted.store(steps, Ordering::Relaxed);
        let all = async {
            loop {
                let progressed = self.progress.notified();
                if self.recorded.lock().steps.len() as u64 >= steps {
                    return;
                }
                progressed.await;
            }
        };
        let _ = timeout(RECORDING_TIMEOUT, all).await;
        std::mem::take(&mut *self.recorded.lock()).steps
    }
}

/// Ends a recording, even if nobody waits for it any more.
struct EndOfRecording<'a>(&'a Recording);

impl Drop for EndOfRecording<'_> {
    fn drop(&mut self) {
        self.0.wanted.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn as_many_steps_are_traced_as_were_asked_for() {
        let recording = Recording::default();
        assert!(!recording.wants_step());
        let steps = async {
            let mut traced = 0;
            for step_id in 0..10 {
                tokio::task::yield_now().await;
                if recording.wants_step() {
                    traced += 1;
                    recording.take_step(step_id, StepStats::default());
                }
            }
            traced
        };
        let (recorded, traced) = tokio::join!(recording.record(3), steps);
        assert_eq!((recorded.len(), traced), (3, 3));
        assert!(!recording.wants_step());
        drop(recording.record(3));
        assert!(!recording.wants_step(), "nobody waits for it");
    }
}
