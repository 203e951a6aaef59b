//! The serving threads: how many there are, how the kernel schedules them, and which work is kept off them.

use crate::stand_ins::{PeerThreads, STAND_INS, StandIns};
use executor::ServingThread;
use executor::watchdog::watch;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// A graph with this many nodes takes so long to process that others should not wait for it.
const LARGE_GRAPH_NODES: usize = 2_000;

/// A message of this many bytes takes as long to decode.
const LARGE_MESSAGE_BYTES: usize = 256 << 10;

/// Returns the runtime of a process that is one task of a cluster. By default one thread for every two cores serves calls and
/// runs short steps; expensive work goes to the compute threads, of which there is one for each core. If a serving thread is
/// stuck, a substitute takes its place.
pub fn serving_runtime(threads: Option<usize>) -> std::io::Result<ServingRuntime> {
    serving_runtime_named(threads, "ferroflow-server")
}

fn serving_runtime_named(threads: Option<usize>, name: &str) -> std::io::Result<ServingRuntime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let num_threads = threads.unwrap_or(cores / 2).max(1) + STAND_INS;
    let stand_ins = Arc::new(StandIns::of(num_threads));
    let of_threads = stand_ins.clone();
    let runtime = Builder::new_multi_thread()
        .worker_threads(num_threads)
        .thread_name(name)
        .on_thread_start(move || {
            let_others_finish();
            of_threads.add_this_thread();
        })
        .on_thread_park(ServingThread::goes_idle)
        .on_thread_unpark(ServingThread::goes_on)
        .enable_all()
        .build()?;
    stand_ins.start(runtime.handle());
    let handle = runtime.handle().clone();
    Ok(ServingRuntime { runtime: Some(runtime), handle, stand_ins })
}

/// A runtime whose serving threads are replaced while they are stuck.
pub struct ServingRuntime {
    /// Present until it is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
    stand_ins: Arc<StandIns>,
}

impl ServingRuntime {
    /// Returns a handle to start tasks on the runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a future on this thread until it is ready.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Shuts the runtime down without waiting for its tasks.
    pub fn shutdown_background(mut self) {
        self.stand_ins.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for ServingRuntime {
    fn drop(&mut self) {
        self.stand_ins.close();
    }
}

/// Starts a thread that serves one peer. It is scheduled like the thread that starts it.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    static PEERS: LazyLock<Arc<PeerThreads>> = LazyLock::new(|| {
        let peers = Arc::new(PeerThreads::default());
        watch(&peers);
        peers
    });
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(move || {
        PEERS.add_this_thread();
        body();
    });
    started.map(drop)
}

/// Makes this thread, and the threads that it starts, wait for a core when they are woken instead of preempting a running thread.
/// A task that writes to its peer often has a little more to write or read; if the peer preempts it for a whole step at that
/// moment, a third task that waits for the rest waits for the step, too.
#[cfg(target_os = "linux")]
fn let_others_finish() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which changes only how this thread is scheduled. Where it is forbidden
    // nothing changes.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

#[cfg(not(target_os = "linux"))]
fn let_others_finish() {}

thread_local! {
    /// Whether this thread is a caller's that waits in [`wait_for`], and so serves nobody.
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// Runs a future on this thread until it is ready. It may be any thread, including one that runs a task of another runtime; the
/// future must not yield to that runtime's other tasks (`yield_now`), which have to wait.
pub fn wait_for<F: Future>(runtime: &Handle, future: F) -> F::Output {
    /// Wakes a thread that waits.
    #[derive(Default)]
    struct Signal {
        is_woken: Mutex<bool>,
        woken: Condvar,
    }
    impl Wake for Signal {
        fn wake(self: Arc<Self>) {
            *self.is_woken.lock() = true;
            self.woken.notify_one();
        }
    }
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_CALLER.set(self.0);
        }
    }
    let _restore = Restore(IS_CALLER.replace(true));
    // For timers, which belong to a runtime.
    let _entered = runtime.enter();
    // Leaves the cooperative budget of the enclosing runtime's task, which would not be renewed before this returns.
    let mut future = pin!(tokio::task::unconstrained(future));
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(signal.clone());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_woken = signal.is_woken.lock();
        while !std::mem::take(&mut *is_woken) {
            signal.woken.wait(&mut is_woken);
        }
    }
}

/// Runs expensive work on a large graph; another thread serves calls meanwhile.
pub(crate) fn for_graph<T>(num_nodes: usize, work: impl FnOnce() -> T) -> T {
    if num_nodes >= LARGE_GRAPH_NODES { hand_over(work) } else { work() }
}

/// Runs expensive work on a large message, in the same way.
pub(crate) fn for_message<T>(num_bytes: usize, work: impl FnOnce() -> T) -> T {
    if num_bytes >= LARGE_MESSAGE_BYTES { hand_over(work) } else { work() }
}

/// Runs work that may be expensive; another thread serves calls meanwhile.
pub(crate) fn hand_over<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if !IS_CALLER.get() => tokio::task::block_in_place(|| {
            // Another thread serves, so nobody waits for this one.
            ServingThread::goes_idle();
            let result = work();
            ServingThread::goes_on();
            result
        }),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Calls are served while a large graph is processed, even by the only thread.
    #[test]
    fn a_large_graph_does_not_hold_up_others() {
        let runtime = serving_runtime(Some(1)).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let looked_at = runtime.handle().spawn(async move {
            tokio::spawn(async move { sender.send(()).unwrap() });
            for_graph(LARGE_GRAPH_NODES, || receiver.recv_timeout(Duration::from_secs(60)))
        });
        runtime.block_on(looked_at).unwrap().expect("the other call was not served");
    }

    /// Calls are served while threads are stuck, even if their places have to be filled repeatedly.
    #[test]
    fn a_thread_that_is_stuck_is_replaced() {
        let runtime = serving_runtime(Some(1)).unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let echo = async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            }
        };
        runtime.handle().spawn(echo);
        for round in 0..2 {
            let mut gates = Vec::new();
            for stuck in 0..STAND_INS {
                let (open, gate) = std::sync::mpsc::channel::<()>();
                gates.push(open);
                let (sender, receiver) = std::sync::mpsc::channel();
                runtime.handle().spawn(async move {
                    sender.send(()).unwrap();
                    let _ = gate.recv();
                });
                let far = Duration::from_secs(60);
                receiver.recv_timeout(far).unwrap_or_else(|_| panic!("no thread in round {round} after {stuck}"));
                use std::io::{Read, Write};
                let mut client = std::net::TcpStream::connect(address).unwrap();
                client.set_read_timeout(Some(far)).unwrap();
                client.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap_or_else(|_| panic!("deaf in round {round} after {stuck}"));
            }
        }
    }

    #[test]
    fn a_runtime_with_a_stuck_thread_ends() {
        let runtime = serving_runtime(Some(1)).unwrap();
        let (_open, gate) = std::sync::mpsc::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        runtime.handle().spawn(async move {
            sender.send(()).unwrap();
            let _ = gate.recv();
        });
        receiver.recv().unwrap();
        runtime.block_on(async { tokio::spawn(async {}).await.unwrap() });
        runtime.shutdown_background();
    }

    /// Each thread gives back what the allocator holds for it, serving threads and substitutes, and continues to serve.
    #[test]
    fn all_threads_give_memory_back_when_there_is_nothing_to_do() {
        static GAVE: Mutex<Vec<std::thread::ThreadId>> = Mutex::new(Vec::new());
        static CHANGED: Condvar = Condvar::new();
        executor::idle::set_hook(|| {
            if std::thread::current().name() == Some("all-give-back") {
                GAVE.lock().push(std::thread::current().id());
                CHANGED.notify_all();
            }
        });
        let serving = 3;
        let runtime = serving_runtime_named(Some(serving), "all-give-back").unwrap();
        let start = std::time::Instant::now();
        let far = Duration::from_secs(60);
        let num_threads = || GAVE.lock().iter().collect::<std::collections::HashSet<_>>().len();
        // A busy thread is left out and gives back the next time; a server asks every few seconds.
        while num_threads() < serving + STAND_INS {
            assert!(start.elapsed() < far, "{} threads have given memory back", num_threads());
            let asked = runtime.handle().spawn(async { executor::idle::give_back_everywhere() });
            runtime.block_on(asked).unwrap();
            let before = GAVE.lock().len();
            CHANGED.wait_while_for(&mut GAVE.lock(), |gave| gave.len() == before, Duration::from_millis(100));
        }
        runtime.block_on(runtime.handle().spawn(async {})).unwrap();
    }

    /// A program may use a session within a task of its own runtime, of any kind.
    #[test]
    fn a_caller_waits_on_any_thread() {
        let runtime = serving_runtime(Some(1)).unwrap();
        let handle = runtime.handle().clone();
        let ask = move || {
            wait_for(&handle, async {
                for_graph(LARGE_GRAPH_NODES, || ());
                // More polls than a task's cooperative budget allows.
                for _ in 0..1000 {
                    let (sender, receiver) = tokio::sync::oneshot::channel();
                    tokio::spawn(async move { sender.send(()).unwrap() });
                    tokio::time::timeout(Duration::from_secs(60), receiver).await.unwrap().unwrap();
                }
                7
            })
        };
        assert_eq!(ask(), 7);
        let own = Builder::new_current_thread().build().unwrap();
        assert_eq!(own.block_on(async { tokio::spawn(async move { ask() }).await.unwrap() }), 7);
    }

    #[test]
    fn a_graph_is_looked_through_on_any_thread() {
        assert_eq!(for_graph(LARGE_GRAPH_NODES, || 1), 1);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { for_graph(LARGE_GRAPH_NODES, || 2) }), 2);
    }
}
