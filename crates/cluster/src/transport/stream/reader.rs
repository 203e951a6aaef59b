//! [`FrameReader`]: drives a [`Decoder`] with a socket.

use super::decoder::{Decoder, Event, InFrame};
use super::frame::malformed;
use super::releases::Releases;
use super::shared_memory::PeerMemory;
use super::socket::Socket;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Result, Status};

/// Reads frames.
pub(super) struct FrameReader {
    socket: Arc<Socket>,
    decoder: Decoder,
    /// During the greeting: its deadline, and the file that came beside the bytes.
    greeting: Option<(Instant, Option<OwnedFd>)>,
}

impl FrameReader {
    /// Returns a reader of a new connection: until [`greeted`](Self::greeted), everything must arrive before `deadline`.
    pub fn new(socket: Arc<Socket>, deadline: Instant) -> FrameReader {
        FrameReader { socket, decoder: Decoder::new(), greeting: Some((deadline, None)) }
    }

    /// Reads the first bytes; anything other than the beginning of a stream is an error.
    pub async fn preface(&mut self) -> Result<()> {
        match self.event().await? {
            Some(Event::Preface) => Ok(()),
            Some(Event::Frame(_)) => Err(malformed()),
            None => Err(lost(&io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Returns the file that came along with the greeting.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.greeting.as_mut().and_then(|(_, file)| file.take())
    }

    /// Ends the greeting: from now on the peer may send any frame, at any time.
    pub fn greeted(&mut self) -> Result<()> {
        self.greeting = None;
        self.decoder.greeted();
        self.socket.set_deadline(None).map_err(|error| lost(&error))
    }

    /// Reads the next frame; `None` is the end of the connection between two frames.
    pub async fn next(&mut self) -> Result<Option<InFrame>> {
        match self.event().await? {
            Some(Event::Frame(frame)) => Ok(Some(frame)),
            Some(Event::Preface) => Err(malformed()),
            None => Ok(None),
        }
    }

    /// Accepts tensors in a peer's heap.
    pub fn share(&mut self, memory: PeerMemory, releases: &Arc<Releases>) {
        self.decoder.share(memory, releases);
    }

    async fn event(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.decoder.next()? {
                return Ok(Some(event));
            }
            match self.read().await? {
                0 if self.decoder.is_between_frames() => return Ok(None),
                0 => return Err(lost(&io::ErrorKind::UnexpectedEof.into())),
                count => self.decoder.filled(count),
            }
        }
    }

    /// Reads into the decoder's buffer; returns the number of bytes.
    async fn read(&mut self) -> Result<usize> {
        let space = self.decoder.space();
        let outcome = match &mut self.greeting {
            None => self.socket.read(space).await,
            Some((deadline, file)) => self.socket.read_first(space, file, *deadline).await,
        };
        match outcome {
            Err(error) if self.greeting.is_some() && error.kind() == io::ErrorKind::TimedOut => Err(no_greeting()),
            outcome => outcome.map_err(|error| lost(&error)),
        }
    }
}

/// The error for a peer that doesn't identify itself in time.
pub(super) fn no_greeting() -> Status {
    Status::unavailable("the peer did not say in time who it is")
}

fn lost(error: &io::Error) -> Status {
    Status::unavailable(format!("the connection broke: {error}"))
}
