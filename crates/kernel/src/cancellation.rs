//! [`Cancellation`]: cancels everything that waits in a step, or in a whole server.

use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::Status;

/// Identifies a registered callback, so that it can be deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CancellationToken(u64);

type Callback = Box<dyn FnOnce(Status) + Send>;

/// A flag that can be raised once, with callbacks to run when it is. Cloning shares it.
#[derive(Clone)]
pub struct Cancellation {
    shared: Arc<Mutex<State>>,
}

struct State {
    cancelled: Option<Status>,
    callbacks: HashMap<u64, Callback>,
    next_token: u64,
}

impl Default for Cancellation {
    fn default() -> Self {
        Cancellation::new()
    }
}

impl Cancellation {
    /// Returns a flag that is not raised.
    pub fn new() -> Cancellation {
        let state = State { cancelled: None, callbacks: HashMap::new(), next_token: 1 };
        Cancellation { shared: Arc::new(Mutex::new(state)) }
    }

    /// Raises the flag, and runs the callbacks on this thread. Does nothing if the flag is raised already.
    pub fn cancel(&self, reason: Status) {
        let callbacks = {
            let mut state = self.shared.lock();
            if state.cancelled.is_some() {
                return;
            }
            state.cancelled = Some(reason.clone());
            std::mem::take(&mut state.callbacks)
        };
        // In the order in which they were registered, so that a simulation repeats.
        let mut callbacks: Vec<(u64, Callback)> = callbacks.into_iter().collect();
        callbacks.sort_unstable_by_key(|(token, _)| *token);
        for (_, callback) in callbacks {
            callback(reason.clone());
        }
    }

    /// Returns the reason if the flag is raised.
    pub fn status(&self) -> Option<Status> {
        self.shared.lock().cancelled.clone()
    }

    /// Returns whether the flag is raised.
    pub fn is_cancelled(&self) -> bool {
        self.shared.lock().cancelled.is_some()
    }

    /// Registers a callback. If the flag is raised already, drops the callback and returns the reason.
    pub fn register(&self, callback: impl FnOnce(Status) + Send + 'static) -> Result<CancellationToken, Status> {
        let mut state = self.shared.lock();
        if let Some(status) = &state.cancelled {
            return Err(status.clone());
        }
        let token = state.next_token;
        state.next_token += 1;
        state.callbacks.insert(token, Box::new(callback));
        Ok(CancellationToken(token))
    }

    /// Deregisters a callback. Returns whether it was still registered, in which case it has not run and never will.
    pub fn deregister(&self, token: CancellationToken) -> bool {
        self.shared.lock().callbacks.remove(&token.0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn callbacks_run_once_and_only_when_still_wanted() {
        let cancellation = Cancellation::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let count = |calls: &Arc<AtomicUsize>| {
            let calls = calls.clone();
            move |_| {
                calls.fetch_add(1, Ordering::SeqCst);
            }
        };
        cancellation.register(count(&calls)).unwrap();
        let unwanted = cancellation.register(count(&calls)).unwrap();
        assert!(cancellation.deregister(unwanted));
        cancellation.cancel(Status::cancelled("stop"));
        cancellation.cancel(Status::internal("again"));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(cancellation.register(|_| {}).unwrap_err(), Status::cancelled("stop"));
    }
}
