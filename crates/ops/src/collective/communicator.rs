//! [`Communicator`]: a group that a device has joined, which later ops refer to.

use kernel::{CollectiveGroup, Resource};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// A group that a device has joined. It numbers the device's ops in the group.
pub(super) struct Communicator {
    group: CollectiveGroup,
    next_instance_key: AtomicI32,
}

impl Communicator {
    /// Returns the communicator of a group.
    pub fn new(group: CollectiveGroup) -> Communicator {
        Communicator { group, next_instance_key: AtomicI32::new(0) }
    }

    /// Returns the group.
    pub fn group(&self) -> &CollectiveGroup {
        &self.group
    }

    /// Returns the timeout of ops in the group.
    pub fn timeout(&self) -> Option<Duration> {
        self.group.timeout
    }

    /// Returns the key of the device's next op in the group.
    pub fn next_instance_key(&self) -> i32 {
        self.next_instance_key.fetch_add(1, Ordering::Relaxed)
    }
}

impl Resource for Communicator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow12_GLOBAL__N_123CollectiveGroupResourceE"
    }

    fn describe(&self) -> String {
        let CollectiveGroup { key, size, rank, .. } = &self.group;
        let rank = rank.map_or(-1, |rank| rank as i64);
        format!("Collective Group with group_key = {key}, group_size = {size}, rank = {rank}")
    }
}
