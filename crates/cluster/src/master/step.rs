//! Runs one step of a compiled run: starts all partitions at once, collects their answers, and always cleans up.

use super::compiled_run::{CompiledRun, Partition};
use super::cost_graph;
use super::session::{MasterSession, in_background};
use crate::clock::{timeout, timeout_at};
use crate::interface::{Answer, RunGraphCall, RunGraphReply};
use crate::transport::grpc::take_unsent;
use futures_util::future::join_all;
use proto::run_options::TraceLevel;
use proto::{ExecutorOpts, LoggingRequest, RunMetadata, RunOptions, StepStats};
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};
use tensor::{Result, Status, Tensor};

/// How long the cause of an error may take to arrive after one of its consequences.
const ROOT_CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long collecting a step's trace may take.
const TRACE_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a step.
pub(crate) struct StepResult {
    /// The fetches in order.
    pub fetches: Vec<Tensor>,
    /// The metadata.
    pub metadata: RunMetadata,
}

impl MasterSession {
    /// Runs a step and counts it; `feeds` are in the order of the run's names.
    pub async fn run_compiled(
        &self,
        run: &CompiledRun,
        feeds: Vec<Tensor>,
        options: Option<&RunOptions>,
        deadline: Option<Instant>,
    ) -> Result<StepResult> {
        let metrics = self.tasks.metrics();
        let started_micros = metrics.clock.now_micros();
        let mut step_id = 0;
        let result = self.run_uncounted(run, feeds, options, deadline, &mut step_id).await;
        metrics.step_ended(self.progress.number, step_id, started_micros, result.as_ref().err());
        if let Ok(result) = &result {
            run.shown.note(&result.fetches, &self.progress);
            self.progress.steps.fetch_add(1, Ordering::Relaxed);
            self.progress.last_step_micros.store(metrics.clock.now_micros(), Ordering::Relaxed);
        }
        result
    }

    /// Runs a step, and reports its id as soon as it is known.
    async fn run_uncounted(
        &self,
        run: &CompiledRun,
        feeds: Vec<Tensor>,
        options: Option<&RunOptions>,
        deadline: Option<Instant>,
        told_id: &mut i64,
    ) -> Result<StepResult> {
        for (index, feed) in feeds.iter().enumerate() {
            run.check_feed(index, feed)?;
        }
        let count = run.steps.fetch_add(1, Ordering::Relaxed);
        let asked = executor_options(options);
        let mut record = asked;
        if cost_graph::is_wanted(&self.config, count) {
            record.record_costs = true;
            record.record_partition_graphs = true;
        }
        let graph_key = collective_graph_key(run, options);
        let step_id = match graph_key {
            None => self.ids.next_step_id(),
            Some(key) => self.unless_over(self.step_sequences.next(key), deadline).await?,
        };
        *told_id = step_id;
        let retired = graph_key.map(|key| RetireStep { session: self, key, step_id, succeeded: false });
        if record.record_timeline {
            self.log_transfers(run, true).await;
        }
        let outcome = {
            let mut cleanup = CleanupStep { session: self, run, step_id, succeeded: false };
            let replies = self.run_partitions(run, feeds, step_id, record);
            let outcome = self.unless_over(replies, deadline).await;
            cleanup.succeeded = outcome.is_ok();
            outcome
        };
        if let Some(mut retired) = retired {
            retired.succeeded = outcome.is_ok();
        }
        let transfers = match record.record_timeline {
            true => self.collect_transfers(run, step_id).await,
            false => Vec::new(),
        };
        let mut replies = outcome?;
        let take = |&(partition, index): &(usize, usize)| {
            let received = replies.get(partition).and_then(|reply| reply.received.get(index));
            received.cloned().ok_or_else(|| Status::internal("a partition returned too few tensors"))
        };
        let fetches = run.fetches.iter().map(take).collect::<Result<_>>()?;
        let mut metadata = RunMetadata::default();
        for reply in &mut replies {
            metadata.partition_graphs.append(&mut reply.partition_graphs);
            if let Some(stats) = reply.step_stats.take() {
                metadata.step_stats.get_or_insert_default().dev_stats.extend(stats.dev_stats);
            }
        }
        if record.record_costs {
            let stats = metadata.step_stats.take_if(|_| !asked.record_timeline);
            let costs = stats.as_ref().or(metadata.step_stats.as_ref());
            metadata.cost_graph = costs.map(|stats| self.cost_graph(&metadata.partition_graphs, stats));
            if !asked.record_partition_graphs {
                metadata.partition_graphs.clear();
            }
        }
        if let Some(stats) = &mut metadata.step_stats {
            add_transfers(stats, transfers);
        }
        Ok(StepResult { fetches, metadata })
    }

    /// Runs a step whose feeds are ready for all partitions.
    async fn run_partitions(
        &self,
        run: &CompiledRun,
        feeds: Vec<Tensor>,
        step_id: i64,
        options: ExecutorOpts,
    ) -> Result<Vec<RunGraphReply>> {
        let call = |partition: &Partition| {
            let feed = |(index, key): &(usize, _)| {
                feeds.get(*index).map(|tensor| (std::sync::Arc::clone(key), tensor.clone()))
            };
            RunGraphCall {
                session_handle: self.handle.clone(),
                create_worker_session_called: true,
                graph_handle: partition.graph.handle().clone(),
                step_id,
                sends: partition.feeds.iter().filter_map(feed).collect(),
                receives: partition.receives.clone(),
                options,
                is_partial: false,
                is_last_partial_run: false,
                cleans_itself: run.all_pushed,
            }
        };
        if let [partition] = run.partitions.as_slice() {
            let call = call(partition);
            // Dropped first, so that the partition may be the sole owner of its feeds.
            drop(feeds);
            let reply = partition.worker.run_graph(call).await;
            return reply.map(|reply| vec![reply]).map_err(|status| self.from_task(&partition.task, status));
        }
        let calls: Vec<RunGraphCall> = run.partitions.iter().map(call).collect();
        drop(feeds);
        self.run_calls(run, calls).await
    }

    /// Calls each partition and waits for all answers, or for the error that the user should see.
    pub async fn run_calls(&self, run: &CompiledRun, calls: Vec<RunGraphCall>) -> Result<Vec<RunGraphReply>> {
        let mut answers = Answers(Vec::with_capacity(calls.len()));
        // Requests that were unsent before don't belong to this step.
        take_unsent();
        for (index, (partition, call)) in run.partitions.iter().zip(calls).enumerate() {
            if partition.is_local && take_unsent() {
                // The requests are sent before this process's own part of the work begins.
                tokio::task::yield_now().await;
            }
            answers.0.push((index, partition.worker.run_graph(call)));
        }
        let mut replies: Vec<RunGraphReply> = run.partitions.iter().map(|_| RunGraphReply::default()).collect();
        let mut derived = None;
        loop {
            let next = match &derived {
                None => answers.next().await,
                // The cause has already failed elsewhere, so its answer is on its way.
                Some(status) => match timeout(ROOT_CAUSE_TIMEOUT, answers.next()).await {
                    Ok(next) => next,
                    Err(_) => return Err(Status::clone(status)),
                },
            };
            match next {
                Some((index, Ok(reply))) => replies[index] = reply,
                Some((index, Err(status))) => {
                    let status = self.from_task(&run.partitions[index].task, status);
                    if !status.is_derived() {
                        return Err(status);
                    }
                    derived.get_or_insert(status);
                }
                None => return derived.map_or(Ok(replies), Err),
            }
        }
    }

    /// Waits for work, until its timeout or the end of the session; then it is cancelled.
    pub async fn unless_over<T>(&self, work: impl Future<Output = Result<T>>, deadline: Option<Instant>) -> Result<T> {
        let mut closing = self.closing();
        let closed = async { closing.wait_for(|&is_closing| is_closing).await.is_ok() };
        let work = async {
            tokio::select! {
                biased;
                outcome = work => outcome,
                _ = closed => Err(Status::cancelled(
                    "Step was cancelled by an explicit call to `Session::Close()`.",
                )),
            }
        };
        match deadline {
            None => work.await,
            Some(deadline) => timeout_at(deadline, work)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("Timed out: the step took too long"))),
        }
    }

    /// Turns the log of transfers on or off on all tasks of a run.
    async fn log_transfers(&self, run: &CompiledRun, is_enabled: bool) {
        let request =
            LoggingRequest { enable_rpc_logging: is_enabled, disable_rpc_logging: !is_enabled, ..Default::default() };
        let calls = run.partitions.iter().map(|partition| partition.worker.logging(request.clone()));
        let _ = timeout(TRACE_TIMEOUT, join_all(calls)).await;
    }

    /// Returns the transfers that a run's tasks have logged for a step.
    async fn collect_transfers(&self, run: &CompiledRun, step_id: i64) -> Vec<StepStats> {
        self.log_transfers(run, false).await;
        let request = LoggingRequest { fetch_step_id: vec![step_id], ..Default::default() };
        let calls = run.partitions.iter().map(|partition| partition.worker.logging(request.clone()));
        let answers = timeout(TRACE_TIMEOUT, join_all(calls)).await.unwrap_or_default();
        let steps = answers.into_iter().flatten().flat_map(|answer| answer.step);
        steps.filter_map(|step| step.step_stats).collect()
    }
}

/// The unanswered calls of a step, by the index of their partition.
///
/// There are few, and all are polled whenever one is answered. `FuturesUnordered` would poll fewer, but it has its task polled
/// again after each round, by another thread that is woken for it.
struct Answers(Vec<(usize, Answer<RunGraphReply>)>);

impl Answers {
    /// Waits for the next answer; `None` if there are no more.
    async fn next(&mut self) -> Option<(usize, Result<RunGraphReply>)> {
        poll_fn(|context| {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            for (position, (index, answer)) in self.0.iter_mut().enumerate() {
                if let Poll::Ready(reply) = answer.as_mut().poll(context) {
                    let index = *index;
                    drop(self.0.swap_remove(position));
                    return Poll::Ready(Some((index, reply)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Cleans a step up on all its tasks, whatever its result.
pub(crate) struct CleanupStep<'a> {
    /// The session.
    pub session: &'a MasterSession,
    /// The run.
    pub run: &'a CompiledRun,
    /// The step.
    pub step_id: i64,
    /// Whether all partitions have succeeded.
    pub succeeded: bool,
}

impl Drop for CleanupStep<'_> {
    fn drop(&mut self) {
        for partition in &self.run.partitions {
            if partition.is_local {
                // In this process it is done when the call returns.
                drop(partition.worker.cleanup_graph(self.step_id));
            } else if !(self.succeeded && self.run.all_pushed) {
                in_background(&self.session.spawner, &partition.worker, self.step_id);
            }
        }
    }
}

/// Records the end of a step, whatever its result, in the sequence of a collective graph.
struct RetireStep<'a> {
    session: &'a MasterSession,
    key: i64,
    step_id: i64,
    succeeded: bool,
}

impl Drop for RetireStep<'_> {
    fn drop(&mut self) {
        self.session.step_sequences.retire(self.key, self.step_id, self.succeeded);
    }
}

/// Returns the graph key of a run: the client's, or the one computed from the graph.
fn collective_graph_key(run: &CompiledRun, options: Option<&RunOptions>) -> Option<i64> {
    let derived = run.collective_graph_key?;
    let given = options.and_then(|options| options.experimental.as_ref()).map(|options| options.collective_graph_key);
    Some(given.filter(|&key| key != 0).unwrap_or(derived))
}

/// Adds the transfers to the traces of the receiving devices.
fn add_transfers(stats: &mut StepStats, transfers: Vec<StepStats>) {
    for device in transfers.into_iter().flat_map(|transfers| transfers.dev_stats) {
        match stats.dev_stats.iter_mut().find(|known| known.device == device.device) {
            Some(known) => known.node_stats.extend(device.node_stats),
            None => stats.dev_stats.push(device),
        }
    }
}

fn executor_options(options: Option<&RunOptions>) -> ExecutorOpts {
    let Some(options) = options else { return ExecutorOpts::default() };
    let trace_level = options.trace_level();
    ExecutorOpts {
        record_costs: false,
        record_timeline: trace_level != TraceLevel::NoTrace,
        record_partition_graphs: options.output_partition_graphs,
        report_tensor_allocations_upon_oom: options.report_tensor_allocations_upon_oom,
    }
}
