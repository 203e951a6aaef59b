//! Futures without an executor of their own: a task runs on whatever thread starts or wakes it, and holds none while it
//! waits. Here is also what there is to wait for: functions of the graph, and cancellation.

use crate::function::Function;
use kernel::{CallFrame, Cancellation, CancellationToken, LocalRendezvous, ResourceManager, Step, run_io};
use parking_lot::Mutex;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tensor::{Result, Status, Tensor};

/// After how many turns of loops a task looks at the clock and at whether it is still wanted.
const TURNS: u32 = 1024;

/// How long a task keeps a thread before the pool goes on with it.
const SLICE_TIME_MAX: Duration = Duration::from_millis(1);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    state: Mutex<TaskState>,
}

struct TaskState {
    work: Option<Work>,
    /// Woken while someone was polling, who must then poll again.
    is_woken: bool,
}

/// Starts a future on this thread.
pub(super) fn start(work: impl Future<Output = ()> + Send + 'static) {
    let state = TaskState { work: Some(Box::pin(work)), is_woken: false };
    Arc::new(Task { state: Mutex::new(state) }).run();
}

impl Task {
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        loop {
            let taken = {
                let mut state = self.state.lock();
                let taken = state.work.take();
                state.is_woken = taken.is_none();
                taken
            };
            // Whoever has it polls once more.
            let Some(mut work) = taken else { return };
            let outer = SLICE.replace(Slice::new());
            let progress = work.as_mut().poll(&mut Context::from_waker(&waker));
            SLICE.set(outer);
            if progress.is_ready() {
                return;
            }
            let mut state = self.state.lock();
            state.work = Some(work);
            if !state.is_woken {
                return;
            }
        }
    }
}

thread_local! {
    /// How much of its time the task has used that this thread is polling.
    static SLICE: Cell<Slice> = const { Cell::new(Slice::new()) };
}

#[derive(Clone, Copy)]
struct Slice {
    turns_left: u32,
    /// When it was first looked at.
    started: Option<Instant>,
}

impl Slice {
    const fn new() -> Slice {
        Slice { turns_left: TURNS, started: None }
    }
}

/// Counts a turn of a loop that input decides; all loops of a task count together. It fails when the step was cancelled, and
/// gives the thread back every now and then.
pub(super) fn turn(step: &Arc<Step>) -> Turn<'_> {
    Turn { step, has_yielded: false }
}

/// Waits for the next turn of a loop.
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

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

/// A value that is set once, by someone else.
pub(super) struct Promise<T> {
    state: Arc<Mutex<PromiseState<T>>>,
}

struct PromiseState<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

/// Sets a [`Promise`].
pub(super) struct Fulfil<T> {
    state: Arc<Mutex<PromiseState<T>>>,
}

/// Returns a promise, and what sets it.
pub(super) fn promise<T>() -> (Fulfil<T>, Promise<T>) {
    let state = Arc::new(Mutex::new(PromiseState { value: None, waker: None }));
    (Fulfil { state: state.clone() }, Promise { state })
}

impl<T> Fulfil<T> {
    pub(super) fn set(self, value: T) {
        let waker = {
            let mut state = self.state.lock();
            state.value = Some(value);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Promise<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut state = self.state.lock();
        match state.value.take() {
            Some(value) => Poll::Ready(value),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Calls a function of the graph on this thread, as far as it goes.
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

/// Runs a function in a step of its own. A node that fails cancels its step, and an error in the function of one element must
/// leave alone the calls for other elements and whoever goes on to the next. The end of `step` ends the call as well.
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

/// Does something that waits for files, on a thread for that. Whoever comes next waits until it is done, also when this step
/// did not: `state` is used by one at a time.
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

/// Returns a step for work that may outlive the one that starts it.
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

/// Waits for a promise that work in the background will keep, or for the step to be cancelled.
pub(super) async fn or_cancelled<T>(step: &Step, promise: Promise<T>) -> Result<T> {
    let (fulfil, cancelled) = self::promise();
    let registered = step.cancellation.register(move |_| fulfil.set(()));
    let Ok(token) = registered else { return Err(cancelled_status()) };
    let _guard = Registration { cancellation: step.cancellation.clone(), token };
    Either { promise, cancelled }.await.ok_or_else(cancelled_status)
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

struct Either<T> {
    promise: Promise<T>,
    cancelled: Promise<()>,
}

impl<T> Future for Either<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(value) = Pin::new(&mut self.promise).poll(context) {
            return Poll::Ready(Some(value));
        }
        Pin::new(&mut self.cancelled).poll(context).map(|()| None)
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
            let value: usize = one.await;
            total.fetch_add(value, Ordering::SeqCst);
            let value: usize = two.await;
            total.fetch_add(value, Ordering::SeqCst);
        });
        assert_eq!(sum.load(Ordering::SeqCst), 0);
        first.set(1);
        assert_eq!(sum.load(Ordering::SeqCst), 1);
        std::thread::spawn(move || second.set(10)).join().unwrap();
        assert_eq!(sum.load(Ordering::SeqCst), 11);
    }

    #[test]
    fn a_loop_without_end_gives_its_thread_back_and_ends_when_the_step_is_cancelled() {
        /// Keeps what it is given, so that the test sees where the task goes on.
        struct Kept(Mutex<Vec<Box<dyn FnOnce() + Send>>>);
        impl kernel::Runner for Kept {
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
    fn waiting_ends_when_the_step_is_cancelled() {
        let step = Arc::new(Step::detached());
        let (_kept, never) = promise::<()>();
        let (fulfil, ended) = promise();
        let inner = step.clone();
        start(async move { fulfil.set(or_cancelled(&inner, never).await.is_err()) });
        step.cancellation.cancel(Status::cancelled("enough"));
        let seen = Arc::new(Mutex::new(None));
        let result = seen.clone();
        start(async move { *result.lock() = Some(ended.await) });
        assert_eq!(*seen.lock(), Some(true));
    }
}
