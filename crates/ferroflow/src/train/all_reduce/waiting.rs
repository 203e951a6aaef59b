//! [`Waiting`]: how a worker waits for others. It logs what it waits for, and gives up when training should stop or after a time limit.

use crate::session::Session;
use crate::train::Coordinator;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tensor::{Result, Status};

/// The interval at which a waiting worker checks whether it should stop.
const LOOKING: Duration = Duration::from_millis(50);

/// The interval at which it logs what it waits for.
const SAYING: Duration = Duration::from_secs(10);

/// How long a wait lasts before it is logged.
const FIRST_SAYING: Duration = Duration::from_secs(1);

/// How a worker waits.
#[derive(Clone)]
pub(super) struct Waiting {
    /// The name of the worker's task.
    pub task: String,
    /// The coordinator that can stop training.
    pub stop: Coordinator,
    /// The longest wait.
    pub max_wait: Option<Duration>,
}

/// A wait that has begun.
pub(super) struct Begun<'a> {
    waiting: &'a Waiting,
    start: Instant,
    said: Option<Instant>,
}

impl Waiting {
    /// Begins to wait.
    pub(super) fn begin(&self) -> Begun<'_> {
        Begun { waiting: self, start: Instant::now(), said: None }
    }

    /// Runs steps that wait for `what`. The session is closed, which ends them, when training should stop or they take too long.
    pub(super) fn run<T>(&self, session: &Session, what: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let finished = Coordinator::new();
        let given_up: Mutex<Option<Status>> = Mutex::new(None);
        std::thread::scope(|scope| {
            let watch = || {
                let mut begun = self.begin();
                while !finished.wait_for_stop(Some(LOOKING)) {
                    if let Err(status) = begun.look(|| what.to_owned()) {
                        *given_up.lock() = Some(status);
                        if let Err(status) = session.close() {
                            tracing::debug!("a session that waits can't be closed: {status}");
                        }
                        return;
                    }
                }
            };
            let spawned =
                std::thread::Builder::new().name("wait for other workers".to_owned()).spawn_scoped(scope, watch);
            spawned.map_err(|error| Status::resource_exhausted(format!("no thread to wait with: {error}")))?;
            let outcome = body();
            finished.request_stop(None);
            outcome.map_err(|status| given_up.lock().take().unwrap_or(status))
        })
    }
}

impl Begun<'_> {
    /// Waits a little for `what`.
    pub(super) fn pause(&mut self, pause: Duration, what: impl FnOnce() -> String) -> Result<()> {
        self.waiting.stop.wait_for_stop(Some(pause));
        self.look(what)
    }

    /// Logs what is waited for at intervals; fails if the wait should end.
    fn look(&mut self, what: impl FnOnce() -> String) -> Result<()> {
        let Waiting { task, stop, max_wait } = self.waiting;
        let waited = self.start.elapsed();
        if stop.should_stop() {
            return Err(Status::cancelled(format!("{task} was stopped while it waited for {}", what())));
        }
        if max_wait.is_some_and(|max_wait| waited >= max_wait) {
            let secs = waited.as_secs();
            return Err(Status::deadline_exceeded(format!("{task} has waited {secs} s for {}", what())));
        }
        let is_due = self.said.map_or(waited >= FIRST_SAYING, |said| said.elapsed() >= SAYING);
        if is_due {
            tracing::info!("{task} waits for {}", what());
            self.said = Some(Instant::now());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Code;

    #[test]
    fn a_wait_ends_with_who_was_waited_for() {
        let waiting = |max_wait| Waiting { task: "worker 1".to_owned(), stop: Coordinator::new(), max_wait };
        let too_long = waiting(Some(Duration::ZERO));
        let status = too_long.begin().pause(Duration::ZERO, || "worker 0".to_owned()).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, "worker 1 has waited 0 s for worker 0"));
        let stopped = waiting(None);
        stopped.stop.request_stop(None);
        let status = stopped.begin().pause(Duration::ZERO, || "worker 0".to_owned()).unwrap_err();
        assert_eq!(status.code(), Code::Cancelled);
    }
}
