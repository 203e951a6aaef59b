//! Tests of datasets, with the elements that TensorFlow gives.

use super::*;
use crate::function::testing::{Closures, func};
use crate::testing::{TestSession, finished, waits};
use bytes::Bytes;
use kernel::CallFrame;
use tensor::{Code, Shape};

const SCALAR: &[i64] = &[];

/// A session whose functions are closures.
pub(in crate::dataset) fn session() -> TestSession {
    let functions = Closures::default()
        .with("add_one", |args| Ok(vec![Tensor::scalar(args[0].to_scalar::<i64>()? + 1)]))
        .with("add_captured", |args| {
            Ok(vec![Tensor::scalar(args[0].to_scalar::<i64>()? + args[1].to_scalar::<i64>()?)])
        })
        .with("is_even", |args| Ok(vec![Tensor::scalar(args[0].to_scalar::<i64>()? % 2 == 0)]))
        .with("fill", |args| {
            let number = args[0].to_scalar::<i64>()?;
            Ok(vec![Tensor::vector(&vec![number; number as usize])])
        })
        .with("fail_on_two", |args| match args[0].to_scalar::<i64>()? {
            2 => Err(Status::invalid_argument("two")),
            _ => Ok(args),
        })
        .with("repeated", |args| {
            let number = args[0].to_scalar::<i64>()?;
            let dataset = Numbers((0..6).map(|_| number).collect());
            Ok(vec![super::super::base::dataset_tensor(Arc::new(dataset), Default::default())])
        })
        .with("make_range", |_| {
            Ok(vec![super::super::base::dataset_tensor(Arc::new(Numbers(vec![5, 6])), Default::default())])
        });
    let mut session = TestSession::new();
    session.step = Arc::new(Step::detached().for_function(CallFrame::default(), Some(Arc::new(functions))));
    session
}

/// A dataset of given numbers.
struct Numbers(Vec<i64>);

impl super::super::base::Dataset for Numbers {
    fn iterator(&self, _: super::super::base::Nesting) -> Result<Box<dyn super::super::base::DatasetIterator>> {
        Ok(Box::new(NumbersIterator(self.0.clone().into_iter())))
    }
}

struct NumbersIterator(std::vec::IntoIter<i64>);

impl super::super::base::DatasetIterator for NumbersIterator {
    fn next<'a>(&'a mut self, _: &'a Arc<Step>) -> super::super::base::Next<'a> {
        super::super::base::ready(Ok(self.0.next().map(|number| vec![Tensor::scalar(number)])))
    }
}

impl TestSession {
    pub(in crate::dataset) fn number(&self, value: i64) -> Output {
        self.graph.constant_tensor(&Tensor::scalar(value))
    }

    pub(in crate::dataset) fn range(&self, stop: i64) -> Output {
        self.typed(
            self.graph.op("RangeDataset").input(&self.number(0)).input(&self.number(stop)).input(&self.number(1)),
        )
    }

    pub(in crate::dataset) fn typed(&self, op: graph::builder::OpBuilder) -> Output {
        op.attr("output_types", &[DType::Int64][..]).attr("output_shapes", &[PartialShape::unknown()][..]).output()
    }

    /// An op on a dataset with integers as further inputs.
    pub(in crate::dataset) fn on(&self, name: &str, dataset: &Output, numbers: &[i64]) -> Output {
        let mut op = self.graph.op(name).input(dataset);
        for &number in numbers {
            op = op.input(&self.number(number));
        }
        self.typed(op)
    }

    pub(in crate::dataset) fn with_function(
        &self,
        name: &str,
        dataset: &Output,
        attr: &str,
        function: &str,
        captured: &[i64],
    ) -> Output {
        let captured: Vec<Output> = captured.iter().map(|&value| self.number(value)).collect();
        let types = vec![DType::Int64; captured.len()];
        let op = self.graph.op(name).input(dataset).inputs(&captured).attr(attr, func(function));
        self.typed(op.attr("Targuments", &types[..]))
    }

    /// Iterates over a dataset of integers and returns each element as text, or the message of its error.
    fn drawn(&self, dataset: &Output) -> Vec<String> {
        let (dtypes, shapes) = ([DType::Int64], [PartialShape::unknown()]);
        let iterator = iterator(&self.graph, &dtypes, &shapes);
        let next = iterator_get_next(&iterator, &dtypes, &shapes).remove(0);
        self.run(&make_iterator(dataset, &iterator), &[]).unwrap();
        let mut all = Vec::new();
        loop {
            match self.fetch(&next, &[]) {
                Ok(element) => {
                    let numbers = element.as_slice::<i64>().unwrap().iter();
                    all.push(numbers.map(i64::to_string).collect::<Vec<_>>().join(" "));
                }
                Err(status) if status.code() == Code::OutOfRange => return all,
                Err(status) => all.push(status.message().to_owned()),
            }
            assert!(all.len() < 10, "there is no end: {all:?}");
        }
    }

    /// Iterates over a dataset `times` times and returns each component of each element as text.
    pub(in crate::dataset) fn elements(&self, dataset: &Output, times: usize) -> Result<Vec<Vec<Tensor>>> {
        let (dtypes, shapes) = ([DType::Int64], [PartialShape::unknown()]);
        let iterator = iterator(&self.graph, &dtypes, &shapes);
        let make = make_iterator(dataset, &iterator);
        let next = iterator_get_next(&iterator, &dtypes, &shapes).remove(0);
        let mut all = Vec::new();
        for _ in 0..times {
            self.run(&make, &[])?;
            let mut round = Vec::new();
            loop {
                match self.fetch(&next, &[]) {
                    Ok(element) => round.push(element),
                    Err(status) if status.code() == Code::OutOfRange => {
                        assert_eq!(status.message(), "End of sequence");
                        break;
                    }
                    Err(status) => return Err(status),
                }
            }
            all.push(round);
        }
        Ok(all)
    }

    fn numbers(&self, dataset: &Output) -> Vec<i64> {
        let elements = self.elements(dataset, 1).unwrap().remove(0);
        elements.iter().flat_map(|element| element.as_slice::<i64>().unwrap().to_vec()).collect()
    }
}

#[test]
fn elements_one_by_one() {
    let session = session();
    let range = session.range(10);
    assert_eq!(session.numbers(&session.on("TakeDataset", &range, &[3])), [0, 1, 2]);
    assert_eq!(session.numbers(&session.on("SkipDataset", &range, &[8])), [8, 9]);
    assert_eq!(session.numbers(&session.on("ShardDataset", &range, &[3, 1])), [1, 4, 7]);
    let two = session.range(2);
    assert_eq!(session.numbers(&session.on("RepeatDataset", &two, &[2])), [0, 1, 0, 1]);
    assert_eq!(session.numbers(&session.on("RepeatDataset", &session.range(0), &[-1])), [0i64; 0]);
    let both = session.typed(session.graph.op("ConcatenateDataset").input(&two).input(&session.range(3)));
    assert_eq!(session.numbers(&both), [0, 1, 0, 1, 2]);
    let name = session.graph.constant_tensor(&Tensor::string(""));
    let cached = session.typed(session.graph.op("CacheDataset").input(&two).input(&name));
    assert_eq!(session.numbers(&session.on("RepeatDataset", &cached, &[3])), [0, 1, 0, 1, 0, 1]);
    for buffer in [0, 1, 3, -1] {
        assert_eq!(session.numbers(&session.on("PrefetchDataset", &range, &[buffer])), (0..10).collect::<Vec<_>>());
    }
    let status = session.elements(&session.on("ShardDataset", &range, &[3, 3]), 1).unwrap_err();
    assert_eq!(status.message(), "Index must be between 0 and 2 (currently index = 3).");
}

#[test]
fn a_cache_in_files_is_whole_or_not_there() {
    let session = session();
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("made/cache").to_string_lossy().into_owned();
    let files = || -> Vec<String> {
        let entries = std::fs::read_dir(directory.path().join("made")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let name = session.graph.constant_tensor(&Tensor::string(prefix.clone()));
    let cached = |input: &Output| session.typed(session.graph.op("CacheDataset").input(input).input(&name));
    let three = cached(&session.range(3));
    let (dtypes, shapes) = ([DType::Int64], [PartialShape::unknown()]);
    let first = iterator(&session.graph, &dtypes, &shapes);
    let next = iterator_get_next(&first, &dtypes, &shapes).remove(0);
    session.run(&make_iterator(&three, &first), &[]).unwrap();
    assert_eq!(session.fetch(&next, &[]).unwrap().to_scalar::<i64>().unwrap(), 0);
    assert!(files().contains(&"cache_0.lockfile".to_owned()), "{:?}", files());
    let status = session.elements(&three, 1).unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(status.message().contains("Lockfile contents: Created at: "), "{status}");
    // The writing iterator restarts, and its output is discarded.
    session.run(&make_iterator(&session.range(1), &first), &[]).unwrap();
    assert_eq!(files(), [""; 0]);
    assert_eq!(session.numbers(&session.on("RepeatDataset", &three, &[2])), [0, 1, 2, 0, 1, 2]);
    assert_eq!(files(), ["cache.data-00000-of-00001", "cache.index"]);
    // From now on the files are read, whatever the input is.
    assert_eq!(session.numbers(&cached(&session.range(9))), [0, 1, 2]);
    std::fs::write(directory.path().join("made/cache.index"), b"not a table").unwrap();
    assert_eq!(session.elements(&three, 1).unwrap_err().code(), Code::DataLoss);
}

#[test]
fn functions_run_on_elements() {
    let session = session();
    let range = session.range(5);
    assert_eq!(session.numbers(&session.with_function("MapDataset", &range, "f", "add_one", &[])), [1, 2, 3, 4, 5]);
    assert_eq!(
        session.numbers(&session.with_function("MapDataset", &range, "f", "add_captured", &[10])),
        [10, 11, 12, 13, 14]
    );
    assert_eq!(
        session.numbers(&session.with_function("FilterDataset", &range, "predicate", "is_even", &[])),
        [0, 2, 4]
    );
    let failing = session.with_function("MapDataset", &range, "f", "fail_on_two", &[]);
    assert_eq!(session.elements(&failing, 1).unwrap_err().message(), "two");
    for calls in [1, 3, 100, -1] {
        let op = session.graph.op("ParallelMapDatasetV2").input(&range).inputs(&[]).input(&session.number(calls));
        let mapped = session.typed(op.attr("f", func("add_one")).attr("Targuments", &[][..] as &[DType]));
        assert_eq!(session.numbers(&mapped), [1, 2, 3, 4, 5]);
    }
}

#[test]
fn an_error_takes_the_place_of_its_element_and_no_other() {
    let session = session();
    let range = session.range(5);
    let parallel = |calls: i64| {
        let op = session.graph.op("ParallelMapDatasetV2").input(&range).inputs(&[]).input(&session.number(calls));
        session.typed(op.attr("f", func("fail_on_two")).attr("Targuments", &[][..] as &[DType]))
    };
    let mapped = session.with_function("MapDataset", &range, "f", "fail_on_two", &[]);
    let ignored = |dataset: &Output| session.on("IgnoreErrorsDataset", dataset, &[]);
    for dataset in [&mapped, &parallel(1), &parallel(3), &session.on("PrefetchDataset", &mapped, &[2])] {
        assert_eq!(session.drawn(dataset), ["0", "1", "two", "3", "4"]);
        assert_eq!(session.drawn(&ignored(dataset)), ["0", "1", "3", "4"]);
    }
    let drop = session.graph.constant_tensor(&Tensor::scalar(false));
    let op = session.graph.op("MapAndBatchDataset").input(&range).inputs(&[]).input(&session.number(2));
    let op = op.input(&session.number(2)).input(&drop).attr("f", func("fail_on_two"));
    let batches = session.typed(op.attr("Targuments", &[][..] as &[DType]));
    assert_eq!(session.drawn(&batches), ["0 1", "two", "4"]);
}

#[test]
fn batches() {
    let session = session();
    let range = session.range(5);
    let batch = |drop: bool| {
        let drop = session.graph.constant_tensor(&Tensor::scalar(drop));
        session.typed(session.graph.op("BatchDatasetV2").input(&range).input(&session.number(2)).input(&drop))
    };
    let batches = session.elements(&batch(false), 1).unwrap().remove(0);
    let dims: Vec<&[i64]> = batches.iter().map(|batch| batch.dims()).collect();
    assert_eq!(dims, [&[2i64][..], &[2], &[1]]);
    assert_eq!(session.numbers(&batch(true)), [0, 1, 2, 3]);
    assert_eq!(
        session.numbers(&session.typed(session.graph.op("UnbatchDataset").input(&batch(false)))),
        [0, 1, 2, 3, 4]
    );
    let filled = session.with_function("MapDataset", &session.range(4), "f", "fill", &[]);
    let padded = |size: i64| {
        let shape = session.graph.constant_tensor(&Tensor::vector(&[size]));
        let drop = session.graph.constant_tensor(&Tensor::scalar(false));
        let op = session.graph.op("PaddedBatchDatasetV2").input(&filled).input(&session.number(2));
        let op = op.inputs(&[shape]).inputs(&[session.number(-1)]).input(&drop);
        op.attr("Toutput_types", &[DType::Int64][..]).attr("output_shapes", &[PartialShape::unknown()][..]).output()
    };
    assert_eq!(session.numbers(&padded(-1)), [-1, 1, 2, 2, -1, 3, 3, 3]);
    let status = session.elements(&padded(2), 1).unwrap_err();
    assert_eq!(status.message(), "Attempted to pad to a smaller size than the input element.");
    let status = session.elements(&session.on("BatchDataset", &filled, &[2]), 1).unwrap_err();
    assert!(status.message().starts_with("Cannot batch tensors with different shapes in component 0."), "{status}");
}

#[test]
fn orders_are_tensorflows() {
    let session = session();
    let shuffled = |reshuffles: bool| {
        let op = session.graph.op("ShuffleDataset").input(&session.range(10)).input(&session.number(4));
        let op = op.input(&session.number(87654321)).input(&session.number(3));
        session.typed(op.attr("reshuffle_each_iteration", reshuffles))
    };
    assert_eq!(session.numbers(&shuffled(true)), [0, 3, 2, 1, 4, 7, 6, 5, 8, 9]);
    assert_eq!(session.numbers(&shuffled(false)), [3, 4, 2, 0, 7, 5, 6, 8, 9, 1]);
    let expected = [0, 3, 2, 1, 4, 7, 6, 5, 8, 9, 0, 4, 1, 2, 5, 3, 6, 8, 9, 7];
    assert_eq!(session.numbers(&session.on("RepeatDataset", &shuffled(true), &[2])), expected);
    let both = session.on("ShuffleAndRepeatDataset", &session.range(5), &[3, 87654321, 3, 2]);
    assert_eq!(session.numbers(&both), [0, 1, 2, 3, 4, 0, 3, 4, 2, 1]);
    let from_one = session.on("SkipDataset", &session.range(5), &[1]);
    let op = session.graph.op("InterleaveDataset").input(&from_one).inputs(&[]);
    let op = op.input(&session.number(2)).input(&session.number(4));
    let interleaved = session.typed(op.attr("f", func("repeated")).attr("Targuments", &[][..] as &[DType]));
    let expected = [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 4, 4];
    assert_eq!(session.numbers(&interleaved), expected);
    let flat = session.with_function("FlatMapDataset", &session.range(2), "f", "repeated", &[]);
    assert_eq!(session.numbers(&flat), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn components_and_files() {
    let session = session();
    let texts = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
    let (dtypes, shapes) = ([DType::Int64, DType::String], [PartialShape::scalar(), PartialShape::scalar()]);
    let inputs = [session.graph.constant_tensor(&Tensor::vector(&[1i64, 2])), session.graph.constant_tensor(&texts)];
    let op = session.graph.op("TensorSliceDataset").inputs(&inputs).attr("Toutput_types", &dtypes[..]);
    let slices = op.attr("output_shapes", &shapes[..]).output();
    let iterator = iterator(&session.graph, &dtypes, &shapes);
    let next = iterator_get_next(&iterator, &dtypes, &shapes);
    let status = session.fetch(&next[0], &[]).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    session.run(&make_iterator(&slices, &iterator), &[]).unwrap();
    let outputs = session.run(&next[0].op, &[]).unwrap();
    assert_eq!(outputs[1].strings().unwrap()[0], "a");
    assert_eq!(outputs[0].dims(), SCALAR);

    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str, content: &[u8]| {
        let path = directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(&path, content).unwrap();
        Bytes::from(path)
    };
    let names = vec![path("l1", b"a\rb\r\nb\n"), path("l2", b"c\n")];
    let names = session.graph.constant_tensor(&Tensor::from_strings(Shape::vector(2), names).unwrap());
    let none = session.graph.constant_tensor(&Tensor::string(""));
    let lines = session.graph.op("TextLineDataset").input(&names).input(&none).input(&session.number(0)).output();
    let (dtypes, shapes) = ([DType::String], [PartialShape::scalar()]);
    let iterator = super::iterator(&session.graph, &dtypes, &shapes);
    let next = iterator_get_next(&iterator, &dtypes, &shapes).remove(0);
    session.run(&make_iterator(&lines, &iterator), &[]).unwrap();
    for expected in ["ab", "b", "c"] {
        assert_eq!(session.fetch(&next, &[]).unwrap().strings().unwrap()[0], expected);
    }
    let bytes: Vec<u8> = (0..20).collect();
    let name = session.graph.constant_tensor(&Tensor::string(path("f", &bytes)));
    let fixed = |footer: i64| {
        let op = session.graph.op("FixedLengthRecordDataset").input(&name).input(&session.number(2));
        op.input(&session.number(4)).input(&session.number(footer)).input(&session.number(0)).output()
    };
    session.run(&make_iterator(&fixed(2), &iterator), &[]).unwrap();
    for first in [2u8, 6, 10, 14] {
        assert_eq!(session.fetch(&next, &[]).unwrap().strings().unwrap()[0][0], first);
    }
    assert_eq!(session.fetch(&next, &[]).unwrap_err().code(), Code::OutOfRange);
    session.run(&make_iterator(&fixed(3), &iterator), &[]).unwrap();
    assert!(session.fetch(&next, &[]).unwrap_err().message().contains("has body length 15 bytes, which is not"));
}

#[test]
fn one_shot_iterators_and_strings() {
    let session = session();
    let (dtypes, shapes) = ([DType::Int64], [PartialShape::scalar()]);
    let op = session.graph.op("OneShotIterator").attr("dataset_factory", func("make_range"));
    let one_shot = op.attr("output_types", &dtypes[..]).attr("output_shapes", &shapes[..]).output();
    let next = iterator_get_next(&one_shot, &dtypes, &shapes).remove(0);
    assert_eq!(session.fetch(&next, &[]).unwrap().to_scalar::<i64>().unwrap(), 5);
    let text = session.graph.op("IteratorToStringHandle").input(&one_shot).output();
    let text = session.fetch(&text, &[]).unwrap();
    let fed = session.placeholder(DType::String);
    let same = session.graph.op("IteratorFromStringHandleV2").input(&fed).output();
    let next = iterator_get_next(&same, &dtypes, &shapes).remove(0);
    assert_eq!(session.fetch(&next, &[(&fed, text.clone())]).unwrap().to_scalar::<i64>().unwrap(), 6);
    assert_eq!(session.fetch(&next, &[(&fed, text)]).unwrap_err().code(), Code::OutOfRange);
    assert!(session.fetch(&next, &[(&fed, Tensor::string("nonsense"))]).is_err());
}

#[test]
fn optionals() {
    let session = session();
    let value = session.graph.op("OptionalFromValue").inputs(&[session.number(7)]).output();
    let none = session.graph.op("OptionalNone").output();
    let has = |optional: &Output| {
        let has = session.graph.op("OptionalHasValue").input(optional).output();
        session.fetch(&has, &[]).unwrap().to_scalar::<bool>().unwrap()
    };
    assert!(has(&value) && !has(&none));
    let get =
        |optional: &Output| session.fetch(&session.typed(session.graph.op("OptionalGetValue").input(optional)), &[]);
    assert_eq!(get(&value).unwrap().to_scalar::<i64>().unwrap(), 7);
    assert_eq!(get(&none).unwrap_err().message(), "The given optional does not have a value.");
}

#[test]
fn an_element_that_takes_a_while_holds_no_thread() {
    use std::sync::mpsc::channel;
    let (release, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let functions = Closures::default().with("slow", move |args| {
        // The test releases it; if the test failed before, it drops the sender, which ends this too.
        let _ = gate.lock().recv();
        Ok(args)
    });
    let mut session = TestSession::new();
    struct Threads;
    impl kernel::JobRunner for Threads {
        fn spawn(&self, job: Box<dyn FnOnce() + Send>) {
            std::thread::spawn(job);
        }
    }
    let mut step = Step::detached().for_function(CallFrame::default(), Some(Arc::new(functions)));
    step.runner = Arc::new(Threads);
    session.step = Arc::new(step);
    let op = session.graph.op("ParallelMapDatasetV2").input(&session.range(2)).inputs(&[]).input(&session.number(1));
    let mapped = session.typed(op.attr("f", func("slow")).attr("Targuments", &[][..] as &[DType]));
    let (dtypes, shapes) = ([DType::Int64], [PartialShape::unknown()]);
    let iterator = iterator(&session.graph, &dtypes, &shapes);
    session.run(&make_iterator(&mapped, &iterator), &[]).unwrap();
    let next = iterator_get_next(&iterator, &dtypes, &shapes).remove(0);
    let first = session.start(&next.op, &[]).unwrap();
    let second = session.start(&next.op, &[]).unwrap();
    assert!(waits(&first) && waits(&second));
    release.send(()).unwrap();
    assert_eq!(finished(&first).unwrap()[0].to_scalar::<i64>().unwrap(), 0);
    release.send(()).unwrap();
    assert_eq!(finished(&second).unwrap()[0].to_scalar::<i64>().unwrap(), 1);
}
