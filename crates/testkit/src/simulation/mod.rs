//! Simulation: whole clusters of real masters, workers, sessions, executors and kernels on one thread with a simulated clock, network,
//! disks and processes. A seed decides the faults. A run with the same seed is the same, to the last step.
//!
//! The differences from reality: gRPC calls are passed from one task to another as messages, without bytes (streams have theirs); nothing
//! is in shared memory or encrypted; and disks are in memory. For others, an op reads and writes its files in one moment, unless its
//! machine dies at a write.

mod client;
mod cluster;
mod disk;
mod network;
mod pipe;
mod random;
mod scheduler;
mod workloads;

pub use cluster::Tally;

use cluster::SimulatedCluster;
use disk::SimulatedFileSystem;
use executor::environment;
use random::Random;
use scheduler::Stuck;
use std::sync::{Arc, Once};
use std::time::Duration;
use storage::file_system::FileSystems;
use workloads::{Setting, WORKLOADS};

/// The result of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The workload of the cluster.
    pub workload: &'static str,
    /// The violations that were found.
    pub findings: Vec<String>,
    /// The counts of events.
    pub tally: Tally,
    /// A number that differs if two runs differ.
    pub trace: u64,
    /// The number of steps of the scheduler.
    pub steps: u64,
    /// How long the run took by the simulated clock.
    pub time: Duration,
}

/// Runs a seed on this thread.
pub fn run_seed(seed: u64) -> Outcome {
    static FILES: Once = Once::new();
    // Another test in the same process may have used files already. Then checkpoints can't be simulated, which their workload reports.
    FILES.call_once(|| {
        drop(ops::io::set_file_system(FileSystems::local().with(disk::SCHEME, Arc::new(SimulatedFileSystem))))
    });
    let mut random = Random::new(seed, "what is run");
    let workload = &WORKLOADS[random.below(WORKLOADS.len())];
    let (num_ps, num_workers) = (1 + random.below(2), 1 + random.below(3));
    let num_faults = [0, 0, 1, 1, 2, 2, 3, 5][random.below(8)];
    let gives_up = if num_faults > 0 && random.one_of_thousand(400) { 80 } else { 0 };
    let has_streams = random.one_of_thousand(600);
    let cluster = SimulatedCluster::start(seed, num_ps, num_workers, has_streams);
    let _files = cluster.disks.enter();
    let _environment = environment::enter(cluster.scheduler.clone());
    let of_dead = Arc::downgrade(&cluster);
    cluster.scheduler.set_after_step(Some(Box::new(move || {
        if let Some(cluster) = of_dead.upgrade() {
            cluster.bury();
        }
    })));
    let setting = Arc::new(Setting { cluster: cluster.clone(), seed, is_calm: num_faults == 0, gives_up });
    let main = {
        let (cluster, visited) = (cluster.clone(), setting.clone());
        async move {
            let (sender, over) = tokio::sync::oneshot::channel();
            let suffering = cluster.clone();
            let faults = async move {
                suffering.suffer(num_faults).await;
                let _ = sender.send(());
            };
            cluster.scheduler.spawn_in(scheduler::OUTSIDE, Box::pin(faults));
            (workload.run)(setting).await;
            let _ = over.await;
            cluster.calm().await;
            cluster.scheduler.sleep(Duration::from_secs(30)).await;
            workloads::visit(visited).await;
            // By then, work that nobody waits for has ended.
            cluster.scheduler.sleep(Duration::from_secs(120)).await;
        }
    };
    let mut findings = Vec::new();
    match cluster.scheduler.run(main) {
        Ok(()) => findings.extend(left(&cluster, num_faults == 0)),
        Err(Stuck::Panicked(message)) => findings.push(format!("something panicked: {message}")),
        Err(stuck) => findings.push(format!(
            "calls of clients do not end ({stuck:?}): {:?}; under way between tasks: {:?}; held: {:?}",
            cluster.calls(),
            cluster.network.waiting(),
            cluster.remains()
        )),
    }
    let (trace, steps, time) = (cluster.scheduler.trace(), cluster.scheduler.steps(), cluster.scheduler.time());
    cluster.scheduler.set_after_step(None);
    let held = cluster.end();
    findings.extend(held);
    findings.extend(cluster.findings());
    let mut tally = cluster.tally();
    let counts = cluster.network.counts();
    tally.insert("calls", counts.calls);
    tally.insert("calls broken by the network", counts.broken);
    tally.insert("calls given up", counts.given_up);
    tally.insert("streams", counts.streams);
    tally.insert("streams broken", counts.broken_streams);
    tally.insert("bytes over streams", counts.stream_bytes);
    tally.insert("writes", cluster.disks.writes());
    Outcome { seed, workload: workload.name, findings, tally, trace, steps, time }
}

/// Returns the remains of steps and sessions after all have ended.
fn left(cluster: &Arc<SimulatedCluster>, is_calm: bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (task, remains) in cluster.remains() {
        // If a task could not be told of a session's end, the session stays there until the task hears from its master again, or
        // forever: this is documented. Steps, requests and partial runs must not stay.
        if remains.steps + remains.waiting_requests + remains.partial_steps > 0 || is_calm {
            findings.push(format!("{task} is left with {remains:?}"));
        }
    }
    let waiting = cluster.network.waiting();
    if !waiting.is_empty() {
        findings.push(format!("calls are still under way: {waiting:?}"));
    }
    findings
}
