//! Simulation: whole clusters of real masters, workers, sessions, executors and kernels on one thread, on a clock of their own, with a
//! network, disks and processes to which a seed has faults happen. The same seed does the same again, to the last step.
//!
//! What is not real: calls of gRPC go from one task to another as they are, without its bytes (streams have theirs); nothing is in shared
//! memory or encrypted; and files are on disks in memory. An op reads and writes files in one go, as far as others see it, unless its
//! machine dies of a write.

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

/// What a seed led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What the cluster was used for.
    pub workload: &'static str,
    /// What must not be, and was found.
    pub findings: Vec<String>,
    /// What happened, and how often.
    pub tally: Tally,
    /// A number that differs as soon as two runs do.
    pub trace: u64,
    /// How many steps the scheduler did.
    pub steps: u64,
    /// How long the run took by its own clock.
    pub time: Duration,
}

/// Runs what a seed stands for, on this thread.
pub fn run_seed(seed: u64) -> Outcome {
    static FILES: Once = Once::new();
    // Another test of the same process may have used files already; then checkpoints can't be simulated, which their workload says.
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
            // What nobody waits for has ended by then.
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

/// Returns what is left of steps and sessions, though all have ended.
fn left(cluster: &Arc<SimulatedCluster>, is_calm: bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (task, remains) in cluster.remains() {
        // A session whose end could not be told to a task stays there until its master is heard of again, or for ever: that is said in
        // the documentation. Steps, requests and partial runs must not.
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
