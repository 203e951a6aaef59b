//! The beginning of a stream: both sides identify themselves, then those of one user on one machine exchange their heaps.
//!
//! ```text
//! who connects    preface · Hello ────▶
//!                                 ◀──── preface · Hello          who listens, once it knows whom it has
//!                 Memory (a file) ────▶
//!                                 ◀──── Memory (a file)          if both Hellos offer it
//!                         Mapped ────▶
//!                                 ◀──── Mapped                   from each side that could map the other's
//! ```
//!
//! A peer that is refused gets an `Error` in place of the Hello.

use super::address::{Place, StreamAddress, unix_name};
use super::frame::{FrameWriter, Kind, OutFrame, PREFACE, malformed};
use super::hello::Hello;
use super::messages;
use super::reader::{FrameReader, no_greeting};
use super::shared_memory::PeerMemory;
use super::socket::Socket;
use super::{Connection, StreamHub};
use crate::clock::now;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Result, Status};
use tracing::{debug, info};

impl StreamHub {
    /// Exchanges the greetings. The connection can carry frames when this returns.
    pub(super) async fn greet(
        &self,
        connection: &Arc<Connection>,
        socket: &Arc<Socket>,
        expected: Option<StreamAddress<'_>>,
    ) -> Result<(FrameReader, Hello)> {
        let timeout = self.settings.limits.greeting_timeout;
        let deadline = now() + timeout;
        let greeting = self.exchange(connection, socket, expected, deadline);
        // The thread of a blocking socket has no runtime to wait with; its system calls have timeouts.
        if socket.is_blocking() {
            return greeting.await;
        }
        crate::clock::timeout(timeout, greeting).await.unwrap_or_else(|_| Err(no_greeting()))
    }

    async fn exchange(
        &self,
        connection: &Arc<Connection>,
        socket: &Arc<Socket>,
        expected: Option<StreamAddress<'_>>,
        deadline: Instant,
    ) -> Result<(FrameReader, Hello)> {
        let broken = |error: std::io::Error| Status::unavailable(format!("the stream did not begin: {error}"));
        let heap = self.heap.filter(|_| socket.peer_user() == Some(rustix::process::geteuid().as_raw()));
        let opening = expected.map(|address| self.secrets.open(address.incarnation));
        let secret = opening.as_ref().map_or("", |opening| opening.secret.as_str());
        let hello = self.hello(expected.map_or(0, |address| address.incarnation), heap.is_some(), secret)?;
        let mut reader = FrameReader::new(socket.clone(), deadline);
        let theirs = match expected {
            Some(address) => {
                socket.send_first(&beginning(&hello), None).await.map_err(broken)?;
                reader.preface().await.map_err(|_| refused())?;
                let theirs = Hello::read(&reader.next().await?.ok_or_else(refused)?)?;
                self.expect(theirs, &address, socket)?
            }
            None => {
                reader.preface().await?;
                let theirs = Hello::read(&reader.next().await?.ok_or_else(malformed)?);
                let theirs = match theirs {
                    Ok(theirs) => self.welcome(theirs, socket).await,
                    Err(status) => Err(status),
                };
                let answer = match &theirs {
                    Ok(_) => hello,
                    Err(status) => messages::write_error(0, status)?,
                };
                socket.send_first(&beginning(&answer), None).await.map_err(broken)?;
                theirs?
            }
        };
        let mut first = OutFrame::default();
        let mut how = socket.kind().to_owned();
        if let Some(heap) = heap.filter(|_| theirs.offers_memory) {
            let frame = FrameWriter::plain(Kind::Memory, 0).finish()?;
            socket.send_first(&frame.pieces.concat(), Some(heap.file())).await.map_err(broken)?;
            if self.map_heap_of(connection, &mut reader).await? {
                first = FrameWriter::plain(Kind::Mapped, 0).finish()?;
                how.push_str(" and shared memory");
            }
        }
        reader.greeted()?;
        connection.up(socket.clone(), first);
        connection.greeted_by(&theirs.task, &theirs.incarnations, &theirs.proven);
        info!("a stream to {}, incarnation {:016x}, over {how}", theirs.task, theirs.incarnations[0]);
        Ok((reader, theirs))
    }

    /// Receives a peer's heap; returns whether it can be read. If it can't, the stream continues, and its tensors are sent as
    /// bytes.
    async fn map_heap_of(&self, connection: &Arc<Connection>, reader: &mut FrameReader) -> Result<bool> {
        let frame = reader.next().await?.ok_or_else(malformed)?;
        let file = reader.take_file().filter(|_| frame.kind == Kind::Memory).ok_or_else(malformed)?;
        match PeerMemory::map(&file) {
            Ok(memory) => {
                reader.share(memory, connection.releases());
                Ok(true)
            }
            Err(status) => {
                debug!("{status}");
                Ok(false)
            }
        }
    }

    /// Checks the identity of a peer that has connected.
    async fn welcome(&self, mut theirs: Hello, socket: &Socket) -> Result<Hello> {
        if theirs.receiver != 0 && self.incarnations.first() != Some(&theirs.receiver) {
            return Err(Status::aborted("the stream was meant for a task that was here before: it was restarted"));
        }
        theirs.proven = self.prove(&theirs, socket).await?;
        Ok(theirs)
    }

    /// Checks that the peer that answered at an address is the expected one.
    fn expect(&self, mut theirs: Hello, address: &StreamAddress<'_>, socket: &Socket) -> Result<Hello> {
        self.check_certificate(&theirs.task, socket)?;
        if theirs.incarnations.first() != Some(&address.incarnation) {
            return Err(Status::aborted("another task answers than the stream was meant for: it was restarted"));
        }
        let is_proven = match address.place {
            Place::Tcp(host) => self.configured_address(&theirs.task).as_deref() == Some(host),
            // The kernel gives each name to one process only, and the task's name contains its incarnation.
            Place::Unix(name) => name == unix_name(address.incarnation),
        };
        if is_proven {
            theirs.proven.clone_from(&theirs.incarnations);
        }
        Ok(theirs)
    }
}

/// The first bytes of a connection, with the first frame.
fn beginning(frame: &OutFrame) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}

fn refused() -> Status {
    Status::unavailable("the task refused the stream: it was probably restarted, or does not serve this user")
}
