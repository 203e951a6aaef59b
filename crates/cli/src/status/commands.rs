//! `ferroflow status` and `ferroflow stop`.

use super::summary::{notes, printable, rows, table};
use super::target::Target;
use crate::{Failure, exit};
use clap::Args;
use cluster::TaskTopic;
use std::time::{Duration, Instant};
use tensor::Code;

/// The cluster to show.
#[derive(Args)]
pub struct TargetFlags {
    /// The address of a task (HOST:PORT), or the whole cluster: 'ps|HOST:PORT,worker|HOST:PORT;HOST:PORT'.
    #[arg(value_name = "HOST:PORT|CLUSTER")]
    pub target: String,
}

/// The output format.
#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    target: TargetFlags,
    /// Prints everything as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the state of a cluster.
pub fn status(arguments: &StatusArguments) -> Result<(), Failure> {
    let state = Target::parse(&arguments.target.target)?.state()?;
    if arguments.json {
        crate::say!("{state}");
        return Ok(());
    }
    for line in table(&rows(&state)) {
        crate::say!("{line}");
    }
    for note in notes(&state) {
        crate::say!("{note}");
    }
    Ok(())
}

/// How long the tasks of one stage may take to stop: the longest that a server takes.
const STAGE_TIMEOUT: Duration = Duration::from_secs(45);

/// The interval at which to check whether a task has exited.
const LOOKING: Duration = Duration::from_millis(100);

/// Stops the tasks of a cluster: first the workers, then the chief, which saves, then the parameter servers.
pub fn stop(flags: &TargetFlags) -> Result<(), Failure> {
    let target = Target::parse(&flags.target)?;
    let Some(cluster) = &target.cluster else {
        return Err(Failure::new("the whole cluster is needed to end it in order: 'ps|HOST:PORT,worker|HOST:PORT'"));
    };
    let has_chief = cluster.tasks().any(|(job, _, _)| is_chief_job(job));
    let mut stages: [Vec<(String, String)>; 3] = Default::default();
    for (job, index, address) in cluster.tasks() {
        let stage = match job {
            "ps" => 2,
            _ if is_chief_job(job) || (!has_chief && job == "worker" && index == 0) => 1,
            _ => 0,
        };
        stages[stage].push((format!("/job:{job}/task:{index}"), address.to_owned()));
    }
    let mut failures = Vec::new();
    for stage in stages {
        let mut told = Vec::new();
        for (task, address) in stage {
            match target.ask(&address, TaskTopic::Stop) {
                Ok(_) => told.push((task, address)),
                Err(status) if status.code() == Code::Unavailable => crate::say!("{task} at {address} is not there"),
                Err(status) => failures.push(format!("{task} at {address}: {}", printable(status.message()))),
            }
        }
        let deadline = Instant::now() + STAGE_TIMEOUT;
        for (task, address) in told {
            match wait_for_end(&target, &address, deadline) {
                true => crate::say!("{task} has stopped"),
                false => failures.push(format!("{task} at {address} goes on after {} s", STAGE_TIMEOUT.as_secs())),
            }
        }
        // The remaining tasks are left alone: those that still run may need them.
        if !failures.is_empty() {
            return Err(Failure::new(failures.join("; ")).with_code(exit::FAILED));
        }
    }
    Ok(())
}

fn is_chief_job(job: &str) -> bool {
    matches!(job, "chief" | "master")
}

/// Waits until nothing listens at an address; returns whether that happened before the deadline.
fn wait_for_end(target: &Target, address: &str, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        if matches!(target.ask(address, TaskTopic::State), Err(status) if status.code() == Code::Unavailable) {
            return true;
        }
        target.pause(LOOKING);
    }
    false
}
