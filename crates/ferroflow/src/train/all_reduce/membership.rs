//! [`Membership`]: which workers of an elastic group take part. Only the chief decides, in epochs: workers tell it that they want to take
//! part, and their global steps determine who sends its variables to the others at the beginning of an epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tensor::{Result, Status, Tensor};

/// How long the members of the last epoch may take to ask for the next one. A worker that takes longer is left out, and may take part
/// again from the epoch after that.
const ASKING: Duration = Duration::from_secs(3);

/// The step that stands for variables without values.
const NO_VALUES: i64 = -1;

/// A worker's question to the chief.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// The worker.
    pub rank: usize,
    /// Distinguishes this question from others of the same worker.
    pub nonce: i64,
    /// Whether the worker wants to take part; otherwise it leaves.
    pub joins: bool,
    /// The global step of its variables; `None` if they have no values.
    pub step: Option<i64>,
    /// The last epoch that it took part in.
    pub epoch: i64,
}

/// The last epoch that a worker may say it took part in. No training has so many.
const EPOCH_MAX: i64 = 1 << 40;

/// How many numbers an [`Ask`] is sent as.
pub(super) const ASK_NUMBERS: usize = 5;

impl Ask {
    /// Returns the numbers that stand for it.
    pub(super) fn to_tensor(&self) -> Tensor {
        let step = self.step.unwrap_or(NO_VALUES);
        Tensor::vector(&[self.rank as i64, self.nonce, i64::from(self.joins), step, self.epoch])
    }

    /// Reads what a worker sent.
    pub(super) fn from_tensor(tensor: &Tensor) -> Result<Ask> {
        let numbers = tensor.to_vec::<i64>()?;
        let &[rank, nonce, joins, step, epoch] = &numbers[..] else {
            return Err(Status::invalid_argument("a worker asks with other numbers than five"));
        };
        let rank = usize::try_from(rank).map_err(|_| Status::invalid_argument(format!("there is no worker {rank}")))?;
        Ok(Ask { rank, nonce, joins: joins != 0, step: (step >= 0).then_some(step), epoch })
    }
}

/// A period in which the same workers take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    /// Its number, from 1.
    pub number: i64,
    /// The worker whose variables all others take over.
    pub source: usize,
    /// The members, in order.
    pub members: Vec<usize>,
}

impl Epoch {
    /// Returns the numbers that stand for it in an answer to a question.
    pub(super) fn to_tensor(&self, nonce: i64) -> Tensor {
        let members = self.members.iter().map(|&member| member as i64);
        Tensor::vector(&[nonce, self.number, self.source as i64].into_iter().chain(members).collect::<Vec<i64>>())
    }

    /// Reads an answer; returns which question it is for, too.
    pub(super) fn from_tensor(tensor: &Tensor) -> Result<(i64, Epoch)> {
        let numbers = tensor.to_vec::<i64>()?;
        let [nonce, number, source, members @ ..] = &numbers[..] else {
            return Err(Status::invalid_argument("the chief answers with fewer numbers than an epoch has"));
        };
        let rank = |&rank: &i64| {
            usize::try_from(rank).map_err(|_| Status::invalid_argument(format!("there is no worker {rank}")))
        };
        let members = members.iter().map(rank).collect::<Result<Vec<usize>>>()?;
        Ok((*nonce, Epoch { number: *number, source: rank(source)?, members }))
    }
}

/// The chief's knowledge of the workers.
pub(super) struct Membership {
    min: usize,
    max: usize,
    all: usize,
    /// The current epoch; `None` before the first one.
    epoch: Option<Epoch>,
    /// The workers that want to take part and have no answer yet.
    asking: BTreeMap<usize, Ask>,
    left: BTreeSet<usize>,
    last_number: i64,
}

impl Membership {
    /// Knows nobody yet.
    pub(super) fn new(min: usize, max: usize, all: usize) -> Membership {
        Membership { min, max, all, epoch: None, asking: BTreeMap::new(), left: BTreeSet::new(), last_number: 0 }
    }

    /// Hears what a worker says.
    pub(super) fn take(&mut self, ask: Ask) {
        if ask.rank >= self.all {
            tracing::warn!("worker {} asks to take part, and there are only {}", ask.rank, self.all);
            return;
        }
        // Whoever reaches the chief's task can put such a number into the queue.
        if ask.epoch > EPOCH_MAX {
            tracing::warn!("worker {} says that it took part in epoch {}, which there can't be", ask.rank, ask.epoch);
            return;
        }
        self.last_number = self.last_number.max(ask.epoch);
        if ask.joins {
            self.left.remove(&ask.rank);
            self.asking.insert(ask.rank, ask);
        } else {
            self.asking.remove(&ask.rank);
            self.left.insert(ask.rank);
        }
    }

    /// Returns whether a worker wants to take part for whom there is room.
    pub(super) fn wants_change(&self) -> bool {
        let Some(epoch) = &self.epoch else { return false };
        let has_room = epoch.members.len() < self.max;
        self.asking.keys().any(|rank| has_room || epoch.members.contains(rank))
    }

    /// Returns who of the last epoch hasn't said anything yet, or, before the first one, of all there might be.
    pub(super) fn missing(&self) -> Vec<usize> {
        let expected = match &self.epoch {
            Some(epoch) => epoch.members.clone(),
            None => (0..self.all.min(self.max)).collect(),
        };
        expected.into_iter().filter(|rank| !self.asking.contains_key(rank) && !self.left.contains(rank)).collect()
    }

    /// Returns how many more workers it takes.
    pub(super) fn lacking(&self) -> usize {
        self.min.saturating_sub(self.asking.len())
    }

    /// Begins another epoch when that is possible, which it is for the chief only after it has asked itself. Returns who is to be told.
    pub(super) fn decide(&mut self, waited: Duration) -> Option<(Epoch, Vec<Ask>)> {
        if !self.asking.contains_key(&0) || self.lacking() > 0 || (!self.missing().is_empty() && waited < ASKING) {
            return None;
        }
        // Earlier members stay; the chief is always among them.
        let was_member = |rank: &usize| self.epoch.as_ref().is_some_and(|epoch| epoch.members.contains(rank));
        let mut members: Vec<usize> = self.asking.keys().copied().collect();
        members.sort_by_key(|rank| (*rank != 0, !was_member(rank), *rank));
        members.truncate(self.max);
        members.sort_unstable();
        let told: Vec<Ask> = members.iter().filter_map(|rank| self.asking.remove(rank)).collect();
        // The worker with the highest global step has done every step that anybody has.
        let source = told.iter().max_by_key(|ask| (ask.step, std::cmp::Reverse(ask.rank))).map_or(0, |ask| ask.rank);
        self.last_number += 1;
        let epoch = Epoch { number: self.last_number, source, members };
        self.left.clear();
        self.epoch = Some(epoch.clone());
        Some((epoch, told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(rank: usize, step: Option<i64>) -> Ask {
        Ask { rank, nonce: 7, joins: true, step, epoch: 0 }
    }

    fn decide(membership: &mut Membership) -> Option<(Vec<usize>, usize)> {
        membership.decide(Duration::ZERO).map(|(epoch, _)| (epoch.members, epoch.source))
    }

    #[test]
    fn who_has_come_furthest_gives_the_others_the_variables() {
        let mut membership = Membership::new(2, 3, 3);
        for rank in 0..3 {
            assert_eq!(decide(&mut membership), None);
            membership.take(ask(rank, (rank == 0).then_some(5)));
        }
        assert_eq!(decide(&mut membership), Some((vec![0, 1, 2], 0)));
        // The second worker is lost in a step that the third has finished.
        membership.take(ask(0, Some(8)));
        membership.take(ask(2, Some(9)));
        assert_eq!(membership.missing(), [1]);
        assert_eq!(decide(&mut membership), None);
        let (epoch, told) = membership.decide(ASKING).unwrap();
        assert_eq!((epoch.number, epoch.source, epoch.members), (2, 2, vec![0, 2]));
        assert_eq!(told.iter().map(|ask| ask.rank).collect::<Vec<_>>(), [0, 2]);
        // The worker comes back without values.
        assert!(!membership.wants_change());
        membership.take(ask(1, None));
        assert!(membership.wants_change());
        membership.take(ask(0, Some(20)));
        membership.take(ask(2, Some(20)));
        assert_eq!(decide(&mut membership), Some((vec![0, 1, 2], 0)), "the chief, if several have come as far");
    }

    #[test]
    fn too_few_are_waited_for_and_too_many_stand_by() {
        let mut membership = Membership::new(2, 2, 3);
        membership.take(ask(0, Some(0)));
        assert_eq!((membership.decide(ASKING), membership.lacking()), (None, 1));
        membership.take(ask(2, None));
        assert_eq!(membership.decide(ASKING).unwrap().0.members, [0, 2]);
        membership.take(ask(1, None));
        assert!(!membership.wants_change(), "there are as many as there may be");
        // Nobody waits for a worker that leaves.
        membership.take(Ask { joins: false, ..ask(2, None) });
        membership.take(ask(0, Some(3)));
        assert_eq!(decide(&mut membership), Some((vec![0, 1], 0)));
    }

    #[test]
    fn a_chief_that_was_restarted_counts_on_and_takes_over_what_the_others_have() {
        let mut membership = Membership::new(1, 2, 2);
        membership.take(ask(0, Some(100)));
        membership.take(Ask { epoch: 6, ..ask(1, Some(137)) });
        let (epoch, _) = membership.decide(Duration::ZERO).unwrap();
        assert_eq!((epoch.number, epoch.source), (7, 1));
        let own = ask(3, None);
        assert_eq!(Ask::from_tensor(&own.to_tensor()).unwrap(), own);
        assert_eq!(Epoch::from_tensor(&epoch.to_tensor(9)).unwrap(), (9, epoch));
        assert!(Ask::from_tensor(&Tensor::vector(&[1i64])).is_err());
        membership.take(ask(9, None));
        assert_eq!(membership.lacking(), 1, "there is no such worker");
        membership.take(Ask { epoch: i64::MAX, ..ask(1, None) });
        assert_eq!(membership.lacking(), 1, "there is no such epoch");
        membership.take(ask(0, None));
        assert_eq!(membership.decide(ASKING).unwrap().0.number, 8);
    }
}
