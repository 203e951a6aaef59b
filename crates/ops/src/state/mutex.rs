//! Mutexes in graphs: MutexV2, MutexLock, ConsumeMutexLock.

use graph::{Graph, Operation, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, Resource, ResourceCache, ResourceManager, shape,
};
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, Status, Tensor, Variant, VariantValue};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "MutexV2",
            inputs: &[],
            outputs: &["resource: resource"],
            attrs: &["container: string = ''", "shared_name: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(MutexOp::create)],
    },
    Op {
        def: OpDef {
            name: "MutexLock",
            inputs: &["mutex: resource"],
            outputs: &["mutex_lock: variant"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_async(MutexLock))],
    },
    Op {
        def: OpDef {
            name: "ConsumeMutexLock",
            inputs: &["mutex_lock: variant"],
            outputs: &[],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ConsumeMutexLock))],
    },
];

/// Returns a mutex.
#[track_caller]
pub fn mutex_v2(graph: &Graph, shared_name: &str) -> Output {
    graph.op("MutexV2").attr("shared_name", shared_name).output()
}

/// Locks a mutex until the output is dropped or consumed.
#[track_caller]
pub fn mutex_lock(mutex: &Output) -> Output {
    mutex.graph().op("MutexLock").input(mutex).output()
}

/// Holds a lock up to this point.
#[track_caller]
pub fn consume_mutex_lock(lock: &Output) -> Operation {
    lock.graph().op("ConsumeMutexLock").input(lock).build()
}

/// A mutex with waiters that hold no thread.
struct GraphMutex {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    locked: bool,
    next_waiter: u64,
    waiters: VecDeque<(u64, AsyncContext)>,
}

impl Resource for GraphMutex {
    fn type_name(&self) -> &'static str {
        "N10tensorflow5MutexE"
    }

    fn describe(&self) -> String {
        format!("mutex, {} waiting", self.state.lock().waiters.len())
    }
}

impl GraphMutex {
    /// Passes the lock to the first waiter.
    fn unlock(self: &Arc<Self>) {
        let next = {
            let mut state = self.state.lock();
            let next = state.waiters.pop_front();
            state.locked = next.is_some();
            next
        };
        if let Some((_, context)) = next {
            // The last owner may unlock it on any thread, and that thread must not run the rest of a step.
            let (runner, mutex) = (context.step().runner.clone(), self.clone());
            runner.spawn(Box::new(move || grant(context, mutex)));
        }
    }
}

fn grant(context: AsyncContext, mutex: Arc<GraphMutex>) {
    context.finish_with(|context| {
        context.set_output(0, Tensor::variant(Variant::new(Lock { mutex })));
        Ok(())
    });
}

/// A held lock, which is released with its last copy.
struct Lock {
    mutex: Arc<GraphMutex>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}

impl VariantValue for Lock {
    fn type_name(&self) -> &str {
        "(anonymous namespace)::SharedLockReleaser"
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        Err(Status::invalid_argument("a lock of a mutex can't leave its task"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct MutexOp {
    container: String,
    name: String,
    cache: ResourceCache<Tensor>,
}

impl MutexOp {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (container, name) = builder.resource_name();
        BoxedKernel::new(MutexOp { container, name, cache: ResourceCache::new() })
    }
}

impl Kernel for MutexOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let device = &context.step().device;
        let handle = self.cache.get(&context.step().resources, |manager| {
            let create = || Ok(GraphMutex { state: Mutex::default() });
            let mutex = manager.lookup_or_create(&self.container, &self.name, create)?;
            Ok((Tensor::resource(ResourceManager::handle_to(device, &self.container, &self.name, mutex)), true))
        })?;
        context.set_output(0, handle);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct MutexLock;

impl AsyncKernel for MutexLock {
    fn compute(&self, mut context: AsyncContext) {
        let mutex = match context.op().resource::<GraphMutex>(0) {
            Ok(mutex) => mutex,
            Err(status) => return context.finish(Err(status)),
        };
        let cancellation = context.step().cancellation.clone();
        let mut state = mutex.state.lock();
        if !state.locked {
            state.locked = true;
            drop(state);
            return grant(context, mutex);
        }
        let waiter = state.next_waiter;
        state.next_waiter += 1;
        state.waiters.push_back((waiter, context));
        drop(state);
        let waited = mutex.clone();
        let give_up = move |_| withdraw(&waited, waiter);
        if cancellation.register(give_up).is_err() {
            withdraw(&mutex, waiter);
        }
    }
}

/// Ends the wait of a cancelled step; if it has the lock by now, it keeps it.
fn withdraw(mutex: &GraphMutex, waiter: u64) {
    let withdrawn = {
        let mut state = mutex.state.lock();
        let position = state.waiters.iter().position(|(id, _)| *id == waiter);
        position.and_then(|position| state.waiters.remove(position))
    };
    if let Some((_, context)) = withdrawn {
        context.finish(Err(Status::cancelled("Lock acquisition cancelled.")));
    }
}

struct ConsumeMutexLock;

impl Kernel for ConsumeMutexLock {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let lock = context.take_input(0)?;
        match lock.variants()? {
            [variant] if variant.downcast_ref::<Lock>().is_some() => Ok(()),
            [variant] => Err(Status::invalid_argument(format!(
                "Expected input to contain a SharedLockReleaser object, but saw variant: '{}'",
                variant.type_name()
            ))),
            _ => Err(Status::invalid_argument("mutex_lock must be a scalar")),
        }
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, start_kernel};
    use kernel::{Value, Values};
    use smallvec::smallvec;
    use std::sync::mpsc::TryRecvError;

    fn lock(session: &TestSession, handle: &Tensor) -> std::sync::mpsc::Receiver<Result<kernel::Outputs>> {
        let inputs: Values = smallvec![Value::Tensor(handle.clone())];
        let kernel = BoxedKernel::Async(Box::new(MutexLock));
        start_kernel(&kernel, inputs, 1, &session.step, "lock")
    }

    #[test]
    fn one_holds_the_lock_and_the_next_waits() {
        let session = TestSession::new();
        let mutex = mutex_v2(&session.graph, "m");
        let handle = session.fetch(&mutex, &[]).unwrap();
        let first = lock(&session, &handle).recv().unwrap().unwrap();
        let second = lock(&session, &handle);
        let third = lock(&session, &handle);
        assert_eq!(second.try_recv().err(), Some(TryRecvError::Empty));
        drop(first);
        let second = second.try_recv().unwrap().unwrap();
        assert_eq!(third.try_recv().err(), Some(TryRecvError::Empty));
        session.step.cancellation.cancel(Status::cancelled("stop"));
        let status = third.try_recv().unwrap().err().unwrap();
        assert_eq!(status.message(), "Lock acquisition cancelled.");
        drop(second);
    }

    #[test]
    fn a_lock_is_consumed_where_the_critical_section_ends() {
        let session = TestSession::new();
        let mutex = mutex_v2(&session.graph, "m");
        let end = consume_mutex_lock(&mutex_lock(&mutex));
        session.run(&end, &[]).unwrap();
        session.run(&end, &[]).unwrap();
        let other = session.placeholder(tensor::DType::Variant);
        let wrong = consume_mutex_lock(&other);
        assert!(session.run(&wrong, &[(&other, Tensor::variant(Variant::Empty))]).is_err());
    }
}
