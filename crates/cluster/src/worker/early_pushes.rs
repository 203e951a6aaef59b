//! [`EarlyPushes`]: what was pushed to steps that have not begun here, by the connection that it came over.
//!
//! A fast task pushes before this one is told to begin, and that may be a whole model. But nobody has asked for such tensors
//! yet, and perhaps nobody will. So each connection has a budget. Tensors that a registered graph receives don't count
//! against it; they are bounded by what the process may use. What is left when a connection ends is dropped with it.

use super::step_state::LinkId;
use foldhash::{HashMap, HashMapExt};
use smallvec::SmallVec;

/// How many bytes one peer may push to steps that have not begun here, beyond what registered graphs receive.
pub(super) const EARLY_BYTES_MAX: usize = 64 << 20;

/// To how many steps one peer may have pushed that have not begun here. A master that died leaves such steps behind, and the
/// oldest go.
pub(super) const EARLY_STEPS_MAX: usize = 1 << 10;

/// What was pushed to steps that have not begun here.
pub(super) struct EarlyPushes {
    steps: HashMap<i64, EarlyStep>,
    links: HashMap<LinkId, Held>,
    next_order: u64,
}

struct EarlyStep {
    order: u64,
    /// From where how many bytes came.
    parts: SmallVec<[(LinkId, usize); 2]>,
}

/// What one connection has pushed.
#[derive(Default)]
struct Held {
    bytes: usize,
    num_steps: usize,
}

impl EarlyPushes {
    /// Makes an empty record.
    pub fn new() -> EarlyPushes {
        EarlyPushes { steps: HashMap::new(), links: HashMap::new(), next_order: 0 }
    }

    /// Returns whether a connection may push so many bytes more that no registered graph receives.
    pub fn has_room(&self, link: LinkId, bytes: usize) -> bool {
        let held = self.links.get(&link).map_or(0, |held| held.bytes);
        held.saturating_add(bytes) <= EARLY_BYTES_MAX
    }

    /// Notes a tensor that came over a connection; returns a step that has to make room, when there are too many.
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

    /// Forgets a step, because it has begun or is over; returns whether it was known.
    pub fn remove(&mut self, step_id: i64) -> bool {
        // Most steps begin before anything is pushed to them.
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

    /// Returns whether something was pushed to a step.
    pub fn contains(&self, step_id: i64) -> bool {
        self.steps.contains_key(&step_id)
    }

    /// Forgets a connection; returns the steps that it has pushed to.
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
