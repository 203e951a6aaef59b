//! Verifies that a peer that has opened a stream is the task that it claims to be.
//!
//! A false claim could get the tensors that are sent to that task, and end the steps that wait for it. So a claim is not enough:
//! the task must be reachable at its address in the cluster, and must confirm that it has opened this very stream.
//!
//! ```text
//! A opens     Hello: "I am worker 1 at its address; the secret is S" ────▶ B
//! B asks      the address of worker 1 in its own cluster:      Confirm(S) ────▶ A, which has made S for B
//!                                                                     ◀──── the incarnations of A's devices
//! B answers                                                           ◀──── Hello
//! ```
//!
//! A secret is drawn for one stream, told only to the receiver, and confirmed once. A needs no such proof from B, since A itself
//! has connected to B's address. On a Unix socket the kernel proves the user, and the secret proves the task.
//!
//! Sessions may bring clusters that this task's own cluster doesn't know. A peer that is a task of such a cluster can't be
//! verified. It is served anyway, since a stream allows nothing that a client can't do with its handles; but nothing that is
//! meant for a task is sent to it, and its end fails no steps that wait for one.
//!
//! Over TLS the certificate of the peer must also be that of the task. Without TLS, none of this helps against somebody who can
//! read or change network traffic.

use super::StreamHub;
use super::address::unix_name;
use super::hello::{Hello, Proven};
use super::socket::Socket;
use crate::clock::timeout;
use crate::random::system_secret;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Weak;
use std::time::Duration;
use tensor::{Result, Status};

/// Asks a task whether it is opening a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfirmStreamRequest {
    /// The claims of the peer that opens the stream.
    #[prost(string, tag = "1")]
    pub secret: String,
    /// The incarnation of the first device of the task that asks.
    #[prost(uint64, tag = "2")]
    pub receiver: u64,
}

/// Confirms that a task is opening a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ConfirmStreamResponse {
    /// The incarnations of its devices.
    #[prost(uint64, repeated, tag = "1")]
    pub incarnations: Vec<u64>,
}

/// How long a task may take to confirm a stream.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// The secrets of the streams that this task is opening, each with the incarnation of its receiver.
#[derive(Default)]
pub(super) struct Secrets {
    opening: Mutex<HashMap<String, u64>>,
}

/// A stream that is being opened, as long as this lives.
pub(super) struct Opening<'a> {
    /// The proof that this task opens it.
    pub secret: String,
    secrets: &'a Secrets,
}

impl Secrets {
    /// Draws the secret for a stream to a task.
    pub fn open(&self, receiver: u64) -> Opening<'_> {
        let secret = system_secret();
        self.opening.lock().insert(secret.clone(), receiver);
        Opening { secret, secrets: self }
    }

    /// Returns whether the secret is that of a stream that is being opened to this receiver. It is valid once.
    fn take(&self, secret: &str, receiver: u64) -> bool {
        let mut opening = self.opening.lock();
        opening.get(secret) == Some(&receiver) && opening.remove(secret).is_some()
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.secrets.opening.lock().remove(&self.secret);
    }
}

impl StreamHub {
    /// Confirms to a task that this one is opening a stream to it.
    pub fn confirm(&self, request: &ConfirmStreamRequest) -> Result<ConfirmStreamResponse> {
        if !self.secrets.take(&request.secret, request.receiver) {
            return Err(Status::permission_denied(format!("{} has opened no such stream", self.task)));
        }
        Ok(ConfirmStreamResponse { incarnations: self.incarnations.clone() })
    }

    /// Verifies that a peer that has opened a stream is the task that it claims to be. The error is for a false claim.
    pub(super) async fn prove(&self, hello: &Hello, socket: &Socket) -> Result<Proven> {
        self.check_certificate(&hello.task, socket)?;
        let Some(workers) = self.peers.get().and_then(Weak::upgrade).filter(|_| hello.task != self.task) else {
            return Ok(Proven::new());
        };
        let Some(configured) = workers.address(&hello.task) else { return Ok(Proven::new()) };
        let receiver = self.incarnations.first().copied().unwrap_or(0);
        let request = ConfirmStreamRequest { secret: hello.secret.clone(), receiver };
        let task = hello.task.clone();
        let asking = async move {
            let answer = timeout(CONFIRM_TIMEOUT, workers.confirm_stream(&task, request)).await;
            answer.unwrap_or_else(|_| Err(Status::deadline_exceeded(format!("{task} does not answer"))))
        };
        // The thread of a blocking socket isn't one of the runtime's.
        let answer = match self.spawner.runtime().filter(|_| socket.is_blocking()) {
            Some(runtime) => runtime.block_on(asking),
            None => asking.await,
        };
        match answer {
            Ok(confirmed) if confirmed.incarnations.first() == hello.incarnations.first() => {
                Ok(confirmed.incarnations.into())
            }
            // A task of the same name in the cluster of a session.
            _ if hello.address != configured => Ok(Proven::new()),
            answer => {
                let why = answer.map_or_else(|status| status.message().to_owned(), |_| "it was restarted".to_owned());
                Err(Status::permission_denied(format!(
                    "a peer says that it is {}, but the task at its address {configured} does not confirm it: {why}",
                    hello.task
                )))
            }
        }
    }

    /// Checks that the certificate of a peer is that of the task that it claims to be, if it has one.
    pub(super) fn check_certificate(&self, task: &str, socket: &Socket) -> Result<()> {
        match socket.identity() {
            Some(identity) if !identity.is_task(task, self.configured_address(task).as_deref()) => {
                let other = identity.describe();
                Err(Status::permission_denied(format!(
                    "a peer says that it is {task}, and its certificate is that of {other}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Returns the address to which tensors are sent for the task that has opened a stream; `None` if its identity isn't proven.
    pub(super) fn address_of_proven(&self, task: &str, proven: &[u64], socket: &Socket) -> Option<Box<str>> {
        let incarnation = *proven.first()?;
        let place = match socket.peer_user() {
            Some(_) => format!("unix:{}", unix_name(incarnation)),
            None => format!("tcp:{}", self.configured_address(task)?),
        };
        Some(format!("{place}#{incarnation:016x}").into())
    }

    /// Returns this task's address in its cluster.
    pub(super) fn own_address(&self) -> String {
        self.configured_address(&self.task).unwrap_or_default()
    }

    /// Returns the address of a task in this task's cluster.
    pub(super) fn configured_address(&self, task: &str) -> Option<String> {
        self.peers.get().and_then(Weak::upgrade)?.address(task)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{HEADER_BYTES, Header, Kind, PREFACE};
    use super::*;
    use crate::interface::{MasterInterface, RunStepCall};
    use crate::{ClusterSpec, RemoteMaster, Server, ServerConfig, Transport};
    use proto::CreateSessionRequest;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use tensor::Tensor;

    #[test]
    fn a_secret_is_confirmed_once_and_to_its_receiver_only() {
        let secrets = Secrets::default();
        let opening = secrets.open(7);
        assert_eq!(opening.secret.len(), 32);
        assert!(!secrets.take(&opening.secret, 8) && !secrets.take("", 7));
        assert!(secrets.take(&opening.secret, 7));
        assert!(!secrets.take(&opening.secret, 7));
        let ended = secrets.open(7).secret.clone();
        assert!(!secrets.take(&ended, 7), "its stream is not opened any more");
        drop(opening);
        assert!(secrets.opening.lock().is_empty());
    }

    /// A worker and a ps, both Ferroflow tasks.
    fn cluster(runtime: &tokio::runtime::Runtime) -> [Server; 2] {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [ps, worker] = listeners.map(|listener| listener.local_addr().unwrap().to_string());
        let spec = ClusterSpec::new().with_job("ps", &[ps]).unwrap().with_job("worker", &[worker]).unwrap();
        ["ps", "worker"].map(|job| {
            let mut config = ServerConfig::new(spec.clone(), job, 0).unwrap();
            config.transport = Transport::Tcp;
            Server::start(config, ops::registry(), runtime.handle().clone()).unwrap()
        })
    }

    fn hub(server: &Server) -> Arc<StreamHub> {
        server.streams().unwrap().clone()
    }

    /// Greets a server as a task would, with this secret; returns the kind of the frame that comes back.
    fn claim(server: &Server, claimed: &StreamHub, secret: &str) -> (TcpStream, Kind) {
        let mut stream = TcpStream::connect(server.bound()[0]).unwrap();
        let hello = claimed.hello(0, false, secret).unwrap();
        stream.write_all(&[&PREFACE[..], &hello.pieces.concat()].concat()).unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).unwrap();
        let kind = Header::read(&header).unwrap().kind;
        (stream, kind)
    }

    /// Doubles a number on the worker that was sent to the ps first.
    fn run(runtime: &tokio::runtime::Runtime, master: &dyn MasterInterface) -> Vec<Tensor> {
        let text = "x = Placeholder() {dtype=float} @/job:ps/task:0\n y = Neg(x) @/job:ps/task:0\n \
                    z = Neg(y) @/job:worker/task:0";
        let graph_def = graph::NodeGraph::from_text(text, ops::registry()).unwrap().to_graph_def();
        let request = CreateSessionRequest { graph_def: Some(graph_def), ..Default::default() };
        let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
        let call = RunStepCall {
            session_handle,
            feeds: vec![("x:0".to_owned(), Tensor::scalar(3f32))],
            fetches: vec!["z:0".to_owned()],
            ..Default::default()
        };
        let reply = runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), master.run_step(call)).await.expect("the tensor was stolen")
        });
        reply.unwrap().tensors.into_iter().map(|(_, tensor)| tensor).collect()
    }

    #[test]
    fn a_peer_with_the_name_of_another_gets_nothing_that_is_meant_for_it() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let [ps, worker] = cluster(&runtime);
        let (thief, answer) = claim(&ps, &hub(&worker), "not the secret");
        assert_eq!(answer, Kind::Error);
        let master = RemoteMaster::new(ps.address(), runtime.handle().clone()).unwrap();
        // The ps would push to the worker over the thief's connection, and fail its steps when that closes.
        let tensors = run(&runtime, &master);
        assert_eq!(tensors[0].to_scalar::<f32>().unwrap(), 3.0);
        drop(thief);
        run(&runtime, &master);
    }

    #[test]
    fn a_task_that_opens_a_stream_is_known() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let [ps, worker] = cluster(&runtime);
        let claimed = hub(&worker);
        let receiver = hub(&ps).incarnations[0];
        let opening = claimed.secrets.open(receiver);
        let (_stream, answer) = claim(&ps, &claimed, &opening.secret);
        assert_eq!(answer, Kind::Hello);
        // Nobody else can use the secret again, such as somebody who has read it.
        let (_stream, answer) = claim(&ps, &claimed, &opening.secret);
        assert_eq!(answer, Kind::Error);
    }
}
