//! [`Monitor`]: state that asynchronous kernels wait for, without holding a thread.
//!
//! A waiter proceeds as soon as its attempt succeeds; after every success the others try again, oldest first.

use kernel::{AsyncContext, CancellationToken};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// State with a line of those who wait for it to change.
pub(super) struct Monitor<S> {
    shared: Mutex<Shared<S>>,
}

struct Shared<S> {
    state: S,
    waiters: Vec<Waiter<S>>,
    next_waiter: u64,
}

struct Waiter<S> {
    id: u64,
    context: AsyncContext,
    token: Option<CancellationToken>,
    attempt: Attempt<S>,
}

/// A waiter's attempt; `None` means not yet.
type Attempt<S> = Box<dyn FnMut(&mut S) -> Option<Result<Vec<Tensor>>> + Send>;

type Finished<S> = Vec<(Waiter<S>, Result<Vec<Tensor>>)>;

impl<S: Send + 'static> Monitor<S> {
    pub(super) fn new(state: S) -> Arc<Monitor<S>> {
        Arc::new(Monitor { shared: Mutex::new(Shared { state, waiters: Vec::new(), next_waiter: 0 }) })
    }

    /// Looks at the state.
    pub(super) fn look<R>(&self, f: impl FnOnce(&S) -> R) -> R {
        f(&self.shared.lock().state)
    }

    /// Changes the state, which may let waiters proceed.
    pub(super) fn change<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        let mut finished = Vec::new();
        let result = {
            let mut shared = self.shared.lock();
            let result = f(&mut shared.state);
            shared.flush(&mut finished);
            result
        };
        complete(finished);
        result
    }

    /// Ends the context's work with the result of `attempt`, as soon as there is one.
    pub(super) fn submit(
        self: &Arc<Self>,
        context: AsyncContext,
        attempt: impl FnMut(&mut S) -> Option<Result<Vec<Tensor>>> + Send + 'static,
    ) {
        let cancellation = context.step().cancellation.clone();
        let mut finished = Vec::new();
        {
            let mut shared = self.shared.lock();
            let id = shared.next_waiter;
            shared.next_waiter += 1;
            shared.waiters.push(Waiter { id, context, token: None, attempt: Box::new(attempt) });
            shared.flush(&mut finished);
            if let Some(position) = shared.waiters.iter().position(|waiter| waiter.id == id) {
                let monitor = Arc::downgrade(self);
                // The lock is held, so that the callback finds the waiter whenever it runs.
                let registered = cancellation.register(move |_| {
                    if let Some(monitor) = monitor.upgrade() {
                        monitor.cancel(id);
                    }
                });
                match registered {
                    Ok(token) => shared.waiters[position].token = Some(token),
                    Err(_) => finished.push((shared.waiters.remove(position), Err(cancelled()))),
                }
            }
        }
        complete(finished);
    }

    fn cancel(&self, id: u64) {
        let waiter = {
            let mut shared = self.shared.lock();
            let position = shared.waiters.iter().position(|waiter| waiter.id == id);
            position.map(|position| shared.waiters.remove(position))
        };
        complete(waiter.map(|waiter| (waiter, Err(cancelled()))).into_iter().collect());
    }
}

impl<S> Shared<S> {
    fn flush(&mut self, finished: &mut Finished<S>) {
        let mut position = 0;
        while position < self.waiters.len() {
            match (self.waiters[position].attempt)(&mut self.state) {
                Some(result) => {
                    finished.push((self.waiters.remove(position), result));
                    position = 0;
                }
                None => position += 1,
            }
        }
    }
}

fn cancelled() -> Status {
    Status::cancelled("Operation was cancelled")
}

fn complete<S>(finished: Finished<S>) {
    for (waiter, result) in finished {
        if let Some(token) = waiter.token {
            waiter.context.step().cancellation.deregister(token);
        }
        waiter.context.finish_with(|context| {
            for (index, tensor) in result?.into_iter().enumerate() {
                context.set_output(index, tensor);
            }
            Ok(())
        });
    }
}
