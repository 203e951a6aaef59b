//! [`SocketTable`]: the owner of the other end of a TCP connection within this machine.
//!
//! Only Linux reports the owner of another process's socket. Elsewhere connections from this machine are served only if everybody is
//! (`--allow_users='*'`).

#[cfg(any(not(target_os = "linux"), test))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::SocketTable;
#[cfg(target_os = "linux")]
pub(super) use linux::SocketTable;

/// The owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A user's.
    User(u32),
    /// A user who has closed it.
    Gone,
    /// Not on this machine, or in another network namespace of it.
    NotHere,
}
