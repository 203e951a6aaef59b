//! [`FailedSteps`]: the errors of recently failed collective steps, for members that ask late.

use foldhash::HashMap;
use std::collections::VecDeque;
use tensor::Status;

/// The number of steps that are remembered; the oldest one is dropped.
const STEPS_MAX: usize = 1 << 10;

/// The errors of recently failed collective steps.
#[derive(Default)]
pub(super) struct FailedSteps {
    statuses: HashMap<i64, Status>,
    order: VecDeque<i64>,
}

impl FailedSteps {
    /// Records why a step has failed. The first error is kept.
    pub fn note(&mut self, step_id: i64, status: &Status) {
        if self.statuses.contains_key(&step_id) {
            return;
        }
        self.statuses.insert(step_id, status.clone().derived());
        self.order.push_back(step_id);
        if self.order.len() > STEPS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.statuses.remove(&oldest);
        }
    }

    /// Returns why a step has failed, if it is known.
    pub fn why(&self, step_id: i64) -> Option<Status> {
        self.statuses.get(&step_id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays_and_the_oldest_step_is_forgotten() {
        let mut failed = FailedSteps::default();
        for step_id in 0..=STEPS_MAX as i64 {
            failed.note(step_id, &Status::unavailable(format!("the cause of {step_id}")));
            failed.note(step_id, &Status::internal("what came of it"));
        }
        assert_eq!(failed.why(0), None);
        let why = failed.why(STEPS_MAX as i64).unwrap();
        assert_eq!(why.message(), format!("the cause of {STEPS_MAX}"));
        assert!(failed.why(1).is_some());
        assert_eq!((failed.statuses.len(), failed.order.len()), (STEPS_MAX, STEPS_MAX));
    }
}
