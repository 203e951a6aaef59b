//! The task of a cluster that `ferroflow train` is, from flags or else from `TF_CONFIG`.

use super::flags::Flags;
use crate::Failure;
use cluster::{ClusterSpec, TfConfig};

/// The job that evaluates checkpoints, outside of the cluster.
pub const EVALUATOR: &str = "evaluator";

/// One task of a cluster.
#[derive(Debug)]
pub struct Place {
    /// The cluster.
    pub cluster: ClusterSpec,
    /// The job: `ps`, `worker`, `chief`, `master` or `evaluator`.
    pub job: String,
    /// The index in the job.
    pub index: u32,
}

impl Place {
    /// Returns the place, or `None` if this process starts all tasks itself. Logs which parts of `TF_CONFIG` are used.
    pub fn find(flags: &Flags) -> Result<Option<Place>, Failure> {
        Place::of(flags, crate::server::tf_config()?.as_deref(), |line| crate::say!("{line}"))
    }

    fn of(flags: &Flags, tf_config: Option<&str>, say: impl Fn(&str)) -> Result<Option<Place>, Failure> {
        let has_hosts = flags.ps_hosts.is_some() || flags.worker_hosts.is_some();
        if let Some(text) = tf_config {
            if has_hosts || flags.processes {
                say("the cluster is that of flags; TF_CONFIG is set, too, and not used");
            } else {
                let job = flags.job_name.as_deref();
                let told = TfConfig::parse_with_task(text, job, flags.task_index)?;
                let source = match job.is_some() || flags.task_index.is_some() {
                    true => "the cluster is that of TF_CONFIG; flags say which task this is",
                    false => "the cluster and the task are those of TF_CONFIG",
                };
                let place = Place { cluster: told.cluster, job: told.job, index: told.task_index };
                place.check("TF_CONFIG: task.type", flags)?;
                say(&format!("{}: {source}", place.device()));
                return Ok(Some(place));
            }
        }
        let Some(job) = flags.job_name.clone() else { return Ok(None) };
        let hosts = |flag: &Option<String>, name: &str| -> Result<Vec<String>, Failure> {
            let all = flag.iter().flat_map(|all| all.split(',')).map(|host| host.trim().to_owned());
            let all: Vec<String> = all.filter(|host| !host.is_empty()).collect();
            if all.is_empty() { Err(Failure::new(format!("--{name} is missing"))) } else { Ok(all) }
        };
        let cluster = match flags.is_all_reduce() {
            true => ClusterSpec::new(),
            false => ClusterSpec::new().with_job("ps", &hosts(&flags.ps_hosts, "ps_hosts")?)?,
        };
        let cluster = cluster.with_job("worker", &hosts(&flags.worker_hosts, "worker_hosts")?)?;
        let index = flags.task_index.ok_or_else(|| Failure::new("--task_index is missing"))?;
        let place = Place { cluster, job, index };
        place.check("--job_name", flags)?;
        Ok(Some(place))
    }

    /// Returns the index among the workers: the chief is 0.
    pub fn number(&self) -> u32 {
        if self.job == "worker" { self.chiefs() + self.index } else { self.index }
    }

    /// Returns the number of workers, including the chief. A worker that knows only itself counts those before it.
    pub fn workers(&self) -> u32 {
        let last = self.cluster.tasks().filter(|&(job, ..)| job == "worker").map(|(_, index, _)| index + 1).max();
        self.chiefs() + last.unwrap_or(0)
    }

    /// Returns the number of parameter servers.
    pub fn parameter_servers(&self) -> u32 {
        self.cluster.num_tasks("ps") as u32
    }

    /// Returns the name of the task.
    pub fn device(&self) -> String {
        format!("/job:{}/task:{}", self.job, self.index)
    }

    fn chiefs(&self) -> u32 {
        (self.cluster.num_tasks("chief") + self.cluster.num_tasks("master")) as u32
    }

    fn check(&self, source: &str, flags: &Flags) -> Result<(), Failure> {
        if !["ps", "worker", "chief", "master", EVALUATOR].contains(&self.job.as_str()) {
            let job = &self.job;
            return Err(Failure::new(format!("{source} must be ps, worker, chief, master or evaluator, not '{job}'")));
        }
        match (self.parameter_servers(), flags.is_all_reduce()) {
            (0, false) => {
                return Err(Failure::new(
                    "the cluster has no ps, and a task of `ferroflow train` needs one; without, workers train by --strategy allreduce",
                ));
            }
            (1.., true) => {
                return Err(Failure::new(
                    "the cluster has a ps, and --strategy allreduce has no use for it: every worker has all variables",
                ));
            }
            _ => {}
        }
        if self.job != EVALUATOR {
            self.cluster.task_address(&self.job, self.index)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn place(arguments: &[&str], tf_config: Option<&str>) -> Result<(Option<Place>, String), String> {
        #[derive(clap::Parser)]
        struct Whole {
            #[command(flatten)]
            flags: Flags,
        }
        let words = ["train"].iter().chain(arguments);
        let whole = <Whole as clap::Parser>::try_parse_from(words).map_err(|error| error.to_string())?;
        let said = RefCell::new(String::new());
        let place = Place::of(&whole.flags, tf_config, |line| said.borrow_mut().push_str(line));
        place.map(|place| (place, said.into_inner())).map_err(|failure| failure.message)
    }

    #[test]
    fn the_chief_is_worker_0() {
        let cluster = r#"{"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}, "task": {"type": "JOB", "index": 0}}"#;
        for (job, number) in [("chief", 0), ("worker", 1)] {
            let (place, said) = place(&[], Some(&cluster.replace("JOB", job))).unwrap();
            let place = place.unwrap();
            assert_eq!((place.number(), place.workers(), place.parameter_servers()), (number, 3, 1));
            assert_eq!(said, format!("/job:{job}/task:0: the cluster and the task are those of TF_CONFIG"));
        }
    }

    #[test]
    fn a_worker_that_knows_only_itself() {
        let sparse = r#"{"cluster": {"worker": {"1": "b:2"}, "ps": ["d:4"]}, "task": {"type": "worker", "index": 1}}"#;
        let place = place(&[], Some(sparse)).unwrap().0.unwrap();
        assert_eq!((place.number(), place.workers()), (1, 2));
    }

    #[test]
    fn flags_win() {
        let told = r#"{"cluster": {"chief": ["a:1"], "ps": ["b:2", "c:3"]}, "task": {"type": "ps", "index": 0}}"#;
        let hosts = ["--ps_hosts=x:1", "--worker_hosts=y:1", "--job_name=worker", "--task_index=0"];
        let (by_flags, said) = place(&hosts, Some(told)).unwrap();
        assert_eq!(by_flags.unwrap().device(), "/job:worker/task:0");
        assert!(said.contains("TF_CONFIG is set, too, and not used"), "{said}");
        let (other, said) = place(&["--task_index=1"], Some(told)).unwrap();
        assert_eq!(other.unwrap().device(), "/job:ps/task:1");
        assert!(said.contains("flags say which task this is"), "{said}");
        assert!(place(&["--processes=true"], Some(told)).unwrap().0.is_none());
        assert!(place(&[], None).unwrap().0.is_none());
    }

    #[test]
    fn mistakes_are_named() {
        let told =
            |job: &str| format!(r#"{{"cluster": {{"chief": ["a:1"], "x": ["b:2"]}}, "task": {{"type": "{job}"}}}}"#);
        assert!(
            place(&[], Some(&told("x")))
                .unwrap_err()
                .contains("must be ps, worker, chief, master or evaluator, not 'x'")
        );
        assert!(place(&[], Some(&told("chief"))).unwrap_err().contains("has no ps"));
        assert!(place(&[], Some(&told("evaluator"))).unwrap_err().contains("has no ps"));
        assert!(place(&[], Some("{")).unwrap_err().contains("is not JSON"));
        assert!(place(&["--job_name=ps", "--ps_hosts=a:1"], None).unwrap_err().contains("--worker_hosts is missing"));
    }
}
