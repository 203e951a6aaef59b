//! [`SocketTable`]: whose socket is at the other end of a TCP connection within this machine.
//!
//! Only Linux tells that of another process's sockets. Elsewhere nobody is known by their socket, so that connections from this machine
//! are served only if everybody is (`--allow_users='*'`).

#[cfg(any(not(target_os = "linux"), test))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::SocketTable;
#[cfg(target_os = "linux")]
pub(super) use linux::SocketTable;

/// Whose socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A user's.
    User(u32),
    /// It was a user's, who has closed it.
    Gone,
    /// It is not on this machine, or in another network of it.
    NotHere,
}
