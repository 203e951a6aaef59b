//! Streams between Ferroflow tasks: a persistent connection that starts a step's partitions and pushes its tensors, without a
//! request for each. On one machine it is a Unix socket, elsewhere TCP to the server's port, which distinguishes it from gRPC by
//! its first byte.
//!
//! The master decides which transfers use a stream when it registers the partitions: only it knows both ends. It gives such a
//! Send and its Recv the receiver's address (`kernel::Transfer::push_to`). The Send pushes there, and the Recv waits for the
//! tensor. TensorFlow's tasks never see the attribute, and use `RecvTensor`.

mod address;
mod calls;
mod connection;
mod decoder;
mod frame;
mod given;
mod greeting;
mod hello;
#[cfg(test)]
mod kept_frames;
mod listener;
mod messages;
mod outgoing;
mod peer_watch;
mod proof;
mod reader;
mod releases;
mod settings;
mod shared_memory;
mod silence;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use address::StreamOffer;
pub(crate) use connection::Connection;
pub(crate) use frame::PREFACE;
pub use given::{Dialer, GivenStream};
pub(crate) use proof::{ConfirmStreamRequest, ConfirmStreamResponse};
pub(crate) use settings::{StreamLimits, StreamSettings};
pub(crate) use socket::Socket;

use crate::interface::Answer;
use crate::metrics::PeerTraffic;
use crate::spawner::Spawner;
use crate::tls::{Identity, Protocol, Wire};
use crate::transport::tcp::connection_options;
use crate::worker::Recipient;
use address::{Place, StreamAddress};
use calls::{AbortOnDrop, PeerCalls};
use decoder::InFrame;
use foldhash::{HashMap, HashMapExt};
use frame::{Kind, malformed};
use futures_util::FutureExt;
use listener::Admission;
use parking_lot::Mutex;
use proof::Secrets;
use shared_memory::SharedHeap;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::{debug, error};

/// The other tasks of a task's cluster, which confirm the identity of peers.
pub(crate) trait Peers: Send + Sync {
    /// Returns a task's address.
    fn address(&self, task: &str) -> Option<String>;

    /// Returns the counters of the transfers with a task.
    fn traffic(&self, _task: &str) -> Option<Arc<PeerTraffic>> {
        None
    }

    /// Asks a task whether it is opening a stream to this one.
    fn confirm_stream(&self, task: &str, request: ConfirmStreamRequest) -> Answer<ConfirmStreamResponse>;
}

/// The streams of one server, in both directions.
pub(crate) struct StreamHub {
    spawner: Spawner,
    /// The receiver of everything that arrives.
    worker: OnceLock<Weak<dyn Recipient>>,
    /// The workers of this task's cluster.
    peers: OnceLock<Weak<dyn Peers>>,
    /// The name of this task.
    task: String,
    /// The incarnations of this task's devices.
    incarnations: Vec<u64>,
    /// How this task accepts streams.
    offer: StreamOffer,
    /// The users that they serve, and their bounds.
    settings: StreamSettings,
    /// The heap with this process's large tensors, if it is shared with tasks on the same machine.
    heap: Option<&'static SharedHeap>,
    /// By the receiver's address, without the name of the task. The incarnation alone would not suffice: a process at some other
    /// address could claim it.
    connections: Mutex<HashMap<Box<str>, Arc<Connection>>>,
    /// Proves that this task opens its streams.
    secrets: Secrets,
    /// All connections being served, including those that a second connection to the same peer has replaced; `None` once the task
    /// stops.
    served: Mutex<Option<Vec<Arc<Connection>>>>,
    /// Whether new partitions are refused, because the task is stopping.
    is_stopping: AtomicBool,
    /// The number of partitions running for peers.
    num_running: watch::Sender<usize>,
    /// The connections of tasks on this machine.
    admission: Admission,
}

impl StreamHub {
    /// Returns the hub of a task with these devices.
    pub fn new(
        spawner: Spawner,
        task: String,
        incarnations: Vec<u64>,
        offer: StreamOffer,
        settings: StreamSettings,
    ) -> StreamHub {
        let shares_memory = settings.shares_memory && !offer.unix.is_empty();
        let heap = if shares_memory { SharedHeap::of_process() } else { None };
        let connections = Mutex::new(HashMap::new());
        StreamHub {
            spawner,
            worker: OnceLock::new(),
            peers: OnceLock::new(),
            task,
            incarnations,
            offer,
            settings,
            heap,
            connections,
            secrets: Secrets::default(),
            served: Mutex::new(Some(Vec::new())),
            is_stopping: AtomicBool::new(false),
            num_running: watch::Sender::new(0),
            admission: Admission::default(),
        }
    }

    /// Returns how this task accepts streams.
    pub fn offer(&self) -> &StreamOffer {
        &self.offer
    }

    /// Sets the workers of this task's cluster, which confirm the identity of peers.
    pub fn set_peers<P: Peers + 'static>(&self, peers: Weak<P>) {
        let _ = self.peers.set(peers);
    }

    /// Sets the worker that receives everything that arrives.
    pub fn set_worker<R: Recipient + 'static>(&self, worker: Weak<R>) {
        let _ = self.worker.set(worker);
    }

    /// Returns the stream to an address, which is opened if there is none; frames are queued meanwhile.
    pub fn get(self: &Arc<Self>, address: &str) -> Result<Arc<Connection>> {
        let parsed = StreamAddress::parse(address)?;
        let mut connections = self.connections.lock();
        let key = key_of(address);
        if let Some(known) = connections.get(key).filter(|known| known.is_usable()) {
            return Ok(known.clone());
        }
        let connection = Arc::new(Connection::with_limits(&parsed.to_string(), self.settings.limits));
        connections.insert(key.into(), connection.clone());
        drop(connections);
        let (hub, opened, address) = (self.clone(), connection.clone(), address.to_owned());
        self.spawner.spawn(async move { hub.open(opened, &address).await });
        Ok(connection)
    }

    /// Returns the stream to the task with a device of this incarnation, if there is one and it has greeted.
    pub fn connected_to(&self, incarnation: u64) -> Option<Arc<Connection>> {
        let connections = self.connections.lock();
        let mut greeted = connections.values().filter(|known| known.proven().contains(&incarnation));
        greeted.find(|known| known.is_greeted()).cloned()
    }

    /// Returns the stream that carries pushes to a connection's peer, so that a frame on it follows them.
    fn pushing_to(&self, connection: &Arc<Connection>) -> Arc<Connection> {
        let connections = self.connections.lock();
        let first = connection.incarnations().first();
        let is_to_it = |known: &&Arc<Connection>| known.is_greeted() && known.incarnations().first() == first;
        let known = connections.values().find(is_to_it).filter(|_| first.is_some());
        known.unwrap_or(connection).clone()
    }

    /// Refuses new work, and waits until the partitions running for peers have ended.
    pub async fn drain(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let _ = self.num_running.subscribe().wait_for(|&count| count == 0).await;
    }

    /// Closes all streams, and accepts no others.
    pub fn stop(&self) {
        let connections = std::mem::take(&mut *self.connections.lock());
        let served = self.served.lock().take().unwrap_or_default();
        for connection in connections.into_values().chain(served) {
            connection.broken(&stopping());
        }
    }

    /// Drops the queued frames of a finished step.
    pub fn forget_step(&self, step_id: i64) {
        self.connections.lock().values().for_each(|connection| connection.forget_step(step_id));
        if let Some(served) = self.served.lock().as_ref() {
            served.iter().for_each(|connection| connection.forget_step(step_id));
        }
    }

    async fn open(self: Arc<Self>, connection: Arc<Connection>, address: &str) {
        let lost = match caught(self.connect(address)).await {
            Ok(socket) => {
                let socket = Arc::new(socket);
                let address = StreamAddress::parse(address).ok();
                self.clone().run(connection.clone(), socket, address).await
            }
            Err(status) => status,
        };
        self.over(&connection, &lost);
    }

    async fn connect(&self, address: &str) -> Result<Socket> {
        let address = StreamAddress::parse(address)?;
        let timeout = self.settings.limits.connect_timeout;
        let unreachable = |why: String| Status::unavailable(format!("no stream to {address}: {why}"));
        let connected = async {
            match address.place {
                Place::Tcp(host) => {
                    if let Some(dialer) = &self.settings.dialer {
                        return dialer.dial(address.task, host).await.map(Socket::given);
                    }
                    let stream = TcpStream::connect(host).await?;
                    connection_options(&stream);
                    let Some(tls) = &self.settings.tls else { return Socket::tcp(Wire::Plain(stream), None) };
                    let task = Some(address.task).filter(|task| !task.is_empty());
                    let stream = tls.connect(stream, task, host, Protocol::Stream).await?;
                    let identity = Identity::of_peer(&stream).map(Arc::new);
                    Socket::tcp(Wire::Tls(Box::new(stream)), identity)
                }
                Place::Unix(name) => connect_unix(name, timeout, &self.settings).await,
            }
        };
        match crate::clock::timeout(timeout, connected).await {
            Ok(outcome) => outcome.map_err(|error| unreachable(error.to_string())),
            Err(_) => Err(unreachable(format!("it did not take the connection within {} s", timeout.as_secs_f32()))),
        }
    }

    /// Accepts a stream that a peer has opened.
    pub async fn accept(self: Arc<Self>, socket: Socket) {
        let connection = Arc::new(Connection::with_limits(&socket.describe_peer(), self.settings.limits));
        let lost = self.clone().run(connection.clone(), Arc::new(socket), None).await;
        self.over(&connection, &lost);
    }

    /// Closes a connection for its users.
    fn over(&self, connection: &Arc<Connection>, lost: &Status) {
        self.connections.lock().retain(|_, known| !Arc::ptr_eq(known, connection));
        if let Some(served) = self.served.lock().as_mut() {
            served.retain(|known| !Arc::ptr_eq(known, connection));
        }
        guarded(connection, || connection.broken(lost));
        if let Some(worker) = self.worker.get().and_then(Weak::upgrade) {
            guarded(connection, || worker.peer_lost(connection.id(), connection.proven(), lost));
        }
    }

    /// Serves a connection until it ends; returns why. If this task opened it, the caller says which peer is expected.
    async fn run(
        self: Arc<Self>,
        connection: Arc<Connection>,
        socket: Arc<Socket>,
        expected: Option<StreamAddress<'_>>,
    ) -> Status {
        match self.served.lock().as_mut() {
            Some(served) => served.push(connection.clone()),
            None => return stopping(),
        }
        let running = PeerCalls::default();
        let _aborted = AbortOnDrop(running.clone());
        let reading = async {
            let (mut reader, hello) = self.greet(&connection, &socket, expected).await?;
            if let Some(traffic) = self.peers.get().and_then(Weak::upgrade).and_then(|peers| peers.traffic(&hello.task))
            {
                connection.count_with(traffic);
            }
            if let (None, Some(address)) = (expected, self.address_of_proven(&hello.task, &hello.proven, &socket)) {
                // Frames for that peer use the same connection, unless there is another one already.
                let mut connections = self.connections.lock();
                if connections.get(&*address).is_none_or(|known| !known.is_usable()) {
                    connections.insert(address, connection.clone());
                }
            }
            while let Some(frame) = reader.next().await? {
                connection.silence.heard(|| connection.peer_at());
                calls::then_answer(|| self.take(&connection, frame, &running))?;
            }
            Ok(())
        };
        let reading = caught(reading);
        let ended: Result<()> = if socket.is_blocking() {
            let writing = self.spawner.spawn(keep_writing(connection.clone(), socket.clone()));
            let ended = reading.await;
            writing.abort_handle().abort();
            ended
        } else {
            tokio::select! {
                biased;
                ended = reading => ended,
                ended = keep_writing(connection.clone(), socket.clone()) => ended,
            }
        };
        guarded(&connection, || running.abort_all());
        let lost = match ended {
            Ok(()) => Status::unavailable(format!("the connection to {} was closed", connection.peer())),
            Err(status) => Status::unavailable(format!("{} ({})", status.message(), connection.peer())),
        };
        debug!("{}", lost.message());
        lost
    }

    fn take(self: &Arc<Self>, connection: &Arc<Connection>, mut frame: InFrame, running: &PeerCalls) -> Result<()> {
        match frame.kind {
            Kind::Hello | Kind::Memory => return Err(malformed()),
            Kind::Mapped => {
                connection.share();
                return Ok(());
            }
            Kind::Ping => return connection.send_word(Kind::Pong),
            Kind::Pong => return Ok(()),
            Kind::Release => return connection.returned(frame.fields()),
            _ => {}
        }
        let Some(worker) = self.worker.get().and_then(Weak::upgrade) else {
            return Err(Status::unavailable("this task has stopped"));
        };
        let step_id = if frame.kind == Kind::Tensor { frame.id as i64 } else { 0 };
        connection.count_received(step_id, frame.tensors.iter().map(|(tensor, _)| tensor.num_bytes()).sum());
        match frame.kind {
            Kind::Hello | Kind::Memory | Kind::Mapped | Kind::Ping | Kind::Pong | Kind::Release => {}
            Kind::Tensor => {
                let (tensor, is_dead) = frame.tensors.pop().ok_or_else(malformed)?;
                let key: Arc<str> = frame.fields().text()?.into();
                worker.pushed(connection.id(), frame.id as i64, &key, tensor, is_dead);
            }
            Kind::RunGraph if self.is_stopping.load(Ordering::Acquire) => {
                connection.reply(frame.id, Err(Status::unavailable("the task is stopping")))?;
            }
            Kind::RunGraph => {
                let mut answer = worker.run_graph(messages::read_run_graph(&mut frame)?);
                match (&mut answer).now_or_never() {
                    Some(reply) => connection.reply(frame.id, reply)?,
                    None => running.add(self, connection, frame.id, answer),
                }
            }
            Kind::RecvPart => {
                let (step_id, key) = messages::read_recv_part(frame.fields())?;
                running.add_part(self, connection, frame.id, worker.recv_part(step_id, &key));
            }
            Kind::RunGraphReply => {
                let reply = messages::read_reply(&mut frame)?;
                connection.answered(frame.id, Ok(reply));
            }
            Kind::Error => connection.answered(frame.id, Err(messages::read_error(frame.fields())?)),
            Kind::Cancel => {
                running.abort(frame.id);
                connection.forget_answer(frame.id);
            }
            Kind::Cleanup => worker.cleanup_graph(frame.id as i64),
            Kind::AskProgress => {
                let answer = messages::write_progress(frame.id, frame.fields(), |step_id| worker.progress(step_id))?;
                self.pushing_to(connection).send(answer)?;
            }
            Kind::Progress => {
                let steps = messages::read_progress(frame.fields())?;
                worker.told_progress(connection.proven(), frame.id, &steps);
            }
        }
        Ok(())
    }
}

/// Returns the part of an address that identifies the endpoint and the incarnation.
fn key_of(address: &str) -> &str {
    let incarnation = address.rfind('#').unwrap_or(0);
    let end = address[incarnation..].find('@').map_or(address.len(), |at| incarnation + at);
    &address[..end]
}

/// Returns the address of a name in the abstract socket namespace, which only Linux has. Elsewhere no task offers such a name
/// ([`StreamOffer::new`]), and tasks on one machine use TCP.
#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &str) -> std::io::Result<std::os::unix::net::SocketAddr> {
    Err(std::io::ErrorKind::Unsupported.into())
}

fn unavailable(error: &std::io::Error) -> Status {
    Status::unavailable(error.to_string())
}

fn stopping() -> Status {
    Status::unavailable("this task is stopping")
}

/// Connects to a task on this machine.
async fn connect_unix(name: &str, timeout: Duration, settings: &StreamSettings) -> std::io::Result<Socket> {
    let address = socket2::SockAddr::unix(format!("\0{name}"))?;
    let new_socket = || socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    let socket = new_socket()?;
    socket.set_nonblocking(true)?;
    let socket = match socket.connect(&address) {
        Ok(()) => socket,
        // The backlog may be full, if the task is suspended: only a blocking call can wait for a place.
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            let socket = new_socket()?;
            socket.set_write_timeout(Some(timeout))?;
            let waiting = tokio::task::spawn_blocking(move || socket.connect(&address).map(|()| socket));
            let socket = waiting.await.map_err(std::io::Error::other)??;
            socket.set_write_timeout(None)?;
            socket.set_nonblocking(true)?;
            socket
        }
        Err(error) => return Err(error),
    };
    let stream = tokio::net::UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))?;
    // Another process may have taken the name before the task could.
    let user = stream.peer_cred()?.uid();
    if !settings.peers.allows(user) {
        return Err(std::io::Error::other(format!("the socket belongs to user {user}, whom this task does not trust")));
    }
    Ok(Socket::unix(stream.into_std()?)?.with_peer_user(user))
}

/// Turns a panic into an error, so that the connection on whose thread it happens ends like any other.
async fn caught<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// Runs one part of a connection's cleanup; a panic in it must not prevent the other parts.
fn guarded(connection: &Connection, part: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(part)) {
        error!("at the end of the stream to {}: {}", connection.peer(), panicked(&*panic).message());
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Status {
    let what = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let status = Status::internal(format!("a thread of a stream panicked: {}", what.unwrap_or("it did not say why")));
    error!("{}; its stream ends, and the steps that use it fail. This is a bug of Ferroflow", status.message());
    status
}

/// Writes the queue when the socket is writable, sends releases that no frame carries, and watches the peer, until the connection
/// breaks.
async fn keep_writing(connection: Arc<Connection>, socket: Arc<Socket>) -> Result<()> {
    let ended = caught(async {
        tokio::select! {
            biased;
            ended = connection.write_the_rest(&socket) => ended.map_err(|error| unavailable(&error)),
            never = connection.give_back() => match never {},
            never = connection.watch_peer() => match never {},
        }
    });
    let ended = ended.await;
    // This tells the thread that reads a socket of its own.
    socket.shut_down();
    ended
}
