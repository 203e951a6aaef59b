//! [`Hello`]: the first frame in both directions, which says who a task is and which version of the protocol it speaks.
//!
//! A task that speaks another version gets no stream: its offer ([`StreamOffer`](super::StreamOffer)) has another version in it, so
//! that masters use gRPC between the two, and a Hello that comes all the same is refused.

use super::StreamHub;
use super::decoder::InFrame;
use super::frame::{FrameWriter, Kind, OutFrame, VERSION, malformed, other_version};
use super::messages;
use smallvec::SmallVec;
use tensor::Result;

/// A bound on the devices that a peer names.
const INCARNATIONS_MAX: u64 = 1 << 12;

/// What a peer says of itself.
pub(super) struct Hello {
    /// Whom it expects here; 0 for whoever is there.
    pub receiver: u64,
    /// Whether it would share its memory with us.
    pub offers_memory: bool,
    /// The incarnations of its devices, at least one.
    pub incarnations: SmallVec<[u64; 2]>,
    /// Which task it says it is, and at which address.
    pub task: String,
    pub address: String,
    /// What proves it.
    pub secret: String,
    /// The incarnations that it is proven to have.
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

    /// Reads what a peer says of itself.
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

/// The incarnations of a task's devices that a peer is proven to have; none when it may be anybody.
pub(super) type Proven = SmallVec<[u64; 2]>;

impl StreamHub {
    /// Says who this is.
    pub(super) fn hello(&self, receiver: u64, offers_memory: bool, secret: &str) -> Result<OutFrame> {
        let address = self.own_address();
        Hello::write(receiver, offers_memory, &self.incarnations, &self.task, &address, secret)
    }
}
