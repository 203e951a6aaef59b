//! Answers calls over HTTP/2: accepts connections and streams, and passes each call to the master or the worker.

use super::GRPC_ENCODING;
use super::body::{self, BodyError, Message};
use super::callbacks;
use super::client_terminals::with_arguments;
use super::gate::{Entered, Gate};
use super::messages::*;
use super::respond::{respond_with, respond_with_error};
use super::split::TensorPath;
use super::wire::{Segments, malformed};
use crate::access::{Principal, Role};
use crate::audit::{AuditLog, Event};
use crate::client::{Caller, Client, called_by};
use crate::clock::{elapsed, now, sleep, timeout};
use crate::connections::Connections;
use crate::interface::{MasterInterface, PartitionGraph, RegisterGraphCall, WorkerInterface};
use crate::log_limit::LogLimit;
use crate::quota::Quotas;
use crate::task_question::{ASK, TaskQuestion};
use crate::threads::for_message;
use crate::tls::{Identity, Protocol, Wire, is_about_certificates};
use crate::tokens::Tokens;
use crate::tokens::{of_metadata as token_of_metadata, take as take_token};
use crate::transport::stream::{PREFACE, Socket, StreamHub};
use crate::transport::tcp::connection_options;
use crate::turns::{ClientTurns, Turns};
use bytes::Bytes;
use h2::server::SendResponse;
use http::Request;
use proto::service::{master, worker};
use rustix::net::RecvFlags;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tensor::{Result, Status};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, warn};

/// How long a connection may take to send its first bytes.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after an error in accepting connections.
const ACCEPT_PAUSE_MIN: Duration = Duration::from_millis(10);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The interval at which a line reports such errors.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The services of one server.
pub(crate) struct Services {
    /// Answers clients.
    pub master: Arc<dyn MasterInterface>,
    /// Answers masters and other workers.
    pub worker: Arc<dyn WorkerInterface>,
    /// Accepts streams of other tasks.
    pub streams: Option<Arc<StreamHub>>,
    /// Counts connections, so that the master knows which sessions can't be used any more.
    pub connections: Arc<Connections>,
    /// Schedules the calls of different clients in turns.
    pub turns: Turns,
    /// The clients' quotas.
    pub quotas: Arc<Quotas>,
    /// Becomes true when the server is stopping.
    pub stopping: watch::Receiver<bool>,
}

/// Accepts connections until `stopping` becomes true, then waits for pending calls to end.
pub(crate) async fn serve(
    listener: TcpListener,
    services: Arc<Services>,
    gate: Arc<Gate>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut pause = ACCEPT_PAUSE_MIN;
    while !*stopping.borrow() {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    pause = ACCEPT_PAUSE_MIN;
                    let own = stream.local_addr().unwrap_or(peer);
                    match gate.enter(peer, own).await {
                        Ok(entered) => {
                            let (services, gate) = (services.clone(), gate.clone());
                            connections.spawn(serve_connection(stream, peer, entered, services, gate, stopping.clone()));
                        }
                        Err(status) => gate.refuse(Wire::Plain(stream), peer, status),
                    }
                }
                Err(error) => {
                    static LIMIT: LogLimit = LogLimit::new(LINE_INTERVAL);
                    if let Some(count) = LIMIT.allow() {
                        warn!("can't accept a connection: {error}{}", LogLimit::left_out(count));
                    }
                    // Most likely out of file descriptors: other connections must close before another one can be accepted.
                    gate.files_ran_out();
                    tokio::select! {
                        () = sleep(pause) => {}
                        _ = stopping.changed() => {}
                    }
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            changed = stopping.changed() => if changed.is_err() { break },
        }
    }
    // The port is free for the next server while the last calls end.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    entered: Entered,
    services: Arc<Services>,
    gate: Arc<Gate>,
    mut stopping: watch::Receiver<bool>,
) {
    connection_options(&stream);
    let Entered { client, admitted, put_out } = entered;
    let beginning = tokio::select! {
        beginning = timeout(HANDSHAKE_TIMEOUT, begin(stream, client, &gate)) => beginning,
        _ = put_out => {
            debug!("a connection of {client} that was silent makes room for another");
            return;
        }
        // The connection hasn't sent anything yet.
        _ = stopping.wait_for(|&is_stopping| is_stopping) => return,
    };
    let (mut connection, principal) = match beginning {
        Ok(Ok(Beginning::Http(connection, principal))) => (*connection, principal),
        Ok(Ok(Beginning::Refused(wire, status))) => return gate.refuse(wire, peer, status),
        Ok(Ok(Beginning::Stream(wire, identity))) => {
            admitted.has_spoken();
            let Some(streams) = &services.streams else { return };
            match Socket::tcp(wire, identity) {
                // In its own task: it lasts as long as the peer.
                Ok(socket) => {
                    let accepting = streams.clone().accept(socket);
                    drop(tokio::spawn(async move {
                        accepting.await;
                        drop(admitted);
                    }));
                }
                Err(error) => debug!("can't take a stream: {error}"),
            }
            return;
        }
        Ok(Err(error)) if is_about_certificates(&error) => {
            static LIMIT: LogLimit = LogLimit::new(LINE_INTERVAL);
            if let Some(count) = LIMIT.allow() {
                warn!(
                    "a connection from {peer} is not served, for its certificate: {error}{}",
                    LogLimit::left_out(count)
                );
            }
            gate.note_refusal(peer, &Status::unauthenticated(error.to_string()));
            return;
        }
        Ok(Err(error)) => {
            debug!("a connection of {client} did not begin as HTTP/2: {error}");
            return;
        }
        Err(_) => {
            debug!("a connection of {client} was silent for {} s", HANDSHAKE_TIMEOUT.as_secs());
            return;
        }
    };
    admitted.has_spoken();
    // Shares are counted by certificate, from whatever address it comes.
    let client = principal.as_deref().map_or(client, Client::of);
    let opened = services.connections.open();
    let presented = gate.tokens.is_some().then(Arc::default);
    let caller = Caller { connection: opened.id(), client, principal, presented };
    let turns = services.turns.of(client);
    let mut is_stopping = false;
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            _ = stopping.changed(), if !is_stopping => {
                is_stopping = true;
                connection.graceful_shutdown();
                continue;
            }
        };
        match accepted {
            // A separate task, which runs next on this thread: one slow call must not delay the others.
            Some(Ok((request, respond))) => {
                let asker =
                    Asker { peer, caller: caller.clone(), tokens: gate.tokens.clone(), audit: gate.audit.clone() };
                let call = serve_call(request, respond, services.clone(), turns.clone(), asker, now());
                drop(tokio::spawn(turns.take(called_by(caller.clone(), call))));
            }
            Some(Err(error)) => {
                debug!("a connection ended: {error}");
                return;
            }
            None => return,
        }
    }
}

/// The protocol of a connection.
enum Beginning {
    /// Calls over HTTP/2.
    Http(Box<h2::server::Connection<Wire, Bytes>>, Option<Arc<Principal>>),
    /// A stream of another task, and the identity in its certificate.
    Stream(Wire, Option<Arc<Identity>>),
    /// Refused.
    Refused(Wire, Status),
}

/// Detection of the protocol by the first bytes.
pub(super) enum First {
    Http,
    Stream,
    Tls,
}

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The first byte of a stream.
const STREAM_FIRST: u8 = PREFACE[0];

/// The first bytes of an HTTP/2 client, which are followed by the header of a settings frame.
const HTTP_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
/// The position of the type in a frame header.
const FRAME_KIND_AT: usize = 3;
const SETTINGS: u8 = 4;

/// Waits for a connection's first bytes, and starts TLS or HTTP/2 if they are theirs.
async fn begin(stream: TcpStream, client: Client, gate: &Gate) -> std::io::Result<Beginning> {
    let (wire, principal) = match (first_of(&stream).await?, &gate.tls) {
        (First::Tls, Some(tls)) => {
            let (stream, identity, protocol) = tls.accept(stream).await?;
            let wire = Wire::Tls(Box::new(stream));
            match (gate.certified(&identity), protocol) {
                (Ok(_), Protocol::Stream) => return Ok(Beginning::Stream(wire, Some(Arc::new(identity)))),
                (Ok(principal), Protocol::Http) => (wire, principal),
                (Err(status), _) => return Ok(Beginning::Refused(wire, status)),
            }
        }
        (First::Tls, None) => return Err(ErrorKind::InvalidData.into()),
        (First::Stream, None) => return Ok(Beginning::Stream(Wire::Plain(stream), None)),
        // A task of this machine has the Unix socket, and a plain-text stream proves nothing.
        (First::Stream, Some(_)) => {
            let why = "it is a stream without encryption, and this server takes connections over TLS only";
            return Ok(Beginning::Refused(Wire::Plain(stream), Status::unauthenticated(why)));
        }
        (First::Http, _) => match gate.plain(client) {
            Ok(principal) => (Wire::Plain(stream), principal),
            Err(status) => return Ok(Beginning::Refused(Wire::Plain(stream), status)),
        },
    };
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(super::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(super::CONNECTION_WINDOW_BYTES)
        .max_frame_size(super::FRAME_BYTES_MAX)
        .max_concurrent_streams(super::CONCURRENT_STREAMS_MAX)
        .max_concurrent_reset_streams(super::RESET_STREAMS_MAX)
        .max_pending_accept_reset_streams(super::RESET_STREAMS_MAX);
    let connection = builder.handshake::<_, Bytes>(wire).await.map_err(std::io::Error::other)?;
    Ok(Beginning::Http(Box::new(connection), principal))
}

/// Waits for the bytes that determine the protocol.
pub(super) async fn first_of(stream: &TcpStream) -> std::io::Result<First> {
    let mut first = [0; HTTP_PREFACE.len() + FRAME_HEADER_BYTES];
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        // Only peeked at: the bytes are left for the protocol's reader.
        let seen = stream.try_io(Interest::READABLE, || {
            let count = rustix::net::recv(stream, &mut first, RecvFlags::PEEK)?.1;
            let is_enough = count == first.len() || count == 0 || matches!(first[0], TLS_HANDSHAKE | STREAM_FIRST);
            // The next bytes wake this.
            if is_enough || ready.is_read_closed() { Ok(count) } else { Err(ErrorKind::WouldBlock.into()) }
        });
        match seen {
            Ok(count) if count > 0 && first[0] == STREAM_FIRST => return Ok(First::Stream),
            Ok(count) if count > 0 && first[0] == TLS_HANDSHAKE => return Ok(First::Tls),
            Ok(count) if count == first.len() => break,
            Ok(_) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    if !first.starts_with(HTTP_PREFACE) || first[HTTP_PREFACE.len() + FRAME_KIND_AT] != SETTINGS {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(First::Http)
}

/// The caller.
struct Asker {
    peer: SocketAddr,
    caller: Caller,
    tokens: Option<Arc<Tokens>>,
    audit: Option<Arc<AuditLog>>,
}

impl Asker {
    /// Checks that a call is permitted.
    fn may_call(&self, path: &str) -> Result<()> {
        let Some(principal) = &self.caller.principal else { return Ok(()) };
        let checked = principal.may_call(path);
        if checked.is_err() && self.caller.is_anyone(|one| one.may_call(path).is_ok()) {
            return Ok(());
        }
        if checked.is_err() {
            self.note(Event::Refusal, path, &checked);
        }
        checked
    }

    /// Takes a token in the metadata of a call as the caller's identity; returns whether there is one.
    fn take_metadata(&mut self, path: &str, head: &http::HeaderMap) -> Result<bool> {
        let Some((tokens, value)) = self.tokens.clone().zip(head.get(http::header::AUTHORIZATION)) else {
            return Ok(false);
        };
        let principal = token_of_metadata(value.as_bytes()).and_then(|token| tokens.principal(token));
        self.become_principal(principal.inspect_err(|status| self.note(Event::Refusal, path, &Err(status.clone())))?);
        Ok(true)
    }

    /// Takes a token in the session's settings as the owner's identity, and adds it to those of the connection.
    fn take_settings(&mut self, config: Option<&mut proto::ConfigProto>) -> Result<()> {
        let token = config.and_then(take_token);
        if let Some((tokens, token)) = self.tokens.clone().zip(token) {
            let principal = tokens.principal(&token)?;
            if let Some(presented) = &self.caller.presented {
                presented.add(principal.clone());
            }
            self.become_principal(principal);
        }
        match &self.caller.principal {
            Some(principal) if principal.role == Role::Nobody => Err(principal.needs_token()),
            _ => Ok(()),
        }
    }

    fn become_principal(&mut self, principal: Arc<Principal>) {
        self.caller.client = Client::of(&principal);
        self.caller.principal = Some(principal);
    }

    /// Writes the outcome of a call to the audit log, if it is one of those that are logged.
    fn note_call(&self, path: &str, outcome: &Result<Segments>) {
        let event = match path {
            master::CREATE_SESSION => Event::Open,
            master::CLOSE_SESSION => Event::Close,
            master::RESET | worker::CLEANUP_ALL => Event::Reset,
            _ => return,
        };
        if self.audit.is_some() {
            self.note(event, path, &outcome.as_ref().map(|_| ()).map_err(Status::clone));
        }
    }

    fn note(&self, event: Event, path: &str, outcome: &Result<()>) {
        let Some(audit) = &self.audit else { return };
        let who = match &self.caller.principal {
            Some(principal) => principal.to_string(),
            None => self.caller.client.to_string(),
        };
        audit.write(event, &who, self.peer, path, outcome);
    }
}

async fn serve_call(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    services: Arc<Services>,
    turns: Arc<ClientTurns>,
    mut asker: Asker,
    arrived: Instant,
) {
    let (head, mut body) = request.into_parts();
    let Some(method) = METHODS.iter().find(|method| method.path == head.uri.path()) else {
        return respond_with_error(
            &mut respond,
            Status::unimplemented(format!("there is no call {}", head.uri.path())),
        );
    };
    let by_token = asker.take_metadata(method.path, &head.headers);
    let checked = by_token.and_then(|by_token| asker.may_call(method.path).map(|()| by_token));
    let begun = checked.and_then(|by_token| Ok((by_token, services.quotas.begin_call(&asker.caller, method.path)?)));
    let (by_token, _share) = match begun {
        Ok(begun) => begun,
        Err(status) => return respond_with_error(&mut respond, status),
    };
    let outcome = {
        let mut work = pin!(async {
            match body::receive(&mut body, method.tensors, head.headers.get(GRPC_ENCODING)).await {
                Ok(Some(mut message)) => {
                    // Held until the call is over: the decoded message lives as long.
                    let _charge = message.measure(method.request)?;
                    if method.path == master::CREATE_SESSION {
                        return create_session(&services, message, &mut asker).await;
                    }
                    match by_token {
                        true => called_by(asker.caller.clone(), (method.call)(&services, message)).await,
                        false => (method.call)(&services, message).await,
                    }
                }
                Ok(None) | Err(BodyError::Stream(_)) => Err(malformed()),
                Err(BodyError::Status(status)) => Err(status),
            }
        });
        // If the caller disconnects, its call is cancelled: the work is dropped.
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => respond.poll_reset(context).map(|_| None),
        })
        .await
    };
    if let Some(outcome) = &outcome {
        asker.note_call(method.path, outcome);
    }
    match outcome {
        Some(Ok(segments)) => {
            if let Err(error) = respond_with(&mut respond, segments) {
                debug!("an answer to {} could not be sent: {error}", method.path);
            }
            if method.path == master::RUN_STEP || method.path == master::RUN_CALLABLE {
                turns.latencies.record(elapsed(arrived));
            }
        }
        Some(Err(status)) => respond_with_error(&mut respond, status),
        None => debug!("a call of {} was given up", method.path),
    }
}

/// Opens a session for the owner of the token in its settings.
async fn create_session(services: &Services, message: Message, asker: &mut Asker) -> Result<Segments> {
    let mut request: proto::CreateSessionRequest = for_message(message.bytes().len(), || message.decode())?;
    asker.take_settings(request.config.as_mut())?;
    let response = called_by(asker.caller.clone(), services.master.create_session(request)).await?;
    Segments::from_message(&response, || "the answer about a session".to_owned())
}

type Handler = for<'a> fn(&'a Arc<Services>, Message) -> futures_util::future::BoxFuture<'a, Result<Segments>>;

/// In place of a request that is refused because of its size.
const NEVER_LARGE: &str = "";

struct Method {
    path: &'static str,
    /// The type of the request, as a path or by its name alone; with a path, its size is estimated when it is large.
    request: &'static str,
    tensors: Option<TensorPath>,
    call: Handler,
}

/// A method with plain messages: the path, the service, the function, and the conversion of its result.
macro_rules! method {
    ($path:path, $service:ident.$function:ident(|$request:ident: $ty:ty| $argument:expr) -> |$result:pat_param| $response:expr) => {
        Method {
            path: $path,
            request: stringify!($ty),
            tensors: None,
            call: |services, message| {
                Box::pin(async move {
                    let $request: $ty = for_message(message.bytes().len(), || message.decode())?;
                    let $result = services.$service.$function($argument).await?;
                    Segments::from_message(&$response, || format!("the answer to {}", $path))
                })
            },
        }
    };
}

/// All calls. The frequent ones come first, because the list is searched from the front.
static METHODS: &[Method] = &[
    Method {
        path: worker::RECV_TENSOR,
        request: "RecvTensorRequest",
        tensors: None,
        call: |services, message| {
            Box::pin(async move {
                let call = read_recv_tensor(message.bytes())?;
                let key = call.key.clone();
                write_recv_tensor_reply(&services.worker.recv_tensor(call).await?, &key)
            })
        },
    },
    Method {
        path: worker::RUN_GRAPH,
        request: "RunGraphRequest",
        tensors: Some(RUN_GRAPH_REQUEST),
        call: |services, message| {
            Box::pin(async move {
                let WithErrors { call, store_errors_in_response_body } = read_run_graph(message)?;
                let (keys, is_partial) = (call.receives.clone(), call.is_partial);
                let reply = services.worker.run_graph(call).await;
                write_run_graph_reply(reply, &keys, store_errors_in_response_body, is_partial)
            })
        },
    },
    Method {
        path: master::RUN_STEP,
        request: "RunStepRequest",
        tensors: Some(RUN_STEP_REQUEST),
        call: |services, message| {
            Box::pin(async move {
                let WithErrors { call, store_errors_in_response_body } = read_run_step(message)?;
                let reply = services.master.run_step(call).await;
                write_run_step_reply(reply, store_errors_in_response_body)
            })
        },
    },
    Method {
        path: callbacks::EXCHANGE,
        request: "RunStepRequest",
        tensors: Some(RUN_STEP_REQUEST),
        call: |services, message| {
            Box::pin(async move {
                let call = read_run_step(message)?.call;
                write_run_step_reply(callbacks::exchange(call, services.stopping.clone()).await, false)
            })
        },
    },
    method!(worker::CLEANUP_GRAPH, worker.cleanup_graph(|request: proto::CleanupGraphRequest| request.step_id)
        -> |()| proto::CleanupGraphResponse {}),
    Method {
        path: master::RUN_CALLABLE,
        request: "RunCallableRequest",
        tensors: Some(RUN_CALLABLE_REQUEST),
        call: |services, message| {
            Box::pin(async move {
                let reply = services.master.run_callable(read_run_callable(message)?).await?;
                write_run_callable_reply(&reply)
            })
        },
    },
    method!(master::CREATE_SESSION, master.create_session(|request: proto::CreateSessionRequest| request)
        -> |response| response),
    method!(master::EXTEND_SESSION, master.extend_session(|request: proto::ExtendSessionRequest| request)
        -> |response| response),
    method!(master::PARTIAL_RUN_SETUP, master.partial_run_setup(|request: proto::PartialRunSetupRequest| request)
        -> |partial_run_handle| proto::PartialRunSetupResponse { partial_run_handle }),
    method!(master::CLOSE_SESSION, master.close_session(|request: proto::CloseSessionRequest| request.session_handle)
        -> |()| proto::CloseSessionResponse {}),
    method!(master::LIST_DEVICES, master.list_devices(|request: proto::ListDevicesRequest| request.session_handle)
        -> |response| response),
    method!(master::RESET, master.reset(|request: proto::ResetRequest| request) -> |()| proto::ResetResponse {}),
    method!(master::MAKE_CALLABLE, master.make_callable(|request: proto::MakeCallableRequest| request)
        -> |handle| proto::MakeCallableResponse { handle }),
    method!(master::RELEASE_CALLABLE, master.release_callable(|request: proto::ReleaseCallableRequest| request)
        -> |()| proto::ReleaseCallableResponse {}),
    Method {
        path: worker::GET_STATUS,
        request: "GetStatusRequest",
        tensors: None,
        call: |services, _message| {
            Box::pin(async move {
                let device_attributes = services.worker.get_status().await?;
                let response = proto::GetStatusResponse { device_attributes };
                Segments::from_message(&response, || "the list of devices".to_owned())
            })
        },
    },
    method!(worker::CREATE_WORKER_SESSION,
        worker.create_worker_session(|request: proto::CreateWorkerSessionRequest| request)
        -> |()| proto::CreateWorkerSessionResponse {}),
    method!(worker::DELETE_WORKER_SESSION,
        worker.delete_worker_session(|request: proto::DeleteWorkerSessionRequest| request.session_handle)
        -> |()| proto::DeleteWorkerSessionResponse {}),
    method!(worker::REGISTER_GRAPH, worker.register_graph(|request: proto::RegisterGraphRequest| RegisterGraphCall {
            session_handle: request.session_handle,
            create_worker_session_called: request.create_worker_session_called,
            graph: PartitionGraph::Def(with_arguments(request.graph_def.unwrap_or_default())),
            config: None,
            collective_graph_key: request.collective_graph_key,
        }) -> |registered| proto::RegisterGraphResponse { graph_handle: registered.graph_handle }),
    method!(worker::DEREGISTER_GRAPH, worker.deregister_graph(|request: proto::DeregisterGraphRequest| request)
        -> |()| proto::DeregisterGraphResponse {}),
    method!(worker::CLEANUP_ALL, worker.cleanup_all(|request: proto::CleanupAllRequest| request.container)
        -> |()| proto::CleanupAllResponse {}),
    method!(worker::MARK_RECV_FINISHED,
        worker.mark_recv_finished(|request: proto::MarkRecvFinishedRequest| request.request_id)
        -> |()| proto::MarkRecvFinishedResponse {}),
    method!(worker::LOGGING, worker.logging(|request: proto::LoggingRequest| request) -> |response| response),
    method!(worker::TRACING, worker.tracing(|request: proto::TracingRequest| request) -> |response| response),
    method!(worker::RECV_BUF, worker.recv_buf(|request: proto::RecvBufRequest| request) -> |response| response),
    method!(worker::COMPLETE_GROUP, worker.complete_group(|request: proto::CompleteGroupRequest| request)
        -> |response| response),
    method!(worker::COMPLETE_INSTANCE, worker.complete_instance(|request: proto::CompleteInstanceRequest| request)
        -> |response| response),
    method!(worker::GET_STEP_SEQUENCE, worker.get_step_sequence(|request: proto::GetStepSequenceRequest| request)
        -> |response| response),
    Method {
        path: callbacks::ATTEND,
        request: "RunStepRequest",
        tensors: Some(RUN_STEP_REQUEST),
        call: |services, message| {
            Box::pin(async move {
                let call = read_run_step(message)?.call;
                write_run_step_reply(callbacks::attend(call, services.stopping.clone()).await, false)
            })
        },
    },
    Method {
        path: ASK,
        request: NEVER_LARGE,
        tensors: None,
        call: |services, message| {
            Box::pin(async move {
                let question: TaskQuestion = message.decode()?;
                let answer = services.worker.ask(question).await?;
                Segments::from_message(&answer, || "the answer about a task".to_owned())
            })
        },
    },
    Method {
        path: super::HEALTH_CHECK,
        request: NEVER_LARGE,
        tensors: None,
        call: |services, message| Box::pin(async move { super::health::check(message, *services.stopping.borrow()) }),
    },
    Method {
        path: super::CONFIRM_STREAM,
        request: NEVER_LARGE,
        tensors: None,
        call: |services, message| {
            Box::pin(async move {
                let request = message.decode()?;
                let no_streams = || Status::unimplemented("this task opens no streams");
                let response = services.streams.as_ref().ok_or_else(no_streams)?.confirm(&request)?;
                Segments::from_message(&response, || "the confirmation of a stream".to_owned())
            })
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_answered() {
        for path in master::ALL.iter().chain(worker::ALL) {
            assert_eq!(METHODS.iter().filter(|method| method.path == *path).count(), 1, "{path}");
        }
        assert_eq!(METHODS.len(), master::ALL.len() + worker::ALL.len() + 5);
        for method in METHODS.iter().filter(|method| method.request != NEVER_LARGE) {
            let name = super::body::message_name(method.request);
            assert!(proto::size::decoded_size(name, &[]).is_ok(), "{name}");
        }
    }
}
