//! [`Socket`]: a connection over TCP or, on one machine, over a Unix socket.
//!
//! The runtime is told only of what can be read. A Unix socket is said to take more each time its peer has read something, and
//! a thread would wake up for every one of those although nobody waits to write; who does wait says so for that time. A socket
//! may also have a thread of its own that reads it, of which the runtime knows nothing.

use super::frame::PREFACE;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

/// A connection to a peer.
pub(crate) struct Socket {
    file: File,
    is_unix: bool,
}

/// A socket by how its reader waits.
enum File {
    /// The runtime tells it.
    Watched(AsyncFd<socket2::Socket>),
    /// It sleeps in the system call.
    Blocking(socket2::Socket),
}

impl File {
    fn get_ref(&self) -> &socket2::Socket {
        match self {
            File::Watched(file) => file.get_ref(),
            File::Blocking(socket) => socket,
        }
    }
}

impl Socket {
    /// Takes a connection to another machine, or one that may be another. Within the runtime, because a socket belongs to one.
    pub fn tcp(stream: TcpStream) -> io::Result<Socket> {
        Socket::new(stream.into_std()?.into(), false)
    }

    /// Takes a connection on this machine. Within the runtime, too.
    pub fn unix(stream: UnixStream) -> io::Result<Socket> {
        Socket::new(stream.into(), true)
    }

    fn new(socket: socket2::Socket, is_unix: bool) -> io::Result<Socket> {
        socket.set_nonblocking(true)?;
        Ok(Socket { file: File::Watched(watch(socket, Interest::READABLE)?), is_unix })
    }

    /// Takes a connection on this machine that a thread of its own will read: reading never waits for the runtime.
    pub fn blocking(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(false)?;
        Ok(Socket { file: File::Blocking(stream.into()), is_unix: true })
    }

    /// Returns whether a thread of its own reads it.
    pub fn is_blocking(&self) -> bool {
        matches!(self.file, File::Blocking(_))
    }

    /// Bounds how long the thread of a blocking socket waits for something to read.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.file {
            File::Watched(_) => Ok(()),
            File::Blocking(socket) => socket.set_read_timeout(timeout),
        }
    }

    /// Wakes the thread that reads a blocking socket: for it, the connection is over.
    pub fn end_reading(&self) {
        if let File::Blocking(socket) = &self.file {
            // One that is not connected any more needs no end.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Says what it is, for people.
    pub fn kind(&self) -> &'static str {
        if self.is_unix { "a Unix socket" } else { "TCP" }
    }

    /// Writes what can be written at once.
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file.get_ref().send_vectored_with_flags(pieces, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    /// Waits until something can be written.
    pub async fn writable(&self) -> io::Result<()> {
        let waiting = watch(self.file.get_ref().try_clone()?, Interest::WRITABLE)?;
        waiting.writable().await.map(|_| ())
    }

    /// Reads what is there, at least one byte; 0 is the end.
    pub async fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let file = match &self.file {
                File::Watched(file) => file,
                File::Blocking(socket) => match { socket }.read(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    outcome => return outcome,
                },
            };
            let mut ready = file.readable().await?;
            match ready.get_inner().read(bytes) {
                Ok(count) => {
                    // Less than was asked for is all there was: the next read waits without asking.
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

    /// Sends the first bytes, and on one machine our heap with them.
    pub async fn send_preface(&self, heap: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut written = 0;
        while written < PREFACE.len() {
            let rest = [IoSlice::new(&PREFACE[written..])];
            let outcome = match heap {
                Some(heap) if self.is_unix && written == 0 => self.send_with(&rest, heap),
                _ => self.try_write_vectored(&rest),
            };
            match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send_with(&self, pieces: &[IoSlice<'_>], file: BorrowedFd<'_>) -> io::Result<usize> {
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        Ok(rustix::net::sendmsg(self.file.get_ref(), pieces, &mut control, SendFlags::NOSIGNAL)?)
    }

    /// Receives the first bytes, and the peer's heap if it sends it; other bytes are an error.
    pub async fn receive_preface(&self) -> io::Result<Option<OwnedFd>> {
        let mut found = [0; PREFACE.len()];
        let mut filled = 0;
        let mut heap = None;
        while filled < found.len() {
            let count = if self.is_unix {
                let mut ready = match &self.file {
                    File::Watched(file) => Some(file.readable().await?),
                    File::Blocking(_) => None,
                };
                match (self.receive_with(&mut found[filled..], &mut heap), &mut ready) {
                    (Err(error), Some(ready)) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready.clear_ready();
                        continue;
                    }
                    (Err(error), _) if error.kind() == io::ErrorKind::Interrupted => continue,
                    (outcome, _) => outcome?,
                }
            } else {
                self.read(&mut found[filled..]).await?
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
        }
        if found == *PREFACE { Ok(heap) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    fn receive_with(&self, bytes: &mut [u8], file: &mut Option<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(bytes)];
        let received = rustix::net::recvmsg(self.file.get_ref(), &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                *file = files.last().or(file.take());
            }
        }
        Ok(received.bytes)
    }
}

/// Lets the runtime tell of a socket what `interest` says.
fn watch(socket: socket2::Socket, interest: Interest) -> io::Result<AsyncFd<socket2::Socket>> {
    // SAFETY: a `socket2::Socket` owns its file, which stays open and the same until it is dropped, with what is returned.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}
