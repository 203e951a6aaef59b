//! Splits a message while it arrives: the contents of large tensors are received into separate aligned buffers, and everything
//! else into a small message without them.

use super::wire::malformed;
use prost::encoding::encode_varint;
use tensor::{Buffer, Result, copy_bytes};

/// Contents of at least this size are split from the message.
const TAKEN_BYTES_MIN: usize = 4 << 10;

/// The number of the field of `TensorProto` that holds its elements.
const TENSOR_CONTENT: u32 = 4;

/// The field numbers on the path from the message to its tensors.
pub(crate) type TensorPath = &'static [u32];

/// A message with the contents of its large tensors beside it.
#[derive(Default)]
pub(crate) struct SplitMessage {
    /// The message without the contents.
    pub rest: Vec<u8>,
    /// For each tensor of the message, in order, its contents if they were split off.
    pub contents: std::vec::IntoIter<Option<Buffer>>,
}

/// Splits a message.
pub(crate) struct Splitter {
    path: TensorPath,
    levels: Vec<Level>,
    contents: Vec<Option<Buffer>>,
    /// The contents of the tensor that is being read.
    content: Option<Buffer>,
    state: State,
    varint: u64,
    varint_bits: u32,
}

struct Level {
    /// The number of remaining bytes of the level; the outermost one ends with the message.
    remaining: usize,
    rest: Vec<u8>,
}

enum State {
    Tag,
    Varint,
    Length { tag: u64 },
    Copy { remaining: usize },
    Content { filled: usize },
}

impl Splitter {
    /// Returns a splitter for a message of `len` bytes.
    pub fn new(path: TensorPath, len: usize) -> Splitter {
        Splitter {
            path,
            levels: vec![Level { remaining: len, rest: Vec::with_capacity(256) }],
            contents: Vec::new(),
            content: None,
            state: State::Tag,
            varint: 0,
            varint_bits: 0,
        }
    }

    /// Processes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Tag | State::Varint | State::Length { .. } => {
                    let byte = bytes[0];
                    bytes = &bytes[1..];
                    self.consume(1)?;
                    if self.varint_bits > 63 {
                        return Err(malformed());
                    }
                    self.varint |= u64::from(byte & 0x7f) << self.varint_bits;
                    self.varint_bits += 7;
                    if byte < 0x80 {
                        let value = std::mem::take(&mut self.varint);
                        self.varint_bits = 0;
                        self.number(value)?;
                    }
                }
                State::Copy { remaining } => {
                    let count = (*remaining).min(bytes.len());
                    *remaining -= count;
                    let is_done = *remaining == 0;
                    let (taken, rest) = bytes.split_at(count);
                    bytes = rest;
                    self.consume(count)?;
                    self.rest()?.extend_from_slice(taken);
                    if is_done {
                        self.state = State::Tag;
                    }
                }
                State::Content { filled } => {
                    let content = self.content.as_mut().and_then(Buffer::bytes_mut).ok_or_else(malformed)?;
                    let count = (content.len() - *filled).min(bytes.len());
                    let (taken, rest) = bytes.split_at(count);
                    copy_bytes(&mut content[*filled..*filled + count], taken);
                    *filled += count;
                    let is_done = *filled == content.len();
                    bytes = rest;
                    self.consume(count)?;
                    if is_done {
                        self.state = State::Tag;
                    }
                }
            }
            self.close_levels()?;
        }
        Ok(())
    }

    /// Returns the size of the message without the contents so far.
    pub fn rest_bytes(&self) -> usize {
        self.levels.iter().map(|level| level.rest.capacity()).sum()
    }

    /// Returns the message; an incomplete one is an error.
    pub fn finish(mut self) -> Result<SplitMessage> {
        self.close_levels()?;
        match (self.levels.pop(), self.levels.is_empty(), &self.state) {
            (Some(Level { remaining: 0, rest }), true, State::Tag) if self.varint_bits == 0 => {
                Ok(SplitMessage { rest, contents: self.contents.into_iter() })
            }
            _ => Err(malformed()),
        }
    }

    /// Handles a complete number: a tag, a value or a length.
    fn number(&mut self, value: u64) -> Result<()> {
        match self.state {
            State::Tag => match value & 7 {
                0 => {
                    encode_varint(value, self.rest()?);
                    self.state = State::Varint;
                }
                1 | 5 => {
                    encode_varint(value, self.rest()?);
                    self.state = State::Copy { remaining: if value & 7 == 1 { 8 } else { 4 } };
                }
                2 => self.state = State::Length { tag: value },
                _ => return Err(malformed()),
            },
            State::Varint => {
                encode_varint(value, self.rest()?);
                self.state = State::Tag;
            }
            State::Length { tag } => self.length(tag, usize::try_from(value).map_err(|_| malformed())?)?,
            State::Copy { .. } | State::Content { .. } => return Err(malformed()),
        }
        Ok(())
    }

    fn length(&mut self, tag: u64, len: usize) -> Result<()> {
        let depth = self.levels.len().saturating_sub(1);
        if len > self.levels.last().map_or(0, |level| level.remaining) {
            return Err(malformed());
        }
        let number = (tag >> 3) as u32;
        if self.path.get(depth) == Some(&number) {
            self.consume(len)?;
            self.levels.push(Level { remaining: len, rest: Vec::with_capacity(len.min(128)) });
            self.state = State::Tag;
        } else if depth == self.path.len() && number == TENSOR_CONTENT && len >= TAKEN_BYTES_MIN {
            // The length is bounded by that of the message, and fresh memory costs nothing before it is written.
            self.content = Some(Buffer::new(len)?);
            self.state = State::Content { filled: 0 };
        } else {
            let rest = self.rest()?;
            encode_varint(tag, rest);
            encode_varint(len as u64, rest);
            self.state = if len == 0 { State::Tag } else { State::Copy { remaining: len } };
        }
        Ok(())
    }

    /// Counts bytes towards the innermost level; the bytes of a level's own content were counted when it began.
    fn consume(&mut self, count: usize) -> Result<()> {
        let level = self.levels.last_mut().ok_or_else(malformed)?;
        level.remaining = level.remaining.checked_sub(count).ok_or_else(malformed)?;
        Ok(())
    }

    /// Ends the complete levels, between two fields.
    fn close_levels(&mut self) -> Result<()> {
        while matches!(self.state, State::Tag)
            && self.varint_bits == 0
            && self.levels.len() > 1
            && self.levels.last().is_some_and(|level| level.remaining == 0)
        {
            let Some(level) = self.levels.pop() else { break };
            let depth = self.levels.len() - 1;
            if self.levels.len() == self.path.len() {
                let content = self.content.take();
                self.contents.push(content);
            }
            let number = u64::from(*self.path.get(depth).ok_or_else(malformed)?);
            let rest = self.rest()?;
            encode_varint(number << 3 | 2, rest);
            encode_varint(level.rest.len() as u64, rest);
            rest.extend_from_slice(&level.rest);
        }
        Ok(())
    }

    fn rest(&mut self) -> Result<&mut Vec<u8>> {
        self.levels.last_mut().map(|level| &mut level.rest).ok_or_else(malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use proto::{NamedTensorProto, RunGraphRequest, TensorProto};

    fn request() -> RunGraphRequest {
        let tensor = |len: usize| TensorProto {
            dtype: 1,
            tensor_content: (0..len).map(|i| i as u8).collect::<Vec<_>>().into(),
            ..Default::default()
        };
        RunGraphRequest {
            graph_handle: "h".into(),
            step_id: -5,
            send: [10, 5000, 0, 70_000]
                .into_iter()
                .map(|len| NamedTensorProto { name: format!("n{len}"), tensor: Some(tensor(len)) })
                .collect(),
            recv_key: vec!["k".repeat(300)],
            request_id: 9,
            ..Default::default()
        }
    }

    #[test]
    fn nothing_is_lost_however_it_is_cut() {
        let original = request();
        let bytes = original.encode_to_vec();
        for step in [1, 3, 7, 4096, 100_000] {
            let mut splitter = Splitter::new(&[3, 2], bytes.len());
            for chunk in bytes.chunks(step) {
                splitter.push(chunk).unwrap();
            }
            let split = splitter.finish().unwrap();
            assert!(split.rest.len() < 1000);
            let mut back = RunGraphRequest::decode(&split.rest[..]).unwrap();
            let contents: Vec<_> = split.contents.collect();
            assert_eq!(contents.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, true]);
            for (send, content) in back.send.iter_mut().zip(contents) {
                if let (Some(content), Some(tensor)) = (content, send.tensor.as_mut()) {
                    assert!(content.is_aligned_to(64));
                    tensor.tensor_content = content.bytes().to_vec().into();
                }
            }
            assert_eq!(back, original);
        }
    }

    #[test]
    fn what_is_cut_or_wrong_is_an_error() {
        let bytes = request().encode_to_vec();
        for end in [1, 10, 100, 5000, bytes.len() - 1] {
            let mut splitter = Splitter::new(&[3, 2], bytes.len());
            splitter.push(&bytes[..end]).unwrap();
            assert!(splitter.finish().is_err());
        }
        // An inner length that exceeds the outer one.
        let mut splitter = Splitter::new(&[3, 2], 4);
        assert!(splitter.push(&[0x1a, 0x7f, 0, 0]).is_err());
        let mut splitter = Splitter::new(&[3, 2], 12);
        assert!(splitter.push(&[0xff; 12]).is_err());
    }
}
