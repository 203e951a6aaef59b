//! [`ConnectionGate`]: whether a connection to another port of this process is served, by the same rule as gRPC's.

use crate::PeerPolicy;
use crate::transport::grpc::Gate;
use std::net::SocketAddr;
use tensor::Result;

/// Serves those whom a server serves: on this machine the users that its policy names, and elsewhere whoever reaches the port.
pub struct ConnectionGate(Gate);

impl ConnectionGate {
    /// Makes the gate of a port at an address.
    pub fn new(policy: PeerPolicy, listening: SocketAddr) -> ConnectionGate {
        ConnectionGate(Gate::of_users(policy, listening))
    }

    /// Returns an error that says why a connection is not served, if it isn't. `own` is this end of it.
    pub async fn check(&self, peer: SocketAddr, own: SocketAddr) -> Result<()> {
        self.0.identify(peer, own).await.map(drop)
    }
}
