//! [`StandIns`]: threads of a runtime that wait until one of those that serve is stuck, and then serve in its place.
//!
//! A runtime can't be given threads later, so it has them from the start, and each waits inside of a task that does nothing
//! else: the runtime takes it for busy, gives it nothing to do and never wakes it. The watchdog lets one go for every thread
//! that has been at one thing for too long, and has as many wait again a while after that is over. A step that goes as it
//! should never meets any of this.

use executor::ServingThread;
use executor::idle::{self, IdleThreads};
use executor::watchdog::{Watched, watch};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// How many threads may be stuck at once before nobody serves.
pub(crate) const STAND_INS: usize = 8;

/// After how many looks at which nothing is stuck the stand-ins wait again.
const CALM_LOOKS: u32 = 40;

/// How long a thread that gives memory back waits for the others, at most: nobody is served by it meanwhile.
const GIVING_BACK_TIME: Duration = Duration::from_millis(20);

/// The stand-ins of one runtime.
#[derive(Default)]
pub(crate) struct StandIns {
    /// All threads of the runtime, those among them included that wait.
    threads: Mutex<Vec<Weak<ServingThread>>>,
    /// How many threads of those that serve have not started yet. They come first and may be stuck in the first thing that they do;
    /// the runtime's later threads are for what waits, and have something to do only when they say so.
    expected: AtomicUsize,
    /// How many threads serve when none is stuck.
    num_serving: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// The runtime, and this, for tasks to hold.
    runtime: OnceLock<(Handle, Weak<StandIns>)>,
}

#[derive(Default)]
struct State {
    /// How many should wait.
    reserve: usize,
    /// How many wait, or are on their way to.
    waiting: usize,
    calm_looks: u32,
    /// How often those that wait were woken to give memory back.
    wakings: u64,
    is_closed: bool,
}

impl StandIns {
    /// Makes the stand-ins of a runtime that starts so many threads to serve.
    pub(crate) fn of(num_threads: usize) -> StandIns {
        let num_serving = num_threads.saturating_sub(STAND_INS);
        StandIns { expected: AtomicUsize::new(num_threads), num_serving, ..StandIns::default() }
    }

    /// Takes note of a thread of the runtime; called on it when it starts.
    pub(crate) fn add_this_thread(&self) {
        let is_first =
            self.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        let thread = Arc::downgrade(&ServingThread::start_of_runtime(is_first));
        let mut threads = self.threads.lock();
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(thread);
    }

    /// Has all stand-ins wait, and the others looked at.
    pub(crate) fn start(self: &Arc<Self>, runtime: &Handle) {
        let _ = self.runtime.set((runtime.clone(), Arc::downgrade(self)));
        self.change_reserve(STAND_INS);
        watch(self);
        idle::register(self);
    }

    /// Lets all stand-ins go for good, so that the runtime can end.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.reserve = 0;
        self.changed.notify_all();
    }

    /// Has so many stand-ins wait: lets some go, or calls some back.
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

    /// Waits until there are more stand-ins than needed.
    async fn wait(self: Arc<Self>) {
        // What this thread would have run next goes to where others find it, and one of them is woken to look.
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
    /// Those that wait are woken where they do. The runtime's other threads can't be: so as many tasks hold a thread each until
    /// all have one. One thread is left to serve, and it is the one that called this, which has given back already.
    fn wake_to_give_back(&self) {
        let Some((runtime, _)) = self.runtime.get() else { return };
        {
            let mut state = self.state.lock();
            if state.is_closed || state.waiting < STAND_INS {
                // Threads are stuck, so there is something to do.
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

/// Gives back what the allocator holds for this thread, and keeps it until all visits have a thread, for a while at most.
async fn visit(visits: Arc<(Mutex<usize>, Condvar)>) {
    // As a stand-in does: the next visit must not wait behind this one.
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

/// The threads that serve one peer each. Nobody can take the place of one; being looked at, it learns what takes too long.
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
        // Every one of them is looked at, so this is not `any`.
        threads.iter().filter(|thread| thread.look().0).count() > 0
    }
}
