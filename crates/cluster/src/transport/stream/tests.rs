//! Tests of whole streams: which users they serve, what they transfer, and how they end.

use super::frame::{FrameWriter, HEADER_BYTES, Header};
use super::listener::{Accept, THREADS_MAX};
use super::reader::FrameReader;
use super::shared_memory::tensor_in_heap;
use super::*;
use crate::Transport;
use crate::interface::{Answer, RunGraphCall, RunGraphReply};
use crate::worker::{LinkId, StepProgress};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::Instant;
use tensor::{Code, Tensor};

/// A generous timeout for what should happen at once.
const FAR: Duration = Duration::from_secs(60);

/// A user that exists on every system and that nobody works as.
const NOBODY: u32 = 65534;

fn settings(limits: StreamLimits) -> StreamSettings {
    StreamSettings { limits, ..StreamSettings::default() }
}

fn quick() -> StreamLimits {
    let moment = Duration::from_millis(200);
    StreamLimits { connect_timeout: moment, greeting_timeout: moment, silence_max: moment, ..StreamLimits::default() }
}

fn silent_hub(settings: StreamSettings) -> Arc<StreamHub> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    // Sockets have names, and other runs of this test may be in progress.
    let incarnation = (NUMBER.fetch_add(1, Ordering::Relaxed) << 32) | u64::from(std::process::id());
    let offer = StreamOffer::new(Transport::Unix, incarnation).unwrap();
    let runtime = tokio::runtime::Handle::current();
    Arc::new(StreamHub::new(runtime.into(), "/job:a/task:0".to_owned(), vec![incarnation], offer, settings))
}

fn hub(settings: StreamSettings) -> Arc<StreamHub> {
    let hub = silent_hub(settings);
    let listener = hub.bind().unwrap().expect("this machine has Unix sockets");
    tokio::spawn(hub.clone().listen(listener));
    hub
}

fn address(hub: &StreamHub) -> String {
    format!("unix:{}#{:016x}@{}", hub.offer.unix, hub.incarnations[0], hub.task)
}

fn connect(hub: &StreamHub) -> UnixStream {
    let stream = UnixStream::connect_addr(&abstract_address(&hub.offer.unix).unwrap()).unwrap();
    stream.set_read_timeout(Some(FAR)).unwrap();
    stream
}

/// Greets, and reads the other side's greeting.
fn greet(hub: &StreamHub, stream: &mut UnixStream) -> io::Result<()> {
    stream.write_all(PREFACE)?;
    stream.write_all(&hub.hello(0, false, "").unwrap().pieces.concat())?;
    stream.read_exact(&mut [0; PREFACE.len()])?;
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let header = Header::read(&header).unwrap();
    assert_eq!(header.kind, Kind::Hello);
    stream.read_exact(&mut vec![0; header.head_len])
}

/// Runs blocking code on its own thread.
async fn blocking<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(what).await.unwrap()
}

/// Runs code as another user, on a thread that ends with it; `None` if this process isn't allowed to.
fn as_nobody<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return None;
    }
    let thread = std::thread::spawn(move || {
        // SAFETY: the system call itself changes this thread alone, and passes no memory.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        (changed == 0).then(what)
    });
    let outcome = thread.join().unwrap();
    if outcome.is_none() {
        eprintln!("skipped: this system does not let root become another user");
    }
    outcome
}

/// The size of the worker's parts, which are large enough to be lent.
const PART_ELEMENTS: usize = 1 << 18;

/// A worker that reports its calls.
struct Worker {
    lost: Mutex<mpsc::Sender<(Vec<u64>, Status)>>,
}

impl Worker {
    /// Creates the worker of a hub; returns its reports, too.
    fn of(hub: &StreamHub) -> (Arc<Worker>, mpsc::Receiver<(Vec<u64>, Status)>) {
        let (sender, lost) = mpsc::channel();
        let worker = Arc::new(Worker { lost: Mutex::new(sender) });
        hub.set_worker(Arc::downgrade(&worker));
        (worker, lost)
    }
}

impl Recipient for Worker {
    fn pushed(&self, _link: LinkId, step_id: i64, _key: &Arc<str>, _tensor: Tensor, _is_dead: bool) {
        assert_ne!(step_id, 13, "injected by a test");
    }

    fn run_graph(&self, _call: RunGraphCall) -> Answer<RunGraphReply> {
        Box::pin(std::future::pending())
    }

    fn recv_part(&self, _step_id: i64, key: &str) -> Answer<Tensor> {
        match key {
            "small" => Box::pin(std::future::ready(Ok(Tensor::scalar(1.5f32)))),
            "large" => Box::pin(std::future::ready(Ok(match SharedHeap::of_process() {
                Some(heap) => tensor_in_heap(heap, PART_ELEMENTS),
                None => Tensor::vector(&[1f32; PART_ELEMENTS]),
            }))),
            "none" => Box::pin(std::future::ready(Err(Status::aborted("the step has no such part")))),
            _ => Box::pin(std::future::pending()),
        }
    }

    fn cleanup_graph(&self, _step_id: i64) {}

    fn progress(&self, _step_id: i64) -> StepProgress {
        StepProgress::Unknown
    }

    fn told_progress(&self, _incarnations: &[u64], _id: u64, _steps: &[(i64, StepProgress)]) {}

    fn peer_lost(&self, _link: LinkId, incarnations: &[u64], status: &Status) {
        let _ = self.lost.lock().send((incarnations.to_vec(), status.clone()));
        panic!("injected by a test, at the end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_for_whom_no_thread_is_left_are_served_too() {
    let hub = hub(StreamSettings::default());
    // They send nothing, and are accepted in order.
    let silent: Vec<UnixStream> = (0..THREADS_MAX).map(|_| connect(&hub)).collect();
    let peer = hub.clone();
    blocking(move || greet(&peer, &mut connect(&peer)).unwrap()).await;
    assert_eq!(hub.admission.num_threads.load(Ordering::Relaxed), THREADS_MAX);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_stops_ends_the_streams_that_threads_read() {
    let hub = hub(StreamSettings::default());
    let ended = blocking(move || {
        let mut stream = connect(&hub);
        greet(&hub, &mut stream).unwrap();
        hub.stop();
        // The thread reads the same end from its side of the socket.
        stream.read(&mut [0]).unwrap()
    });
    assert_eq!(ended.await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_gets_neither_a_byte_nor_a_descriptor() {
    let hub = hub(StreamSettings { shares_memory: true, ..StreamSettings::default() });
    let (hello, peer) = (hub.hello(0, true, "").unwrap().pieces.concat(), hub.clone());
    let runtime = tokio::runtime::Handle::current();
    let got = blocking(move || {
        as_nobody(move || {
            let stream = connect(&peer);
            // It may be closed before or after this.
            let _ = { &stream }.write_all(PREFACE).and_then(|()| { &stream }.write_all(&hello));
            let _runtime = runtime.enter();
            let mut file = None;
            let read = Socket::unix(stream).unwrap();
            let read = runtime.block_on(async { read.read_first(&mut [0; 64], &mut file, Instant::now() + FAR).await });
            (read.unwrap_or(0), file.is_some())
        })
    });
    if let Some(got) = got.await {
        assert_eq!(got, (0, false));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_of_another_user_is_not_trusted() {
    let hub = silent_hub(StreamSettings::default());
    let name = hub.offer.unix.clone();
    let listening = blocking(move || {
        as_nobody(move || std::os::unix::net::UnixListener::bind_addr(&abstract_address(&name).unwrap()))
    });
    let Some(listening) = listening.await else { return };
    let status = hub.connect(&address(&hub)).await.err().expect("it was trusted");
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("belongs to user 65534"), "{status}");
    drop(listening);
}

/// Greets as a task that can share its memory; returns what the other side has sent with it, up to a frame of this kind.
async fn greeted_until(hub: &Arc<StreamHub>, receiver: u64, last: Kind) -> (FrameReader, Arc<Socket>) {
    let socket = Arc::new(Socket::unix(connect(hub)).unwrap());
    let hello = hub.hello(receiver, true, "").unwrap().pieces.concat();
    socket.send_first(&[PREFACE.as_slice(), &hello].concat(), None).await.unwrap();
    let mut reader = FrameReader::new(socket.clone(), Instant::now() + FAR);
    reader.preface().await.unwrap();
    while reader.next().await.unwrap().expect("it ended early").kind != last {}
    (reader, socket)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_user_gets_memory_that_it_can_only_read() {
    let hub = hub(StreamSettings { shares_memory: true, ..StreamSettings::default() });
    let Some(heap) = hub.heap else {
        eprintln!("skipped: this system shares no memory");
        return;
    };
    let (mut reader, socket) = greeted_until(&hub, 0, Kind::Memory).await;
    let file = reader.take_file().expect("no memory came");
    let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a new mapping at a place that the kernel chooses touches nothing that is there.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, access, rustix::mm::MapFlags::SHARED, &file, 0) };
    assert_eq!(mapped.err(), Some(rustix::io::Errno::ACCESS));
    assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_ino, rustix::fs::fstat(heap.file()).unwrap().st_ino);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reopened = blocking(move || as_nobody(move || std::fs::OpenOptions::new().write(true).open(path).err())).await;
    if let Some(error) = reopened {
        assert_eq!(error.expect("it was opened").kind(), io::ErrorKind::PermissionDenied);
    }
    drop(socket);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_user_who_may_connect_is_offered_no_memory() {
    let hub = hub(StreamSettings { shares_memory: true, ..StreamSettings::default() });
    let (ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(hub.clone().accept(Socket::unix(ours).unwrap().with_peer_user(NOBODY)));
    let socket = Arc::new(Socket::unix(theirs).unwrap());
    let hello = hub.hello(0, true, "").unwrap().pieces.concat();
    socket.send_first(&[PREFACE.as_slice(), &hello].concat(), None).await.unwrap();
    let mut reader = FrameReader::new(socket.clone(), Instant::now() + FAR);
    reader.preface().await.unwrap();
    let hello = reader.next().await.unwrap().expect("it was refused");
    let mut fields = hello.fields();
    assert_eq!((hello.kind, fields.u64().unwrap(), fields.u64().unwrap()), (Kind::Hello, 0, 0));
    // The connection is in use right away: the next frame is an answer, and not memory.
    socket.send_first(&FrameWriter::plain(Kind::Ping, 0).finish().unwrap().pieces.concat(), None).await.unwrap();
    assert_eq!(reader.next().await.unwrap().expect("it ended").kind, Kind::Pong);
    assert!(reader.take_file().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_goes_to_nobody_whose_greeting_is_refused() {
    let hub = hub(StreamSettings { shares_memory: true, ..StreamSettings::default() });
    let (mut reader, _socket) = greeted_until(&hub, 12345, Kind::Error).await;
    assert!(reader.next().await.unwrap().is_none(), "more came after the refusal");
    assert!(reader.take_file().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_user_share_memory_both_ways() {
    let shares = || StreamSettings { shares_memory: true, ..StreamSettings::default() };
    let (one, two) = (hub(shares()), silent_hub(shares()));
    let Some(heap) = one.heap else {
        eprintln!("skipped: this system shares no memory");
        return;
    };
    let connection = two.get(&address(&one)).unwrap();
    let there = blocking(move || {
        loop {
            // Both sides know the connection once they have greeted.
            if let Some(known) = one.served.lock().as_ref().and_then(|served| served.first().cloned()) {
                return known;
            }
            std::thread::yield_now();
        }
    });
    let there = there.await;
    // Each side sends large tensors by their position in memory once the other has said that it reads it.
    for connection in [connection, there] {
        let shared = blocking(move || {
            let tensor = tensor_in_heap(heap, 100_000);
            let started = Instant::now();
            while connection.lend(tensor.buffer().unwrap()).is_none() {
                assert!(started.elapsed() < FAR, "memory is not shared");
                std::thread::yield_now();
            }
        });
        shared.await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_or_too_slowly_is_closed() {
    let hub = hub(settings(quick()));
    let peer = hub.clone();
    // Read by its own thread; it receives a byte at a time, so that no single wait is long.
    let closed = blocking(move || {
        let mut stream = connect(&peer);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let started = Instant::now();
        for byte in PREFACE.iter().cycle() {
            let _ = stream.write_all(&[*byte]);
            match stream.read(&mut [0]) {
                Ok(0) => return true,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && started.elapsed() < FAR => {}
                other => panic!("{other:?}"),
            }
        }
        false
    });
    assert!(closed.await);
    // Read by the runtime.
    let (ours, theirs) = UnixStream::pair().unwrap();
    tokio::spawn(hub.clone().accept(Socket::unix(ours).unwrap()));
    theirs.set_read_timeout(Some(FAR)).unwrap();
    assert_eq!(blocking(move || { &theirs }.read(&mut [0]).unwrap()).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_gets_a_bounded_number_of_streams() {
    let hub = hub(settings(StreamLimits { connections_per_user_max: Some(3), ..StreamLimits::default() }));
    let served = blocking(move || {
        let mut open: Vec<UnixStream> = (0..3).map(|_| connect(&hub)).collect();
        open.iter_mut().for_each(|stream| greet(&hub, stream).unwrap());
        assert!(greet(&hub, &mut connect(&hub)).is_err(), "a fourth was served");
        open.pop();
        // The place is free when the reading thread has ended.
        let started = Instant::now();
        while greet(&hub, &mut connect(&hub)).is_err() {
            assert!(started.elapsed() < FAR, "a place does not become free");
        }
    });
    served.await;
}

/// A listener that can't accept at first.
struct Exhausted(u32, tokio::net::UnixListener);

impl Accept for Exhausted {
    async fn next(&mut self) -> io::Result<tokio::net::UnixStream> {
        if self.0 > 0 {
            self.0 -= 1;
            return Err(rustix::io::Errno::MFILE.into());
        }
        self.1.next().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_without_descriptors_waits_longer_each_time_and_goes_on() {
    let hub = silent_hub(StreamSettings::default());
    let listener = hub.bind().unwrap().expect("this machine has Unix sockets");
    let started = Instant::now();
    tokio::spawn(hub.clone().listen(Exhausted(3, listener)));
    blocking(move || greet(&hub, &mut connect(&hub)).unwrap()).await;
    assert!(started.elapsed() >= Duration::from_millis(100 + 200 + 400), "it did not wait");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_ends_in_time_and_names_the_task() {
    let hub = silent_hub(settings(quick()));
    let expect = |status: Status, place: &str| {
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("/job:b/task:7 at ") && status.message().contains(place), "{status}");
    };
    // The backlog is full, and nobody accepts.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let at = full.local_addr().unwrap();
    let waiting: Vec<socket2::Socket> = (0..4)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&at);
            socket
        })
        .collect();
    let place = at.as_socket().unwrap().to_string();
    expect(hub.connect(&format!("tcp:{place}#1@/job:b/task:7")).await.err().expect("it connected"), &place);
    drop(waiting);
    let full = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    let name = hub.offer.unix.clone();
    full.bind(&socket2::SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
    full.listen(0).unwrap();
    let first = connect(&hub);
    expect(hub.connect(&format!("unix:{name}#1@/job:b/task:7")).await.err().expect("it connected"), &name);
    drop(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_told_when_the_peer_takes_the_connection_and_stays_silent() {
    let hub = silent_hub(settings(quick()));
    let (_worker, lost) = Worker::of(&hub);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = silent.local_addr().unwrap();
    let connection = hub.get(&format!("tcp:{place}#1@/job:b/task:7")).unwrap();
    connection.push(5, "key", &Tensor::scalar(1f32), false).unwrap();
    let (_, status) = blocking(move || lost.recv_timeout(FAR).expect("the worker was not told")).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains(&format!("/job:b/task:7 at {place}")), "{status}");
    assert!(connection.push(5, "key", &Tensor::scalar(1f32), false).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_the_stream_as_any_other_error() {
    let hub = hub(StreamSettings::default());
    let (_worker, lost) = Worker::of(&hub);
    let push = |step: u64| {
        let tensor = Tensor::scalar(1f32);
        let mut writer = FrameWriter::new(Kind::Tensor, step, [(&tensor, false)].into_iter(), &|_| None).unwrap();
        writer.text(b"key");
        writer.finish().unwrap().pieces.concat()
    };
    let (good, bad) = (push(12), push(13));
    // Once on its own thread, and once on the runtime.
    for is_watched in [false, true] {
        let peer = hub.clone();
        let mut stream = if is_watched {
            let (ours, theirs) = UnixStream::pair().unwrap();
            tokio::spawn(hub.clone().accept(Socket::unix(ours).unwrap()));
            theirs.set_read_timeout(Some(FAR)).unwrap();
            theirs
        } else {
            connect(&hub)
        };
        let (good, bad) = (good.clone(), bad.clone());
        let ended = blocking(move || {
            greet(&peer, &mut stream).unwrap();
            stream.write_all(&good).unwrap();
            stream.write_all(&bad).unwrap();
            stream.read(&mut [0]).unwrap_or(0)
        });
        assert_eq!(ended.await, 0, "the peer was not told");
        let (incarnations, status) = lost.recv_timeout(FAR).expect("the steps were not told");
        // Its incarnation isn't proven, so steps that wait for that task must not fail.
        assert_eq!((incarnations, status.code()), (Vec::new(), Code::Unavailable));
        assert!(status.message().contains("injected by a test"), "{status}");
    }
    // The cleanup after the part that panics runs anyway.
    let started = Instant::now();
    while !hub.served.lock().as_ref().unwrap().is_empty() || hub.admission.num_threads.load(Ordering::Relaxed) > 0 {
        assert!(started.elapsed() < FAR, "a stream is kept that has ended");
        tokio::task::yield_now().await;
    }
    assert!(hub.connections.lock().is_empty());
    let peer = hub.clone();
    blocking(move || greet(&peer, &mut connect(&peer)).unwrap()).await;
}

/// A stream of the hub to a peer that has greeted and reads nothing more.
async fn to_a_stopped_peer(limits: StreamLimits) -> (Arc<StreamHub>, Arc<Connection>, UnixStream) {
    let hub = hub(settings(limits));
    let peer = hub.clone();
    let stream = blocking(move || {
        let mut stream = connect(&peer);
        greet(&peer, &mut stream).unwrap();
        stream
    });
    let stream = stream.await;
    let connection = hub.served.lock().as_ref().unwrap()[0].clone();
    connection.settled().await.unwrap();
    (hub, connection, stream)
}

/// Reads the frames queued for a peer up to one of a kind; returns the steps of the tensors before it.
fn read_until(stream: &mut UnixStream, last: Kind) -> Vec<u64> {
    let mut steps = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).unwrap();
        let header = Header::read(&header).unwrap();
        let mut head = vec![0; header.head_len];
        stream.read_exact(&mut head).unwrap();
        if header.kind == last {
            return steps;
        }
        let mut fields = frame::Fields::new(&head);
        for _ in 0..header.num_tensors {
            let tensor = frame::TensorHead::read(&mut fields).unwrap();
            stream.read_exact(&mut vec![0; tensor.content_len]).unwrap();
            steps.push(header.id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_for_a_stopped_peer_go_with_their_step() {
    let (hub, connection, mut stream) = to_a_stopped_peer(StreamLimits::default()).await;
    let megabyte = Tensor::vector(&vec![1u8; 1 << 20]);
    for step in 1..=30 {
        connection.push(step, "key", &megabyte, false).unwrap();
        hub.forget_step(step);
    }
    // The first one is partly written, and the peer must get the rest of it.
    let waiting = connection.progress().waiting;
    assert!(waiting <= 1 << 20, "{waiting} bytes wait");
    connection.push(31, "key", &megabyte, false).unwrap();
    connection.cleanup(31).unwrap();
    let steps = blocking(move || read_until(&mut stream, Kind::Cleanup)).await;
    assert_eq!(steps, [1, 31]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_peer_is_noticed_and_gets_no_more_than_may_wait_for_it() {
    // Frames have heads, too.
    let waiting_bytes_max = (4 << 20) + (64 << 10);
    let limits = StreamLimits { waiting_bytes_max, silence_max: quick().silence_max, ..StreamLimits::default() };
    let (hub, connection, mut stream) = to_a_stopped_peer(limits).await;
    let megabyte = Tensor::vector(&vec![1u8; 1 << 20]);
    // No more than a silent peer may have: on a busy machine this one may count as silent before the last of them is sent.
    for step in 1..=5 {
        connection.push(step, "key", &megabyte, false).unwrap();
    }
    let changed = |is_silent: bool| {
        let connection = connection.clone();
        async move {
            loop {
                let told = connection.silence.changed.notified();
                if connection.silence.lasts_for().is_some() == is_silent {
                    return;
                }
                tokio::time::timeout(FAR, told).await.expect("nothing was noticed");
            }
        }
    };
    changed(true).await;
    let status = connection.push(9, "key", &megabyte, false).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("/job:a/task:0") && status.message().contains("4 MB"), "{status}");
    // Small frames are still sent, so that a step can end, and dropping frames makes room.
    connection.cleanup(9).unwrap();
    (3..=5).for_each(|step| hub.forget_step(step));
    connection.push(10, "key", &megabyte, false).unwrap();
    let steps = blocking(move || {
        let before = read_until(&mut stream, Kind::Cleanup);
        let after = read_until(&mut stream, Kind::Ping);
        stream.write_all(&FrameWriter::plain(Kind::Pong, 0).finish().unwrap().pieces.concat()).unwrap();
        (before, after, stream)
    });
    let (before, after, _stream) = steps.await;
    assert_eq!((before, after), (vec![1, 2], vec![10]));
    changed(false).await;
    connection.push(11, "key", &megabyte, false).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_is_not_known_to_be_silent_may_have_more() {
    let limits = StreamLimits { waiting_bytes_max: 4 << 20, silence_max: FAR, ..StreamLimits::default() };
    let (_hub, connection, mut stream) = to_a_stopped_peer(limits).await;
    let megabyte = Tensor::vector(&vec![1u8; 1 << 20]);
    for step in 1..=8 {
        connection.push(step, "key", &megabyte, false).unwrap();
    }
    connection.cleanup(8).unwrap();
    assert_eq!(blocking(move || read_until(&mut stream, Kind::Cleanup)).await, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_for_which_too_many_frames_wait_is_given_up() {
    let limits = StreamLimits { waiting_frames_max: 100, ..StreamLimits::default() };
    let (_hub, connection, mut stream) = to_a_stopped_peer(limits).await;
    // The first is too large for the socket, so that all behind it are queued.
    connection.push(1, "key", &Tensor::vector(&vec![1u8; 16 << 20]), false).unwrap();
    let status = (1..=100).find_map(|step| connection.cleanup(step).err()).expect("all were taken");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().starts_with("100 frames wait for /job:a/task:0"), "{status}");
    // The written bytes arrive, and then the stream ends.
    blocking(move || stream.read_to_end(&mut Vec::new()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_with_nothing_to_say_is_asked_once_and_left_alone() {
    let limits = StreamLimits { silence_max: Duration::from_millis(60), ..StreamLimits::default() };
    let (_hub, connection, mut stream) = to_a_stopped_peer(limits).await;
    connection.push(1, "key", &Tensor::scalar(1f32), false).unwrap();
    connection.flush_pushes();
    let pong = FrameWriter::plain(Kind::Pong, 0).finish().unwrap().pieces.concat();
    let stream = blocking(move || {
        assert_eq!(read_until(&mut stream, Kind::Ping), [1]);
        stream.write_all(&pong).unwrap();
        stream
    });
    let mut stream = stream.await;
    connection.push(2, "key", &Tensor::scalar(1f32), false).unwrap();
    connection.flush_pushes();
    // There was nothing to ask for between the answer and the next tensor.
    assert_eq!(blocking(move || read_until(&mut stream, Kind::Ping)).await, [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lent_for_a_step_that_is_over_is_taken_back() {
    let Some(heap) = SharedHeap::of_process() else {
        eprintln!("skipped: this system shares no memory");
        return;
    };
    let (hub, connection, stream) = to_a_stopped_peer(StreamLimits::default()).await;
    // Fills the socket, so that the next frames are queued.
    connection.push(1, "key", &Tensor::vector(&vec![1u8; 8 << 20]), false).unwrap();
    connection.share();
    connection.push(2, "key", &tensor_in_heap(heap, 1 << 20), false).unwrap();
    assert_eq!(connection.lent_bytes(), 4 << 20);
    hub.forget_step(2);
    assert_eq!(connection.lent_bytes(), 0);
    drop(stream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_are_asked_for_and_large_ones_are_lent() {
    let sharing = || StreamSettings { shares_memory: true, ..StreamSettings::default() };
    let (giver, taker) = (hub(sharing()), hub(sharing()));
    let (_giving, _) = Worker::of(&giver);
    let (_taking, _) = Worker::of(&taker);
    let connection = taker.get(&address(&giver)).unwrap();
    connection.settled().await.unwrap();
    let small = connection.recv_part(1, "small").unwrap().part().await.unwrap();
    assert_eq!(small.to_scalar::<f32>().unwrap(), 1.5);
    let large = connection.recv_part(1, "large").unwrap().part().await.unwrap();
    assert_eq!(large.as_slice::<f32>().unwrap(), [1f32; PART_ELEMENTS]);
    let giving = giver.served.lock().as_ref().unwrap()[0].clone();
    let lent = if SharedHeap::of_process().is_some() { large.num_bytes() } else { 0 };
    assert_eq!(giving.lent_bytes(), lent, "it is read where it lies");
    let status = connection.recv_part(1, "none").unwrap().part().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Aborted, "the step has no such part"));
    // A cancelled one is removed, and a task stops even if some never complete.
    drop(connection.recv_part(1, "never").unwrap());
    let never = connection.recv_part(1, "never").unwrap();
    giver.drain().await;
    giver.stop();
    let status = never.part().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
