//! Messages in and out of HTTP/2 streams: the five-byte prefix, flow control, and the splitting of large incoming tensors.

use super::compression::decompress;
use super::split::{SplitMessage, Splitter, TensorPath};
use super::wire::{MESSAGE_BYTES_MAX, PREFIX_BYTES, Segments, malformed, too_large};
use crate::threads::{for_message, hand_over};
use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderValue;
use proto::size::SizeError;
use std::future::poll_fn;
use tensor::{Buffer, Charge, Result, Status};

/// The part of a message's announced length that is reserved before anything has arrived.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// Messages of at least this size that may carry tensors are split while they arrive.
const SPLIT_BYTES_MIN: usize = 32 << 10;

/// The decoded size of messages of at least this size is estimated first; smaller ones can't become very large.
const MEASURED_BYTES_MIN: usize = 4 << 10;

/// Messages of at least this size stay charged as long as something shares their bytes.
const CHARGED_BYTES_MIN: usize = 32 << 10;

/// A message that has arrived.
pub(crate) struct Message {
    bytes: Bytes,
    contents: std::vec::IntoIter<Option<Buffer>>,
    /// The charge for the bytes while they are read, and for the decoded message.
    charge: Charge,
}

/// The bytes of a large message, with their charge.
struct ChargedBytes<B> {
    bytes: B,
    _charge: Charge,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for ChargedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Message {
    /// Returns the bytes, without the contents of large tensors.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the contents of the next tensor, if they were split from the message.
    pub fn next_content(&mut self) -> Option<Buffer> {
        self.contents.next().flatten()
    }

    /// Returns a message of bytes that stay charged as long as they are referenced.
    fn charged<B: AsRef<[u8]> + Into<Bytes> + Send + 'static>(bytes: B, charge: Charge) -> Message {
        let contents = Vec::new().into_iter();
        if bytes.as_ref().len() < CHARGED_BYTES_MIN {
            return Message { bytes: bytes.into(), contents, charge };
        }
        let bytes = Bytes::from_owner(ChargedBytes { bytes, _charge: charge });
        Message { bytes, contents, charge: Charge::default() }
    }

    /// Refuses messages that would take more memory than there is once they are decoded, and graphs with too many nodes. Returns
    /// the charge for the decoded message, to be held until the call is over.
    pub fn measure(&mut self, message_type: &str) -> Result<Charge> {
        if self.bytes.len() >= MEASURED_BYTES_MIN {
            let name = message_name(message_type);
            let measured = for_message(self.bytes.len(), || proto::size::decoded_size(name, &self.bytes));
            let size = measured.map_err(|error| match error {
                SizeError::Malformed => malformed(),
                SizeError::TooDeep => Status::invalid_argument("a message nests too deeply"),
            })?;
            graph::check_number_of_nodes(usize::try_from(size.nodes).unwrap_or(usize::MAX))?;
            let bytes = usize::try_from(size.bytes).unwrap_or(usize::MAX / 2);
            let refused = |status: Status| {
                status.context(format!("{name} of {} bytes is too large to be decoded", self.bytes.len()))
            };
            self.charge.resize(self.charge.bytes().saturating_add(bytes)).map_err(refused)?;
        }
        Ok(std::mem::take(&mut self.charge))
    }

    /// Decodes a message of a rare kind.
    pub fn decode<M: prost::Message + Default>(self) -> Result<M> {
        M::decode(self.bytes).map_err(|_| malformed())
    }
}

/// Returns the name of a message, given as in Rust code.
pub(crate) fn message_name(message_type: &str) -> &str {
    message_type.rsplit("::").next().unwrap_or_default().trim()
}

/// Sends a message.
pub(crate) fn send(stream: &mut h2::SendStream<Bytes>, segments: Segments, is_last: bool) -> Result<(), h2::Error> {
    let count = segments.pieces.len();
    for (index, piece) in segments.pieces.into_iter().enumerate() {
        stream.send_data(piece, is_last && index + 1 == count)?;
    }
    Ok(())
}

/// Receives the single message of a stream, or `None` if the stream ends without one. `encoding` is the compression algorithm, if
/// there is one.
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
    let mut charge = Charge::default();
    let message = if is_compressed {
        let compressed = receive_whole(stream, chunk, len, &mut charge).await?;
        let mut plain_charge = Charge::default();
        // A short message may decompress to a very long one.
        let plain = hand_over(|| decompress(&compressed, encoding, &mut plain_charge)).map_err(BodyError::Status)?;
        Message::charged(plain, plain_charge)
    } else if chunk.len() == len {
        charge.resize(len).map_err(BodyError::Status)?;
        Message { bytes: chunk, contents: Vec::new().into_iter(), charge }
    } else if chunk.len() > len {
        return Err(BodyError::Status(malformed()));
    } else if let Some(path) = tensors.filter(|_| len >= SPLIT_BYTES_MIN) {
        let mut splitter = Splitter::new(path, len);
        let mut received = 0;
        loop {
            received += chunk.len();
            splitter.push(&chunk).map_err(BodyError::Status)?;
            charge.resize(splitter.rest_bytes()).map_err(BodyError::Status)?;
            if received >= len {
                break;
            }
            // Dropped before the next frame is awaited, so that its memory can be reused for it.
            drop(chunk);
            chunk = next_chunk(stream).await?.ok_or_else(|| BodyError::Status(malformed()))?;
        }
        let SplitMessage { rest, contents } = splitter.finish().map_err(BodyError::Status)?;
        Message { contents, ..Message::charged(rest, charge) }
    } else {
        let whole = receive_whole(stream, chunk, len, &mut charge).await?;
        Message::charged(whole, charge)
    };
    Ok(Some(message))
}

/// Receives `len` bytes, of which the first have arrived. They are charged as they arrive.
async fn receive_whole(
    stream: &mut RecvStream,
    mut chunk: Bytes,
    len: usize,
    charge: &mut Charge,
) -> Result<Bytes, BodyError> {
    let mut whole = BytesMut::with_capacity(len.min(RESERVED_BYTES_MAX));
    loop {
        if whole.len() + chunk.len() > whole.capacity() {
            // The buffer doubles, and during the copy both buffers exist.
            whole.reserve(whole.len().max(chunk.len()).min(len.saturating_sub(whole.len())).max(chunk.len()));
        }
        charge.resize(whole.capacity()).map_err(BodyError::Status)?;
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
    /// The received bytes are invalid.
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
        // The window bounds what is in flight, not what the step holds.
        stream.flow_control().release_capacity(chunk.len())?;
        if !chunk.is_empty() {
            return Ok(Some(chunk));
        }
    }
}
