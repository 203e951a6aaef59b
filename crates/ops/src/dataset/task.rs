//! Tasks of datasets: futures that run on whatever thread starts or wakes them, and hold no thread while they wait. Also what
//! they wait for: functions of the graph, file access, and cancellation.

use crate::function::Function;
use async_task::{Runnable, ScheduleInfo, WithInfo};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use kernel::{CallFrame, Cancellation, CancellationToken, LocalRendezvous, ResourceManager, Step, run_io};
use parking_lot::Mutex;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tensor::{Result, Status, Tensor};

/// The number of iterations after which a task checks the clock and whether its step was cancelled.
const TURNS: u32 = 1024;

/// How long a task may hold a thread before it continues on the pool.
const SLICE_TIME_MAX: Duration = Duration::from_millis(1);

/// Starts a future on this thread. Later, the thread that wakes it runs it.
pub(super) fn start(work: impl Future<Output = ()> + Send + 'static) {
    let schedule = |runnable: Runnable, info: ScheduleInfo| match info.woken_while_running {
        // `run` has just polled it, and polls it again: a nested call would use the stack up.
        true => AGAIN.set(Some(runnable)),
        false => run(runnable),
    };
    let (runnable, task) = async_task::spawn(work, WithInfo(schedule));
    task.detach();
    run(runnable);
}

fn run(runnable: Runnable) {
    let mut next = Some(runnable);
    while let Some(runnable) = next {
        let outer = SLICE.replace(Slice::new());
        runnable.run();
        SLICE.set(outer);
        next = AGAIN.take();
    }
}

thread_local! {
    /// The task that was woken while this thread polled it, between that poll and the next.
    static AGAIN: Cell<Option<Runnable>> = const { Cell::new(None) };
    /// The part of its time slice that the task on this thread has used.
    static SLICE: Cell<Slice> = const { Cell::new(Slice::new()) };
}

#[derive(Clone, Copy)]
struct Slice {
    turns_left: u32,
    /// When the clock was first checked.
    started: Option<Instant>,
}

impl Slice {
    const fn new() -> Slice {
        Slice { turns_left: TURNS, started: None }
    }
}

/// Counts an iteration of a loop whose length depends on input; all loops of a task share the count. Awaiting it yields the
/// thread from time to time, and fails if the step was cancelled.
pub(super) fn turn(step: &Arc<Step>) -> Turn<'_> {
    Turn { step, has_yielded: false }
}

/// Waits for the next iteration of a loop.
pub(super) struct Turn<'a> {
    step: &'a Arc<Step>,
    has_yielded: bool,
}

impl Future for Turn<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut slice = SLICE.get();
        if slice.turns_left > 0 || self.has_yielded {
            slice.turns_left = slice.turns_left.saturating_sub(1);
            SLICE.set(slice);
            return Poll::Ready(Ok(()));
        }
        if self.step.cancellation.is_cancelled() {
            return Poll::Ready(Err(cancelled_status()));
        }
        slice.turns_left = TURNS;
        let started = *slice.started.get_or_insert_with(Instant::now);
        SLICE.set(slice);
        if started.elapsed() < SLICE_TIME_MAX {
            return Poll::Ready(Ok(()));
        }
        self.has_yielded = true;
        let waker = context.waker().clone();
        self.step.runner.spawn(Box::new(move || waker.wake()));
        Poll::Pending
    }
}

/// A value that is set once, elsewhere.
pub(super) struct Promise<T>(oneshot::Receiver<T>);

/// Sets a [`Promise`]. If it is dropped instead, waiting for the promise ends with an error.
pub(super) struct Fulfil<T>(oneshot::Sender<T>);

/// Returns a promise, and the handle that sets it.
pub(super) fn promise<T>() -> (Fulfil<T>, Promise<T>) {
    let (sender, receiver) = oneshot::channel();
    (Fulfil(sender), Promise(receiver))
}

impl<T> Fulfil<T> {
    pub(super) fn set(self, value: T) {
        // Nobody may be waiting any more.
        let _ = self.0.send(value);
    }
}

impl<T> Future for Promise<Result<T>> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll(context).map(|sent| sent.unwrap_or_else(|oneshot::Canceled| Err(broken_promise())))
    }
}

fn broken_promise() -> Status {
    Status::internal("work that a dataset waits for was dropped without a result")
}

/// Calls a function of the graph. It runs on this thread until it waits.
pub(super) fn call(function: &Function, args: Vec<Tensor>, step: &Arc<Step>) -> Promise<Result<Vec<Tensor>>> {
    let (fulfil, results) = promise();
    run_on_its_own(function, args, step, fulfil);
    results
}

/// Calls a function of the graph on another thread.
pub(super) fn call_elsewhere(function: &Function, args: Vec<Tensor>, step: &Arc<Step>) -> Promise<Result<Vec<Tensor>>> {
    let (fulfil, results) = promise();
    let (function, outer) = (function.clone(), step.clone());
    step.runner.spawn(Box::new(move || run_on_its_own(&function, args, &outer, fulfil)));
    results
}

/// Runs a function in its own step. A node that fails cancels its step, and an error in the function of one element must not
/// affect the calls for other elements. Cancelling `step` cancels the call, too.
fn run_on_its_own(function: &Function, args: Vec<Tensor>, step: &Arc<Step>, fulfil: Fulfil<Result<Vec<Tensor>>>) {
    let own = Cancellation::new();
    let cancelled = own.clone();
    let token = match step.cancellation.register(move |status| cancelled.cancel(status)) {
        Ok(token) => token,
        Err(status) => return fulfil.set(Err(status)),
    };
    let registration = Registration { cancellation: step.cancellation.clone(), token };
    let within = Arc::new(Step {
        cancellation: own,
        rendezvous: Arc::new(LocalRendezvous::new()),
        step_resources: Arc::new(ResourceManager::new()),
        ..step.for_function(CallFrame::default().at_depth(step.frame.depth()), None)
    });
    let done = move |results| {
        drop(registration);
        fulfil.set(results);
    };
    function.run(args, &within, Box::new(done));
}

/// Runs work that accesses files on a thread for files. `state` is locked meanwhile: the next call waits until the work is
/// done, even if this step was cancelled.
pub(super) async fn with_files<S: Send + 'static, T: Send + 'static>(
    step: &Step,
    what: &str,
    state: &Arc<Mutex<S>>,
    work: impl FnOnce(&mut S) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (fulfil, result) = promise();
    let state = state.clone();
    run_io(step, what, move || work(&mut state.lock()), move |result| fulfil.set(result));
    result.await
}

/// Returns a step for background work, which may outlive the step that starts it.
pub(super) fn background(step: &Step, cancellation: Cancellation) -> Arc<Step> {
    Arc::new(Step {
        id: step.id,
        device: step.device.clone(),
        cancellation,
        rendezvous: Arc::new(LocalRendezvous::new()),
        collectives: None,
        resources: step.resources.clone(),
        step_resources: Arc::new(ResourceManager::new()),
        session: step.session.clone(),
        runner: step.runner.clone(),
        functions: step.functions.clone(),
        frame: CallFrame::default(),
        logger: step.logger.clone(),
        trace: None,
    })
}

/// Waits for a promise, or for the step to be cancelled.
pub(super) async fn or_cancelled<T>(step: &Step, promise: Promise<T>) -> Result<T> {
    let (fulfil, cancelled) = self::promise();
    let registered = step.cancellation.register(move |_| fulfil.set(()));
    let Ok(token) = registered else { return Err(cancelled_status()) };
    let _guard = Registration { cancellation: step.cancellation.clone(), token };
    match select(promise.0, cancelled.0).await {
        Either::Left((sent, _)) => sent.map_err(|oneshot::Canceled| broken_promise()),
        Either::Right(_) => Err(cancelled_status()),
    }
}

/// Returns the error of an iterator whose step was cancelled.
pub(super) fn cancelled_status() -> Status {
    Status::cancelled("Operation was cancelled")
}

struct Registration {
    cancellation: Cancellation,
    token: CancellationToken,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cancellation.deregister(self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_task_goes_on_where_its_promise_is_kept() {
        let (first, one) = promise();
        let (second, two) = promise();
        let sum = Arc::new(AtomicUsize::new(0));
        let total = sum.clone();
        start(async move {
            let value: Result<usize> = one.await;
            total.fetch_add(value.unwrap(), Ordering::SeqCst);
            let value: Result<usize> = two.await;
            total.fetch_add(value.unwrap(), Ordering::SeqCst);
        });
        assert_eq!(sum.load(Ordering::SeqCst), 0);
        first.set(Ok(1));
        assert_eq!(sum.load(Ordering::SeqCst), 1);
        std::thread::spawn(move || second.set(Ok(10))).join().unwrap();
        assert_eq!(sum.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_loop_without_end_gives_its_thread_back_and_ends_when_the_step_is_cancelled() {
        /// Keeps the given work, so that the test can see where the task continues.
        struct Kept(Mutex<Vec<Box<dyn FnOnce() + Send>>>);
        impl kernel::JobRunner for Kept {
            fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
                self.0.lock().push(job);
            }
        }
        let kept = Arc::new(Kept(Mutex::default()));
        let step = Arc::new(Step { runner: kept.clone(), ..Step::detached() });
        let (within, ended) = (step.clone(), Arc::new(Mutex::new(None)));
        let result = ended.clone();
        start(async move {
            let status = loop {
                if let Err(status) = turn(&within).await {
                    break status;
                }
            };
            *result.lock() = Some(status.code());
        });
        for _ in 0..3 {
            let job = kept.0.lock().pop().expect("the task keeps no thread");
            assert_eq!(*ended.lock(), None);
            job();
        }
        step.cancellation.cancel(Status::cancelled("enough"));
        let job = kept.0.lock().pop().unwrap();
        job();
        assert_eq!(*ended.lock(), Some(tensor::Code::Cancelled));
        assert!(kept.0.lock().is_empty());
    }

    #[test]
    fn a_task_that_is_woken_while_it_is_polled_needs_no_stack() {
        struct WakesItself(u32);
        impl Future for WakesItself {
            type Output = ();
            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
                if self.0 == 0 {
                    return Poll::Ready(());
                }
                self.0 -= 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
        let is_done = Arc::new(AtomicUsize::new(0));
        let done = is_done.clone();
        start(async move {
            WakesItself(1_000_000).await;
            done.store(1, Ordering::SeqCst);
        });
        assert_eq!(is_done.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn waiting_ends_when_the_step_is_cancelled() {
        let step = Arc::new(Step::detached());
        let (_kept, never) = promise::<()>();
        let ended = ending(&step, never);
        assert_eq!(*ended.lock(), None);
        step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(*ended.lock(), Some(Err(tensor::Code::Cancelled)));
    }

    #[test]
    fn waiting_ends_when_nobody_will_set_the_value() {
        let step = Arc::new(Step::detached());
        let (dropped, never) = promise::<()>();
        let ended = ending(&step, never);
        assert_eq!(*ended.lock(), None);
        drop(dropped);
        assert_eq!(*ended.lock(), Some(Err(tensor::Code::Internal)));

        let (dropped, results) = promise::<Result<usize>>();
        let (fulfil, later) = promise();
        start(async move { fulfil.set(results.await) });
        drop(dropped);
        let ended = ending(&step, later);
        assert_eq!(
            *ended.lock(),
            Some(Ok(Err(Status::internal("work that a dataset waits for was dropped without a result"))))
        );
    }

    /// Starts a task that waits, and returns where it puts the result.
    fn ending<T: Send + 'static>(step: &Arc<Step>, promise: Promise<T>) -> Arc<Mutex<Option<Result<T, tensor::Code>>>> {
        let (step, ended) = (step.clone(), Arc::new(Mutex::new(None)));
        let result = ended.clone();
        start(async move {
            let waited = or_cancelled(&step, promise).await;
            *result.lock() = Some(waited.map_err(|status| status.code()));
        });
        ended
    }
}
