//! Steps that run on the calling thread: those of sessions that are entirely in this process.

use super::compiled_run::RunNamesRef;
use super::session::MasterSession;
use crate::interface::{LocalSession, LocalStepCall};
use std::time::Duration;
use tensor::{Result, Status, Tensor};

impl LocalSession for MasterSession {
    fn run(
        &self,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
        timeout: Option<Duration>,
    ) -> Option<Result<Vec<Tensor>>> {
        let names = RunNamesRef { feeds: feeds.iter().map(|(name, _)| *name), fetches, targets };
        let entry = self.known_run(&names)?;
        let run = entry.run.get()?;
        let (graph, [partition]) = (run.local.as_ref()?, run.partitions.as_slice()) else { return None };
        if let Some(status) = self.cancellation.status() {
            return Some(Err(status));
        }
        for (index, (_, value)) in feeds.iter().enumerate() {
            if let Err(status) = run.check_feed(index, value) {
                return Some(Err(status));
            }
        }
        let mut arguments = partition.feeds.iter().map(|(index, _)| feeds[*index].1.clone());
        let timeout_ms = timeout.map_or(0, |timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1));
        let call = LocalStepCall {
            step_id: self.ids.next_step_id(),
            arguments: &mut arguments,
            deadline: self.deadline(timeout_ms),
            cancellation: &self.cancellation,
        };
        Some(graph.run(call).and_then(|results| in_order(results, &run.fetches)))
    }
}

/// Puts the results of the only partition into the order of the fetches.
fn in_order(results: Vec<Tensor>, fetches: &[(usize, usize)]) -> Result<Vec<Tensor>> {
    if fetches.len() == results.len() && fetches.iter().enumerate().all(|(place, (_, index))| place == *index) {
        return Ok(results);
    }
    let find = |(_, index): &(usize, usize)| results.get(*index).cloned();
    let found: Option<Vec<Tensor>> = fetches.iter().map(find).collect();
    found.ok_or_else(|| Status::internal("a partition returned too few tensors"))
}
