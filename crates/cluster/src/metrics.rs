//! [`TaskMetrics`]: a task's counts of its steps and transfers, for health checks, metrics and the status page.
//!
//! A step uses relaxed atomics only: no lock, no hash, no allocation. Counters that several threads add to are split into shards,
//! each in its own cache line; readers sum them up.

use crate::clock::{elapsed, now, system_time};
use crate::recorder::{Event, Kind, Recorder};
use foldhash::HashMap;
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tensor::{Code, Status};

/// The number of shards of a counter. If there are more threads, they share.
const SHARDS: usize = 8;

/// The upper bounds of the buckets of step times, in seconds.
pub(crate) const STEP_TIME_BOUNDS: [f64; 16] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// The same in microseconds, as they are compared.
const STEP_TIME_BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

/// The most waits for other tasks that are remembered at once.
const WAITS_MAX: usize = 1 << 10;

/// One past the largest code of a status.
pub(crate) const NUM_CODES: usize = 17;

thread_local! {
    /// The shard that this thread adds to.
    static SHARD: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS)
    };
}

/// A value in its own cache line, so that threads that write neighbouring values don't slow each other down.
#[derive(Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// The durations of steps of one kind, and their number.
#[derive(Default)]
pub(crate) struct StepTimes {
    shards: [Padded<StepTimesShard>; SHARDS],
}

#[derive(Default)]
struct StepTimesShard {
    /// One for each bound, and one for longer durations.
    buckets: [AtomicU64; STEP_TIME_BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

/// The sums of [`StepTimes`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepTimesSummary {
    /// The number of steps in each bucket; the last one is beyond all bounds.
    pub buckets: [u64; STEP_TIME_BOUNDS.len() + 1],
    /// Their total duration.
    pub sum_micros: u64,
}

impl StepTimesSummary {
    /// Returns the number of steps.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl StepTimes {
    /// Counts a step.
    pub fn add(&self, took_micros: u64) {
        let bucket = STEP_TIME_BOUNDS_MICROS.partition_point(|&bound| bound < took_micros);
        let shard = &self.shards[SHARD.get()].0;
        shard.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        shard.sum_micros.fetch_add(took_micros, Ordering::Relaxed);
    }

    /// Returns the sums.
    pub fn summary(&self) -> StepTimesSummary {
        let mut summary = StepTimesSummary::default();
        for shard in &self.shards {
            for (sum, bucket) in summary.buckets.iter_mut().zip(&shard.0.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            summary.sum_micros += shard.0.sum_micros.load(Ordering::Relaxed);
        }
        summary
    }
}

/// The transfers with one task of the cluster.
pub(crate) struct PeerTraffic {
    /// The task.
    pub task: String,
    /// Its index among the cluster's tasks, which recorded events use.
    pub index: u32,
    sent: Padded<Traffic>,
    received: Padded<Traffic>,
    clock: Clock,
    recorder: Arc<Recorder>,
}

#[derive(Default)]
struct Traffic {
    bytes: AtomicU64,
    tensors: AtomicU64,
}

impl PeerTraffic {
    /// Counts a tensor that was sent in a step.
    pub fn sent(&self, step_id: i64, bytes: usize) {
        self.sent.0.count(bytes);
        self.record(Kind::Sent, step_id, bytes);
    }

    /// Counts a tensor that was received in a step.
    pub fn received(&self, step_id: i64, bytes: usize) {
        self.received.0.count(bytes);
        self.record(Kind::Received, step_id, bytes);
    }

    /// Returns the bytes and the tensors that were sent.
    pub fn total_sent(&self) -> (u64, u64) {
        self.sent.0.totals()
    }

    /// Returns the bytes and the tensors that were received.
    pub fn total_received(&self) -> (u64, u64) {
        self.received.0.totals()
    }

    fn record(&self, kind: Kind, step_id: i64, bytes: usize) {
        let start_micros = self.clock.now_micros();
        let event =
            Event { kind, code: 0, subject: self.index, step_id, start_micros, took_micros: 0, bytes: bytes as u64 };
        self.recorder.record(event);
    }
}

impl Traffic {
    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.tensors.fetch_add(1, Ordering::Relaxed);
    }

    fn totals(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.tensors.load(Ordering::Relaxed))
    }
}

/// Returns the time since the epoch by a monotonic clock.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    started: Instant,
    started_micros: u64,
}

impl Clock {
    fn start() -> Clock {
        let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { started: now(), started_micros: since.as_micros() as u64 }
    }

    /// Returns the microseconds since the epoch.
    pub fn now_micros(&self) -> u64 {
        self.started_micros + elapsed(self.started).as_micros() as u64
    }
}

/// The counts of a task.
pub(crate) struct TaskMetrics {
    /// The time.
    pub clock: Clock,
    /// The steps that this task's master ran for clients.
    pub steps: StepTimes,
    /// The partitions that this task's worker ran for masters.
    pub partitions: StepTimes,
    step_errors: [AtomicU64; NUM_CODES],
    partition_errors: [AtomicU64; NUM_CODES],
    /// The flight recorder.
    pub recorder: Arc<Recorder>,
    /// The tasks of the cluster, which don't change.
    peers: Vec<Arc<PeerTraffic>>,
    by_name: HashMap<String, usize>,
    waits: Waits,
}

impl TaskMetrics {
    /// Returns the counters of a task of a cluster with these tasks.
    pub fn new(tasks: Vec<String>) -> TaskMetrics {
        let (clock, recorder) = (Clock::start(), Arc::new(Recorder::default()));
        let by_name = tasks.iter().enumerate().map(|(index, task)| (task.clone(), index)).collect();
        let peer = |(index, task): (usize, String)| {
            let (sent, received) = Default::default();
            Arc::new(PeerTraffic { task, index: index as u32, sent, received, clock, recorder: recorder.clone() })
        };
        let peers = tasks.into_iter().enumerate().map(peer).collect();
        TaskMetrics {
            clock,
            steps: StepTimes::default(),
            partitions: StepTimes::default(),
            step_errors: Default::default(),
            partition_errors: Default::default(),
            recorder,
            peers,
            by_name,
            waits: Waits::default(),
        }
    }

    /// Returns the task's uptime.
    pub fn uptime(&self) -> Duration {
        elapsed(self.clock.started)
    }

    /// Returns when the task started, in microseconds since the epoch.
    pub fn started_micros(&self) -> u64 {
        self.clock.started_micros
    }

    /// Returns the tasks of the cluster with their transfers.
    pub fn peers(&self) -> &[Arc<PeerTraffic>] {
        &self.peers
    }

    /// Returns the transfers with a task.
    pub fn peer(&self, task: &str) -> Option<&Arc<PeerTraffic>> {
        self.peers.get(*self.by_name.get(task)?)
    }

    /// Counts a step that the master ran for a session.
    pub fn step_ended(&self, session: u32, step_id: i64, start_micros: u64, failed: Option<&Status>) {
        self.ended(Kind::Step, &self.steps, &self.step_errors, session, step_id, start_micros, failed);
    }

    /// Counts a partition that the worker ran.
    pub fn partition_ended(&self, step_id: i64, start_micros: u64, failed: Option<&Status>) {
        self.ended(Kind::Partition, &self.partitions, &self.partition_errors, 0, step_id, start_micros, failed);
    }

    fn ended(
        &self,
        kind: Kind,
        times: &StepTimes,
        errors: &[AtomicU64; NUM_CODES],
        subject: u32,
        step_id: i64,
        start_micros: u64,
        failed: Option<&Status>,
    ) {
        let took_micros = self.clock.now_micros().saturating_sub(start_micros);
        times.add(took_micros);
        let code = failed.map_or(0, |status| status.code() as usize).min(NUM_CODES - 1);
        if failed.is_some() {
            errors[code].fetch_add(1, Ordering::Relaxed);
        }
        self.recorder.record(Event { kind, code: code as u32, subject, step_id, start_micros, took_micros, bytes: 0 });
    }

    /// Returns the number of failed steps, by code.
    pub fn step_errors(&self) -> Vec<(Code, u64)> {
        by_code(&self.step_errors)
    }

    /// Returns the number of failed partitions, by code.
    pub fn partition_errors(&self) -> Vec<(Code, u64)> {
        by_code(&self.partition_errors)
    }

    /// Records that somebody waits for a task, until the result is dropped.
    pub fn wait_for(self: &Arc<Self>, who: &str, task: &str) -> WaitGuard {
        let wait = Wait { who: who.to_owned(), task: task.to_owned(), since: now(), because: String::new() };
        let number = self.waits.next.fetch_add(1, Ordering::Relaxed);
        let mut all = self.waits.all.lock();
        if all.len() < WAITS_MAX {
            all.insert(number, wait);
        }
        WaitGuard { metrics: self.clone(), number }
    }

    /// Returns the waits for tasks, longest first.
    pub fn waits(&self) -> Vec<Wait> {
        self.waits.all.lock().values().cloned().collect()
    }
}

fn by_code(errors: &[AtomicU64; NUM_CODES]) -> Vec<(Code, u64)> {
    let counts = errors.iter().enumerate().skip(1);
    counts.map(|(code, count)| (Code::from_i32(code as i32), count.load(Ordering::Relaxed))).collect()
}

/// A wait for a task to start.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The waiter, such as `session 3`.
    pub who: String,
    /// The task.
    pub task: String,
    /// The start of the wait.
    pub since: Instant,
    /// The last error.
    pub because: String,
}

#[derive(Default)]
struct Waits {
    all: Mutex<BTreeMap<u64, Wait>>,
    next: AtomicU64,
}

/// A wait that is over when this is dropped.
pub(crate) struct WaitGuard {
    metrics: Arc<TaskMetrics>,
    number: u64,
}

impl WaitGuard {
    /// Records why the task can't be reached yet.
    pub fn because(&self, message: &str) {
        if let Some(wait) = self.metrics.waits.all.lock().get_mut(&self.number) {
            message.clone_into(&mut wait.because);
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.metrics.waits.all.lock().remove(&self.number);
    }
}

/// The progress of a session's steps: their number, and fetched values that are of interest to people.
#[derive(Default)]
pub(crate) struct SessionProgress {
    /// The number of the session among all of this master's.
    pub number: u32,
    /// When it was opened, in microseconds since the epoch.
    pub opened_micros: u64,
    /// The client that it belongs to.
    pub client: String,
    /// The number of its steps.
    pub steps: AtomicU64,
    /// When the last one ended.
    pub last_step_micros: AtomicU64,
    /// The last loss that it fetched, as bits.
    loss: AtomicU32,
    global_step: AtomicU64,
}

impl SessionProgress {
    /// Makes the progress of a session that a client has just opened.
    pub fn new(number: u64, client: String, metrics: &TaskMetrics) -> SessionProgress {
        SessionProgress {
            number: number as u32,
            opened_micros: metrics.clock.now_micros(),
            client,
            loss: AtomicU32::new(f32::NAN.to_bits()),
            global_step: AtomicU64::new(u64::MAX),
            ..SessionProgress::default()
        }
    }

    /// Records a fetched loss.
    pub fn set_loss(&self, loss: f32) {
        self.loss.store(loss.to_bits(), Ordering::Relaxed);
    }

    /// Records a fetched global step.
    pub fn set_global_step(&self, step: u64) {
        self.global_step.store(step, Ordering::Relaxed);
    }

    /// Returns the last loss, if one was fetched.
    pub fn loss(&self) -> Option<f32> {
        Some(f32::from_bits(self.loss.load(Ordering::Relaxed))).filter(|loss| loss.is_finite())
    }

    /// Returns the last global step, if one was fetched.
    pub fn global_step(&self) -> Option<u64> {
        Some(self.global_step.load(Ordering::Relaxed)).filter(|&step| step != u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_times_fall_into_their_buckets() {
        let times = StepTimes::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| [50, 100, 101, 70_000_000].into_iter().for_each(|micros| times.add(micros)));
            }
        });
        let (summary, each) = (times.summary(), 2 * SHARDS as u64);
        assert_eq!(summary.buckets[0], 2 * each, "a bound belongs to its bucket");
        assert_eq!(summary.buckets[1], each);
        assert_eq!(summary.buckets[STEP_TIME_BOUNDS.len()], each);
        assert_eq!((summary.count(), summary.sum_micros), (4 * each, 70_000_251 * each));
        for (seconds, micros) in STEP_TIME_BOUNDS.iter().zip(STEP_TIME_BOUNDS_MICROS) {
            assert_eq!((seconds * 1e6).round() as u64, micros);
        }
    }

    #[test]
    fn errors_are_counted_by_code_and_traffic_by_task() {
        let ps = "/job:ps/replica:0/task:0";
        let metrics = Arc::new(TaskMetrics::new(vec![ps.to_owned()]));
        metrics.step_ended(3, 7, metrics.clock.now_micros(), Some(&Status::unavailable("gone")));
        metrics.step_ended(3, 8, metrics.clock.now_micros(), None);
        let failed: Vec<_> = metrics.step_errors().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(failed, [(Code::Unavailable, 1)]);
        assert_eq!(metrics.steps.summary().count(), 2);
        assert!(metrics.peer("/job:ps/replica:0/task:1").is_none());
        let peer = metrics.peer(ps).unwrap();
        peer.sent(7, 100);
        peer.received(7, 10);
        peer.received(8, 20);
        assert_eq!((peer.total_sent(), peer.total_received()), ((100, 1), (30, 2)));
        assert_eq!(metrics.recorder.last(usize::MAX).len(), 5);
    }

    #[test]
    fn waits_end_with_who_waits() {
        let metrics = Arc::new(TaskMetrics::new(Vec::new()));
        let wait = metrics.wait_for("session 1", "/job:ps/replica:0/task:0");
        wait.because("connection refused");
        let known = metrics.waits();
        assert_eq!((known.len(), known[0].because.as_str()), (1, "connection refused"));
        drop(wait);
        let many: Vec<WaitGuard> = (0..2 * WAITS_MAX).map(|_| metrics.wait_for("session 2", "x")).collect();
        assert_eq!(metrics.waits().len(), WAITS_MAX);
        drop(many);
        assert!(metrics.waits().is_empty());
    }
}
