//! [`ConnectionGate`]: decides whether a connection to another port of this process is served, by the same rule as gRPC's.

use crate::PeerPolicy;
use crate::transport::grpc::Gate;
use std::net::SocketAddr;
use tensor::Result;

/// Serves the same users as a server: on this machine those that its policy names, and elsewhere everybody who reaches the port.
pub struct ConnectionGate(Gate);

impl ConnectionGate {
    /// Returns the gate of a port at an address.
    pub fn new(policy: PeerPolicy, listening: SocketAddr) -> ConnectionGate {
        ConnectionGate(Gate::of_users(policy, listening))
    }

    /// Returns an error that says why a connection is refused, or `None` if it is served. `own` is this end of it.
    pub async fn check(&self, peer: SocketAddr, own: SocketAddr) -> Result<()> {
        self.0.identify(peer, own).await.map(drop)
    }
}
