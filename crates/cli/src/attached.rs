//! A server that a program has started (`--attached`). The program writes to the server's standard input when it has finished,
//! and the server prints a line when the chief has finished, so that no task waits for one that won't return.

use crate::{Failure, say};
use cluster::{ClusterSpec, Server, TfConfig};
use ferroflow::distributed::done;
use ferroflow::session::Target;
use ferroflow::{Result, Status};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Written by the program when it has finished.
const DONE: &str = "done";

/// Printed when the chief has finished.
const CHIEF_IS_DONE: &str = "ferroflow server: the chief is done";

/// The delay before an unreachable chief is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// A task as its program sees it.
pub struct Attached {
    /// The server.
    pub server: Arc<Server>,
    /// The cluster of the server.
    pub cluster: ClusterSpec,
    /// The job of the task.
    pub job: String,
    /// The number of the task.
    pub index: u32,
    /// Whether parameter servers exit when all workers are done; if so, each worker tells them.
    pub tells_parameter_servers: bool,
}

impl Attached {
    /// Follows the program and the chief; returns the reason why the server is to stop.
    pub fn follow(self, tf_config: Option<&str>) -> Result<oneshot::Receiver<&'static str>, Failure> {
        let (stop, stopped) = oneshot::channel();
        let (ended, program_ended) = channel::<()>();
        if let Some((target, device)) = self.chief(tf_config)? {
            let own = self.device();
            let watch = move || {
                while let Err(status) = done::wait_for_chief(&target, &device, &own) {
                    tracing::debug!("{device} can't be watched: {status}");
                    if program_ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
                say!("{CHIEF_IS_DONE}");
                let _ = std::io::stdout().flush();
            };
            spawn("watch the chief", watch)?;
        }
        spawn("follow the program", move || self.follow_program(stop, ended))?;
        Ok(stopped)
    }

    /// Waits until the program has ended, successfully or not.
    fn follow_program(self, stop: oneshot::Sender<&'static str>, _ended: Sender<()>) {
        let mut lines = std::io::stdin().lines().map_while(std::result::Result::ok);
        if !lines.any(|line| line == DONE) {
            let _ = stop.send("the program is gone");
            return;
        }
        let target = Target::from(&*self.server);
        if self.tells_parameter_servers
            && let Some(number) = done::number(&self.cluster, &self.job, self.index)
        {
            done::tell(&target, number, &self.device(), self.cluster.num_tasks("ps") as u32, false);
        }
        if self.cluster.chief() == Some((&self.job, self.index)) {
            match done::tell_chief_done(&target, &self.device()) {
                Ok(()) => done::wait_for_listeners(&self.server),
                Err(status) => tracing::warn!("the other tasks can't be told that the chief is done: {status}"),
            }
        }
        let _ = stop.send("the program is done");
    }

    fn device(&self) -> String {
        format!("/job:{}/task:{}", self.job, self.index)
    }

    /// Returns the connection to the chief and its device, for a task that is neither the chief nor a parameter server.
    fn chief(&self, tf_config: Option<&str>) -> Result<Option<(Target, String)>> {
        if self.job == "ps" {
            return Ok(None);
        }
        if let Some((job, index)) = self.cluster.chief() {
            let is_other = (job, index) != (self.job.as_str(), self.index);
            return Ok(is_other.then(|| (Target::from(&*self.server), format!("/job:{job}/task:{index}"))));
        }
        // An evaluator outside of the cluster is a cluster of its own.
        let Some(told) = tf_config.map(TfConfig::parse).transpose()?.filter(TfConfig::is_evaluator) else {
            return Ok(None);
        };
        let Some((job, index)) = told.chief() else { return Ok(None) };
        let address = told.cluster.task_address(job, index)?;
        Ok(Some((Target::Address(format!("grpc://{address}")), format!("/job:{job}/task:{index}"))))
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(drop).map_err(|error| Status::resource_exhausted(format!("can't start a thread to {name}: {error}")))
}
