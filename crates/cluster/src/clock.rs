//! The clock of a task: the only place in this crate that reads the time of the system, or waits for a time to come.
//!
//! In a simulation it is the simulation's, which moves it on when nothing else is left to do.

use executor::environment;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

/// Returns the time, which never goes back.
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

/// The time of a [`timeout`] was over before its work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

pin_project! {
    /// Is ready at a time.
    #[project = SleepProjection]
    pub(crate) enum Sleep {
        Runtime { #[pin] sleep: tokio::time::Sleep },
        Given { due: Instant },
    }
}

/// Waits for some time.
pub(crate) fn sleep(duration: Duration) -> Sleep {
    match environment::is_given() {
        false => Sleep::Runtime { sleep: tokio::time::sleep(duration) },
        true => Sleep::Given { due: after(duration) },
    }
}

/// Waits until a time.
pub(crate) fn sleep_until(due: Instant) -> Sleep {
    match environment::is_given() {
        false => Sleep::Runtime { sleep: tokio::time::sleep_until(due.into()) },
        true => Sleep::Given { due },
    }
}

/// Returns the time that comes after another one, or one in the far future.
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
    /// Work that has some time.
    pub(crate) struct Timeout<F> {
        #[pin]
        work: F,
        #[pin]
        over: Sleep,
    }
}

/// Waits for work, for some time.
pub(crate) fn timeout<F: Future>(duration: Duration, work: F) -> Timeout<F> {
    Timeout { work, over: sleep(duration) }
}

/// Waits for work until a time.
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
