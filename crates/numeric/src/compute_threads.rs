//! The compute threads of the process: one for each core, started as they are needed.
//!
//! A thread without work sleeps at once. Pools made for fine-grained stealing keep idle threads looking around for a while;
//! when several tasks share a machine, as the tasks of a cluster do, that look is taken from a neighbour's arithmetic.
//!
//! A job may take as long as it likes. When all threads have been at theirs for a while and others wait, one more thread is
//! started, up to a bound: it goes as soon as nobody waits any more.

use crate::idle::{self, IdleThreads};
use crate::watchdog::{Stillness, notice};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

/// Something to be done on a compute thread.
pub use crate::environment::Job;

/// How many threads there may be beyond the cores, in place of those that are at one job for long.
const STAND_INS_MAX: usize = 32;

static WORKERS: Workers = Workers {
    state: Mutex::new(State { jobs: VecDeque::new(), started: 0, idle: 0, called: 0, taken: 0, wakings: 0 }),
    has_work: Condvar::new(),
    stillness: Mutex::new(Stillness::new()),
};

/// Has `job` done by the next compute thread that is free. A panic ends the job and nothing else.
pub fn spawn(job: Job) {
    match crate::environment::current() {
        None => WORKERS.spawn(job),
        Some(environment) => environment.spawn(job),
    }
}

/// Looks whether jobs wait while no thread takes any, and starts one that does; returns whether there is still something to
/// look at.
pub(crate) fn look() -> bool {
    WORKERS.look()
}

/// The compute threads as those see them who have idle threads give memory back. Registered when the first of them starts.
static IDLE: LazyLock<Arc<Sleepers>> = LazyLock::new(|| {
    let sleepers = Arc::new(Sleepers);
    idle::register(&sleepers);
    sleepers
});

struct Sleepers;

impl IdleThreads for Sleepers {
    fn wake_to_give_back(&self) {
        WORKERS.lock().wakings += 1;
        WORKERS.has_work.notify_all();
    }
}

struct Workers {
    state: Mutex<State>,
    has_work: Condvar,
    /// Whether jobs are being taken; only the watchdog asks.
    stillness: Mutex<Stillness>,
}

struct State {
    jobs: VecDeque<Job>,
    started: usize,
    /// Threads that sleep, those among them included that were called and haven't woken up yet.
    idle: usize,
    /// Threads that were called and haven't woken up yet.
    called: usize,
    /// How many jobs were taken so far.
    taken: u64,
    /// How often the threads that sleep were woken to give memory back.
    wakings: u64,
}

impl Workers {
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
            // When no thread can be had, others do it; without any, this one must.
            if !self.start(&mut state) && state.started == 0 {
                let job = state.jobs.pop_back();
                drop(state);
                job.into_iter().for_each(|job| job());
            }
        } else {
            drop(state);
            // All are at something, perhaps for long.
            notice();
        }
    }

    /// Starts one more thread; returns whether there is one.
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

    /// What a thread does all its life.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.taken += 1;
                drop(state);
                // What panics was reported when it did; whoever waits for the job sees that it is gone.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            if state.started > crate::parallel::cores() {
                // There are enough without this one, as soon as those that were stuck are not.
                state.started -= 1;
                return;
            }
            state.idle += 1;
            let mut wakings = state.wakings;
            // Awake without having been called, it sleeps on: `called` would count it no longer.
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

    /// Threads that sleep give back what is theirs when they are told, each of them, and go on to do jobs.
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
        // The thread may not sleep yet, and other tests may keep it busy: it is told until it does.
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
