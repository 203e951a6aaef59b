//! [`Coordinator`]: stops threads together, and passes on the reason.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tensor::{Code, Result, Status};

/// Stops several threads together. Clones share the state.
///
/// ```
/// use ferroflow::train::Coordinator;
/// use std::time::Duration;
///
/// let coordinator = Coordinator::new();
/// coordinator.spawn("waits", |coordinator| {
///     coordinator.wait_for_stop(None);
///     Ok(())
/// })?;
/// coordinator.spawn("ends", |coordinator| {
///     coordinator.request_stop(None);
///     Ok(())
/// })?;
/// coordinator.join(Duration::from_secs(10))?;
/// assert!(coordinator.should_stop());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct Coordinator {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Codes that end a job without failing it.
    clean_stops: Vec<Code>,
}

#[derive(Default)]
struct State {
    stopped: bool,
    failure: Option<Status>,
    threads: Vec<JoinHandle<()>>,
    running: usize,
    /// Threads that may block in a step until their session is closed.
    running_daemons: usize,
}

/// How long to wait for threads that may block in a step, after all others have ended.
const DAEMON_GRACE: Duration = Duration::from_millis(500);

impl Coordinator {
    /// Returns a coordinator for which only the end of the input (`OutOfRange`) is a clean stop.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    ///
    /// assert!(!Coordinator::new().should_stop());
    /// ```
    pub fn new() -> Coordinator {
        Coordinator::with_clean_stops(&[Code::OutOfRange])
    }

    /// Returns a coordinator for which these codes are clean stops.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    /// use ferroflow::{Code, Status};
    ///
    /// let coordinator = Coordinator::with_clean_stops(&[Code::Cancelled]);
    /// coordinator.request_stop(Some(Status::cancelled("enough")));
    /// assert!(coordinator.should_stop() && coordinator.failure().is_none());
    /// ```
    pub fn with_clean_stops(codes: &[Code]) -> Coordinator {
        let shared =
            Shared { state: Mutex::new(State::default()), changed: Condvar::new(), clean_stops: codes.to_vec() };
        Coordinator { shared: Arc::new(shared) }
    }

    /// Requests that all threads stop; `join` returns the first failure.
    ///
    /// ```
    /// use ferroflow::{Status, train::Coordinator};
    ///
    /// let coordinator = Coordinator::new();
    /// coordinator.request_stop(Some(Status::data_loss("a broken file")));
    /// assert_eq!(coordinator.join(std::time::Duration::ZERO).unwrap_err().message(), "a broken file");
    /// ```
    pub fn request_stop(&self, failure: Option<Status>) {
        let mut state = self.shared.state.lock();
        if let Some(status) = failure
            && state.failure.is_none()
            && !state.stopped
            && !self.shared.clean_stops.contains(&status.code())
        {
            state.failure = Some(status);
        }
        state.stopped = true;
        self.shared.changed.notify_all();
    }

    /// Clears the stop request.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    ///
    /// let coordinator = Coordinator::new();
    /// coordinator.request_stop(None);
    /// coordinator.clear_stop();
    /// assert!(!coordinator.should_stop());
    /// ```
    pub fn clear_stop(&self) {
        let mut state = self.shared.state.lock();
        state.stopped = false;
        state.failure = None;
    }

    /// Returns whether a stop was requested.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    ///
    /// let coordinator = Coordinator::new();
    /// let mut steps = 0;
    /// while !coordinator.should_stop() {
    ///     steps += 1;
    ///     if steps == 3 {
    ///         coordinator.request_stop(None);
    ///     }
    /// }
    /// assert_eq!(steps, 3);
    /// ```
    pub fn should_stop(&self) -> bool {
        self.shared.state.lock().stopped
    }

    /// Returns the failure that stopped the threads, if there was one.
    ///
    /// ```
    /// use ferroflow::{Status, train::Coordinator};
    ///
    /// let coordinator = Coordinator::new();
    /// coordinator.request_stop(Some(Status::unavailable("the task is gone")));
    /// coordinator.request_stop(Some(Status::cancelled("because of that")));
    /// assert_eq!(coordinator.failure().unwrap().message(), "the task is gone");
    /// ```
    pub fn failure(&self) -> Option<Status> {
        self.shared.state.lock().failure.clone()
    }

    /// Waits until a stop is requested, or until the timeout; returns whether it was requested.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    /// use std::time::Duration;
    ///
    /// let coordinator = Coordinator::new();
    /// assert!(!coordinator.wait_for_stop(Some(Duration::from_millis(1))));
    /// coordinator.request_stop(None);
    /// assert!(coordinator.wait_for_stop(None));
    /// ```
    pub fn wait_for_stop(&self, timeout: Option<Duration>) -> bool {
        let mut state = self.shared.state.lock();
        let until = timeout.map(|timeout| Instant::now() + timeout);
        while !state.stopped {
            match until {
                None => self.shared.changed.wait(&mut state),
                Some(until) => {
                    if self.shared.changed.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            }
        }
        state.stopped
    }

    /// Runs `body` on a new thread. If it fails, all threads are asked to stop.
    ///
    /// ```
    /// use ferroflow::{Status, train::Coordinator};
    ///
    /// let coordinator = Coordinator::new();
    /// coordinator.spawn("fails", |_| Err(Status::internal("broken")))?;
    /// assert!(coordinator.join(std::time::Duration::from_secs(10)).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn spawn(&self, name: &str, body: impl FnOnce(&Coordinator) -> Result<()> + Send + 'static) -> Result<()> {
        self.start(name, false, body)
    }

    /// As [`spawn`](Self::spawn), for a thread that may block in a step until its session is closed: [`join`](Self::join) doesn't
    /// wait long for it.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    ///
    /// let coordinator = Coordinator::new();
    /// coordinator.spawn_daemon("watches", |coordinator| {
    ///     coordinator.wait_for_stop(None);
    ///     Ok(())
    /// })?;
    /// coordinator.request_stop(None);
    /// coordinator.join(std::time::Duration::from_secs(10))?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn spawn_daemon(
        &self,
        name: &str,
        body: impl FnOnce(&Coordinator) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.start(name, true, body)
    }

    fn start(
        &self,
        name: &str,
        is_daemon: bool,
        body: impl FnOnce(&Coordinator) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        fn count(state: &mut State, is_daemon: bool) -> &mut usize {
            if is_daemon { &mut state.running_daemons } else { &mut state.running }
        }
        let coordinator = self.clone();
        *count(&mut self.shared.state.lock(), is_daemon) += 1;
        let run = move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&coordinator)));
            match result {
                Ok(Ok(())) => {}
                Ok(Err(status)) => coordinator.request_stop(Some(status)),
                Err(_) => coordinator.request_stop(Some(Status::internal("a thread of the coordinator panicked"))),
            }
            *count(&mut coordinator.shared.state.lock(), is_daemon) -= 1;
            coordinator.shared.changed.notify_all();
        };
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        match spawned {
            Ok(handle) => {
                if !is_daemon {
                    self.shared.state.lock().threads.push(handle);
                }
                Ok(())
            }
            Err(error) => {
                *count(&mut self.shared.state.lock(), is_daemon) -= 1;
                Err(Status::resource_exhausted(format!("no thread for '{name}': {error}")))
            }
        }
    }

    /// Waits for all threads to end; after a stop request, at most `grace`. Returns the failure, if there was one.
    ///
    /// ```
    /// use ferroflow::train::Coordinator;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::sync::Arc;
    ///
    /// let coordinator = Coordinator::new();
    /// let done = Arc::new(AtomicBool::new(false));
    /// let worker_done = done.clone();
    /// coordinator.spawn("works", move |_| Ok(worker_done.store(true, Ordering::SeqCst)))?;
    /// coordinator.join(std::time::Duration::from_secs(10))?;
    /// assert!(done.load(Ordering::SeqCst));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn join(&self, grace: Duration) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.running + state.running_daemons > 0 && !state.stopped {
            self.shared.changed.wait(&mut state);
        }
        let until = Instant::now() + grace;
        while state.running > 0 {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                let running = state.running;
                return Err(state.failure.take().unwrap_or_else(|| {
                    Status::deadline_exceeded(format!("{running} threads did not stop when asked to"))
                }));
            }
        }
        let until = Instant::now() + DAEMON_GRACE.min(grace);
        while state.running_daemons > 0 && !self.shared.changed.wait_until(&mut state, until).timed_out() {}
        let threads = std::mem::take(&mut state.threads);
        let failure = state.failure.take();
        drop(state);
        for thread in threads {
            let _ = thread.join();
        }
        failure.map_or(Ok(()), Err)
    }
}

impl Default for Coordinator {
    fn default() -> Self {
        Coordinator::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_stops_all_and_the_end_of_input_is_none() {
        let coordinator = Coordinator::new();
        coordinator
            .spawn("waits", |coordinator| {
                coordinator.wait_for_stop(None);
                Ok(())
            })
            .unwrap();
        coordinator.spawn("ends", |_| Err(Status::out_of_range("no more"))).unwrap();
        coordinator.join(Duration::from_secs(60)).unwrap();
        assert!(coordinator.should_stop());

        let coordinator = Coordinator::new();
        coordinator
            .spawn("waits", |coordinator| {
                coordinator.wait_for_stop(None);
                Ok(())
            })
            .unwrap();
        coordinator.spawn("fails", |_| Err(Status::data_loss("broken"))).unwrap();
        assert_eq!(coordinator.join(Duration::from_secs(60)).unwrap_err().code(), Code::DataLoss);
    }

    #[test]
    fn a_panic_is_a_failure() {
        let coordinator = Coordinator::new();
        coordinator.spawn("panics", |_| panic!("on purpose")).unwrap();
        assert_eq!(coordinator.join(Duration::from_secs(60)).unwrap_err().code(), Code::Internal);
    }
}
