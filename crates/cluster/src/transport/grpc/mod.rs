//! gRPC over HTTP/2: the only module that names the HTTP stack. [`server`] answers calls, [`client`] makes them, and [`remote`]
//! implements the interfaces of a master or worker in another process.
//!
//! The messages that carry tensors are encoded and decoded by hand ([`wire`], [`messages`]): outgoing messages share the tensors'
//! bytes, and incoming contents are received into aligned buffers ([`split`]).

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

/// The header with a message's compression algorithm.
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// The windows leave flow control to TCP: a step's tensors are wanted as soon as possible.
const STREAM_WINDOW_BYTES: u32 = 64 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;

/// Large enough that a frame header costs nothing, small enough that its buffer stays in the cache.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// The most pending calls of one connection. Calls wait for tensors, so there can be many.
const CONCURRENT_STREAMS_MAX: u32 = 1 << 20;

/// A failed step resets all its streams at once, which is not an attack.
const RESET_STREAMS_MAX: usize = 1 << 16;
