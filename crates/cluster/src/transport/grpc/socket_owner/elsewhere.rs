//! [`SocketTable`] on systems that don't report the owner of a socket.

use super::Owner;
use std::io;
use std::net::SocketAddr;

/// The sockets of this machine, whose owners are unknown.
pub(in crate::transport::grpc) struct SocketTable;

impl SocketTable {
    /// Opens the table.
    pub fn open(_listening: SocketAddr) -> SocketTable {
        SocketTable
    }

    /// Returns an error: the owner can't be determined.
    pub async fn owner(&self, _own: SocketAddr, _peer: SocketAddr) -> io::Result<Owner> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not say whose a socket is"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_is_known_by_a_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = listener.local_addr().unwrap();
        let stream = std::net::TcpStream::connect(listening).unwrap();
        let owner = SocketTable::open(listening).owner(stream.local_addr().unwrap(), listening).await;
        assert_eq!(owner.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
