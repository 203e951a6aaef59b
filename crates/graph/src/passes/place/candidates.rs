//! The available devices in order of preference, and the explanation when none is possible.

use crate::{DeviceName, Node};

/// The available devices.
pub(super) struct Candidates {
    devices: Vec<DeviceName>,
    names: Vec<String>,
    /// The device types, preferred first.
    types: Vec<String>,
    /// For each device, the index of its type in `types`.
    type_of: Vec<usize>,
    /// The indices of the devices, preferred first.
    preference: Vec<usize>,
}

impl Candidates {
    /// Sorts the devices: the default device, then those of its task, then the others by name; accelerators before CPUs. XLA's
    /// devices, which TensorFlow 1.x lists beside its CPUs, come last: as in TensorFlow, only nodes that ask for one get it.
    pub(super) fn new(devices: &[DeviceName], default: Option<&DeviceName>) -> Candidates {
        /// More types than this are not distinguished; there are few in practice.
        const TYPES_MAX: usize = 64;
        let names: Vec<String> = devices.iter().map(DeviceName::to_string).collect();
        let type_name = |device: &DeviceName| device.device_type.clone().unwrap_or_else(|| "CPU".to_owned());
        let mut types: Vec<String> = devices.iter().map(type_name).collect();
        types.sort_by_key(|name| (name.starts_with("XLA_"), name == "CPU", name.clone()));
        types.dedup();
        types.truncate(TYPES_MAX);
        let find = |device: &DeviceName| types.iter().position(|name| *name == type_name(device)).unwrap_or(0);
        let type_of: Vec<usize> = devices.iter().map(find).collect();
        let mut preference: Vec<usize> = (0..devices.len()).collect();
        let task = default.map(DeviceName::task_part);
        preference.sort_by(|&a, &b| {
            let key = |index: usize| {
                let is_default = default.is_some_and(|default| default.matches(&devices[index]));
                let is_local = task.as_ref().is_some_and(|task| task.matches(&devices[index]));
                (!is_default, type_of[index], !is_local, &names[index])
            };
            key(a).cmp(&key(b))
        });
        Candidates { devices: devices.to_vec(), names, types, type_of, preference }
    }

    pub(super) fn types(&self) -> &[String] {
        &self.types
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// Returns the devices that match `asked` and have one of the `supported` types, preferred first.
    pub(super) fn matching(&self, asked: &DeviceName, supported: u64) -> Vec<usize> {
        let fits = |&index: &usize| supported >> self.type_of[index] & 1 == 1 && asked.matches(&self.devices[index]);
        self.preference.iter().copied().filter(fits).collect()
    }

    /// Explains why a node cannot be placed, if its set requests `merged`.
    pub(super) fn explain(&self, node: &Node, merged: &DeviceName) -> String {
        let mut available = self.names.clone();
        available.sort_unstable();
        let list = available.join(", ");
        let asked = DeviceName::parse(&node.device).unwrap_or_default();
        if asked != *merged {
            return format!(
                "Could not satisfy explicit device specification '{}' because the node {{{{colocation_node {}}}}} was \
                 colocated with a group of nodes that required incompatible device '{merged}'. All available devices \
                 [{list}].",
                node.device, node.name
            );
        }
        if self.devices.iter().any(|device| asked.matches(device)) {
            let device_type = asked.device_type.as_deref().unwrap_or("such");
            return format!(
                "Could not satisfy explicit device specification '{}' because no supported kernel for {device_type} \
                 devices is available.",
                node.device
            );
        }
        let nearest = self.nearest(&asked).map(|name| format!(" The nearest match is '{name}'.")).unwrap_or_default();
        format!(
            "{{{{node {}}}}} was explicitly assigned to {} but available devices are [ {list} ]. Make sure the device \
             specification refers to a valid device.{nearest}",
            node.name, node.device
        )
    }

    /// Returns the device that agrees best with the request; the first parts weigh more.
    fn nearest(&self, asked: &DeviceName) -> Option<&str> {
        let score = |&index: &usize| {
            let device = &self.devices[index];
            let job = asked.job.is_none() || asked.job == device.job;
            let task = asked.task.is_none() || asked.task == device.task;
            let kind = asked.device_type.is_none() || asked.device_type == device.device_type;
            (job, job && task, kind)
        };
        // In reverse, because `max_by_key` returns the last of equal devices.
        self.preference.iter().rev().copied().max_by_key(score).map(|index| self.name(index))
    }
}
