//! What threads do while a process has nothing to do: each gives back the memory that the allocator keeps for it.
//!
//! An allocator with a heap for each thread keeps in it what the thread used last, and what others have freed of it. Nobody but
//! the thread itself can take that out, and a thread that waits for work allocates nothing by which it would. A server has
//! about a dozen such threads; what they keep together is several times what it uses. So who sees that there is nothing to do
//! calls [`give_back_everywhere`], which wakes every thread that waits, and each calls what the program has set for its allocator.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long nothing must have happened before memory is given back.
pub const IDLE_TIME: Duration = Duration::from_secs(10);

/// Threads that wait for work.
pub trait IdleThreads: Send + Sync {
    /// Wakes each of them to call [`give_back`], and returns without waiting for that.
    fn wake_to_give_back(&self);
}

static HOOK: OnceLock<fn()> = OnceLock::new();

static THREADS: Mutex<Vec<Weak<dyn IdleThreads>>> = Mutex::new(Vec::new());

/// Has idle threads call `hook`, which returns what the program's allocator holds for the calling thread to the system. Only
/// the program knows its allocator. The first hook stays; without one, nobody is woken.
pub fn set_hook(hook: fn()) {
    let _ = HOOK.set(hook);
}

/// Gives back what the allocator holds for this thread.
pub fn give_back() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}

/// Has threads woken by [`give_back_everywhere`] for as long as they are there.
pub fn register(threads: &Arc<impl IdleThreads + 'static>) {
    let threads: Arc<dyn IdleThreads> = threads.clone();
    let mut registered = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    registered.retain(|weak| weak.strong_count() > 0);
    registered.push(Arc::downgrade(&threads));
}

/// Gives back what the allocator holds for this thread and for those that are registered.
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
