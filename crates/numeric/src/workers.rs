//! The compute threads of the process: one for each core, started as they are needed.
//!
//! A thread without work sleeps at once. Pools made for fine-grained stealing keep idle threads looking around for a while;
//! when several tasks share a machine, as the tasks of a cluster do, that look is taken from a neighbour's arithmetic.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Something to be done on a compute thread.
pub type Job = Box<dyn FnOnce() + Send>;

static WORKERS: Workers = Workers {
    state: Mutex::new(State { jobs: VecDeque::new(), started: 0, idle: 0, called: 0 }),
    has_work: Condvar::new(),
};

/// Has `job` done by the next compute thread that is free. A panic ends the job and nothing else.
pub fn spawn(job: Job) {
    WORKERS.spawn(job);
}

struct Workers {
    state: Mutex<State>,
    has_work: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    started: usize,
    /// Threads that sleep, those among them included that were called and haven't woken up yet.
    idle: usize,
    /// Threads that were called and haven't woken up yet.
    called: usize,
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
            let thread = std::thread::Builder::new().name(format!("compute-{}", state.started));
            match thread.spawn(|| self.work()) {
                Ok(_) => state.started += 1,
                // Others do it; without any, this one must.
                Err(_) if state.started > 0 => {}
                Err(_) => {
                    let job = state.jobs.pop_back();
                    drop(state);
                    job.into_iter().for_each(|job| job());
                }
            }
        }
    }

    /// What a thread does all its life.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // What panics was reported when it did; whoever waits for the job sees that it is gone.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
                continue;
            }
            state.idle += 1;
            // Awake without having been called, it sleeps on: `called` would count it no longer.
            while state.called == 0 {
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
