//! Device names: `/job:worker/replica:0/task:1/device:CPU:0`, full or partial, in all their spellings.

use std::fmt;
use tensor::{Result, Status};

/// A full or partial device name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName {
    /// The job.
    pub job: Option<String>,
    /// The replica, which is always 0.
    pub replica: Option<u32>,
    /// The task in the job.
    pub task: Option<u32>,
    /// The device type in capitals, such as `CPU`.
    pub device_type: Option<String>,
    /// The device's number.
    pub id: Option<u32>,
}

impl DeviceName {
    /// Parses a name: `/job:ps/task:0/device:CPU:0`, `/job:ps/cpu:0`, `/gpu:1`, `/device:CPU:*`, or the empty string.
    pub fn parse(text: &str) -> Result<DeviceName> {
        let malformed = || Status::invalid_argument(format!("Malformed device specification '{text}'"));
        let mut name = DeviceName::default();
        if text.is_empty() || text == "/" {
            return Ok(name);
        }
        let number = |text: &str| -> Result<Option<u32>> {
            if text == "*" { Ok(None) } else { text.parse().map(Some).map_err(|_| malformed()) }
        };
        // As in TensorFlow, slashes may be doubled, and the first is optional.
        for part in text.split('/').filter(|part| !part.is_empty()) {
            let fields: Vec<&str> = part.split(':').collect();
            match fields.as_slice() {
                ["job", "*"] => {}
                ["job", job] if is_job_name(job) => name.job = Some((*job).to_owned()),
                ["replica", index] => name.replica = number(index)?,
                ["task", index] => name.task = number(index)?,
                ["device", kind] => name.device_type = device_type(kind),
                ["device", kind, id] => {
                    name.device_type = device_type(kind);
                    name.id = number(id)?;
                }
                [kind, id @ ..] if id.len() < 2 && matches!(*kind, "cpu" | "CPU" | "gpu" | "GPU") => {
                    name.device_type = device_type(kind);
                    name.id = id.first().map(|id| number(id)).transpose()?.flatten();
                }
                _ => return Err(malformed()),
            }
        }
        Ok(name)
    }

    /// Returns the name of a task's CPU.
    pub fn cpu(job: &str, task: u32, id: u32) -> DeviceName {
        DeviceName {
            job: Some(job.to_owned()),
            replica: Some(0),
            task: Some(task),
            device_type: Some("CPU".to_owned()),
            id: Some(id),
        }
    }

    /// Returns only the parts that name a task.
    pub fn task_part(&self) -> DeviceName {
        DeviceName { device_type: None, id: None, ..self.clone() }
    }

    /// Returns whether every part is set.
    pub fn is_full(&self) -> bool {
        self.job.is_some()
            && self.replica.is_some()
            && self.task.is_some()
            && self.device_type.is_some()
            && self.id.is_some()
    }

    /// Returns whether a full name agrees with all parts that are set in this one.
    pub fn matches(&self, whole: &DeviceName) -> bool {
        fn fits<T: PartialEq>(asked: &Option<T>, there: &Option<T>) -> bool {
            asked.is_none() || asked == there
        }
        fits(&self.job, &whole.job)
            && fits(&self.replica, &whole.replica)
            && fits(&self.task, &whole.task)
            && fits(&self.device_type, &whole.device_type)
            && fits(&self.id, &whole.id)
    }

    /// Returns this name overridden by the parts of `inner`, as in nested `device` scopes.
    pub fn merged_with(&self, inner: &DeviceName) -> DeviceName {
        DeviceName {
            job: inner.job.clone().or_else(|| self.job.clone()),
            replica: inner.replica.or(self.replica),
            task: inner.task.or(self.task),
            device_type: inner.device_type.clone().or_else(|| self.device_type.clone()),
            // The number of the old type does not apply to a new type.
            id: inner.id.or(if inner.device_type.is_some() && inner.device_type != self.device_type {
                None
            } else {
                self.id
            }),
        }
    }

    /// Returns the parts of both names, or an error if they contradict each other.
    pub fn intersected_with(&self, other: &DeviceName) -> Result<DeviceName> {
        let contradiction = |part: &str| {
            let message = format!("Cannot merge devices with incompatible {part}: '{self}' and '{other}'");
            Status::invalid_argument(message)
        };
        Ok(DeviceName {
            job: both(&self.job, &other.job).ok_or_else(|| contradiction("jobs"))?,
            replica: both(&self.replica, &other.replica).ok_or_else(|| contradiction("replicas"))?,
            task: both(&self.task, &other.task).ok_or_else(|| contradiction("tasks"))?,
            device_type: both(&self.device_type, &other.device_type).ok_or_else(|| contradiction("types"))?,
            id: both(&self.id, &other.id).ok_or_else(|| contradiction("ids"))?,
        })
    }

    /// As [`DeviceName::intersected_with`], but drops device types or numbers that contradict each other.
    pub fn softly_intersected_with(&self, other: &DeviceName) -> Result<DeviceName> {
        let mut result = self.task_part().intersected_with(&other.task_part())?;
        if let Some(device_type) = both(&self.device_type, &other.device_type) {
            result.device_type = device_type;
            result.id = both(&self.id, &other.id).flatten();
        }
        Ok(result)
    }

    /// Returns whether a full name can agree with both.
    pub fn is_compatible_with(&self, other: &DeviceName) -> bool {
        self.intersected_with(other).is_ok()
    }

    /// Returns whether no part is set.
    pub fn is_empty(&self) -> bool {
        *self == DeviceName::default()
    }
}

/// Returns the part that agrees with both; the outer `None` means that they contradict each other.
fn both<T: PartialEq + Clone>(a: &Option<T>, b: &Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        (Some(a), _) => Some(Some(a.clone())),
        (None, b) => Some(b.clone()),
    }
}

/// Reads a device type. `cpu` and `gpu` may be in either case; other types are taken as they are.
fn device_type(kind: &str) -> Option<String> {
    match kind {
        "*" => None,
        "cpu" | "gpu" => Some(kind.to_ascii_uppercase()),
        _ => Some(kind.to_owned()),
    }
}

fn is_job_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(job) = &self.job {
            write!(f, "/job:{job}")?;
        }
        if let Some(replica) = self.replica {
            write!(f, "/replica:{replica}")?;
        }
        if let Some(task) = self.task {
            write!(f, "/task:{task}")?;
        }
        if self.device_type.is_some() || self.id.is_some() {
            write!(f, "/device:{}", self.device_type.as_deref().unwrap_or("*"))?;
            match self.id {
                Some(id) => write!(f, ":{id}")?,
                None => f.write_str(":*")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        let show = |text: &str| DeviceName::parse(text).map(|name| name.to_string());
        assert_eq!(show("/job:ps/task:0/cpu:0").unwrap(), "/job:ps/task:0/device:CPU:0");
        assert_eq!(show("/gpu:1").unwrap(), "/device:GPU:1");
        assert_eq!(show("/device:gpu:1").unwrap(), "/device:GPU:1");
        assert_eq!(show("/job:worker/replica:0/task:3").unwrap(), "/job:worker/replica:0/task:3");
        assert_eq!(show("").unwrap(), "");
        assert_eq!(show("/").unwrap(), "");
        assert_eq!(show("/GPU:*").unwrap(), "/device:GPU:*");
        assert_eq!(show("/cpu").unwrap(), "/device:CPU:*");
        assert_eq!(show("CPU").unwrap(), "/device:CPU:*");
        assert_eq!(show("cpu:0").unwrap(), "/device:CPU:0");
        assert_eq!(show("job:w").unwrap(), "/job:w");
        assert_eq!(show("/job:a-b_c//task:12/").unwrap(), "/job:a-b_c/task:12");
        assert_eq!(show("/device:CPU:0/task:1/job:w").unwrap(), "/job:w/task:1/device:CPU:0");
        assert_eq!(show("/device:xla_cpu:0").unwrap(), "/device:xla_cpu:0");
        assert!(show("/cpu:-1").is_err());
        assert!(show("/cpu:0:0").is_err());
        assert!(show("/job:1a").is_err());
        assert_eq!(show("/job:*/task:*").unwrap(), "");
        assert!(show("/job:").is_err());
        assert!(show("/task:x").is_err());
        assert!(show("nonsense").is_err());
    }

    #[test]
    fn parts_match_and_merge() {
        let whole = DeviceName::cpu("worker", 1, 0);
        assert!(DeviceName::parse("/job:worker").unwrap().matches(&whole));
        assert!(!DeviceName::parse("/job:worker/task:0").unwrap().matches(&whole));
        let outer = DeviceName::parse("/job:ps/task:0/gpu:1").unwrap();
        assert_eq!(outer.merged_with(&DeviceName::parse("/cpu:0").unwrap()).to_string(), "/job:ps/task:0/device:CPU:0");
        assert!(outer.intersected_with(&DeviceName::parse("/job:worker").unwrap()).is_err());
    }
}
