//! [`TlsSession`]: the encryption of a stream between tasks, over nonblocking reads and writes of its socket.

use rustls::Connection;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

/// The number of bytes that one system call reads.
const INCOMING_BYTES: usize = 64 << 10;

/// The most encrypted bytes that wait for the socket.
const OUTGOING_BYTES_MAX: usize = 256 << 10;

/// The encryption of a connection after its handshake.
pub(crate) struct TlsSession {
    connection: Connection,
    /// Received bytes that have not been decrypted are in `start..end`.
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
}

impl TlsSession {
    /// Continues a connection after its handshake.
    pub fn new(mut connection: Connection) -> TlsSession {
        connection.set_buffer_limit(Some(OUTGOING_BYTES_MAX));
        TlsSession { connection, incoming: vec![0; INCOMING_BYTES].into(), start: 0, end: 0 }
    }

    /// Reads at least one byte; 0 is the end. Frames have their own lengths, so an end is an end, whether or not the peer has
    /// announced it.
    pub fn read(&mut self, socket: &mut (impl Read + Write), bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
            if self.start == self.end {
                (self.start, self.end) = (0, socket.read(&mut self.incoming)?);
                if self.end == 0 {
                    return Ok(0);
                }
            }
            let mut rest = &self.incoming[self.start..self.end];
            self.connection.read_tls(&mut rest)?;
            self.start = self.end - rest.len();
            let processed = self.connection.process_new_packets();
            // An alert, or the answer to a key update; what can't be written now is written with the next data.
            let sent = self.send(socket);
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            sent.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })?;
        }
    }

    /// Takes as much as fits, and writes as much of it as the socket accepts. Takes nothing while earlier bytes are waiting.
    pub fn write(&mut self, socket: &mut impl Write, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(socket)?;
        let taken = self.connection.writer().write_vectored(pieces)?;
        match self.send(socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Returns whether encrypted bytes wait for the socket.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
