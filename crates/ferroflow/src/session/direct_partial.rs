//! Partial runs of a [`DirectSession`](super::DirectSession): one step whose feeds and fetches meet at its rendezvous, so
//! that each can come when the program has it.

use super::direct::Outcome;
use graph::passes::FeedSlot;
use graph::{Edge, NodeGraph};
use kernel::{Cancellation, LocalRendezvous, Rendezvous, RendezvousKey};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use tensor::{Result, Status, Tensor};

/// What the one device of a direct session is known by in rendezvous keys.
pub(super) const INCARNATION: u64 = 1;

/// A step that is fed and fetched bit by bit.
pub(super) struct PartialRun {
    pub(super) device: &'static str,
    pub(super) rendezvous: Arc<LocalRendezvous>,
    pub(super) outcome: Arc<Outcome>,
    pub(super) cancellation: Cancellation,
    pub(super) pending: Mutex<Pending>,
}

/// What is still to be fed and fetched.
pub(super) struct Pending {
    pub(super) feeds: HashMap<String, FeedSlot>,
    /// The fetches, with the feeds that each needs.
    pub(super) fetches: HashMap<String, Vec<String>>,
    pub(super) all_feeds: Vec<String>,
    pub(super) all_fetches: Vec<String>,
    /// The feeds that are fetches too, which the step doesn't see.
    pub(super) fed: HashMap<String, Option<Tensor>>,
}

impl PartialRun {
    /// Feeds and fetches; the last call waits until the step has ended.
    pub(super) fn run(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<(Vec<Tensor>, bool)> {
        let (from_feeds, is_last) = self.cross_off(feeds, fetches)?;
        for (name, value) in feeds {
            self.rendezvous.send(&self.key(name), value.clone(), false)?;
        }
        let mut values = Vec::with_capacity(fetches.len());
        for name in fetches {
            if let Some(value) = from_feeds.get(*name) {
                values.push(value.clone());
                continue;
            }
            let (sender, receiver) = mpsc::channel();
            self.rendezvous.receive(&self.key(name), Box::new(move |result| drop(sender.send(result))));
            // The step's end, good or bad, ends every wait at its rendezvous.
            let (value, is_dead) =
                receiver.recv().map_err(|_| Status::internal("a partial run lost one of its fetches"))??;
            if is_dead {
                return Err(Status::invalid_argument(format!(
                    "The tensor returned for {name} was not valid: it is on a branch that was not taken"
                )));
            }
            values.push(value);
        }
        if is_last {
            self.outcome.wait(None, &self.cancellation)?;
        }
        Ok((values, is_last))
    }

    fn key(&self, name: &str) -> RendezvousKey {
        RendezvousKey::new(self.device, INCARNATION, self.device, name, 0, 0)
    }

    /// Crosses off what a call feeds and fetches; returns the fetches that are feeds, and whether nothing is left.
    fn cross_off(&self, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<(HashMap<String, Tensor>, bool)> {
        let mut pending = self.pending.lock();
        for (name, value) in feeds {
            match pending.feeds.get(*name) {
                Some(slot) => slot.check(value.dtype(), value.shape())?,
                None if pending.all_feeds.iter().any(|known| known == name) => {
                    return Err(Status::invalid_argument(format!("The feed {name} had already been fed.")));
                }
                None => {
                    return Err(Status::not_found(format!("The feed {name} was not specified in partial_run_setup.")));
                }
            }
        }
        let is_fed = |pending: &Pending, name: &str| {
            !pending.feeds.contains_key(name) || feeds.iter().any(|(fed, _)| *fed == name)
        };
        for name in fetches {
            match pending.fetches.get(*name) {
                Some(needs) if needs.iter().all(|feed| is_fed(&pending, feed)) => {}
                Some(_) => {
                    return Err(Status::invalid_argument(format!(
                        "Fetch {name} can't be computed from the feeds that have been fed so far."
                    )));
                }
                None if pending.all_fetches.iter().any(|known| known == name) => {
                    return Err(Status::invalid_argument(format!("The fetch {name} had already been fetched.")));
                }
                None => {
                    return Err(Status::not_found(format!("The fetch {name} was not specified in partial_run_setup.")));
                }
            }
        }
        for (name, value) in feeds {
            pending.feeds.remove(*name);
            if let Some(slot) = pending.fed.get_mut(*name) {
                *slot = Some(value.clone());
            }
        }
        let mut from_feeds = HashMap::new();
        for name in fetches {
            pending.fetches.remove(*name);
            if let Some(Some(value)) = pending.fed.get(*name) {
                from_feeds.insert((*name).to_owned(), value.clone());
            }
        }
        Ok((from_feeds, pending.feeds.is_empty() && pending.fetches.is_empty()))
    }
}

/// Returns the names of the feeds that an output needs.
pub(super) fn feeds_behind(graph: &NodeGraph, feeds: &[(String, Edge)], fetch: Edge) -> Vec<String> {
    let mut seen = vec![false; graph.id_bound()];
    let mut found: Vec<String> = Vec::new();
    let mut stack = Vec::new();
    let mut visit = |edge: Edge, stack: &mut Vec<_>| match feeds.iter().find(|(_, fed)| *fed == edge) {
        Some((name, _)) => found.push(name.clone()),
        None => stack.push(edge.node),
    };
    visit(fetch, &mut stack);
    while let Some(id) = stack.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        let Some(node) = graph.get(id) else { continue };
        for &edge in &node.inputs {
            visit(edge, &mut stack);
        }
        stack.extend(&node.control_inputs);
    }
    found
}
