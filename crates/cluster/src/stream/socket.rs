//! [`Socket`]: a connection over TCP or, on one machine, over a Unix socket.

use super::frame::PREFACE;
use std::io::{self, IoSlice};
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

    /// Writes the preface.
    pub async fn write_preface(&self) -> io::Result<()> {
        let mut written = 0;
        while written < PREFACE.len() {
            match self.try_write_vectored(&[IoSlice::new(&PREFACE[written..])]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
