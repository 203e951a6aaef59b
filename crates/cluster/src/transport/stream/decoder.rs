//! [`Decoder`]: decodes the frames of a peer from the bytes that arrive. It does no I/O: its driver, a blocking thread or an
//! async task, puts bytes where it says and takes events. The contents of large tensors are received directly into aligned
//! buffers.

use super::frame::{Fields, HEADER_BYTES, Header, Kind, PREFACE, TensorHead, check_preface, malformed};
use super::releases::Releases;
use super::shared_memory::{PeerMemory, SharedRegion};
use smallvec::SmallVec;
use std::sync::Arc;
use tensor::{Buffer, Result, Status, Tensor, copy_bytes};

/// The size of a read. Small frames arrive several at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Contents beyond this size are not reserved on a peer's word.
const RESERVED_BYTES_MAX: usize = 4 << 30;

/// The largest frame before the peer has identified itself.
const GREETING_BYTES_MAX: usize = 48 << 10;

/// A frame that has arrived.
#[derive(Debug)]
pub(super) struct InFrame {
    /// Its kind.
    pub kind: Kind,
    /// The call or the step.
    pub id: u64,
    /// The tensors, and whether each is dead.
    pub tensors: SmallVec<[(Tensor, bool); 2]>,
    head: Vec<u8>,
    fields_at: usize,
}

impl InFrame {
    /// Returns the fields of the frame's kind.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.head[self.fields_at..])
    }
}

/// An event.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one preface, and a box for each frame would cost more")]
pub(super) enum Event {
    /// The first bytes, which are those of a stream of this version.
    Preface,
    /// A frame.
    Frame(InFrame),
}

/// The state of the decoder.
enum Expected {
    Preface,
    Header,
    Head(Header),
    Contents(Header),
}

/// Contents that are arriving.
struct Arriving {
    tensor: TensorHead,
    content: Buffer,
    filled: usize,
}

/// Decodes one direction of a stream.
pub(super) struct Decoder {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    expected: Expected,
    /// The head of the current frame, and the offset of its kind's fields.
    head: Vec<u8>,
    fields_at: usize,
    /// Its tensors whose contents have not begun to arrive, in reverse order.
    heads: SmallVec<[TensorHead; 2]>,
    arriving: Option<Arriving>,
    tensors: SmallVec<[(Tensor, bool); 2]>,
    /// The peer's heap, and the list of released blocks of it.
    shared: Option<(Arc<PeerMemory>, Arc<Releases>)>,
    is_greeting: bool,
}

impl Decoder {
    /// Returns the decoder of a new stream. Until [`greeted`](Self::greeted), frames are small and have no tensors.
    pub fn new() -> Decoder {
        Decoder {
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            expected: Expected::Preface,
            head: Vec::new(),
            fields_at: 0,
            heads: SmallVec::new(),
            arriving: None,
            tensors: SmallVec::new(),
            shared: None,
            is_greeting: true,
        }
    }

    /// Ends the greeting: from now on the peer may send any frame.
    pub fn greeted(&mut self) {
        self.is_greeting = false;
    }

    /// Accepts tensors in a peer's heap.
    pub fn share(&mut self, memory: PeerMemory, releases: &Arc<Releases>) {
        self.shared = Some((Arc::new(memory), releases.clone()));
    }

    /// Returns whether the stream may end here without an incomplete frame.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.expected, Expected::Header) && self.start == self.end
    }

    /// Returns the buffer for the next bytes, which is never empty; [`filled`](Self::filled) reports how many were read. Call it
    /// after [`next`](Self::next) has returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        if self.arriving.as_ref().is_some_and(|arriving| arriving.content.len() - arriving.filled >= BUFFER_BYTES)
            && self.start == self.end
            && let Some(Arriving { content, filled, .. }) = &mut self.arriving
            && let Some(bytes) = content.bytes_mut()
        {
            // Directly into the tensor's buffer.
            return &mut bytes[*filled..];
        }
        // The remaining bytes are part of a header.
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// Reports that this many bytes were read into [`space`](Self::space).
    pub fn filled(&mut self, count: usize) {
        match &mut self.arriving {
            Some(arriving) if self.start == self.end && arriving.content.len() - arriving.filled >= BUFFER_BYTES => {
                arriving.filled += count;
            }
            _ => self.end += count,
        }
    }

    /// Returns the next event; `None` if more bytes are needed for it.
    pub fn next(&mut self) -> Result<Option<Event>> {
        loop {
            match self.expected {
                Expected::Preface => {
                    let Some(found) = self.take(PREFACE.len()) else { return Ok(None) };
                    check_preface(found)?;
                    self.expected = Expected::Header;
                    return Ok(Some(Event::Preface));
                }
                Expected::Header => {
                    let Some(header) = self.take(HEADER_BYTES) else { return Ok(None) };
                    let header = Header::read(header)?;
                    if self.is_greeting && (header.head_len > GREETING_BYTES_MAX || header.num_tensors > 0) {
                        return Err(malformed());
                    }
                    // A long head grows as it arrives: a peer's word alone doesn't allocate memory.
                    self.head = Vec::with_capacity(header.head_len.min(BUFFER_BYTES));
                    self.expected = Expected::Head(header);
                }
                Expected::Head(header) => {
                    let count = (header.head_len - self.head.len()).min(self.end - self.start);
                    self.head.extend_from_slice(&self.buffer[self.start..self.start + count]);
                    self.start += count;
                    if self.head.len() < header.head_len {
                        return Ok(None);
                    }
                    self.read_heads(header.num_tensors)?;
                    self.expected = Expected::Contents(header);
                }
                Expected::Contents(header) => {
                    if !self.contents()? {
                        return Ok(None);
                    }
                    self.expected = Expected::Header;
                    return Ok(Some(Event::Frame(InFrame {
                        kind: header.kind,
                        id: header.id,
                        tensors: std::mem::take(&mut self.tensors),
                        head: std::mem::take(&mut self.head),
                        fields_at: self.fields_at,
                    })));
                }
            }
        }
    }

    /// Takes this many bytes out of the buffer, if they have arrived.
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.buffer[self.start..self.end].get(..count)?;
        self.start += count;
        Some(taken)
    }

    fn read_heads(&mut self, num_tensors: u32) -> Result<()> {
        let mut fields = Fields::new(&self.head);
        for _ in 0..num_tensors {
            self.heads.push(TensorHead::read(&mut fields)?);
        }
        self.fields_at = self.head.len() - fields.len();
        self.heads.reverse();
        Ok(())
    }

    /// Builds tensors of the contents that have arrived; returns whether those of the frame are complete.
    fn contents(&mut self) -> Result<bool> {
        loop {
            if let Some(mut arriving) = self.arriving.take() {
                let missing = arriving.content.len() - arriving.filled;
                let count = missing.min(self.end - self.start);
                let bytes =
                    arriving.content.bytes_mut().ok_or_else(|| Status::internal("a new buffer has another owner"))?;
                copy_bytes(
                    &mut bytes[arriving.filled..arriving.filled + count],
                    &self.buffer[self.start..self.start + count],
                );
                self.start += count;
                arriving.filled += count;
                if count < missing {
                    self.arriving = Some(arriving);
                    return Ok(false);
                }
                self.tensors.push(arriving.tensor.finish(arriving.content)?);
            }
            let Some(tensor) = self.heads.pop() else { return Ok(true) };
            match tensor.shared {
                Some((place, token)) => {
                    let (memory, releases) = self.shared.as_ref().ok_or_else(malformed)?;
                    let region = SharedRegion::new(memory.clone(), place, tensor.content_len, token, releases)?;
                    self.tensors.push(tensor.finish(Buffer::foreign(region))?);
                }
                None => {
                    let len = tensor.content_len;
                    if len > RESERVED_BYTES_MAX {
                        return Err(Status::resource_exhausted(format!(
                            "a tensor of {len} bytes is too large for a stream"
                        )));
                    }
                    self.arriving = Some(Arriving { tensor, content: Buffer::new(len)?, filled: 0 });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::FrameWriter;
    use super::*;
    use tensor::Shape;

    fn tensors() -> Vec<(Tensor, bool)> {
        vec![
            (Tensor::scalar(1.5f32), false),
            (Tensor::from_slice(&[30, 2], &[2i64; 60]).unwrap(), false),
            (Tensor::vector::<f32>(&[]), true),
            (Tensor::from_strings(Shape::vector(2), vec!["a".into(), vec![7u8; 90].into()]).unwrap(), false),
        ]
    }

    fn frame(kind: Kind, id: u64, tensors: &[(Tensor, bool)]) -> Vec<u8> {
        let tensors = tensors.iter().map(|(tensor, is_dead)| (tensor, *is_dead));
        let mut writer = FrameWriter::new(kind, id, tensors, &|_| None).unwrap();
        writer.text(b"key");
        writer.finish().unwrap().pieces.concat()
    }

    /// Three frames, each as its bytes.
    fn frames() -> [Vec<u8>; 3] {
        [frame(Kind::Tensor, 7, &tensors()), frame(Kind::Cancel, 8, &[]), frame(Kind::RunGraph, 9, &tensors()[..2])]
    }

    /// Describes a frame.
    fn told(frame: &InFrame) -> String {
        let tensors: Vec<_> = frame
            .tensors
            .iter()
            .map(|(tensor, is_dead)| format!("{is_dead} {:?}", tensor::tensor_to_proto(tensor).unwrap()))
            .collect();
        let tensors = tensors.join(", ");
        format!("{:?} {} {} {tensors}", frame.kind, frame.id, frame.fields().text().unwrap_or("no text"))
    }

    /// Gives a decoder bytes in pieces that end at `cuts`; returns the frames, and whether the bytes ended between two.
    fn decode(bytes: &[u8], cuts: impl IntoIterator<Item = usize>) -> Result<(Vec<String>, bool)> {
        let mut decoder = Decoder::new();
        decoder.greeted();
        let mut events = Vec::new();
        let mut at = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            while at < cut {
                let space = decoder.space();
                let count = space.len().min(cut - at);
                assert!(count > 0, "there is always room");
                space[..count].copy_from_slice(&bytes[at..at + count]);
                decoder.filled(count);
                at += count;
                while let Some(event) = decoder.next()? {
                    if let Event::Frame(frame) = event {
                        events.push(told(&frame));
                    }
                }
            }
        }
        Ok((events, decoder.is_between_frames()))
    }

    fn stream(frames: &[&[u8]]) -> Vec<u8> {
        [&PREFACE[..], &frames.concat()].concat()
    }

    fn all() -> Vec<u8> {
        let [first, second, third] = frames();
        stream(&[&first, &second, &third])
    }

    #[test]
    fn frames_are_the_same_wherever_the_bytes_are_cut() {
        let bytes = all();
        let (expected, is_whole) = decode(&bytes, []).unwrap();
        assert_eq!((expected.len(), is_whole), (3, true));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes, [cut]).unwrap().0, expected, "cut at {cut}");
        }
        for size in 1..40 {
            assert_eq!(decode(&bytes, (0..bytes.len()).step_by(size)).unwrap().0, expected, "pieces of {size}");
        }
    }

    #[test]
    fn an_end_within_a_frame_is_told_from_one_between_two() {
        let bytes = all();
        let mut ends = vec![PREFACE.len()];
        frames().iter().for_each(|frame| ends.push(ends[ends.len() - 1] + frame.len()));
        for end in 0..=bytes.len() {
            let (events, is_between) = decode(&bytes[..end], []).unwrap();
            assert_eq!(is_between, ends.contains(&end), "an end at {end}");
            assert_eq!(events.len(), ends.iter().filter(|&&frame| frame <= end).count().saturating_sub(1));
        }
    }

    #[test]
    fn frames_that_come_twice_or_in_another_order_are_those_frames() {
        let [first, second, third] = frames();
        let alone = |frame: &[u8]| decode(&stream(&[frame]), []).unwrap().0;
        for order in [[&first, &first, &second], [&third, &second, &first], [&second, &second, &second]] {
            let order = order.map(Vec::as_slice);
            let expected: Vec<String> = order.iter().flat_map(|frame| alone(frame)).collect();
            assert_eq!(decode(&stream(&order), []).unwrap().0, expected);
            assert_eq!(decode(&stream(&order), [11, 100]).unwrap().0, expected);
        }
    }

    #[test]
    fn damage_is_an_error_or_another_frame_and_never_a_panic() {
        let bytes = all();
        let mut num_refused = 0;
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                match decode(&damaged, [at]) {
                    // A length that is too large leaves the rest pending; nothing else may withhold a frame.
                    Ok((events, is_between)) => assert!(events.len() >= 3 || !is_between, "{at} {change}: {events:?}"),
                    Err(status) => {
                        assert_ne!(status.code(), tensor::Code::Internal, "{at} {change}: {status}");
                        num_refused += 1;
                    }
                }
            }
        }
        assert!(num_refused > 100, "{num_refused}");
    }

    #[test]
    fn large_contents_arrive_straight_and_around_the_buffer() {
        let large = Tensor::vector(&(0..100_000u32).map(|number| number as i32).collect::<Vec<i32>>());
        let bytes = stream(&[&frame(Kind::Tensor, 1, &[(large.clone(), false)]), &frames()[1], &frames()[2]]);
        let expected = decode(&bytes, []).unwrap();
        assert_eq!((expected.0.len(), expected.1), (3, true));
        assert!(expected.0[0].contains(&format!("{:?}", tensor::tensor_to_proto(&large).unwrap())));
        for size in [1000, 65_535, 65_536, 65_537, 131_072, 399_999] {
            assert_eq!(decode(&bytes, (0..bytes.len()).step_by(size)).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_long_head_takes_no_memory_before_it_arrives() {
        let mut decoder = Decoder::new();
        decoder.greeted();
        let mut header = frame(Kind::Error, 1, &[])[..HEADER_BYTES].to_vec();
        header[8..12].copy_from_slice(&(200u32 << 20).to_le_bytes());
        let bytes = stream(&[&header]);
        decoder.space()[..bytes.len()].copy_from_slice(&bytes);
        decoder.filled(bytes.len());
        assert!(matches!(decoder.next(), Ok(Some(Event::Preface))));
        assert!(matches!(decoder.next(), Ok(None)));
        assert!(decoder.head.capacity() <= BUFFER_BYTES);
    }

    #[test]
    fn who_greets_may_neither_send_tensors_nor_say_much() {
        let mut long = frame(Kind::Hello, 4, &[]);
        long[8..12].copy_from_slice(&(GREETING_BYTES_MAX as u32 + 1).to_le_bytes());
        for refused in [frames()[0].clone(), long] {
            let mut decoder = Decoder::new();
            let bytes = stream(&[&refused]);
            decoder.space()[..bytes.len()].copy_from_slice(&bytes);
            decoder.filled(bytes.len());
            assert!(matches!(decoder.next(), Ok(Some(Event::Preface))));
            assert!(decoder.next().is_err());
        }
    }
}
