//! Datasets of the library: Rust iterators, what is wrong with a pipeline, and positions that go on. What pipelines draw is compared
//! with tf.data in `tests/interop/test_rust_datasets.py`.

use ferroflow::data::{Dataset, DatasetIterator, PaddedBatch};
use ferroflow::distributed::create_local_server;
use ferroflow::prelude::*;
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
    assert!(found.message().contains("'Placeholder' (op Placeholder): make an initializable one"), "{found}");
}
