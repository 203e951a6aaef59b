//! Calls that end something at a worker, such as a step or a session, and are repeated while the worker can't be reached.

use crate::clock::sleep;
use crate::interface::Answer;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensor::{Code, Result};

/// The pause before the first repetition. Each pause is twice the one before.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The pause before the last repetition.
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// The most calls of this process that may wait to be repeated. A call beyond that is not repeated: what it should have ended ends with
/// its session, or with the task.
const WAITING_MAX: usize = 1 << 12;

static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A call that waits to be repeated.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Waiting<'a>> {
        match count.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            true => Some(Waiting(count)),
            false => {
                count.fetch_sub(1, Ordering::Relaxed);
                None
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the first answer. If that says that the worker can't be reached, calls again, for half a minute.
pub(super) async fn until_reached(first: Answer<()>, again: impl Fn() -> Answer<()>) -> Result<()> {
    let mut outcome = first.await;
    if !is_lost(&outcome) {
        return outcome;
    }
    let Some(_waiting) = Waiting::begin(&WAITING) else { return outcome };
    let mut pause = PAUSE_MIN;
    while is_lost(&outcome) && pause <= PAUSE_MAX {
        sleep(pause).await;
        pause *= 2;
        outcome = again().await;
    }
    outcome
}

fn is_lost(outcome: &Result<()>) -> bool {
    outcome.as_ref().is_err_and(|status| status.code() == Code::Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;
    use tensor::Status;

    fn lost() -> Answer<()> {
        Box::pin(ready(Err(Status::unavailable("the connection is gone"))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_call_is_repeated_until_it_arrives() {
        let calls = AtomicUsize::new(0);
        let again = || match calls.fetch_add(1, Ordering::Relaxed) {
            2 => Box::pin(ready(Ok(()))) as Answer<()>,
            _ => lost(),
        };
        until_reached(lost(), again).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_stays_away_is_given_up_and_a_refusal_is_final() {
        let calls = AtomicUsize::new(0);
        let counted = |outcome: fn() -> Answer<()>| {
            calls.fetch_add(1, Ordering::Relaxed);
            outcome()
        };
        let outcome = until_reached(lost(), || counted(lost)).await;
        assert_eq!(outcome.unwrap_err().code(), Code::Unavailable);
        assert_eq!(calls.swap(0, Ordering::Relaxed), 5);
        let refused: fn() -> Answer<()> = || Box::pin(ready(Err(Status::not_found("no such session"))));
        let outcome = until_reached(refused(), || counted(refused)).await;
        assert_eq!((outcome.unwrap_err().code(), calls.load(Ordering::Relaxed)), (Code::NotFound, 0));
    }

    #[test]
    fn only_so_many_calls_wait() {
        let count = AtomicUsize::new(0);
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Waiting::begin(&count).unwrap()).collect();
        assert!(Waiting::begin(&count).is_none());
        waiting.pop();
        assert!(Waiting::begin(&count).is_some());
        drop(waiting);
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
