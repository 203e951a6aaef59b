//! Repeats calls that end something on a worker, such as a step or a session, while the worker can't be reached.

use crate::clock::sleep;
use crate::interface::Answer;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tensor::{Code, Result};

/// The pause before the first repetition; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The number of repetitions, which take half a minute.
const REPETITIONS: u32 = 5;

/// The most calls of this process that wait for a repetition. Further calls are not repeated: what they should have ended ends
/// with its session, or with the task.
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

/// Waits for the first answer. If it says that the worker can't be reached, repeats the call for half a minute.
pub(super) async fn until_reached(first: Answer<()>, again: impl Fn() -> Answer<()>) -> Result<()> {
    repeated(first, again, PAUSE_MIN).await
}

async fn repeated(first: Answer<()>, again: impl Fn() -> Answer<()>, pause_min: Duration) -> Result<()> {
    let mut outcome = first.await;
    if !is_lost(&outcome) {
        return outcome;
    }
    let Some(_waiting) = Waiting::begin(&WAITING) else { return outcome };
    for repetition in 0..REPETITIONS {
        sleep(pause_min * (1 << repetition)).await;
        outcome = again().await;
        if !is_lost(&outcome) {
            break;
        }
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

    const SHORT: Duration = Duration::from_micros(100);

    fn lost() -> Answer<()> {
        Box::pin(ready(Err(Status::unavailable("the connection is gone"))))
    }

    #[tokio::test]
    async fn a_lost_call_is_repeated_until_it_arrives() {
        let calls = AtomicUsize::new(0);
        let again = || match calls.fetch_add(1, Ordering::Relaxed) {
            2 => Box::pin(ready(Ok(()))) as Answer<()>,
            _ => lost(),
        };
        repeated(lost(), again, SHORT).await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_worker_that_stays_away_is_given_up_and_a_refusal_is_final() {
        let calls = AtomicUsize::new(0);
        let counted = |outcome: fn() -> Answer<()>| {
            calls.fetch_add(1, Ordering::Relaxed);
            outcome()
        };
        let outcome = repeated(lost(), || counted(lost), SHORT).await;
        assert_eq!(outcome.unwrap_err().code(), Code::Unavailable);
        assert_eq!(calls.swap(0, Ordering::Relaxed), 5);
        let refused: fn() -> Answer<()> = || Box::pin(ready(Err(Status::not_found("no such session"))));
        let outcome = repeated(refused(), || counted(refused), SHORT).await;
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
