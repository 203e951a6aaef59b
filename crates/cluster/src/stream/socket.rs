//! [`Socket`]: a connection over TCP or, on one machine, over a Unix socket.

use super::frame::PREFACE;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connection to a peer.
pub(crate) enum Socket {
    /// To another machine, or one that may be another.
    Tcp(TcpStream),
    /// On this machine.
    Unix(UnixStream),
}

impl Socket {
    /// Says what it is, for people.
    pub fn kind(&self) -> &'static str {
        match self {
            Socket::Tcp(_) => "TCP",
            Socket::Unix(_) => "a Unix socket",
        }
    }

    /// Writes what can be written at once.
    pub fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write_vectored(pieces),
            Socket::Unix(stream) => stream.try_write_vectored(pieces),
        }
    }

    /// Waits until something can be written.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.writable().await,
            Socket::Unix(stream) => stream.writable().await,
        }
    }

    /// Reads what is there, at least one byte; 0 is the end.
    pub async fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let outcome = match self {
                Socket::Tcp(stream) => stream.try_read(bytes),
                Socket::Unix(stream) => stream.try_read(bytes),
            };
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self {
                    Socket::Tcp(stream) => stream.readable().await?,
                    Socket::Unix(stream) => stream.readable().await?,
                },
                outcome => return outcome,
            }
        }
    }

    /// Sends the first bytes, and on one machine our heap with them.
    pub async fn send_preface(&self, heap: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut written = 0;
        while written < PREFACE.len() {
            let rest = [IoSlice::new(&PREFACE[written..])];
            let outcome = match (self, heap) {
                (Socket::Unix(stream), Some(heap)) if written == 0 => stream.try_io(Interest::WRITABLE, || {
                    let files = [heap];
                    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                    let mut control = SendAncillaryBuffer::new(&mut space);
                    control.push(SendAncillaryMessage::ScmRights(&files));
                    Ok(rustix::net::sendmsg(stream, &rest, &mut control, SendFlags::NOSIGNAL)?)
                }),
                _ => self.try_write_vectored(&rest),
            };
            match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives the first bytes, and the peer's heap if it sends it; other bytes are an error.
    pub async fn receive_preface(&self) -> io::Result<Option<OwnedFd>> {
        let mut found = [0; PREFACE.len()];
        let mut filled = 0;
        let mut heap = None;
        while filled < found.len() {
            let count = match self {
                Socket::Tcp(_) => self.read(&mut found[filled..]).await?,
                Socket::Unix(stream) => {
                    stream.readable().await?;
                    let outcome = stream.try_io(Interest::READABLE, || {
                        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                        let mut control = RecvAncillaryBuffer::new(&mut space);
                        let mut pieces = [IoSliceMut::new(&mut found[filled..])];
                        let received =
                            rustix::net::recvmsg(stream, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)?;
                        for message in control.drain() {
                            if let RecvAncillaryMessage::ScmRights(files) = message {
                                heap = files.last().or(heap.take());
                            }
                        }
                        Ok(received.bytes)
                    });
                    match outcome {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        outcome => outcome?,
                    }
                }
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += count;
        }
        if found == *PREFACE { Ok(heap) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}
