//! The devices of a task: their names, their incarnations and the resources that live on them.

use crate::random::RandomIds;
use graph::DeviceName;
use kernel::ResourceManager;
use proto::{DeviceAttributes, DeviceLocality};
use std::sync::Arc;
use tensor::Result;

/// The memory limit of a device, which is that of TensorFlow's CPUs.
const MEMORY_LIMIT_BYTES: i64 = 256 << 20;

/// How peers recognise tasks of this program.
const DESCRIPTION_PREFIX: &str = "ferroflow ";

/// The word by which a task announces that it reduces directly with other tasks that announce the same. Any change to the
/// exchange must change this word, so that tasks of different releases use rings instead.
const REDUCES_DIRECTLY: &str = " direct1";

/// The most devices of a task.
pub(crate) const DEVICES_MAX: u32 = 256;

/// One device of this task.
#[derive(Clone)]
pub(crate) struct LocalDevice {
    /// The whole name.
    pub name: Arc<str>,
    /// A random number drawn at every start, so that a restart can be detected.
    pub incarnation: u64,
    /// The variables and other resources.
    pub resources: Arc<ResourceManager>,
    /// The attributes that the task announces to its peers, after its version: how it accepts streams, if it does.
    pub offers: Arc<str>,
}

impl LocalDevice {
    /// Returns the CPUs of a task.
    pub fn cpus(job: &str, task: u32, count: u32, ids: &RandomIds) -> Vec<LocalDevice> {
        let device = |id| LocalDevice {
            name: DeviceName::cpu(job, task, id).to_string().into(),
            incarnation: ids.next_incarnation(),
            resources: Arc::new(ResourceManager::new()),
            offers: "".into(),
        };
        (0..count.clamp(1, DEVICES_MAX)).map(device).collect()
    }

    /// Returns the device's description for other tasks.
    pub fn attributes(&self) -> DeviceAttributes {
        DeviceAttributes {
            name: self.name.to_string(),
            device_type: "CPU".to_owned(),
            memory_limit: MEMORY_LIMIT_BYTES,
            locality: Some(DeviceLocality::default()),
            incarnation: self.incarnation,
            physical_device_desc: format!(
                "{DESCRIPTION_PREFIX}{}{REDUCES_DIRECTLY}{}",
                env!("CARGO_PKG_VERSION"),
                self.offers
            ),
            xla_global_id: -1,
        }
    }

    /// Returns the device under its name in another cluster, where this task is `task`.
    pub fn renamed(&self, task: &str) -> Result<LocalDevice> {
        Ok(LocalDevice { name: rename(&self.name, task)?.into(), ..self.clone() })
    }
}

/// Returns whether a device belongs to a Ferroflow task rather than to one of TensorFlow's.
pub(crate) fn is_ours(attributes: &DeviceAttributes) -> bool {
    attributes.physical_device_desc.starts_with(DESCRIPTION_PREFIX)
}

/// Returns whether a device's task takes part in direct reductions.
pub(crate) fn reduces_directly(attributes: &DeviceAttributes) -> bool {
    let word = REDUCES_DIRECTLY.trim_start();
    is_ours(attributes) && attributes.physical_device_desc.split(' ').any(|found| found == word)
}

/// Returns a device's name with its task replaced.
pub(crate) fn rename(device: &str, task: &str) -> Result<String> {
    let own = DeviceName::parse(device)?;
    let task = DeviceName::parse(task)?;
    Ok(DeviceName { device_type: own.device_type, id: own.id, ..task }.to_string())
}

/// Returns the whole name of a task.
pub(crate) fn task_name(job: &str, task: u32) -> String {
    format!("/job:{job}/replica:0/task:{task}")
}

/// Returns the task part of a device's full name.
pub(crate) fn task_of(device: &str) -> &str {
    device.find("/device:").map_or(device, |end| &device[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let devices = LocalDevice::cpus("ps", 3, 2, &RandomIds::with_seed(1));
        assert_eq!(&*devices[1].name, "/job:ps/replica:0/task:3/device:CPU:1");
        assert_ne!(devices[0].incarnation, devices[1].incarnation);
        assert_eq!(task_of(&devices[1].name), task_name("ps", 3));
        assert_eq!(
            &*devices[1].renamed("/job:w/replica:0/task:0").unwrap().name,
            "/job:w/replica:0/task:0/device:CPU:1"
        );
        assert!(is_ours(&devices[0].attributes()) && reduces_directly(&devices[0].attributes()));
    }
}
