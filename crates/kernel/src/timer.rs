//! Runs jobs after a delay, on one thread for the whole process.

use numeric::environment;
use parking_lot::{Condvar, Mutex};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce() + Send>;

/// Runs a job after a delay.
pub(crate) fn run_after(delay: Duration, job: Job) {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::start);
    match environment::current() {
        None => TIMER.add(delay, job),
        Some(environment) => environment.spawn_after(delay, job),
    }
}

struct Timer {
    shared: Arc<Shared>,
    /// False if the thread could not be started. Jobs then run at once: too early is better than never.
    has_thread: bool,
}

#[derive(Default)]
struct Shared {
    entries: Mutex<BinaryHeap<Entry>>,
    earlier: Condvar,
}

struct Entry {
    due: Instant,
    job: Job,
}

impl Timer {
    fn start() -> Timer {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let spawned = std::thread::Builder::new().name("timer".to_owned()).spawn(move || of_thread.run());
        Timer { shared, has_thread: spawned.is_ok() }
    }

    fn add(&self, delay: Duration, job: Job) {
        let due = Instant::now().checked_add(delay);
        match due {
            Some(due) if self.has_thread => {
                self.shared.entries.lock().push(Entry { due, job });
                self.shared.earlier.notify_one();
            }
            _ => job(),
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut entries = self.entries.lock();
        loop {
            match entries.peek().map(|entry| entry.due) {
                None => self.earlier.wait(&mut entries),
                Some(due) if due > Instant::now() => {
                    self.earlier.wait_until(&mut entries, due);
                }
                Some(_) => {
                    if let Some(entry) = entries.pop() {
                        drop(entries);
                        // The panic hook has reported the panic; the other jobs still run.
                        let _ = catch_unwind(AssertUnwindSafe(entry.job));
                        entries = self.entries.lock();
                    }
                }
            }
        }
    }
}

impl Ord for Entry {
    /// Orders the entry that is due first as the greatest, because a `BinaryHeap` pops the greatest.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_due_first_comes_first() {
        let now = Instant::now();
        let entry = |delay_ms| Entry { due: now + Duration::from_millis(delay_ms), job: Box::new(|| ()) };
        let mut entries: BinaryHeap<Entry> = [30, 10, 20].map(entry).into();
        let delays: Vec<u128> =
            std::iter::from_fn(|| entries.pop()).map(|entry| (entry.due - now).as_millis()).collect();
        assert_eq!(delays, [10, 20, 30]);
    }

    #[test]
    fn everything_runs_and_nothing_too_early() {
        let (sender, receiver) = mpsc::channel();
        let start = Instant::now();
        run_after(Duration::ZERO, Box::new(|| panic!("a job that panics ends nothing but itself")));
        for delay_ms in [30u64, 10, 20, 0] {
            let sender = sender.clone();
            let delay = Duration::from_millis(delay_ms);
            run_after(delay, Box::new(move || sender.send((delay, start.elapsed())).unwrap()));
        }
        let ran: Vec<(Duration, Duration)> = (0..4).map(|_| receiver.recv().unwrap()).collect();
        assert!(ran.iter().all(|(delay, elapsed)| elapsed >= delay), "{ran:?}");
    }
}
