//! Best times: of one thread by its CPU clock, which other load on the machine does not affect, of all threads by the wall clock.

use std::time::Instant;

/// The threads that a loop may use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    One,
    All,
}

impl Threads {
    pub fn count(self) -> usize {
        match self {
            Threads::One => 1,
            Threads::All => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        }
    }
}

/// Shorter loops are run several times for each measurement.
const SHORTEST_SECONDS: f64 = 30e-6;

/// Runs `body` for some time and returns its best time.
pub fn best_seconds(threads: Threads, seconds: f64, mut body: impl FnMut()) -> f64 {
    numeric::parallel::set_threads(threads.count());
    body();
    let begin = Instant::now();
    body();
    // Reading the clock takes a large part of a microsecond.
    let repeats = (SHORTEST_SECONDS / begin.elapsed().as_secs_f64().max(1e-9)).ceil() as usize;
    let mut best = f64::MAX;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        let (begin, thread_begin) = (Instant::now(), thread_seconds());
        for _ in 0..repeats {
            body();
        }
        let took = match threads {
            Threads::One => thread_seconds() - thread_begin,
            Threads::All => begin.elapsed().as_secs_f64(),
        };
        best = best.min(took / repeats as f64);
    }
    best
}

/// Returns the CPU time of this thread.
fn thread_seconds() -> f64 {
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    const THREAD_CLOCK: i32 = 3;
    let mut time = [0i64; 2];
    // SAFETY: on 64-bit Linux a timespec is two 64-bit integers.
    unsafe { clock_gettime(THREAD_CLOCK, &mut time) };
    time[0] as f64 + time[1] as f64 * 1e-9
}
