//! The clusters that `status`, `top` and `stop` address: the address of one task, or all tasks.

use crate::Failure;
use cluster::{ClusterSpec, TaskQuestion, TaskTopic, ask_address};
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a task may take to report its cluster's state; it waits up to two seconds for the others itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

/// The tasks to ask.
pub(super) struct Target {
    runtime: Runtime,
    /// The cluster, if it was given as a whole.
    pub cluster: Option<ClusterSpec>,
    addresses: Vec<String>,
}

impl Target {
    /// Parses `HOST:PORT`, or a cluster such as `ps|HOST:PORT,worker|HOST:PORT;HOST:PORT`.
    pub fn parse(text: &str) -> Result<Target, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(format!("can't start a thread: {error}")))?;
        if text.contains('|') {
            let cluster = ClusterSpec::parse(text)?;
            let addresses = cluster.tasks().map(|(_, _, address)| address.to_owned()).collect();
            return Ok(Target { runtime, cluster: Some(cluster), addresses });
        }
        let address = text.strip_prefix("grpc://").unwrap_or(text);
        if address.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err()) {
            return Err(Failure::new(format!(
                "'{text}' is neither HOST:PORT nor a cluster like 'ps|HOST:PORT,worker|HOST:PORT'"
            )));
        }
        Ok(Target { runtime, cluster: None, addresses: vec![address.to_owned()] })
    }

    /// Asks the task at an address.
    pub fn ask(&self, address: &str, topic: TaskTopic) -> Result<String, tensor::Status> {
        let question = TaskQuestion::new(topic, 0);
        let asked = ask_address(address, question, self.runtime.handle().clone());
        self.runtime.block_on(async {
            tokio::time::timeout(ANSWER_TIMEOUT, asked).await.unwrap_or_else(|_| {
                Err(tensor::Status::deadline_exceeded(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
            })
        })
    }

    /// Sleeps.
    pub fn pause(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Returns the state of the cluster, from the first task that answers.
    pub fn state(&self) -> Result<Value, Failure> {
        let mut failures = Vec::new();
        for address in &self.addresses {
            let answer = match self.ask(address, TaskTopic::Cluster) {
                Ok(answer) => answer,
                Err(status) => {
                    failures.push(format!("{address}: {}", status.message()));
                    continue;
                }
            };
            return serde_json::from_str(&answer)
                .map_err(|error| Failure::new(format!("{address} answers something that is no JSON: {error}")));
        }
        Err(Failure::new(format!("no task answers: {}", failures.join("; "))).with_code(crate::exit::PEER_LOST))
    }
}
