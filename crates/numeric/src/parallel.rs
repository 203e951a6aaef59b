//! Splits a loop over the cores, but only when that pays.
//!
//! The calling thread always takes part. It invites compute threads to help; an invitation that no thread has taken up when
//! the caller runs out of work is withdrawn, so a caller never waits for a thread that is busy elsewhere. Loops that helpers
//! do not make shorter seldom invite them.
//!
//! The threads inside these loops are counted for the whole process, so that several callers together do not use more threads
//! than there are cores.

mod history;

use crate::compute_threads;
use crate::denormals::FlushDenormals;
use history::History;
use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Instant;

/// Loops shorter than this run on the calling thread: waking another one costs several microseconds.
const INLINE_BELOW_NS: f64 = 60_000.0;

/// Loops longer than this always invite helpers: the wake-up is negligible, and such loops are too few to learn from.
const LEARNT_BELOW_NS: f64 = 4_000_000.0;

/// A chunk takes at least this long, so that taking one from the shared counter is cheap beside it.
const CHUNK_AT_LEAST_NS: f64 = 20_000.0;

/// Chunks per thread in a long loop, so that other threads can take over the share of a slow one.
const CHUNKS_PER_THREAD: usize = 4;

/// The most threads that a loop may use, the caller included.
static THREAD_LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Threads that are inside a parallel loop now.
static BUSY_THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is already counted in `BUSY_THREADS`.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns how many threads a loop may use, the caller included.
pub fn threads() -> usize {
    match THREAD_LIMIT.load(Ordering::Relaxed) {
        0 => cores(),
        limit => limit,
    }
}

/// Returns the part of a loop that a row of a table belongs to. Rows are spread evenly by a hash: a remainder would do, but
/// costs as much as a short row.
#[inline(always)]
pub(crate) fn part_of_row(row: usize, parts: usize) -> usize {
    let spread = (row as u32).wrapping_mul(0x9e37_79b1);
    ((u64::from(spread) * parts as u64) >> 32) as usize
}

/// Returns how many cores this process may use.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()))
}

/// Limits every later loop to `limit` threads, the caller included; 0 means one for each core.
pub fn set_threads(limit: usize) {
    THREAD_LIMIT.store(limit, Ordering::Relaxed);
}

/// Returns whether a loop of `len` items would be split, given the cost of an item in nanoseconds.
pub fn pays(len: usize, cost_per_item_ns: f64) -> bool {
    len > 1 && len as f64 * cost_per_item_ns >= INLINE_BELOW_NS && threads() > 1
}

/// Calls `body` with ranges that together cover `0..len` once.
///
/// `cost_per_item_ns` is the caller's estimate. A cheap loop is one call on this thread. Ranges may run at the same time and in
/// any order. A panic in `body` is passed on after every thread has left the loop.
pub fn for_each_chunk(len: usize, cost_per_item_ns: f64, body: impl Fn(Range<usize>) + Sync) {
    for_each_chunk_dyn(len, cost_per_item_ns, &body);
}

/// The body of a loop. The vtable of `dyn Fn` would also instantiate functions that nobody calls, for each of more than a
/// thousand loops.
trait Body: Sync {
    fn run(&self, range: Range<usize>);
}

impl<F: Fn(Range<usize>) + Sync> Body for F {
    fn run(&self, range: Range<usize>) {
        self(range);
    }
}

/// Compiled once for all bodies: a call by pointer is negligible beside a loop.
fn for_each_chunk_dyn(len: usize, cost_per_item_ns: f64, body: &dyn Body) {
    if len == 0 {
        return;
    }
    if !pays(len, cost_per_item_ns) {
        return body.run(0..len);
    }
    let total_ns = len as f64 * cost_per_item_ns;
    let most_chunks = (total_ns / CHUNK_AT_LEAST_NS) as usize;
    let chunks = most_chunks.min(threads() * CHUNKS_PER_THREAD).clamp(1, len);
    // Chunks of equal size, so that their boundaries do not depend on the number of helpers.
    let chunk_len = len.div_ceil(chunks);
    run_tasks(len.div_ceil(chunk_len), total_ns, &|task| {
        let start = task * chunk_len;
        body.run(start..(start + chunk_len).min(len));
    });
}

/// Splits `out` into runs of whole items of `item_len` elements and calls `body(first_item, run)` for each.
pub fn for_each_chunk_mut<T: Send>(
    out: &mut [T],
    item_len: usize,
    cost_per_item_ns: f64,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    for_each_chunk_mut_dyn(out, item_len, cost_per_item_ns, &body);
}

/// As [`Body`], for loops over a mutable slice.
trait BodyMut<T>: Sync {
    fn run(&self, first_item: usize, run: &mut [T]);
}

impl<T, F: Fn(usize, &mut [T]) + Sync> BodyMut<T> for F {
    fn run(&self, first_item: usize, run: &mut [T]) {
        self(first_item, run);
    }
}

/// Compiled once for each element type.
fn for_each_chunk_mut_dyn<T: Send>(out: &mut [T], item_len: usize, cost_per_item_ns: f64, body: &dyn BodyMut<T>) {
    if out.is_empty() {
        return;
    }
    assert!(item_len > 0 && out.len().is_multiple_of(item_len), "the output is not a whole number of items");
    let items = out.len() / item_len;
    let out = SharedMut::new(out);
    for_each_chunk(items, cost_per_item_ns, |range| {
        // SAFETY: ranges are disjoint, so no two calls see the same elements.
        let run = unsafe { out.slice(range.start * item_len, range.len() * item_len) };
        body.run(range.start, run);
    });
}

/// Runs `body(0)`, …, `body(tasks - 1)`, each once, on as many threads as are free and pay. The caller has made the tasks large
/// enough ([`for_each_chunk`] does so by cost); together they cost `cost_ns`.
pub fn run_tasks(tasks: usize, cost_ns: f64, body: &(dyn Fn(usize) + Sync)) {
    Plan::new(cost_ns).run(tasks, body);
}

/// The decision whether the next loop runs on several threads, for callers that split their loop accordingly.
pub(crate) struct Plan {
    cost_ns: f64,
    invites: bool,
    history: Option<&'static History>,
}

impl Plan {
    /// Decides how to run a loop that costs `cost_ns` on one thread.
    pub(crate) fn new(cost_ns: f64) -> Plan {
        if cost_ns < INLINE_BELOW_NS || threads() == 1 || crate::environment::is_given() {
            return Plan { cost_ns, invites: false, history: None };
        }
        let history = (cost_ns < LEARNT_BELOW_NS).then(|| History::of(cost_ns));
        Plan { cost_ns, invites: history.is_none_or(|history| history.invites(now_ms())), history }
    }

    /// Returns how many threads the loop may use, the caller included.
    pub(crate) fn threads(&self) -> usize {
        if self.invites { threads() } else { 1 }
    }

    /// Runs the loop as [`run_tasks`] does.
    pub(crate) fn run(self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if tasks == 1 && self.history.is_none() {
            return body(0);
        }
        let membership = Membership::enter();
        let free = threads().saturating_sub(BUSY_THREADS.load(Ordering::Relaxed));
        let helpers = free.min(tasks.saturating_sub(1));
        // Without a free thread there is no choice to learn from.
        let learns = self.history.filter(|_| free > 0).map(|history| (history, Instant::now()));
        let is_split = self.invites && helpers > 0;
        if is_split {
            run_with_helpers(tasks, helpers, body);
        } else {
            for task in 0..tasks {
                body(task);
            }
        }
        drop(membership);
        if let Some((history, start)) = learns {
            history.note(is_split, self.cost_ns, start.elapsed().as_nanos() as f64);
        }
    }
}

/// Returns the milliseconds since the first call, which may wrap.
fn now_ms() -> u32 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u32
}

fn run_with_helpers(tasks: usize, helpers: usize, body: &(dyn Fn(usize) + Sync)) {
    let erased: *const (dyn Fn(usize) + Sync + '_) = body;
    // SAFETY: only the lifetime changes. Helpers call through the pointer only between `join` and `leave`, and this
    // function closes the job and waits for the last of them to leave before it returns or unwinds.
    let erased: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(erased) };
    let job = Arc::new(Job {
        body: erased,
        tasks,
        next: AtomicUsize::new(0),
        state: AtomicUsize::new(0),
        caller: std::thread::current(),
        flushes_denormals: FlushDenormals::is_on(),
        panic: AtomicPtr::new(std::ptr::null_mut()),
    });
    for _ in 0..helpers {
        let job = Arc::clone(&job);
        compute_threads::spawn(Box::new(move || job.help()));
    }
    job.work();
    job.close_and_wait();
    if let Some(panic) = job.take_panic() {
        resume_unwind(panic);
    }
}

/// A mutable slice that the tasks of a loop share; each task takes its own part.
pub(crate) struct SharedMut<T> {
    data: *mut T,
    len: usize,
}

// SAFETY: access goes through `slice`, whose caller promises that parts do not overlap.
unsafe impl<T: Send> Sync for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedMut<T> {}

impl<T> SharedMut<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        SharedMut { data: slice.as_mut_ptr(), len: slice.len() }
    }

    /// Returns `len` elements from `start`.
    ///
    /// # Safety
    /// The slice given to `new` is still borrowed, and no other live part overlaps this one.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "part outside of the shared slice");
        // SAFETY: in bounds by the assertion, not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }

    pub(crate) fn as_mut_ptr(&self) -> *mut T {
        self.data
    }
}

/// Counts the thread as busy while it lives; only the outermost one on a thread counts.
struct Membership {
    outermost: bool,
}

impl Membership {
    fn enter() -> Self {
        let outermost = !COUNTED.replace(true);
        if outermost {
            BUSY_THREADS.fetch_add(1, Ordering::Relaxed);
        }
        Membership { outermost }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if self.outermost {
            BUSY_THREADS.fetch_sub(1, Ordering::Relaxed);
            COUNTED.set(false);
        }
    }
}

/// The bit of `Job::state` that is set once the caller accepts no more helpers; the other bits count the helpers inside.
const CLOSED: usize = 1;
const ONE_HELPER: usize = 2;

struct Job {
    body: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    next: AtomicUsize,
    state: AtomicUsize,
    caller: Thread,
    /// The caller's mode, which helpers adopt.
    flushes_denormals: bool,
    panic: AtomicPtr<Box<dyn Any + Send>>,
}

// SAFETY: `body` is `Sync` and is only called while the caller of `run_tasks` keeps it alive (see there).
unsafe impl Send for Job {}
// SAFETY: as above; the other fields are atomics and a thread handle.
unsafe impl Sync for Job {}

impl Job {
    fn help(&self) {
        let joined = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
            (state & CLOSED == 0).then_some(state + ONE_HELPER)
        });
        if joined.is_err() {
            return;
        }
        let membership = Membership::enter();
        let mode = FlushDenormals::begin_as(self.flushes_denormals);
        self.work();
        drop(mode);
        drop(membership);
        let before = self.state.fetch_sub(ONE_HELPER, Ordering::Release);
        if before == ONE_HELPER | CLOSED {
            self.caller.unpark();
        }
    }

    /// Runs tasks until none is left. Never unwinds: a panic ends the job early, and is kept for the caller.
    fn work(&self) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= self.tasks {
                    break;
                }
                // SAFETY: the caller of `run_tasks` waits until this thread has left.
                unsafe { (*self.body)(task) };
            }
        }));
        if let Err(panic) = result {
            self.next.store(self.tasks, Ordering::Relaxed);
            let fresh = Box::into_raw(Box::new(panic));
            let first =
                self.panic.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if !first {
                // SAFETY: `fresh` came from `into_raw` just above and was not stored.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    fn close_and_wait(&self) {
        let mut state = self.state.fetch_or(CLOSED, Ordering::AcqRel) | CLOSED;
        // Helpers finish within one chunk, so a short spin usually spares the system call.
        for _ in 0..200 {
            if state == CLOSED {
                return;
            }
            std::hint::spin_loop();
            state = self.state.load(Ordering::Acquire);
        }
        while self.state.load(Ordering::Acquire) != CLOSED {
            std::thread::park();
        }
    }

    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        let stored = self.panic.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if stored.is_null() {
            return None;
        }
        // SAFETY: the pointer came from `into_raw` and was swapped out, so it is taken once.
        Some(*unsafe { Box::from_raw(stored) })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        drop(self.take_panic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_item_is_visited_once() {
        for len in [0, 1, 2, 7, 1000, 12_345] {
            for cost in [0.0, 50.0, 1e6] {
                let visits: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
                for_each_chunk(len, cost, |range| {
                    for item in range {
                        visits[item].fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(visits.iter().all(|count| count.load(Ordering::Relaxed) == 1), "len {len} cost {cost}");
            }
        }
    }

    #[test]
    fn cheap_loops_stay_on_the_calling_thread() {
        let caller = std::thread::current().id();
        let calls = Mutex::new(Vec::new());
        for_each_chunk(1000, 1.0, |range| calls.lock().unwrap().push((std::thread::current().id(), range)));
        assert_eq!(calls.into_inner().unwrap(), vec![(caller, 0..1000)]);
    }

    #[test]
    fn chunks_of_the_output_are_whole_items() {
        let mut out = vec![0usize; 300];
        for_each_chunk_mut(&mut out, 3, 1e6, |first, run| {
            assert_eq!(run.len() % 3, 0);
            for (offset, item) in run.chunks_mut(3).enumerate() {
                item.fill(first + offset);
            }
        });
        assert!(out.iter().enumerate().all(|(index, &item)| item == index / 3));
    }

    #[test]
    fn loops_nest() {
        let sum = AtomicUsize::new(0);
        for_each_chunk(8, 1e6, |outer| {
            for _ in outer {
                for_each_chunk(100, 1e4, |inner| {
                    sum.fetch_add(inner.len(), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(sum.into_inner(), 800);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_next_loop_works() {
        let result = catch_unwind(|| {
            for_each_chunk(64, 1e6, |range| assert!(!range.contains(&40), "item forty"));
        });
        let message = *result.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(message, "item forty");
        every_item_is_visited_once();
    }
}
