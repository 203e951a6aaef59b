//! Options of a task's TCP connections, for all protocols.

use std::time::Duration;
use tokio::net::TcpStream;

/// How long a peer may leave data unacknowledged, or probes unanswered, before it counts as lost.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sets the options of a connection: no delay, and a bound on the silence of a peer at the level of TCP, where probes don't
/// disturb any server.
pub(crate) fn connection_options(stream: &TcpStream) {
    let socket = socket2::SockRef::from(stream);
    let keep_alive = socket2::TcpKeepalive::new()
        .with_time(PEER_TIMEOUT / 2)
        .with_interval(Duration::from_secs(1))
        .with_retries(PEER_TIMEOUT.as_secs() as u32 / 2);
    let outcome = stream.set_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keep_alive));
    #[cfg(target_os = "linux")]
    let outcome = outcome.and_then(|()| socket.set_tcp_user_timeout(Some(PEER_TIMEOUT)));
    if let Err(error) = outcome {
        tracing::debug!("a socket's options could not be set: {error}");
    }
}
