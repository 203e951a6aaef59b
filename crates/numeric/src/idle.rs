//! Returns the memory that the allocator caches for idle threads to the system while the process has nothing to do.
//!
//! An allocator with a heap for each thread keeps there what the thread used last and what other threads have freed of it. Only
//! the thread itself can release that memory, and a thread that waits for work does not call the allocator. A server has about
//! a dozen such threads, which together keep several times the memory that it uses. So whoever finds the process idle calls
//! [`give_back_everywhere`], which wakes all waiting threads, and each of them calls the hook that the program has set.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long a process must have been idle before it returns memory.
pub const IDLE_TIME: Duration = Duration::from_secs(10);

/// Threads that wait for work.
pub trait IdleThreads: Send + Sync {
    /// Wakes each of them to call [`give_back`], and returns without waiting for them.
    fn wake_to_give_back(&self);
}

static HOOK: OnceLock<fn()> = OnceLock::new();

static THREADS: Mutex<Vec<Weak<dyn IdleThreads>>> = Mutex::new(Vec::new());

/// Makes idle threads call `hook`, which returns the memory that the program's allocator caches for the calling thread. Only
/// the program knows its allocator. The first hook is kept; without one, no thread is woken.
pub fn set_hook(hook: fn()) {
    let _ = HOOK.set(hook);
}

/// Returns the memory that the allocator caches for this thread.
pub fn give_back() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}

/// Registers threads that [`give_back_everywhere`] wakes, until they are dropped.
pub fn register(threads: &Arc<impl IdleThreads + 'static>) {
    let threads: Arc<dyn IdleThreads> = threads.clone();
    let mut registered = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|weak| weak.strong_count() > 0);
    registered.push(Arc::downgrade(&threads));
}

/// Returns the memory that the allocator caches for this thread and for the registered ones.
pub fn give_back_everywhere() {
    if HOOK.get().is_none() {
        return;
    }
    give_back();
    let registered: Vec<Arc<dyn IdleThreads>> =
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
    for threads in registered {
        threads.wake_to_give_back();
    }
}
