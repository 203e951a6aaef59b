//! The flags of `ferroflow train`: its own, and those of TensorFlow's training scripts, with the same spelling.

use crate::Failure;
use crate::listen::ListenFlags;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// The model to train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelKind {
    /// One hidden layer.
    Mlp,
    /// Two convolutions and a hidden layer.
    Cnn,
    /// Convolutions and a bidirectional LSTM that read strips of digits, with CTC.
    Crnn,
    /// A linear model combined with a network, on census rows.
    #[value(name = "wide_deep")]
    WideDeep,
}

/// How the workers train one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StrategyKind {
    /// Parameter servers hold the variables.
    Ps,
    /// Every worker has all variables, and all apply the mean of all gradients, without parameter servers.
    Allreduce,
}

/// What to train, and how. With --job_name, this process is one task of a cluster; without it, it starts all tasks itself.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// The data: census rows for wide_deep, otherwise digits.
    #[arg(default_value = "mnist", value_parser = ["mnist"])]
    pub what: String,
    /// How the workers train one model.
    #[arg(long, value_enum, default_value = "ps")]
    pub strategy: StrategyKind,
    /// The number of parameter servers to start; the default is 1.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub ps: Option<u32>,
    /// The number of workers to start.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub workers: u32,
    /// With --strategy allreduce: if a worker is lost, the others continue as long as at least this many are left.
    #[arg(long = "min_workers", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub min_workers: Option<u32>,
    /// With --strategy allreduce: workers may join while others train, up to this many; further ones stand by.
    #[arg(long = "max_workers", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub max_workers: Option<u32>,
    /// Starts a process for every task, instead of running all tasks in this process.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", value_parser = boolean)]
    pub processes: bool,
    /// The model.
    #[arg(long, value_enum, default_value = "mlp")]
    pub model: ModelKind,
    /// The job of this task: ps or worker.
    #[arg(long = "job_name", value_name = "JOB")]
    pub job_name: Option<String>,
    /// The index of this task in its job; worker 0 is the chief.
    #[arg(long = "task_index", value_name = "INDEX")]
    pub task_index: Option<u32>,
    /// The parameter servers: host:port,host:port.
    #[arg(long = "ps_hosts", value_name = "HOSTS")]
    pub ps_hosts: Option<String>,
    /// The workers: host:port,host:port.
    #[arg(long = "worker_hosts", value_name = "HOSTS")]
    pub worker_hosts: Option<String>,
    /// Averages the workers' gradients before they are applied.
    #[arg(long = "sync_replicas", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_parser = boolean)]
    pub sync_replicas: Option<bool>,
    /// The same as --sync_replicas, under the name that other scripts use: 1 or 0.
    #[arg(long = "issync", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true",
          value_parser = boolean)]
    pub issync: Option<bool>,
    /// The number of gradients that are averaged; the default is the number of workers.
    #[arg(long = "replicas_to_aggregate", value_name = "COUNT", value_parser = clap::value_parser!(i32).range(1..=4096))]
    pub replicas_to_aggregate: Option<i32>,
    /// The units of the hidden layer.
    #[arg(long = "hidden_units", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    pub hidden_units: i64,
    /// Ends training at this global step.
    #[arg(long = "train_steps", value_name = "STEPS", value_parser = clap::value_parser!(i64).range(1..))]
    pub train_steps: Option<i64>,
    /// The number of digits, strips of digits or rows in a batch.
    #[arg(long = "batch_size", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub batch_size: u64,
    /// The learning rate.
    #[arg(long = "learning_rate", value_name = "RATE")]
    pub learning_rate: Option<f64>,
    /// A directory with the full MNIST set as idx files, gzipped or not, or with adult.csv for wide_deep; the default is the bundled data.
    #[arg(long = "data_dir", value_name = "DIR")]
    pub data_dir: Option<String>,
    /// A directory for checkpoints and events; training resumes from its latest checkpoint.
    #[arg(long, value_name = "DIR")]
    pub logdir: Option<String>,
    /// The interval at which checkpoints are saved and evaluated. The default is ten times in a short training, every 30 s in a long one.
    #[arg(long = "save_checkpoint_secs", value_name = "SECONDS", conflicts_with = "eval_every")]
    pub save_checkpoint_secs: Option<f64>,
    /// Saves and evaluates a checkpoint whenever this many steps were done.
    #[arg(long = "eval_every", value_name = "STEPS", value_parser = clap::value_parser!(i64).range(1..))]
    pub eval_every: Option<i64>,
    /// Exports the model as a SavedModel below this directory at the end.
    #[arg(long, value_name = "DIR")]
    pub export: Option<String>,
    /// Uses the server that already runs at this worker's address, instead of starting one.
    #[arg(long = "existing_servers", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub existing_servers: bool,
    /// Accepted so that existing scripts run; it has no effect, since everything runs on CPUs.
    #[arg(long = "num_gpus", value_name = "COUNT", default_value_t = 0)]
    pub num_gpus: u32,
    /// Checks the data, and exits.
    #[arg(long = "download_only", value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_parser = boolean)]
    pub download_only: bool,
    #[command(flatten)]
    pub listen: ListenFlags,
    #[command(flatten)]
    pub status: crate::status::StatusFlags,
    /// Reports progress to a parent process.
    #[arg(long, hide = true)]
    pub reports: bool,
    #[command(flatten)]
    pub memory: crate::memory::MemoryFlags,
}

impl Flags {
    /// Returns whether the workers' gradients are averaged on parameter servers.
    pub fn is_sync(&self) -> bool {
        self.sync_replicas.or(self.issync).unwrap_or(false)
    }

    /// Returns whether the workers train by all-reduce.
    pub fn is_all_reduce(&self) -> bool {
        self.strategy == StrategyKind::Allreduce
    }

    /// Returns the number of parameter servers to start.
    pub fn num_ps(&self) -> u32 {
        if self.is_all_reduce() { 0 } else { self.ps.unwrap_or(1) }
    }

    /// Returns the bounds of the number of workers, of which there are `workers`, if it may change.
    pub fn bounds(&self, workers: u32) -> Option<(usize, usize)> {
        let is_elastic = self.min_workers.is_some() || self.max_workers.is_some();
        let (min, max) = (self.min_workers.unwrap_or(1), self.max_workers.unwrap_or(workers));
        is_elastic.then_some((min as usize, max as usize))
    }

    /// Returns an error for flags that the strategy doesn't use.
    pub fn check_strategy(&self) -> Result<(), Failure> {
        let of_ps = [
            ("--ps", self.ps.is_some()),
            ("--ps_hosts", self.ps_hosts.is_some()),
            ("--sync_replicas", self.is_sync()),
            ("--replicas_to_aggregate", self.replicas_to_aggregate.is_some()),
            ("--existing_servers", self.existing_servers),
        ];
        let of_all_reduce =
            [("--min_workers", self.min_workers.is_some()), ("--max_workers", self.max_workers.is_some())];
        let given =
            |flags: &[(&'static str, bool)]| flags.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag);
        match self.strategy {
            StrategyKind::Allreduce => {
                if let Some(flag) = given(&of_ps) {
                    let why = match flag {
                        "--existing_servers" => {
                            "the servers of all workers must know which of them leads, and are started here"
                        }
                        "--ps" | "--ps_hosts" => "every worker has all variables, and there are no parameter servers",
                        _ => "gradients are always averaged, over all workers",
                    };
                    return Err(Failure::new(format!("{flag} doesn't go with --strategy allreduce: {why}")));
                }
                if self.job_name.as_deref() == Some("ps") {
                    return Err(Failure::new(
                        "--strategy allreduce has no parameter servers: --job_name must be worker",
                    ));
                }
            }
            StrategyKind::Ps => {
                if let Some(flag) = given(&of_all_reduce) {
                    return Err(Failure::new(format!("{flag} needs --strategy allreduce")));
                }
            }
        }
        match (self.min_workers, self.max_workers) {
            (Some(min), Some(max)) if min > max => {
                Err(Failure::new(format!("--min_workers is {min}, which is more than --max_workers, {max}")))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether every step applies the mean of several gradients.
    fn is_averaged(&self) -> bool {
        self.is_sync() || self.is_all_reduce()
    }

    /// Returns the step at which training ends; with the default, training takes less than a minute.
    pub fn last_step(&self) -> i64 {
        self.train_steps.unwrap_or(match (self.model, self.is_averaged()) {
            (ModelKind::Mlp, false) => 3000,
            (ModelKind::Mlp, true) => 1500,
            (ModelKind::Cnn, false) => 1500,
            (ModelKind::Cnn, true) => 700,
            (ModelKind::Crnn, false) => 800,
            (ModelKind::Crnn, true) => 400,
            (ModelKind::WideDeep, _) => 3000,
        })
    }

    /// Returns the learning rate.
    pub fn rate(&self) -> f64 {
        self.learning_rate.unwrap_or(match (self.model, self.is_averaged()) {
            // Gradients that aren't averaged are noisier.
            (ModelKind::Mlp, false) => 0.005,
            (ModelKind::Mlp, true) => 0.01,
            (ModelKind::Cnn, _) => 0.002,
            (ModelKind::Crnn, _) => 0.005,
            // For Adagrad and Ftrl, not Adam.
            (ModelKind::WideDeep, _) => 0.05,
        })
    }
}

/// The boolean flags, which can be negated.
const BOOLEANS: &[&str] = &["sync_replicas", "issync", "existing_servers", "download_only", "processes"];

/// Parses booleans as absl does.
fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "y" => Ok(true),
        "false" | "f" | "0" | "no" | "n" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// Returns the arguments of `train` in this program's spelling: users write `-` or `_`, one dash or two, and `--noflag` for
/// `--flag=false`.
pub fn spelled(arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "train") {
        return arguments;
    }
    let one = |argument: OsString| {
        let Some(text) = argument.to_str() else { return argument };
        let is_flag = |rest: &str| rest.len() > 1 && rest.starts_with(|c: char| c.is_ascii_alphabetic());
        let flag = text.strip_prefix("--").or_else(|| text.strip_prefix('-').filter(|rest| is_flag(rest)));
        let Some(flag) = flag else { return argument };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
        let name = name.replace('-', "_");
        if let (Some(positive), None) = (name.strip_prefix("no"), value)
            && BOOLEANS.contains(&positive)
        {
            return format!("--{positive}=false").into();
        }
        value.map_or(format!("--{name}"), |value| format!("--{name}={value}")).into()
    };
    arguments.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(arguments: &[&str]) -> Result<Flags, String> {
        #[derive(clap::Parser)]
        struct Whole {
            #[command(flatten)]
            flags: Flags,
        }
        let mut words = spelled(["ferroflow", "train"].iter().chain(arguments).map(OsString::from).collect());
        words.remove(1);
        let whole = <Whole as clap::Parser>::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(whole.flags)
    }

    #[test]
    fn booleans_as_absl_takes_them() {
        for on in ["--sync_replicas", "--sync_replicas=True", "--sync-replicas=1", "-sync_replicas=t", "--issync=1"] {
            assert!(flags(&[on]).unwrap().is_sync(), "{on}");
        }
        assert!(flags(&["--issync", "1"]).unwrap().is_sync());
        for off in ["--nosync_replicas", "--sync_replicas=False", "--issync=0", "--noissync"] {
            assert!(!flags(&[off]).unwrap().is_sync(), "{off}");
        }
        assert!(flags(&["--sync_replicas=maybe"]).unwrap_err().contains("neither true nor false"));
    }

    #[test]
    fn the_flags_of_the_scripts() {
        let given = flags(&[
            "--job_name=worker",
            "--task_index=1",
            "--ps_hosts=a:1",
            "--worker_hosts=b:2,c:3",
            "--replicas_to_aggregate=2",
            "--hidden_units=50",
            "--train_steps=7",
            "--batch_size=10",
            "--learning_rate=0.5",
            "--num_gpus=2",
            "--noexisting_servers",
        ])
        .unwrap();
        assert_eq!((given.job_name.as_deref(), given.task_index), (Some("worker"), Some(1)));
        assert_eq!((given.last_step(), given.batch_size, given.rate()), (7, 10, 0.5));
        assert!(!given.existing_servers && !given.is_sync());
    }
}
