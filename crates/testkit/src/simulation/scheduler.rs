//! [`Scheduler`]: runs all tasks of a simulated cluster on one thread. It controls the clock, and a seed decides which of the ready
//! tasks runs next.
//!
//! A *life* is a process from its start to its end. Its tasks end with it, at any point between two steps of the scheduler, and don't
//! run while it is frozen.

use super::random::Random;
use cluster::SpawnsFutures;
use executor::environment::{Environment, Job};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant, SystemTime};

/// One run of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub usize);

/// The life of clients, faults and the network itself, which never ends.
pub const OUTSIDE: Life = Life(0);

/// The longest time of one step of the scheduler, in microseconds.
const STEP_MICROS_MAX: u64 = 20;

/// The most steps of a run: more mean an endless loop.
const STEPS_MAX: u64 = 2_000_000;

/// The longest time of a run, by the simulated clock.
const TIME_MAX: Duration = Duration::from_secs(4 * 3600);

/// Why a run did not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// No task is ready, and no timer is set.
    NothingLeft,
    /// The run takes more steps, or more time, than any run should.
    TooLong,
    /// A task panicked.
    Panicked(String),
}

/// Runs tasks in an order that a seed decides.
pub struct Scheduler {
    state: Mutex<State>,
    woken: Arc<Mutex<Vec<u64>>>,
    start: Instant,
    /// Called after every step.
    after_step: Mutex<Option<Box<dyn Fn() + Send>>>,
}

struct State {
    now: Duration,
    random: Random,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    ready: Vec<u64>,
    timers: BinaryHeap<Reverse<Timer>>,
    next_timer: u64,
    lives: Vec<LifeState>,
    current: Life,
    /// The tasks of ended lives, until they are dropped.
    ended: Vec<Task>,
    /// A number that differs if two runs differ.
    trace: u64,
    steps: u64,
}

struct Task {
    life: Life,
    future: Option<BoxFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
}

#[derive(Clone, Copy)]
struct LifeState {
    is_alive: bool,
    is_frozen: bool,
}

struct Timer {
    due: Duration,
    order: u64,
    what: Due,
}

enum Due {
    Wake(Waker),
    Run(Life, Job),
    RunInOrder(Job),
}

impl PartialEq for Timer {
    fn eq(&self, other: &Timer) -> bool {
        self.order == other.order
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Timer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Timer) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

struct TaskWaker {
    id: u64,
    is_woken: AtomicBool,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            self.woken.lock().push(self.id);
        }
    }
}

impl Scheduler {
    /// Returns a scheduler for a seed; the clock begins at 0.
    pub fn new(seed: u64) -> Arc<Scheduler> {
        let outside = LifeState { is_alive: true, is_frozen: false };
        Arc::new(Scheduler {
            state: Mutex::new(State {
                now: Duration::ZERO,
                random: Random::new(seed, "scheduler"),
                tasks: BTreeMap::new(),
                next_task: 0,
                ready: Vec::new(),
                timers: BinaryHeap::new(),
                next_timer: 0,
                lives: vec![outside],
                current: OUTSIDE,
                ended: Vec::new(),
                trace: seed,
                steps: 0,
            }),
            woken: Arc::default(),
            start: Instant::now(),
            after_step: Mutex::new(None),
        })
    }

    /// Begins a life.
    pub fn begin_life(&self) -> Life {
        let mut state = self.state.lock();
        state.lives.push(LifeState { is_alive: true, is_frozen: false });
        Life(state.lives.len() - 1)
    }

    /// Ends a life: its tasks don't run any more, and are dropped before the next step.
    pub fn end_life(&self, life: Life) {
        let mut state = self.state.lock();
        state.lives[life.0].is_alive = false;
        let ids: Vec<u64> = state.tasks.iter().filter(|(_, task)| task.life == life).map(|(id, _)| *id).collect();
        for id in ids {
            let task = state.tasks.remove(&id);
            state.ended.extend(task);
        }
    }

    /// Freezes a life, as a signal stops a process, or continues it.
    pub fn freeze(&self, life: Life, is_frozen: bool) {
        self.state.lock().lives[life.0].is_frozen = is_frozen;
    }

    /// Returns whether a life has not ended.
    pub fn is_alive(&self, life: Life) -> bool {
        self.state.lock().lives[life.0].is_alive
    }

    /// Returns the time since the start.
    pub fn time(&self) -> Duration {
        self.state.lock().now
    }

    /// Returns a number that differs if two runs differ.
    pub fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Adds an event to the [`trace`](Scheduler::trace).
    pub fn note(&self, what: u64) {
        self.state.lock().note(what);
    }

    /// Returns the spawner of a life.
    pub fn spawner(self: &Arc<Scheduler>, life: Life) -> Arc<dyn SpawnsFutures> {
        Arc::new(OfLife { scheduler: self.clone(), life })
    }

    /// Calls a function on behalf of a life, which owns what the function spawns.
    pub fn within<T>(&self, life: Life, act: impl FnOnce() -> T) -> T {
        let before = std::mem::replace(&mut self.state.lock().current, life);
        let result = act();
        self.state.lock().current = before;
        result
    }

    /// Runs a future in a life.
    pub fn spawn_in(&self, life: Life, future: BoxFuture<'static, ()>) {
        let refused = self.state.lock().add(life, future, &self.woken);
        drop(refused);
    }

    /// Runs a job outside of all lives at a time after now.
    pub fn run_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let due = state.now + delay;
        state.add_timer(due, Due::Run(OUTSIDE, Box::new(job)));
    }

    /// As [`run_after`](Scheduler::run_after), but runs the job exactly when it is due, so that jobs run in the order of their times.
    pub fn run_in_order_after(&self, delay: Duration, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let due = state.now + delay;
        state.add_timer(due, Due::RunInOrder(Box::new(job)));
    }

    /// Waits for some time.
    pub fn sleep(self: &Arc<Scheduler>, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        let scheduler = self.clone();
        let due = self.time() + duration;
        std::future::poll_fn(move |context| {
            if scheduler.time() >= due {
                return Poll::Ready(());
            }
            let mut state = scheduler.state.lock();
            state.add_timer(due, Due::Wake(context.waker().clone()));
            Poll::Pending
        })
    }

    /// Sets a function to call after every step.
    pub fn set_after_step(&self, act: Option<Box<dyn Fn() + Send>>) {
        *self.after_step.lock() = act;
    }

    /// Runs everything until a future is ready.
    pub fn run<T: Send + 'static>(
        self: &Arc<Scheduler>,
        main: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stuck> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        self.spawn_in(
            OUTSIDE,
            Box::pin(async move {
                let output = main.await;
                *slot.lock() = Some(output);
            }),
        );
        loop {
            self.step()?;
            if let Some(output) = result.lock().take() {
                return Ok(output);
            }
        }
    }

    /// Drops everything that has not ended.
    pub fn end_everything(&self) {
        loop {
            let (tasks, ended, timers) = {
                let mut state = self.state.lock();
                state.lives.iter_mut().for_each(|life| life.is_alive = false);
                let (tasks, timers) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers));
                (tasks, std::mem::take(&mut state.ended), timers)
            };
            if tasks.is_empty() && ended.is_empty() && timers.is_empty() {
                return;
            }
            drop((tasks, ended, timers));
        }
    }

    /// Runs one task that is ready, or moves the clock to the next timer.
    fn step(self: &Arc<Scheduler>) -> Result<(), Stuck> {
        loop {
            let ended = std::mem::take(&mut self.state.lock().ended);
            if ended.is_empty() {
                break;
            }
            for task in ended {
                self.within(task.life, || drop(task.future));
            }
        }
        let next = {
            let mut state = self.state.lock();
            state.steps += 1;
            if state.steps > STEPS_MAX || state.now > TIME_MAX {
                return Err(Stuck::TooLong);
            }
            let woken = std::mem::take(&mut *self.woken.lock());
            state.ready.extend(woken);
            let due = state.take_due();
            match due {
                Some(due) => Next::Due(due),
                None => match state.take_ready() {
                    Some(task) => Next::Poll(task),
                    None => match state.timers.peek() {
                        Some(Reverse(timer)) => {
                            state.now = state.now.max(timer.due);
                            return Ok(());
                        }
                        None => return Err(Stuck::NothingLeft),
                    },
                },
            }
        };
        match next {
            Next::Due(Due::Wake(waker)) => waker.wake(),
            Next::Due(Due::RunInOrder(job)) => job(),
            Next::Due(Due::Run(life, job)) => self.spawn_in(life, Box::pin(async move { job() })),
            Next::Poll((id, mut future, waker)) => {
                waker.is_woken.store(false, Ordering::Release);
                let waker = Waker::from(waker);
                let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    future.as_mut().poll(&mut Context::from_waker(&waker))
                }));
                let polled = polled.map_err(|panic| Stuck::Panicked(message_of(&*panic)))?;
                let over = self.state.lock().put_back(id, future, polled.is_ready());
                drop(over);
            }
        }
        self.state.lock().current = OUTSIDE;
        if let Some(act) = &*self.after_step.lock() {
            act();
        }
        Ok(())
    }
}

enum Next {
    Due(Due),
    Poll((u64, BoxFuture<'static, ()>, Arc<TaskWaker>)),
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

impl State {
    fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    }

    /// Adds a task. If its life has ended, the task is returned, to be dropped without the lock.
    fn add(
        &mut self,
        life: Life,
        future: BoxFuture<'static, ()>,
        woken: &Arc<Mutex<Vec<u64>>>,
    ) -> Option<BoxFuture<'static, ()>> {
        if !self.lives[life.0].is_alive {
            return Some(future);
        }
        let id = self.next_task;
        self.next_task += 1;
        let waker = Arc::new(TaskWaker { id, is_woken: AtomicBool::new(true), woken: woken.clone() });
        self.tasks.insert(id, Task { life, future: Some(future), waker });
        self.ready.push(id);
        None
    }

    fn add_timer(&mut self, due: Duration, what: Due) {
        let order = self.next_timer;
        self.next_timer += 1;
        self.timers.push(Reverse(Timer { due, order, what }));
    }

    fn take_due(&mut self) -> Option<Due> {
        if self.timers.peek().is_some_and(|Reverse(timer)| timer.due <= self.now) {
            return self.timers.pop().map(|Reverse(timer)| timer.what);
        }
        None
    }

    /// Removes and returns one of the tasks that are ready and not frozen.
    fn take_ready(&mut self) -> Option<(u64, BoxFuture<'static, ()>, Arc<TaskWaker>)> {
        let tasks = &self.tasks;
        self.ready.retain(|id| tasks.contains_key(id));
        let is_frozen = |id: &u64| self.lives[self.tasks[id].life.0].is_frozen;
        let num_running = self.ready.iter().filter(|id| !is_frozen(id)).count();
        if num_running == 0 {
            return None;
        }
        let chosen = self.random.below(num_running);
        let position = (0..self.ready.len()).filter(|&at| !is_frozen(&self.ready[at])).nth(chosen)?;
        let id = self.ready.remove(position);
        self.now += Duration::from_micros(self.random.between(0, STEP_MICROS_MAX));
        let (now, life) = (self.now, self.tasks[&id].life);
        self.note(id);
        self.note(now.as_micros() as u64);
        self.current = life;
        let task = self.tasks.get_mut(&id)?;
        Some((id, task.future.take()?, task.waker.clone()))
    }

    /// Takes back a task that was polled; returns what must be dropped.
    fn put_back(
        &mut self,
        id: u64,
        future: BoxFuture<'static, ()>,
        is_over: bool,
    ) -> (Option<BoxFuture<'static, ()>>, Option<Task>) {
        if is_over {
            return (Some(future), self.tasks.remove(&id));
        }
        match self.tasks.get_mut(&id) {
            Some(task) => {
                task.future = Some(future);
                (None, None)
            }
            None => (Some(future), None),
        }
    }
}

struct OfLife {
    scheduler: Arc<Scheduler>,
    life: Life,
}

impl SpawnsFutures for OfLife {
    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.scheduler.spawn_in(self.life, future);
    }
}

impl Environment for Scheduler {
    fn now(&self) -> Instant {
        self.start + self.time()
    }

    fn system_time(&self) -> SystemTime {
        // Any day will do, if it is the same in every run.
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + self.time()
    }

    fn random_bits(&self) -> u64 {
        self.state.lock().random.bits()
    }

    fn spawn(&self, job: Job) {
        let life = self.state.lock().current;
        self.spawn_in(life, Box::pin(async move { job() }));
    }

    fn spawn_after(&self, delay: Duration, job: Job) {
        let mut state = self.state.lock();
        let (due, life) = (state.now + delay, state.current);
        state.add_timer(due, Due::Run(life, job));
    }

    fn wake_at(&self, due: Instant, waker: &Waker) {
        let due = due.saturating_duration_since(self.start);
        self.state.lock().add_timer(due, Due::Wake(waker.clone()));
    }
}
