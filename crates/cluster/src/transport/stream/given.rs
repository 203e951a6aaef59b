//! [`GivenStream`]: the transport of a stream in place of a system socket, such as a simulated network.

use futures_util::future::BoxFuture;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// One end of a connection that carries bytes in both directions, in order.
pub trait GivenStream: Send + Sync {
    /// Writes as much as possible; `WouldBlock` means that nothing can be written.
    fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Becomes ready when something can be written, or never can again.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()>;

    /// Reads at least one byte; 0 is the end.
    fn poll_read(&self, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Closes the connection for both ends.
    fn shut_down(&self);

    /// Describes the other end, for people.
    fn describe_peer(&self) -> String;
}

/// Opens streams.
pub trait Dialer: Send + Sync {
    /// Opens a stream to a task at an address.
    fn dial(&self, task: &str, address: &str) -> BoxFuture<'static, io::Result<Box<dyn GivenStream>>>;
}
