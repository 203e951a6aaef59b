//! Streams between tasks of ours: a persistent connection over which a step's partitions are started and its tensors pushed,
//! without a request for each. On one machine it is a Unix socket, elsewhere TCP to the port of the server, which tells it
//! from gRPC by its first byte.
//!
//! The master decides which transfers go this way, when it registers the partitions: it alone knows both ends. It gives
//! such a Send and its Recv the receiver's address as the attribute [`PUSH_TO`]. The Send pushes there, and the Recv waits
//! for what comes. TensorFlow's tasks never see the attribute, and keep `RecvTensor`.

mod address;
mod calls;
mod connection;
mod frame;
mod messages;
mod reader;
mod shared_memory;
mod socket;

pub(crate) use address::StreamOffer;
pub(crate) use connection::Connection;
pub(crate) use frame::PREFACE;
pub(crate) use socket::Socket;

use crate::interface::WorkerInterface;
use crate::rpc::connection_options;
use crate::threads;
use crate::worker::Worker;
use address::{Place, StreamAddress};
use calls::Running;
use foldhash::{HashMap, HashMapExt};
use frame::{FrameWriter, Kind, OutFrame, malformed};
use futures_util::FutureExt;
use parking_lot::Mutex;
use reader::{FrameReader, InFrame};
use shared_memory::{PeerMemory, SharedHeap};
use smallvec::SmallVec;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tensor::{Result, Status};
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::watch;
use tracing::{debug, info};

/// The attribute of a Send and its Recv that holds the receiver's address, when the tensor is to be pushed.
pub(crate) const PUSH_TO: &str = "_push_to";

/// The version of the protocol; both sides must have the same.
const VERSION: u64 = 2;

/// A bound on the devices that a peer names.
const INCARNATIONS_MAX: u64 = 1 << 12;

/// How many peers on this machine have a thread of their own here; the runtime serves those that come later.
const THREADS_MAX: usize = 64;

/// How long a thread waits for a peer's first words.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// The streams of one server, in both directions.
pub(crate) struct StreamHub {
    runtime: tokio::runtime::Handle,
    worker: OnceLock<Weak<Worker>>,
    connect_timeout: OnceLock<Duration>,
    /// The name of this task.
    task: String,
    /// The incarnations of this task's devices.
    incarnations: Vec<u64>,
    /// How this task takes streams.
    offer: StreamOffer,
    /// Where the large tensors of this process lie, when they are shared with tasks on the same machine.
    heap: Option<&'static SharedHeap>,
    /// By the incarnation of the peer's first device.
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    /// All that are served, also those that a second connection to the same peer stands in for; `None` once the task stops.
    served: Mutex<Option<Vec<Arc<Connection>>>>,
    /// Whether no new partitions are run, because the task stops.
    is_stopping: AtomicBool,
    /// How many partitions run for peers.
    num_running: watch::Sender<usize>,
    /// How many threads serve a peer each.
    num_threads: AtomicUsize,
}

impl StreamHub {
    /// Makes the hub of a task with these devices.
    pub fn new(
        runtime: tokio::runtime::Handle,
        task: String,
        incarnations: Vec<u64>,
        offer: StreamOffer,
        shares_memory: bool,
    ) -> StreamHub {
        let heap = if shares_memory && !offer.unix.is_empty() { SharedHeap::of_process() } else { None };
        let connections = Mutex::new(HashMap::new());
        StreamHub {
            runtime,
            worker: OnceLock::new(),
            connect_timeout: OnceLock::new(),
            task,
            incarnations,
            offer,
            heap,
            connections,
            served: Mutex::new(Some(Vec::new())),
            is_stopping: AtomicBool::new(false),
            num_running: watch::Sender::new(0),
            num_threads: AtomicUsize::new(0),
        }
    }

    /// Returns how this task takes streams.
    pub fn offer(&self) -> &StreamOffer {
        &self.offer
    }

    /// Sets how long making a connection may take.
    pub fn set_connect_timeout(&self, timeout: Duration) {
        let _ = self.connect_timeout.set(timeout);
    }

    /// Sets the worker that takes what arrives.
    pub fn set_worker(&self, worker: Weak<Worker>) {
        let _ = self.worker.set(worker);
    }

    /// Returns the stream to an address, which is opened if there is none; what is sent meanwhile waits.
    pub fn get(self: &Arc<Self>, address: &str) -> Result<Arc<Connection>> {
        let parsed = StreamAddress::parse(address)?;
        let mut connections = self.connections.lock();
        if let Some(known) = connections.get(&parsed.incarnation).filter(|known| known.is_usable()) {
            return Ok(known.clone());
        }
        let connection = Arc::new(Connection::connecting(address));
        connections.insert(parsed.incarnation, connection.clone());
        drop(connections);
        let (hub, opened, address) = (self.clone(), connection.clone(), address.to_owned());
        self.runtime.spawn(async move { hub.open(opened, &address).await });
        Ok(connection)
    }

    /// Returns the stream to the task that has a device of this incarnation, if there is one and it has greeted.
    pub fn connected_to(&self, incarnation: u64) -> Option<Arc<Connection>> {
        let connections = self.connections.lock();
        let mut greeted = connections.values().filter(|known| known.incarnations().contains(&incarnation));
        greeted.find(|known| known.is_greeted()).cloned()
    }

    /// Returns the stream over which tensors are pushed to the peer of a connection, so that what is sent comes after them.
    fn pushing_to(&self, connection: &Arc<Connection>) -> Arc<Connection> {
        let connections = self.connections.lock();
        let first = connection.incarnations().first();
        let known = first.and_then(|incarnation| connections.get(incarnation)).filter(|known| known.is_greeted());
        known.unwrap_or(connection).clone()
    }

    /// Takes no new work, and waits until what runs for peers has ended.
    pub async fn drain(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let _ = self.num_running.subscribe().wait_for(|&count| count == 0).await;
    }

    /// Ends all streams, and takes no others.
    pub fn stop(&self) {
        let connections = std::mem::take(&mut *self.connections.lock());
        let served = self.served.lock().take().unwrap_or_default();
        for connection in connections.into_values().chain(served) {
            connection.broken(&stopping());
        }
    }

    /// Takes streams on this machine until the task is dropped.
    pub async fn listen(self: Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Err(error) = stream.into_std().and_then(|stream| self.serve(stream)) {
                        debug!("can't take a stream: {error}");
                    }
                }
                Err(error) => {
                    debug!("can't accept a stream: {error}");
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    /// Serves a peer on this machine that has opened a stream, on a thread of its own as long as there are not many.
    ///
    /// A peer that has asked for something mostly waits for the answer. The thread that it has woken is all the kernel sees of
    /// that, so it goes on where the peer just was. With one thread for all peers, what one has asked for waits where
    /// another one computes, while the core of the first is idle.
    fn serve(self: &Arc<Self>, stream: UnixStream) -> std::io::Result<()> {
        let is_within = |count: usize| (count < THREADS_MAX).then_some(count + 1);
        if self.num_threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_within).is_ok() {
            let place = ThreadPlace(self.clone());
            let socket = Socket::blocking(stream.try_clone()?)?;
            let started = threads::spawn("ferroflow-stream", move || {
                let _runtime = place.0.runtime.enter();
                // Nothing of this waits for the runtime, so that it ends with the connection.
                let _ = place.0.clone().accept(socket).now_or_never();
            });
            match started {
                Ok(()) => return Ok(()),
                Err(error) => debug!("no thread for a stream: {error}"),
            }
        }
        self.runtime.spawn(self.clone().accept(Socket::unix(stream)?));
        Ok(())
    }

    /// Opens the Unix socket, if the task's offer has one.
    pub fn bind(&self) -> Result<Option<UnixListener>> {
        let offer = &self.offer;
        if offer.unix.is_empty() {
            return Ok(None);
        }
        let unusable = |error: std::io::Error| {
            Status::internal(format!("the socket '{}' for tasks on this machine can't be opened: {error}", offer.unix))
        };
        let address = abstract_address(&offer.unix).map_err(unusable)?;
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        // Within the runtime, because a socket belongs to one.
        let _entered = self.runtime.enter();
        UnixListener::from_std(listener).map_err(unusable).map(Some)
    }

    async fn open(self: Arc<Self>, connection: Arc<Connection>, address: &str) {
        let timeout = self.connect_timeout.get().copied().unwrap_or(GREETING_TIMEOUT);
        let late = || Status::unavailable(format!("no stream to the task at {address} in {} s", timeout.as_secs_f32()));
        let connected = tokio::time::timeout(timeout, self.connect(address)).await;
        let lost = match connected.unwrap_or_else(|_| Err(late())) {
            Ok(socket) => {
                let socket = Arc::new(socket);
                let incarnation = StreamAddress::parse(address).map_or(0, |address| address.incarnation);
                self.clone().run(connection.clone(), socket, Some(incarnation)).await
            }
            Err(status) => status,
        };
        self.over(&connection, &lost);
    }

    async fn connect(&self, address: &str) -> Result<Socket> {
        let unreachable =
            |error: std::io::Error| Status::unavailable(format!("no stream to the task at {address}: {error}"));
        let socket = match StreamAddress::parse(address)?.place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                connection_options(&stream);
                Socket::tcp(stream)
            }
            Place::Unix(name) => {
                let address = abstract_address(name).map_err(unreachable)?;
                // It is on this machine: either somebody listens, or nobody does.
                let stream = std::os::unix::net::UnixStream::connect_addr(&address).map_err(unreachable)?;
                Socket::unix(stream)
            }
        };
        socket.map_err(unreachable)
    }

    /// Takes a stream that a peer has opened.
    pub async fn accept(self: Arc<Self>, socket: Socket) {
        let connection = Arc::new(Connection::connecting("a peer"));
        let lost = self.clone().run(connection.clone(), Arc::new(socket), None).await;
        self.over(&connection, &lost);
    }

    fn hello(&self, receiver: u64, is_shared: bool) -> Result<OutFrame> {
        let mut writer = FrameWriter::plain(Kind::Hello, VERSION);
        writer.u64(receiver);
        writer.u64(u64::from(is_shared));
        writer.u64(self.incarnations.len() as u64);
        for &incarnation in &self.incarnations {
            writer.u64(incarnation);
        }
        writer.text(self.task.as_bytes());
        writer.finish()
    }

    /// Ends a connection for whoever uses it.
    fn over(&self, connection: &Arc<Connection>, lost: &Status) {
        self.connections.lock().retain(|_, known| !Arc::ptr_eq(known, connection));
        if let Some(served) = self.served.lock().as_mut() {
            served.retain(|known| !Arc::ptr_eq(known, connection));
        }
        connection.broken(lost);
        if let Some(worker) = self.worker.get().and_then(Weak::upgrade) {
            worker.peer_lost(connection, connection.incarnations(), lost);
        }
    }

    /// Serves a connection until it ends; returns why. Whoever opened it says whom it expects there.
    async fn run(self: Arc<Self>, connection: Arc<Connection>, socket: Arc<Socket>, expected: Option<u64>) -> Status {
        match self.served.lock().as_mut() {
            Some(served) => served.push(connection.clone()),
            None => return stopping(),
        }
        let running = Running::default();
        let reading = async {
            let bounded = |timeout| socket.set_read_timeout(timeout).map_err(|error| unavailable(&error));
            bounded(Some(GREETING_TIMEOUT))?;
            let greeting = self.greet(&connection, &socket, expected);
            let (mut reader, hello) = if expected.is_some() {
                let timeout = self.connect_timeout.get().copied().unwrap_or(GREETING_TIMEOUT);
                let silent = |_| Status::unavailable("the peer took the stream and said nothing");
                tokio::time::timeout(timeout, greeting).await.map_err(silent)??
            } else {
                greeting.await?
            };
            bounded(None)?;
            let incarnations = hello.incarnations;
            if expected.is_none() {
                // What is sent to that peer goes back over the same connection, unless there is another one already.
                let mut connections = self.connections.lock();
                if connections.get(&incarnations[0]).is_none_or(|known| !known.is_usable()) {
                    connections.insert(incarnations[0], connection.clone());
                }
            }
            while let Some(frame) = reader.next().await? {
                calls::then_answer(|| self.take(&connection, frame, &running))?;
            }
            Ok(())
        };
        let ended: Result<()> = if socket.is_blocking() {
            let writing = self.runtime.spawn(keep_writing(connection.clone(), socket.clone()));
            let ended = reading.await;
            writing.abort();
            ended
        } else {
            tokio::select! {
                ended = reading => ended,
                ended = keep_writing(connection.clone(), socket.clone()) => ended,
            }
        };
        running.abort_all();
        let lost = match ended {
            Ok(()) => Status::unavailable(format!("the connection to {} was closed", connection.peer())),
            Err(status) => Status::unavailable(format!("{} ({})", status.message(), connection.peer())),
        };
        debug!("{}", lost.message());
        lost
    }

    /// Exchanges the first bytes and frames: who each side is, and whether it reads the other's memory.
    async fn greet(
        &self,
        connection: &Arc<Connection>,
        socket: &Arc<Socket>,
        expected: Option<u64>,
    ) -> Result<(FrameReader, Hello)> {
        let broken = |error: std::io::Error| Status::unavailable(format!("the stream did not begin: {error}"));
        let heap = self.heap.map(SharedHeap::file);
        let mut reader = FrameReader::new(socket.clone());
        if expected.is_some() {
            socket.send_preface(heap).await.map_err(broken)?;
        }
        let file = socket.receive_preface().await.map_err(broken)?;
        if expected.is_none() {
            socket.send_preface(heap).await.map_err(broken)?;
        }
        let memory = file.filter(|_| self.heap.is_some()).and_then(|file| match PeerMemory::map(&file) {
            Ok(memory) => Some(memory),
            Err(status) => {
                debug!("{status}");
                None
            }
        });
        let hello = self.hello(expected.unwrap_or(0), memory.is_some())?;
        if let Some(memory) = memory {
            reader.share(memory, connection);
        }
        if expected.is_some() {
            connection.up(socket.clone(), hello);
            let hello = Hello::read(&reader.next().await?.ok_or_else(refused)?)?;
            self.greeted(connection, socket, &hello);
            return Ok((reader, hello));
        }
        let theirs = Hello::read(&reader.next().await?.ok_or_else(malformed)?)?;
        if theirs.receiver != 0 && self.incarnations.first() != Some(&theirs.receiver) {
            return Err(Status::aborted("a stream was meant for a task that was here before"));
        }
        connection.up(socket.clone(), hello);
        self.greeted(connection, socket, &theirs);
        Ok((reader, theirs))
    }

    fn greeted(&self, connection: &Connection, socket: &Socket, hello: &Hello) {
        let mut how = socket.kind().to_owned();
        if hello.is_shared {
            connection.share();
            how.push_str(" and shared memory");
        }
        connection.greeted_by(&hello.task, &hello.incarnations);
        info!("a stream to {}, incarnation {:016x}, over {how}", hello.task, hello.incarnations[0]);
    }

    fn take(self: &Arc<Self>, connection: &Arc<Connection>, mut frame: InFrame, running: &Running) -> Result<()> {
        let Some(worker) = self.worker.get().and_then(Weak::upgrade) else {
            return Err(Status::unavailable("this task has stopped"));
        };
        match frame.kind {
            Kind::Hello => return Err(malformed()),
            Kind::Tensor => {
                let (tensor, is_dead) = frame.tensors.pop().ok_or_else(malformed)?;
                let key: Arc<str> = frame.fields().text()?.into();
                worker.pushed(connection, frame.id as i64, &key, tensor, is_dead);
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
            Kind::RunGraphReply => {
                let reply = messages::read_reply(&mut frame)?;
                connection.answered(frame.id, Ok(reply));
            }
            Kind::Error => connection.answered(frame.id, Err(messages::read_error(frame.fields())?)),
            Kind::Cancel => running.abort(frame.id),
            Kind::Cleanup => drop(worker.cleanup_graph(frame.id as i64)),
            Kind::Release => connection.returned(frame.fields())?,
            Kind::AskProgress => {
                let answer = messages::write_progress(frame.id, frame.fields(), |step_id| worker.progress(step_id))?;
                self.pushing_to(connection).send(answer)?;
            }
            Kind::Progress => {
                let steps = messages::read_progress(frame.fields())?;
                worker.told_progress(connection.incarnations(), frame.id, &steps);
            }
        }
        Ok(())
    }
}

fn abstract_address(name: &str) -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())
}

fn unavailable(error: &std::io::Error) -> Status {
    Status::unavailable(error.to_string())
}

fn stopping() -> Status {
    Status::unavailable("this task is stopping")
}

fn refused() -> Status {
    Status::unavailable("the task refused the stream: it was probably restarted")
}

/// What a peer says of itself.
struct Hello {
    /// Whom it expects here.
    receiver: u64,
    /// Whether it reads our heap.
    is_shared: bool,
    incarnations: SmallVec<[u64; 2]>,
    /// Which task it is.
    task: String,
}

impl Hello {
    fn read(frame: &InFrame) -> Result<Hello> {
        if frame.kind != Kind::Hello || frame.id != VERSION {
            return Err(Status::failed_precondition("the peer speaks another version of the stream's protocol"));
        }
        let mut fields = frame.fields();
        let receiver = fields.u64()?;
        let is_shared = fields.u64()? != 0;
        let count = fields.u64()?;
        if count == 0 || count > INCARNATIONS_MAX {
            return Err(malformed());
        }
        let incarnations = (0..count).map(|_| fields.u64()).collect::<Result<_>>()?;
        let task = fields.text()?.to_owned();
        Ok(Hello { receiver, is_shared, incarnations, task })
    }
}

/// Writes what a socket does not take at once, and gives back what no frame takes along, until the connection breaks.
async fn keep_writing(connection: Arc<Connection>, socket: Arc<Socket>) -> Result<()> {
    let ended = tokio::select! {
        ended = connection.write_the_rest(&socket) => ended.map_err(|error| unavailable(&error)),
        never = connection.give_back() => match never {},
    };
    socket.end_reading();
    ended
}

/// The place of a thread among those that there may be.
struct ThreadPlace(Arc<StreamHub>);

impl Drop for ThreadPlace {
    fn drop(&mut self) {
        self.0.num_threads.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::frame::{HEADER_BYTES, Header};
    use super::*;
    use crate::Transport;
    use std::io::{Read, Write};

    fn hub(number: u64) -> Arc<StreamHub> {
        // Sockets are named by it, and other runs of this may go on at the same time.
        let incarnation = (number << 32) | u64::from(std::process::id());
        let offer = StreamOffer::new(Transport::Unix, incarnation).unwrap();
        let runtime = tokio::runtime::Handle::current();
        let hub = StreamHub::new(runtime, "a task".to_owned(), vec![incarnation], offer, false);
        let hub = Arc::new(hub);
        let listener = hub.bind().unwrap().expect("this machine has Unix sockets");
        tokio::spawn(hub.clone().listen(listener));
        hub
    }

    fn connect(hub: &StreamHub) -> UnixStream {
        UnixStream::connect_addr(&abstract_address(&hub.offer.unix).unwrap()).unwrap()
    }

    /// Says who this is, and reads who the other side is.
    fn greet(hub: &StreamHub, stream: &mut UnixStream) {
        stream.write_all(PREFACE).unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
        stream.write_all(&hub.hello(0, false).unwrap().pieces.concat()).unwrap();
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).unwrap();
        let header = Header::read(&header).unwrap();
        assert_eq!(header.kind, Kind::Hello);
        stream.read_exact(&mut vec![0; header.head_len]).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn peers_for_whom_no_thread_is_left_are_served_too() {
        let hub = hub(1);
        // They say nothing, and are taken in the order in which they came.
        let silent: Vec<UnixStream> = (0..THREADS_MAX).map(|_| connect(&hub)).collect();
        let peer = tokio::task::spawn_blocking({
            let hub = hub.clone();
            move || greet(&hub, &mut connect(&hub))
        });
        peer.await.unwrap();
        assert_eq!(hub.num_threads.load(Ordering::Relaxed), THREADS_MAX);
        drop(silent);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_that_stops_ends_the_streams_that_threads_read() {
        let hub = hub(2);
        let ended = tokio::task::spawn_blocking({
            let hub = hub.clone();
            move || {
                let mut stream = connect(&hub);
                greet(&hub, &mut stream);
                hub.stop();
                // The thread reads the same end from its side of the socket.
                stream.read(&mut [0]).unwrap()
            }
        });
        assert_eq!(ended.await.unwrap(), 0);
    }
}
