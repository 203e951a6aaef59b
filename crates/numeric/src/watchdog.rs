//! A thread that watches threads on which others depend, and acts when one of them makes no progress for too long.
//!
//! It looks every [`LOOK_EVERY`] while there is something to watch and for a while after, and sleeps otherwise. Whoever starts
//! something to be watched calls [`notice`], which is a single read of memory while the watchdog is awake.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How often the watchdog looks. A thread without progress after [`LOOKS_UNTIL_STUCK`] more looks counts as stuck.
pub const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The number of looks without progress after which a thread counts as stuck.
pub const LOOKS_UNTIL_STUCK: u32 = 2;

/// The number of looks with nothing to watch before the watchdog sleeps, so that occasional calls to a server do not wake it
/// each time.
const IDLE_LOOKS: u32 = 40;

/// Something that may get stuck.
pub trait Watched: Send + Sync {
    /// Checks for progress, and acts if there is none. Returns whether there is still something to watch.
    fn look(&self) -> bool;
}

/// Watches something until it is dropped.
pub fn watch(watched: &Arc<impl Watched + 'static>) {
    let watched: Arc<dyn Watched> = watched.clone();
    lock(&WATCHDOG.watched).push(Arc::downgrade(&watched));
    notice();
}

/// Tells the watchdog that there is something to watch. Call it once the thing can be seen.
#[inline]
pub fn notice() {
    if WATCHDOG_SLEEPS.load(Ordering::Relaxed) {
        wake();
    }
}

/// Outside of the lazy value, so that [`notice`] costs no more than the read.
static WATCHDOG_SLEEPS: AtomicBool = AtomicBool::new(true);

static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(|| Watchdog {
    watched: Mutex::new(Vec::new()),
    thread: Mutex::new(Thread { is_started: false, is_called: false }),
    call: Condvar::new(),
});

struct Watchdog {
    watched: Mutex<Vec<Weak<dyn Watched>>>,
    thread: Mutex<Thread>,
    call: Condvar,
}

struct Thread {
    is_started: bool,
    is_called: bool,
}

#[cold]
fn wake() {
    let mut thread = lock(&WATCHDOG.thread);
    WATCHDOG_SLEEPS.store(false, Ordering::Relaxed);
    thread.is_called = true;
    if thread.is_started {
        WATCHDOG.call.notify_one();
        return;
    }
    let spawned = std::thread::Builder::new().name("watchdog".to_owned()).spawn(|| WATCHDOG.run());
    thread.is_started = spawned.is_ok();
    // If the thread cannot be started there is no watchdog; the next call tries again.
    WATCHDOG_SLEEPS.store(!thread.is_started, Ordering::Relaxed);
}

impl Watchdog {
    fn run(&self) {
        let mut idle_looks = 0;
        loop {
            let is_needed = self.look();
            idle_looks = if is_needed { 0 } else { idle_looks + 1 };
            // Announces that it sleeps, then looks once more: whatever started before others could read the announcement is
            // visible by then, since much time passes between two looks.
            if idle_looks == IDLE_LOOKS {
                lock(&self.thread).is_called = false;
                WATCHDOG_SLEEPS.store(true, Ordering::SeqCst);
            }
            if idle_looks <= IDLE_LOOKS {
                std::thread::park_timeout(LOOK_EVERY);
                continue;
            }
            let mut thread = lock(&self.thread);
            while !thread.is_called {
                thread = self.call.wait(thread).unwrap_or_else(PoisonError::into_inner);
            }
            idle_looks = 0;
        }
    }

    /// Looks at everything, and returns whether there is still something to watch.
    fn look(&self) -> bool {
        let watched: Vec<Arc<dyn Watched>> = {
            let mut watched = lock(&self.watched);
            watched.retain(|weak| weak.strong_count() > 0);
            watched.iter().filter_map(Weak::upgrade).collect()
        };
        let mut is_needed = crate::compute_threads::look();
        for watched in watched {
            // The panic hook has reported the panic; the others are still watched.
            is_needed |= catch_unwind(AssertUnwindSafe(|| watched.look())).unwrap_or(false);
        }
        is_needed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tracks from look to look whether a counter changes.
#[derive(Debug, Default)]
pub struct Stillness {
    seen: u64,
    looks: u32,
}

impl Stillness {
    /// Returns a tracker that has seen nothing yet.
    pub const fn new() -> Stillness {
        Stillness { seen: 0, looks: 0 }
    }

    /// Records the value that a look has seen, and returns whether it has been the same for long enough to count as stuck.
    pub fn is_stuck(&mut self, seen: u64) -> bool {
        self.looks = if self.looks > 0 && self.seen == seen { self.looks.saturating_add(1) } else { 1 };
        self.seen = seen;
        self.looks > LOOKS_UNTIL_STUCK
    }

    /// Forgets the last value, because nothing needs to change now.
    pub fn rest(&mut self) {
        self.looks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    struct Countdown {
        left: Mutex<u32>,
        looked: Mutex<mpsc::Sender<u32>>,
    }

    impl Watched for Countdown {
        fn look(&self) -> bool {
            let mut left = lock(&self.left);
            if *left > 0 {
                *left -= 1;
                let _ = lock(&self.looked).send(*left);
                assert!(*left != 5, "a look that panics ends nothing but itself");
            }
            *left > 0
        }
    }

    #[test]
    fn it_looks_as_long_as_it_is_needed_and_again_when_it_is_told() {
        let (sender, receiver) = mpsc::channel();
        let watched = Arc::new(Countdown { left: Mutex::new(8), looked: Mutex::new(sender) });
        watch(&watched);
        let far = Duration::from_secs(60);
        let seen: Vec<u32> = (0..8).map(|_| receiver.recv_timeout(far).unwrap()).collect();
        assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1, 0]);
        *lock(&watched.left) = 1;
        notice();
        assert_eq!(receiver.recv_timeout(far).unwrap(), 0);
    }

    #[test]
    fn only_what_stays_the_same_is_stuck() {
        let mut stillness = Stillness::default();
        assert_eq!(
            [1, 1, 2, 2, 2, 2, 3].map(|seen| stillness.is_stuck(seen)),
            [false, false, false, false, true, true, false]
        );
        stillness.rest();
        assert_eq!([3, 3, 3].map(|seen| stillness.is_stuck(seen)), [false, false, true]);
    }
}
