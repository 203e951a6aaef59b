//! Threads for work that may block on a disk or another machine, above all for file access.
//!
//! File access may take any time. It runs here, so that no compute thread and no serving thread waits for it. A cancelled step
//! does not wait either: it ends at once, and the thread, which cannot be stopped while the system call does not return, is
//! abandoned. It counts until it comes back, so that there are never more than [`THREADS_MAX`].

use crate::{AsyncContext, AsyncKernel, BoxedKernel, Kernel, OpContext, Outputs, Step, Value};
use numeric::environment;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tensor::{Interrupt, Result, Status};

/// The most threads.
const THREADS_MAX: usize = 32;

/// The most jobs that may wait for a thread.
const WAITING_MAX: usize = 1 << 16;

/// How long a thread without work waits before it ends.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Runs `work` on a thread for files, and calls `done` once with its result, on that thread. If the step is cancelled first,
/// `done` receives the reason at once, on the thread that cancels; [`check_interrupt`](tensor::check_interrupt) then tells
/// `work`, whose result is dropped.
///
/// `what` describes the work in errors.
pub fn run_io<T: Send + 'static>(
    step: &Step,
    what: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
    done: impl FnOnce(Result<T>) + Send + 'static,
) {
    POOL.run(step, what, work, done);
}

impl BoxedKernel {
    /// Wraps a kernel that blocks on files in `compute`. It runs on a thread for files, and a cancelled step does not wait for it.
    pub fn new_blocking(kernel: impl Kernel + 'static) -> Result<BoxedKernel> {
        BoxedKernel::new_async(Blocking::new(kernel))
    }
}

/// Runs a kernel on a thread for files.
struct Blocking<K> {
    kernel: Arc<K>,
}

impl<K: Kernel> Blocking<K> {
    fn new(kernel: K) -> Blocking<K> {
        Blocking { kernel: Arc::new(kernel) }
    }
}

impl<K: Kernel + 'static> AsyncKernel for Blocking<K> {
    fn compute(&self, mut context: AsyncContext) {
        let kernel = self.kernel.clone();
        let (step, node_name, frame, is_dead) = context.parts();
        let (mut inputs, count) = context.take_inputs();
        let (of_work, name) = (step.clone(), node_name.clone());
        let work = move || {
            let mut outputs: Outputs = (0..count).map(|_| Value::None).collect();
            let mut op = OpContext::new(&mut inputs, &mut outputs, &of_work, &name, frame, is_dead);
            kernel.compute(&mut op)?;
            Ok(outputs)
        };
        run_io(&step, &node_name, work, move |outputs| context.finish_as(outputs));
    }
}

static POOL: Pool = Pool {
    state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0, called: 0, given_up: 0 }),
    has_work: Condvar::new(),
    next_id: AtomicU64::new(0),
};

struct Pool {
    state: Mutex<State>,
    has_work: Condvar,
    next_id: AtomicU64,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for work, including those that were called but have not woken up yet.
    idle: usize,
    /// Threads that were called but have not woken up yet.
    called: usize,
    /// Abandoned threads, whose work nobody waits for any more.
    given_up: usize,
}

struct Job {
    id: u64,
    run: Box<dyn FnOnce() + Send>,
}

/// The stage of a job, for cancellation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    GivenUp,
    Ended,
}

/// The state that a job's thread shares with the thread that cancels the job.
struct Ticket<D> {
    stage: Mutex<Stage>,
    /// Called by the first of the two to take it.
    done: Mutex<Option<D>>,
    interrupt: Interrupt,
}

impl Pool {
    fn run<T: Send + 'static, D: FnOnce(Result<T>) + Send + 'static>(
        &'static self,
        step: &Step,
        what: &str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
        done: D,
    ) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let ticket = Arc::new(Ticket {
            stage: Mutex::new(Stage::Waiting),
            done: Mutex::new(Some(done)),
            interrupt: Interrupt::new(),
        });
        let cancelled = ticket.clone();
        let registered = step.cancellation.register(move |status| {
            cancelled.interrupt.raise();
            self.give_up(id, &cancelled.stage);
            cancelled.finish(Err(status));
        });
        let token = match registered {
            Ok(token) => token,
            Err(status) => return ticket.finish(Err(status)),
        };
        let (cancellation, of_job) = (step.cancellation.clone(), ticket.clone());
        let run = move || {
            {
                let mut stage = of_job.stage.lock();
                if *stage != Stage::Waiting {
                    return;
                }
                *stage = Stage::Running;
            }
            let result = catch_unwind(AssertUnwindSafe(|| of_job.interrupt.within(work)));
            let result = result.unwrap_or_else(|_| Err(Status::internal("file access panicked")));
            if std::mem::replace(&mut *of_job.stage.lock(), Stage::Ended) == Stage::GivenUp {
                self.state.lock().given_up -= 1;
            }
            cancellation.deregister(token);
            of_job.finish(result);
        };
        if let Err(status) = self.add(Job { id, run: Box::new(run) }, what) {
            step.cancellation.deregister(token);
            ticket.finish(Err(status));
        }
    }

    fn add(&'static self, job: Job, what: &str) -> Result<()> {
        if let Some(environment) = environment::current() {
            environment.spawn(job.run);
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.given_up >= THREADS_MAX {
            return Err(Status::unavailable(format!(
                "{what}: all {THREADS_MAX} threads for files wait for files that do not answer, for steps that were cancelled"
            )));
        }
        if state.jobs.len() >= WAITING_MAX {
            return Err(Status::resource_exhausted(format!(
                "{what}: {WAITING_MAX} other file accesses wait for a thread"
            )));
        }
        if state.idle > state.called {
            state.called += 1;
            state.jobs.push_back(job);
            self.has_work.notify_one();
            return Ok(());
        }
        if state.threads < THREADS_MAX {
            let spawned = std::thread::Builder::new().name("files".to_owned()).spawn(|| self.work());
            state.threads += usize::from(spawned.is_ok());
            if state.threads == 0 {
                return Err(Status::resource_exhausted(format!("{what}: no thread for files can be started")));
            }
        }
        state.jobs.push_back(job);
        Ok(())
    }

    /// Removes a job from the queue, or abandons the thread that runs it.
    fn give_up(&self, id: u64, stage: &Mutex<Stage>) {
        let mut state = self.state.lock();
        let mut stage = stage.lock();
        match *stage {
            Stage::Waiting => {
                *stage = Stage::Ended;
                let position = state.jobs.iter().position(|job| job.id == id);
                let job = position.and_then(|position| state.jobs.remove(position));
                drop((stage, state));
                drop(job);
            }
            Stage::Running => {
                *stage = Stage::GivenUp;
                state.given_up += 1;
            }
            Stage::GivenUp | Stage::Ended => {}
        }
    }

    /// The main loop of a thread.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // The panic hook has reported the panic, and the ticket is finished.
                let _ = catch_unwind(AssertUnwindSafe(job.run));
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            while state.called == 0 {
                if self.has_work.wait_for(&mut state, IDLE_TIME).timed_out() && state.called == 0 {
                    state.idle -= 1;
                    state.threads -= 1;
                    return;
                }
            }
            state.called -= 1;
            state.idle -= 1;
        }
    }
}

impl<D> Ticket<D> {
    fn finish<T>(&self, result: Result<T>)
    where
        D: FnOnce(Result<T>),
    {
        let done = self.done.lock().take();
        if let Some(done) = done {
            done(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tensor::{Code, check_interrupt};

    const FAR: Duration = Duration::from_secs(60);

    fn new_pool() -> &'static Pool {
        Box::leak(Box::new(Pool {
            state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0, called: 0, given_up: 0 }),
            has_work: Condvar::new(),
            next_id: AtomicU64::new(0),
        }))
    }

    #[test]
    fn a_cancelled_step_does_not_wait_and_its_thread_counts_until_it_is_back() {
        let pool = new_pool();
        let (sender, results) = mpsc::channel();
        let (back, backs) = mpsc::channel();
        let mut gates = Vec::new();
        for _ in 0..THREADS_MAX {
            let step = Step::detached();
            let (started, has_started) = mpsc::channel();
            let (gate, until_open) = mpsc::channel::<()>();
            let (sender, back) = (sender.clone(), back.clone());
            let work = move || {
                started.send(()).unwrap();
                let _ = until_open.recv();
                let told = check_interrupt();
                back.send(told.is_err()).unwrap();
                told
            };
            pool.run(&step, "work", work, move |result| sender.send(result).unwrap());
            has_started.recv_timeout(FAR).unwrap();
            step.cancellation.cancel(Status::cancelled("enough"));
            // The step has ended although the work has not.
            assert_eq!(results.recv_timeout(FAR).unwrap().unwrap_err(), Status::cancelled("enough"));
            gates.push(gate);
        }
        let step = Step::detached();
        let refused = sender.clone();
        pool.run(&step, "one more", || Ok(()), move |result| refused.send(result).unwrap());
        assert_eq!(results.recv_timeout(FAR).unwrap().unwrap_err().code(), Code::Unavailable);
        drop(gates);
        for _ in 0..THREADS_MAX {
            assert!(backs.recv_timeout(FAR).unwrap(), "the work was not told");
        }
        // A thread reports its result before it is counted as back, so a job added now may still be rejected.
        loop {
            let again = sender.clone();
            pool.run(&step, "one more", || Ok(()), move |result| again.send(result).unwrap());
            match results.recv_timeout(FAR).unwrap() {
                Ok(()) => break,
                Err(status) => assert_eq!(status.code(), Code::Unavailable),
            }
        }
    }

    #[test]
    fn what_waits_for_a_thread_goes_with_its_step() {
        let pool = new_pool();
        let (sender, results) = mpsc::channel();
        let mut gates = Vec::new();
        let busy = Step::detached();
        for _ in 0..THREADS_MAX {
            let (gate, until_open) = mpsc::channel::<()>();
            let sender = sender.clone();
            let work = move || {
                let _ = until_open.recv();
                Ok(())
            };
            pool.run(&busy, "work", work, move |result: Result<()>| sender.send(result).unwrap());
            gates.push(gate);
        }
        let step = Step::detached();
        let last = sender.clone();
        pool.run(&step, "late", || panic!("nobody wants it any more"), move |result| last.send(result).unwrap());
        step.cancellation.cancel(Status::cancelled("enough"));
        assert!(results.recv_timeout(FAR).unwrap().is_err());
        drop(gates);
        assert!((0..THREADS_MAX).all(|_| results.recv_timeout(FAR).unwrap().is_ok()));
    }

    #[test]
    fn only_so_many_jobs_wait() {
        let pool = new_pool();
        let (sender, results) = mpsc::channel();
        let busy = Step::detached();
        let mut gates = Vec::new();
        for _ in 0..THREADS_MAX {
            let (started, has_started) = mpsc::channel();
            let (gate, until_open) = mpsc::channel::<()>();
            let work = move || {
                started.send(()).unwrap();
                let _ = until_open.recv();
                Ok(())
            };
            pool.run(&busy, "work", work, |result: Result<()>| result.unwrap());
            has_started.recv_timeout(FAR).unwrap();
            gates.push(gate);
        }
        for _ in 0..WAITING_MAX {
            let sender = sender.clone();
            pool.run(&busy, "wait", || Ok(()), move |result: Result<()>| sender.send(result).unwrap());
        }
        let late = sender.clone();
        pool.run(&busy, "late", || Ok(()), move |result: Result<()>| late.send(result).unwrap());
        let status = results.recv_timeout(FAR).unwrap().unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().starts_with("late: 65536 other file accesses wait"), "{status}");
        drop(gates);
        // No accepted job is lost.
        assert!((0..WAITING_MAX).all(|_| results.recv_timeout(FAR).unwrap().is_ok()));
    }

    #[test]
    fn work_that_panics_is_an_error() {
        let (sender, results) = mpsc::channel();
        let work = || -> Result<()> { panic!("on purpose") };
        new_pool().run(&Step::detached(), "work", work, move |result| sender.send(result).unwrap());
        assert_eq!(results.recv_timeout(FAR).unwrap().unwrap_err().code(), Code::Internal);
    }
}
