//! [`StepSequences`]: the step ids of collective graphs. Members whose masters don't know each other must use the same ids, so
//! the leader of the collective groups starts each sequence, and every master continues to count on its own.

use crate::clock::sleep;
use crate::interface::WorkerInterface;
use crate::random::RandomIds;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tensor::{Code, Result, Status};
use tracing::warn;

/// The most graphs with numbered steps.
const SEQUENCES_MAX: usize = 1 << 16;

/// Step ids leave the upper seven bits free, as TensorFlow's do.
const STEP_ID_MASK: i64 = (1 << 57) - 1;

/// How often the leader is asked for an id other than that of a failed step, before that is used again. The leader's own part of
/// that step fails soon after, and then its sequence restarts.
const ASKING_MAX: u32 = 8;

/// The delay before the leader is asked for the second time; it doubles each time.
const FIRST_DELAY: Duration = Duration::from_millis(20);

/// The delay before a leader that hasn't started yet is asked again.
const ABSENT_DELAY: Duration = Duration::from_millis(100);

/// Finds the worker of the leader.
pub(crate) type LeaderWorker = Box<dyn Fn() -> Result<Arc<dyn WorkerInterface>> + Send + Sync>;

/// The step ids of collective graphs.
pub(crate) struct StepSequences {
    /// `None` if this task is the leader.
    leader: Option<LeaderWorker>,
    /// Whether the leader has ever answered. One that hasn't may be starting, as any member may.
    has_answered: AtomicBool,
    ids: Arc<RandomIds>,
    sequences: Mutex<HashMap<i64, Sequence>>,
}

#[derive(Clone, Copy, Default)]
struct Sequence {
    next: Option<i64>,
    /// The last step that has failed.
    failed: Option<i64>,
    /// The last step that has ended.
    ended: Option<i64>,
    /// The leader's last answer.
    told: Option<i64>,
}

impl StepSequences {
    /// Returns the sequences of a task.
    pub fn new(leader: Option<LeaderWorker>, ids: Arc<RandomIds>) -> StepSequences {
        StepSequences { leader, has_answered: AtomicBool::new(false), ids, sequences: Mutex::default() }
    }

    /// Answers another task that asks for the next ids.
    pub fn serve(&self, request: &proto::GetStepSequenceRequest) -> Result<proto::GetStepSequenceResponse> {
        if self.leader.is_some() {
            return Err(Status::internal(
                "GetStepSequence was called at a task that doesn't lead the collective groups",
            ));
        }
        let mut sequences = self.sequences.lock();
        if sequences.len().saturating_add(request.graph_key.len()) > SEQUENCES_MAX {
            return Err(Status::resource_exhausted("too many sequences of steps"));
        }
        let mut next = |&graph_key: &i64| {
            let sequence = sequences.entry(graph_key).or_default();
            let next_step_id = *sequence.next.get_or_insert_with(|| self.ids.next_step_id());
            proto::StepSequence { graph_key, next_step_id }
        };
        Ok(proto::GetStepSequenceResponse { step_sequence: request.graph_key.iter().map(&mut next).collect() })
    }

    /// Returns the id of the next step of a graph.
    pub async fn next(&self, graph_key: i64) -> Result<i64> {
        let Some(leader) = &self.leader else {
            let request = proto::GetStepSequenceRequest { graph_key: vec![graph_key] };
            let served = self.serve(&request)?.step_sequence;
            return served.first().map(|sequence| sequence.next_step_id).ok_or_else(nothing_told);
        };
        let known = self.sequences.lock().get(&graph_key).copied().unwrap_or_default();
        if let Some(next) = known.next {
            return Ok(next);
        }
        let mut delay = FIRST_DELAY;
        let mut asked = 0;
        let (next, told) = loop {
            let request = proto::GetStepSequenceRequest { graph_key: vec![graph_key] };
            let told = self.ask(leader, request).await?;
            let told = told.step_sequence.iter().find(|sequence| sequence.graph_key == graph_key);
            let next = told.ok_or_else(nothing_told)?.next_step_id;
            asked += 1;
            // TensorFlow's leader answers -1 while it has none.
            if next >= 0 && known.failed != Some(next) && known.told != Some(next) {
                break (next, next);
            }
            // A leader that repeats an answer takes no part in the graph, and doesn't count for anybody.
            let is_told_again = known.told == Some(next) && known.failed != Some(next);
            if is_told_again || asked == ASKING_MAX {
                break (known.ended.map_or(next, following), next);
            }
            sleep(delay).await;
            delay *= 2;
        };
        let mut sequences = self.sequences.lock();
        if sequences.len() >= SEQUENCES_MAX && !sequences.contains_key(&graph_key) {
            return Err(Status::resource_exhausted("too many sequences of steps"));
        }
        let sequence = sequences.entry(graph_key).or_default();
        sequence.next = Some(next);
        sequence.told = Some(told);
        Ok(next)
    }

    /// Asks the leader, once it is running.
    async fn ask(
        &self,
        leader: &LeaderWorker,
        request: proto::GetStepSequenceRequest,
    ) -> Result<proto::GetStepSequenceResponse> {
        let mut has_said = false;
        loop {
            let told = leader()?.get_step_sequence(request.clone()).await;
            match told {
                Err(status) if status.code() == Code::Unavailable && !self.has_answered.load(Ordering::Relaxed) => {
                    if !std::mem::replace(&mut has_said, true) {
                        warn!("a step of a collective graph waits for the leader of the collective groups: {status}");
                    }
                    sleep(ABSENT_DELAY).await;
                }
                told => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    return told;
                }
            }
        }
    }

    /// Records that a step is over. After success the next number follows, otherwise the leader is asked.
    pub fn retire(&self, graph_key: i64, step_id: i64, has_succeeded: bool) {
        let mut sequences = self.sequences.lock();
        let Some(sequence) = sequences.get_mut(&graph_key) else { return };
        if !has_succeeded {
            sequence.failed = Some(step_id);
        }
        sequence.ended = Some(step_id);
        let is_current = sequence.next == Some(step_id);
        if is_current || has_succeeded {
            sequence.next = (is_current && has_succeeded).then_some(following(step_id));
        }
    }
}

fn following(step_id: i64) -> i64 {
    step_id.wrapping_add(1) & STEP_ID_MASK
}

fn nothing_told() -> Status {
    Status::internal("the leader of the collective groups told no step id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn steps_count_up_until_one_fails_or_ends_out_of_order() {
        let sequences = StepSequences::new(None, Arc::new(RandomIds::with_seed(1)));
        let first = sequences.next(7).await.unwrap();
        assert_eq!(sequences.next(7).await.unwrap(), first, "it has not ended");
        assert_ne!(sequences.next(8).await.unwrap(), first);
        sequences.retire(7, first, true);
        assert_eq!(sequences.next(7).await.unwrap(), first + 1);
        sequences.retire(7, first + 1, false);
        let anew = sequences.next(7).await.unwrap();
        assert_ne!(anew, first + 2);
        sequences.retire(7, anew, true);
        sequences.retire(7, anew, true);
        assert_ne!(sequences.next(7).await.unwrap(), anew + 1, "it ended twice");
        let request = proto::GetStepSequenceRequest { graph_key: vec![7] };
        let served = sequences.serve(&request).unwrap().step_sequence[0].next_step_id;
        assert_eq!(served, sequences.next(7).await.unwrap(), "others are told what is used here");
    }

    #[test]
    fn only_the_leader_is_asked() {
        let nobody: LeaderWorker = Box::new(|| Err(Status::unavailable("nobody")));
        let sequences = StepSequences::new(Some(nobody), Arc::new(RandomIds::with_seed(1)));
        assert!(sequences.serve(&proto::GetStepSequenceRequest::default()).is_err());
    }
}
