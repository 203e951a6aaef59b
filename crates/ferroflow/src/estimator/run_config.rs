//! [`RunConfig`]: where and how a model runs: its directory, save intervals, and the cluster.

use crate::distributed::{ClusterSpec, TfConfig, WorkerGroup};
use crate::session::{SessionConfig, Target};
use crate::train::{Every, ReplicaDeviceSetter, SaverOptions};
use std::time::Duration;
use tensor::Result;

/// How the workers of a cluster train one model.
///
/// ```
/// use ferroflow::estimator::{RunConfig, Strategy};
///
/// let config = RunConfig::new("/tmp/census").strategy(Strategy::AllReduce);
/// assert_eq!((RunConfig::default().strategy, config.strategy), (Strategy::ParameterServers, Strategy::AllReduce));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Parameter servers hold the variables, and each worker updates them independently.
    #[default]
    ParameterServers,
    /// Every worker has all variables that the model doesn't place elsewhere, and all apply the mean of all gradients. This needs no
    /// parameter servers. The chief saves checkpoints.
    AllReduce,
}

/// Where and how an [`Estimator`](super::Estimator) runs. What isn't set is as in TensorFlow.
///
/// ```
/// use ferroflow::estimator::RunConfig;
/// use ferroflow::train::Every;
///
/// let config = RunConfig { save_checkpoints: Some(Every::Steps(500)), ..RunConfig::new("/tmp/census") };
/// assert_eq!((config.keep_checkpoint_max, config.is_chief()), (5, true));
/// ```
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The directory of checkpoints and events; by default a temporary one, which is not deleted.
    pub model_dir: Option<String>,
    /// The seed of the graph.
    pub tf_random_seed: Option<i64>,
    /// The interval of summaries in training; `None` means none.
    pub save_summary_steps: Option<i64>,
    /// The interval of checkpoints besides the first and the last; `None` means none at all.
    pub save_checkpoints: Option<Every>,
    /// The number of checkpoints to keep; 0 means all.
    pub keep_checkpoint_max: usize,
    /// The interval in hours at which a checkpoint is kept permanently.
    pub keep_checkpoint_every_n_hours: f64,
    /// The interval at which the loss and the step rate are logged; `None` means never.
    pub log_step_count_steps: Option<i64>,
    /// The settings of sessions.
    pub session_config: Option<SessionConfig>,
    /// The cluster, and this process's task in it; `None` means that everything runs in this process.
    pub tf_config: Option<TfConfig>,
    /// The master for training sessions. By default a task starts a server, and tells the others when it is done; with a master,
    /// both are up to the owner of the server.
    pub master: Option<Target>,
    /// How the workers train one model.
    pub strategy: Strategy,
    /// The bounds of the number of workers that train by all-reduce, if the others should continue when one is lost and admit one that
    /// joins. If it is `None`, all workers of the cluster are needed.
    pub elastic: Option<(usize, usize)>,
    /// How long a task waits until it can train: for the others, and for the chief to initialize; without end if not given.
    pub session_creation_timeout_secs: Option<u64>,
}

impl RunConfig {
    /// Returns the default settings for a model in this process.
    ///
    /// ```
    /// use ferroflow::estimator::RunConfig;
    ///
    /// assert!(RunConfig::new("/tmp/census").tf_config.is_none());
    /// ```
    pub fn new(model_dir: &str) -> RunConfig {
        RunConfig { model_dir: Some(model_dir.to_owned()), ..RunConfig::default() }
    }

    /// Returns the default settings for the task that the environment variable `TF_CONFIG` describes, or for this process if it
    /// isn't set.
    ///
    /// ```
    /// use ferroflow::estimator::RunConfig;
    ///
    /// let config = RunConfig::from_env("/tmp/census")?;
    /// println!("this is {}", config.task());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn from_env(model_dir: &str) -> Result<RunConfig> {
        Ok(RunConfig { tf_config: TfConfig::from_env()?, ..RunConfig::new(model_dir) })
    }

    /// Sets how the workers train one model.
    ///
    /// ```
    /// use ferroflow::estimator::{RunConfig, Strategy};
    ///
    /// // All workers of the cluster that TF_CONFIG describes.
    /// let config = RunConfig::from_env("/tmp/census")?.strategy(Strategy::AllReduce);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn strategy(mut self, strategy: Strategy) -> RunConfig {
        self.strategy = strategy;
        self
    }

    /// Sets the bounds of the number of workers that train by all-reduce: the others continue when one is lost, and admit one that joins.
    ///
    /// ```
    /// use ferroflow::estimator::{RunConfig, Strategy};
    ///
    /// let config = RunConfig::new("/tmp/census").strategy(Strategy::AllReduce).elastic(2, 4);
    /// assert_eq!(config.elastic, Some((2, 4)));
    /// ```
    pub fn elastic(mut self, min: usize, max: usize) -> RunConfig {
        self.elastic = Some((min, max));
        self
    }

    /// Returns whether this process initializes, saves and restores for all: it alone does unless there is a cluster.
    ///
    /// ```
    /// assert!(ferroflow::estimator::RunConfig::default().is_chief());
    /// ```
    pub fn is_chief(&self) -> bool {
        self.tf_config.as_ref().is_none_or(TfConfig::is_chief)
    }

    /// Returns the display name of this process.
    ///
    /// ```
    /// use ferroflow::distributed::TfConfig;
    /// use ferroflow::estimator::RunConfig;
    ///
    /// let told = TfConfig::parse(r#"{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}"#)?;
    /// let config = RunConfig { tf_config: Some(told), ..RunConfig::default() };
    /// assert_eq!(config.task(), "/job:ps/task:0");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn task(&self) -> String {
        match &self.tf_config {
            Some(told) => format!("/job:{}/task:{}", told.job, told.task_index),
            None => "a single process".to_owned(),
        }
    }

    /// Returns the number of parameter servers.
    ///
    /// ```
    /// assert_eq!(ferroflow::estimator::RunConfig::default().num_ps_replicas(), 0);
    /// ```
    pub fn num_ps_replicas(&self) -> u32 {
        self.cluster().map_or(0, |cluster| cluster.num_tasks("ps") as u32)
    }

    fn cluster(&self) -> Option<&ClusterSpec> {
        self.tf_config.as_ref().map(|told| &told.cluster)
    }

    /// Returns the group of workers that train as equals, if this task is one of them.
    pub(super) fn worker_group(&self) -> Result<Option<WorkerGroup>> {
        let told = self.tf_config.as_ref().filter(|told| !told.is_evaluator() && told.job != "ps");
        let (Strategy::AllReduce, Some(told)) = (self.strategy, told) else { return Ok(None) };
        let group = WorkerGroup::from_tf_config(told)?;
        match self.elastic {
            Some((min, max)) => group.elastic(min, max).map(Some),
            None => Ok(Some(group)),
        }
    }

    /// Returns what puts variables on parameter servers, for a task that trains beside some.
    pub(super) fn device_setter(&self) -> Result<Option<ReplicaDeviceSetter>> {
        if self.strategy == Strategy::AllReduce {
            return Ok(None);
        }
        let Some(told) = self.tf_config.as_ref().filter(|_| self.num_ps_replicas() > 0) else { return Ok(None) };
        if told.is_evaluator() {
            return Ok(None);
        }
        ReplicaDeviceSetter::new(self.num_ps_replicas()).worker_device(&self.task()).map(Some)
    }

    /// Returns the settings of a training task's sessions: a worker whose session included all tasks would wait for the other
    /// workers.
    pub(super) fn session_config_of_task(&self) -> SessionConfig {
        if let Some(config) = &self.session_config {
            return config.clone();
        }
        match &self.tf_config {
            Some(told) => SessionConfig::new().device_filters(["/job:ps".to_owned(), self.task_or_job(told)]),
            None => SessionConfig::new(),
        }
    }

    fn task_or_job(&self, told: &TfConfig) -> String {
        if told.job == "worker" { self.task() } else { format!("/job:{}", told.job) }
    }

    pub(super) fn saver_options(&self) -> SaverOptions {
        SaverOptions {
            // With parameter servers, each writes what it holds.
            sharded: self.num_ps_replicas() > 0 && self.strategy == Strategy::ParameterServers,
            max_to_keep: self.keep_checkpoint_max,
            keep_checkpoint_every_n_hours: self.keep_checkpoint_every_n_hours,
            ..SaverOptions::default()
        }
    }
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        RunConfig {
            model_dir: None,
            tf_random_seed: None,
            save_summary_steps: Some(100),
            save_checkpoints: Some(Every::Time(Duration::from_secs(600))),
            keep_checkpoint_max: 5,
            keep_checkpoint_every_n_hours: 10_000.0,
            log_step_count_steps: Some(100),
            session_config: None,
            tf_config: None,
            master: None,
            strategy: Strategy::ParameterServers,
            elastic: None,
            session_creation_timeout_secs: Some(7200),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(task: &str) -> RunConfig {
        let cluster = r#"{"chief": ["a:1"], "worker": ["b:2"], "ps": ["c:3", "d:4"]}"#;
        let told = TfConfig::parse(&format!(r#"{{"cluster": {cluster}, "task": {{"type": "{task}", "index": 0}}}}"#));
        RunConfig { tf_config: Some(told.unwrap()), ..RunConfig::default() }
    }

    #[test]
    fn only_tasks_that_train_put_variables_on_parameter_servers() {
        let has_setter = |task| config(task).device_setter().unwrap().is_some();
        assert!(has_setter("chief") && has_setter("worker") && !has_setter("evaluator"));
        assert!(RunConfig::default().device_setter().unwrap().is_none());
    }

    #[test]
    fn a_worker_sees_itself_and_the_parameter_servers() {
        let filters = |task| proto::ConfigProto::from(config(task).session_config_of_task()).device_filters;
        assert_eq!(filters("worker"), ["/job:ps", "/job:worker/task:0"]);
        assert_eq!(filters("chief"), ["/job:ps", "/job:chief"]);
    }
}
