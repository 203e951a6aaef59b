//! [`Environment`]: the time and the threads that everything which runs a step uses.
//!
//! A process has the system's. A simulation puts its own in their place for the thread that it runs on, so that a whole cluster
//! runs on that thread, on a clock that the simulation moves, and a seed decides who runs next.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};

/// Something to be done later.
pub type Job = Box<dyn FnOnce() + Send>;

/// What a simulation gives in place of the system's clock and threads.
pub trait Environment: Send + Sync {
    /// Returns the time, which never goes back.
    fn now(&self) -> Instant;

    /// Returns the time of day.
    fn system_time(&self) -> SystemTime;

    /// Returns 64 random bits.
    fn random_bits(&self) -> u64;

    /// Runs a job soon.
    fn spawn(&self, job: Job);

    /// Runs a job when some time has passed.
    fn spawn_after(&self, delay: Duration, job: Job);

    /// Wakes a task at a time.
    fn wake_at(&self, due: Instant, waker: &Waker);
}

/// Whether any thread was ever given an environment: as long as none was, asking costs one read of memory.
static IS_ANY_GIVEN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Arc<dyn Environment>>> = const { RefCell::new(None) };
}

/// Gives this thread an environment, until what is returned is dropped.
#[must_use]
pub fn enter(environment: Arc<dyn Environment>) -> Entered {
    IS_ANY_GIVEN.store(true, Ordering::Relaxed);
    Entered { before: CURRENT.replace(Some(environment)) }
}

/// An environment that this thread has been given.
pub struct Entered {
    before: Option<Arc<dyn Environment>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = CURRENT.try_with(|current| current.replace(self.before.take()));
    }
}

/// Returns the environment that this thread was given, if it was.
#[inline]
pub fn current() -> Option<Arc<dyn Environment>> {
    if IS_ANY_GIVEN.load(Ordering::Relaxed) { given() } else { None }
}

#[cold]
fn given() -> Option<Arc<dyn Environment>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Returns whether this thread was given an environment: then nobody else computes, and nothing that was timed decides anything.
#[inline]
pub fn is_given() -> bool {
    current().is_some()
}

/// Returns the time, which never goes back.
#[inline]
pub fn now() -> Instant {
    current().map_or_else(Instant::now, |environment| environment.now())
}

/// Returns how much time has passed since an earlier [`now`].
#[inline]
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Returns the time of day.
#[inline]
pub fn system_time() -> SystemTime {
    current().map_or_else(SystemTime::now, |environment| environment.system_time())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Stopped {
        at: Instant,
        jobs: Mutex<Vec<Job>>,
    }

    impl Environment for Stopped {
        fn now(&self) -> Instant {
            self.at
        }
        fn system_time(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }
        fn random_bits(&self) -> u64 {
            7
        }
        fn spawn(&self, job: Job) {
            self.jobs.lock().unwrap().push(job);
        }
        fn spawn_after(&self, _delay: Duration, job: Job) {
            self.spawn(job);
        }
        fn wake_at(&self, _due: Instant, _waker: &Waker) {}
    }

    #[test]
    fn a_thread_has_the_environment_that_it_was_given_and_others_the_system_s() {
        let stopped = Arc::new(Stopped { at: Instant::now(), jobs: Mutex::default() });
        let entered = enter(stopped.clone());
        assert_eq!(now(), stopped.at);
        assert_eq!(system_time(), SystemTime::UNIX_EPOCH);
        crate::compute_threads::spawn(Box::new(|| ()));
        assert_eq!(stopped.jobs.lock().unwrap().len(), 1, "a job goes to the environment");
        let other = std::thread::spawn(|| (is_given(), system_time())).join().unwrap();
        assert!(!other.0 && other.1 > SystemTime::UNIX_EPOCH);
        drop(entered);
        assert!(!is_given());
    }
}
