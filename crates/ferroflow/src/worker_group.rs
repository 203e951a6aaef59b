//! [`WorkerGroup`]: the workers that train together as equals, and this task's rank among them.

use crate::session::SessionConfig;
use cluster::{ClusterSpec, ServerConfig, TfConfig};
use proto::ConfigProto;
use tensor::{Result, Status};

/// The jobs whose tasks train, in the order of their ranks.
const TRAINING_JOBS: [&str; 3] = ["chief", "master", "worker"];

/// The workers that train together as equals: all tasks of the jobs `chief`, `master` and `worker`. The first one is the chief,
/// which also leads the collective groups.
///
/// ```
/// use ferroflow::distributed::{ClusterSpec, ServerConfig, WorkerGroup};
///
/// let cluster = ClusterSpec::new().with_job("worker", &["host0:2222", "host1:2222"])?;
/// let group = WorkerGroup::new(&cluster, "worker", 1)?;
/// assert_eq!((group.size(), group.rank(), group.is_chief()), (2, 1, false));
/// assert_eq!(group.device(), "/job:worker/task:1");
/// let config = group.server_config(ServerConfig::new(cluster, "worker", 1)?);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGroup {
    /// The names of the tasks, in the order of their ranks.
    tasks: Vec<String>,
    rank: usize,
    /// How few and how many workers may train, if their number may change.
    bounds: Option<(usize, usize)>,
    /// Whether there are parameter servers, which may hold some of the variables.
    has_ps: bool,
}

impl WorkerGroup {
    /// Returns the workers of a cluster that includes this task.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, WorkerGroup};
    ///
    /// let cluster = ClusterSpec::new().with_job("ps", &["a:1"])?.with_job("chief", &["b:1"])?.with_job("worker", &["c:1"])?;
    /// assert!(WorkerGroup::new(&cluster, "chief", 0)?.is_chief());
    /// assert_eq!(WorkerGroup::new(&cluster, "worker", 0)?.rank(), 1);
    /// assert!(WorkerGroup::new(&cluster, "ps", 0).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(cluster: &ClusterSpec, job: &str, task_index: u32) -> Result<WorkerGroup> {
        cluster.task_address(job, task_index)?;
        let of_job = |job: &'static str| cluster.tasks().filter(move |(other, ..)| *other == job);
        let tasks: Vec<String> =
            TRAINING_JOBS.into_iter().flat_map(of_job).map(|(job, index, _)| task(job, index)).collect();
        let own = task(job, task_index);
        let rank = tasks.iter().position(|task| *task == own).ok_or_else(|| {
            Status::invalid_argument(format!("{own} doesn't train: only tasks of the jobs chief, master and worker do"))
        })?;
        Ok(WorkerGroup { tasks, rank, bounds: None, has_ps: cluster.num_tasks("ps") > 0 })
    }

    /// Returns the workers of the cluster that `TF_CONFIG` describes.
    ///
    /// ```
    /// use ferroflow::distributed::{TfConfig, WorkerGroup};
    ///
    /// let told = r#"{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}"#;
    /// let group = WorkerGroup::from_tf_config(&TfConfig::parse(told)?)?;
    /// assert_eq!((group.size(), group.rank()), (2, 1));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn from_tf_config(config: &TfConfig) -> Result<WorkerGroup> {
        WorkerGroup::new(&config.cluster, &config.job, config.task_index)
    }

    /// Returns the group of a single worker: a program that trains alone, in its own process.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    ///
    /// assert_eq!(WorkerGroup::alone().size(), 1);
    /// ```
    pub fn alone() -> WorkerGroup {
        WorkerGroup { tasks: vec![String::new()], rank: 0, bounds: None, has_ps: false }
    }

    /// Lets the number of workers change while they train: the others go on when one is lost, as long as there are `min`, and one that
    /// comes, or comes back, takes part again, up to `max`. The group has all that may ever train; those above `max` stand by. The chief
    /// decides who takes part, so it must be there: without it the others wait, and go on with the variables that they have when it is
    /// back.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, WorkerGroup};
    ///
    /// let cluster = ClusterSpec::new().with_job("worker", &["a:1", "b:1", "c:1"])?;
    /// let group = WorkerGroup::new(&cluster, "worker", 1)?.elastic(2, 3)?;
    /// assert_eq!(group.bounds(), Some((2, 3)));
    /// assert!(group.elastic(3, 2).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn elastic(mut self, min: usize, max: usize) -> Result<WorkerGroup> {
        let all = self.size();
        if min == 0 || min > max || max > all {
            return Err(Status::invalid_argument(format!(
                "{min} to {max} workers can't train: it takes at least one, and the cluster has {all}"
            )));
        }
        self.bounds = Some((min, max));
        Ok(self)
    }

    /// Returns how few and how many workers may train, if their number may change.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    ///
    /// assert_eq!(WorkerGroup::alone().bounds(), None);
    /// ```
    pub fn bounds(&self) -> Option<(usize, usize)> {
        self.bounds
    }

    /// Returns the number of workers.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    ///
    /// let batch = 128 / WorkerGroup::alone().size();
    /// assert_eq!(batch, 128);
    /// ```
    pub fn size(&self) -> usize {
        self.tasks.len()
    }

    /// Returns this worker's rank, from 0.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    ///
    /// assert_eq!(WorkerGroup::alone().rank(), 0);
    /// ```
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns whether this worker is the chief, which gives the others the initial values of the variables and saves
    /// checkpoints.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    ///
    /// assert!(WorkerGroup::alone().is_chief());
    /// ```
    pub fn is_chief(&self) -> bool {
        self.rank == 0
    }

    /// Returns this worker's device, which holds its graph and its variables.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, WorkerGroup};
    /// use ferroflow::prelude::*;
    ///
    /// let cluster = ClusterSpec::new().with_job("worker", &["a:1", "b:1"])?;
    /// let g = Graph::new();
    /// let w = g.device(WorkerGroup::new(&cluster, "worker", 1)?.device(), |g| Variable::new(g, "w", &g.constant(1f32)));
    /// assert_eq!(w.op().device(), "/job:worker/task:1");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn device(&self) -> &str {
        self.tasks.get(self.rank).map_or("", String::as_str)
    }

    /// Returns the device of a worker.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, WorkerGroup};
    ///
    /// let cluster = ClusterSpec::new().with_job("worker", &["a:1", "b:1"])?;
    /// assert_eq!(WorkerGroup::new(&cluster, "worker", 1)?.device_of(0), Some("/job:worker/task:0"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn device_of(&self, rank: usize) -> Option<&str> {
        self.tasks.get(rank).map(String::as_str)
    }

    /// Returns the settings of this task's server, with the chief as the leader of collective groups.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, ServerConfig, WorkerGroup, start_server_with, stop};
    ///
    /// let cluster = ClusterSpec::new().with_job("worker", &["127.0.0.1:0"])?;
    /// let group = WorkerGroup::new(&cluster, "worker", 0)?;
    /// let server = start_server_with(group.server_config(ServerConfig::new(cluster, "worker", 0)?))?;
    /// stop(&server)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn server_config(&self, mut config: ServerConfig) -> ServerConfig {
        config.default_session_config = self.with_leader(config.default_session_config);
        config
    }

    /// Returns the settings of this worker's sessions: they are about its own task and parameter servers, if there are any, and know the
    /// leader of collective groups. In an elastic group they are also about the chief, which the worker asks to take part.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::{Graph, Session, SessionConfig};
    ///
    /// let config: SessionConfig = WorkerGroup::alone().session_config(SessionConfig::new());
    /// let session = Session::connect_with(&Graph::new(), "", config)?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn session_config(&self, config: SessionConfig) -> SessionConfig {
        let mut config = self.with_leader(config.into());
        if !self.device().is_empty() {
            config.device_filters = vec![self.device().to_owned()];
            config.device_filters.extend(self.has_ps.then(|| "/job:ps".to_owned()));
            let chief = self.tasks.first().filter(|_| self.bounds.is_some() && !self.is_chief());
            config.device_filters.extend(chief.cloned());
        }
        config.into()
    }

    fn with_leader(&self, mut config: ConfigProto) -> ConfigProto {
        if let Some(leader) = self.tasks.first().filter(|leader| !leader.is_empty()) {
            let leader = leader.replace("/task", "/replica:0/task");
            config.experimental.get_or_insert_default().collective_group_leader = leader;
        }
        config
    }
}

fn task(job: &str, index: u32) -> String {
    format!("/job:{job}/task:{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chief_leads_and_sessions_are_about_one_task() {
        let cluster = ClusterSpec::new().with_job("chief", &["a:1"]).unwrap().with_job("worker", &["b:1"]).unwrap();
        let group = WorkerGroup::new(&cluster, "worker", 0).unwrap();
        assert_eq!(group.device_of(0), Some("/job:chief/task:0"));
        let session = ConfigProto::from(group.session_config(SessionConfig::new().allow_soft_placement(true)));
        assert_eq!(session.device_filters, ["/job:worker/task:0"]);
        assert!(session.allow_soft_placement);
        let server = group.server_config(ServerConfig::new(cluster, "worker", 0).unwrap()).default_session_config;
        assert_eq!(server.experimental.unwrap().collective_group_leader, "/job:chief/replica:0/task:0");
        assert!(server.device_filters.is_empty());
    }
}
