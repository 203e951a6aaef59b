//! [`RegisteredHere`]: a registered partition that communicates with no other task. Its steps concern only the caller, so they
//! need no entry among the worker's steps, no clean-up and no other thread: the calling thread runs them.

use super::ended_silently;
use super::graph_mgr::{RegisteredGraph, StepContext};
use super::step_state::StepState;
use crate::interface::{LocalGraph, LocalStepCall};
use kernel::{Cancellation, Rendezvous};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Instant;
use tensor::{Result, Status, Tensor};

/// A registered partition that communicates with no other task.
pub(super) struct RegisteredHere {
    /// The partition.
    pub graph: Arc<RegisteredGraph>,
    /// The state that the worker's steps share.
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

/// The end of a step, for the thread that waits for it.
struct StepEnd {
    state: Mutex<EndState>,
    ended: Condvar,
    step: Arc<StepState>,
}

struct EndState {
    /// The devices that are still running.
    remaining: usize,
    /// The error for the user: the cause of a failure, not its consequences.
    outcome: Result<()>,
}

impl StepEnd {
    fn device_ended(&self, outcome: Result<()>) {
        if let Err(status) = &outcome {
            // Before the step counts as over, so that no other device continues it.
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

    /// Waits for the end. Most steps are already over.
    fn wait(&self, deadline: Option<Instant>, cancellation: &Cancellation) -> Result<()> {
        let mut state = self.state.lock();
        if state.remaining == 0 {
            return std::mem::replace(&mut state.outcome, Ok(()));
        }
        let registered = MutexGuard::unlocked(&mut state, || {
            let step = self.step.clone();
            let registered = cancellation.register(move |status| step.abort(status));
            // The session may have just ended.
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
                        // A node that waits in the step may end it on this thread, which needs the lock.
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

/// Records a device's result; if it is dropped without one, the step fails.
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
