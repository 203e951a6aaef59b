//! [`ServingThread`]: a thread that others wait for, as a watchdog sees it.
//!
//! Long nodes should not run on such a thread, but how long a node takes is known only after it has run. Once the watchdog has
//! seen a node block its thread, that node runs in the pool.

use numeric::watchdog::{Stillness, notice};
use parking_lot::Mutex;
use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A thread that others wait for while it runs a step.
#[derive(Default)]
pub struct ServingThread {
    /// Counts what the thread has begun; only the thread itself writes it.
    turns: AtomicU64,
    /// Whether the thread is busy.
    is_active: AtomicBool,
    /// Whether the thread is busy between two steps as well, and reports when it is idle.
    says_when_idle: bool,
    /// What the watchdog saw last.
    is_stuck: AtomicBool,
    stillness: Mutex<Stillness>,
}

thread_local! {
    /// Whether calls of others wait while this thread runs a step.
    static SERVES_OTHERS: Cell<bool> = const { Cell::new(false) };
    static THIS_THREAD: OnceCell<Arc<ServingThread>> = const { OnceCell::new() };
}

/// How often the watchdog saw any serving thread stuck. After each node it is compared with its earlier value, which is cheaper
/// than a lookup of this thread.
static STUCK_LOOKS: AtomicU64 = AtomicU64::new(0);

impl ServingThread {
    /// Declares that other calls wait while this thread runs a step, so that nothing long runs on it.
    pub fn start() -> Arc<ServingThread> {
        ServingThread::become_one(ServingThread::default())
    }

    /// As [`start`](Self::start), for a thread that calls [`goes_idle`](Self::goes_idle) and [`goes_on`](Self::goes_on): it
    /// is watched while it does other work than steps, too. Until its first call of either, `is_active` holds.
    pub fn start_of_runtime(is_active: bool) -> Arc<ServingThread> {
        let is_active = AtomicBool::new(is_active);
        ServingThread::become_one(ServingThread { says_when_idle: true, is_active, ..ServingThread::default() })
    }

    fn become_one(new: ServingThread) -> Arc<ServingThread> {
        SERVES_OTHERS.set(true);
        THIS_THREAD.with(|thread| thread.get_or_init(|| Arc::new(new)).clone())
    }

    /// Reports that this thread is idle.
    pub fn goes_idle() {
        with_this_thread(|thread| thread.turn(false));
    }

    /// Reports that this thread is busy.
    pub fn goes_on() {
        with_this_thread(|thread| {
            thread.turn(true);
            notice();
        });
    }

    /// Checks the thread; returns whether it is busy, and whether it has been busy with one thing for too long.
    pub fn look(&self) -> (bool, bool) {
        let mut stillness = self.stillness.lock();
        let is_active = self.is_active.load(Ordering::Relaxed);
        let is_stuck = match is_active {
            true => stillness.is_stuck(self.turns.load(Ordering::Relaxed)),
            false => {
                stillness.rest();
                false
            }
        };
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
        if is_stuck {
            STUCK_LOOKS.fetch_add(1, Ordering::Relaxed);
        }
        (is_active, is_stuck)
    }

    fn turn(&self, is_active: bool) {
        self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.is_active.store(is_active, Ordering::Relaxed);
    }
}

fn with_this_thread(f: impl FnOnce(&ServingThread)) {
    THIS_THREAD.with(|thread| thread.get().map(|thread| f(thread)));
}

/// Returns whether other calls wait while this thread runs a step.
pub(crate) fn serves_others() -> bool {
    SERVES_OTHERS.get()
}

/// Reports that this thread begins another step, or resumes what it did before.
pub(crate) fn turn(is_active: bool) {
    if SERVES_OTHERS.get() {
        with_this_thread(|thread| {
            thread.turn(is_active || thread.says_when_idle);
            if is_active {
                notice();
            }
        });
    }
}

/// Returns a number that changes whenever the watchdog sees a serving thread stuck.
#[inline]
pub(crate) fn stuck_looks() -> u64 {
    STUCK_LOOKS.load(Ordering::Relaxed)
}

/// Returns whether this thread was stuck at the last check and has begun something else since.
#[cold]
pub(crate) fn was_stuck() -> bool {
    let mut was_stuck = false;
    with_this_thread(|thread| {
        was_stuck = thread.is_stuck.swap(false, Ordering::Relaxed);
        thread.turn(true);
    });
    was_stuck
}
