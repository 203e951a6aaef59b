//! [`BufRendezvous`]: where the members of collective ops provide the parts of tensors that other members request. A part is
//! taken once, and its provider is notified: until then its step must not end.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use tensor::{Result, Status, Tensor};
use tokio::sync::oneshot;

/// The parts of one step.
#[derive(Default)]
pub(crate) struct BufRendezvous {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    aborted: Option<Status>,
    slots: HashMap<String, Slot>,
}

enum Slot {
    /// A part that nobody has requested yet.
    Provided { tensor: Tensor, taken: oneshot::Sender<Result<()>> },
    /// A request for a part.
    Wanted(oneshot::Sender<Result<Tensor>>),
}

impl BufRendezvous {
    /// Provides a part. The result is notified when the part was taken.
    pub fn provide(&self, key: &str, tensor: Tensor) -> Result<oneshot::Receiver<Result<()>>> {
        let (taken, is_taken) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(status) = &state.aborted {
            return Err(status.clone());
        }
        match state.slots.entry(key.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Slot::Provided { tensor, taken });
            }
            Entry::Occupied(occupied) => {
                if let Slot::Provided { .. } = occupied.get() {
                    return Err(Status::internal(format!("BufRendezvous::ProvideBuf already called for key {key}")));
                }
                let Slot::Wanted(wanted) = occupied.remove() else { return Ok(is_taken) };
                match wanted.send(Ok(tensor)) {
                    Ok(()) => drop(taken.send(Ok(()))),
                    // The requester has disconnected, and may ask again.
                    Err(Ok(tensor)) => drop(state.slots.insert(key.to_owned(), Slot::Provided { tensor, taken })),
                    Err(Err(_)) => {}
                }
            }
        }
        Ok(is_taken)
    }

    /// Requests a part, which may be provided later.
    pub fn consume(&self, key: &str) -> Result<oneshot::Receiver<Result<Tensor>>> {
        let (wanted, part) = oneshot::channel();
        let mut state = self.state.lock();
        if let Some(status) = &state.aborted {
            return Err(status.clone());
        }
        match state.slots.remove(key) {
            Some(Slot::Provided { tensor, taken }) => {
                let _ = wanted.send(Ok(tensor));
                let _ = taken.send(Ok(()));
            }
            Some(Slot::Wanted(earlier)) if !earlier.is_closed() => {
                state.slots.insert(key.to_owned(), Slot::Wanted(earlier));
                return Err(Status::internal(format!("Second consumer arrived for key {key}")));
            }
            _ => {
                state.slots.insert(key.to_owned(), Slot::Wanted(wanted));
            }
        }
        Ok(part)
    }

    /// Fails all current and future requests.
    pub fn abort(&self, status: &Status) {
        let slots = {
            let mut state = self.state.lock();
            if state.aborted.is_none() {
                state.aborted = Some(status.clone());
            }
            std::mem::take(&mut state.slots)
        };
        for slot in slots.into_values() {
            match slot {
                Slot::Provided { taken, .. } => drop(taken.send(Err(status.clone()))),
                Slot::Wanted(wanted) => drop(wanted.send(Err(status.clone()))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(part: &mut oneshot::Receiver<Result<Tensor>>) -> i32 {
        part.try_recv().unwrap().unwrap().to_scalar().unwrap()
    }

    #[test]
    fn a_part_is_taken_once_whoever_comes_first() {
        let parts = BufRendezvous::default();
        let mut taken = parts.provide("a", Tensor::scalar(1i32)).unwrap();
        assert!(taken.try_recv().is_err(), "nobody has asked");
        assert_eq!(value(&mut parts.consume("a").unwrap()), 1);
        taken.try_recv().unwrap().unwrap();
        let mut wanted = parts.consume("b").unwrap();
        assert!(parts.consume("b").unwrap_err().message().contains("Second consumer"));
        parts.provide("b", Tensor::scalar(2i32)).unwrap().try_recv().unwrap().unwrap();
        assert_eq!(value(&mut wanted), 2);
        parts.provide("c", Tensor::scalar(3i32)).unwrap();
        assert!(parts.provide("c", Tensor::scalar(3i32)).unwrap_err().message().contains("already called"));
    }

    #[test]
    fn who_has_asked_and_is_gone_may_ask_again() {
        let parts = BufRendezvous::default();
        drop(parts.consume("a").unwrap());
        let mut taken = parts.provide("a", Tensor::scalar(1i32)).unwrap();
        assert!(taken.try_recv().is_err());
        drop(parts.consume("b").unwrap());
        let mut again = parts.consume("b").unwrap();
        parts.provide("b", Tensor::scalar(2i32)).unwrap();
        assert_eq!(value(&mut again), 2);
        assert_eq!(value(&mut parts.consume("a").unwrap()), 1);
        taken.try_recv().unwrap().unwrap();
    }

    #[test]
    fn the_end_of_a_step_is_told_to_all() {
        let parts = BufRendezvous::default();
        let mut wanted = parts.consume("a").unwrap();
        let mut taken = parts.provide("b", Tensor::scalar(1i32)).unwrap();
        let over = Status::unavailable("task 2 is gone");
        parts.abort(&over);
        assert_eq!(wanted.try_recv().unwrap().unwrap_err(), over);
        assert_eq!(taken.try_recv().unwrap().unwrap_err(), over);
        assert_eq!(parts.consume("a").unwrap_err(), over);
        assert_eq!(parts.provide("a", Tensor::scalar(1i32)).unwrap_err(), over);
    }
}
