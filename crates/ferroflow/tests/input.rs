//! Input by queues: epochs, batches, the end of the input, and runners that run once only.

use ferroflow::input::*;
use ferroflow::train::{Coordinator, local_variables_initializer, meta_graph, start_queue_runners};
use ferroflow::{Code, DType, Graph, Output, PartialShape, Result, Session, Tensor};
use std::time::Duration;
use storage::file_system::{FileSystem, FileSystems};
use storage::record::{CompressionType, RecordWriter};

const GRACE: Duration = Duration::from_secs(60);

fn in_order(num_epochs: i64) -> InputOptions {
    InputOptions { num_epochs: Some(num_epochs), shuffle: false, ..Default::default() }
}

/// Runs the input to its end; returns what every step gave.
fn drain(graph: &Graph, outputs: &[&Output]) -> Result<Vec<Vec<Tensor>>> {
    let init = local_variables_initializer(graph);
    let session = Session::new(graph)?;
    session.run_ops(&[&init])?;
    let coordinator = Coordinator::new();
    start_queue_runners(&session, &coordinator)?;
    let mut steps = Vec::new();
    let end = loop {
        match session.run(outputs) {
            Ok(values) => steps.push(values),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::OutOfRange, "{end}");
    coordinator.request_stop(None);
    coordinator.join(GRACE)?;
    Ok(steps)
}

fn numbers(steps: &[Vec<Tensor>]) -> Vec<Vec<i32>> {
    steps.iter().map(|values| values[0].as_slice::<i32>().unwrap().to_vec()).collect()
}

#[test]
fn batches_over_epochs_and_a_smaller_last_one() -> Result<()> {
    let graph = Graph::new();
    let queue = range_input_producer(&graph, 4, &in_order(2));
    let number = queue.dequeue(&[DType::Int32]).output(0);
    let options = BatchOptions { batch_size: 3, allow_smaller_final_batch: true, ..Default::default() };
    let batches = batch(&[number], &options);
    assert_eq!(batches[0].shape(), PartialShape::from_dims(&[-1]));
    assert_eq!(numbers(&drain(&graph, &[&batches[0]])?), [vec![0, 1, 2], vec![3, 0, 1], vec![2, 3]]);
    Ok(())
}

#[test]
fn a_last_batch_that_is_too_small_is_left_out() -> Result<()> {
    let graph = Graph::new();
    let queue = range_input_producer(&graph, 7, &in_order(1));
    let number = queue.dequeue(&[DType::Int32]).output(0);
    let batches = batch(&[number], &BatchOptions { batch_size: 3, ..Default::default() });
    assert_eq!(batches[0].shape(), PartialShape::from_dims(&[3]));
    assert_eq!(numbers(&drain(&graph, &[&batches[0]])?), [[0, 1, 2], [3, 4, 5]]);
    Ok(())
}

#[test]
fn shuffled_batches_have_every_element_once_an_epoch() -> Result<()> {
    let graph = Graph::new();
    let options = InputOptions { num_epochs: Some(1), seed: Some(3), ..Default::default() };
    let queue = range_input_producer(&graph, 60, &options);
    let number = queue.dequeue(&[DType::Int32]).output(0);
    let options = BatchOptions { batch_size: 10, num_threads: 2, capacity: 30, ..Default::default() };
    let shuffle = ShuffleOptions { min_after_dequeue: 10, seed: Some(5) };
    let batches = shuffle_batch(&[number], &options, &shuffle);
    let mut all: Vec<i32> = numbers(&drain(&graph, &[&batches[0]])?).concat();
    assert_ne!(all, (0..60).collect::<Vec<_>>());
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn several_sources_are_joined_and_padded() -> Result<()> {
    let graph = Graph::new();
    let mut sources = Vec::new();
    for len in [1, 3] {
        let rows: Vec<i32> = vec![len; len as usize];
        let rows = graph.constant_tensor(&Tensor::vector(&rows));
        sources.push(vec![limit_epochs(&rows, Some(1))]);
    }
    let sources: Vec<&[Output]> = sources.iter().map(Vec::as_slice).collect();
    let options = BatchOptions { batch_size: 2, dynamic_pad: true, ..Default::default() };
    let batches = batch_join(&sources, &options);
    let steps = drain(&graph, &[&batches[0]])?;
    assert_eq!(steps.len(), 1);
    let mut rows: Vec<Vec<i32>> = steps[0][0].as_slice::<i32>()?.chunks(3).map(<[i32]>::to_vec).collect();
    rows.sort();
    assert_eq!(rows, [[1, 0, 0], [3, 3, 3]]);
    Ok(())
}

#[test]
fn runners_that_run_are_not_started_again() -> Result<()> {
    let graph = Graph::new();
    let queue = range_input_producer(&graph, 5, &InputOptions { shuffle: false, ..Default::default() });
    let number = queue.dequeue(&[DType::Int32]).output(0);
    let session = Session::new(&graph)?;
    let supervisor = Coordinator::new();
    start_queue_runners(&session, &supervisor)?;
    // A program that starts and stops the runners in every step, with a coordinator of its own, stops nothing.
    for step in 0..50 {
        let coordinator = Coordinator::new();
        start_queue_runners(&session, &coordinator)?;
        assert_eq!(session.eval::<i32>(&number)?, step % 5);
        coordinator.request_stop(None);
        coordinator.join(GRACE)?;
    }
    supervisor.request_stop(None);
    supervisor.join(GRACE)
}

#[test]
fn runners_are_part_of_the_meta_graph() -> Result<()> {
    let graph = Graph::new();
    let queue = range_input_producer(&graph, 3, &in_order(1));
    let number = queue.dequeue(&[DType::Int32]).output(0);
    local_variables_initializer(&graph);
    let meta = meta_graph::export_meta_graph(&graph, None);
    let copy = Graph::new();
    meta_graph::import_meta_graph(&copy, &meta)?;
    let number = copy.output(&number.name())?;
    let values: Vec<i32> = drain(&copy, &[&number])?.iter().map(|step| step[0].to_scalar().unwrap()).collect();
    assert_eq!(values, [0, 1, 2]);
    Ok(())
}

/// Reads all records of files with a reader; returns their contents.
fn read_all(names: &[&str], reader: impl Fn(&Graph) -> Reader) -> Result<Vec<String>> {
    let graph = Graph::new();
    let names = string_input_producer(&graph, names, &in_order(1));
    let (_, record) = reader(&graph).read(&names);
    let text = |values: &Vec<Tensor>| String::from_utf8_lossy(&values[0].strings().unwrap()[0]).into_owned();
    Ok(drain(&graph, &[&record])?.iter().map(text).collect())
}

#[test]
fn readers_of_files() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (file("a", b"head\none\ntwo\n"), file("b", b"head\nthree"));
    assert_eq!(read_all(&[&a, &b], |graph| Reader::text_line(graph, 1))?, ["one", "two", "three"]);
    assert_eq!(read_all(&[&b], Reader::whole_file)?, ["head\nthree"]);
    let fixed = file("c", b"HHabcdefF");
    assert_eq!(read_all(&[&fixed], |graph| Reader::fixed_length_record(graph, 3, 2, 1))?, ["abc", "def"]);
    Ok(())
}

#[test]
fn a_damaged_record_is_data_loss() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records").to_str().unwrap().to_owned();
    let mut writer = RecordWriter::new(FileSystems::local().create(&path)?, CompressionType::None);
    writer.write_record(b"whole")?;
    writer.write_record(b"damaged")?;
    writer.close()?;
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let graph = Graph::new();
    let names = string_input_producer(&graph, &[&path], &InputOptions { shuffle: false, ..Default::default() });
    let (_, record) = Reader::tf_record(&graph, Compression::None).read(&names);
    let session = Session::new(&graph)?;
    let coordinator = Coordinator::new();
    start_queue_runners(&session, &coordinator)?;
    assert_eq!(session.run(&[&record])?[0].strings()?[0], "whole");
    assert_eq!(session.run(&[&record]).unwrap_err().code(), Code::DataLoss);
    coordinator.request_stop(None);
    coordinator.join(GRACE)
}
