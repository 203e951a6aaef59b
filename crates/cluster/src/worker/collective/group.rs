//! [`Group`]: the devices of a collective group in rank order; and [`Groups`], in which the leader assembles groups from the
//! devices that announce themselves, and the other tasks cache what the leader has told them.

use crate::device::{is_ours, task_of};
use foldhash::HashMap;
use graph::DeviceName;
use parking_lot::Mutex;
use proto::DeviceAttributes;
use std::ops::Range;
use std::sync::Arc;
use tensor::{Result, Status};
use tokio::sync::watch;

/// How many groups a task knows. One that nobody waits for any more is forgotten for another, or else the complete one that was used least
/// recently: groups of workers that come and go get a key for every change.
const GROUPS_MAX: usize = 1 << 12;

/// The most devices of a group.
const GROUP_SIZE_MAX: usize = 1 << 12;

/// The devices of a collective group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The key.
    pub key: i32,
    /// The type of its devices.
    pub device_type: String,
    /// The devices in rank order. Those of one task are adjacent.
    pub members: Vec<Member>,
}

/// A device of a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Its attributes.
    pub attributes: DeviceAttributes,
    /// Its task.
    pub task: String,
    /// The user's rank, or its index among the members.
    pub rank: usize,
}

impl Group {
    /// Sorts the devices by their tasks' names, and within a task by number.
    pub fn new(key: i32, device_type: &str, joined: Vec<Joined>) -> Result<Group> {
        check_ranks(&joined)?;
        let mut sorted = Vec::with_capacity(joined.len());
        for device in joined {
            let name = DeviceName::parse(&device.attributes.name)?;
            let task = task_of(&device.attributes.name).to_owned();
            sorted.push(((task, name.device_type, name.id), device));
        }
        sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
        let members = sorted.into_iter().enumerate().map(|(index, ((task, ..), device))| Member {
            attributes: device.attributes,
            task,
            rank: device.rank.unwrap_or(index),
        });
        Ok(Group { key, device_type: device_type.to_owned(), members: members.collect() })
    }

    /// Returns the members of each task.
    pub fn tasks(&self) -> Vec<Range<usize>> {
        let mut tasks: Vec<Range<usize>> = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            match tasks.last_mut() {
                Some(last) if self.members[last.start].task == member.task => last.end = index + 1,
                _ => tasks.push(index..index + 1),
            }
        }
        tasks
    }

    /// Returns whether all members are devices of Ferroflow tasks. All members know it alike.
    pub fn is_ours(&self) -> bool {
        self.members.iter().all(|member| is_ours(&member.attributes))
    }

    /// Returns the index of a device's member.
    pub fn position(&self, device: &str) -> Result<usize> {
        self.members.iter().position(|member| member.attributes.name == device).ok_or_else(|| {
            let key = self.key;
            Status::internal(format!("Device {device} is joining a group that is already full (group_key={key})"))
        })
    }
}

/// A device that has announced itself.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    /// Its attributes.
    pub attributes: DeviceAttributes,
    /// The user's rank.
    pub rank: Option<usize>,
}

/// The result of assembling a group.
pub(crate) type Outcome = watch::Receiver<Option<Result<Arc<Group>>>>;

/// A task's groups.
#[derive(Default)]
pub(crate) struct Groups {
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<i32, Record>,
    /// How many times groups were used.
    num_uses: u64,
}

struct Record {
    size: usize,
    device_type: String,
    joined: Vec<Joined>,
    outcome: watch::Sender<Option<Result<Arc<Group>>>>,
    is_complete: bool,
    /// The number of the last use.
    last_use: u64,
}

impl Groups {
    /// Returns a complete group.
    pub fn find(&self, key: i32) -> Option<Arc<Group>> {
        let mut records = self.records.lock();
        let last_use = records.next_use();
        let record = records.by_key.get_mut(&key)?;
        record.last_use = last_use;
        let outcome = record.outcome.borrow();
        outcome.as_ref().and_then(|outcome| outcome.as_ref().ok().cloned())
    }

    /// Stores a group that the leader has assembled.
    pub fn keep(&self, group: &Arc<Group>) -> Result<()> {
        let outcome = watch::Sender::new(Some(Ok(group.clone())));
        let device_type = group.device_type.clone();
        let mut records = self.records.lock();
        records.make_room(group.key)?;
        let (size, last_use) = (group.members.len(), records.next_use());
        let record = Record { size, device_type, joined: Vec::new(), outcome, is_complete: true, last_use };
        records.by_key.insert(group.key, record);
        Ok(())
    }

    /// Removes a group in which something failed: a member may have been restarted, and the leader knows.
    pub fn forget(&self, key: i32) {
        self.records.lock().by_key.remove(&key);
    }

    /// Adds a device to a group; returns a channel that gets the complete group.
    pub fn join(&self, key: i32, size: usize, device_type: &str, device: Joined) -> Result<Outcome> {
        if !(1..=GROUP_SIZE_MAX).contains(&size) {
            let what = format!("a group has 1 to {GROUP_SIZE_MAX} members, not {size}");
            return Err(Status::invalid_argument(what));
        }
        if device.rank.is_some_and(|rank| rank >= size) {
            let what = "User Provided rank is invalid. It should be between [0, group_size)";
            return Err(Status::invalid_argument(what));
        }
        DeviceName::parse(&device.attributes.name)?;
        let mut records = self.records.lock();
        let was_restarted = records.by_key.get(&key).is_some_and(|record| {
            let known = record.joined.iter().find(|known| known.attributes.name == device.attributes.name);
            known.is_some_and(|known| known.attributes.incarnation != device.attributes.incarnation)
        });
        if was_restarted {
            // All others announce themselves again, once they have noticed. Those who wait now do so when told.
            if let Some(record) = records.by_key.remove(&key) {
                let name = &device.attributes.name;
                record.end(Err(Status::unavailable(format!("{name} of group {key} was restarted"))));
            }
        }
        records.make_room(key)?;
        let last_use = records.next_use();
        let record = records.by_key.entry(key).or_insert_with(|| Record {
            size,
            device_type: device_type.to_owned(),
            joined: Vec::new(),
            outcome: watch::Sender::new(None),
            is_complete: false,
            last_use,
        });
        record.last_use = last_use;
        if let Err(status) = record.add(key, size, device_type, device) {
            // Pending requests would wait forever for a member that isn't one. A complete group is kept.
            if record.joined.len() < record.size
                && let Some(record) = records.by_key.remove(&key)
            {
                record.end(Err(status.clone()));
            }
            return Err(status);
        }
        let outcome = record.outcome.subscribe();
        if record.joined.len() == record.size && record.outcome.borrow().is_none() {
            let group = Group::new(key, &record.device_type, record.joined.clone()).map(Arc::new);
            record.is_complete = group.is_ok();
            let has_failed = group.is_err();
            record.outcome.send_replace(Some(group));
            if has_failed {
                records.by_key.remove(&key);
            }
        }
        Ok(outcome)
    }
}

impl Record {
    fn add(&mut self, key: i32, size: usize, device_type: &str, device: Joined) -> Result<()> {
        let name = &device.attributes.name;
        if self.device_type != device_type {
            return Err(Status::internal(format!(
                "Device {name} is joining a group with incompatible device type {} (group_key={key})",
                self.device_type
            )));
        }
        if self.size != size {
            return Err(Status::internal(format!(
                "Device {name} is joining a group with size {size}, but that group has size {} (group_key={key})",
                self.size
            )));
        }
        if self.joined.iter().any(|known| known.attributes.name == *name) {
            return Ok(());
        }
        if self.joined.len() == self.size {
            return Err(Status::internal(format!(
                "Device {name} is joining a group that is already full (group_key={key})"
            )));
        }
        self.joined.push(device);
        Ok(())
    }

    fn end(self, outcome: Result<Arc<Group>>) {
        self.outcome.send_replace(Some(outcome));
    }
}

impl Records {
    /// Makes room for a group.
    fn make_room(&mut self, key: i32) -> Result<()> {
        if self.by_key.len() < GROUPS_MAX || self.by_key.contains_key(&key) {
            return Ok(());
        }
        // All who announced themselves to a group may have given up, such as by the end of their step.
        let is_idle = |record: &Record| record.is_complete || record.outcome.receiver_count() == 0;
        let idle = self.by_key.iter().filter(|(_, record)| is_idle(record));
        let oldest = idle.min_by_key(|(_, record)| (record.is_complete, record.last_use)).map(|(&key, _)| key);
        let oldest = oldest.ok_or_else(|| {
            Status::resource_exhausted(format!(
                "this task waits for the members of {GROUPS_MAX} collective groups, which is the most"
            ))
        })?;
        self.by_key.remove(&oldest);
        Ok(())
    }

    /// Returns the number of a use that is just happening.
    fn next_use(&mut self) -> u64 {
        self.num_uses += 1;
        self.num_uses
    }
}

fn check_ranks(joined: &[Joined]) -> Result<()> {
    let mut ranks: Vec<usize> = joined.iter().filter_map(|device| device.rank).collect();
    let number = |device: &Joined| device.rank.map_or("-1".to_owned(), |rank| rank.to_string());
    let received = || joined.iter().map(number).collect::<Vec<_>>().join(",");
    if !ranks.is_empty() && ranks.len() < joined.len() {
        return Err(Status::invalid_argument(format!(
            "Only part of the group members have user given rank specified. Received ranks: {}",
            received()
        )));
    }
    ranks.sort_unstable();
    if ranks.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Status::invalid_argument(format!(
            "Duplicate ranks specified for group members. Received ranks: {}",
            received()
        )));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tensor::Code;

    fn device(task: usize, id: usize, incarnation: u64) -> Joined {
        let name = format!("/job:worker/replica:0/task:{task}/device:CPU:{id}");
        Joined { attributes: DeviceAttributes { name, incarnation, ..Default::default() }, rank: None }
    }

    /// Returns a group of tasks with this many devices each.
    pub fn group_of(devices: &[usize]) -> Group {
        let joined =
            devices.iter().enumerate().flat_map(|(task, &count)| (0..count).map(move |id| device(task, id, 1)));
        Group::new(1, "CPU", joined.collect()).unwrap()
    }

    #[test]
    fn ranks_follow_the_names_of_tasks_and_the_numbers_of_devices() {
        let joined = [(2, 0), (10, 1), (10, 0), (2, 10), (2, 9)].map(|(task, id)| device(task, id, 1));
        let group = Group::new(1, "CPU", joined.to_vec()).unwrap();
        let order: Vec<&str> =
            group.members.iter().map(|member| member.attributes.name.split_once("task:").unwrap().1).collect();
        assert_eq!(
            order,
            ["10/device:CPU:0", "10/device:CPU:1", "2/device:CPU:0", "2/device:CPU:9", "2/device:CPU:10"]
        );
        assert_eq!(group.tasks(), [0..2, 2..5]);
        let ranked = |ranks: [Option<usize>; 2]| {
            let with_rank = |(task, rank)| Joined { rank, ..device(task, 0, 1) };
            Group::new(1, "CPU", ranks.into_iter().enumerate().map(with_rank).collect())
        };
        assert_eq!(ranked([Some(1), Some(0)]).unwrap().members[0].rank, 1);
        assert!(ranked([Some(1), None]).unwrap_err().message().contains("Only part of the group members"));
        assert!(ranked([Some(1), Some(1)]).unwrap_err().message().contains("Duplicate ranks"));
    }

    #[test]
    fn a_group_is_complete_when_all_have_come_and_stays_so() {
        let groups = Groups::default();
        let first = groups.join(5, 2, "CPU", device(0, 0, 1)).unwrap();
        assert!(first.borrow().is_none() && groups.find(5).is_none());
        groups.join(5, 2, "CPU", device(0, 0, 1)).unwrap();
        assert!(first.borrow().is_none(), "the same device again");
        groups.join(5, 2, "CPU", device(1, 0, 1)).unwrap();
        assert_eq!(first.borrow().clone().unwrap().unwrap().members.len(), 2);
        let full = groups.join(5, 2, "CPU", device(2, 0, 1)).unwrap_err();
        assert_eq!(full.code(), Code::Internal);
        assert!(full.message().contains("already full"));
        assert!(groups.find(5).is_some(), "who does not belong to it does it no harm");
    }

    #[test]
    fn one_who_does_not_fit_is_told_to_those_who_wait() {
        let groups = Groups::default();
        let first = groups.join(5, 3, "CPU", device(0, 0, 1)).unwrap();
        let status = groups.join(5, 2, "CPU", device(1, 0, 1)).unwrap_err();
        assert!(status.message().contains("that group has size 3"));
        assert_eq!(first.borrow().clone().unwrap().unwrap_err(), status);
        assert!(groups.join(5, 0, "CPU", device(0, 0, 1)).is_err());
        assert!(groups.join(5, GROUP_SIZE_MAX + 1, "CPU", device(0, 0, 1)).is_err());
    }

    #[test]
    fn the_group_that_was_used_least_recently_makes_room() {
        let groups = Groups::default();
        let join = |key: i32, size: usize, task: usize| groups.join(key, size, "CPU", device(task, 0, 1));
        let waiting = join(-1, 2, 0).unwrap();
        for key in 0..GROUPS_MAX as i32 - 1 {
            join(key, 1, 0).unwrap();
        }
        assert!(groups.find(0).is_some(), "one that is as old as any, but in use");
        join(GROUPS_MAX as i32, 1, 0).unwrap();
        assert!(groups.find(0).is_some() && groups.find(1).is_none());
        join(-1, 2, 1).unwrap();
        assert!(waiting.borrow().is_some(), "one that is waited for stays");
        let pending: Vec<Outcome> =
            (0..GROUPS_MAX as i32).map(|number| join(i32::MAX - number, 2, 0).unwrap()).collect();
        assert_eq!(join(5000, 1, 0).unwrap_err().code(), Code::ResourceExhausted);
        drop(pending);
        join(5000, 1, 0).unwrap();
        assert_eq!(groups.records.lock().by_key.len(), GROUPS_MAX, "one that nobody waits for any more made room");
    }

    #[test]
    fn a_member_that_was_restarted_begins_its_group_anew() {
        let groups = Groups::default();
        for task in 0..2 {
            groups.join(5, 2, "CPU", device(task, 0, 1)).unwrap();
        }
        let restarted = groups.join(5, 2, "CPU", device(1, 0, 2)).unwrap();
        assert!(restarted.borrow().is_none());
        groups.join(5, 2, "CPU", device(0, 0, 1)).unwrap();
        let group = restarted.borrow().clone().unwrap().unwrap();
        assert_eq!(group.members[1].attributes.incarnation, 2);
    }
}
