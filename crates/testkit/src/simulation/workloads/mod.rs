//! The workloads of simulated clusters. Each knows which results it must have under any faults, and which others without faults.

mod barriers;
mod checkpoints;
mod parts;
mod queues;
mod synchronous;
mod training;

use super::client::Client;
use super::cluster::SimulatedCluster;
use super::random::Random;
use futures_util::future::{BoxFuture, join_all};
use graph::NodeGraph;
use proto::GraphDef;
use std::sync::Arc;
use std::time::Duration;
use tensor::Tensor;

/// The parameters of a run.
pub struct Setting {
    /// The cluster.
    pub cluster: Arc<SimulatedCluster>,
    /// The seed.
    pub seed: u64,
    /// Whether there are no faults: then everything must succeed.
    pub is_calm: bool,
    /// The calls in a thousand that a client cancels.
    pub gives_up: u64,
}

/// A workload: its name and its function, which records violations in the cluster.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(Arc<Setting>) -> BoxFuture<'static, ()>,
}

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload { name: "asynchronous training", run: |setting| Box::pin(training::run(setting)) },
    Workload { name: "synchronous training", run: |setting| Box::pin(synchronous::run(setting)) },
    Workload { name: "queues", run: |setting| Box::pin(queues::run(setting)) },
    Workload { name: "barriers", run: |setting| Box::pin(barriers::run(setting)) },
    Workload { name: "partial runs and callables", run: |setting| Box::pin(parts::run(setting)) },
    Workload { name: "checkpoints", run: |setting| Box::pin(checkpoints::run(setting)) },
];

impl Setting {
    fn random(&self, what: &str) -> Random {
        Random::new(self.seed, what)
    }

    /// Returns the number of tasks in the job `worker`.
    fn num_workers(&self) -> usize {
        self.cluster.num_tasks() - self.cluster.num_ps()
    }

    /// Returns a client of a worker's master.
    fn client(&self, number: usize, graph: &Arc<GraphDef>) -> Client {
        let task = self.cluster.num_ps() + number % self.num_workers();
        Client::new(&self.cluster, self.seed, number, task, graph).giving_up(self.gives_up)
    }

    /// Checks that, without faults, nothing is left of a step that has ended, even while its session is open.
    async fn check_steps(&self) {
        if !self.is_calm {
            return;
        }
        self.cluster.scheduler.sleep(Duration::from_secs(5)).await;
        for (task, remains) in self.cluster.remains() {
            self.check(remains.steps == 0, || format!("{task} is left with {remains:?}, though no step runs"));
        }
    }

    /// Records a violation.
    fn finding(&self, what: String) {
        self.cluster.finding(what);
    }

    /// Records a violation unless a condition holds.
    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.finding(what());
        }
    }
}

/// Opens a session on every task's master that uses every task, and closes it, so that tasks hear of restarted masters.
pub async fn visit(setting: Arc<Setting>) {
    let (num_tasks, num_ps) = (setting.cluster.num_tasks(), setting.cluster.num_ps());
    let name = |task: usize| match task.checked_sub(num_ps) {
        None => format!("/job:ps/task:{task}"),
        Some(worker) => format!("/job:worker/task:{worker}"),
    };
    let text: String = (0..num_tasks).map(|task| format!("n{task} = NoOp() @{}\n", name(task))).collect();
    let targets: Vec<String> = (0..num_tasks).map(|task| format!("n{task}")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let graph = graph(&text);
    for task in 0..num_tasks {
        let mut client = Client::new(&setting.cluster, setting.seed, 900 + task, task, &graph);
        for attempt in 0..10 {
            match client.run(&[], &[], &targets).await {
                Ok(_) => break,
                Err(status) => {
                    setting.check(attempt < 9, || {
                        format!("{} can't be used though no fault goes on: {status:?}", name(task))
                    });
                    pause(&mut client, attempt).await;
                }
            }
        }
        client.finish().await;
    }
}

/// Parses a graph.
fn graph(text: &str) -> Arc<GraphDef> {
    Arc::new(
        NodeGraph::from_text(text, ops::registry()).expect("the text of a workload's graph is right").to_graph_def(),
    )
}

/// Waits a little longer after each failed attempt.
async fn pause(client: &mut Client, attempt: u32) {
    let micros = client.random.between(100, 5_000) << attempt.min(9);
    client.sleep(Duration::from_micros(micros)).await;
}

/// Runs futures at the same time, each in its own task.
async fn all<T: Send + 'static>(setting: &Setting, futures: Vec<BoxFuture<'static, T>>) -> Vec<T> {
    let scheduler = &setting.cluster.scheduler;
    let tasks = futures.into_iter().map(|future| {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        scheduler.spawn_in(super::scheduler::OUTSIDE, Box::pin(async move { drop(sender.send(future.await)) }));
        async move { receiver.await.expect("nobody ends a client") }
    });
    join_all(tasks).await
}

fn doubles(tensor: &Tensor) -> Vec<f64> {
    tensor.as_slice::<f64>().map(<[f64]>::to_vec).unwrap_or_default()
}
