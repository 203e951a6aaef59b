//! Partial runs: one step that several calls feed and fetch. Its executors run from the first call to the last, and feeds and
//! fetches meet in the step's rendezvous.

use super::graph_mgr::{RegisteredGraph, StepContext, not_valid};
use super::step_state::StepState;
use super::{CancelOnDrop, run_executors};
use crate::interface::{Answer, RunGraphCall, RunGraphReply};
use foldhash::HashMap;
use futures_util::future::{BoxFuture, FutureExt, Shared, join_all};
use kernel::Rendezvous;
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};
use tokio::sync::oneshot;

/// The most open partial runs; one that is never completed stays until its step is cleaned up.
const PARTIAL_STEPS_MAX: usize = 1 << 12;

/// The open partial runs, by step.
#[derive(Default)]
pub(super) struct PartialSteps {
    runs: Mutex<HashMap<i64, Ending>>,
}

type Ending = Shared<BoxFuture<'static, Result<()>>>;

impl PartialSteps {
    /// Returns the number of partial runs.
    pub fn len(&self) -> usize {
        self.runs.lock().len()
    }

    /// Removes a run.
    pub fn remove(&self, step_id: i64) {
        self.runs.lock().remove(&step_id);
    }
}

/// Runs a part of a step; the first part starts it.
pub(super) fn run(
    runs: &Arc<PartialSteps>,
    graph: Arc<RegisteredGraph>,
    step: Arc<StepState>,
    rendezvous: Arc<dyn Rendezvous>,
    context: &StepContext,
    call: RunGraphCall,
) -> Result<Answer<RunGraphReply>> {
    let mut table = runs.runs.lock();
    let ending = match table.get(&step.id) {
        Some(ending) => ending.clone(),
        None if table.len() >= PARTIAL_STEPS_MAX => {
            return Err(Status::resource_exhausted("too many partial runs are under way"));
        }
        None => {
            let prepared = graph.prepare_partial(&step, &rendezvous, context)?;
            let ended = run_executors(&prepared, &step);
            let ending = async move {
                // The step's state lives as long as its result may be requested.
                let _prepared = prepared;
                ended.await.unwrap_or_else(|_| Err(Status::internal("a partial run ended without a word")))
            };
            let ending = ending.boxed().shared();
            table.insert(step.id, ending.clone());
            ending
        }
    };
    drop(table);
    for (key, tensor) in call.sends {
        step.local.send_by_name(&key, tensor, false)?;
    }
    let receives: Vec<_> = call.receives.iter().map(|key| receive(&step, key)).collect();
    let runs = runs.clone();
    let guard = CancelOnDrop::new(&step, None);
    Ok(Box::pin(async move {
        let fetched: Result<Vec<Tensor>> = join_all(receives).await.into_iter().collect();
        // A failed step fails its fetches too, and has the better error.
        let is_over = call.is_last_partial_run && fetched.is_ok();
        let has_failed = fetched.as_ref().is_err_and(Status::is_derived);
        let outcome = if is_over || has_failed { ending.await } else { Ok(()) };
        // The part's pushes must be on their way, or nobody would tell the receiver.
        let outcome = match outcome {
            Ok(()) if !step.is_delivering() => step.delivered().await,
            outcome => outcome,
        };
        guard.disarm();
        if call.is_last_partial_run || outcome.is_err() || fetched.is_err() {
            runs.remove(call.step_id);
        }
        outcome?;
        Ok(RunGraphReply { received: fetched?, ..RunGraphReply::default() })
    }))
}

fn receive(step: &StepState, key: &Arc<str>) -> impl Future<Output = Result<Tensor>> + use<> {
    let (sender, receiver) = oneshot::channel();
    step.local.receive_by_name(key, Box::new(move |outcome| drop(sender.send(outcome))));
    let key = key.clone();
    async move {
        match receiver.await {
            Ok(Ok((tensor, false))) => Ok(tensor),
            Ok(Ok((_, true))) => Err(not_valid(&key)),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::cancelled("the step is over").derived()),
        }
    }
}
