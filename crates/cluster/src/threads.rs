//! The threads that serve calls: how many there are, how the kernel schedules them, and what is kept off them.

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// A graph of so many nodes takes long enough to look through that others should not wait for it.
const LARGE_GRAPH_NODES: usize = 2_000;

/// A message of so many bytes takes as long to decode.
const LARGE_MESSAGE_BYTES: usize = 256 << 10;

/// Makes the runtime of a process that is one task of a cluster. By default one thread for every two cores serves calls and
/// runs steps that are short; what takes long goes to the compute threads, of which there is one for each core.
pub fn serving_runtime(threads: Option<usize>) -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Builder::new_multi_thread()
        .worker_threads(threads.unwrap_or(cores / 2).max(1))
        .thread_name("ferroflow-server")
        .on_thread_start(|| {
            let_others_finish();
            executor::serve_others_on_this_thread();
        })
        .enable_all()
        .build()
}

/// Starts a thread that serves one peer. It is scheduled as the thread that starts it.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.spawn(move || {
        executor::serve_others_on_this_thread();
        body();
    });
    started.map(drop)
}

/// Has this thread, and the threads that it starts, wait for a core when they are woken rather than take it from a thread
/// that runs. A task writes to its peer and then has a word left to say or to read; if the peer takes its core for a whole step
/// before that, a third one that waits for this word waits for the step.
#[cfg(target_os = "linux")]
fn let_others_finish() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which changes nothing but how this thread is scheduled. Where it is forbidden
    // nothing changes.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

#[cfg(not(target_os = "linux"))]
fn let_others_finish() {}

/// Runs what takes long if the graph is large; another thread serves calls meanwhile.
pub(crate) fn for_graph<T>(num_nodes: usize, work: impl FnOnce() -> T) -> T {
    if num_nodes >= LARGE_GRAPH_NODES { hand_over(work) } else { work() }
}

/// Runs what takes long if the message is large, in the same way.
pub(crate) fn for_message<T>(num_bytes: usize, work: impl FnOnce() -> T) -> T {
    if num_bytes >= LARGE_MESSAGE_BYTES { hand_over(work) } else { work() }
}

fn hand_over<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Calls go on being served while a large graph is looked through, even by the only thread.
    #[test]
    fn a_large_graph_does_not_hold_up_others() {
        let runtime = serving_runtime(Some(1)).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let looked_at = runtime.spawn(async move {
            tokio::spawn(async move { sender.send(()).unwrap() });
            for_graph(LARGE_GRAPH_NODES, || receiver.recv_timeout(Duration::from_secs(60)))
        });
        runtime.block_on(looked_at).unwrap().expect("the other call was not served");
    }

    #[test]
    fn a_graph_is_looked_through_on_any_thread() {
        assert_eq!(for_graph(LARGE_GRAPH_NODES, || 1), 1);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { for_graph(LARGE_GRAPH_NODES, || 2) }), 2);
    }
}
