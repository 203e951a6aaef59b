//! [`StandIns`]: substitute threads of a runtime, which wait until a serving thread is stuck and then serve in its place.
//!
//! Threads can't be added to a running runtime, so it has the substitutes from the start. Each waits inside a task that does
//! nothing else: the runtime considers it busy, gives it nothing to do and never wakes it. The watchdog releases one for every
//! thread that has been busy with one thing for too long, and calls as many back some time after that is over. A normal step
//! never involves any of this.

use executor::ServingThread;
use executor::idle::{self, IdleThreads};
use executor::watchdog::{Watched, watch};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// The most threads that may be stuck at once before nobody serves.
pub(crate) const STAND_INS: usize = 8;

/// The number of checks without a stuck thread after which the substitutes wait again.
const CALM_LOOKS: u32 = 40;

/// The longest that a thread that gives memory back waits for the others; it serves nobody meanwhile.
const GIVING_BACK_TIME: Duration = Duration::from_millis(20);

/// The substitutes of one runtime.
#[derive(Default)]
pub(crate) struct StandIns {
    /// All threads of the runtime, including the waiting ones.
    threads: Mutex<Vec<Weak<ServingThread>>>,
    /// The number of serving threads that have not started yet. They start first and may be stuck in their first job. The
    /// runtime's later threads are for blocking work, and count as busy only when they say so.
    expected: AtomicUsize,
    /// The number of serving threads when none is stuck.
    num_serving: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// The runtime, and this value, for tasks to hold.
    runtime: OnceLock<(Handle, Weak<StandIns>)>,
}

#[derive(Default)]
struct State {
    /// How many should wait.
    reserve: usize,
    /// How many wait, or are about to.
    waiting: usize,
    calm_looks: u32,
    /// The number of times that the waiting ones were woken to give memory back.
    wakings: u64,
    is_closed: bool,
}

impl StandIns {
    /// Returns the substitutes of a runtime with this many serving threads.
    pub(crate) fn of(num_threads: usize) -> StandIns {
        let num_serving = num_threads.saturating_sub(STAND_INS);
        StandIns { expected: AtomicUsize::new(num_threads), num_serving, ..StandIns::default() }
    }

    /// Registers a thread of the runtime; called on it when it starts.
    pub(crate) fn add_this_thread(&self) {
        let is_first =
            self.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let thread = Arc::downgrade(&ServingThread::start_of_runtime(is_first));
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(thread);
    }

    /// Makes all substitutes wait, and starts the watch of the others.
    pub(crate) fn start(self: &Arc<Self>, runtime: &Handle) {
        let _ = self.runtime.set((runtime.clone(), Arc::downgrade(self)));
        self.change_reserve(STAND_INS);
        watch(self);
        idle::register(self);
    }

    /// Releases all substitutes for good, so that the runtime can end.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.reserve = 0;
        self.changed.notify_all();
    }

    /// Sets how many substitutes wait: releases some, or calls some back.
    fn change_reserve(&self, reserve: usize) {
        let Some((runtime, itself)) = self.runtime.get() else { return };
        let Some(itself) = itself.upgrade() else { return };
        let mut state = self.state.lock();
        if state.is_closed || state.reserve == reserve {
            return;
        }
        state.reserve = reserve;
        self.changed.notify_all();
        let missing = reserve.saturating_sub(state.waiting);
        state.waiting += missing;
        drop(state);
        for _ in 0..missing {
            runtime.spawn(itself.clone().wait());
        }
    }

    /// Waits until there are more substitutes than needed.
    async fn wait(self: Arc<Self>) {
        // The next job of this thread is moved to the shared queue, and another thread is woken for it.
        tokio::spawn(async {});
        ServingThread::goes_idle();
        let mut state = self.state.lock();
        let mut wakings = state.wakings;
        while state.waiting <= state.reserve {
            if wakings != state.wakings {
                wakings = state.wakings;
                MutexGuard::unlocked(&mut state, idle::give_back);
                continue;
            }
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        drop(state);
        ServingThread::goes_on();
    }
}

impl IdleThreads for StandIns {
    /// Waiting threads are woken directly. The runtime's other threads can't be, so as many tasks hold a thread each until all
    /// have one. One thread is left to serve: the one that called this, which has given back already.
    fn wake_to_give_back(&self) {
        let Some((runtime, _)) = self.runtime.get() else { return };
        {
            let mut state = self.state.lock();
            if state.is_closed || state.waiting < STAND_INS {
                // Threads are stuck, so the process isn't idle.
                return;
            }
            state.wakings += 1;
        }
        self.changed.notify_all();
        let num_others = self.num_serving.saturating_sub(1);
        let visits = Arc::new((Mutex::new(num_others), Condvar::new()));
        for _ in 0..num_others {
            runtime.spawn(visit(visits.clone()));
        }
    }
}

/// Gives back what the allocator holds for this thread, and holds the thread until all visits have one, with a timeout.
async fn visit(visits: Arc<(Mutex<usize>, Condvar)>) {
    // Like a substitute: the next visit must not be queued behind this one.
    tokio::spawn(async {});
    ServingThread::goes_idle();
    idle::give_back();
    let (left, all_came) = &*visits;
    let mut left = left.lock();
    *left -= 1;
    if *left == 0 {
        all_came.notify_all();
    } else {
        all_came.wait_while_for(&mut left, |left| *left > 0, GIVING_BACK_TIME);
    }
    drop(left);
    ServingThread::goes_on();
}

impl Watched for StandIns {
    fn look(&self) -> bool {
        let threads: Vec<Arc<ServingThread>> = self.threads.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut num_active, mut num_stuck) = (0, 0);
        for thread in threads {
            let (is_active, is_stuck) = thread.look();
            num_active += usize::from(is_active);
            num_stuck += usize::from(is_stuck);
        }
        let (reserve, is_complete) = {
            let mut state = self.state.lock();
            state.calm_looks = if num_stuck > 0 { 0 } else { state.calm_looks.saturating_add(1) };
            let wanted = STAND_INS.saturating_sub(num_stuck);
            let reserve = match wanted < state.reserve || state.calm_looks >= CALM_LOOKS {
                true => wanted,
                false => state.reserve,
            };
            (reserve, state.reserve == STAND_INS || state.is_closed)
        };
        self.change_reserve(reserve);
        num_active > 0 || !is_complete
    }
}

/// The threads that serve one peer each. They have no substitutes; watching them only detects slow work.
#[derive(Default)]
pub(crate) struct PeerThreads {
    threads: Mutex<Vec<Weak<ServingThread>>>,
}

impl PeerThreads {
    /// Takes note of this thread.
    pub(crate) fn add_this_thread(&self) {
        let thread = Arc::downgrade(&ServingThread::start());
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(thread);
    }
}

impl Watched for PeerThreads {
    fn look(&self) -> bool {
        let threads: Vec<Arc<ServingThread>> = self.threads.lock().iter().filter_map(Weak::upgrade).collect();
        // Every one must be checked, so this is not `any`.
        threads.iter().filter(|thread| thread.look().0).count() > 0
    }
}
