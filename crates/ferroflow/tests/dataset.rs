//! Datasets of the library: Rust iterators, what is wrong with a pipeline, and positions that go on. What pipelines draw is compared
//! with tf.data in `tests/interop/test_rust_datasets.py`.

use ferroflow::data::{Dataset, DatasetIterator, PaddedBatch};
use ferroflow::distributed::create_local_server;
use ferroflow::prelude::*;
use ferroflow::train::{Saver, global_variables_initializer};
use ferroflow::{Code, Result};

/// Draws all elements' first components.
fn drawn(session: &Session, next: &Output) -> Result<Vec<Vec<i64>>> {
    let mut all = Vec::new();
    loop {
        match session.run(&[next]) {
            Ok(values) => all.push(values[0].to_vec::<i64>()?),
            Err(status) if status.code() == Code::OutOfRange => return Ok(all),
            Err(status) => return Err(status),
        }
    }
}

fn start(session: &Session, iterator: &DatasetIterator) -> Result<()> {
    session.run_ops(&[iterator.initializer().unwrap()])
}

fn mistake(build: impl FnOnce(&Graph) -> Dataset) -> String {
    let g = Graph::new();
    let dataset = build(&g);
    let _ = dataset.make_initializable_iterator().get_next();
    Session::new(dataset.graph()).err().expect("no mistake").message().to_owned()
}

#[test]
fn a_rust_iterator_is_drawn_from_its_beginning_each_time() {
    let g = Graph::new();
    let numbers = Dataset::from_iter(&g, (1..).map(|number: i64| number * number).take(5));
    let iterator = numbers.map(|x| &x[0] + 1).repeat(2).batch(4, false).make_initializable_iterator();
    let next = iterator.get_next();
    let session = Session::new(&g).unwrap();
    for _ in 0..2 {
        start(&session, &iterator).unwrap();
        assert_eq!(drawn(&session, &next[0]).unwrap(), [vec![2, 5, 10, 17], vec![26, 2, 5, 10], vec![17, 26]]);
    }
}

#[test]
fn a_dataset_ends_at_the_first_element_that_is_not_wanted() {
    let g = Graph::new();
    let next = Dataset::range(&g, 9).take_while(|x| x[0].less(3)).make_one_shot_iterator().get_next();
    assert_eq!(drawn(&Session::new(&g).unwrap(), &next[0]).unwrap(), [[0], [1], [2]]);
}

#[test]
fn a_rust_iterator_may_have_several_components() {
    let g = Graph::new();
    let pairs = Dataset::from_iter(&g, vec![(1i64, "one"), (2, "two")]);
    assert_eq!(pairs.types(), [DType::Int64, DType::String]);
    let iterator = pairs.make_initializable_iterator();
    let next = iterator.get_next();
    let session = Session::new(&g).unwrap();
    start(&session, &iterator).unwrap();
    session.run(&[&next[0]]).unwrap();
    let second = session.run(&[&next[0], &next[1]]).unwrap();
    assert_eq!((second[0].to_vec::<i64>().unwrap(), &second[1].strings().unwrap()[0][..]), (vec![2], &b"two"[..]));
}

#[test]
fn elements_that_are_not_like_the_first_are_named() {
    let g = Graph::new();
    let iterator = Dataset::from_iter(&g, vec![vec![1i64, 2], vec![3]]).make_initializable_iterator();
    let next = iterator.get_next();
    let session = Session::new(&g).unwrap();
    start(&session, &iterator).unwrap();
    session.run(&[&next[0]]).unwrap();
    let status = session.run(&[&next[0]]).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().contains("the iterator's first element is int64 [2], and a later one int64 [1]"),
        "{status}"
    );
    assert!(mistake(|g| Dataset::from_iter(g, Vec::<i64>::new())).contains("an iterator without elements"));
}

#[test]
fn a_pipeline_runs_on_a_server() {
    let g = Graph::new();
    let squares = Dataset::range(&g, 6).map(|x| x[0].square()).filter(|x| x[0].greater(3)).batch(2, true);
    let next = squares.make_one_shot_iterator().get_next();
    assert_eq!(next[0].shape().dim(0), Some(2));
    let server = create_local_server().unwrap();
    let session = Session::connect(&g, &server.target()).unwrap();
    assert_eq!(drawn(&session, &next[0]).unwrap(), [vec![4, 9], vec![16, 25]]);
}

#[test]
fn an_iterator_can_be_given_another_dataset() {
    let g = Graph::new();
    let (train, test) = (Dataset::range(&g, 2), Dataset::range_by(&g, 10, 12, 1));
    let iterator = train.make_initializable_iterator();
    let (next, to_test) = (iterator.get_next(), iterator.make_initializer(&test));
    let session = Session::new(&g).unwrap();
    start(&session, &iterator).unwrap();
    assert_eq!(drawn(&session, &next[0]).unwrap(), [[0], [1]]);
    session.run_ops(&[&to_test]).unwrap();
    assert_eq!(drawn(&session, &next[0]).unwrap(), [[10], [11]]);
}

#[test]
fn functions_of_rust_run_in_order_also_several_at_once() {
    let g = Graph::new();
    let number = [(DType::Int64, PartialShape::scalar())];
    let is_odd = |element: &[Tensor]| Ok(element[0].to_scalar::<i64>()? % 2 == 1);
    let square = |element: &[Tensor]| {
        let number: i64 = element[0].to_scalar()?;
        Ok(number * number)
    };
    let one_by_one = Dataset::range(&g, 8).filter_fn(is_odd).map_fn(&number, square).batch(8, false);
    let at_once = Dataset::range(&g, 40).parallel_map_fn(4, &number, square).batch(40, true);
    let (one_by_one, at_once) = (one_by_one.make_one_shot_iterator(), at_once.make_one_shot_iterator());
    let (one_by_one, at_once) = (one_by_one.get_next(), at_once.get_next());
    assert_eq!(at_once[0].shape(), [40].into());
    let session = Session::new(&g).unwrap();
    assert_eq!(drawn(&session, &one_by_one[0]).unwrap(), [[1, 9, 25, 49]]);
    let squares: Vec<i64> = (0..40).map(|number| number * number).collect();
    assert_eq!(drawn(&session, &at_once[0]).unwrap(), [squares]);
}

#[test]
fn what_a_function_of_rust_does_wrong_is_an_error() {
    let drawn_of = |build: &dyn Fn(&Dataset) -> Dataset| {
        let g = Graph::new();
        let next = build(&Dataset::range(&g, 3)).make_one_shot_iterator().get_next();
        Session::new(&g).and_then(|session| session.run(&[&next[0]])).unwrap_err().message().to_owned()
    };
    let number = || [(DType::Int64, PartialShape::scalar())];
    let none = |_: &[Tensor]| Err::<i64, _>(Status::data_loss("nothing is left"));
    assert!(drawn_of(&move |numbers| numbers.map_fn(&number(), none)).contains("nothing is left"));
    let other = drawn_of(&move |numbers| numbers.map_fn(&number(), |_| Ok(1f32)));
    assert!(other.contains("returned float [], but it declared int64 []"), "{other}");
    let panics = drawn_of(&move |numbers| numbers.filter_fn(|element| panic!("{} elements", element.len())));
    assert!(panics.contains("the function of a dataset panicked: 1 elements"), "{panics}");
    assert!(mistake(|g| Dataset::range(g, 3).map_fn(&[], |_| Ok(1i64))).contains("a function with 0 results"));
    for count in [0, 257] {
        let at_once = mistake(|g| Dataset::range(g, 3).parallel_map_fn(count, &number(), |_| Ok(1i64)));
        assert!(at_once.contains(&format!("in {count} calls at once")), "{at_once}");
    }
}

#[test]
fn positions_are_saved_and_restored_with_the_variables() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("model").to_str().unwrap().to_owned();
    let g = Graph::new();
    Variable::new(&g, "w", &g.constant(1f32));
    let square = |element: &[Tensor]| Ok(element[0].to_scalar::<i64>()? + 100);
    let shuffled = Dataset::range(&g, 50).shuffle(20, Some(3), true);
    let pipeline = shuffled.map_fn(&[(DType::Int64, PartialShape::scalar())], square).batch(5, true).prefetch(2);
    // One that a program starts, and one that starts by itself.
    let started = pipeline.make_initializable_iterator();
    let once = Dataset::range(&g, 50).batch(5, true).make_one_shot_iterator();
    for iterator in [&started, &once, &once] {
        iterator.make_saveable();
    }
    let next = [started.get_next().remove(0), once.get_next().remove(0)];
    let saver = Saver::new(&g).unwrap();
    let session = Session::new(&g).unwrap();
    session.run_ops(&[&global_variables_initializer(&g), started.initializer().unwrap()]).unwrap();
    for _ in 0..3 {
        session.run(&[&next[0], &next[1]]).unwrap();
    }
    let path = saver.save(&session, &prefix, None).unwrap();

    let later = Session::new(&g).unwrap();
    later.run_ops(&[started.initializer().unwrap()]).unwrap();
    saver.restore(&later, &path).unwrap();
    for output in &next {
        assert_eq!(drawn(&later, output).unwrap(), drawn(&session, output).unwrap());
        assert!(drawn(&later, output).unwrap().is_empty());
    }
}

#[test]
fn what_is_wrong_with_a_pipeline_is_said() {
    for (build, part) in [
        (
            (|g| Dataset::range(g, 3).filter(|x| &x[0] + 1)) as fn(&Graph) -> Dataset,
            "the function of a filter returns [int64]",
        ),
        (|g| Dataset::range(g, 3).concatenate(&Dataset::from_tensors(g, 1f32)), "don't go behind"),
        (|g| Dataset::range(g, 3).map(|x| x[0].matmul(&x[0])), "MatMul"),
        (|g| Dataset::range(g, 3).parse_example(&[]), "examples are one component of type string"),
        (
            |g| Dataset::range(g, 3).bucket_by_length(&[1], &[1], &PaddedBatch::default(), |x| x[0].clone()),
            "1 batch sizes for 1",
        ),
        (|_| Dataset::zip(&[]), "there are no datasets to zip"),
    ] {
        let found = mistake(build);
        assert!(found.contains(part), "'{part}' is not in: {found}");
    }
    let g = Graph::new();
    let outside = g.constant(1i64);
    let _ = Dataset::range(&g, 3).map(|x| &x[0] + &outside);
    assert!(g.finish().unwrap_err().message().contains("belongs to another graph"));
    let g = Graph::new();
    let fed = g.placeholder::<i64>([-1]);
    let _ = Dataset::from_tensor_slices_of(&[fed]).make_one_shot_iterator();
    let found = g.finish().unwrap_err();
    assert!(
        found
            .message()
            .contains("'Placeholder' (op Placeholder), which has state or is fed: use an initializable iterator"),
        "{found}"
    );
}
