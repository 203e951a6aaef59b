//! Tests of the bounds of datasets: they must not hold a thread, outlive their step, or overflow the stack.

use super::tests::session;
use super::*;
use crate::function::testing::Closures;
use crate::testing::{TestSession, finished, run_op, waits};
use graph::AttrMap;
use kernel::{CallFrame, JobRunner};
use parking_lot::Condvar;
use tensor::Code;

const HUGE: i64 = 1 << 61;

/// Runs jobs on compute threads, and detects when none is left.
#[derive(Default)]
struct Counted {
    running: Arc<(Mutex<usize>, Condvar)>,
}

impl JobRunner for Counted {
    fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
        let running = self.running.clone();
        *running.0.lock() += 1;
        numeric::compute_threads::spawn(Box::new(move || {
            job();
            *running.0.lock() -= 1;
            running.1.notify_all();
        }));
    }
}

impl Counted {
    fn wait_until_idle(&self) {
        let mut running = self.running.0.lock();
        let far = std::time::Duration::from_secs(60);
        self.running.1.wait_while_for(&mut running, |running| *running > 0, far);
        assert_eq!(*running, 0, "what was cancelled still runs");
    }
}

fn endless_session(runner: &Arc<Counted>) -> TestSession {
    let functions = Closures::default()
        .with("never", |_| Ok(vec![Tensor::scalar(false)]))
        .with("same", Ok)
        .with("nothing", |_| Ok(vec![range_tensor(0)]));
    let mut step = Step::detached().for_function(CallFrame::default(), Some(Arc::new(functions)));
    step.runner = runner.clone();
    TestSession { step: Arc::new(step), ..session() }
}

/// A dataset that has no next element for ages yields the thread, and ends with its step.
#[test]
fn what_goes_on_for_ages_keeps_no_thread_and_ends_with_its_step() {
    type Make = fn(&TestSession) -> Output;
    let cases: &[(&str, Make)] = &[
        ("skip", |s| s.on("SkipDataset", &s.range(2 * HUGE), &[HUGE])),
        ("shard", |s| s.on("ShardDataset", &s.range(2 * HUGE), &[HUGE, HUGE - 1])),
        ("filter", |s| s.with_function("FilterDataset", &s.range(HUGE), "predicate", "never", &[])),
        ("repeat nothing", |s| s.on("RepeatDataset", &s.range(0), &[HUGE])),
        ("shuffle and repeat nothing", |s| s.on("ShuffleAndRepeatDataset", &s.range(0), &[2, 1, 1, HUGE])),
        ("shuffle", |s| s.on("ShuffleDataset", &s.range(HUGE), &[HUGE, 1, 1])),
        ("batch", |s| s.on("BatchDataset", &s.range(HUGE), &[HUGE])),
        ("flat map", |s| s.with_function("FlatMapDataset", &s.range(HUGE), "f", "nothing", &[])),
        ("batches of skips", |s| {
            let skips = s.on("SkipDataset", &s.range(2 * HUGE), &[HUGE]);
            s.on("BatchDataset", &s.on("BatchDataset", &skips, &[1000]), &[1000])
        }),
        ("prefetch", |s| s.on("PrefetchDataset", &s.on("SkipDataset", &s.range(2 * HUGE), &[HUGE]), &[1])),
        ("cache", |s| {
            let skips = s.on("SkipDataset", &s.range(2 * HUGE), &[HUGE]);
            s.typed(s.graph.op("CacheDataset").input(&skips).input(&s.graph.constant_tensor(&Tensor::string(""))))
        }),
        ("take", |s| s.on("TakeDataset", &s.on("SkipDataset", &s.range(2 * HUGE), &[HUGE]), &[1])),
    ];
    for (name, make) in cases {
        let runner = Arc::new(Counted::default());
        let session = endless_session(&runner);
        let (dtypes, shapes) = ([DType::Int64], [PartialShape::unknown()]);
        let iterator = iterator(&session.graph, &dtypes, &shapes);
        session.run(&make_iterator(&make(&session), &iterator), &[]).unwrap();
        let next = iterator_get_next(&iterator, &dtypes, &shapes).remove(0);
        let asked = session.start(&next.op, &[]).unwrap();
        assert!(waits(&asked), "{name}");
        // Requests behind it are not held up.
        let another = session.another_step();
        let behind = another.start(&next.op, &[]).unwrap();
        another.step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(finished(&behind).unwrap_err().code(), Code::Cancelled, "{name}");
        session.step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(finished(&asked).unwrap_err().code(), Code::Cancelled, "{name}");
        runner.wait_until_idle();
    }
}

fn typed_attrs() -> AttrMap {
    let mut attrs = AttrMap::default();
    attrs.set("output_types", &[DType::Int64][..]);
    attrs.set("output_shapes", &[PartialShape::unknown()][..]);
    attrs
}

fn range_tensor(count: i64) -> Tensor {
    let inputs = [0, count, 1].map(Tensor::scalar::<i64>);
    run_op("RangeDataset", typed_attrs(), &inputs).unwrap().remove(0)
}

/// Nests datasets until that is refused; returns the last one, their number, and the error.
fn nested(around: impl Fn(Tensor) -> Result<Vec<Tensor>>) -> (Tensor, usize, Status) {
    let mut dataset = range_tensor(3);
    for levels in 1.. {
        match around(dataset.clone()) {
            Ok(mut outer) => dataset = outer.remove(0),
            Err(status) => return (dataset, levels, status),
        }
        assert!(levels < 50_000, "nobody refuses it");
    }
    unreachable!()
}

#[test]
fn datasets_within_each_other_have_a_bound_that_the_stack_bears() {
    type Around = fn(Tensor) -> Result<Vec<Tensor>>;
    let cases: &[(&str, Around)] = &[
        ("skip", |inner| run_op("SkipDataset", typed_attrs(), &[inner, Tensor::scalar(0i64)])),
        ("take", |inner| run_op("TakeDataset", typed_attrs(), &[inner, Tensor::scalar(3i64)])),
        ("repeat", |inner| run_op("RepeatDataset", typed_attrs(), &[inner, Tensor::scalar(1i64)])),
        ("concatenate", |inner| run_op("ConcatenateDataset", typed_attrs(), &[range_tensor(0), inner])),
        ("concatenate before", |inner| run_op("ConcatenateDataset", typed_attrs(), &[inner, range_tensor(0)])),
        ("shuffle", |inner| {
            let [size, seed] = [2, 1].map(Tensor::scalar::<i64>);
            run_op("ShuffleDataset", typed_attrs(), &[inner, size, seed.clone(), seed])
        }),
        ("prefetch", |inner| run_op("PrefetchDataset", typed_attrs(), &[inner, Tensor::scalar(1i64)])),
        ("cache", |inner| run_op("CacheDataset", typed_attrs(), &[inner, Tensor::string("")])),
        ("shard", |inner| run_op("ShardDataset", typed_attrs(), &[inner, Tensor::scalar(1i64), Tensor::scalar(0i64)])),
        ("zip", |inner| {
            let mut attrs = typed_attrs();
            attrs.set("N", 1i64);
            run_op("ZipDataset", attrs, &[inner])
        }),
    ];
    for (name, around) in cases {
        let body = || {
            let (dataset, levels, status) = nested(around);
            assert_eq!(status.code(), Code::InvalidArgument, "{name}");
            assert!(status.message().contains("datasets are nested more than 256 deep"), "{name}: {status}");
            assert_eq!(levels, 256, "{name}");
            let session = session();
            let fed = session.placeholder(DType::Variant);
            let (dtypes, shapes) = ([DType::Int64], [PartialShape::unknown()]);
            let iterator = iterator(&session.graph, &dtypes, &shapes);
            session.run(&make_iterator(&fed, &iterator), &[(&fed, dataset)]).unwrap();
            let next = iterator_get_next(&iterator, &dtypes, &shapes).remove(0);
            for _ in 0..3 {
                session.fetch(&next, &[]).unwrap();
            }
            assert_eq!(session.fetch(&next, &[]).unwrap_err().code(), Code::OutOfRange, "{name}");
        };
        // Half of a thread's stack.
        std::thread::scope(|scope| {
            std::thread::Builder::new().stack_size(1 << 20).spawn_scoped(scope, body).unwrap().join().unwrap();
        });
    }
}

/// A function whose datasets call it again never produces an element.
#[test]
fn a_function_that_makes_datasets_of_itself_has_a_bound() {
    let made: Arc<Mutex<Option<Tensor>>> = Arc::default();
    let inner = made.clone();
    let functions = Closures::default().with("again", move |_| Ok(inner.lock().iter().cloned().collect()));
    let mut session = session();
    session.step = Arc::new(Step::detached().for_function(CallFrame::default(), Some(Arc::new(functions))));
    let outer = session.with_function("FlatMapDataset", &session.range(1), "f", "again", &[]);
    let dataset = session.fetch(&outer, &[]).unwrap();
    *made.lock() = Some(dataset.clone());
    let status = session.elements(&outer, 1).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("datasets are nested more than"), "{status}");
    *made.lock() = None;
}
