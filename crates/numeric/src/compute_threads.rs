//! The compute threads of the process: one for each core, started on demand.
//!
//! Written by hand because a thread without work must sleep at once. Work-stealing pools let idle threads spin for a while,
//! and where several tasks share a machine, as the tasks of a cluster do, that time is taken from the other tasks.
//!
//! A job may take any time. When all threads have been busy for a while and jobs wait, the watchdog starts one more thread,
//! up to a bound; the extra threads end when there is no work for them.

use crate::idle::{self, IdleThreads};
use crate::watchdog::{Stillness, notice};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// A job for a compute thread.
pub use crate::environment::Job;

/// The most threads beyond the number of cores; they stand in for threads that are busy with a long job.
const STAND_INS_MAX: usize = 32;

static POOL: Pool = Pool {
    state: Mutex::new(State { jobs: VecDeque::new(), started: 0, idle: 0, called: 0, taken: 0, wakings: 0 }),
    has_work: Condvar::new(),
    stillness: Mutex::new(Stillness::new()),
};

/// Runs `job` on the next free compute thread. A panic ends the job and nothing else.
pub fn spawn(job: Job) {
    match crate::environment::current() {
        None => POOL.spawn(job),
        Some(environment) => environment.spawn(job),
    }
}

/// Starts a thread if jobs wait while no thread takes any. Returns whether the watchdog needs to look again.
pub(crate) fn look() -> bool {
    POOL.look()
}

/// The handle by which `idle` makes sleeping compute threads return memory. Registered when the first of them starts.
static IDLE: LazyLock<Arc<Sleepers>> = LazyLock::new(|| {
    let sleepers = Arc::new(Sleepers);
    idle::register(&sleepers);
    sleepers
});

struct Sleepers;

impl IdleThreads for Sleepers {
    fn wake_to_give_back(&self) {
        POOL.lock().wakings += 1;
        POOL.has_work.notify_all();
    }
}

struct Pool {
    state: Mutex<State>,
    has_work: Condvar,
    /// Tells whether jobs are being taken; only the watchdog reads it.
    stillness: Mutex<Stillness>,
}

struct State {
    jobs: VecDeque<Job>,
    started: usize,
    /// Threads that sleep, including those that were called but have not woken up yet.
    idle: usize,
    /// Threads that were called but have not woken up yet.
    called: usize,
    /// The number of jobs taken so far.
    taken: u64,
    /// How often the sleeping threads were woken to return memory.
    wakings: u64,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&'static self, job: Job) {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.idle > state.called {
            state.called += 1;
            drop(state);
            self.has_work.notify_one();
        } else if state.started < crate::parallel::cores() {
            // If no thread can be started, the existing ones run the job; if there are none, this thread must.
            if !self.start(&mut state) && state.started == 0 {
                let job = state.jobs.pop_back();
                drop(state);
                job.into_iter().for_each(|job| job());
            }
        } else {
            drop(state);
            // All threads are busy, perhaps for long.
            notice();
        }
    }

    /// Starts one more thread, and returns whether that succeeded.
    fn start(&'static self, state: &mut State) -> bool {
        LazyLock::force(&IDLE);
        let thread = std::thread::Builder::new().name(format!("compute-{}", state.started));
        let is_started = thread.spawn(|| self.work()).is_ok();
        state.started += usize::from(is_started);
        is_started
    }

    fn look(&'static self) -> bool {
        let mut stillness = self.stillness.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        if state.jobs.is_empty() || state.called > 0 {
            stillness.rest();
            return !state.jobs.is_empty();
        }
        if stillness.is_stuck(state.taken) && state.started < crate::parallel::cores() + STAND_INS_MAX {
            self.start(&mut state);
            stillness.rest();
        }
        true
    }

    /// The main loop of a compute thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.taken += 1;
                drop(state);
                // The panic hook has reported the panic; whoever waits for the job sees that it was dropped.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            if state.started > crate::parallel::cores() {
                // The stuck threads are back, so this stand-in is no longer needed.
                state.started -= 1;
                return;
            }
            state.idle += 1;
            let mut wakings = state.wakings;
            // A thread that wakes without being called sleeps on: it is still counted as idle.
            while state.called == 0 {
                if wakings != state.wakings {
                    wakings = state.wakings;
                    drop(state);
                    idle::give_back();
                    state = self.lock();
                    continue;
                }
                state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.called -= 1;
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn all_jobs_are_done_and_a_panic_ends_only_its_own() {
        let (sender, receiver) = mpsc::channel();
        for number in 0..1000 {
            let sender = sender.clone();
            spawn(Box::new(move || {
                assert!(number % 100 != 99, "every hundredth fails");
                sender.send(number).unwrap();
            }));
        }
        drop(sender);
        let mut done: Vec<i32> = receiver.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..1000).filter(|number| number % 100 != 99).collect::<Vec<_>>());
    }

    #[test]
    fn a_job_that_takes_long_does_not_keep_others_waiting() {
        let (sender, receiver) = mpsc::channel();
        let gates: Vec<mpsc::Sender<()>> = (0..crate::parallel::cores() + 2)
            .map(|_| {
                let (open, gate) = mpsc::channel::<()>();
                spawn(Box::new(move || {
                    let _ = gate.recv();
                }));
                open
            })
            .collect();
        spawn(Box::new(move || sender.send(()).unwrap()));
        receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the others' job was never done");
        drop(gates);
    }

    /// Each sleeping thread returns its memory when told to, and still runs jobs afterwards.
    #[test]
    fn threads_that_sleep_give_memory_back() {
        static CALLS: Mutex<Option<mpsc::Sender<Option<String>>>> = Mutex::new(None);
        let (sender, receiver) = mpsc::channel();
        *CALLS.lock().unwrap() = Some(sender);
        idle::set_hook(|| {
            if let Some(calls) = &*CALLS.lock().unwrap() {
                let _ = calls.send(std::thread::current().name().map(str::to_owned));
            }
        });
        let far = std::time::Duration::from_secs(60);
        let (done, is_done) = mpsc::channel();
        spawn(Box::new(move || done.send(()).unwrap()));
        is_done.recv_timeout(far).unwrap();
        // The thread may not be asleep yet, and other tests may keep it busy, so it is told until it answers.
        let start = std::time::Instant::now();
        loop {
            idle::give_back_everywhere();
            let is_compute = |name: Option<String>| name.is_some_and(|name| name.starts_with("compute-"));
            if receiver.recv_timeout(std::time::Duration::from_millis(10)).is_ok_and(is_compute) {
                break;
            }
            assert!(start.elapsed() < far, "no compute thread has given anything back");
        }
        let (done, is_done) = mpsc::channel();
        spawn(Box::new(move || done.send(()).unwrap()));
        is_done.recv_timeout(far).expect("no thread does jobs any more");
    }

    #[test]
    fn jobs_spawn_jobs() {
        let (sender, receiver) = mpsc::channel();
        fn chain(left: usize, sender: mpsc::Sender<()>) {
            spawn(Box::new(move || if left == 0 { sender.send(()).unwrap() } else { chain(left - 1, sender) }));
        }
        for _ in 0..4 {
            chain(1000, sender.clone());
        }
        drop(sender);
        assert_eq!(receiver.iter().count(), 4);
    }
}
