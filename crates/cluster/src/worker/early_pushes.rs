//! [`EarlyPushes`]: tensors that were pushed for steps that have not begun here, by connection.
//!
//! A fast task pushes before this one is told to begin, and that may be a whole model. But nobody has asked for such tensors yet,
//! and perhaps nobody will. So each connection has a budget. Tensors that a registered graph receives don't count towards it;
//! they are bounded by the memory of the process. When a connection closes, what is left of it is dropped.

use super::step_state::LinkId;
use foldhash::{HashMap, HashMapExt};
use smallvec::SmallVec;

/// The most bytes that one peer may push for steps that have not begun here, apart from those that registered graphs receive.
pub(super) const EARLY_BYTES_MAX: usize = 64 << 20;

/// The most steps that have not begun here for which one peer may have pushed tensors. A master that crashed leaves such steps
/// behind, and the oldest are dropped.
pub(super) const EARLY_STEPS_MAX: usize = 1 << 10;

/// The tensors pushed for steps that have not begun here.
pub(super) struct EarlyPushes {
    steps: HashMap<i64, EarlyStep>,
    links: HashMap<LinkId, Held>,
    next_order: u64,
}

struct EarlyStep {
    order: u64,
    /// The bytes by connection.
    parts: SmallVec<[(LinkId, usize); 2]>,
}

/// The pushes of one connection.
#[derive(Default)]
struct Held {
    bytes: usize,
    num_steps: usize,
}

impl EarlyPushes {
    /// Returns an empty record.
    pub fn new() -> EarlyPushes {
        EarlyPushes { steps: HashMap::new(), links: HashMap::new(), next_order: 0 }
    }

    /// Returns whether a connection may push this many more bytes that no registered graph receives.
    pub fn has_room(&self, link: LinkId, bytes: usize) -> bool {
        let held = self.links.get(&link).map_or(0, |held| held.bytes);
        held.saturating_add(bytes) <= EARLY_BYTES_MAX
    }

    /// Records a tensor from a connection; returns a step to drop if there are too many.
    pub fn add(&mut self, step_id: i64, link: LinkId, bytes: usize) -> Option<i64> {
        let order = self.next_order;
        let step = self.steps.entry(step_id).or_insert_with(|| EarlyStep { order, parts: SmallVec::new() });
        self.next_order += 1;
        let held = self.links.entry(link).or_default();
        held.bytes = held.bytes.saturating_add(bytes);
        if let Some((_, known)) = step.parts.iter_mut().find(|(from, _)| *from == link) {
            *known = known.saturating_add(bytes);
            return None;
        }
        step.parts.push((link, bytes));
        held.num_steps += 1;
        if held.num_steps <= EARLY_STEPS_MAX {
            return None;
        }
        let of_link = self.steps.iter().filter(|(_, step)| step.parts.iter().any(|(from, _)| *from == link));
        of_link.min_by_key(|(_, step)| step.order).map(|(&id, _)| id)
    }

    /// Removes a step, because it has begun or is over; returns whether it was recorded.
    pub fn remove(&mut self, step_id: i64) -> bool {
        // Most steps begin before anything is pushed for them.
        if self.steps.is_empty() {
            return false;
        }
        let Some(step) = self.steps.remove(&step_id) else { return false };
        for (link, bytes) in step.parts {
            if let Some(held) = self.links.get_mut(&link) {
                held.bytes = held.bytes.saturating_sub(bytes);
                held.num_steps = held.num_steps.saturating_sub(1);
            }
        }
        true
    }

    /// Returns whether something was pushed for a step.
    pub fn contains(&self, step_id: i64) -> bool {
        self.steps.contains_key(&step_id)
    }

    /// Removes a connection; returns the steps for which it has pushed tensors.
    pub fn link_over(&mut self, link: LinkId) -> Vec<i64> {
        let of_link = |step: &EarlyStep| step.parts.iter().any(|(from, _)| *from == link);
        let steps: Vec<i64> = self.steps.iter().filter(|(_, step)| of_link(step)).map(|(&id, _)| id).collect();
        for &step_id in &steps {
            self.remove(step_id);
        }
        self.links.remove(&link);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_has_its_own_budget() {
        let mut early = EarlyPushes::new();
        assert_eq!(early.add(1, LinkId(7), EARLY_BYTES_MAX), None);
        assert!(!early.has_room(LinkId(7), 1) && early.has_room(LinkId(8), EARLY_BYTES_MAX));
        early.add(1, LinkId(8), 5);
        assert!(early.remove(1) && !early.remove(1));
        assert!(early.has_room(LinkId(7), EARLY_BYTES_MAX));
        for step in 0..EARLY_STEPS_MAX as i64 {
            assert_eq!(early.add(step, LinkId(7), 0), None);
        }
        assert_eq!(early.add(-1, LinkId(8), 0), None, "the steps of another don't count");
        assert_eq!(early.add(-2, LinkId(7), 0), Some(0));
        early.remove(0);
        assert_eq!(early.link_over(LinkId(7)).len(), EARLY_STEPS_MAX);
        assert_eq!(early.link_over(LinkId(8)), [-1]);
        assert!(early.steps.is_empty() && early.links.is_empty());
    }
}
