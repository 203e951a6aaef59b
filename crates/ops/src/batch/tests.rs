//! Steps that meet in batches, with a clock that only the test advances.

use crate::function::testing::{Closures, func};
use crate::testing::attrs;
use crate::testing::{TestSession, check_shape, finished, waits};
use graph::{Operation, Output};
use kernel::{JobRunner, Outputs, Step};
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tensor::{Code, DType, Result, Status, Tensor};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs in place, and delayed ones when the test advances the clock.
struct Clock {
    now: Mutex<Instant>,
    later: Mutex<Vec<(Instant, Job)>>,
}

impl Clock {
    fn advance(&self, by: Duration) {
        let now = *self.now.lock() + by;
        *self.now.lock() = now;
        loop {
            let due = {
                let mut later = self.later.lock();
                later.iter().position(|(due, _)| *due <= now).map(|position| later.remove(position).1)
            };
            match due {
                Some(job) => job(),
                None => return,
            }
        }
    }
}

impl JobRunner for Clock {
    fn spawn(&self, job: Job) {
        job();
    }

    fn spawn_after(&self, delay: Duration, job: Job) {
        self.later.lock().push((self.now() + delay, job));
    }

    fn now(&self) -> Instant {
        *self.now.lock()
    }
}

struct Bench {
    session: TestSession,
    clock: Arc<Clock>,
    rows: Output,
}

type Started = mpsc::Receiver<Result<Outputs>>;

impl Bench {
    fn new() -> Bench {
        let clock = Arc::new(Clock { now: Mutex::new(Instant::now()), later: Mutex::new(Vec::new()) });
        let mut step = Step::detached();
        step.runner = clock.clone();
        let functions = Closures::default()
            .with("double", |args| {
                let doubled: Vec<i32> = args[0].as_slice::<i32>()?.iter().map(|value| 2 * value).collect();
                Ok(vec![Tensor::vector(&doubled)])
            })
            .with("count", |args| {
                Ok(vec![Tensor::vector(&vec![args[0].num_elements() as i32; args[0].num_elements()])])
            })
            .with("captured", |args| {
                Ok(vec![Tensor::vector(&vec![args[1].to_scalar::<i32>()?; args[0].num_elements()])])
            })
            .with("short", |_| Ok(vec![Tensor::vector(&[1i32])]))
            .with("scalar", |_| Ok(vec![Tensor::scalar(1i32)]))
            .with("fail", |_| Err(Status::aborted("no")));
        step.functions = Some(Arc::new(functions));
        let session = TestSession { step: Arc::new(step), ..TestSession::new() };
        let rows = session.placeholder(DType::Int32);
        Bench { session, clock, rows }
    }

    fn batch(&self, max: i64, enqueued: i64, allowed: &[i64]) -> Operation {
        let op = self.session.graph.op("Batch").input(&self.rows).attr("num_batch_threads", 1i64);
        let op = op.attr("max_batch_size", max).attr("max_enqueued_batches", enqueued).attr("shared_name", "batcher");
        let op = op.attr("batch_timeout_micros", 1000i64).attr("grad_timeout_micros", 1000i64);
        op.attr("allowed_batch_sizes", allowed).build()
    }

    fn function(&self, name: &str, max: i64, allowed: &[i64], captured: &[Output]) -> Operation {
        let op = self.session.graph.op("BatchFunction").input(&self.rows).inputs(captured).attr("f", func(name));
        let op = op.attr("Tin", &[DType::Int32][..]).attr("Tcaptured", &vec![DType::Int32; captured.len()][..]);
        let op = op.attr("Tout", &[DType::Int32][..]).attr("num_batch_threads", 1i64).attr("max_batch_size", max);
        let op = op.attr("batch_timeout_micros", 1000i64).attr("allowed_batch_sizes", allowed);
        op.attr("enable_large_batch_splitting", !allowed.is_empty()).build()
    }

    fn start(&self, op: &Operation, rows: &[i32]) -> Started {
        self.session.another_step().start(op, &[(&self.rows, Tensor::vector(rows))]).unwrap()
    }
}

fn ints(tensor: &Tensor) -> Vec<i32> {
    tensor.as_slice::<i32>().unwrap().to_vec()
}

fn code(started: &Started) -> Code {
    finished(started).unwrap_err().code()
}

const TIMEOUT: Duration = Duration::from_micros(1000);

#[test]
fn a_full_batch_goes_to_the_last_step() {
    let bench = Bench::new();
    let batch = bench.batch(3, 10, &[]);
    let first = bench.start(&batch, &[1]);
    assert!(waits(&first));
    let second = bench.start(&batch, &[2, 3]);
    let (first, second) = (finished(&first).unwrap(), finished(&second).unwrap());
    assert_eq!((first[0].dims(), first[1].dims()), (&[0i64][..], &[0i64, 3][..]));
    assert_eq!(ints(&second[0]), [1, 2, 3]);
    let key = |outputs: &[Tensor]| outputs[2].to_scalar::<i64>().unwrap();
    assert_eq!(second[1].as_slice::<i64>().unwrap(), &[key(&first), 0, 1, key(&second), 1, 3]);
}

#[test]
fn rows_do_not_wait_longer_than_they_may_and_batches_are_filled_up() {
    let bench = Bench::new();
    let batch = bench.batch(4, 10, &[3, 4]);
    let started = bench.start(&batch, &[7, 8]);
    bench.clock.advance(TIMEOUT / 2);
    assert!(waits(&started));
    bench.clock.advance(TIMEOUT / 2);
    assert_eq!(ints(&finished(&started).unwrap()[0]), [7, 8, 7]);
    let started = bench.start(&batch, &[9]);
    assert!(waits(&started));
    bench.clock.advance(TIMEOUT);
    assert_eq!(ints(&finished(&started).unwrap()[0]), [9, 9, 9]);
    assert!(bench.clock.later.lock().is_empty(), "nobody waits, and no alarm is set");
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = Bench::new();
    let batch = bench.batch(3, 1, &[]);
    assert_eq!(code(&bench.start(&batch, &[1, 2, 3, 4])), Code::InvalidArgument);
    let waiting = bench.start(&batch, &[1, 2]);
    assert_eq!(code(&bench.start(&batch, &[3, 4])), Code::Unavailable);
    assert!(waits(&waiting));
    let last = bench.start(&batch, &[3]);
    assert_eq!(ints(&finished(&last).unwrap()[0]), [1, 2, 3]);
    let none = finished(&bench.start(&batch, &[])).unwrap();
    assert!(none.iter().all(|output| output.dims() == [0]));
    let scalar = bench.session.start(&batch, &[(&bench.rows, Tensor::scalar(1i32))]).unwrap();
    assert_eq!(code(&scalar), Code::InvalidArgument);
    for (max, enqueued, allowed) in [(0, 1, &[][..]), (3, 0, &[][..]), (3, 1, &[2, 1, 3][..]), (3, 1, &[2][..])] {
        let op = bench.batch(max, enqueued, allowed);
        let started = bench.session.start(&op, &[(&bench.rows, Tensor::vector(&[1i32]))]);
        assert_eq!(started.unwrap_err().code(), Code::InvalidArgument, "{max} {enqueued} {allowed:?}");
    }
}

#[test]
fn a_cancelled_step_leaves_the_batch() {
    let bench = Bench::new();
    let batch = bench.batch(3, 10, &[]);
    let other = bench.session.another_step();
    let cancelled = other.start(&batch, &[(&bench.rows, Tensor::vector(&[1i32, 2]))]).unwrap();
    other.step.cancellation.cancel(Status::cancelled("stop"));
    assert_eq!(code(&cancelled), Code::Cancelled);
    let alone = bench.start(&batch, &[3]);
    bench.clock.advance(TIMEOUT);
    assert_eq!(ints(&finished(&alone).unwrap()[0]), [3]);
    let late = other.start(&batch, &[(&bench.rows, Tensor::vector(&[1i32]))]).unwrap();
    assert_eq!(code(&late), Code::Cancelled);
}

#[test]
fn a_function_is_called_once_for_all_and_each_gets_its_rows() {
    let bench = Bench::new();
    let double = bench.function("double", 3, &[], &[]);
    let (first, second) = (bench.start(&double, &[1]), bench.start(&double, &[2, 3]));
    assert_eq!(ints(&finished(&first).unwrap()[0]), [2]);
    assert_eq!(ints(&finished(&second).unwrap()[0]), [4, 6]);
    let captured = bench.session.placeholder(DType::Int32);
    let op = bench.function("captured", 2, &[], std::slice::from_ref(&captured));
    let feeds = [(&bench.rows, Tensor::vector(&[1i32, 2])), (&captured, Tensor::scalar(9i32))];
    assert_eq!(ints(&bench.session.run(&op, &feeds).unwrap()[0]), [9, 9]);
    for (name, expected) in [
        ("short", Code::FailedPrecondition),
        ("scalar", Code::FailedPrecondition),
        ("fail", Code::Aborted),
        ("unknown", Code::NotFound),
    ] {
        let op = bench.function(name, 2, &[], &[]);
        assert_eq!(code(&bench.start(&op, &[1, 2])), expected, "{name}");
    }
}

#[test]
fn a_large_request_is_spread_over_batches() {
    let bench = Bench::new();
    let count = bench.function("count", 8, &[2, 3], &[]);
    let small = bench.start(&count, &[1]);
    let large = bench.start(&count, &[2, 3, 4, 5, 6, 7]);
    assert_eq!(ints(&finished(&small).unwrap()[0]), [3], "filled up with the first rows of the large one");
    assert!(waits(&large), "its last row waits for others");
    bench.clock.advance(TIMEOUT);
    assert_eq!(ints(&finished(&large).unwrap()[0]), [3, 3, 3, 3, 3, 2]);
}

struct Rejoin {
    bench: Bench,
    batch: Output,
    index: Output,
    id: Output,
}

impl Rejoin {
    fn new() -> Rejoin {
        let bench = Bench::new();
        let (batch, index) = (bench.session.placeholder(DType::Int32), bench.session.placeholder(DType::Int64));
        let id = bench.session.placeholder(DType::Int64);
        Rejoin { bench, batch, index, id }
    }

    fn unbatch(&self) -> Operation {
        let op = self.bench.session.graph.op("Unbatch").input(&self.batch).input(&self.index).input(&self.id);
        op.attr("timeout_micros", 1000i64).attr("shared_name", "unbatcher").build()
    }

    fn start(&self, op: &Operation, batch: &[i32], index: &[[i64; 3]], id: i64) -> Started {
        let feeds = [
            (&self.batch, Tensor::vector(batch)),
            (&self.index, Tensor::from_slice(&[index.len() as i64, 3], index.as_flattened()).unwrap()),
            (&self.id, Tensor::scalar(id)),
        ];
        self.bench.session.another_step().start(op, &feeds).unwrap()
    }
}

#[test]
fn each_step_gets_its_own_rows_back() {
    let rejoin = Rejoin::new();
    let unbatch = rejoin.unbatch();
    let early = rejoin.start(&unbatch, &[], &[], 1);
    assert!(waits(&early));
    let whole = rejoin.start(&unbatch, &[10, 20, 21, 30, 99], &[[1, 0, 1], [2, 1, 3], [3, 3, 4]], 2);
    assert_eq!(ints(&finished(&early).unwrap()[0]), [10]);
    assert_eq!(ints(&finished(&whole).unwrap()[0]), [20, 21]);
    let late = rejoin.start(&unbatch, &[], &[], 3);
    assert_eq!(ints(&finished(&late).unwrap()[0]), [30]);
}

#[test]
fn unbatching_does_not_wait_forever() {
    let rejoin = Rejoin::new();
    let unbatch = rejoin.unbatch();
    let waiting = rejoin.start(&unbatch, &[], &[], 1);
    assert_eq!(code(&rejoin.start(&unbatch, &[], &[], 1)), Code::AlreadyExists);
    rejoin.bench.clock.advance(TIMEOUT);
    assert_eq!(code(&waiting), Code::DeadlineExceeded);
    // A tensor that nobody has requested in time is dropped.
    let whole = rejoin.start(&unbatch, &[1, 2], &[[4, 0, 1], [5, 1, 2]], 5);
    assert_eq!(ints(&finished(&whole).unwrap()[0]), [2]);
    assert_eq!(code(&rejoin.start(&unbatch, &[7], &[[4, 0, 1]], 6)), Code::AlreadyExists);
    rejoin.bench.clock.advance(TIMEOUT);
    let other = rejoin.bench.session.another_step();
    let feeds = [
        (&rejoin.batch, Tensor::vector::<i32>(&[])),
        (&rejoin.index, Tensor::from_slice::<i64>(&[0, 3], &[]).unwrap()),
        (&rejoin.id, Tensor::scalar(4i64)),
    ];
    let too_late = other.start(&unbatch, &feeds).unwrap();
    assert!(waits(&too_late));
    other.step.cancellation.cancel(Status::cancelled("stop"));
    assert_eq!(code(&too_late), Code::Cancelled);
    for (batch, index) in [(&[1][..], &[[1, 0, 1], [2, 1, 2]][..]), (&[1], &[[1, 0, 2]]), (&[1], &[[1, 1, 0]])] {
        assert_eq!(code(&rejoin.start(&unbatch, batch, index, 1)), Code::InvalidArgument, "{index:?}");
    }
}

#[test]
fn gradients_of_all_steps_come_to_the_one_with_the_batch() {
    let rejoin = Rejoin::new();
    let session = &rejoin.bench.session;
    let grad = session.placeholder(DType::Int32);
    let op = session.graph.op("UnbatchGrad").input(&rejoin.batch).input(&rejoin.index).input(&grad).input(&rejoin.id);
    let op = op.attr("shared_name", "gradients").build();
    let start = |batch: &[i32], index: &[[i64; 3]], value: &[i32], id: i64| {
        let feeds = [
            (&rejoin.batch, Tensor::vector(batch)),
            (&rejoin.index, Tensor::from_slice(&[index.len() as i64, 3], index.as_flattened()).unwrap()),
            (&grad, Tensor::vector(value)),
            (&rejoin.id, Tensor::scalar(id)),
        ];
        session.another_step().start(&op, &feeds).unwrap()
    };
    let early = start(&[], &[], &[1], 1);
    assert_eq!(finished(&early).unwrap()[0].dims(), &[0]);
    let index = [[1, 0, 1], [2, 1, 3], [3, 3, 4]];
    let whole = start(&[0, 0, 0, 0], &index, &[2, 2], 2);
    assert!(waits(&whole));
    assert_eq!(code(&start(&[], &[], &[5], 1)), Code::InvalidArgument);
    assert_eq!(finished(&start(&[], &[], &[3], 3)).unwrap()[0].dims(), &[0]);
    assert_eq!(ints(&finished(&whole).unwrap()[0]), [1, 2, 2, 3]);
    assert_eq!(code(&start(&[0], &[], &[1], 9)), Code::InvalidArgument);
}

#[test]
fn shapes() {
    let types: &[DType] = &[DType::Float, DType::Int32];
    check_shape("Batch", attrs![("T", types)], "[2,3];[2]", "[?,3];[?];[?,3];[]");
    check_shape("Unbatch", attrs![], "[2,3];[2,3];[]", "[?,3]");
    check_shape("UnbatchGrad", attrs![], "[2,3];[2,3];[2,3];[]", "[?,?]");
    check_shape("UnbatchGrad", attrs![], "?;?;?;?", "?");
}
