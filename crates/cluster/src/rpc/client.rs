//! [`Channel`]: calls to one peer over one persistent connection, which is made when first needed and again when lost.

use super::body::{self, BodyError, Message};
use super::split::TensorPath;
use super::wire::Segments;
use super::{GRPC_ENCODING, connection_options, status};
use crate::log_limit::LogLimit;
use bytes::Bytes;
use foldhash::{HashMap, HashMapExt};
use futures_util::future::{BoxFuture, FutureExt, Shared};
use h2::client::{ResponseFuture, SendRequest};
use http::header::{CONTENT_TYPE, HeaderName, TE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use parking_lot::Mutex;
use std::future::{poll_fn, ready};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::net::TcpStream;
use tracing::{info, warn};

/// A peer may close every connection that is made to it.
static LINES: LogLimit = LogLimit::several(100, Duration::from_secs(10));

/// Calls to one peer. Cloning shares the connection.
#[derive(Clone)]
pub(crate) struct Channel {
    peer: Arc<Peer>,
}

/// A channel for as long as others use it.
#[derive(Clone)]
pub(crate) struct WeakChannel {
    peer: Weak<Peer>,
}

impl WeakChannel {
    /// Returns the channel, if anybody uses it.
    pub fn upgrade(&self) -> Option<Channel> {
        self.peer.upgrade().map(|peer| Channel { peer })
    }

    /// Returns whether anybody uses the channel.
    pub fn is_used(&self) -> bool {
        self.peer.strong_count() > 0
    }
}

struct Peer {
    /// Who the peer is, for messages.
    name: String,
    /// `host:port`.
    address: String,
    uris: HashMap<&'static str, Uri>,
    runtime: tokio::runtime::Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sender: Option<SendRequest<Bytes>>,
    connecting: Option<Shared<BoxFuture<'static, Result<SendRequest<Bytes>>>>>,
    /// Counts connections, so that the end of an old one doesn't touch a new one.
    generation: u64,
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const AGENT: HeaderValue = HeaderValue::from_static(concat!("grpc-ferroflow/", env!("CARGO_PKG_VERSION")));
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

impl Channel {
    /// Makes a channel to a peer; nothing is connected yet. `address` is `host:port`.
    pub fn new(name: &str, address: &str, runtime: tokio::runtime::Handle) -> Result<Channel> {
        let mut uris = HashMap::new();
        for path in
            proto::service::master::ALL.iter().chain(proto::service::worker::ALL).chain(&[super::CONFIRM_STREAM])
        {
            let uri = Uri::builder().scheme("http").authority(address).path_and_query(*path).build();
            uris.insert(*path, uri.map_err(|_| Status::invalid_argument(format!("'{address}' is not host:port")))?);
        }
        let (name, address) = (name.to_owned(), address.to_owned());
        Ok(Channel { peer: Arc::new(Peer { name, address, uris, runtime, state: Mutex::default() }) })
    }

    /// Returns the channel for whoever only looks for it.
    pub fn downgrade(&self) -> WeakChannel {
        WeakChannel { peer: Arc::downgrade(&self.peer) }
    }

    /// Makes a call. When there is a connection, the request is on its way before this returns; dropping the answer
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
        let sender = self.peer.state.lock().sender.clone();
        match sender {
            Some(sender) => match self.begin(sender, path, request) {
                Ok(call) => Box::pin(finish(self.peer.clone(), path, call, tensors)),
                Err(status) => Box::pin(ready(Err(status))),
            },
            None => {
                let channel = self.clone();
                Box::pin(async move {
                    let sender = channel.connect().await?;
                    let call = channel.begin(sender, path, request)?;
                    finish(channel.peer.clone(), path, call, tensors).await
                })
            }
        }
    }

    /// Returns a connection, which is made if there is none; all who ask meanwhile wait for the same one.
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
        body::send(&mut stream, request, true).map_err(|error| self.peer.broken(path, &error))?;
        Ok(response)
    }
}

async fn connect(peer: Arc<Peer>) -> Result<SendRequest<Bytes>> {
    let outcome = open(&peer).await;
    let mut state = peer.state.lock();
    state.connecting = None;
    let (sender, connection) = outcome?;
    state.generation += 1;
    state.sender = Some(sender.clone());
    let generation = state.generation;
    drop(state);
    if generation > 1 {
        if let Some(count) = LINES.allow() {
            info!("connected to {} at {} again{}", peer.name, peer.address, LogLimit::left_out(count));
        }
    }
    // Weak, so that the connection ends with the last channel that uses it.
    let owner = Arc::downgrade(&peer);
    peer.runtime.spawn(async move {
        let ended = connection.await;
        let Some(peer) = owner.upgrade() else { return };
        if let Some(count) = LINES.allow() {
            let left_out = LogLimit::left_out(count);
            match ended {
                Ok(()) => warn!("{} at {} closed its connection{left_out}", peer.name, peer.address),
                Err(error) => warn!("lost the connection to {} at {}: {error}{left_out}", peer.name, peer.address),
            }
        }
        let mut state = peer.state.lock();
        if state.generation == generation {
            state.sender = None;
        }
    });
    Ok(sender)
}

type Connection = h2::client::Connection<TcpStream, Bytes>;

async fn open(peer: &Peer) -> Result<(SendRequest<Bytes>, Connection)> {
    let failed = |error: &dyn std::fmt::Display| {
        Status::unavailable(format!("can't connect to {} at {}: {error}", peer.name, peer.address))
    };
    let connecting = tokio::time::timeout(super::PEER_TIMEOUT, TcpStream::connect(&peer.address));
    let stream = match connecting.await {
        Ok(connected) => connected.map_err(|error| failed(&error))?,
        Err(_) => return Err(failed(&format_args!("no answer in {} s", super::PEER_TIMEOUT.as_secs()))),
    };
    connection_options(&stream);
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(super::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(super::CONNECTION_WINDOW_BYTES)
        .max_frame_size(super::FRAME_BYTES_MAX)
        .max_concurrent_reset_streams(super::RESET_STREAMS_MAX)
        .initial_max_send_streams(super::CONCURRENT_STREAMS_MAX as usize);
    builder.handshake(stream).await.map_err(|error| failed(&error))
}

async fn finish(
    peer: Arc<Peer>,
    path: &'static str,
    call: ResponseFuture,
    tensors: Option<TensorPath>,
) -> Result<Message> {
    let response = call.await.map_err(|error| peer.broken(path, &error))?;
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
        let text = format!("{} at {}, while calling {path}: {error}", self.name, self.address);
        match error.reason() {
            Some(h2::Reason::CANCEL) if error.is_remote() => {
                Status::cancelled(format!("the call was cancelled by {text}"))
            }
            _ => Status::unavailable(format!("lost the connection to {text}")),
        }
    }
}
