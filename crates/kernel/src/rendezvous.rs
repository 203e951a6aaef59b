//! The [`Rendezvous`], where a step's sends and receives meet. Rendezvous keys are made only in this module.

use foldhash::{HashMap, HashMapExt};
use graph::AttrMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// The loop frame and iteration in which a node runs. Outside of loops both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameAndIteration {
    /// The frame's id, as it appears in rendezvous keys.
    pub frame: u64,
    /// The iteration.
    pub iteration: i64,
}

/// The key of a transfer: `source device;incarnation;destination device;edge name;frame:iteration`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RendezvousKey {
    full: Arc<str>,
    /// The ends of the parts in `full`.
    ends: [u32; 4],
    /// The address that the tensor is pushed to, if the receiver does not ask for it.
    push_to: Option<Arc<str>>,
}

impl RendezvousKey {
    /// Returns the key with these parts.
    pub fn new(
        source: &str,
        incarnation: u64,
        destination: &str,
        edge: &str,
        frame: u64,
        iteration: i64,
    ) -> RendezvousKey {
        let text = format!("{source};{incarnation:016x};{destination};{edge};{frame}:{iteration}");
        RendezvousKey::parse(&text).unwrap_or_else(|_| RendezvousKey { full: text.into(), ends: [0; 4], push_to: None })
    }

    /// Parses a key.
    pub fn parse(text: &str) -> Result<RendezvousKey> {
        let malformed = || Status::invalid_argument(format!("Invalid rendezvous key: {text}"));
        let mut ends = [0u32; 4];
        let mut separators = text.match_indices(';');
        for end in &mut ends {
            *end = u32::try_from(separators.next().ok_or_else(malformed)?.0).map_err(|_| malformed())?;
        }
        let key = RendezvousKey { full: text.into(), ends, push_to: None };
        u64::from_str_radix(key.part(1), 16).map_err(|_| malformed())?;
        Ok(key)
    }

    /// Returns the key of a transfer whose tensor is pushed to an address that the rendezvous understands.
    pub fn pushed_to(self, address: Option<Arc<str>>) -> RendezvousKey {
        RendezvousKey { push_to: address, ..self }
    }

    /// Returns the address that the tensor is pushed to, or `None` if the receiver asks for it.
    pub fn push_to(&self) -> Option<&Arc<str>> {
        self.push_to.as_ref()
    }

    /// Returns the part of a key that is the same in all frames and iterations.
    pub fn edge_of(text: &str) -> Option<&str> {
        text.rsplit_once(';').map(|(edge, _)| edge)
    }

    fn part(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize + 1 };
        let end = self.ends.get(index).map_or(self.full.len(), |&end| end as usize);
        self.full.get(start..end).unwrap_or("")
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// Returns the key as shared text.
    pub fn shared(&self) -> &Arc<str> {
        &self.full
    }

    /// Returns the source device.
    pub fn source_device(&self) -> &str {
        self.part(0)
    }

    /// Returns the incarnation of the source device.
    pub fn source_incarnation(&self) -> u64 {
        u64::from_str_radix(self.part(1), 16).unwrap_or(0)
    }

    /// Returns the destination device.
    pub fn destination_device(&self) -> &str {
        self.part(2)
    }

    /// Returns the name of the edge.
    pub fn edge_name(&self) -> &str {
        self.part(3)
    }
}

/// The attribute of a Send and its Recv with the address that the tensor is pushed to, if it is pushed.
const PUSH_TO: &str = "_push_to";

/// A transfer, from whose description in their attributes a Send and its Recv derive their keys.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// The key outside of loops, which is nearly always the one that is used.
    outermost: RendezvousKey,
    /// The end of the part of the key that is the same in all frames and iterations.
    edge_end: usize,
}

impl Transfer {
    /// Reads the attributes of a Send or a Recv.
    pub fn new(attrs: &AttrMap) -> Result<Transfer> {
        let source = attrs.string("send_device")?;
        let incarnation = attrs.int("send_device_incarnation")? as u64;
        let destination = attrs.string("recv_device")?;
        let name = attrs.string("tensor_name")?;
        let outermost = RendezvousKey::new(&source, incarnation, &destination, &name, 0, 0);
        // Attributes come from outside; parts that contain the separator would make an invalid key.
        if [&source, &destination, &name].iter().any(|part| part.contains(';')) {
            return Err(Status::invalid_argument(format!("Invalid rendezvous key: {}", outermost.as_str())));
        }
        let outermost = outermost.pushed_to(attrs.string(PUSH_TO).ok().map(Arc::from));
        let edge_end = RendezvousKey::edge_of(outermost.as_str()).map_or(0, str::len);
        Ok(Transfer { outermost, edge_end })
    }

    /// Returns whether the attributes belong to a feed from the client or a fetch to it.
    pub fn is_with_client(attrs: &AttrMap) -> bool {
        attrs.bool("client_terminated").unwrap_or(false)
    }

    /// Marks a Send or Recv whose tensor is pushed to an address.
    pub fn mark_pushed(attrs: &mut AttrMap, address: &str) {
        attrs.set(PUSH_TO, address);
    }

    /// Returns the key outside of loops.
    pub fn key(&self) -> &RendezvousKey {
        &self.outermost
    }

    /// Calls `f` with the key in a frame and iteration.
    pub fn with_key<R>(&self, at: FrameAndIteration, f: impl FnOnce(&RendezvousKey) -> R) -> R {
        if at == FrameAndIteration::default() {
            return f(&self.outermost);
        }
        let full = format!("{};{}:{}", self.edge(), at.frame, at.iteration).into();
        f(&RendezvousKey { full, ends: self.outermost.ends, push_to: self.outermost.push_to.clone() })
    }

    /// Returns the part of the key that is the same in all frames and iterations.
    pub fn edge(&self) -> &str {
        self.outermost.as_str().get(..self.edge_end).unwrap_or("")
    }
}

/// Receives the tensor, and whether it is dead.
pub type ReceiveDone = Box<dyn FnOnce(Result<(Tensor, bool)>) + Send>;

/// Where a step's sends and receives meet, within this process or across processes.
pub trait Rendezvous: Send + Sync {
    /// Sends a tensor, without waiting. It may be held back until [`flush`](Self::flush), so that several are sent together.
    fn send(&self, key: &RendezvousKey, tensor: Tensor, is_dead: bool) -> Result<()>;

    /// Calls `done` when the tensor has arrived, possibly at once on this thread.
    fn receive(&self, key: &RendezvousKey, done: ReceiveDone);

    /// Sends the tensors that were held back. The executor calls this when a step pauses, and before it starts long work.
    fn flush(&self) {}

    /// Fails all current and later sends and receives.
    fn abort(&self, status: Status);
}

/// A rendezvous within one process.
pub struct LocalRendezvous {
    state: Mutex<State>,
}

struct State {
    table: HashMap<Arc<str>, Slot>,
    aborted: Option<Status>,
}

enum Slot {
    Arrived(VecDeque<(Tensor, bool)>),
    Waiting(VecDeque<ReceiveDone>),
}

impl Default for LocalRendezvous {
    fn default() -> Self {
        LocalRendezvous::new()
    }
}

impl LocalRendezvous {
    /// Returns an empty rendezvous.
    pub fn new() -> LocalRendezvous {
        LocalRendezvous { state: Mutex::new(State { table: HashMap::new(), aborted: None }) }
    }

    /// As [`Rendezvous::send`], with the key as text.
    pub fn send_by_name(&self, key: &Arc<str>, tensor: Tensor, is_dead: bool) -> Result<()> {
        let waiter = {
            let mut state = self.state.lock();
            if let Some(status) = &state.aborted {
                return Err(status.clone());
            }
            match state.table.get_mut(key) {
                Some(Slot::Waiting(waiting)) => {
                    let waiter = waiting.pop_front();
                    if waiting.is_empty() {
                        state.table.remove(key);
                    }
                    waiter
                }
                Some(Slot::Arrived(arrived)) => {
                    arrived.push_back((tensor, is_dead));
                    return Ok(());
                }
                None => {
                    state.table.insert(key.clone(), Slot::Arrived(VecDeque::from([(tensor, is_dead)])));
                    return Ok(());
                }
            }
        };
        if let Some(waiter) = waiter {
            waiter(Ok((tensor, is_dead)));
        }
        Ok(())
    }

    /// As [`Rendezvous::receive`], with the key as text.
    pub fn receive_by_name(&self, key: &Arc<str>, done: ReceiveDone) {
        let arrived = {
            let mut state = self.state.lock();
            if let Some(status) = &state.aborted {
                Err(status.clone())
            } else {
                match state.table.get_mut(key) {
                    Some(Slot::Arrived(arrived)) => {
                        let first = arrived.pop_front();
                        if arrived.is_empty() {
                            state.table.remove(key);
                        }
                        first.ok_or_else(|| Status::internal("an empty rendezvous slot"))
                    }
                    Some(Slot::Waiting(waiting)) => {
                        waiting.push_back(done);
                        return;
                    }
                    None => {
                        state.table.insert(key.clone(), Slot::Waiting(VecDeque::from([done])));
                        return;
                    }
                }
            }
        };
        done(arrived);
    }
}

impl LocalRendezvous {
    /// Returns whether the key of a waiting receive satisfies a condition.
    pub fn any_waiting(&self, condition: impl Fn(&str) -> bool) -> bool {
        let state = self.state.lock();
        state.table.iter().any(|(key, slot)| matches!(slot, Slot::Waiting(_)) && condition(key))
    }
}

impl Rendezvous for LocalRendezvous {
    fn send(&self, key: &RendezvousKey, tensor: Tensor, is_dead: bool) -> Result<()> {
        self.send_by_name(&key.full, tensor, is_dead)
    }

    fn receive(&self, key: &RendezvousKey, done: ReceiveDone) {
        self.receive_by_name(&key.full, done);
    }

    fn abort(&self, status: Status) {
        let table = {
            let mut state = self.state.lock();
            if state.aborted.is_none() {
                state.aborted = Some(status.clone());
            }
            std::mem::take(&mut state.table)
        };
        // In the order of their keys, so that a simulation repeats.
        let mut table: Vec<(Arc<str>, Slot)> = table.into_iter().collect();
        table.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        for (_, slot) in table {
            if let Slot::Waiting(waiting) = slot {
                for done in waiting {
                    done(Err(status.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_parts() {
        let key = RendezvousKey::new(
            "/job:ps/replica:0/task:0/device:CPU:0",
            255,
            "/job:w/replica:0/task:0/device:CPU:0",
            "edge_1_x",
            0,
            0,
        );
        assert_eq!(
            key.as_str(),
            "/job:ps/replica:0/task:0/device:CPU:0;00000000000000ff;/job:w/replica:0/task:0/device:CPU:0;edge_1_x;0:0"
        );
        assert_eq!(key.source_incarnation(), 255);
        assert_eq!(key.edge_name(), "edge_1_x");
        assert!(RendezvousKey::parse("a;b").is_err());
        assert!(RendezvousKey::parse("a;zz;c;d;0:0").is_err());
    }

    #[test]
    fn a_send_and_its_recv_have_the_same_keys_in_all_frames() {
        let mut attrs = AttrMap::default();
        for (name, value) in [("send_device", "a"), ("recv_device", "b"), ("tensor_name", "x:0")] {
            attrs.set(name, value);
        }
        assert!(Transfer::new(&attrs).is_err(), "it has no incarnation");
        attrs.set("send_device_incarnation", -1i64);
        Transfer::mark_pushed(&mut attrs, "tcp:m:1#7");
        let transfer = Transfer::new(&attrs).unwrap();
        assert_eq!(transfer.key().as_str(), "a;ffffffffffffffff;b;x:0;0:0");
        assert_eq!(transfer.edge(), "a;ffffffffffffffff;b;x:0");
        assert_eq!(RendezvousKey::edge_of(transfer.key().as_str()), Some(transfer.edge()));
        transfer.with_key(FrameAndIteration { frame: 7, iteration: 12 }, |key| {
            let made = RendezvousKey::new("a", u64::MAX, "b", "x:0", 7, 12);
            assert_eq!(*key, made.pushed_to(Some("tcp:m:1#7".into())));
            assert_eq!((key.destination_device(), key.edge_name()), ("b", "x:0"));
        });
        assert!(!Transfer::is_with_client(&attrs));
        attrs.set("tensor_name", "x;0");
        assert!(Transfer::new(&attrs).unwrap_err().message().contains("Invalid rendezvous key"));
    }

    #[test]
    fn either_may_come_first_and_abort_tells_who_waits() {
        let rendezvous = LocalRendezvous::new();
        let key = |edge: &str| RendezvousKey::new("a", 1, "b", edge, 0, 0);
        rendezvous.send(&key("x"), Tensor::scalar(1i32), false).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        for edge in ["x", "y"] {
            let sender = sender.clone();
            rendezvous.receive(&key(edge), Box::new(move |result| sender.send(result).unwrap()));
        }
        assert_eq!(receiver.recv().unwrap().unwrap().0.to_scalar::<i32>().unwrap(), 1);
        assert!(receiver.try_recv().is_err());
        rendezvous.abort(Status::aborted("over"));
        assert_eq!(receiver.recv().unwrap().unwrap_err(), Status::aborted("over"));
        assert!(rendezvous.send(&key("z"), Tensor::scalar(1i32), false).is_err());
    }
}
