//! The clock of a task: the only place in this crate that reads the system time, or waits for a time.
//!
//! In a simulation it is the simulation's clock, which advances when nothing else is left to do.

use executor::environment;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

/// Returns the monotonic time.
pub(crate) fn now() -> Instant {
    environment::now()
}

/// Returns how much time has passed since an earlier [`now`].
pub(crate) fn elapsed(since: Instant) -> Duration {
    environment::elapsed(since)
}

/// Returns the time of day.
pub(crate) fn system_time() -> SystemTime {
    environment::system_time()
}

/// A [`timeout`] expired before the work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

pin_project! {
    /// Becomes ready at a given time.
    #[project = SleepProjection]
    pub(crate) enum Sleep {
        Runtime { #[pin] sleep: tokio::time::Sleep },
        Given { due: Instant },
    }
}

/// Sleeps.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    match environment::is_given() {
        false => Sleep::Runtime { sleep: tokio::time::sleep(duration) },
        true => Sleep::Given { due: after(duration) },
    }
}

/// Sleeps until a time.
pub(crate) fn sleep_until(due: Instant) -> Sleep {
    match environment::is_given() {
        false => Sleep::Runtime { sleep: tokio::time::sleep_until(due.into()) },
        true => Sleep::Given { due },
    }
}

/// Returns the time after a duration, or one in the far future if that overflows.
fn after(duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now() + duration.min(FAR)
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.project() {
            SleepProjection::Runtime { sleep } => sleep.poll(context),
            SleepProjection::Given { due } => match environment::current() {
                Some(environment) if environment.now() < *due => {
                    environment.wake_at(*due, context.waker());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            },
        }
    }
}

pin_project! {
    /// Work with a timeout.
    pub(crate) struct Timeout<F> {
        #[pin]
        work: F,
        #[pin]
        over: Sleep,
    }
}

/// Waits for work, with a timeout.
pub(crate) fn timeout<F: Future>(duration: Duration, work: F) -> Timeout<F> {
    Timeout { work, over: sleep(duration) }
}

/// Waits for work, with a deadline.
pub(crate) fn timeout_at<F: Future>(deadline: Instant, work: F) -> Timeout<F> {
    Timeout { work, over: sleep_until(deadline) }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let parts = self.project();
        match parts.work.poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => parts.over.poll(context).map(|()| Err(Elapsed)),
        }
    }
}
