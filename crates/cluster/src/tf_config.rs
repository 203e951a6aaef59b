//! [`TfConfig`]: the environment variable `TF_CONFIG`: the cluster, and which of its tasks this process is.

use crate::{ClusterSpec, ServerConfig};
use serde_json::{Map, Value};
use tensor::{Result, Status};

/// The name of the environment variable.
const VARIABLE: &str = "TF_CONFIG";

/// The jobs whose only task is the chief.
const CHIEF_JOBS: [&str; 2] = ["chief", "master"];

/// The job that evaluates checkpoints. It takes no part in training, and the cluster needn't list it.
const EVALUATOR: &str = "evaluator";

/// The number of characters of a faulty text that are shown before and after the fault.
const SHOWN: usize = 40;

/// The value of `TF_CONFIG`.
///
/// ```
/// let config = cluster::TfConfig::parse(
///     r#"{"cluster": {"chief": ["a:1"], "ps": ["b:2"]}, "task": {"type": "evaluator", "index": 0}}"#,
/// )?;
/// assert!(config.is_evaluator() && !config.is_chief());
/// assert_eq!(config.chief(), Some(("chief", 0)));
/// # Ok::<(), tensor::Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfConfig {
    /// The cluster.
    pub cluster: ClusterSpec,
    /// The job of this process.
    pub job: String,
    /// The index of this process in its job.
    pub task_index: u32,
}

impl TfConfig {
    /// Reads the environment variable; returns `None` if it isn't set or is empty.
    pub fn from_env() -> Result<Option<TfConfig>> {
        match std::env::var(VARIABLE) {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => TfConfig::parse(&text).map(Some),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(wrong("", "it is not text in UTF-8")),
        }
    }

    /// Parses the value of the variable. The error for a mistake shows its position.
    pub fn parse(text: &str) -> Result<TfConfig> {
        TfConfig::parse_with_task(text, None, None)
    }

    /// Parses the value of the variable when the task, or half of it, is given elsewhere, so that the variable needn't contain
    /// it.
    pub fn parse_with_task(text: &str, job: Option<&str>, task_index: Option<u32>) -> Result<TfConfig> {
        let value: Value = serde_json::from_str(text).map_err(|error| not_json(text, &error))?;
        let Value::Object(entries) = &value else {
            return Err(wrong("", format!("{} is not an object with 'cluster' and 'task'", shortened(&value))));
        };
        let cluster = match entries.get("cluster") {
            None | Some(Value::Null) => return Err(wrong("", "it has no 'cluster'")),
            Some(jobs) => ClusterSpec::from_json_value(jobs).map_err(|status| status.context(VARIABLE))?,
        };
        if cluster.is_empty() {
            return Err(wrong("cluster", "it has no tasks"));
        }
        check_chief(&cluster)?;
        let no_task = Map::new();
        let task = match entries.get("task") {
            None | Some(Value::Null) if job.is_none() => return Err(wrong("", "it has no 'task'")),
            None | Some(Value::Null) => &no_task,
            Some(Value::Object(task)) => task,
            Some(other) => {
                return Err(wrong("task", format!("{} is not an object with 'type' and 'index'", shortened(other))));
            }
        };
        let job = match task.get("type") {
            _ if job.is_some() => job.unwrap_or_default().to_owned(),
            Some(Value::String(job)) if !job.is_empty() => job.clone(),
            None | Some(Value::Null | Value::String(_)) => return Err(wrong("task", "it has no 'type'")),
            Some(other) => return Err(wrong("task.type", format!("{} is not a job's name", shortened(other)))),
        };
        let task_index = task_index.map_or_else(|| index_of(task), Ok)?;
        let is_listed = cluster.num_tasks(&job) > 0;
        if is_listed || job != EVALUATOR {
            cluster.task_address(&job, task_index).map_err(|status| {
                let place = if is_listed { "task.index" } else { "task.type" };
                wrong(place, status.message())
            })?;
        }
        Ok(TfConfig { cluster, job, task_index })
    }

    /// Returns the chief: the only task of job `chief` or `master`, or else worker 0.
    pub fn chief(&self) -> Option<(&str, u32)> {
        self.cluster.chief()
    }

    /// Returns whether this process is the chief.
    pub fn is_chief(&self) -> bool {
        self.chief() == Some((self.job.as_str(), self.task_index))
    }

    /// Returns whether this process is an evaluator.
    pub fn is_evaluator(&self) -> bool {
        self.job == EVALUATOR
    }

    /// Returns the configuration of this process's server. An evaluator that isn't in the cluster is a cluster of its own, on a
    /// free port.
    pub fn server_config(&self) -> Result<ServerConfig> {
        if self.is_evaluator() && self.cluster.address(&self.job, self.task_index).is_none() {
            let mut cluster = ClusterSpec::new();
            cluster.add_task(&self.job, self.task_index, "localhost:0")?;
            return ServerConfig::new(cluster, &self.job, self.task_index);
        }
        ServerConfig::new(self.cluster.clone(), &self.job, self.task_index)
    }
}

impl ClusterSpec {
    /// Returns the chief: the only task of job `chief` or `master`, or else worker 0.
    pub fn chief(&self) -> Option<(&str, u32)> {
        let leads = |job: &str, index: u32| CHIEF_JOBS.contains(&job) || (job == "worker" && index == 0);
        // Sorted by name, the chief and the master come before the worker.
        self.tasks().find(|&(job, index, _)| leads(job, index)).map(|(job, index, _)| (job, index))
    }
}

fn check_chief(cluster: &ClusterSpec) -> Result<()> {
    let chiefs: Vec<&str> = CHIEF_JOBS.into_iter().filter(|job| cluster.num_tasks(job) > 0).collect();
    if chiefs.len() > 1 {
        return Err(wrong("cluster", "it has a 'chief' and a 'master', and only one task can lead"));
    }
    match chiefs.first() {
        Some(job) if cluster.num_tasks(job) > 1 => {
            Err(wrong(&format!("cluster.{job}"), format!("it has {} tasks and may have one", cluster.num_tasks(job))))
        }
        _ => Ok(()),
    }
}

/// Parses the task index, which may be a number or a string, or be omitted for the first task of a job.
fn index_of(task: &Map<String, Value>) -> Result<u32> {
    let number = match task.get("index") {
        None | Some(Value::Null) => Some(0),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_u64().and_then(|index| u32::try_from(index).ok()),
    };
    number.ok_or_else(|| {
        let given = task.get("index").map(shortened).unwrap_or_default();
        wrong("task.index", format!("{given} is not a task number"))
    })
}

fn wrong(place: &str, what: impl std::fmt::Display) -> Status {
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    Status::invalid_argument(format!("{VARIABLE}: {place}{what}"))
}

/// Shows where a text stops being JSON.
fn not_json(text: &str, error: &serde_json::Error) -> Status {
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    // The parser counts bytes, and has consumed the faulty one.
    let fault = line.char_indices().take_while(|(at, _)| at + 1 < error.column()).count();
    let start = fault.saturating_sub(SHOWN);
    let shown: String = line.chars().skip(start).take(2 * SHOWN).collect();
    let caret = " ".repeat(fault - start);
    Status::invalid_argument(format!("{VARIABLE} is not JSON: {error}\n    {shown}\n    {caret}^"))
}

fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(cluster: &str, task: &str) -> Result<TfConfig> {
        TfConfig::parse(&format!(r#"{{"cluster": {cluster}, "task": {task}}}"#))
    }

    fn message(text: &str) -> String {
        TfConfig::parse(text).unwrap_err().message().to_owned()
    }

    #[test]
    fn every_kind_of_task() {
        let cluster = r#"{"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4", "e:5"]}"#;
        for (task, is_chief) in
            [(("chief", 0), true), (("worker", 0), false), (("worker", 1), false), (("ps", 1), false)]
        {
            let (job, index) = task;
            let config = parsed(cluster, &format!(r#"{{"type": "{job}", "index": {index}}}"#)).unwrap();
            assert_eq!((config.job.as_str(), config.task_index, config.is_chief()), (job, index, is_chief));
            let server = config.server_config().unwrap();
            assert_eq!((server.job.as_str(), server.task_index, server.cluster.num_tasks("ps")), (job, index, 2));
        }
        let master = parsed(r#"{"master": ["a:1"], "ps": ["d:4"]}"#, r#"{"type": "master"}"#).unwrap();
        assert!(master.is_chief());
        let first = parsed(r#"{"worker": ["a:1"], "ps": ["d:4"]}"#, r#"{"type": "worker", "index": "0"}"#).unwrap();
        assert!(first.is_chief());
        assert_eq!(parsed(r#"{"ps": ["d:4"]}"#, r#"{"type": "ps"}"#).unwrap().chief(), None);
    }

    #[test]
    fn an_evaluator_outside_the_cluster_is_a_cluster_of_its_own() {
        let outside = parsed(r#"{"chief": ["a:1"]}"#, r#"{"type": "evaluator", "index": 3}"#).unwrap();
        assert!(outside.is_evaluator());
        let server = outside.server_config().unwrap();
        assert_eq!(server.cluster.tasks().collect::<Vec<_>>(), [("evaluator", 3, "localhost:0")]);
        let cluster = r#"{"chief": ["a:1"], "evaluator": ["b:2"]}"#;
        let inside = parsed(cluster, r#"{"type": "evaluator", "index": 0}"#).unwrap();
        assert_eq!(inside.server_config().unwrap().cluster.address("evaluator", 0), Some("b:2"));
        let beyond = parsed(cluster, r#"{"type": "evaluator", "index": 1}"#).unwrap_err();
        assert!(beyond.message().contains("task.index: job 'evaluator' has no task 1"), "{beyond}");
    }

    #[test]
    fn a_worker_may_know_only_itself_and_the_parameter_servers() {
        let cluster = r#"{"worker": {"1": "b:2"}, "ps": ["d:4"]}"#;
        let config = parsed(cluster, r#"{"type": "worker", "index": 1}"#).unwrap();
        assert_eq!(config.server_config().unwrap().cluster.address("worker", 1), Some("b:2"));
        assert_eq!(config.chief(), None);
        let other = parsed(cluster, r#"{"type": "worker", "index": 0}"#).unwrap_err();
        assert!(other.message().contains("task.index: job 'worker' has no task 0; its tasks are 1"), "{other}");
    }

    #[test]
    fn the_task_may_come_from_elsewhere() {
        let text = r#"{"cluster": {"ps": ["a:1", "b:2"], "worker": ["c:3"]}, "task": {"type": "ps", "index": 1}}"#;
        let task =
            |job, index| TfConfig::parse_with_task(text, job, index).map(|config| (config.job, config.task_index));
        assert_eq!(task(None, Some(0)).unwrap(), ("ps".to_owned(), 0));
        assert_eq!(task(Some("worker"), Some(0)).unwrap(), ("worker".to_owned(), 0));
        assert!(task(Some("worker"), None).unwrap_err().message().contains("job 'worker' has no task 1"));
        let without = r#"{"cluster": {"ps": ["a:1"]}}"#;
        assert_eq!(TfConfig::parse_with_task(without, Some("ps"), None).unwrap().job, "ps");
    }

    #[test]
    fn what_is_wrong_is_shown_with_its_place() {
        let cluster = r#""cluster": {"chief": ["a:1"], "ps": ["b:2"]}"#;
        let with_task = |task: &str| message(&format!("{{{cluster}, \"task\": {task}}}"));
        let broken = message(r#"{"cluster": {"ps": ["a:1"]} "task": {}}"#);
        assert!(broken.contains("is not JSON: expected `,` or `}` at line 1 column 29"), "{broken}");
        let lines: Vec<&str> = broken.lines().collect();
        assert_eq!(lines[1].chars().nth(lines[2].chars().count() - 1), Some('"'), "{broken}");
        for (text, part) in [
            ("", "is not JSON: EOF"),
            ("[]", "TF_CONFIG: [] is not an object"),
            ("{}", "no 'cluster'"),
            (r#"{"cluster": {}}"#, "cluster: it has no tasks"),
            (r#"{"cluster": {"ps": ["b"]}}"#, "task 0 of job 'ps' ('b'): the address has no port"),
            (r#"{"cluster": {"ps": ["b:2"]}}"#, "no 'task'"),
            (r#"{"cluster": {"chief": ["a:1", "b:2"]}}"#, "cluster.chief: it has 2 tasks and may have one"),
            (r#"{"cluster": {"chief": ["a:1"], "master": ["b:2"]}}"#, "a 'chief' and a 'master'"),
        ] {
            assert!(message(text).contains(part), "{text}: {}", message(text));
        }
        for (task, part) in [
            ("3", "task: 3 is not an object"),
            ("{}", "task: it has no 'type'"),
            (r#"{"type": 7}"#, "task.type: 7 is not a job's name"),
            (r#"{"type": "worker"}"#, "task.type: the cluster has no job 'worker'; its jobs are chief, ps"),
            (r#"{"type": "ps", "index": 1}"#, "task.index: job 'ps' has no task 1; its tasks are 0"),
            (r#"{"type": "ps", "index": -1}"#, "task.index: -1 is not a task number"),
            (r#"{"type": "ps", "index": "x"}"#, "task.index: \"x\" is not a task number"),
            (r#"{"type": "ps", "index": 0.5}"#, "task.index: 0.5 is not a task number"),
        ] {
            assert!(with_task(task).contains(part), "{task}: {}", with_task(task));
        }
    }

    #[test]
    fn a_long_text_is_shown_around_the_fault() {
        let text = format!(r#"{{"{}": ä, "x": 1}}"#, "ü".repeat(500));
        let shown = message(&text);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[1].chars().count() <= 4 + 2 * SHOWN, "{shown}");
        assert_eq!(lines[1].chars().nth(lines[2].chars().count() - 1), Some('ä'), "{shown}");
    }
}
