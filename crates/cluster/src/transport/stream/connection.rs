//! [`Connection`]: one stream to a peer, in both directions. A sender writes at once, on its own thread, as much as the socket
//! accepts; a background task writes the rest as the socket drains.

use super::frame::{Fields, FrameWriter, Kind, OutFrame, Purpose, Share};
use super::outgoing::Outgoing;
use super::releases::Releases;
use super::settings::StreamLimits;
use super::shared_memory::SharedHeap;
use super::silence::Silence;
use super::socket::Socket;
use crate::clock::sleep;
use crate::interface::{RunGraphCall, RunGraphReply};
use crate::metrics::PeerTraffic;
use crate::worker::{LinkId, PeerLink};
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tensor::{Buffer, Code, Result, Status, Tensor};
use tokio::sync::{Notify, oneshot};

/// The number of pieces that one system call writes.
const PIECES_MAX: usize = 64;

/// The most pieces of pushed tensors that wait to be sent together.
const PUSHED_PIECES_MAX: usize = 16;

/// A pushed tensor of this many bytes is sent at once: its copy takes longer than the system call.
const PUSHED_BYTES_MAX: usize = 32 << 10;

/// How long the release of a peer's memory waits for a frame to travel with. Steps send frames all the time, and a timer for each
/// release would cost as much as the frames.
const RELEASE_DELAY: Duration = Duration::from_millis(20);

/// A stream to a peer.
pub struct Connection {
    id: LinkId,
    /// The peer's address, for messages.
    address: String,
    /// The peer's task, as it states itself.
    task: OnceLock<String>,
    /// The bounds of the queue and of waiting times.
    limits: StreamLimits,
    /// The incarnations of its devices.
    incarnations: OnceLock<SmallVec<[u64; 2]>>,
    /// Those of them that are proven.
    proven: OnceLock<SmallVec<[u64; 2]>>,
    /// The counters of the connection's transfers.
    traffic: OnceLock<Arc<PeerTraffic>>,
    /// Notified when the peer has greeted, or the connection is over.
    settling: Notify,
    outgoing: Mutex<Sending>,
    /// Whether something may be queued.
    has_backlog: AtomicBool,
    /// Whether the peer still reads.
    pub(super) silence: Silence,
    /// Notified when something is queued.
    unfinished: Notify,
    calls: Mutex<HashMap<u64, oneshot::Sender<Result<RunGraphReply>>>>,
    next_call: AtomicU64,
    /// Whether the peer reads our heap.
    is_shared: AtomicBool,
    /// The blocks that the peer reads there, by token; kept until it releases them.
    lent: Mutex<HashMap<u64, Buffer>>,
    /// The size of these blocks in bytes.
    lent_bytes: AtomicUsize,
    next_token: AtomicU64,
    /// The released blocks of the peer's heap; the peer is told with the next frame, or after a moment.
    releases: Arc<Releases>,
}

struct Sending {
    link: Link,
    queue: Outgoing,
    /// The number of frames sent that require an action of the peer.
    num_sent: u64,
    /// The number of bytes written.
    written: u64,
}

/// The progress of a connection, for the watch of silent peers.
pub(super) struct Progress {
    /// Frames that require an action of the peer.
    pub num_sent: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes queued.
    pub waiting: usize,
    /// Whether there is a socket.
    pub is_up: bool,
}

enum Link {
    /// Frames wait until there is a socket.
    Connecting,
    Up(Arc<Socket>),
    Broken(Status),
}

impl Connection {
    /// Returns a connection that isn't established yet; frames are queued meanwhile.
    #[cfg(test)]
    pub(crate) fn connecting(address: &str) -> Connection {
        Connection::with_limits(address, StreamLimits::default())
    }

    /// Returns such a connection with the given bounds.
    pub(super) fn with_limits(address: &str, limits: StreamLimits) -> Connection {
        static NUM_MADE: AtomicU64 = AtomicU64::new(0);
        Connection {
            id: LinkId(NUM_MADE.fetch_add(1, Ordering::Relaxed)),
            address: address.to_owned(),
            task: OnceLock::new(),
            limits,
            incarnations: OnceLock::new(),
            proven: OnceLock::new(),
            traffic: OnceLock::new(),
            settling: Notify::new(),
            outgoing: Mutex::new(Sending {
                link: Link::Connecting,
                queue: Outgoing::default(),
                num_sent: 0,
                written: 0,
            }),
            has_backlog: AtomicBool::new(true),
            silence: Silence::default(),
            unfinished: Notify::new(),
            calls: Mutex::new(HashMap::new()),
            next_call: AtomicU64::new(1),
            is_shared: AtomicBool::new(false),
            lent: Mutex::new(HashMap::new()),
            lent_bytes: AtomicUsize::new(0),
            next_token: AtomicU64::new(1),
            releases: Arc::default(),
        }
    }

    /// Sets the connection's socket, and sends `first` before anything else.
    pub(crate) fn up(&self, socket: Arc<Socket>, first: OutFrame) {
        let mut outgoing = self.outgoing.lock();
        if matches!(outgoing.link, Link::Broken(_)) {
            // The connection was closed before it was established.
            socket.shut_down();
            return;
        }
        if !first.pieces.is_empty() {
            outgoing.queue.push_first(first);
        }
        outgoing.link = Link::Up(socket);
        self.has_backlog.store(false, Ordering::Release);
        self.flush(&mut outgoing);
    }

    /// Returns the connection's unique number.
    pub(crate) fn id(&self) -> LinkId {
        self.id
    }

    /// Records which task the peer is, and its devices.
    pub(crate) fn greeted_by(&self, task: &str, incarnations: &[u64], proven: &[u64]) {
        let _ = self.incarnations.set(incarnations.into());
        let _ = self.proven.set(proven.into());
        let _ = self.task.set(task.to_owned());
        self.settling.notify_waiters();
    }

    /// Sets the counters of the connection's transfers.
    pub(super) fn count_with(&self, traffic: Arc<PeerTraffic>) {
        let _ = self.traffic.set(traffic);
    }

    /// Counts tensors that are sent in a step.
    fn count_sent(&self, step_id: i64, bytes: usize) {
        if let Some(traffic) = self.traffic.get().filter(|_| bytes > 0) {
            traffic.sent(step_id, bytes);
        }
    }

    /// Counts a tensor that was received in a step.
    pub(super) fn count_received(&self, step_id: i64, bytes: usize) {
        if let Some(traffic) = self.traffic.get().filter(|_| bytes > 0) {
            traffic.received(step_id, bytes);
        }
    }

    /// Returns the proven incarnations of the peer's devices; none if its identity isn't proven.
    pub(crate) fn proven(&self) -> &[u64] {
        self.proven.get().map_or(&[], |proven| proven.as_slice())
    }

    /// Returns the incarnations that the peer states; none before it has greeted.
    pub(crate) fn incarnations(&self) -> &[u64] {
        self.incarnations.get().map_or(&[], |incarnations| incarnations.as_slice())
    }

    /// Returns whether the peer has greeted and the connection is open.
    pub(crate) fn is_greeted(&self) -> bool {
        self.task.get().is_some() && self.is_usable()
    }

    /// Waits until the peer has greeted; an error says why it never will.
    pub(crate) async fn settled(&self) -> Result<()> {
        loop {
            let mut changed = std::pin::pin!(self.settling.notified());
            // Created before the check, so that a change in between isn't missed.
            changed.as_mut().enable();
            if let Link::Broken(status) = &self.outgoing.lock().link {
                return Err(status.clone());
            }
            if self.task.get().is_some() {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Returns the name of the peer, or its address if the name isn't known yet.
    pub(crate) fn peer(&self) -> &str {
        self.task.get().unwrap_or(&self.address)
    }

    /// Returns the peer's name and address, as far as they are known.
    pub(super) fn peer_at(&self) -> String {
        match self.task.get() {
            Some(task) if self.address.contains(task.as_str()) => self.address.clone(),
            Some(task) => format!("{task} at {}", self.address),
            None => self.address.clone(),
        }
    }

    /// Returns the bounds.
    pub(super) fn limits(&self) -> &StreamLimits {
        &self.limits
    }

    /// Returns whether the connection is usable.
    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self.outgoing.lock().link, Link::Broken(_))
    }

    /// Sends a frame.
    pub(crate) fn send(&self, frame: OutFrame) -> Result<()> {
        let mut outgoing = self.outgoing.lock();
        let refused = match &outgoing.link {
            Link::Broken(status) => Err(status.clone()),
            _ => self.has_room(&outgoing),
        };
        if let Err(status) = refused {
            drop(outgoing);
            self.unlend(&frame.tokens);
            return Err(status);
        }
        outgoing.num_sent += 1;
        outgoing.queue.push(frame);
        self.queue_releases(&mut outgoing);
        self.flush(&mut outgoing);
        Ok(())
    }

    /// Sends a frame that requires no action of the peer, such as the answer to a ping.
    pub(super) fn send_word(&self, kind: Kind) -> Result<()> {
        let frame = FrameWriter::plain(kind, 0).finish()?;
        let mut outgoing = self.outgoing.lock();
        if matches!(outgoing.link, Link::Up(_)) {
            self.has_room(&outgoing)?;
            outgoing.queue.push(frame);
            self.flush(&mut outgoing);
        }
        Ok(())
    }

    /// Refuses a frame if too many are queued. Only a peer that sends requests and never reads the answers can cause that, and it
    /// would miss this frame, so the connection is closed.
    fn has_room(&self, outgoing: &Sending) -> Result<()> {
        let most = self.limits.waiting_frames_max;
        if outgoing.queue.num_frames() < most {
            return Ok(());
        }
        if let Link::Up(socket) = &outgoing.link {
            socket.shut_down();
        }
        Err(Status::resource_exhausted(format!("{most} frames wait for {}, which does not read", self.peer_at())))
    }

    /// Refuses tensors for a peer that has stopped reading and has too much queued. While it reads, the queue holds what current
    /// steps have produced, which is bounded by memory.
    fn takes_tensors(&self) -> Result<()> {
        let Some(silent_for) = self.silence.lasts_for() else { return Ok(()) };
        let waiting = self.outgoing.lock().queue.bytes().saturating_add(self.lent_bytes.load(Ordering::Relaxed));
        if waiting <= self.limits.waiting_bytes_max {
            return Ok(());
        }
        Err(Status::resource_exhausted(format!(
            "{} has taken nothing for {} s, and {} MB wait for it, which is more than the {} MB that may",
            self.peer_at(),
            silent_for.as_secs(),
            waiting >> 20,
            self.limits.waiting_bytes_max >> 20
        )))
    }

    /// Drops the queued frames of a finished step, except one that is partly written.
    pub(crate) fn forget_step(&self, step_id: i64) {
        if self.has_backlog.load(Ordering::Acquire) {
            self.take_out(|purpose| purpose.is_for_step(step_id));
        }
    }

    /// Drops the answer to a call that the peer has cancelled.
    pub(super) fn forget_answer(&self, call: u64) {
        if self.has_backlog.load(Ordering::Acquire) {
            self.take_out(|purpose| purpose == Purpose::Answer(call));
        }
    }

    /// Returns whether frames were dropped.
    fn take_out(&self, is_over: impl Fn(Purpose) -> bool) -> bool {
        let taken = self.outgoing.lock().queue.take_out(is_over);
        for frame in &taken {
            self.unlend(&frame.tokens);
        }
        !taken.is_empty()
    }

    /// Returns the connection's progress.
    pub(super) fn progress(&self) -> Progress {
        let outgoing = self.outgoing.lock();
        Progress {
            num_sent: outgoing.num_sent,
            written: outgoing.written,
            waiting: outgoing.queue.bytes(),
            is_up: matches!(outgoing.link, Link::Up(_)),
        }
    }

    /// Encodes a frame whose tensors may be lent; if encoding fails, nothing stays lent.
    fn framed(&self, write: impl FnOnce(Share<'_>) -> Result<OutFrame>) -> Result<OutFrame> {
        let tokens = RefCell::new(SmallVec::new());
        let written = write(&|content| {
            let (place, token) = self.lend(content)?;
            tokens.borrow_mut().push(token);
            Some((place, token))
        });
        let tokens = tokens.into_inner();
        match written {
            Ok(frame) if frame.is_error() => {
                self.unlend(&tokens);
                Ok(frame)
            }
            Ok(frame) => Ok(OutFrame { tokens, ..frame }),
            Err(status) => {
                self.unlend(&tokens);
                Err(status)
            }
        }
    }

    /// From now on large tensors are sent to the peer as positions in our heap.
    pub(crate) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
    }

    /// Lends the peer a block of our heap; returns its position and the token by which it is released.
    pub(super) fn lend(&self, content: &Buffer) -> Option<(u64, u64)> {
        if !self.is_shared.load(Ordering::Acquire) {
            return None;
        }
        let place = SharedHeap::of_process()?.offset_of(content)?;
        let token = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.lent.lock().insert(token, content.clone());
        self.lent_bytes.fetch_add(content.len(), Ordering::Relaxed);
        Some((place, token))
    }

    /// Returns the number of bytes lent to the peer.
    #[cfg(test)]
    pub(super) fn lent_bytes(&self) -> usize {
        self.lent_bytes.load(Ordering::Relaxed)
    }

    /// Takes back blocks that the peer was never told about.
    fn unlend(&self, tokens: &[u64]) {
        tokens.iter().for_each(|&token| self.take_back(token));
    }

    fn take_back(&self, token: u64) {
        let returned = self.lent.lock().remove(&token);
        if let Some(content) = returned {
            self.lent_bytes.fetch_sub(content.len(), Ordering::Relaxed);
        }
    }

    /// Takes back blocks that the peer has released.
    pub(super) fn returned(&self, mut tokens: Fields<'_>) -> Result<()> {
        while tokens.len() > 0 {
            self.take_back(tokens.u64()?);
        }
        Ok(())
    }

    /// Returns the list of released blocks of the peer's heap.
    pub(super) fn releases(&self) -> &Arc<Releases> {
        &self.releases
    }

    /// Sends releases that no frame has carried, as long as the connection lasts.
    pub(crate) async fn give_back(&self) -> Infallible {
        loop {
            self.releases.wait().await;
            sleep(RELEASE_DELAY).await;
            let mut outgoing = self.outgoing.lock();
            if matches!(outgoing.link, Link::Up(_)) {
                self.queue_releases(&mut outgoing);
                self.flush(&mut outgoing);
            }
        }
    }

    /// Queues the releases.
    fn queue_releases(&self, outgoing: &mut Sending) {
        let written = self.releases.take(|tokens| {
            let mut writer = FrameWriter::plain(Kind::Release, 0);
            tokens.for_each(|token| writer.u64(token));
            writer.finish()
        });
        if let Some(Ok(frame)) = written {
            outgoing.queue.push(frame);
        }
    }

    /// Writes as much as the socket accepts. The reader sees the same errors, and handles them.
    fn flush(&self, outgoing: &mut Sending) {
        let Link::Up(socket) = &outgoing.link else { return };
        while !outgoing.queue.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let count = outgoing.queue.show(&mut slices);
            match socket.try_write_vectored(&slices[..count]) {
                Ok(0) => return,
                Ok(written) => {
                    outgoing.written += written as u64;
                    outgoing.queue.written(written);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.has_backlog.store(true, Ordering::Release);
                    self.unfinished.notify_one();
                    return;
                }
            }
        }
        if socket.has_unsent() {
            self.has_backlog.store(true, Ordering::Release);
            self.unfinished.notify_one();
        }
    }

    /// Writes the queue, until the connection breaks.
    pub(crate) async fn write_the_rest(&self, socket: &Socket) -> io::Result<()> {
        loop {
            self.unfinished.notified().await;
            loop {
                socket.writable().await?;
                let mut outgoing = self.outgoing.lock();
                if !matches!(outgoing.link, Link::Up(_)) {
                    return Ok(());
                }
                let before = outgoing.written;
                self.flush(&mut outgoing);
                if outgoing.queue.is_empty() && !socket.has_unsent() {
                    self.has_backlog.store(false, Ordering::Release);
                    break;
                }
                if outgoing.written == before {
                    // Nothing was written: either the socket is full, which `writable` waits for, or it is broken.
                    let mut slices = [IoSlice::new(&[]); 1];
                    let count = outgoing.queue.show(&mut slices);
                    match socket.try_write_vectored(&slices[..count]) {
                        Ok(written) => {
                            outgoing.written += written as u64;
                            outgoing.queue.written(written);
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Closes the connection, and fails pending calls with the reason.
    pub(crate) fn broken(&self, status: &Status) {
        let queue = {
            let mut outgoing = self.outgoing.lock();
            if matches!(outgoing.link, Link::Broken(_)) {
                return;
            }
            if let Link::Up(socket) = std::mem::replace(&mut outgoing.link, Link::Broken(status.clone())) {
                socket.shut_down();
            }
            std::mem::take(&mut outgoing.queue)
        };
        self.unfinished.notify_one();
        self.settling.notify_waiters();
        drop(queue);
        let lent = std::mem::take(&mut *self.lent.lock());
        self.lent_bytes.store(0, Ordering::Relaxed);
        drop(lent);
        // In the order in which they were made, so that a simulation is reproducible.
        let mut calls: Vec<_> = std::mem::take(&mut *self.calls.lock()).into_iter().collect();
        calls.sort_unstable_by_key(|(id, _)| *id);
        for (_, call) in calls {
            let _ = call.send(Err(status.clone()));
        }
    }

    /// Pushes a tensor for a step of the peer. It is sent with the next frame, at the latest by
    /// [`flush_pushes`](Self::flush_pushes).
    pub(crate) fn push(&self, step_id: i64, key: &str, tensor: &Tensor, is_dead: bool) -> Result<()> {
        self.takes_tensors()?;
        let frame = self.framed(|share| {
            let mut writer = FrameWriter::new(Kind::Tensor, step_id as u64, [(tensor, is_dead)].into_iter(), share)?;
            writer.text(key.as_bytes());
            writer.finish()
        })?;
        let frame = OutFrame { purpose: Purpose::Step(step_id), ..frame };
        let bytes: usize = frame.pieces.iter().map(Bytes::len).sum();
        let mut outgoing = self.outgoing.lock();
        let refused = match &outgoing.link {
            Link::Broken(status) => Err(status.clone()),
            _ => self.has_room(&outgoing),
        };
        if let Err(status) = refused {
            drop(outgoing);
            self.unlend(&frame.tokens);
            return Err(status);
        }
        outgoing.num_sent += 1;
        outgoing.queue.push(frame);
        self.count_sent(step_id, tensor.num_bytes());
        if bytes >= PUSHED_BYTES_MAX || outgoing.queue.num_pieces() >= PUSHED_PIECES_MAX {
            self.queue_releases(&mut outgoing);
            self.flush(&mut outgoing);
        }
        Ok(())
    }

    /// Sends the pushed tensors.
    pub(crate) fn flush_pushes(&self) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.queue.is_empty() && matches!(outgoing.link, Link::Up(_)) {
            self.queue_releases(&mut outgoing);
            self.flush(&mut outgoing);
        }
    }

    /// Tells the peer that a step is over.
    pub(crate) fn cleanup(&self, step_id: i64) -> Result<()> {
        self.send(FrameWriter::plain(Kind::Cleanup, step_id as u64).finish()?)
    }

    /// Asks the peer to run a partition. The request is on its way when this returns; dropping the answer cancels it.
    pub(crate) fn run_graph(self: &Arc<Self>, call: &RunGraphCall) -> Result<PendingCall> {
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        self.takes_tensors()?;
        let frame = self.framed(|share| super::messages::write_run_graph(id, call, share))?;
        let frame = OutFrame { purpose: Purpose::Call(id, call.step_id), ..frame };
        let (sender, receiver) = oneshot::channel();
        self.calls.lock().insert(id, sender);
        let pending = PendingCall { connection: self.clone(), id, receiver: Some(receiver) };
        // Dropping `pending` removes the call.
        self.send(frame)?;
        self.count_sent(call.step_id, call.sends.iter().map(|(_, tensor)| tensor.num_bytes()).sum());
        Ok(pending)
    }

    /// Asks the peer for a part of a collective op's tensor. Dropping the answer cancels the request.
    pub(crate) fn recv_part(self: &Arc<Self>, step_id: i64, key: &str) -> Result<PendingCall> {
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let frame = super::messages::write_recv_part(id, step_id, key)?;
        let frame = OutFrame { purpose: Purpose::Call(id, step_id), ..frame };
        let (sender, receiver) = oneshot::channel();
        self.calls.lock().insert(id, sender);
        let pending = PendingCall { connection: self.clone(), id, receiver: Some(receiver) };
        self.send(frame)?;
        Ok(pending)
    }

    /// Answers a call of the peer.
    pub(super) fn reply(&self, id: u64, reply: Result<RunGraphReply>) -> Result<()> {
        // An answer that exceeds a bound is replaced by the error about it.
        let reply = reply.and_then(|reply| match reply.received.is_empty() {
            true => Ok(reply),
            false => self.takes_tensors().map(|()| reply),
        });
        let bytes = reply.as_ref().map_or(0, |reply| reply.received.iter().map(Tensor::num_bytes).sum());
        let frame = self.framed(|share| super::messages::write_reply(id, reply, share))?;
        self.send(OutFrame { purpose: Purpose::Answer(id), ..frame })?;
        self.count_sent(0, bytes);
        Ok(())
    }

    /// Passes an answer to the waiting caller.
    pub(crate) fn answered(&self, id: u64, reply: Result<RunGraphReply>) {
        if let Some(call) = self.calls.lock().remove(&id) {
            let _ = call.send(reply);
        }
    }
}

impl PeerLink for Connection {
    fn id(&self) -> LinkId {
        self.id
    }

    fn is_greeted(&self) -> bool {
        Connection::is_greeted(self)
    }

    fn settled(self: Arc<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { Connection::settled(&self).await })
    }

    fn ask_progress(&self, id: u64, steps: &[i64]) -> Result<()> {
        let mut writer = FrameWriter::plain(Kind::AskProgress, id);
        steps.iter().for_each(|&step_id| writer.u64(step_id as u64));
        self.send(writer.finish()?)
    }
}

/// A pending call.
pub struct PendingCall {
    connection: Arc<Connection>,
    id: u64,
    receiver: Option<oneshot::Receiver<Result<RunGraphReply>>>,
}

impl PendingCall {
    /// Waits for the requested part.
    pub async fn part(self) -> Result<Tensor> {
        let part = self.answer().await?.received.pop();
        part.ok_or_else(|| Status::internal("a peer answered without the part that it was asked for"))
    }

    /// Waits for the answer.
    pub async fn answer(mut self) -> Result<RunGraphReply> {
        let Some(receiver) = self.receiver.as_mut() else { return Err(gone()) };
        let answer = receiver.await;
        self.receiver = None;
        answer.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> Status {
    Status::new(Code::Unavailable, "the connection is gone")
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.receiver.is_some() && self.connection.calls.lock().remove(&self.id).is_some() {
            // A request that hasn't been written needs no cancellation.
            let is_this = |purpose| matches!(purpose, Purpose::Call(id, _) if id == self.id);
            if self.connection.has_backlog.load(Ordering::Acquire) && self.connection.take_out(is_this) {
                return;
            }
            let cancel = FrameWriter::plain(Kind::Cancel, self.id).finish();
            if let Ok(frame) = cancel {
                // If it can't be sent, the peer sees the connection close, which cancels too.
                let _ = self.connection.send(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests;
