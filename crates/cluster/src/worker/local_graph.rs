//! [`RegisteredHere`]: a registered partition that talks to no other task. A step of it concerns nobody but its caller, so that it
//! needs no entry among the worker's steps, no clean-up and no other thread: whoever asks for it runs it.

use super::ended_silently;
use super::graph_mgr::{RegisteredGraph, StepContext};
use super::step_state::StepState;
use crate::interface::{LocalGraph, LocalStepCall};
use kernel::{Cancellation, Rendezvous};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Instant;
use tensor::{Result, Status, Tensor};

/// A registered partition that talks to no other task.
pub(super) struct RegisteredHere {
    /// The partition.
    pub graph: Arc<RegisteredGraph>,
    /// What the steps of the worker share.
    pub context: Arc<StepContext>,
}

impl LocalGraph for RegisteredHere {
    fn run(&self, call: LocalStepCall<'_>) -> Result<Vec<Tensor>> {
        let step = Arc::new(StepState::new(call.step_id));
        let rendezvous: Arc<dyn Rendezvous> = step.clone();
        let prepared = self.graph.prepare_in_order(call.arguments, &step, &rendezvous, &self.context);
        let end = Arc::new(StepEnd {
            state: Mutex::new(EndState { remaining: prepared.num_devices(), outcome: Ok(()) }),
            ended: Condvar::new(),
            step,
        });
        prepared.start(|| {
            let device = DeviceEnd(Some(end.clone()));
            move |outcome| device.set(outcome)
        });
        end.wait(call.deadline, call.cancellation)?;
        self.graph.results_in_order(&prepared)
    }
}

/// How a step ends, for the thread that waits for it.
struct StepEnd {
    state: Mutex<EndState>,
    ended: Condvar,
    step: Arc<StepState>,
}

struct EndState {
    /// The devices on which it has not ended.
    remaining: usize,
    /// What the user should read: the cause of a failure, not what it led to.
    outcome: Result<()>,
}

impl StepEnd {
    fn device_ended(&self, outcome: Result<()>) {
        if let Err(status) = &outcome {
            // Before the step counts as over, so that no other device goes on with it.
            self.step.abort(status.clone().derived());
        }
        let mut state = self.state.lock();
        if let Err(status) = outcome {
            super::prefer_cause(&mut state.outcome, status);
        }
        state.remaining -= 1;
        if state.remaining == 0 {
            drop(state);
            self.ended.notify_all();
        }
    }

    /// Waits for the end. Most steps are over by now.
    fn wait(&self, deadline: Option<Instant>, cancellation: &Cancellation) -> Result<()> {
        let mut state = self.state.lock();
        if state.remaining == 0 {
            return std::mem::replace(&mut state.outcome, Ok(()));
        }
        let registered = MutexGuard::unlocked(&mut state, || {
            let step = self.step.clone();
            let registered = cancellation.register(move |status| step.abort(status));
            // The session may have ended just now.
            registered.map_err(|status| self.step.abort(status))
        });
        let outcome = self.wait_longer(&mut state, deadline);
        drop(state);
        if let Ok(token) = registered {
            cancellation.deregister(token);
        }
        outcome
    }

    fn wait_longer(&self, state: &mut MutexGuard<'_, EndState>, deadline: Option<Instant>) -> Result<()> {
        let mut is_late = false;
        while state.remaining > 0 {
            match deadline.filter(|_| !is_late) {
                None => self.ended.wait(state),
                Some(deadline) => {
                    is_late = self.ended.wait_until(state, deadline).timed_out() && state.remaining > 0;
                    if is_late {
                        // Whatever waits in the step may end it on this thread, which needs the lock.
                        MutexGuard::unlocked(state, || self.step.abort(too_late()));
                    }
                }
            }
        }
        match std::mem::replace(&mut state.outcome, Ok(())) {
            Err(_) if is_late => Err(too_late()),
            outcome => outcome,
        }
    }
}

fn too_late() -> Status {
    Status::deadline_exceeded("Timed out: the step took too long")
}

/// Notes how a step ended on one device; one that is dropped without a word has failed.
struct DeviceEnd(Option<Arc<StepEnd>>);

impl DeviceEnd {
    fn set(mut self, outcome: Result<()>) {
        if let Some(end) = self.0.take() {
            end.device_ended(outcome);
        }
    }
}

impl Drop for DeviceEnd {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end.device_ended(Err(ended_silently()));
        }
    }
}
