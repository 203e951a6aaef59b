//! The pending calls of a peer, mostly partitions that run for it. If possible, the thread that ends a call sends its answer.
//!
//! A partition usually ends because a frame has arrived, on the thread that has read it. Its answer is sent from that thread,
//! once the frame has been handled, and no other thread is woken for it.

use super::{Connection, StreamHub, panicked};
use crate::interface::{Answer, RunGraphReply};
use crate::spawner::Spawner;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tensor::Tensor;
use tracing::debug;

thread_local! {
    /// The calls that ended while this thread handles a frame; `None` while it doesn't.
    static ENDED: RefCell<Option<Vec<Arc<Call>>>> = const { RefCell::new(None) };
}

/// Handles a frame, then answers the calls that ended by it.
pub(super) fn then_answer<T>(deal: impl FnOnce() -> T) -> T {
    ENDED.set(Some(Vec::new()));
    let _dealing = Dealing;
    let result = deal();
    // An answer may end others.
    while let Some(call) = ENDED.with_borrow_mut(|ended| ended.as_mut().and_then(Vec::pop)) {
        call.go_on();
    }
    result
}

/// A frame is being handled; calls that have ended are answered in any case.
struct Dealing;

impl Drop for Dealing {
    fn drop(&mut self) {
        for call in ENDED.take().unwrap_or_default() {
            call.go_on_elsewhere();
        }
    }
}

/// The calls of one peer.
#[derive(Clone, Default)]
pub(super) struct PeerCalls {
    calls: Arc<Mutex<HashMap<u64, Arc<Call>>>>,
}

impl PeerCalls {
    /// Answers a call for a partition once it has run. Until then the task doesn't stop.
    pub fn add(&self, hub: &Arc<StreamHub>, connection: &Arc<Connection>, id: u64, answer: Answer<RunGraphReply>) {
        self.add_counted(hub, connection, id, answer, Some(Counted::new(hub)));
    }

    /// Answers a call for a part of a tensor once it is available, which may be never.
    pub fn add_part(&self, hub: &Arc<StreamHub>, connection: &Arc<Connection>, id: u64, part: Answer<Tensor>) {
        let answer = Box::pin(async move {
            part.await.map(|part| RunGraphReply { received: vec![part], ..RunGraphReply::default() })
        });
        self.add_counted(hub, connection, id, answer, None);
    }

    fn add_counted(
        &self,
        hub: &Arc<StreamHub>,
        connection: &Arc<Connection>,
        id: u64,
        answer: Answer<RunGraphReply>,
        counted: Option<Counted>,
    ) {
        let call = Arc::new(Call {
            id,
            answer: Mutex::new(Some(answer)),
            connection: connection.clone(),
            running: self.clone(),
            spawner: hub.spawner.clone(),
            _counted: counted,
        });
        self.calls.lock().insert(id, call.clone());
        call.go_on();
    }

    /// Cancels a call and its partition.
    pub fn abort(&self, id: u64) {
        let call = self.calls.lock().remove(&id);
        if let Some(call) = call {
            call.give_up();
        }
    }

    /// Cancels all calls.
    pub fn abort_all(&self) {
        // In the order of arrival, so that a simulation is reproducible.
        let mut calls: Vec<_> = std::mem::take(&mut *self.calls.lock()).into_iter().collect();
        calls.sort_unstable_by_key(|(id, _)| *id);
        for (_, call) in calls {
            call.give_up();
        }
    }
}

/// Cancels all calls of a peer when its connection is dropped, even before its end: the calls refer to each other.
pub(super) struct AbortOnDrop(pub PeerCalls);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort_all();
    }
}

/// A call of a peer.
struct Call {
    id: u64,
    /// Its result, when it is available; `None` once it is answered or cancelled.
    answer: Mutex<Option<Answer<RunGraphReply>>>,
    connection: Arc<Connection>,
    running: PeerCalls,
    spawner: Spawner,
    _counted: Option<Counted>,
}

impl Call {
    /// Sends the answer if it is available.
    fn go_on(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let reply = {
            let mut answer = self.answer.lock();
            let Some(waiting) = answer.as_mut() else { return };
            let mut context = Context::from_waker(&waker);
            // Nothing else would answer a call whose thread has panicked.
            let reply = match catch_unwind(AssertUnwindSafe(|| waiting.as_mut().poll(&mut context))) {
                Ok(Poll::Pending) => return,
                Ok(Poll::Ready(reply)) => reply,
                Err(panic) => Err(panicked(&*panic)),
            };
            *answer = None;
            reply
        };
        let was_wanted = self.running.calls.lock().remove(&self.id).is_some();
        if was_wanted && let Err(status) = self.connection.reply(self.id, reply) {
            debug!("an answer could not be sent: {status}");
        }
    }

    fn go_on_elsewhere(self: Arc<Self>) {
        let spawner = self.spawner.clone();
        spawner.spawn(async move { self.go_on() });
    }

    fn give_up(&self) {
        // Ended without the lock, since cancelling a step runs its waiters.
        let answer = self.answer.lock().take();
        drop(answer);
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        // Never immediately: the waker's thread may hold locks.
        let left = ENDED.with_borrow_mut(|ended| match ended {
            Some(ended) => {
                ended.push(self.clone());
                None
            }
            None => Some(self),
        });
        if let Some(call) = left {
            call.go_on_elsewhere();
        }
    }
}

/// Counts a partition that runs for a peer, until it ends.
struct Counted(Arc<StreamHub>);

impl Counted {
    fn new(hub: &Arc<StreamHub>) -> Counted {
        hub.num_running.send_modify(|count| *count += 1);
        Counted(hub.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.num_running.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Transport;
    use crate::transport::stream::frame::OutFrame;
    use crate::transport::stream::socket::Socket;
    use crate::transport::stream::{StreamOffer, StreamSettings};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use tensor::Status;
    use tokio::sync::oneshot;

    /// A hub, a connection of it, and the peer's end.
    fn connected() -> (Arc<StreamHub>, Arc<Connection>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let runtime = tokio::runtime::Handle::current();
        let offer = StreamOffer::new(Transport::Tcp, 1).unwrap();
        let hub =
            Arc::new(StreamHub::new(runtime.into(), "a task".to_owned(), vec![1], offer, StreamSettings::default()));
        let connection = Arc::new(Connection::connecting("peer"));
        connection.up(Arc::new(Socket::unix(ours).unwrap()), OutFrame::default());
        (hub, connection, theirs)
    }

    fn failing_with(outcome: oneshot::Receiver<Status>) -> Answer<RunGraphReply> {
        Box::pin(async move { Err(outcome.await.unwrap_or_else(|_| Status::internal("given up"))) })
    }

    fn read(stream: &mut UnixStream) -> String {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[tokio::test]
    async fn what_ends_by_a_frame_is_answered_on_its_thread() {
        let (hub, connection, mut theirs) = connected();
        let running = PeerCalls::default();
        let (end, ended) = oneshot::channel();
        then_answer(|| running.add(&hub, &connection, 1, failing_with(ended)));
        assert_eq!(*hub.num_running.borrow(), 1);
        // This test's only thread is here all the time, so nobody else can have answered.
        then_answer(|| end.send(Status::aborted("it ended by a frame")).unwrap());
        assert!(read(&mut theirs).contains("it ended by a frame"));
        assert_eq!(*hub.num_running.borrow(), 0);
        assert!(running.calls.lock().is_empty());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_ends_elsewhere_is_answered_by_the_runtime() {
        let (hub, connection, mut theirs) = connected();
        let running = PeerCalls::default();
        let (end, ended) = oneshot::channel();
        then_answer(|| running.add(&hub, &connection, 1, failing_with(ended)));
        std::thread::spawn(move || end.send(Status::aborted("it ended elsewhere")).unwrap()).join().unwrap();
        let answer = tokio::task::spawn_blocking(move || read(&mut theirs)).await.unwrap();
        assert!(answer.contains("it ended elsewhere"));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_call_that_panics_is_answered_and_counted_out() {
        let (hub, connection, mut theirs) = connected();
        let running = PeerCalls::default();
        let (end, ended) = oneshot::channel::<()>();
        let answer: Answer<RunGraphReply> = Box::pin(async move {
            let _ = ended.await;
            panic!("injected by a test")
        });
        then_answer(|| running.add(&hub, &connection, 1, answer));
        std::thread::spawn(move || end.send(()).unwrap()).join().unwrap();
        let answer = tokio::task::spawn_blocking(move || read(&mut theirs)).await.unwrap();
        assert!(answer.contains("injected by a test"), "{answer}");
        let mut num_running = hub.num_running.subscribe();
        let is_over = num_running.wait_for(|&count| count == 0);
        tokio::time::timeout(std::time::Duration::from_secs(60), is_over).await.unwrap().unwrap();
    }

    /// Found by the simulation: calls refer to each other, so that a connection that was dropped before its end leaked them.
    #[tokio::test]
    async fn calls_are_given_up_when_their_connection_is_dropped() {
        let (hub, connection, _theirs) = connected();
        let running = AbortOnDrop(PeerCalls::default());
        let (end, ended) = oneshot::channel();
        then_answer(|| running.0.add(&hub, &connection, 1, failing_with(ended)));
        drop(running);
        assert!(end.is_closed());
        assert_eq!(*hub.num_running.borrow(), 0);
    }

    #[tokio::test]
    async fn what_is_given_up_is_dropped_and_not_answered() {
        let (hub, connection, mut theirs) = connected();
        let running = PeerCalls::default();
        let (end, ended) = oneshot::channel();
        then_answer(|| running.add(&hub, &connection, 1, failing_with(ended)));
        then_answer(|| running.abort(1));
        assert!(end.is_closed());
        assert_eq!(*hub.num_running.borrow(), 0);
        theirs.set_nonblocking(true).unwrap();
        assert_eq!(theirs.read(&mut [0; 16]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
