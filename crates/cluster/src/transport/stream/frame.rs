//! The frames of a stream: a fixed header, a few fields, and tensors whose bytes follow unencoded.
//!
//! ```text
//! kind u8 · 3 bytes of 0 · tensors u32 · head length u32 · 4 bytes of 0 · id u64     the header, 24 bytes
//! for each tensor: dtype i32 · flags u8 · rank u8 · dims i64 … · content length u64
//!     and when it is shared: place u64 · token u64                                   the head …
//! the fields of the kind                                                             … up to its length
//! the contents of the tensors that aren't shared, one after the other
//! ```
//!
//! All numbers are little-endian. A string is its length as u32 and its bytes.

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use tensor::{Buffer, DType, Result, Shape, Status, Tensor};

/// The first bytes of a connection, by which a server distinguishes it from HTTP/2.
pub(crate) const PREFACE: &[u8; 8] = b"FERROFL2";

/// The common prefix of the first bytes of all versions.
const PREFACE_OF_ALL: &[u8] = b"FERROFL";

/// The protocol version. Any change to the layout or meaning of frames must increment it: tasks of different versions use gRPC.
pub(super) const VERSION: u64 = 5;

/// Checks the first bytes of a connection.
pub(super) fn check_preface(found: &[u8]) -> Result<()> {
    match found {
        _ if found == PREFACE => Ok(()),
        _ if found.starts_with(PREFACE_OF_ALL) => Err(other_version(None)),
        _ => Err(malformed()),
    }
}

/// The error for a peer of another release.
pub(super) fn other_version(version: Option<u64>) -> Status {
    let which = version.map_or("another version".to_owned(), |version| format!("version {version}"));
    Status::failed_precondition(format!(
        "the peer speaks {which} of the streams' protocol, and this task version {VERSION}: they can only use gRPC between them"
    ))
}

/// The length of a frame's header.
pub(super) const HEADER_BYTES: usize = 24;

/// The largest head of a frame; it holds only handles, keys, messages and traces.
const HEAD_BYTES_MAX: usize = 256 << 20;

/// The largest contents of one tensor, so that a broken peer can't make us reserve any amount.
const CONTENT_BYTES_MAX: u64 = 1 << 38;

/// The most tensors of one frame.
const TENSORS_MAX: u32 = 1 << 20;

/// Contents of at least this size are sent from where they are; smaller ones are copied behind the head.
const SHARED_BYTES_MIN: usize = 2 << 10;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The sender's identity. The first frame in both directions.
    Hello = 1,
    /// Runs a partition; the id names the call.
    RunGraph = 2,
    /// The result of a call, with its tensors; the id is the call's.
    RunGraphReply = 3,
    /// A call failed.
    Error = 4,
    /// The caller has cancelled the call.
    Cancel = 5,
    /// A tensor for a step, which the id names.
    Tensor = 6,
    /// A step, which the id names, is over.
    Cleanup = 7,
    /// Releases blocks of the receiver's heap.
    Release = 8,
    /// The sender's heap, whose file is passed beside the frame. Only during the greeting.
    Memory = 9,
    /// The sender reads the receiver's heap from now on.
    Mapped = 10,
    /// A ping, sent after a time of silence.
    Ping = 11,
    /// The answer to a ping.
    Pong = 12,
    /// Asks for the receiver's progress in steps whose tensors the sender waits for; the id names the question.
    AskProgress = 13,
    /// The answer to that, sent after all tensors that were pushed before.
    Progress = 14,
    /// Requests a part of a collective op's tensor; the id names the call.
    RecvPart = 15,
}

impl Kind {
    fn from_u8(value: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Hello,
            RunGraph,
            RunGraphReply,
            Error,
            Cancel,
            Tensor,
            Cleanup,
            Release,
            Memory,
            Mapped,
            Ping,
            Pong,
            AskProgress,
            Progress,
            RecvPart,
        ];
        all.into_iter().find(|&kind| kind as u8 == value)
    }
}

const FLAG_DEAD: u8 = 1;
/// The contents are an encoded `TensorProto`, for types whose elements aren't plain.
const FLAG_PROTO: u8 = 2;
/// The contents are in shared memory.
const FLAG_SHARED: u8 = 4;

/// Decides which contents are shared: returns their position in the heap, and the token by which they are released.
pub(crate) type Share<'a> = &'a dyn Fn(&Buffer) -> Option<(u64, u64)>;

/// A frame ready to be sent, in pieces that share the bytes of large tensors.
#[derive(Debug, Default)]
pub(crate) struct OutFrame {
    /// The pieces in order.
    pub pieces: SmallVec<[Bytes; 2]>,
    /// Its purpose, so that it can be dropped with its step or call.
    pub purpose: Purpose,
    /// The tokens of its shared blocks.
    pub tokens: SmallVec<[u64; 2]>,
}

/// The purpose of a queued frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is always sent.
    #[default]
    Connection,
    /// It is useless once this step is over.
    Step(i64),
    /// It requests, by this call, that a partition of this step be run.
    Call(u64, i64),
    /// It answers this call of the peer.
    Answer(u64),
}

impl OutFrame {
    /// Returns whether it says that a call failed.
    pub fn is_error(&self) -> bool {
        self.pieces.first().and_then(|piece| piece.first()) == Some(&(Kind::Error as u8))
    }
}

impl Purpose {
    /// Returns whether it is for a step.
    pub fn is_for_step(self, step_id: i64) -> bool {
        match self {
            Purpose::Connection | Purpose::Answer(_) => false,
            Purpose::Step(id) | Purpose::Call(_, id) => id == step_id,
        }
    }
}

/// Writes a frame.
pub(crate) struct FrameWriter {
    head: BytesMut,
    contents: SmallVec<[Buffer; 2]>,
}

impl FrameWriter {
    /// Begins a frame with tensors, which may be dead.
    pub fn new<'a>(
        kind: Kind,
        id: u64,
        tensors: impl ExactSizeIterator<Item = (&'a Tensor, bool)>,
        share: Share<'_>,
    ) -> Result<FrameWriter> {
        let mut head = BytesMut::with_capacity(512);
        head.put_u8(kind as u8);
        head.put_bytes(0, 3);
        head.put_u32_le(tensors.len() as u32);
        head.put_u64_le(0);
        head.put_u64_le(id);
        let mut contents = SmallVec::new();
        for (tensor, is_dead) in tensors {
            let (content, mut flags) = match tensor.buffer() {
                Some(buffer) => (buffer.clone(), 0),
                None => {
                    let proto = tensor::tensor_to_proto_inline(tensor)?;
                    (Buffer::foreign(prost::Message::encode_to_vec(&proto)), FLAG_PROTO)
                }
            };
            if is_dead {
                flags |= FLAG_DEAD;
            }
            let shared = if flags & FLAG_PROTO == 0 { share(&content) } else { None };
            if shared.is_some() {
                flags |= FLAG_SHARED;
            }
            let dims = tensor.dims();
            head.put_i32_le(tensor.dtype() as i32);
            head.put_u8(flags);
            head.put_u8(u8::try_from(dims.len()).map_err(|_| Status::internal("a tensor's rank is too large"))?);
            for &dim in dims {
                head.put_i64_le(dim);
            }
            head.put_u64_le(content.len() as u64);
            match shared {
                Some((place, token)) => {
                    head.put_u64_le(place);
                    head.put_u64_le(token);
                }
                None => contents.push(content),
            }
        }
        Ok(FrameWriter { head, contents })
    }

    /// Begins a frame without tensors.
    pub fn plain(kind: Kind, id: u64) -> FrameWriter {
        let mut head = BytesMut::with_capacity(256);
        head.put_u8(kind as u8);
        head.put_bytes(0, 15);
        head.put_u64_le(id);
        FrameWriter { head, contents: SmallVec::new() }
    }

    /// Adds a number.
    pub fn u64(&mut self, value: u64) {
        self.head.put_u64_le(value);
    }

    /// Adds a string or bytes.
    pub fn text(&mut self, text: &[u8]) {
        self.head.put_u32_le(text.len() as u32);
        self.head.put_slice(text);
    }

    /// Ends the frame.
    pub fn finish(mut self) -> Result<OutFrame> {
        let head_len = self.head.len() - HEADER_BYTES;
        if head_len > HEAD_BYTES_MAX {
            return Err(Status::invalid_argument(format!("{head_len} bytes are too many beside a step's tensors")));
        }
        self.head[8..12].copy_from_slice(&(head_len as u32).to_le_bytes());
        let mut pieces = SmallVec::new();
        for content in self.contents {
            if content.len() < SHARED_BYTES_MIN {
                self.head.put_slice(content.bytes());
            } else {
                pieces.push(self.head.split().freeze());
                pieces.push(Bytes::from_owner(content));
            }
        }
        if !self.head.is_empty() {
            pieces.push(self.head.freeze());
        }
        Ok(OutFrame { pieces, ..OutFrame::default() })
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub kind: Kind,
    pub id: u64,
    pub num_tensors: u32,
    pub head_len: usize,
}

impl Header {
    /// Reads a header of [`HEADER_BYTES`].
    pub fn read(bytes: &[u8]) -> Result<Header> {
        let mut fields = Fields::new(bytes);
        let kind = Kind::from_u8(fields.u8()?).ok_or_else(malformed)?;
        fields.take(3)?;
        let num_tensors = fields.u32()?;
        let head_len = fields.u32()? as usize;
        fields.take(4)?;
        let id = fields.u64()?;
        if head_len > HEAD_BYTES_MAX || num_tensors > TENSORS_MAX {
            return Err(malformed());
        }
        Ok(Header { kind, id, num_tensors, head_len })
    }
}

/// A tensor whose contents are still missing.
pub(super) struct TensorHead {
    dtype: DType,
    shape: Shape,
    flags: u8,
    /// The size of its contents in bytes.
    pub content_len: usize,
    /// The position of its contents in the peer's heap, and the token by which they are released.
    pub shared: Option<(u64, u64)>,
}

impl TensorHead {
    /// Reads the next tensor's head.
    pub fn read(fields: &mut Fields<'_>) -> Result<TensorHead> {
        let dtype = DType::from_i32(fields.u32()? as i32)?;
        let flags = fields.u8()?;
        let rank = fields.u8()?;
        let mut dims = SmallVec::<[i64; 6]>::new();
        for _ in 0..rank {
            dims.push(fields.u64()? as i64);
        }
        let shape = Shape::new(&dims)?;
        let content_len = fields.u64()?;
        let is_plain = flags & FLAG_PROTO == 0;
        let expected = shape.num_elements().checked_mul(dtype.size());
        if content_len > CONTENT_BYTES_MAX
            || is_plain && (!dtype.is_plain() || expected != usize::try_from(content_len).ok())
        {
            return Err(malformed());
        }
        let shared = match flags & FLAG_SHARED {
            0 => None,
            _ => Some((fields.u64()?, fields.u64()?)),
        };
        Ok(TensorHead { dtype, shape, flags, content_len: content_len as usize, shared })
    }

    /// Builds the tensor from its contents; also returns whether it is dead.
    pub fn finish(self, content: Buffer) -> Result<(Tensor, bool)> {
        let tensor = if self.flags & FLAG_PROTO != 0 {
            let proto: proto::TensorProto = prost::Message::decode(content.bytes()).map_err(|_| malformed())?;
            tensor::tensor_from_proto(&proto)?
        } else {
            Tensor::from_buffer(self.dtype, self.shape, content)?
        };
        Ok((tensor, self.flags & FLAG_DEAD != 0))
    }
}

/// Reads the fields of a head in sequence.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Makes a reader.
    pub fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    /// Returns the number of remaining bytes.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| malformed())
    }

    /// Returns a byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Returns a number.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Returns a number.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }

    /// Returns a string.
    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed())
    }
}

/// The error for invalid bytes.
pub(super) fn malformed() -> Status {
    Status::invalid_argument("a frame of a stream could not be parsed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors() -> Vec<(Tensor, bool)> {
        vec![
            (Tensor::scalar(1.5f32), false),
            (Tensor::from_slice(&[300, 2], &[2i64; 600]).unwrap(), false),
            (Tensor::vector::<f32>(&[]), true),
            (Tensor::from_strings(Shape::vector(2), vec!["a".into(), vec![7u8; 3000].into()]).unwrap(), false),
        ]
    }

    #[test]
    fn frames_come_back_as_they_were() {
        let sent = tensors();
        let mut writer =
            FrameWriter::new(Kind::RunGraph, 77, sent.iter().map(|(tensor, is_dead)| (tensor, *is_dead)), &|_| None)
                .unwrap();
        writer.text(b"key");
        writer.u64(9);
        let bytes = writer.finish().unwrap().pieces.concat();
        let header = Header::read(&bytes[..HEADER_BYTES]).unwrap();
        assert_eq!((header.kind, header.id, header.num_tensors), (Kind::RunGraph, 77, 4));
        let (head, mut contents) = bytes[HEADER_BYTES..].split_at(header.head_len);
        let mut fields = Fields::new(head);
        let heads: Vec<TensorHead> = (0..4).map(|_| TensorHead::read(&mut fields).unwrap()).collect();
        assert_eq!(fields.text().unwrap(), "key");
        assert_eq!(fields.u64().unwrap(), 9);
        assert_eq!(fields.len(), 0);
        for (head, (tensor, is_dead)) in heads.into_iter().zip(&sent) {
            let (content, rest) = contents.split_at(head.content_len);
            contents = rest;
            let (back, back_is_dead) = head.finish(Buffer::foreign(content.to_vec())).unwrap();
            assert_eq!(back_is_dead, *is_dead);
            assert_eq!(tensor::tensor_to_proto(&back).unwrap(), tensor::tensor_to_proto(tensor).unwrap());
        }
        assert!(contents.is_empty());
    }

    #[test]
    fn lies_are_errors() {
        assert!(Header::read(&[0; HEADER_BYTES]).is_err());
        assert!(Header::read(&[1; 5]).is_err());
        let tensor = Tensor::scalar(1i32);
        let frame =
            FrameWriter::new(Kind::Tensor, 1, [(&tensor, false)].into_iter(), &|_| None).unwrap().finish().unwrap();
        let bytes = frame.pieces.concat();
        let head = &bytes[HEADER_BYTES..bytes.len() - 4];
        assert!(TensorHead::read(&mut Fields::new(head)).is_ok());
        for end in 0..head.len() {
            assert!(TensorHead::read(&mut Fields::new(&head[..end])).is_err());
        }
        let mut longer = head.to_vec();
        longer[6] = 8;
        assert!(TensorHead::read(&mut Fields::new(&longer)).is_err(), "more contents than the shape has");
    }
}
