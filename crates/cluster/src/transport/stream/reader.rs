//! [`FrameReader`]: frames out of a socket; the contents of large tensors go straight into aligned buffers of their own.

use super::frame::{Fields, HEADER_BYTES, Header, Kind, PREFACE, TensorHead, check_preface, malformed};
use super::releases::Releases;
use super::shared_memory::{PeerMemory, SharedRegion};
use super::socket::Socket;
use smallvec::SmallVec;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;
use tensor::{Buffer, Result, Status, Tensor, copy_bytes};

/// What is read at once. Small frames come several at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Contents beyond this are read into memory as they arrive rather than reserved at a peer's word.
const RESERVED_BYTES_MAX: usize = 4 << 30;

/// A bound on a frame of somebody who has not said yet who it is.
const GREETING_BYTES_MAX: usize = 48 << 10;

/// A frame that has arrived.
pub(super) struct InFrame {
    /// What it says.
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

/// Reads frames.
pub(super) struct FrameReader {
    socket: Arc<Socket>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The peer's heap, and where it is noted what is needed no longer.
    shared: Option<(Arc<PeerMemory>, Arc<Releases>)>,
    /// While the peers greet each other: until when, and the file that came beside the bytes.
    greeting: Option<(Instant, Option<OwnedFd>)>,
}

impl FrameReader {
    /// Makes a reader of a connection that begins: until [`greeted`](Self::greeted) everything must arrive before `deadline`.
    pub fn new(socket: Arc<Socket>, deadline: Instant) -> FrameReader {
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        FrameReader { socket, buffer, start: 0, end: 0, shared: None, greeting: Some((deadline, None)) }
    }

    /// Reads the first bytes; others than a stream begins with are an error.
    pub async fn preface(&mut self) -> Result<()> {
        let mut found = [0; PREFACE.len()];
        self.read_exact(&mut found).await?;
        check_preface(&found)
    }

    /// Returns the file that came along with the greeting.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.greeting.as_mut().and_then(|(_, file)| file.take())
    }

    /// Ends the greeting: from now on the peer may say what it wants, when it wants.
    pub fn greeted(&mut self) -> Result<()> {
        self.greeting = None;
        self.socket.set_deadline(None).map_err(|error| lost(&error))
    }

    /// Reads the next frame; `None` is the end of the connection between two frames.
    pub async fn next(&mut self) -> Result<Option<InFrame>> {
        let mut header = [0; HEADER_BYTES];
        if self.start == self.end && !self.refill().await? {
            return Ok(None);
        }
        self.read_exact(&mut header).await?;
        let header = Header::read(&header)?;
        if self.greeting.is_some() && (header.head_len > GREETING_BYTES_MAX || header.num_tensors > 0) {
            return Err(malformed());
        }
        let mut head = vec![0; header.head_len];
        self.read_exact(&mut head).await?;
        let mut fields = Fields::new(&head);
        let mut heads = SmallVec::<[TensorHead; 2]>::new();
        for _ in 0..header.num_tensors {
            heads.push(TensorHead::read(&mut fields)?);
        }
        let fields_at = head.len() - fields.len();
        let mut tensors = SmallVec::new();
        for tensor in heads {
            let content = match tensor.shared {
                None => self.content(tensor.content_len).await?,
                Some((place, token)) => {
                    let (memory, releases) = self.shared.as_ref().ok_or_else(malformed)?;
                    let region = SharedRegion::new(memory.clone(), place, tensor.content_len, token, releases)?;
                    Buffer::foreign(region)
                }
            };
            tensors.push(tensor.finish(content)?);
        }
        Ok(Some(InFrame { kind: header.kind, id: header.id, tensors, head, fields_at }))
    }

    /// Lets tensors come from a peer's heap.
    pub fn share(&mut self, memory: PeerMemory, releases: &Arc<Releases>) {
        self.shared = Some((Arc::new(memory), releases.clone()));
    }

    async fn content(&mut self, len: usize) -> Result<Buffer> {
        if len > RESERVED_BYTES_MAX {
            return Err(Status::resource_exhausted(format!("a tensor of {len} bytes is too large for a stream")));
        }
        let mut content = Buffer::new(len)?;
        let bytes = content.bytes_mut().ok_or_else(|| Status::internal("a new buffer has another owner"))?;
        self.read_exact(bytes).await?;
        Ok(content)
    }

    async fn read_exact(&mut self, mut into: &mut [u8]) -> Result<()> {
        loop {
            let count = into.len().min(self.end - self.start);
            copy_bytes(&mut into[..count], &self.buffer[self.start..self.start + count]);
            self.start += count;
            into = &mut into[count..];
            if into.is_empty() {
                return Ok(());
            }
            if into.len() >= self.buffer.len() {
                // Straight to where it belongs.
                let count = self.socket.read(into).await.map_err(|error| lost(&error))?;
                if count == 0 {
                    return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
                }
                into = &mut into[count..];
                if into.is_empty() {
                    return Ok(());
                }
            } else if !self.refill().await? {
                return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Reads into the empty buffer; returns whether there was anything.
    async fn refill(&mut self) -> Result<bool> {
        let outcome = match &mut self.greeting {
            None => self.socket.read(&mut self.buffer).await,
            Some((deadline, file)) => self.socket.read_first(&mut self.buffer, file, *deadline).await,
        };
        let count = match outcome {
            Err(error) if self.greeting.is_some() && error.kind() == io::ErrorKind::TimedOut => {
                return Err(no_greeting());
            }
            outcome => outcome.map_err(|error| lost(&error))?,
        };
        (self.start, self.end) = (0, count);
        Ok(count > 0)
    }
}

/// The error for a peer that does not say in time who it is.
pub(super) fn no_greeting() -> Status {
    Status::unavailable("the peer did not say in time who it is")
}

fn lost(error: &io::Error) -> Status {
    Status::unavailable(format!("the connection broke: {error}"))
}
