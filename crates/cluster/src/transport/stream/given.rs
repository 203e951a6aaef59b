//! [`GivenStream`]: the bytes of a stream over something else than a socket of the system, such as the network of a simulation.

use futures_util::future::BoxFuture;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// One end of a connection that carries bytes in both directions, in order.
pub trait GivenStream: Send + Sync {
    /// Writes what can be written at once; `WouldBlock` says that nothing can.
    fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Is ready when something can be written, or never will be.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Reads what is there, at least one byte; 0 is the end.
    fn poll_read(&self, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Ends the connection for both ends.
    fn shut_down(&self);

    /// Says where the other end is, for people.
    fn describe_peer(&self) -> String;
}

/// Opens streams.
pub trait Dialer: Send + Sync {
    /// Opens a stream to a task at an address.
    fn dial(&self, task: &str, address: &str) -> BoxFuture<'static, io::Result<Box<dyn GivenStream>>>;
}
