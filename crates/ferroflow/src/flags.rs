//! [`Flags`]: a program's command-line flags, in the syntax of TensorFlow's scripts.

use crate::distributed::{ClusterSpec, Server, join, start_server};
use std::collections::HashMap;
use std::str::FromStr;
use tensor::{Result, Status};

/// Flags such as `--task_index=1`, as `tf.app.flags` reads them; a flag without a value is true.
///
/// ```
/// use ferroflow::flags::Flags;
///
/// let flags = Flags::new(["--task_index=1", "--worker_hosts=a:2222,b:2222", "--sync_replicas"]);
/// assert_eq!(flags.get("task_index", 0)?, 1);
/// assert_eq!(flags.get("learning_rate", 0.01)?, 0.01);
/// assert!(flags.get("sync_replicas", false)?);
/// assert_eq!(flags.cluster()?.num_tasks("worker"), 2);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Flags(HashMap<String, String>);

impl Flags {
    /// Reads the flags of this process.
    ///
    /// ```
    /// let flags = ferroflow::flags::Flags::from_env();
    /// assert_eq!(flags.text("no_such_flag", "nothing"), "nothing");
    /// ```
    pub fn from_env() -> Flags {
        Flags::new(std::env::args().skip(1))
    }

    /// Reads flags from the given arguments.
    ///
    /// ```
    /// let flags = ferroflow::flags::Flags::new(["--logdir=/tmp/logs"]);
    /// assert_eq!(flags.text("logdir", ""), "/tmp/logs");
    /// ```
    pub fn new<S: Into<String>>(arguments: impl IntoIterator<Item = S>) -> Flags {
        let pair = |argument: S| {
            let argument = argument.into();
            let flag = argument.trim_start_matches('-');
            let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
            (name.to_owned(), value.to_owned())
        };
        Flags(arguments.into_iter().map(pair).collect())
    }

    /// Returns a number or a `bool`, or the default if the flag is not set.
    ///
    /// ```
    /// let flags = ferroflow::flags::Flags::new(["--steps=many"]);
    /// assert_eq!(flags.get("steps", 10).unwrap_err().message(), "--steps=many is not a value of the flag");
    /// ```
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.0.get(name) else { return Ok(default) };
        let wrong = |_| Status::invalid_argument(format!("--{name}={text} is not a value of the flag"));
        text.to_lowercase().parse().map_err(wrong)
    }

    /// Returns a string, or the default.
    ///
    /// ```
    /// assert_eq!(ferroflow::flags::Flags::default().text("job_name", "worker"), "worker");
    /// ```
    pub fn text(&self, name: &str, default: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }

    /// Returns the cluster that `--ps_hosts` and `--worker_hosts` name.
    ///
    /// ```
    /// let flags = ferroflow::flags::Flags::new(["--ps_hosts=a:2222", "--worker_hosts=b:2222,c:2222"]);
    /// assert_eq!(flags.cluster()?.address("worker", 1), Some("c:2222"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn cluster(&self) -> Result<ClusterSpec> {
        let hosts = |name: &str| -> Vec<String> {
            self.text(name, "").split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect()
        };
        ClusterSpec::new().with_job("ps", &hosts("ps_hosts"))?.with_job("worker", &hosts("worker_hosts"))
    }

    /// Starts the server of the task that `--job_name` and `--task_index` name. A parameter server serves until it is stopped;
    /// any other task runs `work` and returns its result.
    ///
    /// ```no_run
    /// use ferroflow::flags::Flags;
    ///
    /// let flags = Flags::from_env();
    /// let target = flags.run_task(|server, _cluster| Ok(server.target()))?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn run_task<R>(&self, work: impl FnOnce(&Server, &ClusterSpec) -> Result<R>) -> Result<Option<R>> {
        let (cluster, job) = (self.cluster()?, self.text("job_name", ""));
        let server = start_server(&cluster, &job, self.get("task_index", 0)?)?;
        if job == "ps" {
            return join(&server).map(|()| None);
        }
        work(&server, &cluster).map(Some)
    }
}
