//! Partial runs: one step that a client feeds and fetches in parts.

use super::compiled_run::{CompiledRun, Partition, RunNamesRef};
use super::prepared::{OpenPartialRun, Pending};
use super::session::MasterSession;
use super::step::CleanupStep;
use crate::interface::{RunGraphCall, RunStepCall, RunStepReply};
use foldhash::HashMap;
use graph::passes::RunSpec;
use graph::{Edge, NodeGraph};
use parking_lot::Mutex;
use proto::{ExecutorOpts, RunMetadata};
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

impl MasterSession {
    /// Prepares a partial run; returns its handle.
    pub async fn set_up_partial_run(&self, request: proto::PartialRunSetupRequest) -> Result<String> {
        let names = RunNamesRef {
            feeds: request.feed.iter().map(String::as_str),
            fetches: &request.fetch,
            targets: &request.target,
        };
        let entry = self.run_for(names, self.deadline(0)).await?;
        let graph = self.graph();
        let spec = RunSpec::resolve(&graph, &request.feed, &request.fetch, &request.target)?;
        let needs = |(name, edge): &(String, Edge)| (name.clone(), feeds_behind(&graph, &spec.feeds, *edge));
        let pending =
            Pending { feeds: request.feed.into_iter().collect(), fetches: spec.fetches.iter().map(needs).collect() };
        let step_id = self.ids.next_step_id();
        self.partial_runs.add(OpenPartialRun { entry, step_id, pending: Mutex::new(pending) })
    }

    /// Ends the partial runs that their client has left open.
    pub fn drop_partial_runs(&self) {
        for partial in self.partial_runs.take_all() {
            if let Some(run) = partial.entry.run.get() {
                drop(CleanupStep { session: self, run, step_id: partial.step_id, succeeded: false });
            }
        }
    }

    /// Runs a part of a partial run. An error ends the whole run.
    pub async fn run_part(&self, call: RunStepCall) -> Result<RunStepReply> {
        let handle = &call.partial_run_handle;
        let partial = self
            .partial_runs
            .get(handle)
            .ok_or_else(|| Status::invalid_argument("Must run PartialRunSetup before performing partial runs"))?;
        if !call.targets.is_empty() {
            return Err(Status::invalid_argument("a partial run's targets are given when it is set up"));
        }
        let is_last = partial.take(&call)?;
        let run = partial.entry.run.get().ok_or_else(|| Status::internal("a partial run was never compiled"))?;
        let calls = run.partitions.iter().map(|partition| partial.call(self, partition, &call, is_last)).collect();
        let deadline = self.deadline(call.options.as_ref().map_or(0, |options| options.timeout_in_ms));
        let outcome = self.unless_over(self.run_calls(run, calls), deadline).await;
        if is_last || outcome.is_err() {
            self.partial_runs.remove(handle);
            drop(CleanupStep { session: self, run, step_id: partial.step_id, succeeded: false });
        }
        let mut received: HashMap<String, Tensor> = HashMap::default();
        for (partition, reply) in run.partitions.iter().zip(outcome?) {
            let names = partial.fetched_from(run, partition, &call);
            received.extend(names.into_iter().map(|(name, _)| name).zip(reply.received));
        }
        let take = |name: String| match received.get(&name).cloned() {
            Some(tensor) => Ok((name, tensor)),
            None => Err(Status::internal(format!("no partition returned the fetch '{name}'"))),
        };
        Ok(RunStepReply {
            tensors: call.fetches.clone().into_iter().map(take).collect::<Result<_>>()?,
            metadata: is_last.then(RunMetadata::default),
        })
    }
}

impl OpenPartialRun {
    /// Removes a call's feeds and fetches from those that are pending; returns whether none is left.
    fn take(&self, call: &RunStepCall) -> Result<bool> {
        let names = &self.entry.names;
        let mut pending = self.pending.lock();
        for (name, value) in &call.feeds {
            if !names.feeds.contains(name) {
                return Err(Status::not_found(format!("The feed {name} was not declared when the run was set up.")));
            }
            if !pending.feeds.contains(name) {
                return Err(Status::invalid_argument(format!("The feed {name} had already been fed.")));
            }
            if let (Some(run), Some(index)) = (self.entry.run.get(), names.feeds.iter().position(|known| known == name))
            {
                run.check_feed(index, value)?;
            }
        }
        for name in &call.fetches {
            if !names.fetches.contains(name) {
                return Err(Status::not_found(format!("The fetch {name} was not declared when the run was set up.")));
            }
            let Some(needs) = pending.fetches.get(name) else {
                return Err(Status::invalid_argument(format!("The fetch {name} had already been fetched.")));
            };
            let is_fed = |feed: &String| !pending.feeds.contains(feed) || call.feeds.iter().any(|(fed, _)| fed == feed);
            if !needs.iter().all(is_fed) {
                return Err(Status::invalid_argument(format!(
                    "Fetch {name} can't be computed from the feeds that have been fed so far."
                )));
            }
        }
        for (name, _) in &call.feeds {
            pending.feeds.remove(name);
        }
        for name in &call.fetches {
            pending.fetches.remove(name);
        }
        Ok(pending.feeds.is_empty() && pending.fetches.is_empty())
    }

    fn call(&self, session: &MasterSession, partition: &Partition, call: &RunStepCall, is_last: bool) -> RunGraphCall {
        let feed = |(index, key): &(usize, Arc<str>)| {
            let name = self.entry.names.feeds.get(*index)?;
            let (_, tensor) = call.feeds.iter().find(|(fed, _)| fed == name)?;
            Some((key.clone(), tensor.clone()))
        };
        let receives: Arc<[Arc<str>]> = match self.entry.run.get() {
            Some(run) => self.fetched_from(run, partition, call).into_iter().map(|(_, key)| key).collect(),
            None => Arc::new([]),
        };
        RunGraphCall {
            session_handle: session.handle.clone(),
            create_worker_session_called: true,
            graph_handle: partition.graph.handle().clone(),
            step_id: self.step_id,
            sends: partition.feeds.iter().filter_map(feed).collect(),
            receives,
            options: ExecutorOpts::default(),
            is_partial: true,
            is_last_partial_run: is_last,
            cleans_itself: false,
        }
    }

    /// Returns the names and keys of a call's fetches from a partition, each once.
    fn fetched_from(&self, run: &CompiledRun, partition: &Partition, call: &RunStepCall) -> Vec<(String, Arc<str>)> {
        let mut fetched: Vec<(String, Arc<str>)> = Vec::new();
        for (name, &(source, index)) in self.entry.names.fetches.iter().zip(&run.fetches) {
            let is_here = run.partitions.get(source).is_some_and(|here| std::ptr::eq(here, partition));
            if let (true, true, Some(key)) = (is_here, call.fetches.contains(name), partition.receives.get(index))
                && !fetched.iter().any(|(known, _)| known == name)
            {
                fetched.push((name.clone(), key.clone()));
            }
        }
        fetched
    }
}

/// Returns the names of the feeds that an output depends on.
fn feeds_behind(graph: &NodeGraph, feeds: &[(String, Edge)], fetch: Edge) -> Vec<String> {
    let mut seen = vec![false; graph.id_bound()];
    let mut found: Vec<String> = Vec::new();
    let mut stack = Vec::new();
    let mut visit = |edge: Edge, stack: &mut Vec<_>| match feeds.iter().find(|(_, fed)| *fed == edge) {
        Some((name, _)) => found.push(name.clone()),
        None => stack.push(edge.node),
    };
    visit(fetch, &mut stack);
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        let Some(node) = graph.get(id) else { continue };
        for &edge in &node.inputs {
            visit(edge, &mut stack);
        }
        stack.extend(&node.control_inputs);
    }
    found
}
