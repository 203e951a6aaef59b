//! [`RendezvousMgr`]: the rendezvous of every step that this worker takes part in, created on first use.

use super::early_pushes::{EARLY_BYTES_MAX, EARLY_STEPS_MAX, EarlyPushes};
use super::expected_keys::ExpectedKeys;
use super::step_state::{LinkId, StepProgress, StepState, Transfers};
use crate::client::caller;
use crate::shares::{Place, Shares};
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tensor::{Result, Status, Tensor};

/// The number of finished steps that are remembered, so that a late request doesn't revive one.
const FINISHED_STEPS_KEPT: usize = 1 << 12;

/// The most requests that may wait in one step for tensors that it has not produced yet. A legal step has at most as many as a
/// peer has Recv nodes, for each iteration of a loop.
pub(super) const WAITING_IN_STEP_MAX: usize = 1 << 16;

/// The most waiting requests in all steps.
const WAITING_MAX: usize = 1 << 17;

/// A client may have this many times as many waiting requests as are free: alone, seven eighths of them.
const WAITING_SHARE_FACTOR: usize = 7;

/// The steps that this worker takes part in.
pub(crate) struct RendezvousMgr {
    steps: Mutex<Steps>,
    expected: Arc<ExpectedKeys>,
    /// The number of each client's waiting requests in all steps.
    places: Arc<Shares>,
}

struct Steps {
    active: HashMap<i64, Arc<StepState>>,
    /// Finished steps, each with the error for a later start, if there is a specific one.
    finished: HashMap<i64, Option<Status>>,
    finished_order: VecDeque<i64>,
    early: EarlyPushes,
}

impl RendezvousMgr {
    /// Returns a manager without steps; `expected` are the transfers that registered graphs receive.
    pub fn new(expected: Arc<ExpectedKeys>) -> RendezvousMgr {
        let steps = Steps {
            active: HashMap::new(),
            finished: HashMap::new(),
            finished_order: VecDeque::new(),
            early: EarlyPushes::new(),
        };
        RendezvousMgr { steps: Mutex::new(steps), expected, places: Shares::new(WAITING_MAX, WAITING_SHARE_FACTOR) }
    }

    /// Returns a step, which is created on first use; a finished one is an error.
    pub fn find_or_create(&self, step_id: i64) -> Result<Arc<StepState>> {
        self.steps.lock().find_or_create(step_id)
    }

    /// As [`find_or_create`](Self::find_or_create), for a partition of the step that is about to run here.
    pub fn start(&self, step_id: i64, context: &Arc<dyn Transfers>, session: Weak<()>) -> Result<Arc<StepState>> {
        let mut steps = self.steps.lock();
        let step = steps.find_or_create(step_id)?;
        if !step.has_started.swap(true, Ordering::AcqRel) {
            steps.early.remove(step_id);
            let _ = step.context.set(context.clone());
            let _ = step.session.set(session);
        }
        Ok(step)
    }

    /// Takes a tensor that was pushed over a connection for a step, which may not have begun here yet.
    pub fn pushed(&self, link: LinkId, step_id: i64, key: &Arc<str>, tensor: Tensor, is_dead: bool) {
        let step = match self.take_early(link, step_id, tensor.num_bytes(), false) {
            Early::Taken(step) => Some(step),
            Early::Over => None,
            // Checked without the lock, and only for large tensors.
            Early::TooMuch if self.expected.contains(key) => {
                match self.take_early(link, step_id, tensor.num_bytes(), true) {
                    Early::Taken(step) => Some(step),
                    Early::Over | Early::TooMuch => None,
                }
            }
            Early::TooMuch => {
                self.refuse(step_id, &Status::resource_exhausted(format!(
                    "step {step_id} was refused: it had not begun here, and a peer pushed more than {} MB that no registered \
                     graph receives, of which '{key}' would be {} bytes",
                    EARLY_BYTES_MAX >> 20,
                    tensor.num_bytes()
                )));
                None
            }
        };
        if let Some(step) = step {
            // An error means that the step is over, and then nobody wants the tensor.
            let _ = step.local.send_by_name(key, tensor, is_dead);
        }
    }

    fn take_early(&self, link: LinkId, step_id: i64, bytes: usize, is_expected: bool) -> Early {
        let mut steps = self.steps.lock();
        let Ok(step) = steps.find_or_create(step_id) else { return Early::Over };
        if step.has_started.load(Ordering::Acquire) {
            return Early::Taken(step);
        }
        if !is_expected && !steps.early.has_room(link, bytes) {
            return Early::TooMuch;
        }
        let counted = if is_expected { 0 } else { bytes };
        if let Some(oldest) = steps.early.add(step_id, link, counted) {
            let status = Status::resource_exhausted(format!(
                "step {oldest} was dropped: it had not begun here, and a peer pushed to more than {EARLY_STEPS_MAX} steps \
                 that have not"
            ));
            let dropped = steps.refuse(oldest, &status);
            drop(steps);
            if let Some(dropped) = dropped {
                dropped.abort(status);
            }
        }
        Early::Taken(step)
    }

    /// Ends a step before it has begun: if it begins, it fails with this status.
    fn refuse(&self, step_id: i64, status: &Status) {
        let refused = self.steps.lock().refuse(step_id, status);
        if let Some(step) = refused {
            step.abort(status.clone());
        }
    }

    /// Fails the steps for which tensors were pushed over a broken connection: the tensors may be lost.
    pub fn pushes_lost(&self, link: LinkId, status: &Status) {
        for step in self.active() {
            let failed = {
                let receivers = step.receivers.lock();
                let receiver = receivers.iter().find(|receiver| receiver.link.id() == link);
                receiver.map(|receiver| receiver.unreachable_from(step.task(), status))
            };
            if let Some(status) = failed {
                step.abort(status);
            }
        }
    }

    /// Fails the steps that wait for a tensor of a task with these devices, to which the connection was lost, and those that
    /// will. Tensors that it has pushed for steps that have not begun are dropped, and these steps fail when they begin.
    pub fn peer_lost(&self, link: LinkId, incarnations: &[u64], status: &Status) {
        let mut early = Vec::new();
        {
            let mut steps = self.steps.lock();
            for step_id in steps.early.link_over(link) {
                early.extend(steps.refuse(step_id, status));
            }
        }
        for step in early {
            step.abort(status.clone());
        }
        for step in self.active() {
            step.lose(incarnations, status);
        }
    }

    /// Returns the steps with a partition that has been started here.
    pub fn started(&self) -> Vec<Arc<StepState>> {
        let mut active = self.active();
        active.retain(|step| step.has_started.load(Ordering::Acquire));
        active
    }

    fn active(&self) -> Vec<Arc<StepState>> {
        in_order(self.steps.lock().active.values().cloned())
    }

    /// Returns the number of steps, and of waiting requests in them.
    pub fn sizes(&self) -> (usize, usize) {
        let active = self.active();
        (active.len(), active.iter().map(|step| step.waiting_requests.load(Ordering::Relaxed)).sum())
    }

    /// Returns an active step.
    pub fn find(&self, step_id: i64) -> Option<Arc<StepState>> {
        self.steps.lock().active.get(&step_id).cloned()
    }

    /// Returns the progress of a step.
    pub fn progress(&self, step_id: i64) -> StepProgress {
        let steps = self.steps.lock();
        match (steps.active.get(&step_id), steps.finished.get(&step_id)) {
            (Some(step), _) if !step.has_started.load(Ordering::Acquire) => StepProgress::Unknown,
            (Some(step), _) if step.cancellation.is_cancelled() => StepProgress::Failed,
            (Some(_), _) => StepProgress::Running,
            (None, Some(None)) => StepProgress::Over,
            (None, Some(Some(_))) => StepProgress::Failed,
            (None, None) => StepProgress::Unknown,
        }
    }

    /// Ends a step: waiting requests are notified, unfetched tensors are dropped, and later requests are refused.
    pub fn cleanup(&self, step_id: i64) {
        let step = {
            let mut steps = self.steps.lock();
            steps.early.remove(step_id);
            steps.finish(step_id, None)
        };
        if let Some(step) = step {
            step.abort(Status::aborted(format!("Cleanup {step_id}")).derived());
        }
    }

    /// Ends a step that nobody wants any more, even if its master never ends it. It counts as failed.
    pub fn give_up(&self, step_id: i64, status: &Status) {
        let step = {
            let mut steps = self.steps.lock();
            steps.early.remove(step_id);
            steps.finish(step_id, Some(status.clone()))
        };
        if let Some(step) = step {
            step.abort(status.clone());
        }
    }

    /// Ends the steps whose sessions have ended, and returns them: the message that they are over can be lost with a connection.
    pub fn end_with_sessions(&self) -> Vec<i64> {
        let has_ended = |step: &Arc<StepState>| step.session.get().is_some_and(|session| session.strong_count() == 0);
        let ended: Vec<i64> = self.active().iter().filter(|step| has_ended(step)).map(|step| step.id).collect();
        ended.iter().for_each(|&step_id| self.cleanup(step_id));
        ended
    }

    /// Ends all steps.
    pub fn abort_all(&self, status: &Status) {
        let active = {
            let mut steps = self.steps.lock();
            steps.early = EarlyPushes::new();
            std::mem::take(&mut steps.active)
        };
        for step in in_order(active.into_values()) {
            step.abort(status.clone());
        }
    }

    /// Counts a request that waits in a step; see [`WaitingRequest`].
    pub fn wait_in(self: &Arc<Self>, step: &Arc<StepState>) -> Result<WaitingRequest> {
        let client = caller().client;
        let in_step = step.waiting_requests.fetch_add(1, Ordering::Relaxed);
        // If it is one too many, it is dropped again, which decrements the count.
        let waiting = WaitingRequest { manager: self.clone(), step: step.clone(), place: self.places.take(client) };
        if in_step >= WAITING_IN_STEP_MAX {
            let what =
                format!("{WAITING_IN_STEP_MAX} requests wait for tensors of step {}, which is the most", step.id);
            return Err(Status::resource_exhausted(what));
        }
        if waiting.place.is_none() {
            return Err(Status::resource_exhausted(format!(
                "{client} has as many requests for tensors waiting on this task as it may have: others need some of the \
                 {WAITING_MAX}, too"
            )));
        }
        Ok(waiting)
    }

    /// Returns the number of steps.
    #[cfg(test)]
    pub fn num_steps(&self) -> usize {
        self.steps.lock().active.len()
    }
}

/// Returns steps sorted by id, so that a simulation is reproducible.
fn in_order(steps: impl Iterator<Item = Arc<StepState>>) -> Vec<Arc<StepState>> {
    let mut steps: Vec<Arc<StepState>> = steps.collect();
    steps.sort_unstable_by_key(|step| step.id);
    steps
}

/// The result of a push.
enum Early {
    /// Its step takes it.
    Taken(Arc<StepState>),
    /// Its step is over.
    Over,
    /// Too much was pushed for steps that have not begun.
    TooMuch,
}

impl Steps {
    fn find_or_create(&mut self, step_id: i64) -> Result<Arc<StepState>> {
        if let Some(step) = self.active.get(&step_id) {
            return Ok(step.clone());
        }
        if let Some(why) = self.finished.get(&step_id) {
            return Err(why.clone().unwrap_or_else(|| Status::aborted(format!("step {step_id} is over")).derived()));
        }
        let step = Arc::new(StepState::new(step_id));
        self.active.insert(step_id, step.clone());
        Ok(step)
    }

    /// Records that a step is over; returns it if it was active.
    fn finish(&mut self, step_id: i64, why: Option<Status>) -> Option<Arc<StepState>> {
        if self.finished.insert(step_id, why).is_none() {
            self.finished_order.push_back(step_id);
            if self.finished_order.len() > FINISHED_STEPS_KEPT
                && let Some(oldest) = self.finished_order.pop_front()
            {
                self.finished.remove(&oldest);
            }
        }
        self.active.remove(&step_id)
    }

    /// Removes a step that has not begun; returns it to be ended outside of the lock.
    fn refuse(&mut self, step_id: i64, status: &Status) -> Option<Arc<StepState>> {
        self.early.remove(step_id);
        let has_started = |step: &Arc<StepState>| step.has_started.load(Ordering::Acquire);
        if self.active.get(&step_id).is_some_and(has_started) {
            return None;
        }
        self.finish(step_id, Some(status.clone()))
    }
}

/// A request that waits in a step. If nothing else was ever heard of a step, for example because its master crashed, the step is
/// dropped with its last request.
pub(crate) struct WaitingRequest {
    manager: Arc<RendezvousMgr>,
    step: Arc<StepState>,
    /// Its place among those of its client.
    place: Option<Place>,
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        if self.step.waiting_requests.fetch_sub(1, Ordering::AcqRel) == 1
            && !self.step.has_started.load(Ordering::Acquire)
        {
            let mut steps = self.manager.steps.lock();
            // Checked again under the lock, which a starting partition must take first.
            if !self.step.has_started.load(Ordering::Acquire)
                && !steps.early.contains(self.step.id)
                && self.step.waiting_requests.load(Ordering::Acquire) == 0
            {
                steps.active.remove(&self.step.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{Rendezvous, RendezvousKey};

    #[test]
    fn a_finished_step_stays_finished() {
        let manager = RendezvousMgr::new(Arc::default());
        let step = manager.find_or_create(7).unwrap();
        manager.cleanup(7);
        assert!(step.cancellation.is_cancelled());
        assert!(manager.find_or_create(7).err().unwrap().is_derived());
        for id in 100..100 + 2 * FINISHED_STEPS_KEPT as i64 {
            manager.cleanup(id);
        }
        let steps = manager.steps.lock();
        assert_eq!(steps.finished.len(), FINISHED_STEPS_KEPT);
        assert_eq!(steps.finished_order.len(), FINISHED_STEPS_KEPT);
    }

    #[test]
    fn a_step_that_was_given_up_counts_as_failed() {
        let manager = RendezvousMgr::new(Arc::default());
        let step = manager.find_or_create(7).unwrap();
        manager.give_up(7, &Status::cancelled("the step was cancelled").derived());
        assert!(step.cancellation.is_cancelled());
        assert_eq!((manager.num_steps(), manager.progress(7)), (0, StepProgress::Failed));
    }

    /// Found by the simulation: the message that a step is over may be lost with a connection, or never be sent by a master that
    /// crashed.
    #[test]
    fn a_step_ends_with_its_session_at_the_latest() {
        let (transfers, session): (Arc<dyn Transfers>, Arc<()>) =
            (Arc::new(Alone(Arc::new(crate::metrics::TaskMetrics::new(Vec::new())))), Arc::default());
        let manager = RendezvousMgr::new(Arc::default());
        let step = manager.start(7, &transfers, Arc::downgrade(&session)).unwrap();
        let other = Arc::<()>::default();
        manager.start(8, &transfers, Arc::downgrade(&other)).unwrap();
        assert!(manager.end_with_sessions().is_empty());
        drop(session);
        assert_eq!(manager.end_with_sessions(), [7]);
        assert!(step.cancellation.is_cancelled() && manager.find(7).is_none() && manager.find(8).is_some());
    }

    /// The transfers of a cluster with a single task.
    struct Alone(Arc<crate::metrics::TaskMetrics>);

    impl Transfers for Alone {
        fn task(&self) -> &str {
            "/job:a/replica:0/task:0"
        }
        fn metrics(&self) -> &Arc<crate::metrics::TaskMetrics> {
            &self.0
        }
        fn is_alone(&self) -> bool {
            true
        }
        fn address(&self, _task: &str) -> Option<&str> {
            None
        }
        fn worker(&self, task: &str) -> Result<Arc<dyn crate::interface::WorkerInterface>> {
            Err(Status::not_found(task))
        }
        fn for_cluster(&self, _cluster: crate::ClusterSpec, _task: String) -> Arc<dyn Transfers> {
            Arc::new(Alone(self.0.clone()))
        }
        fn rendezvous(self: Arc<Self>, step: Arc<StepState>) -> Arc<dyn Rendezvous> {
            step
        }
        fn forget_step(&self, _step_id: i64) {}
        fn may_be_pushed_to(&self) -> bool {
            false
        }
        fn connected_to(&self, _incarnation: u64) -> Option<Arc<dyn super::super::step_state::PeerLink>> {
            None
        }
        fn reach(&self, _task: &str, _incarnation: u64) -> crate::interface::Answer<()> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[test]
    fn a_step_that_only_a_gone_request_knew_goes_away() {
        let manager = Arc::new(RendezvousMgr::new(Arc::default()));
        let step = manager.find_or_create(1).unwrap();
        let (first, second) = (manager.wait_in(&step).unwrap(), manager.wait_in(&step).unwrap());
        drop(first);
        assert_eq!(manager.num_steps(), 1);
        drop(second);
        assert_eq!(manager.num_steps(), 0);
        let step = manager.find_or_create(2).unwrap();
        step.has_started.store(true, Ordering::Release);
        drop(manager.wait_in(&step).unwrap());
        assert_eq!(manager.num_steps(), 1);
    }

    fn large() -> Tensor {
        Tensor::zeros(tensor::DType::Float, tensor::Shape::vector(4 << 20)).unwrap()
    }

    fn key(name: &str) -> Arc<str> {
        RendezvousKey::new("/job:a/task:0/device:CPU:0", 7, "/job:b/task:0/device:CPU:0", name, 0, 0).shared().clone()
    }

    #[test]
    fn what_is_pushed_to_steps_that_never_come_is_bounded_and_ends_with_its_connection() {
        let manager = RendezvousMgr::new(Arc::default());
        let tensor = large();
        let num_fitting = EARLY_BYTES_MAX / tensor.num_bytes();
        for id in 0..2 * num_fitting as i64 {
            manager.pushed(LinkId(1), id, &key("x"), tensor.clone(), false);
        }
        assert_eq!(manager.num_steps(), num_fitting);
        let refused = manager.find_or_create(num_fitting as i64).err().unwrap();
        assert_eq!(refused.code(), tensor::Code::ResourceExhausted);
        assert!(refused.message().contains("no registered"), "{refused}");
        // Another peer has its own budget.
        manager.pushed(LinkId(2), -1, &key("x"), tensor.clone(), false);
        assert_eq!(manager.num_steps(), num_fitting + 1);
        let lost = Status::unavailable("the connection to /job:a was closed");
        manager.peer_lost(LinkId(1), &[7], &lost);
        assert_eq!(manager.num_steps(), 1);
        assert_eq!(manager.find_or_create(0).err().unwrap(), lost, "it can't begin without what it was pushed");
        // Ended steps free the budget.
        manager.peer_lost(LinkId(2), &[7], &lost);
        manager.pushed(LinkId(1), -3, &key("x"), tensor, false);
        assert_eq!(manager.num_steps(), 1);
    }

    #[test]
    fn what_a_registered_graph_receives_may_come_early_however_large_it_is() {
        let text = r#"
            r = _Recv() {recv_device="/job:b/task:0/device:CPU:0", send_device="/job:a/task:0/device:CPU:0",
                         send_device_incarnation=7, tensor_name="x", tensor_type=float, _push_to="tcp:m:1#7"}
        "#;
        let graph = graph::NodeGraph::from_text(&text.replace(",\n", ", "), ops::registry()).unwrap();
        let expected = Arc::new(ExpectedKeys::default());
        let expectation = expected.add(&graph);
        let manager = RendezvousMgr::new(expected);
        let tensor = large();
        let num_steps = 2 * EARLY_BYTES_MAX / tensor.num_bytes();
        for id in 0..num_steps as i64 {
            manager.pushed(LinkId(1), id, &key("x"), tensor.clone(), false);
        }
        assert_eq!(manager.num_steps(), num_steps);
        manager.pushed(LinkId(1), -1, &key("y"), tensor.clone(), false);
        drop(expectation);
        manager.pushed(LinkId(1), -2, &key("x"), tensor, false);
        assert_eq!(manager.num_steps(), num_steps, "nobody receives these");
    }

    #[test]
    fn too_many_waiting_requests_are_refused() {
        let manager = Arc::new(RendezvousMgr::new(Arc::default()));
        let step = manager.find_or_create(1).unwrap();
        let waiting: Vec<_> = (0..WAITING_IN_STEP_MAX).map(|_| manager.wait_in(&step).unwrap()).collect();
        assert_eq!(manager.wait_in(&step).err().unwrap().code(), tensor::Code::ResourceExhausted);
        drop(waiting);
        assert_eq!(manager.num_steps(), 0);
    }

    #[test]
    fn a_step_that_asks_after_its_peer_was_lost_fails_by_name() {
        let manager = RendezvousMgr::new(Arc::default());
        let step = manager.find_or_create(1).unwrap();
        step.has_started.store(true, Ordering::Release);
        manager.pushed(LinkId(1), 1, &key("arrived"), Tensor::scalar(1f32), false);
        manager.peer_lost(LinkId(1), &[7], &Status::unavailable("the connection was closed"));
        assert!(!step.cancellation.is_cancelled(), "it may need nothing more");
        let (sender, receiver) = std::sync::mpsc::channel();
        for name in ["arrived", "lost"] {
            let (key, sender) = (RendezvousKey::parse(&key(name)).unwrap(), sender.clone());
            step.local.receive(&key, Box::new(move |outcome| sender.send(outcome.map(drop)).unwrap()));
            step.fail_if_lost(&key);
        }
        receiver.recv().unwrap().unwrap();
        let status = receiver.recv().unwrap().unwrap_err();
        assert_eq!(status.code(), tensor::Code::Unavailable);
        assert!(status.message().contains("'lost' of /job:a/task:0: the connection was closed"), "{status}");
    }
}
