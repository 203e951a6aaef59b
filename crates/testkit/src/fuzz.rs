//! Runs random graphs, or mutated ones of the real client, on an embedded server, and reports what must not happen: a panic, a
//! step that outlives its time limit, an `Internal` error, a session that cannot be closed.

use crate::deep_graph::deepen;
use crate::mutated_graph::Corpus;
use crate::random_graph::{Chooser, RandomGraph, random_graph};
use cluster::{ClusterSpec, EmbeddedCluster, MasterInterface, RunStepCall};
use parking_lot::Mutex;
use proto::{CreateSessionRequest, RunOptions};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tensor::{Code, Status};

/// The time limit of a step; some ops wait forever.
const STEP_TIMEOUT_MS: i64 = 300;

/// The time after which a call counts as hung, even on a busy machine.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of a tensor, so that absurd sizes are rejected rather than allocated.
const TENSOR_BYTES_MAX: usize = 64 << 20;

/// The most messages in a report.
const FINDINGS_MAX: usize = 1000;

/// When to stop.
pub enum Until {
    /// After this many graphs.
    Executions(u64),
    /// After this time.
    Elapsed(Duration),
}

/// The results of a fuzzing run.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of graphs.
    pub executions: u64,
    /// The number of graphs that were rejected before a step ran.
    pub refused: u64,
    /// The number of failed steps, by code.
    pub failures: BTreeMap<String, u64>,
    /// The number of steps that succeeded.
    pub successes: u64,
    /// Findings: the message, and the seed of the first graph that had it.
    pub findings: BTreeMap<String, u64>,
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// One in this many graphs is made deep.
const DEEP_ONCE_IN: usize = 25;

/// The source of graphs.
pub enum Source {
    /// Random graphs made from the definitions of the ops.
    Definitions,
    /// Mutated graphs of the real client.
    Corpus(Corpus),
}

impl Source {
    /// Returns the graph of a seed.
    pub fn graph(&self, seed: u64) -> RandomGraph {
        let mut graph = match self {
            Source::Definitions => random_graph(&mut Chooser::new(seed), &ops::registry().names()),
            Source::Corpus(corpus) => corpus.mutated(seed),
        };
        // A separate random sequence, so that the other graphs stay the same.
        let mut chooser = Chooser::new(!seed);
        if chooser.once_in(DEEP_ONCE_IN) {
            deepen(&mut chooser, &mut graph);
        }
        graph
    }
}

/// Sends the graphs of successive seeds to an embedded server. Calls `before` with each seed first, so that it is known if the
/// process dies.
pub fn run(source: &Source, first_seed: u64, until: &Until, mut before: impl FnMut(u64)) -> Report {
    note_panics();
    tensor::set_tensor_bytes_max(TENSOR_BYTES_MAX);
    let steps = StepRunner::start();
    let started = Instant::now();
    let mut report = Report::default();
    let mut seed = first_seed;
    loop {
        match until {
            Until::Executions(limit) if report.executions >= *limit => break,
            Until::Elapsed(limit) if started.elapsed() >= *limit => break,
            _ => {}
        }
        before(seed);
        let graph = source.graph(seed);
        steps.execute(&graph, seed, &mut report);
        report.executions += 1;
        seed += 1;
    }
    steps.runtime.shutdown_timeout(Duration::from_secs(5));
    report
}

/// An embedded server that runs graphs.
pub(crate) struct StepRunner {
    runtime: tokio::runtime::Runtime,
    master: Arc<dyn MasterInterface>,
    _cluster: EmbeddedCluster,
}

impl StepRunner {
    /// Starts the server.
    pub fn start() -> StepRunner {
        let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
        let spec = ClusterSpec::new().with_job("worker", &["localhost:1"]).expect("the spec is well-formed");
        let cluster =
            EmbeddedCluster::start(&spec, ops::registry(), runtime.handle().clone()).expect("the cluster starts");
        let master = cluster.master("worker", 0).expect("the cluster has a worker");
        StepRunner { runtime, master, _cluster: cluster }
    }

    /// Runs one step of a graph in its own session, and adds the result to the report.
    pub fn execute(&self, graph: &RandomGraph, seed: u64, report: &mut Report) {
        self.runtime.block_on(execute(&self.master, graph, seed, report));
    }
}

async fn execute(master: &Arc<dyn MasterInterface>, graph: &RandomGraph, seed: u64, report: &mut Report) {
    let request = CreateSessionRequest { graph_def: Some(graph.def.clone()), ..Default::default() };
    let created = guarded(master.create_session(request)).await;
    let session_handle = match created {
        Ok(response) => response.session_handle,
        Err(status) => {
            report.refused += 1;
            look_at(&status, seed, report);
            return;
        }
    };
    let feeds =
        graph.feeds.iter().filter_map(|(name, value)| Some((name.clone(), tensor::tensor_from_proto(value).ok()?)));
    let call = RunStepCall {
        session_handle: session_handle.clone(),
        feeds: feeds.collect(),
        fetches: graph.fetches.clone(),
        targets: graph.targets.clone(),
        options: Some(RunOptions { timeout_in_ms: STEP_TIMEOUT_MS, ..Default::default() }),
        partial_run_handle: String::new(),
    };
    match guarded(master.run_step(call)).await {
        Ok(_) => {
            report.successes += 1;
            look_for_panics(seed, report);
        }
        Err(status) => {
            *report.failures.entry(format!("{:?}", status.code())).or_default() += 1;
            look_at(&status, seed, report);
        }
    }
    if let Err(status) = guarded(master.close_session(session_handle)).await {
        report.findings.entry(format!("closing: {status}")).or_insert(seed);
    }
    let reset = proto::ResetRequest { container: vec![String::new()], ..Default::default() };
    if report.executions.is_multiple_of(16)
        && let Err(status) = guarded(master.reset(reset)).await
    {
        report.findings.entry(format!("resetting: {status}")).or_insert(seed);
    }
}

/// Waits for an answer for a limited time; a panic becomes an error.
async fn guarded<T: Send + 'static>(
    answer: impl Future<Output = tensor::Result<T>> + Send + 'static,
) -> tensor::Result<T> {
    match tokio::time::timeout(HANG_TIMEOUT, tokio::spawn(answer)).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(Status::internal(format!("the call ended with a panic: {error}"))),
        Err(_) => Err(Status::internal("the call hangs")),
    }
}

fn look_at(status: &Status, seed: u64, report: &mut Report) {
    let text = status.message();
    // Invalid input is the client's mistake; `Internal` would mean a bug of ours.
    if status.code() == Code::Internal && !look_for_panics(seed, report) && report.findings.len() < FINDINGS_MAX {
        report.findings.entry(text.replace('\n', " ")).or_insert(seed);
    }
    look_for_panics(seed, report);
}

/// Adds the panics of all threads to the report, and returns whether there were any.
fn look_for_panics(seed: u64, report: &mut Report) -> bool {
    let panics = take_panics();
    let found = !panics.is_empty();
    for panic in panics {
        report.findings.entry(panic).or_insert(seed);
    }
    found
}

/// Returns the panics of all threads since the last call.
pub(crate) fn take_panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock())
}

/// Installs a panic hook that records every panic.
pub(crate) fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(|place| format!("{}:{}", place.file(), place.line())).unwrap_or_default();
            let message = info.payload().downcast_ref::<&str>().map(|text| (*text).to_owned());
            let message = message.or_else(|| info.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
            let text = format!("panic at {place}: {message}");
            eprintln!("{text}");
            PANICS.lock().push(text);
        }));
    });
}
