//! gRPC over HTTP/2: the only module that names the HTTP stack. [`server`] answers calls, [`client`] makes them, and
//! [`remote`] makes a far master or worker look like one in this process.
//!
//! The messages that carry tensors are written and read by hand ([`wire`], [`messages`]): what is sent shares the tensor's
//! bytes, and what arrives goes straight into an aligned buffer ([`split`]).

mod admission;
mod body;
mod callbacks;
pub(crate) mod client;
mod compression;
mod gate;
mod messages;
mod remote;
pub(crate) mod server;
mod socket_owner;
mod split;
mod status;
mod wire;

pub(crate) use client::{Channel, WeakChannel};
pub(crate) use gate::Gate;
pub use remote::RemoteMaster;
pub(crate) use remote::RemoteWorker;

use http::HeaderName;
use std::time::Duration;
use tokio::net::TcpStream;

/// The call by which a task of ours confirms that it is opening a stream. TensorFlow's tasks never make it.
const CONFIRM_STREAM: &str = "/ferroflow.StreamService/Confirm";

/// Names the algorithm with which a message is compressed.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The windows leave flow control to TCP: a step's tensors are wanted as soon as they can be had.
const STREAM_WINDOW_BYTES: u32 = 64 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;

/// Large enough that a frame's header costs nothing, small enough that its buffer stays in the cache.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// A bound on the calls under way on one connection. Calls wait for tensors, so that there can be many.
const CONCURRENT_STREAMS_MAX: u32 = 1 << 20;

/// A failed step resets all its streams at once, which is no attack.
const RESET_STREAMS_MAX: usize = 1 << 16;

/// How long a peer may leave what was sent unacknowledged, or probes unanswered, before it counts as gone.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Sets what every connection needs: no delay, and a bound on how long a peer may be silent on the level of TCP, where
/// probes disturb no server.
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
