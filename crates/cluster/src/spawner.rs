//! [`Spawner`]: runs a task's background work, on a runtime or in a simulation.

use futures_util::future::{AbortHandle as Abort, Abortable, BoxFuture};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Runs futures in place of a runtime.
pub trait SpawnsFutures: Send + Sync {
    /// Runs a future until it is ready.
    fn spawn(&self, future: BoxFuture<'static, ()>);
}

/// Runs a task's background work.
#[derive(Clone)]
pub struct Spawner(Kind);

#[derive(Clone)]
enum Kind {
    Runtime(Handle),
    Given(Arc<dyn SpawnsFutures>),
}

impl From<Handle> for Spawner {
    fn from(runtime: Handle) -> Spawner {
        Spawner(Kind::Runtime(runtime))
    }
}

impl Spawner {
    /// Returns a spawner that isn't a runtime.
    pub fn given(spawns: Arc<dyn SpawnsFutures>) -> Spawner {
        Spawner(Kind::Given(spawns))
    }

    /// Returns the runtime, if there is one.
    pub(crate) fn runtime(&self) -> Option<&Handle> {
        match &self.0 {
            Kind::Runtime(runtime) => Some(runtime),
            Kind::Given(_) => None,
        }
    }

    /// Runs a future to completion, whether or not anybody waits for it.
    pub(crate) fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Spawned<T> {
        match &self.0 {
            Kind::Runtime(runtime) => Spawned::Runtime(runtime.spawn(future)),
            Kind::Given(spawns) => {
                let (abort, registration) = Abort::new_pair();
                let (sender, outcome) = oneshot::channel();
                let future = Abortable::new(future, registration);
                spawns.spawn(Box::pin(async move {
                    if let Ok(output) = future.await {
                        let _ = sender.send(output);
                    }
                }));
                Spawned::Given { outcome, abort }
            }
        }
    }
}

/// A running future; awaiting it returns its output, or why there is none.
pub(crate) enum Spawned<T> {
    Runtime(tokio::task::JoinHandle<T>),
    Given { outcome: oneshot::Receiver<T>, abort: Abort },
}

impl<T> Spawned<T> {
    /// Returns a handle that cancels the future.
    pub fn abort_handle(&self) -> AbortHandle {
        match self {
            Spawned::Runtime(task) => AbortHandle::Runtime(task.abort_handle()),
            Spawned::Given { abort, .. } => AbortHandle::Given(abort.clone()),
        }
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T, String>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Spawned::Runtime(task) => Pin::new(task).poll(context).map_err(|error| error.to_string()),
            Spawned::Given { outcome, .. } => Pin::new(outcome).poll(context).map_err(|_| "it was ended".to_owned()),
        }
    }
}

/// Ends a future early.
#[derive(Clone, Debug)]
pub(crate) enum AbortHandle {
    Runtime(tokio::task::AbortHandle),
    Given(Abort),
}

impl AbortHandle {
    /// Drops the future soon.
    pub fn abort(&self) {
        match self {
            AbortHandle::Runtime(task) => task.abort(),
            AbortHandle::Given(abort) => abort.abort(),
        }
    }
}
