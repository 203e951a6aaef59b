//! [`Channel`]: calls to one peer over one persistent connection, which is opened on first use and reopened after it is lost.
//!
//! A connection counts as established once the peer has answered a ping; calls are sent before that, but a connection whose ping
//! isn't answered is closed after [`PeerTimes::connect`]. TensorFlow's servers would take further pings for abuse, so a peer with
//! pending calls is checked with a call (`GetStatus`). A peer that doesn't answer it is only named in the log: it may be
//! suspended for a while, and a connection that is dead at the level of TCP ends by itself.

use super::body::{self, BodyError, Message};
use super::split::TensorPath;
use super::wire::Segments;
use super::{GRPC_ENCODING, status};
use crate::PeerTimes;
use crate::clock::{elapsed, now, sleep, timeout};
use crate::log_limit::LogLimit;
use crate::task_question::ASK;
use crate::tls::{Protocol, Tls, Wire, is_about_certificates, refusal_of};
use crate::transport::tcp::connection_options;
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong};
use http::header::{CONTENT_TYPE, HeaderName, TE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use parking_lot::Mutex;
use proto::service::worker;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{pending, poll_fn, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

/// A peer may close every connection to it.
static LINES: LogLimit = LogLimit::several(100, Duration::from_secs(10));

thread_local! {
    static UNSENT: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether a request was handed to a connection on this thread since the last call of this function. Such a request is
/// sent when the runtime next runs on this thread, so code that is about to block it yields first.
pub(crate) fn take_unsent() -> bool {
    UNSENT.take()
}

/// Calls to one peer. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Channel {
    peer: Arc<Peer>,
}

/// A reference to a channel that doesn't keep it open.
#[derive(Clone)]
pub(crate) struct WeakChannel {
    peer: Weak<Peer>,
}

impl WeakChannel {
    /// Returns the channel, if it is in use.
    pub fn upgrade(&self) -> Option<Channel> {
        self.peer.upgrade().map(|peer| Channel { peer })
    }

    /// Returns whether the channel is in use.
    pub fn is_used(&self) -> bool {
        self.peer.strong_count() > 0
    }
}

struct Peer {
    /// The peer's name, for messages.
    name: String,
    /// `host:port`.
    address: String,
    uris: HashMap<&'static str, Uri>,
    runtime: tokio::runtime::Handle,
    times: PeerTimes,
    /// How the connection is encrypted, if it is.
    secured: Option<Secured>,
    /// The number of pending calls.
    num_calls: AtomicUsize,
    /// The number of answers received.
    num_answers: AtomicU64,
    state: Mutex<State>,
}

/// The requirements of an encrypted connection.
pub(crate) struct Secured {
    /// The certificates.
    pub tls: Arc<Tls>,
    /// The task that the peer must be, if it is known.
    pub task: Option<String>,
}

#[derive(Default)]
struct State {
    sender: Option<SendRequest<Bytes>>,
    connecting: Option<Shared<BoxFuture<'static, Result<SendRequest<Bytes>>>>>,
    /// Counts connections, so that the end of an old one doesn't affect a new one.
    generation: u64,
    /// Why the last connection was abandoned, if it was.
    given_up: Option<String>,
}

/// A pending call.
struct Waiting(Arc<Peer>);

impl Waiting {
    fn new(peer: Arc<Peer>) -> Waiting {
        peer.num_calls.fetch_add(1, Ordering::Relaxed);
        Waiting(peer)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.num_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The interval at which a line names a peer that stays silent.
const SILENCE_LINE_INTERVAL: Duration = Duration::from_secs(60);

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("grpc-ferroflow/", env!("CARGO_PKG_VERSION")));
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

impl Channel {
    /// Returns a channel to a peer, which isn't connected yet. `address` is `host:port`.
    pub fn new(
        name: &str,
        address: &str,
        runtime: tokio::runtime::Handle,
        times: PeerTimes,
        secured: Option<Secured>,
    ) -> Result<Channel> {
        let mut uris = HashMap::new();
        for path in
            proto::service::master::ALL.iter().chain(proto::service::worker::ALL).chain(&[super::CONFIRM_STREAM, ASK])
        {
            let uri = Uri::builder().scheme("http").authority(address).path_and_query(*path).build();
            uris.insert(*path, uri.map_err(|_| Status::invalid_argument(format!("'{address}' is not host:port")))?);
        }
        let (name, address) = (name.to_owned(), address.to_owned());
        let (num_calls, num_answers) = (AtomicUsize::new(0), AtomicU64::new(0));
        let peer =
            Peer { name, address, uris, runtime, times, secured, num_calls, num_answers, state: Mutex::default() };
        Ok(Channel { peer: Arc::new(peer) })
    }

    /// Returns a weak reference to the channel.
    pub fn downgrade(&self) -> WeakChannel {
        WeakChannel { peer: Arc::downgrade(&self.peer) }
    }

    /// Makes a call. Before this returns, the request is on its way, or its connection is being opened; dropping the answer
    /// cancels the call.
    pub fn call(
        &self,
        path: &'static str,
        request: Result<Segments>,
        tensors: Option<TensorPath>,
    ) -> BoxFuture<'static, Result<Message>> {
        let request = match request {
            Ok(request) => request,
            Err(status) => return Box::pin(ready(Err(status))),
        };
        UNSENT.set(true);
        let sender = self.peer.state.lock().sender.clone();
        match sender {
            Some(sender) => match self.begin(sender, path, request) {
                Ok(call) => Box::pin(finish(Waiting::new(self.peer.clone()), path, call, tensors)),
                Err(status) => Box::pin(ready(Err(status))),
            },
            None => {
                let channel = self.clone();
                let calling = self.peer.runtime.spawn(async move {
                    let sender = channel.connect().await?;
                    let call = channel.begin(sender, path, request)?;
                    finish(Waiting::new(channel.peer.clone()), path, call, tensors).await
                });
                Box::pin(Calling(calling))
            }
        }
    }

    /// Returns a connection, which is opened if there is none; concurrent callers wait for the same one.
    async fn connect(&self) -> Result<SendRequest<Bytes>> {
        let connecting = {
            let mut state = self.peer.state.lock();
            if let Some(sender) = &state.sender {
                return Ok(sender.clone());
            }
            let peer = self.peer.clone();
            state.connecting.get_or_insert_with(|| connect(peer).boxed().shared()).clone()
        };
        connecting.await
    }

    fn begin(&self, mut sender: SendRequest<Bytes>, path: &'static str, request: Segments) -> Result<ResponseFuture> {
        let mut head = Request::new(());
        *head.method_mut() = Method::POST;
        *head.uri_mut() = self.peer.uris.get(path).cloned().unwrap_or_default();
        let headers = head.headers_mut();
        headers.insert(TE, TRAILERS);
        headers.insert(CONTENT_TYPE, GRPC);
        headers.insert(USER_AGENT, AGENT);
        headers.insert(GRPC_ACCEPT_ENCODING, IDENTITY);
        let started = sender.send_request(head, false);
        let (response, mut stream) = started.map_err(|error| self.peer.broken(path, &error))?;
        // A refusal may have arrived already, and ended the stream. The answer says what happened, even if the connection broke.
        if let Err(error) = body::send(&mut stream, request, true) {
            debug!("{path} was not sent to its end: {error}");
        }
        Ok(response)
    }
}

/// A call that runs in the background because it has to connect first; dropping this cancels it.
struct Calling(JoinHandle<Result<Message>>);

impl Future for Calling {
    type Output = Result<Message>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Message>> {
        let ended = ready!(self.0.poll_unpin(context));
        Poll::Ready(ended.unwrap_or_else(|error| Err(Status::unavailable(format!("a call was not made: {error}")))))
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn connect(peer: Arc<Peer>) -> Result<SendRequest<Bytes>> {
    let outcome = open(&peer).await;
    let mut state = peer.state.lock();
    state.connecting = None;
    let (sender, mut connection) = outcome?;
    state.generation += 1;
    state.sender = Some(sender.clone());
    state.given_up = None;
    let generation = state.generation;
    drop(state);
    if generation > 1
        && let Some(count) = LINES.allow()
    {
        info!("connected to {} at {} again{}", peer.name, peer.address, LogLimit::left_out(count));
    }
    // Weak, so that the connection closes with the last channel that uses it.
    let owner = Arc::downgrade(&peer);
    let pings = connection.ping_pong();
    let times = peer.times;
    peer.runtime.spawn(async move {
        let ended = tokio::select! {
            ended = &mut connection => Some(ended),
            () = never_answers(pings, times.connect) => None,
            never = watch_silence(&owner, times) => match never {},
        };
        let Some(peer) = owner.upgrade() else { return };
        let mut state = peer.state.lock();
        if state.generation == generation {
            state.sender = None;
        }
        // A peer that stops in order closes its connection, too.
        let is_closed = matches!(ended, Some(Ok(())));
        let line = match ended {
            Some(Ok(())) => format!("{} at {} closed its connection", peer.name, peer.address),
            Some(Err(error)) => format!("lost the connection to {} at {}: {error}", peer.name, peer.address),
            None => {
                let why = format!("it took the connection and said nothing for {} s", times.connect.as_secs_f32());
                let line = format!("{} at {} is given up: {why}", peer.name, peer.address);
                state.given_up = Some(why);
                line
            }
        };
        if let Some(count) = LINES.allow() {
            let left_out = LogLimit::left_out(count);
            if is_closed { info!("{line}{left_out}") } else { warn!("{line}{left_out}") }
        }
        drop(state);
        // Its calls end with it, and get the reason.
        drop(connection);
    });
    Ok(sender)
}

/// Ends if the peer of a new connection doesn't answer a ping in time; otherwise never.
async fn never_answers(pings: Option<PingPong>, timeout: Duration) {
    let Some(mut pings) = pings else { return pending().await };
    // An error means that the connection is broken; it ends by itself.
    if crate::clock::timeout(timeout, pings.ping(Ping::opaque())).await.is_ok() {
        pending().await
    }
}

/// Names a peer in the log if it has pending calls and doesn't answer a simple call either.
async fn watch_silence(owner: &Weak<Peer>, times: PeerTimes) -> Infallible {
    let mut num_answers = 0;
    loop {
        sleep(times.check).await;
        let Some(peer) = owner.upgrade() else { return pending().await };
        let (before, answered) = (num_answers, peer.num_answers.load(Ordering::Relaxed));
        num_answers = answered;
        if before != answered || peer.num_calls.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let Some(sender) = peer.state.lock().sender.clone() else { continue };
        let Ok(request) = Segments::from_message(&proto::GetStatusRequest {}, String::new) else { continue };
        let channel = Channel { peer };
        let Ok(mut question) = channel.begin(sender, worker::GET_STATUS, request) else { continue };
        // From here on nothing holds the peer, so the connection closes with its last user.
        drop(channel);
        let asked_at = now();
        let mut next_line = times.silence;
        while timeout(times.check, &mut question).await.is_err() {
            let Some(peer) = owner.upgrade() else { return pending().await };
            let silent_for = elapsed(asked_at) + times.check;
            if silent_for >= next_line {
                next_line = silent_for + SILENCE_LINE_INTERVAL;
                warn!(
                    "{} at {} has answered nothing for {} s, though its connection stands: it was stopped, or has no processor \
                     or memory left. {} calls wait for it",
                    peer.name,
                    peer.address,
                    silent_for.as_secs(),
                    peer.num_calls.load(Ordering::Relaxed)
                );
            }
        }
        if next_line > times.silence
            && let Some(peer) = owner.upgrade()
        {
            info!("{} at {} answers again, after {} s", peer.name, peer.address, elapsed(asked_at).as_secs());
        }
    }
}

type Connection = h2::client::Connection<Wire, Bytes>;

async fn open(peer: &Peer) -> Result<(SendRequest<Bytes>, Connection)> {
    let failed = |error: &dyn std::fmt::Display| {
        Status::unavailable(format!("can't connect to {} at {}: {error}", peer.name, peer.address))
    };
    let connecting = timeout(peer.times.connect, TcpStream::connect(&peer.address));
    let stream = match connecting.await {
        Ok(connected) => connected.map_err(|error| failed(&error))?,
        Err(_) => return Err(failed(&format_args!("no answer in {} s", peer.times.connect.as_secs_f32()))),
    };
    connection_options(&stream);
    let wire = match &peer.secured {
        None => Wire::Plain(stream),
        Some(secured) => {
            let connecting = secured.tls.connect(stream, secured.task.as_deref(), &peer.address, Protocol::Http);
            match timeout(peer.times.connect, connecting).await {
                Ok(Ok(stream)) => Wire::Tls(Box::new(stream)),
                Ok(Err(error)) if is_about_certificates(&error) => {
                    return Err(Status::unauthenticated(failed(&error).message().to_owned()));
                }
                Ok(Err(error)) => return Err(failed(&error)),
                Err(_) => return Err(failed(&format_args!("no handshake in {} s", peer.times.connect.as_secs_f32()))),
            }
        }
    };
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(super::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(super::CONNECTION_WINDOW_BYTES)
        .max_frame_size(super::FRAME_BYTES_MAX)
        .max_concurrent_reset_streams(super::RESET_STREAMS_MAX)
        .initial_max_send_streams(super::CONCURRENT_STREAMS_MAX as usize);
    builder.handshake(wire).await.map_err(|error| failed(&error))
}

async fn finish(
    waiting: Waiting,
    path: &'static str,
    call: ResponseFuture,
    tensors: Option<TensorPath>,
) -> Result<Message> {
    let peer = &waiting.0;
    let response = call.await.map_err(|error| peer.broken(path, &error))?;
    peer.num_answers.fetch_add(1, Ordering::Relaxed);
    let (head, mut stream) = response.into_parts();
    if let Some(outcome) = status::read(&head.headers) {
        outcome?;
    } else if head.status != http::StatusCode::OK {
        return Err(Status::unavailable(format!("{} at {} answered {}", peer.name, peer.address, head.status)));
    }
    let message = match body::receive(&mut stream, tensors, head.headers.get(GRPC_ENCODING)).await {
        Ok(message) => message,
        Err(BodyError::Stream(error)) => return Err(peer.broken(path, &error)),
        Err(BodyError::Status(status)) => return Err(status),
    };
    let trailers = poll_fn(|context| stream.poll_trailers(context)).await;
    let trailers = trailers.map_err(|error| peer.broken(path, &error))?;
    if let Some(outcome) = trailers.as_ref().and_then(status::read) {
        outcome?;
    }
    message.ok_or_else(|| Status::internal(format!("{} sent no answer to {path}", peer.name)))
}

impl Peer {
    /// Returns the status for a call whose stream or connection broke.
    fn broken(&self, path: &str, error: &h2::Error) -> Status {
        if let Some(why) = &self.state.lock().given_up {
            let (name, address) = (&self.name, &self.address);
            return Status::unavailable(format!("can't connect to {name} at {address}: {why}"));
        }
        let refusal = error.get_io().filter(|_| self.secured.is_some());
        if let Some(status) = refusal.and_then(|error| refusal_of(error, &format!("{} at {}", self.name, self.address)))
        {
            return status;
        }
        let text = format!("{} at {}, while calling {path}: {error}", self.name, self.address);
        match error.reason() {
            Some(h2::Reason::CANCEL) if error.is_remote() => {
                Status::cancelled(format!("the call was cancelled by {text}"))
            }
            _ => Status::unavailable(format!("lost the connection to {text}")),
        }
    }
}
