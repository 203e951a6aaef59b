//! Futures without an executor of their own: a task runs on whatever thread starts or wakes it, and holds none while it
//! waits. Here is also what there is to wait for: functions of the graph, and cancellation.

use crate::function::Function;
use kernel::{CallFrame, Cancellation, CancellationToken, LocalRendezvous, ResourceManager, Step};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use tensor::{Result, Status, Tensor};

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
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
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
    function.run(args, step, Box::new(move |result| fulfil.set(result)));
    results
}

/// Calls a function of the graph on another thread.
pub(super) fn call_elsewhere(function: &Function, args: Vec<Tensor>, step: &Arc<Step>) -> Promise<Result<Vec<Tensor>>> {
    let (fulfil, results) = promise();
    let (function, inner) = (function.clone(), step.clone());
    step.runner.spawn(Box::new(move || {
        function.run(args, &inner, Box::new(move |result| fulfil.set(result)));
    }));
    results
}

/// Returns a step for work that may outlive the one that starts it.
pub(super) fn background(step: &Step, cancellation: Cancellation) -> Arc<Step> {
    Arc::new(Step {
        id: step.id,
        device: step.device.clone(),
        cancellation,
        rendezvous: Arc::new(LocalRendezvous::new()),
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
