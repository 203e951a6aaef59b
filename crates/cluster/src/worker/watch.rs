//! [`Watch`]: watches steps that wait for tensors of other tasks, so that none waits for a tensor that will never arrive.
//!
//! A pushed tensor has no request behind it whose end would report a failure. It can be lost in these ways, each of which ends
//! the wait:
//!
//! - The sender can't connect. Its part of the step doesn't succeed before the receiver has greeted it, so its master gets an
//!   error.
//! - The connection breaks. Both sides detect that within ten seconds (`connection_options`). The sender fails the active steps
//!   that pushed over it. The receiver fails those that wait for that peer, or will, and those that have not begun and have
//!   received pushes.
//! - The tensor is lost together with the connection before the receiver has heard of the step. So a step that waits for longer
//!   than this watch's interval asks the sender for its progress. The answer comes after all earlier pushes, on the same
//!   connection: if the sender's part is over and the tensor isn't there, it is lost. If the sender can't be reached or was
//!   restarted, the step fails with that error.
//! - The sender says that it doesn't know the step. That is normal until its master has started it there, which may take long if
//!   feeds are large. It counts as a failure only if a connection to the sender was lost shortly before, after [`UNKNOWN_MAX`]
//!   questions.
//!
//! A connected peer that doesn't answer, such as a suspended process, fails nothing: it may continue, and TensorFlow would wait,
//! too. Log lines name it (`stream`, and `grpc/client.rs` for TensorFlow's tasks).

use super::Worker;
use super::step_state::{LinkId, PeerLink, StepProgress, Transfers};
use crate::clock::sleep;
use crate::device::task_of;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::Status;

/// How often a sender may say that it doesn't know a step, after a connection to it was lost.
const UNKNOWN_MAX: u32 = 6;

/// How many checks before a step began a connection may have been lost with tensors for it.
const LOST_LOOKS: u64 = 12;

/// The most receives of a step that are examined.
const KEYS_MAX: usize = 1 << 10;

/// The most steps in one question.
const STEPS_MAX: usize = 1 << 10;

/// The most devices of lost peers that are remembered.
const LOST_MAX: usize = 1 << 12;

/// Checks the steps of a worker every `interval`, until the worker is dropped.
pub(crate) async fn watch(worker: Weak<Worker>, interval: Duration) {
    loop {
        sleep(interval).await;
        let Some(worker) = worker.upgrade() else { return };
        worker.look_at_waiting_steps();
    }
}

/// The watch's knowledge of waiting steps.
#[derive(Default)]
pub(super) struct Watch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts the checks.
    now: u64,
    /// The steps that waited at the last check.
    waits: HashMap<i64, Wait>,
    /// The unanswered questions to peers, by a device of theirs.
    questions: HashMap<u64, Question>,
    next_question: u64,
    /// The devices of peers that are being connected to.
    reaching: HashSet<u64>,
    /// The check at which a connection to a device's task was last found to be lost.
    lost: HashMap<u64, u64>,
}

/// A step that waits.
#[derive(Clone, Copy)]
struct Wait {
    /// The check at which it was first seen waiting.
    since: u64,
    /// How often in a row the sender has said that it doesn't know the step.
    num_unknown: u32,
}

struct Question {
    id: u64,
    link: LinkId,
    steps: Vec<i64>,
}

/// A task whose tensors steps wait for.
struct Sender {
    task: String,
    context: Arc<dyn Transfers>,
    steps: Vec<i64>,
}

impl Watch {
    /// Records that a connection to a task with these devices was lost.
    pub fn peer_lost(&self, incarnations: &[u64]) {
        let mut state = self.state.lock();
        let now = state.now;
        if state.lost.len() + incarnations.len() > LOST_MAX {
            state.lost.retain(|_, at| *at + LOST_LOOKS >= now);
        }
        for &incarnation in incarnations {
            if state.lost.len() < LOST_MAX {
                state.lost.insert(incarnation, now);
            }
        }
    }
}

impl State {
    /// Decides whether a peer's answer means that a tensor will never arrive; returns why.
    fn judge(&mut self, incarnation: u64, step_id: i64, progress: StepProgress) -> Option<Status> {
        let wait = self.waits.get_mut(&step_id)?;
        match progress {
            StepProgress::Running => {
                wait.num_unknown = 0;
                None
            }
            StepProgress::Over => Some(Status::unavailable(
                "that task has sent all of its step, and this was not among it: it was lost with a connection that broke",
            )),
            StepProgress::Failed => Some(Status::aborted("the step has failed there").derived()),
            StepProgress::Unknown => {
                wait.num_unknown += 1;
                let since = wait.since;
                let was_lost = self.lost.get(&incarnation).is_some_and(|at| at + LOST_LOOKS >= since);
                (was_lost && wait.num_unknown >= UNKNOWN_MAX).then(|| {
                    Status::unavailable(
                        "a connection to that task broke, and it doesn't know the step: the tensor was probably lost",
                    )
                })
            }
        }
    }
}

impl Worker {
    /// Asks the tasks for whose tensors steps have waited since the last check.
    pub(super) fn look_at_waiting_steps(self: &Arc<Self>) {
        if !self.transfers.may_be_pushed_to() {
            return;
        }
        let mut senders: BTreeMap<u64, Sender> = BTreeMap::new();
        let mut state = self.watch.state.lock();
        state.now += 1;
        let now = state.now;
        let mut before = std::mem::take(&mut state.waits);
        for step in self.steps.started() {
            let Some(context) = step.context() else { continue };
            let keys = step.waiting_keys(KEYS_MAX, |key| task_of(key.source_device()) != context.task());
            if keys.is_empty() {
                continue;
            }
            let wait = before.remove(&step.id).unwrap_or(Wait { since: now, num_unknown: 0 });
            state.waits.insert(step.id, wait);
            for key in keys.iter().filter(|_| wait.since < now) {
                let task = task_of(key.source_device());
                let sender = senders.entry(key.source_incarnation()).or_insert_with(|| Sender {
                    task: task.to_owned(),
                    context: context.clone(),
                    steps: Vec::new(),
                });
                if sender.steps.last() != Some(&step.id) && sender.steps.len() < STEPS_MAX {
                    sender.steps.push(step.id);
                }
            }
        }
        state.questions.retain(|incarnation, _| senders.contains_key(incarnation));
        drop(state);
        for (incarnation, sender) in senders {
            match self.transfers.connected_to(incarnation) {
                Some(link) => self.ask(incarnation, &*link, sender.steps),
                None => self.reach(incarnation, sender),
            }
        }
    }

    /// Asks a peer for its progress in steps, unless it owes an answer already.
    fn ask(&self, incarnation: u64, link: &dyn PeerLink, steps: Vec<i64>) {
        let id = {
            let mut state = self.watch.state.lock();
            if state.questions.get(&incarnation).is_some_and(|question| question.link == link.id()) {
                return;
            }
            let id = state.next_question;
            state.next_question += 1;
            state.questions.insert(incarnation, Question { id, link: link.id(), steps: steps.clone() });
            id
        };
        // If it can't be sent, the connection closes, which is reported to the steps.
        let _ = link.ask_progress(id, &steps);
    }

    /// Connects to a task without a stream, to ask it the next time. If it can't be reached, the steps fail.
    fn reach(self: &Arc<Self>, incarnation: u64, sender: Sender) {
        if !self.watch.state.lock().reaching.insert(incarnation) {
            return;
        }
        let worker = self.clone();
        let reaching = sender.context.reach(&sender.task, incarnation);
        self.spawner.spawn(async move {
            let reached = reaching.await;
            worker.watch.state.lock().reaching.remove(&incarnation);
            if let Err(status) = reached {
                worker.fail_waiting(&sender.steps, incarnation, &status);
            }
        });
    }

    fn fail_waiting(&self, steps: &[i64], incarnation: u64, status: &Status) {
        for &step_id in steps {
            if let Some(step) = self.steps.find(step_id) {
                step.fail_waiting_for(&[incarnation], status);
            }
        }
    }

    /// Handles the answer of a task with these devices about its progress in steps.
    pub(crate) fn told_progress(&self, incarnations: &[u64], id: u64, steps: &[(i64, StepProgress)]) {
        let mut failed = Vec::new();
        {
            let mut state = self.watch.state.lock();
            let asked = incarnations.iter().find(|device| state.questions.get(device).is_some_and(|q| q.id == id));
            let Some(&incarnation) = asked else { return };
            let Some(question) = state.questions.remove(&incarnation) else { return };
            for &(step_id, progress) in steps {
                if question.steps.contains(&step_id)
                    && let Some(status) = state.judge(incarnation, step_id, progress)
                {
                    failed.push((step_id, incarnation, status));
                }
            }
        }
        for (step_id, incarnation, status) in failed {
            self.fail_waiting(&[step_id], incarnation, &status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterSpec, PeerTimes, Server, ServerConfig, Transport};
    use kernel::{Rendezvous, RendezvousKey};
    use tensor::Code;
    use tokio::sync::oneshot;

    const STEP: i64 = 1;
    const DEVICE: u64 = 7;

    fn waiting() -> Watch {
        let watch = Watch::default();
        watch.state.lock().now = 100;
        watch.state.lock().waits.insert(STEP, Wait { since: 100, num_unknown: 0 });
        watch
    }

    #[test]
    fn a_step_that_is_over_at_its_sender_has_lost_what_it_waits_for() {
        let watch = waiting();
        let mut state = watch.state.lock();
        assert!(state.judge(DEVICE, STEP, StepProgress::Running).is_none());
        assert!(!state.judge(DEVICE, STEP, StepProgress::Over).unwrap().is_derived());
        assert!(state.judge(DEVICE, STEP, StepProgress::Failed).unwrap().is_derived());
        assert!(state.judge(DEVICE, STEP + 1, StepProgress::Over).is_none(), "nobody waits in it any more");
    }

    /// Starts two tasks whose steps only the test watches.
    fn two_tasks() -> (Server, Server) {
        let ports: [u16; 2] = {
            let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let listeners = [bind(), bind()];
            listeners.map(|listener| listener.local_addr().unwrap().port())
        };
        let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
        let cluster = ClusterSpec::new().with_job("worker", &addresses).unwrap();
        let start = |index| {
            let mut config = ServerConfig::new(cluster.clone(), "worker", index).unwrap();
            config.transport = Transport::Tcp;
            config.peer_times = PeerTimes { check: Duration::from_secs(3600), ..PeerTimes::default() };
            Server::start(config, ops::registry(), tokio::runtime::Handle::current()).unwrap()
        };
        (start(0), start(1))
    }

    /// Starts a step on a worker that waits for a tensor of a device of another.
    fn wait_for(receiver: &Worker, sender: &Worker, incarnation: u64) -> oneshot::Receiver<Status> {
        let step = receiver.steps.start(STEP, &receiver.transfers, std::sync::Weak::new()).unwrap();
        let devices = (&sender.devices[0].name, &receiver.devices[0].name);
        let key = RendezvousKey::new(devices.0, incarnation, devices.1, "edge", 0, 0);
        let (ended, outcome) = oneshot::channel();
        step.local.receive(&key, Box::new(move |outcome| drop(ended.send(outcome.unwrap_err()))));
        outcome
    }

    /// Checks until the wait has ended: first a stream is opened, then the sender is asked.
    async fn look_until_ended(worker: &Arc<Worker>, mut outcome: oneshot::Receiver<Status>) -> Status {
        loop {
            worker.look_at_waiting_steps();
            tokio::select! {
                status = &mut outcome => return status.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_tensor_that_was_lost_is_noticed_by_asking_its_sender() {
        let (receiver, sender) = two_tasks();
        let incarnation = sender.worker().devices[0].incarnation;
        let outcome = wait_for(receiver.worker(), sender.worker(), incarnation);
        sender.worker().steps.start(STEP, &sender.worker().transfers, std::sync::Weak::new()).unwrap();
        for _ in 0..50 {
            receiver.worker().look_at_waiting_steps();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!receiver.worker().steps.find(STEP).unwrap().cancellation.is_cancelled(), "its sender goes on");
        // The sender's part is over, and its tensor isn't there.
        sender.worker().steps.cleanup(STEP);
        let status = look_until_ended(receiver.worker(), outcome).await;
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().starts_with("/job:worker/replica:0/task:0 waits for 'edge' of"), "{status}");
        assert!(
            status.message().contains("/job:worker/replica:0/task:1") && status.message().contains("lost"),
            "{status}"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sender_that_was_restarted_or_is_not_there_is_not_waited_for() {
        let (receiver, sender) = two_tasks();
        let outcome = wait_for(receiver.worker(), sender.worker(), 12345);
        let status = look_until_ended(receiver.worker(), outcome).await;
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("task:1: that task was restarted"), "{status}");
        receiver.worker().steps.cleanup(STEP);
        let (receiver, sender) = two_tasks();
        let incarnation = sender.worker().devices[0].incarnation;
        let outcome = wait_for(receiver.worker(), sender.worker(), incarnation);
        sender.stop().await;
        let status = look_until_ended(receiver.worker(), outcome).await;
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("task:1: can't connect to /job:worker/replica:0/task:1 at"), "{status}");
    }

    #[test]
    fn a_sender_that_does_not_know_a_step_is_waited_for_unless_a_connection_was_lost() {
        let watch = waiting();
        for _ in 0..10 * UNKNOWN_MAX {
            assert!(watch.state.lock().judge(DEVICE, STEP, StepProgress::Unknown).is_none());
        }
        let watch = waiting();
        watch.peer_lost(&[DEVICE]);
        let mut state = watch.state.lock();
        for _ in 1..UNKNOWN_MAX {
            assert!(state.judge(DEVICE, STEP, StepProgress::Unknown).is_none());
        }
        assert!(state.judge(DEVICE, STEP, StepProgress::Unknown).is_some());
        state.waits.insert(STEP, Wait { since: 101 + LOST_LOOKS, num_unknown: UNKNOWN_MAX });
        assert!(state.judge(DEVICE, STEP, StepProgress::Unknown).is_none(), "the step began long after");
    }
}
