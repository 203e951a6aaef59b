//! [`Proxy`]: accepts plain-text connections from this machine and forwards them over TLS, for clients without TLS such as
//! TensorFlow's.

use super::gate::{Entered, Gate};
use super::server::{First, HANDSHAKE_TIMEOUT, first_of};
use crate::clock::{sleep, timeout};
use crate::tls::{Protocol, Tls, Wire, is_about_certificates};
use crate::transport::tcp::connection_options;
use crate::{PeerPolicy, ServerConfig, TlsFiles};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tensor::{Result, Status};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

/// The number of bytes read at once in each direction.
const BUFFER_BYTES: usize = 64 << 10;

/// The pause after an error in accepting connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A plain-text port on loopback for a server that requires TLS. It serves the same users of this machine as a server, and
/// presents its own certificate to the server. It closes when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    serving: AbortHandle,
}

/// The state that all connections share.
struct Way {
    server: String,
    tls: Tls,
    gate: Gate,
}

impl Proxy {
    /// Starts a proxy for the server at `host:port`; port 0 means any free one.
    pub fn start(
        server: &str,
        port: u16,
        files: TlsFiles,
        allowed_users: PeerPolicy,
        runtime: tokio::runtime::Handle,
    ) -> Result<Proxy> {
        crate::cluster_spec::split_address(server).map_err(Status::invalid_argument)?;
        let tls = Tls::new(files)?;
        let cannot =
            |error: std::io::Error| Status::unavailable(format!("a proxy can't listen on port {port}: {error}"));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let gate = Gate::new(&ServerConfig::local(0)?.allowed_users(allowed_users), None, None, None, address);
        // Within the runtime, because a socket belongs to one.
        let _entered = runtime.enter();
        let listener = TcpListener::from_std(listener).map_err(cannot)?;
        let way = Arc::new(Way { server: server.to_owned(), tls, gate });
        Ok(Proxy { address, serving: runtime.spawn(accept(listener, way)).abort_handle() })
    }

    /// Returns the target for clients, such as `grpc://127.0.0.1:40000`.
    pub fn target(&self) -> String {
        format!("grpc://{}", self.address)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, way: Arc<Way>) {
    // Its connections close with it.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let own = stream.local_addr().unwrap_or(peer);
                    match way.gate.enter(peer, own).await {
                        Ok(entered) => drop(connections.spawn(carry(stream, peer, entered, way.clone()))),
                        Err(status) => way.gate.refuse(Wire::Plain(stream), peer, status),
                    }
                }
                Err(error) => {
                    debug!("can't accept a connection: {error}");
                    way.gate.files_ran_out();
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn carry(mut stream: TcpStream, peer: SocketAddr, entered: Entered, way: Arc<Way>) {
    connection_options(&stream);
    let first = tokio::select! {
        first = timeout(HANDSHAKE_TIMEOUT, first_of(&stream)) => first,
        _ = entered.put_out => return,
    };
    let Ok(Ok(First::Http)) = first else {
        return debug!("a connection from {peer} did not begin as HTTP/2");
    };
    entered.admitted.has_spoken();
    let mut onward = match way.connect().await {
        Ok(onward) => onward,
        Err(status) => return way.gate.refuse(Wire::Plain(stream), peer, status),
    };
    let server = &way.server;
    match copy_bidirectional_with_sizes(&mut stream, &mut onward, BUFFER_BYTES, BUFFER_BYTES).await {
        Ok(_) => debug!("a connection to {server} has ended"),
        Err(error) if is_about_certificates(&error) => {
            warn!("{server} does not take the certificate of this side: {error}")
        }
        Err(error) => info!("a connection to {server} broke: {error}"),
    }
}

impl Way {
    async fn connect(&self) -> Result<Wire> {
        let server = &self.server;
        let connecting = async {
            let stream = TcpStream::connect(server).await?;
            connection_options(&stream);
            self.tls.connect(stream, None, server, Protocol::Http).await
        };
        match timeout(HANDSHAKE_TIMEOUT, connecting).await {
            Ok(Ok(stream)) => Ok(Wire::Tls(Box::new(stream))),
            Ok(Err(error)) if is_about_certificates(&error) => {
                Err(Status::unauthenticated(format!("can't connect to {server} over TLS: {error}")))
            }
            Ok(Err(error)) => Err(Status::unavailable(format!("can't connect to {server}: {error}"))),
            Err(_) => {
                let seconds = HANDSHAKE_TIMEOUT.as_secs();
                Err(Status::unavailable(format!("can't connect to {server}: no answer in {seconds} s")))
            }
        }
    }
}
