//! [`Hello`]: the first frame in both directions, with the task's identity and protocol version.
//!
//! A task of another version gets no stream: its offer ([`StreamOffer`](super::StreamOffer)) has that version, so masters use
//! gRPC between the two. A Hello that arrives anyway is refused.

use super::StreamHub;
use super::decoder::InFrame;
use super::frame::{FrameWriter, Kind, OutFrame, VERSION, malformed, other_version};
use super::messages;
use smallvec::SmallVec;
use tensor::Result;

/// The most devices of a peer.
const INCARNATIONS_MAX: u64 = 1 << 12;

/// A peer's greeting.
pub(super) struct Hello {
    /// The incarnation that it expects here; 0 for any.
    pub receiver: u64,
    /// Whether it can share its memory with us.
    pub offers_memory: bool,
    /// The incarnations of its devices, at least one.
    pub incarnations: SmallVec<[u64; 2]>,
    /// The task and address that it claims.
    pub task: String,
    pub address: String,
    /// The proof of its identity.
    pub secret: String,
    /// The incarnations that are proven.
    pub proven: Proven,
}

impl Hello {
    /// Writes the frame.
    pub fn write(
        receiver: u64,
        offers_memory: bool,
        incarnations: &[u64],
        task: &str,
        address: &str,
        secret: &str,
    ) -> Result<OutFrame> {
        let mut writer = FrameWriter::plain(Kind::Hello, VERSION);
        writer.u64(receiver);
        writer.u64(u64::from(offers_memory));
        writer.u64(incarnations.len() as u64);
        for &incarnation in incarnations {
            writer.u64(incarnation);
        }
        writer.text(task.as_bytes());
        writer.text(address.as_bytes());
        writer.text(secret.as_bytes());
        writer.finish()
    }

    /// Parses a peer's greeting.
    pub fn read(frame: &InFrame) -> Result<Hello> {
        if frame.kind == Kind::Error {
            return Err(messages::read_error(frame.fields())?);
        }
        if frame.kind != Kind::Hello {
            return Err(malformed());
        }
        if frame.id != VERSION {
            return Err(other_version(Some(frame.id)));
        }
        let mut fields = frame.fields();
        let receiver = fields.u64()?;
        let offers_memory = fields.u64()? != 0;
        let count = fields.u64()?;
        if count == 0 || count > INCARNATIONS_MAX {
            return Err(malformed());
        }
        let incarnations = (0..count).map(|_| fields.u64()).collect::<Result<_>>()?;
        let task = fields.text()?.to_owned();
        let address = fields.text()?.to_owned();
        let secret = fields.text()?.to_owned();
        Ok(Hello { receiver, offers_memory, incarnations, task, address, secret, proven: Proven::new() })
    }
}

/// The proven incarnations of a peer's devices; none if its identity isn't proven.
pub(super) type Proven = SmallVec<[u64; 2]>;

impl StreamHub {
    /// Returns this task's greeting.
    pub(super) fn hello(&self, receiver: u64, offers_memory: bool, secret: &str) -> Result<OutFrame> {
        let address = self.own_address();
        Hello::write(receiver, offers_memory, &self.incarnations, &self.task, &address, secret)
    }
}
