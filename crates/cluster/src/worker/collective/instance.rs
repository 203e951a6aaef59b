//! [`Instances`]: the instances of collective ops, by key. The leader checks that all members agree, and determines the
//! broadcast's source; the other tasks cache what the leader has told them.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use tensor::{Result, Shape, Status};
use tokio::sync::watch;

/// The most instances of a task. The oldest one is dropped for another, and requested again if necessary.
const INSTANCES_MAX: usize = 1 << 14;

/// The identity of an instance: the group's key, the step's id if it matters, and the instance's key.
pub(super) type InstanceKey = (i32, i64, i32);

/// The properties on which all members of an instance must agree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    /// The kind of op, in TensorFlow's numbering.
    pub kind: i32,
    /// The number of the element type.
    pub dtype: i32,
    /// The shape of the output, without the number of rows if that may change.
    shape: Vec<i64>,
}

impl Wanted {
    /// Returns the properties of one member's op. `is_ours` says whether all members are Ferroflow tasks: an instance serves many steps,
    /// and what these gather may have another number of rows in each. If members differ within a step, they notice by the parts that
    /// they exchange. TensorFlow's tasks don't exchange parts without elements.
    pub fn new(kind: i32, dtype: i32, shape: &Shape, is_ours: bool) -> Wanted {
        let mut shape = shape.dims().to_vec();
        if kind == kind::GATHER
            && is_ours
            && let Some(rows) = shape.first_mut()
        {
            *rows = -1;
        }
        Wanted { kind, dtype, shape }
    }
}

/// The kinds of ops, in TensorFlow's numbering.
pub(super) mod kind {
    pub const REDUCTION: i32 = 0;
    pub const BROADCAST: i32 = 1;
    pub const GATHER: i32 = 2;
    pub const ALL_TO_ALL: i32 = 4;
    pub const REDUCE_SCATTER: i32 = 5;
}

/// A member of an instance.
pub(super) struct Participant<'a> {
    /// Its device.
    pub device: &'a str,
    /// Its index among the members.
    pub rank: usize,
    /// Whether it broadcasts.
    pub is_source: bool,
    /// The number of members.
    pub group_size: usize,
}

/// The source of the broadcast, once it is known; the inner `None` is for ops without one.
pub(super) type Source = watch::Receiver<Option<Result<Option<usize>>>>;

/// A task's instances.
#[derive(Default)]
pub(super) struct Instances {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: HashMap<InstanceKey, Record>,
    order: VecDeque<InstanceKey>,
}

struct Record {
    wanted: Wanted,
    /// The members that have arrived.
    known: Vec<bool>,
    source: Option<usize>,
    outcome: watch::Sender<Option<Result<Option<usize>>>>,
}

impl Instances {
    /// Adds a member to an instance, on the leader; returns a channel that gets the source.
    pub fn join(&self, key: InstanceKey, wanted: &Wanted, participant: &Participant<'_>) -> Result<Source> {
        let mut state = self.state.lock();
        let record = state.find_or_add(key, || Record {
            wanted: wanted.clone(),
            known: vec![false; participant.group_size],
            source: None,
            outcome: watch::Sender::new((wanted.kind != kind::BROADCAST).then_some(Ok(None))),
        });
        record.check(key.2, wanted, participant.device)?;
        if let Err(status) = record.note(key.2, participant) {
            if let Some(record) = state.records.remove(&key) {
                record.outcome.send_replace(Some(Err(status.clone())));
            }
            return Err(status);
        }
        Ok(record.outcome.subscribe())
    }

    /// Returns the source of a known instance; the outer `None` means that it isn't known.
    pub fn find(&self, key: InstanceKey, wanted: &Wanted, device: &str) -> Option<Result<Option<usize>>> {
        let state = self.state.lock();
        let record = state.records.get(&key)?;
        if let Err(status) = record.check(key.2, wanted, device) {
            return Some(Err(status));
        }
        record.outcome.borrow().clone()
    }

    /// Stores an instance that the leader has reported.
    pub fn keep(&self, key: InstanceKey, wanted: &Wanted, source: Option<usize>) {
        let mut state = self.state.lock();
        let outcome = watch::Sender::new(Some(Ok(source)));
        state.find_or_add(key, || Record { wanted: wanted.clone(), known: Vec::new(), source, outcome });
    }

    /// Removes the instances of a group in which something failed.
    pub fn forget_group(&self, group_key: i32) {
        self.state.lock().records.retain(|key, record| key.0 != group_key || record.outcome.borrow().is_none());
    }
}

impl State {
    fn find_or_add(&mut self, key: InstanceKey, make: impl FnOnce() -> Record) -> &mut Record {
        if !self.records.contains_key(&key) {
            if self.order.len() >= INSTANCES_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.records.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.records.entry(key).or_insert_with(make)
    }
}

impl Record {
    fn check(&self, instance_key: i32, wanted: &Wanted, device: &str) -> Result<()> {
        let known = &self.wanted;
        if known.kind != wanted.kind || known.dtype != wanted.dtype {
            return Err(Status::internal(format!(
                "Collective instance {instance_key} expected type {} and data_type {} but got type {} and data_type {}",
                known.kind, known.dtype, wanted.kind, wanted.dtype
            )));
        }
        if known.shape != wanted.shape {
            return Err(Status::invalid_argument(format!(
                "Shape mismatch in the collective instance {instance_key}. Op at device {device} expected shape {} but another \
                 member in the group expected shape {}. This is likely due to different input shapes at different members of the \
                 collective op.",
                shape_text(&wanted.shape),
                shape_text(&known.shape)
            )));
        }
        Ok(())
    }

    fn note(&mut self, instance_key: i32, participant: &Participant<'_>) -> Result<()> {
        if self.outcome.borrow().is_some() {
            return Ok(());
        }
        let Some(is_known) = self.known.get_mut(participant.rank) else {
            return Err(Status::internal(format!("instance {instance_key} has no member {}", participant.rank)));
        };
        if !std::mem::replace(is_known, true) && participant.is_source {
            if let Some(source) = self.source {
                return Err(Status::internal(format!(
                    "Instance {instance_key} already has source {source}, received second claim from {}",
                    participant.rank
                )));
            }
            self.source = Some(participant.rank);
        }
        if self.known.iter().all(|&known| known) {
            if self.source.is_none() {
                return Err(Status::internal(format!(
                    "Instance {instance_key} found no source for broadcast. This could mean that there were group_size={} \
                     BcastRecvs but no BcastSend.",
                    self.known.len()
                )));
            }
            self.outcome.send_replace(Some(Ok(self.source)));
        }
        Ok(())
    }
}

fn shape_text(dims: &[i64]) -> String {
    format!("[{}]", dims.iter().map(i64::to_string).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: InstanceKey = (1, 0, 7);

    fn wanted(kind: i32, shape: &[i64]) -> Wanted {
        Wanted::new(kind, 1, &Shape::new(shape).unwrap(), false)
    }

    fn member(rank: usize, is_source: bool) -> Participant<'static> {
        Participant { device: "/device:CPU:0", rank, is_source, group_size: 2 }
    }

    #[test]
    fn the_source_of_a_broadcast_is_known_when_all_have_come() {
        let instances = Instances::default();
        let broadcast = wanted(kind::BROADCAST, &[2]);
        let first = instances.join(KEY, &broadcast, &member(0, false)).unwrap();
        assert!(first.borrow().is_none() && instances.find(KEY, &broadcast, "d").is_none());
        instances.join(KEY, &broadcast, &member(1, true)).unwrap();
        assert_eq!(first.borrow().clone().unwrap().unwrap(), Some(1));
        assert_eq!(instances.find(KEY, &broadcast, "d").unwrap().unwrap(), Some(1));
        instances.join(KEY, &broadcast, &member(1, true)).unwrap();
    }

    #[test]
    fn broadcasts_with_no_source_or_two_are_refused() {
        for is_source in [false, true] {
            let instances = Instances::default();
            let broadcast = wanted(kind::BROADCAST, &[2]);
            let first = instances.join(KEY, &broadcast, &member(0, is_source)).unwrap();
            let status = instances.join(KEY, &broadcast, &member(1, is_source)).unwrap_err();
            assert_eq!(first.borrow().clone().unwrap().unwrap_err(), status);
            let expected = if is_source { "received second claim from 1" } else { "no source for broadcast" };
            assert!(status.message().contains(expected), "{status}");
        }
    }

    #[test]
    fn members_must_want_the_same() {
        let instances = Instances::default();
        let reduction = wanted(kind::REDUCTION, &[2]);
        let source = instances.join(KEY, &reduction, &member(0, false)).unwrap();
        assert_eq!(source.borrow().clone().unwrap().unwrap(), None);
        let other_shape = instances.join(KEY, &wanted(kind::REDUCTION, &[3]), &member(1, false)).unwrap_err();
        assert_eq!(other_shape.code(), tensor::Code::InvalidArgument);
        assert!(
            other_shape.message().contains("expected shape [3] but another member in the group expected shape [2]")
        );
        let other_kind = instances.join(KEY, &wanted(kind::GATHER, &[2]), &member(1, false)).unwrap_err();
        assert!(other_kind.message().contains("expected type 0 and data_type 1 but got type 2"));
    }

    #[test]
    fn gathered_rows_may_be_more_or_fewer_if_all_members_are_ours() {
        let instances = Instances::default();
        let gather = |dims: &[i64], is_ours: bool| Wanted::new(kind::GATHER, 1, &Shape::new(dims).unwrap(), is_ours);
        instances.keep(KEY, &gather(&[2, 4], true), None);
        let find = |dims: &[i64]| instances.find(KEY, &gather(dims, true), "d").unwrap();
        assert!(find(&[6, 4]).is_ok());
        assert!(find(&[4, 2]).is_err() && find(&[8]).is_err(), "other rows, not more of them");
        let other = (1, 0, 8);
        instances.keep(other, &gather(&[2, 4], false), None);
        assert!(instances.find(other, &gather(&[6, 4], false), "d").unwrap().is_err(), "as TensorFlow's tasks have it");
    }

    #[test]
    fn the_oldest_make_room() {
        let instances = Instances::default();
        let reduction = wanted(kind::REDUCTION, &[2]);
        for key in 0..=INSTANCES_MAX as i32 {
            instances.keep((1, 0, key), &reduction, None);
        }
        assert!(instances.find((1, 0, 0), &reduction, "d").is_none());
        assert!(instances.find((1, 0, 1), &reduction, "d").is_some());
        assert_eq!(instances.state.lock().records.len(), INSTANCES_MAX);
    }
}
