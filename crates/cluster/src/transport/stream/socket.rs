//! [`Socket`]: a connection over TCP or, on one machine, over a Unix socket.
//!
//! The runtime watches only for readability. A Unix socket is reported writable each time its peer has read something, and a
//! thread would wake up for every report although nobody waits to write; a writer that waits registers for that time. A socket
//! may also have a thread of its own that reads it, outside of the runtime. Over TCP it may be encrypted.

use super::given::GivenStream;
use crate::clock::now;
use crate::tls::{Identity, TlsSession, Wire};
use executor::idle;
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio_rustls::TlsStream;

/// A write to a connection that the peer has closed is an error, not a signal.
const NO_SIGNAL: SendFlags = SendFlags::from_bits_retain(libc::MSG_NOSIGNAL as u32);

/// Programs that this process starts don't inherit the files that peers have sent.
#[cfg(target_os = "linux")]
const RECEIVE: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// Elsewhere there is no shared memory, so a peer has no file to send.
#[cfg(not(target_os = "linux"))]
const RECEIVE: RecvFlags = RecvFlags::empty();

/// A connection to a peer.
pub(crate) struct Socket {
    file: File,
    is_unix: bool,
    /// The user of the process at the other end, as reported by the kernel; known on one machine only.
    peer_user: Option<u32>,
    /// The encryption, if there is one.
    tls: Option<Box<Mutex<TlsSession>>>,
    /// The identity in the peer's certificate.
    identity: Option<Arc<Identity>>,
}

/// A socket, by how its reader waits.
enum File {
    /// The runtime wakes it.
    Watched(AsyncFd<socket2::Socket>),
    /// It blocks in the system call.
    Blocking(socket2::Socket),
    /// It isn't a system socket.
    Given(Box<dyn GivenStream>),
}

impl File {
    /// Returns the system socket; a given stream has none.
    fn get_ref(&self) -> io::Result<&socket2::Socket> {
        match self {
            File::Watched(file) => Ok(file.get_ref()),
            File::Blocking(socket) => Ok(socket),
            File::Given(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Socket {
    /// Takes a connection over TCP. Call it within the runtime, because a socket belongs to one. `identity` is that in the peer's
    /// certificate.
    pub fn tcp(wire: Wire, identity: Option<Arc<Identity>>) -> io::Result<Socket> {
        let (stream, connection) = match wire {
            Wire::Plain(stream) => (stream, None),
            Wire::Tls(stream) => match *stream {
                TlsStream::Client(stream) => {
                    let (stream, connection) = stream.into_inner();
                    (stream, Some(connection.into()))
                }
                TlsStream::Server(stream) => {
                    let (stream, connection) = stream.into_inner();
                    (stream, Some(connection.into()))
                }
            },
        };
        let socket = Socket::new(stream.into_std()?.into(), false)?;
        let tls = connection.map(|connection| Box::new(Mutex::new(TlsSession::new(connection))));
        Ok(Socket { tls, identity, ..socket })
    }

    /// Takes a connection on this machine. Call it within the runtime, too.
    pub fn unix(stream: UnixStream) -> io::Result<Socket> {
        Socket::new(stream.into(), true)
    }

    /// Sets the user at the other end.
    pub fn with_peer_user(self, user: u32) -> Socket {
        Socket { peer_user: Some(user), ..self }
    }

    /// Returns the user at the other end, if it is known.
    pub fn peer_user(&self) -> Option<u32> {
        self.peer_user
    }

    /// Returns the identity in the peer's certificate, if it has one.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    fn new(socket: socket2::Socket, is_unix: bool) -> io::Result<Socket> {
        socket.set_nonblocking(true)?;
        Ok(Socket {
            file: File::Watched(watch(socket, Interest::READABLE)?),
            is_unix,
            peer_user: None,
            tls: None,
            identity: None,
        })
    }

    /// Takes a connection that isn't a system socket.
    pub fn given(stream: Box<dyn GivenStream>) -> Socket {
        Socket { file: File::Given(stream), is_unix: false, peer_user: None, tls: None, identity: None }
    }

    /// Takes a connection on this machine that its own thread will read: reading never waits for the runtime.
    pub fn blocking(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(false)?;
        Ok(Socket { file: File::Blocking(stream.into()), is_unix: true, peer_user: None, tls: None, identity: None })
    }

    /// Returns whether its own thread reads it.
    pub fn is_blocking(&self) -> bool {
        matches!(self.file, File::Blocking(_))
    }

    /// Sets a timeout for reads and writes of a blocking socket's thread; `None` means none. When nothing is read for long, the
    /// thread only wakes up to give memory back.
    pub fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        let File::Blocking(socket) = &self.file else { return Ok(()) };
        let rest = deadline.map(|deadline| deadline.saturating_duration_since(now()));
        if rest.is_some_and(|rest| rest.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(rest.or(Some(idle::IDLE_TIME)))?;
        socket.set_write_timeout(rest)
    }

    /// Closes the connection for its reader, on any thread.
    pub fn shut_down(&self) {
        match &self.file {
            File::Given(stream) => stream.shut_down(),
            // A socket that isn't connected any more needs no shutdown.
            file => drop(file.get_ref().and_then(|socket| socket.shutdown(std::net::Shutdown::Both))),
        }
    }

    /// Describes the socket, for people.
    pub fn kind(&self) -> &'static str {
        match (self.is_unix, &self.tls) {
            (true, _) => "a Unix socket",
            (false, None) => "TCP",
            (false, Some(_)) => "TLS",
        }
    }

    /// Describes the other end, for people.
    pub fn describe_peer(&self) -> String {
        if let File::Given(stream) = &self.file {
            return stream.describe_peer();
        }
        let address = self.file.get_ref().and_then(|socket| socket.peer_addr());
        match (self.peer_user, address.ok().and_then(|address| address.as_socket())) {
            (_, Some(address)) => address.to_string(),
            (Some(user), None) => format!("a Unix socket of user {user}"),
            (None, None) => "a peer".to_owned(),
        }
    }

    /// Writes as much as possible without blocking.
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if let File::Given(stream) = &self.file {
            return stream.try_write(pieces);
        }
        let socket = self.file.get_ref()?;
        if let Some(tls) = &self.tls {
            return tls.lock().write(&mut Raw(socket), pieces);
        }
        socket.send_vectored_with_flags(pieces, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    /// Returns whether accepted bytes have not been written yet.
    pub fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.lock().has_unsent())
    }

    /// Waits until something can be written.
    pub async fn writable(&self) -> io::Result<()> {
        if let File::Given(stream) = &self.file {
            poll_fn(|context| stream.poll_writable(context)).await;
            return Ok(());
        }
        let waiting = watch(self.file.get_ref()?.try_clone()?, Interest::WRITABLE)?;
        waiting.writable().await.map(|_| ())
    }

    /// Reads at least one byte; 0 is the end.
    pub async fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let file = match &self.file {
                File::Watched(file) => file,
                File::Given(stream) => return poll_fn(|context| stream.poll_read(context, bytes)).await,
                File::Blocking(socket) => match { socket }.read(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        idle::give_back();
                        continue;
                    }
                    outcome => return outcome,
                },
            };
            if let Some(tls) = &self.tls {
                return read_encrypted(tls, file, bytes).await;
            }
            let mut ready = file.readable().await?;
            match ready.get_inner().read(bytes) {
                Ok(count) => {
                    // A short read means that the socket is empty: the next read waits without trying.
                    if count > 0 && count < bytes.len() {
                        ready.clear_ready();
                    }
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends bytes before anything else, with a file beside them on one machine.
    pub async fn send_first(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut written = 0;
        if self.tls.is_some() || matches!(self.file, File::Given(_)) {
            while written < bytes.len() || self.has_unsent() {
                match self.try_write_vectored(&[IoSlice::new(&bytes[written..])]) {
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                    Err(error) => return Err(error),
                }
            }
            return Ok(());
        }
        while written < bytes.len() {
            let rest = [IoSlice::new(&bytes[written..])];
            let flags = if self.is_blocking() { NO_SIGNAL } else { NO_SIGNAL | SendFlags::DONTWAIT };
            match self.send_with(&rest, file.filter(|_| written == 0), flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self.is_blocking() {
                    true => return Err(io::ErrorKind::TimedOut.into()),
                    false => self.writable().await?,
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send_with(&self, pieces: &[IoSlice<'_>], file: Option<BorrowedFd<'_>>, flags: SendFlags) -> io::Result<usize> {
        let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        Ok(rustix::net::sendmsg(self.file.get_ref()?, pieces, &mut control, flags)?)
    }

    /// As [`read`](Self::read), during the greeting: with a deadline, and with the file that may be passed beside the bytes.
    pub async fn read_first(
        &self,
        bytes: &mut [u8],
        file: &mut Option<OwnedFd>,
        deadline: Instant,
    ) -> io::Result<usize> {
        if !self.is_unix {
            return self.read(bytes).await;
        }
        loop {
            self.set_deadline(Some(deadline))?;
            let mut ready = match &self.file {
                File::Watched(file) => Some(file.readable().await?),
                File::Blocking(_) | File::Given(_) => None,
            };
            match (self.receive_with(bytes, file), &mut ready) {
                (Err(error), Some(ready)) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                (Err(error), None) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => {}
                (outcome, _) => return outcome,
            }
        }
    }

    fn receive_with(&self, bytes: &mut [u8], file: &mut Option<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(bytes)];
        let received = rustix::net::recvmsg(self.file.get_ref()?, &mut pieces, &mut control, RECEIVE)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                *file = files.last().or(file.take());
            }
        }
        Ok(received.bytes)
    }
}

/// The socket below the encryption.
struct Raw<'a>(&'a socket2::Socket);

impl Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send_vectored_with_flags(pieces, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads encrypted bytes. Some of them may have been read already, without the runtime's knowledge, so the runtime is asked only
/// if nothing is left.
async fn read_encrypted(
    tls: &Mutex<TlsSession>,
    file: &AsyncFd<socket2::Socket>,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut ready = None;
    loop {
        let outcome = tls.lock().read(&mut Raw(file.get_ref()), bytes);
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => return outcome,
        }
        if let Some(mut ready) = ready.take() {
            tokio::io::unix::AsyncFdReadyGuard::clear_ready(&mut ready);
        }
        ready = Some(file.readable().await?);
    }
}

/// Registers a socket with the runtime for `interest`.
fn watch(socket: socket2::Socket, interest: Interest) -> io::Result<AsyncFd<socket2::Socket>> {
    // SAFETY: a `socket2::Socket` owns its file, which stays open and the same until it is dropped, with what is returned.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}
