//! [`ClusterSpec`]: the jobs of a cluster, their tasks, and the tasks' addresses.

use graph::DeviceName;
use proto::{ClusterDef, JobDef};
use serde_json::Value;
use std::collections::BTreeMap;
use tensor::{Result, Status};

/// The jobs of a cluster with the addresses of their tasks. Task numbers may have gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSpec {
    jobs: BTreeMap<String, BTreeMap<u32, String>>,
}

impl ClusterSpec {
    /// Makes an empty spec.
    pub fn new() -> ClusterSpec {
        ClusterSpec::default()
    }

    /// Adds a job whose tasks are numbered from 0.
    pub fn with_job<S: AsRef<str>>(mut self, job: &str, addresses: &[S]) -> Result<ClusterSpec> {
        for (index, address) in addresses.iter().enumerate() {
            self.add_task(job, index as u32, address.as_ref())?;
        }
        Ok(self)
    }

    /// Adds one task. An invalid job name or address, and a task or address that exists already, is an error that names it.
    pub fn add_task(&mut self, job: &str, index: u32, address: &str) -> Result<()> {
        let entry = format!("task {index} of job '{job}' ('{address}')");
        let wrong = |what: String| Err(Status::invalid_argument(format!("cluster: {entry}: {what}")));
        if DeviceName::parse(&format!("/job:{job}")).ok().and_then(|name| name.job).is_none() {
            return wrong("a job's name begins with a letter and has letters, digits, '_' and '-'".to_owned());
        }
        let address = address.trim();
        if let Err(what) = split_address(address) {
            return wrong(what);
        }
        for (other_job, other_index, other) in self.tasks() {
            if other == address {
                return wrong(format!("the address is that of task {other_index} of job '{other_job}' as well"));
            }
        }
        let tasks = self.jobs.entry(job.to_owned()).or_default();
        if tasks.insert(index, address.to_owned()).is_some() {
            return wrong("the task is given twice".to_owned());
        }
        Ok(())
    }

    /// Returns the spec of jobs whose tasks are given as `host:port,host:port`; a job without tasks is left out.
    pub fn from_hosts(jobs: &[(&str, &Option<String>)]) -> Result<ClusterSpec> {
        let mut cluster = ClusterSpec::new();
        for (job, hosts) in jobs {
            let hosts = hosts.iter().flat_map(|hosts| hosts.split(',')).map(str::trim);
            let hosts: Vec<&str> = hosts.filter(|host| !host.is_empty()).collect();
            cluster = cluster.with_job(job, &hosts)?;
        }
        Ok(cluster)
    }

    /// Parses `ps|host:port;host:port,worker|host:port`.
    pub fn parse(text: &str) -> Result<ClusterSpec> {
        let mut spec = ClusterSpec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let Some((job, addresses)) = part.split_once('|') else {
                return Err(Status::invalid_argument(format!("cluster: '{part}' is not 'job|host:port;host:port'")));
            };
            if spec.jobs.contains_key(job.trim()) {
                return Err(Status::invalid_argument(format!("cluster: the job '{job}' is given twice")));
            }
            let addresses: Vec<&str> = addresses.split(';').map(str::trim).filter(|text| !text.is_empty()).collect();
            if addresses.is_empty() {
                return Err(Status::invalid_argument(format!("cluster: the job '{job}' has no tasks")));
            }
            spec = spec.with_job(job.trim(), &addresses)?;
        }
        Ok(spec)
    }

    /// Parses JSON: `{"ps": ["host:port"], "worker": {"1": "host:port"}}`, or the same under the key `cluster`.
    pub fn from_json(text: &str) -> Result<ClusterSpec> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Status::invalid_argument(format!("cluster: this is not JSON: {error}")))?;
        ClusterSpec::from_json_value(value.get("cluster").unwrap_or(&value))
    }

    pub(crate) fn from_json_value(value: &Value) -> Result<ClusterSpec> {
        let Value::Object(jobs) = value else {
            return Err(Status::invalid_argument("cluster: the JSON must map jobs to their tasks"));
        };
        let mut spec = ClusterSpec::new();
        let text = |value: &Value, job: &str, index: &str| match value {
            Value::String(address) => Ok(address.clone()),
            other => Err(Status::invalid_argument(format!(
                "cluster: task {index} of job '{job}': {other} is not 'host:port'"
            ))),
        };
        for (job, tasks) in jobs {
            match tasks {
                Value::Array(addresses) => {
                    for (index, address) in addresses.iter().enumerate() {
                        spec.add_task(job, index as u32, &text(address, job, &index.to_string())?)?;
                    }
                }
                Value::Object(by_index) => {
                    for (index, address) in by_index {
                        let number = index.parse().map_err(|_| {
                            Status::invalid_argument(format!("cluster: job '{job}': '{index}' is not a task number"))
                        })?;
                        spec.add_task(job, number, &text(address, job, index)?)?;
                    }
                }
                // A single address, as TF_CONFIG may have it for a chief.
                Value::String(address) => spec.add_task(job, 0, address)?,
                other => {
                    return Err(Status::invalid_argument(format!(
                        "cluster: job '{job}': {other} is neither a list nor a map of tasks"
                    )));
                }
            }
        }
        Ok(spec)
    }

    /// Reads a `ClusterDef`.
    pub fn from_proto(def: &ClusterDef) -> Result<ClusterSpec> {
        let mut spec = ClusterSpec::new();
        for job in &def.job {
            for (&index, address) in &job.tasks {
                let number = u32::try_from(index).map_err(|_| {
                    Status::invalid_argument(format!("cluster: job '{}': {index} is not a task number", job.name))
                })?;
                spec.add_task(&job.name, number, address)?;
            }
        }
        Ok(spec)
    }

    /// Returns the spec as a `ClusterDef`.
    pub fn to_proto(&self) -> ClusterDef {
        let job = |(name, tasks): (&String, &BTreeMap<u32, String>)| JobDef {
            name: name.clone(),
            tasks: tasks.iter().map(|(&index, address)| (index as i32, address.clone())).collect(),
        };
        ClusterDef { job: self.jobs.iter().map(job).collect() }
    }

    /// Returns the address of a task.
    pub fn address(&self, job: &str, index: u32) -> Option<&str> {
        self.jobs.get(job)?.get(&index).map(String::as_str)
    }

    /// Returns the address of a task; the error for a missing one lists the existing ones.
    pub fn task_address(&self, job: &str, index: u32) -> Result<&str> {
        let Some(tasks) = self.jobs.get(job) else {
            let jobs: Vec<&str> = self.jobs.keys().map(String::as_str).collect();
            return Err(Status::invalid_argument(format!(
                "the cluster has no job '{job}'; its jobs are {}",
                jobs.join(", ")
            )));
        };
        tasks.get(&index).map(String::as_str).ok_or_else(|| {
            let indices: Vec<String> = tasks.keys().map(u32::to_string).collect();
            Status::invalid_argument(format!("job '{job}' has no task {index}; its tasks are {}", indices.join(", ")))
        })
    }

    /// Returns the names of the jobs, in order.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.jobs.keys().map(String::as_str)
    }

    /// Returns the number of tasks of a job.
    pub fn num_tasks(&self, job: &str) -> usize {
        self.jobs.get(job).map_or(0, BTreeMap::len)
    }

    /// Returns all tasks: job, number and address.
    pub fn tasks(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        let jobs = self.jobs.iter();
        jobs.flat_map(|(job, tasks)| tasks.iter().map(move |(&index, address)| (job.as_str(), index, address.as_str())))
    }

    /// Returns whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Replaces a task's address, for example when port 0 has become a real one.
    pub(crate) fn set_address(&mut self, job: &str, index: u32, address: String) {
        self.jobs.entry(job.to_owned()).or_default().insert(index, address);
    }
}

/// Splits `host:port`, where the host may be an IPv6 address in brackets.
pub(crate) fn split_address(address: &str) -> Result<(&str, u16), String> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err("the address has no port".to_owned());
    };
    if host.is_empty() {
        return Err("the address has no host".to_owned());
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err("an IPv6 address stands in brackets: [::1]:2222".to_owned());
    }
    if host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err("the host is not a name or an address".to_owned());
    }
    let port = port.parse().map_err(|_| format!("'{port}' is not a port number"))?;
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<ClusterSpec>) -> String {
        result.unwrap_err().message().to_owned()
    }

    #[test]
    fn all_notations_mean_the_same() {
        let spec = ClusterSpec::new().with_job("ps", &["a:1"]).unwrap().with_job("worker", &["b:2", "c:3"]).unwrap();
        assert_eq!(ClusterSpec::parse("ps|a:1,worker|b:2;c:3").unwrap(), spec);
        assert_eq!(ClusterSpec::from_json(r#"{"ps": ["a:1"], "worker": {"0": "b:2", "1": "c:3"}}"#).unwrap(), spec);
        assert_eq!(ClusterSpec::from_json(r#"{"cluster": {"ps": "a:1", "worker": ["b:2", "c:3"]}}"#).unwrap(), spec);
        assert_eq!(ClusterSpec::from_proto(&spec.to_proto()).unwrap(), spec);
        assert_eq!(spec.address("worker", 1), Some("c:3"));
    }

    #[test]
    fn gaps_are_allowed() {
        let spec = ClusterSpec::from_json(r#"{"worker": {"3": "[::1]:5"}}"#).unwrap();
        assert_eq!(spec.tasks().collect::<Vec<_>>(), [("worker", 3, "[::1]:5")]);
        assert!(spec.task_address("worker", 0).unwrap_err().message().contains("its tasks are 3"));
        assert!(spec.task_address("ps", 0).unwrap_err().message().contains("its jobs are worker"));
    }

    #[test]
    fn errors_say_which_entry_is_wrong() {
        assert!(message(ClusterSpec::parse("ps|a:1;b")).contains("task 1 of job 'ps' ('b'): the address has no port"));
        assert!(message(ClusterSpec::parse("ps|a:x")).contains("'x' is not a port number"));
        assert!(message(ClusterSpec::parse("ps|a:1,worker|a:1")).contains("that of task 0 of job 'ps'"));
        assert!(message(ClusterSpec::parse("ps|a:70000")).contains("'70000'"));
        assert!(message(ClusterSpec::parse("1ps|a:1")).contains("begins with a letter"));
        assert!(message(ClusterSpec::parse("ps:a:1")).contains("'ps:a:1'"));
        assert!(message(ClusterSpec::parse("ps|")).contains("no tasks"));
        assert!(message(ClusterSpec::parse("ps|::1:5")).contains("brackets"));
        assert!(message(ClusterSpec::from_json("{")).contains("not JSON"));
        assert!(message(ClusterSpec::from_json(r#"{"ps": [7]}"#)).contains("task 0 of job 'ps': 7"));
        assert!(message(ClusterSpec::from_json(r#"{"ps": {"x": "a:1"}}"#)).contains("'x' is not a task number"));
    }
}
