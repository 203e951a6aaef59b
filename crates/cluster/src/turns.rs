//! [`Turns`]: schedules the calls of different clients in turns, so that one client's flood doesn't delay the others' small
//! steps.
//!
//! The runtime runs ready calls in the order in which they became ready: behind a thousand ready calls of one client, another
//! client's call waits for all of them. So a ready call needs a turn, and a client has only a few turns at a time
//! ([`Turns::new`]). A call holds its turn while it waits for a thread and runs, and returns it when it ends or waits for
//! something else; the next ready call of its client then gets it. No call ever waits for another client's turn, so a client
//! waits at most for the turns of the others, however many calls they have.
//!
//! A client with fewer ready calls than turns, which is almost every client, pays for an uncontended lock each time that a call
//! is woken.

use crate::client::Client;
use crate::latency::{Latencies, LatencySummary};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// The turns of all clients of a server.
pub(crate) struct Turns {
    per_client: usize,
    clients: Mutex<HashMap<Client, Weak<ClientTurns>>>,
}

/// The turns of one client, shared by its connections.
pub(crate) struct ClientTurns {
    per_client: usize,
    queue: Mutex<Queue>,
    /// The latencies of the client's steps, from the arrival of the call to the answer.
    pub latencies: Latencies,
}

#[derive(Default)]
struct Queue {
    /// The number of turns in use.
    given: usize,
    /// The ready calls without a turn.
    waiting: VecDeque<Arc<Call>>,
}

/// One call, as its waker sees it.
struct Call {
    client: Arc<ClientTurns>,
    progress: Mutex<Progress>,
}

struct Progress {
    state: State,
    /// Wakes the call's task; `None` until it was first polled.
    task: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for something.
    Asleep,
    /// It is ready and waits for a turn.
    Queued,
    /// It is ready and has a turn.
    Ready,
    /// It is ready and has a turn, but its task was never polled. It still has its old position in the runtime's queue, so it has
    /// to go to the end first; otherwise a flood would run in one go, with each call passing its turn to the next.
    Early,
    /// It runs, and has a turn.
    Running,
    /// It is running and was woken meanwhile.
    Woken,
    /// It has ended.
    Over,
}

impl Turns {
    /// Lets each client have this many calls that are ready or running at once. It should be at least the number of threads, or
    /// one client alone could not keep them busy.
    pub fn new(per_client: usize) -> Turns {
        Turns { per_client: per_client.max(1), clients: Mutex::default() }
    }

    /// Returns the turns of a client, which all of its connections share.
    pub fn of(&self, client: Client) -> Arc<ClientTurns> {
        let mut clients = self.clients.lock();
        if let Some(turns) = clients.get(&client).and_then(Weak::upgrade) {
            return turns;
        }
        // New clients sweep the entries of disconnected ones, so there are never more than have been connected at once.
        clients.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(ClientTurns {
            per_client: self.per_client,
            queue: Mutex::default(),
            latencies: Latencies::default(),
        });
        clients.insert(client, Arc::downgrade(&turns));
        turns
    }

    /// Returns the number of ready calls that wait for a turn.
    pub fn num_waiting(&self) -> usize {
        let clients: Vec<_> = self.clients.lock().values().filter_map(Weak::upgrade).collect();
        clients.iter().map(|turns| turns.queue.lock().waiting.len()).sum()
    }

    /// Returns the latencies of the steps of each connected client.
    pub fn latencies(&self) -> Vec<(String, LatencySummary)> {
        let clients: Vec<_> =
            self.clients.lock().iter().filter_map(|(c, turns)| Some((*c, turns.upgrade()?))).collect();
        clients.iter().map(|(client, turns)| (client.to_string(), turns.latencies.summary())).collect()
    }
}

impl ClientTurns {
    /// Makes a call wait for turns of this client. It counts as ready from now on.
    pub fn take<F: Future>(self: &Arc<Self>, call: F) -> InTurn<F> {
        let progress = Mutex::new(Progress { state: State::Asleep, task: None });
        let turn = Arc::new(Call { client: self.clone(), progress });
        turn.wake_by_ref();
        let waker = Waker::from(turn.clone());
        InTurn { held: Held(turn), waker, call }
    }

    /// Gives a turn to the call, or queues it; returns whether it has one.
    fn request(&self, call: &Arc<Call>) -> bool {
        let mut queue = self.queue.lock();
        if queue.given < self.per_client {
            queue.given += 1;
            return true;
        }
        queue.waiting.push_back(call.clone());
        false
    }

    /// Passes a turn that is no longer needed to the next call.
    fn release(&self) {
        loop {
            let next = {
                let mut queue = self.queue.lock();
                match queue.waiting.pop_front() {
                    Some(next) => next,
                    None => {
                        queue.given -= 1;
                        return;
                    }
                }
            };
            if next.receive() {
                return;
            }
        }
    }

    /// Queues a call behind the others that wait for a turn, if there are any; returns whether there are.
    fn push_behind(&self, call: &Arc<Call>) -> bool {
        let mut queue = self.queue.lock();
        let anyone_waits = !queue.waiting.is_empty();
        if anyone_waits {
            queue.waiting.push_back(call.clone());
        }
        anyone_waits
    }
}

impl Call {
    /// Takes a turn that another call has returned; returns false if it isn't needed any more.
    fn receive(&self) -> bool {
        let mut progress = self.progress.lock();
        if progress.state != State::Queued {
            return false;
        }
        progress.state = match progress.task {
            Some(_) => State::Ready,
            None => State::Early,
        };
        let task = progress.task.clone();
        drop(progress);
        if let Some(task) = task {
            task.wake();
        }
        true
    }

    /// Begins to run in `task`, if it is this call's turn.
    fn begin(&self, task: &Waker) -> bool {
        let mut progress = self.progress.lock();
        if !progress.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            progress.task = Some(task.clone());
        }
        match progress.state {
            State::Ready => {
                progress.state = State::Running;
                true
            }
            State::Early => {
                progress.state = State::Ready;
                drop(progress);
                task.wake_by_ref();
                false
            }
            _ => false,
        }
    }

    /// Ends a run that [`begin`](Self::begin) began.
    fn end(self: &Arc<Self>, is_over: bool, task: &Waker) {
        let mut progress = self.progress.lock();
        progress.state = match (is_over, progress.state) {
            (true, _) => State::Over,
            // It is ready again, and its client's other calls come first. If there are none, it keeps the turn.
            (false, State::Woken) if self.client.push_behind(self) => State::Queued,
            (false, State::Woken) => {
                progress.state = State::Ready;
                drop(progress);
                task.wake_by_ref();
                return;
            }
            (false, _) => State::Asleep,
        };
        drop(progress);
        self.client.release();
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut progress = self.progress.lock();
        match progress.state {
            State::Asleep => {
                // The lock of the call is held, so a turn that is passed on at once finds it queued.
                let has_turn = self.client.request(self);
                progress.state = if has_turn { State::Ready } else { State::Queued };
                let task = if has_turn { progress.task.clone() } else { None };
                drop(progress);
                if let Some(task) = task {
                    task.wake();
                }
            }
            State::Running => progress.state = State::Woken,
            State::Queued | State::Ready | State::Early | State::Woken | State::Over => {}
        }
    }
}

pin_project! {
    /// A call that runs in turns of its client.
    pub(crate) struct InTurn<F> {
        held: Held,
        // The call's own waker: it is woken in place of its task.
        waker: Waker,
        #[pin]
        call: F,
    }
}

/// Returns the turn when the call ends or is dropped.
struct Held(Arc<Call>);

impl Drop for Held {
    fn drop(&mut self) {
        let state = std::mem::replace(&mut self.0.progress.lock().state, State::Over);
        if matches!(state, State::Ready | State::Early | State::Running | State::Woken) {
            self.0.client.release();
        }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let turn = &this.held.0;
        if !turn.begin(context.waker()) {
            return Poll::Pending;
        }
        let outcome = this.call.poll(&mut Context::from_waker(this.waker));
        turn.end(outcome.is_ready(), context.waker());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;
    use tokio::task::yield_now;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    /// A thousand calls of one client are ready before another client's, which still runs after a few of them.
    #[test]
    fn a_call_waits_for_the_turns_of_another_client_only() {
        const FLOOD: usize = 1000;
        let turns = Turns::new(2);
        let (flood, other) = (turns.of(Client::User(1)), turns.of(Client::User(2)));
        let ran = Arc::new(AtomicUsize::new(0));
        let before = runtime().block_on(async {
            for _ in 0..FLOOD {
                let ran = ran.clone();
                drop(tokio::spawn(flood.take(async move { ran.fetch_add(1, Ordering::Relaxed) })));
            }
            let ran_before = ran.clone();
            let before = tokio::spawn(other.take(async move { ran_before.load(Ordering::Relaxed) })).await.unwrap();
            while ran.load(Ordering::Relaxed) < FLOOD {
                yield_now().await;
            }
            before
        });
        assert!(before <= 2, "{before} calls of the other client came first");
        assert_eq!(flood.queue.lock().given, 0);
    }

    /// The same for a thousand waiting calls that are all woken at once.
    #[test]
    fn calls_that_are_woken_at_once_wait_for_their_turns() {
        const FLOOD: usize = 1000;
        let turns = Turns::new(2);
        let (flood, other) = (turns.of(Client::User(1)), turns.of(Client::User(2)));
        let (ran, begun, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let before = runtime().block_on(async {
            for _ in 0..FLOOD {
                let (ran, begun, go) = (ran.clone(), begun.clone(), go.clone());
                drop(tokio::spawn(flood.take(async move {
                    let notified = go.notified();
                    begun.fetch_add(1, Ordering::Relaxed);
                    notified.await;
                    ran.fetch_add(1, Ordering::Relaxed)
                })));
            }
            while begun.load(Ordering::Relaxed) < FLOOD {
                yield_now().await;
            }
            go.notify_waiters();
            let ran_before = ran.clone();
            let before = tokio::spawn(other.take(async move { ran_before.load(Ordering::Relaxed) })).await.unwrap();
            while ran.load(Ordering::Relaxed) < FLOOD {
                yield_now().await;
            }
            before
        });
        assert!(before <= 2, "{before} calls of the other client came first");
    }

    /// A call that keeps waking itself doesn't starve the other calls of its client.
    #[test]
    fn a_call_that_is_always_ready_takes_turns_with_its_neighbours() {
        let turns = Turns::new(1);
        let client = turns.of(Client::User(1));
        runtime().block_on(async {
            let busy = tokio::spawn(client.take(async {
                loop {
                    yield_now().await;
                }
            }));
            for expected in 0..10 {
                assert_eq!(tokio::spawn(client.take(async move { expected })).await.unwrap(), expected);
            }
            busy.abort();
            assert!(busy.await.is_err_and(|error| error.is_cancelled()));
        });
        assert_eq!(client.queue.lock().given, 0);
    }

    /// Cancelled calls leave no turn behind, whether they run, wait for a turn or for something else.
    #[test]
    fn turns_come_back_from_calls_that_are_given_up() {
        let turns = Turns::new(2);
        let client = turns.of(Client::User(1));
        runtime().block_on(async {
            let calls: Vec<_> = (0..10).map(|_| tokio::spawn(client.take(std::future::pending::<()>()))).collect();
            yield_now().await;
            let ready: Vec<_> = (0..10).map(|_| client.take(std::future::pending::<()>())).collect();
            drop(ready);
            for call in calls {
                call.abort();
                assert!(call.await.is_err());
            }
            assert_eq!(tokio::spawn(client.take(async { 7 })).await.unwrap(), 7);
        });
        assert_eq!(client.queue.lock().given, 0);
        assert!(client.queue.lock().waiting.is_empty());
    }

    #[test]
    fn clients_that_left_are_forgotten() {
        let turns = Turns::new(2);
        for user in 0..100 {
            drop(turns.of(Client::User(user)));
        }
        assert_eq!(turns.clients.lock().len(), 1);
        let kept = turns.of(Client::User(7));
        assert!(Arc::ptr_eq(&kept, &turns.of(Client::User(7))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_calls_on_several_threads_all_end() {
        let turns = Turns::new(2);
        let client = turns.of(Client::User(1));
        let (sender, receiver) = async_channel_pair();
        let receivers: Vec<_> = (0..200)
            .map(|_| {
                let receiver = receiver.clone();
                tokio::spawn(client.take(async move { receiver.lock().await.recv().await }))
            })
            .collect();
        for value in 0..200u32 {
            let sender = sender.clone();
            tokio::spawn(client.take(async move { sender.send(value).await.is_ok() }));
        }
        let mut sum = 0;
        for receiver in receivers {
            sum += receiver.await.unwrap().unwrap();
        }
        assert_eq!(sum, 199 * 200 / 2);
    }

    type Shared<T> = Arc<tokio::sync::Mutex<tokio::sync::mpsc::Receiver<T>>>;

    fn async_channel_pair() -> (tokio::sync::mpsc::Sender<u32>, Shared<u32>) {
        let (sender, receiver) = tokio::sync::mpsc::channel(3);
        (sender, Arc::new(tokio::sync::Mutex::new(receiver)))
    }
}
