//! Messages in and out of HTTP/2 streams: the five-byte prefix, flow control, and large tensors on the way in.

use super::compression::decompress;
use super::split::{SplitMessage, Splitter, TensorPath};
use super::wire::{MESSAGE_BYTES_MAX, PREFIX_BYTES, Segments, malformed, too_large};
use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderValue;
use std::future::poll_fn;
use tensor::{Buffer, Result, Status};

/// How much of a message's announced length is reserved before any of it has arrived.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// Messages of at least this size that may carry tensors are taken apart while they arrive.
const SPLIT_BYTES_MIN: usize = 32 << 10;

/// A message that has arrived.
pub(crate) struct Message {
    bytes: Bytes,
    contents: std::vec::IntoIter<Option<Buffer>>,
}

impl Message {
    /// Returns the bytes, without the contents of large tensors.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the contents of the next tensor, if they lie beside the message.
    pub fn next_content(&mut self) -> Option<Buffer> {
        self.contents.next().flatten()
    }

    /// Decodes a message of a rare kind.
    pub fn decode<M: prost::Message + Default>(self) -> Result<M> {
        M::decode(self.bytes).map_err(|_| malformed())
    }
}

/// Sends a message.
pub(crate) fn send(stream: &mut h2::SendStream<Bytes>, segments: Segments, is_last: bool) -> Result<(), h2::Error> {
    let count = segments.pieces.len();
    for (index, piece) in segments.pieces.into_iter().enumerate() {
        stream.send_data(piece, is_last && index + 1 == count)?;
    }
    Ok(())
}

/// Receives the one message of a stream, or `None` when the stream ends without one. `encoding` names the algorithm with
/// which it is compressed, if it is.
pub(crate) async fn receive(
    stream: &mut RecvStream,
    tensors: Option<TensorPath>,
    encoding: Option<&HeaderValue>,
) -> Result<Option<Message>, BodyError> {
    let mut chunk = Bytes::new();
    while chunk.len() < PREFIX_BYTES {
        chunk = match next_chunk(stream).await? {
            None if chunk.is_empty() => return Ok(None),
            None => return Err(BodyError::Status(malformed())),
            Some(next) if chunk.is_empty() => next,
            Some(next) => [chunk, next].concat().into(),
        };
    }
    let is_compressed = chunk.get_u8() != 0;
    let len = chunk.get_u32() as usize;
    if len > MESSAGE_BYTES_MAX {
        return Err(BodyError::Status(too_large("what was sent".to_owned(), len)));
    }
    let empty = Vec::new().into_iter();
    let message = if is_compressed {
        let compressed = receive_whole(stream, chunk, len).await?;
        let plain = decompress(&compressed, encoding).map_err(BodyError::Status)?;
        Message { bytes: plain.into(), contents: empty }
    } else if chunk.len() == len {
        Message { bytes: chunk, contents: empty }
    } else if chunk.len() > len {
        return Err(BodyError::Status(malformed()));
    } else if let Some(path) = tensors.filter(|_| len >= SPLIT_BYTES_MIN) {
        let mut splitter = Splitter::new(path, len);
        let mut received = 0;
        loop {
            received += chunk.len();
            splitter.push(&chunk).map_err(BodyError::Status)?;
            if received >= len {
                break;
            }
            // Dropped before the next one is awaited, so that its memory can be used for it.
            drop(chunk);
            chunk = next_chunk(stream).await?.ok_or_else(|| BodyError::Status(malformed()))?;
        }
        let SplitMessage { rest, contents } = splitter.finish().map_err(BodyError::Status)?;
        Message { bytes: rest.into(), contents }
    } else {
        Message { bytes: receive_whole(stream, chunk, len).await?, contents: empty }
    };
    Ok(Some(message))
}

/// Receives `len` bytes, of which the first have arrived.
async fn receive_whole(stream: &mut RecvStream, mut chunk: Bytes, len: usize) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::with_capacity(len.min(RESERVED_BYTES_MAX));
    loop {
        whole.extend_from_slice(&chunk);
        if whole.len() >= len {
            break;
        }
        drop(chunk);
        chunk = next_chunk(stream).await?.ok_or_else(|| BodyError::Status(malformed()))?;
    }
    if whole.len() > len {
        return Err(BodyError::Status(malformed()));
    }
    Ok(whole.freeze())
}

/// Why a message could not be received.
pub(crate) enum BodyError {
    /// What arrived is not what it should be.
    Status(Status),
    /// The stream or its connection broke.
    Stream(h2::Error),
}

impl From<h2::Error> for BodyError {
    fn from(error: h2::Error) -> BodyError {
        BodyError::Stream(error)
    }
}

async fn next_chunk(stream: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    loop {
        let Some(chunk) = poll_fn(|context| stream.poll_data(context)).await.transpose()? else { return Ok(None) };
        // The window is a bound on what is under way, not on what the step holds.
        stream.flow_control().release_capacity(chunk.len())?;
        if !chunk.is_empty() {
            return Ok(Some(chunk));
        }
    }
}
