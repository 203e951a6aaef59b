//! Calls from outside: every call of both services, over gRPC, with mutated messages.

use super::messages::graphs;
use super::{Outcome, Target, summary};
use bytes::Bytes;
use cluster::Server;
use prost::Message;
use proto::service::{master, worker};
use std::time::Duration;
use tensor::{Code, Status};
use tokio::runtime::Runtime;

/// The time after which a call is abandoned; several rightly wait for others.
const CALL_TIME_MAX: Duration = Duration::from_millis(30);

/// The time limit of a call that has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// After this many inputs, the server is checked, and its sessions are renewed.
const RENEWED_AFTER: u64 = 64;

/// The device of the server.
const DEVICE: &str = "/job:localhost/replica:0/task:0/device:CPU:0";

/// The name of a worker session that no master has created.
const WORKER_SESSION: &str = "outside";

/// A server, with a session and a graph that inputs can refer to.
pub struct Served {
    /// The runtime of the server.
    pub runtime: Runtime,
    server: Server,
    client: Option<h2::client::SendRequest<Bytes>>,
    session_handle: String,
    graph_handle: String,
    num_taken: u64,
}

impl Served {
    /// Starts a server on a free local port.
    pub fn start() -> Served {
        let runtime = Runtime::new().expect("threads can be started");
        let server =
            Server::create_local_server(ops::registry(), runtime.handle().clone()).expect("a server can be started");
        let (session_handle, graph_handle) = (String::new(), String::new());
        let mut served = Served { runtime, server, client: None, session_handle, graph_handle, num_taken: 0 };
        served.renew().expect("a new server is well");
        served
    }

    /// Returns the server's address.
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// Counts an input. Every [`RENEWED_AFTER`] inputs, checks the server and returns what is wrong.
    pub fn count(&mut self) -> Option<Outcome> {
        self.num_taken += 1;
        if !self.num_taken.is_multiple_of(RENEWED_AFTER) {
            return None;
        }
        self.renew().err().map(|status| Outcome::found(format!("the server is not well any more: {status}")))
    }

    /// Returns an input with its placeholders replaced by the server's handles. The placeholders have the same length, so that
    /// lengths in the input stay valid.
    pub fn with_handles(&self, input: &[u8]) -> Vec<u8> {
        let once = replaced(input, session_sign(&self.session_handle).as_bytes(), self.session_handle.as_bytes());
        replaced(&once, graph_sign(&self.graph_handle).as_bytes(), self.graph_handle.as_bytes())
    }

    /// Returns the placeholders for the handles of the session and the registered graph.
    pub fn signs(&self) -> (String, String) {
        (session_sign(&self.session_handle), graph_sign(&self.graph_handle))
    }

    fn renew(&mut self) -> tensor::Result<()> {
        let (name, device) = ("a".to_owned(), DEVICE.to_owned());
        let node = proto::NodeDef { name, op: "NoOp".to_owned(), device, ..Default::default() };
        let graph = proto::GraphDef { node: vec![node], ..Default::default() };
        let asked = proto::ResetRequest { container: vec![String::new()], ..Default::default() };
        let _: proto::ResetResponse = self.ask(master::RESET, &asked)?;
        let asked = proto::CreateSessionRequest { graph_def: Some(graph.clone()), ..Default::default() };
        let session: proto::CreateSessionResponse = self.ask(master::CREATE_SESSION, &asked)?;
        self.session_handle = session.session_handle;
        let asked = proto::DeleteWorkerSessionRequest { session_handle: WORKER_SESSION.to_owned() };
        let _ = self.ask::<proto::DeleteWorkerSessionResponse>(worker::DELETE_WORKER_SESSION, &asked);
        let asked =
            proto::CreateWorkerSessionRequest { session_handle: WORKER_SESSION.to_owned(), ..Default::default() };
        let _: proto::CreateWorkerSessionResponse = self.ask(worker::CREATE_WORKER_SESSION, &asked)?;
        let asked = proto::RegisterGraphRequest {
            session_handle: WORKER_SESSION.to_owned(),
            create_worker_session_called: true,
            graph_def: Some(graph),
            ..Default::default()
        };
        let registered: proto::RegisterGraphResponse = self.ask(worker::REGISTER_GRAPH, &asked)?;
        self.graph_handle = registered.graph_handle;
        Ok(())
    }

    fn ask<M: Message + Default>(&mut self, path: &str, request: &impl Message) -> tensor::Result<M> {
        let answer = self.call(path, prefixed(&request.encode_to_vec()), PATIENCE)?;
        let answer = answer.ok_or_else(|| Status::deadline_exceeded(format!("{path} was not answered")))?;
        let message = answer.get(5..).unwrap_or_default();
        M::decode(message).map_err(|error| Status::data_loss(format!("the answer to {path}: {error}")))
    }

    /// Makes a call, and returns `None` if it was abandoned.
    fn call(&mut self, path: &str, body: Vec<u8>, time_max: Duration) -> tensor::Result<Option<Vec<u8>>> {
        let unavailable = |error: &dyn std::fmt::Display| Status::unavailable(error.to_string());
        let client = match self.client.take() {
            Some(client) => client,
            None => {
                let address = self.server.address().to_owned();
                self.runtime.block_on(async {
                    let stream = tokio::net::TcpStream::connect(address).await.map_err(|error| unavailable(&error))?;
                    let (client, connection) =
                        h2::client::handshake(stream).await.map_err(|error| unavailable(&error))?;
                    // The task ends with the connection, whose errors the calls report.
                    tokio::spawn(connection);
                    Ok::<_, Status>(client)
                })?
            }
        };
        let answered = self.runtime.block_on(async {
            let mut client = client.ready().await.map_err(|error| unavailable(&error))?;
            let request = http::Request::post(format!("http://localhost{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers");
            let request = request.body(()).map_err(|error| unavailable(&error))?;
            let (response, mut sending) = client.send_request(request, false).map_err(|error| unavailable(&error))?;
            sending.send_data(body.into(), true).map_err(|error| unavailable(&error))?;
            Ok((client, tokio::time::timeout(time_max, answer_of(response)).await))
        });
        let (client, answered) = answered?;
        self.client = Some(client);
        match answered {
            Err(_) => Ok(None),
            Ok(answer) => answer.map(Some),
        }
    }
}

async fn answer_of(response: h2::client::ResponseFuture) -> tensor::Result<Vec<u8>> {
    let unavailable = |error: h2::Error| Status::unavailable(error.to_string());
    let (head, mut body) = response.await.map_err(unavailable)?.into_parts();
    let mut content = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(unavailable)?;
        let _ = body.flow_control().release_capacity(piece.len());
        content.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.map_err(unavailable)?.unwrap_or(head.headers);
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "0" => Ok(content),
        code => Err(Status::new(Code::from_i32(code.parse().unwrap_or(2)), text("grpc-message").to_owned())),
    }
}

/// Returns a graph as a master registers it, entirely on the server's device.
fn placed(mut graph: proto::GraphDef) -> proto::GraphDef {
    graph.node.iter_mut().for_each(|node| DEVICE.clone_into(&mut node.device));
    graph
}

fn session_sign(handle: &str) -> String {
    "@".repeat(handle.len())
}

fn graph_sign(handle: &str) -> String {
    "%".repeat(handle.len())
}

fn replaced(input: &[u8], sign: &[u8], handle: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut at = 0;
    while !sign.is_empty() && at + sign.len() <= bytes.len() {
        if bytes[at..].starts_with(sign) {
            bytes[at..at + sign.len()].copy_from_slice(handle);
            at += sign.len();
        } else {
            at += 1;
        }
    }
    bytes
}

/// Adds gRPC's prefix to a message: the flag for compression, and the length.
fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    body
}

/// Calls. The first byte of an input selects the call, the second whether to mutate the prefix of the message, too.
pub struct Calls(Served);

impl Calls {
    /// Starts a server.
    pub fn new() -> Calls {
        Calls(Served::start())
    }
}

fn paths() -> impl Iterator<Item = &'static str> {
    master::ALL.iter().chain(worker::ALL).copied()
}

impl Target for Calls {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let (session, graph) = self.0.signs();
        let session_handle = session.clone();
        let graphs = graphs(12).into_iter().filter_map(|bytes| proto::GraphDef::decode(bytes.as_slice()).ok());
        let mut messages: Vec<(&str, Vec<u8>)> = paths().map(|path| (path, Vec::new())).collect();
        for graph in graphs {
            let asked = proto::CreateSessionRequest { graph_def: Some(graph.clone()), ..Default::default() };
            messages.push((master::CREATE_SESSION, asked.encode_to_vec()));
            let asked = proto::ExtendSessionRequest {
                session_handle: session_handle.clone(),
                graph_def: Some(graph.clone()),
                ..Default::default()
            };
            messages.push((master::EXTEND_SESSION, asked.encode_to_vec()));
            let asked = proto::RegisterGraphRequest {
                session_handle: WORKER_SESSION.to_owned(),
                create_worker_session_called: true,
                graph_def: Some(placed(graph)),
                ..Default::default()
            };
            messages.push((worker::REGISTER_GRAPH, asked.encode_to_vec()));
        }
        let target = vec!["a".to_owned()];
        let asked = proto::RunStepRequest { session_handle, target: target.clone(), ..Default::default() };
        messages.push((master::RUN_STEP, asked.encode_to_vec()));
        let asked = proto::PartialRunSetupRequest {
            session_handle: session.clone(),
            target: target.clone(),
            ..Default::default()
        };
        messages.push((master::PARTIAL_RUN_SETUP, asked.encode_to_vec()));
        let options = proto::CallableOptions { target, ..Default::default() };
        let asked = proto::MakeCallableRequest {
            session_handle: session.clone(),
            options: Some(options),
            ..Default::default()
        };
        messages.push((master::MAKE_CALLABLE, asked.encode_to_vec()));
        let asked = proto::RunCallableRequest { session_handle: session.clone(), handle: 1, ..Default::default() };
        messages.push((master::RUN_CALLABLE, asked.encode_to_vec()));
        let asked = proto::CloseSessionRequest { session_handle: session };
        messages.push((master::CLOSE_SESSION, asked.encode_to_vec()));
        let asked = proto::RunGraphRequest {
            session_handle: WORKER_SESSION.to_owned(),
            create_worker_session_called: true,
            graph_handle: graph,
            step_id: 5,
            ..Default::default()
        };
        messages.push((worker::RUN_GRAPH, asked.encode_to_vec()));
        let key = format!("{DEVICE};0000000000000001;{DEVICE};edge_1_a;0:0");
        let asked = proto::RecvTensorRequest { step_id: 5, rendezvous_key: key, ..Default::default() };
        messages.push((worker::RECV_TENSOR, asked.encode_to_vec()));
        messages.push((worker::CLEANUP_GRAPH, proto::CleanupGraphRequest { step_id: 5 }.encode_to_vec()));
        let number_of = |path: &str| paths().position(|known| known == path).unwrap_or(0) as u8;
        messages.into_iter().map(|(path, message)| [&[number_of(path), 0][..], &message].concat()).collect()
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        if let Some(unwell) = self.0.count() {
            return unwell;
        }
        let [which, how, message @ ..] = input else { return Outcome::accepted("nothing") };
        let paths: Vec<&str> = paths().collect();
        let path = paths[usize::from(*which) % paths.len()];
        let mut body = prefixed(&self.0.with_handles(message));
        match how {
            250 => body[0] = 1,
            251 => body[1] = 0x7f,
            252 => body[4] = body[4].wrapping_add(1),
            253 => body.extend_from_slice(&prefixed(message)),
            254 => body.truncate(3),
            _ => {}
        }
        match self.0.call(path, body, CALL_TIME_MAX) {
            Ok(Some(_)) => Outcome::accepted(path),
            Ok(None) => Outcome { is_accepted: false, text: format!("{path} waits"), finding: None },
            Err(status) => {
                let refused = Outcome::refused(&status);
                let finding = refused.finding.map(|finding| format!("{path}: {finding}"));
                Outcome {
                    text: format!("{path}: {:?} {}", status.code(), summary(status.message())),
                    finding,
                    ..refused
                }
            }
        }
    }
}
