//! gRPC over HTTP/2: the only module that names the HTTP stack. [`server`] answers calls, [`client`] makes them, and
//! [`remote`] makes a far master or worker look like one in this process.
//!
//! The messages that carry tensors are written and read by hand ([`wire`], [`messages`]): what is sent shares the tensor's
//! bytes, and what arrives goes straight into an aligned buffer ([`split`]).

mod admission;
mod body;
mod callbacks;
pub(crate) mod client;
mod client_terminals;
mod compression;
mod gate;
mod health;
mod messages;
mod proxy;
mod remote;
mod respond;
pub(crate) mod server;
mod socket_owner;
mod split;
mod status;
mod wire;

pub(crate) use client::{Channel, Secured, WeakChannel, take_unsent};
pub(crate) use gate::Gate;
pub use proxy::Proxy;
pub use remote::RemoteMaster;
pub(crate) use remote::{RemoteWorker, ask_at, confirm_stream};

use crate::access::{CONFIRM_STREAM, HEALTH_CHECK};
use http::HeaderName;

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
