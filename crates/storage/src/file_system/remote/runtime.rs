//! Where requests to stores run: a small runtime of its own, started by the first request.
//!
//! Callers wait on their own thread, which in a server is one for files: never a thread that serves or computes. A cancelled step
//! cancels the request that its thread waits for.

use super::errors;
use std::future::Future;
use std::io;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tensor::{Result, Status, check_interrupt};
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// The number of threads that send requests. They do no other work than encryption.
const THREADS: usize = 2;

/// How long one request to a store may take, including its repetitions.
const LIMIT: Duration = Duration::from_secs(10 * 60);

/// The interval at which a waiting thread checks whether its step was cancelled, since cancellation doesn't wake it.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(THREADS).thread_name("ferroflow-store").enable_all().build()
});

/// A pending request. It is cancelled when this is dropped.
pub(super) struct Pending<T> {
    path: String,
    receiver: Receiver<Result<T>>,
    task: AbortHandle,
}

/// Starts a request. Errors name `path`.
pub(super) fn start<T: Send + 'static>(
    path: &str,
    request: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> Result<Pending<T>> {
    check_interrupt()?;
    let runtime = RUNTIME.as_ref().map_err(|error| {
        Status::resource_exhausted(format!("{path}; no threads for requests to a store can be started: {error}"))
    })?;
    let (sender, receiver) = sync_channel(1);
    let named = path.to_owned();
    let task = runtime.spawn(async move {
        let result = match tokio::time::timeout(LIMIT, request).await {
            Ok(result) => result.map_err(|error| errors::status(&named, &error)),
            Err(_) => Err(Status::deadline_exceeded(format!("{named}; no answer within {} s", LIMIT.as_secs()))),
        };
        // If this fails, nobody waits for the result any more.
        let _ = sender.send(result);
    });
    Ok(Pending { path: path.to_owned(), receiver, task: task.abort_handle() })
}

/// Runs a request and waits for its result.
pub(super) fn wait<T: Send + 'static>(
    path: &str,
    request: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> Result<T> {
    start(path, request)?.wait()
}

/// Runs a request whose result nobody needs.
pub(super) fn detach(request: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = RUNTIME.as_ref() {
        runtime.spawn(async move {
            let _ = tokio::time::timeout(LIMIT, request).await;
        });
    }
}

impl<T> Pending<T> {
    /// Waits for the result, or until the step of this thread is cancelled.
    pub(super) fn wait(self) -> Result<T> {
        loop {
            match self.receiver.recv_timeout(CHECK_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => check_interrupt()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Status::internal(format!("{}; a request to a store was lost", self.path)));
                }
            }
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
