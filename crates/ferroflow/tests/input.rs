//! Input by queues: epochs, batches, the end of the input, and runners that run once only.

use ferroflow::input::*;
use ferroflow::train::{Coordinator, local_variables_initializer, start_queue_runners};
use ferroflow::{Code, DType, Graph, Output, PartialShape, Result, Session, Tensor};
use std::time::Duration;

const GRACE: Duration = Duration::from_secs(60);

fn in_order(num_epochs: i64) -> InputOptions {
    InputOptions { num_epochs: Some(num_epochs), shuffle: false, ..Default::default() }
}

/// Runs the input to its end; returns what every step gave.
fn drain(graph: &Graph, outputs: &[&Output]) -> Result<Vec<Vec<Tensor>>> {
    let init = local_variables_initializer(graph)?;
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
    let queue = range_input_producer(&graph, 4, &in_order(2))?;
    let number = queue.dequeue(&[DType::Int32])?.output(0);
    let options = BatchOptions { batch_size: 3, allow_smaller_final_batch: true, ..Default::default() };
    let batches = batch(&[number], &options)?;
    assert_eq!(batches[0].shape(), PartialShape::from_dims(&[-1]));
    assert_eq!(numbers(&drain(&graph, &[&batches[0]])?), [vec![0, 1, 2], vec![3, 0, 1], vec![2, 3]]);
    Ok(())
}

#[test]
fn a_last_batch_that_is_too_small_is_left_out() -> Result<()> {
    let graph = Graph::new();
    let queue = range_input_producer(&graph, 7, &in_order(1))?;
    let number = queue.dequeue(&[DType::Int32])?.output(0);
    let batches = batch(&[number], &BatchOptions { batch_size: 3, ..Default::default() })?;
    assert_eq!(batches[0].shape(), PartialShape::from_dims(&[3]));
    assert_eq!(numbers(&drain(&graph, &[&batches[0]])?), [[0, 1, 2], [3, 4, 5]]);
    Ok(())
}

#[test]
fn shuffled_batches_have_every_element_once_an_epoch() -> Result<()> {
    let graph = Graph::new();
    let options = InputOptions { num_epochs: Some(1), seed: Some(3), ..Default::default() };
    let queue = range_input_producer(&graph, 60, &options)?;
    let number = queue.dequeue(&[DType::Int32])?.output(0);
    let options = BatchOptions { batch_size: 10, num_threads: 2, capacity: 30, ..Default::default() };
    let shuffle = ShuffleOptions { min_after_dequeue: 10, seed: Some(5) };
    let batches = shuffle_batch(&[number], &options, &shuffle)?;
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
        sources.push(vec![limit_epochs(&rows, Some(1))?]);
    }
    let sources: Vec<&[Output]> = sources.iter().map(Vec::as_slice).collect();
    let options = BatchOptions { batch_size: 2, dynamic_pad: true, ..Default::default() };
    let batches = batch_join(&sources, &options)?;
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
    let queue = range_input_producer(&graph, 5, &InputOptions { shuffle: false, ..Default::default() })?;
    let number = queue.dequeue(&[DType::Int32])?.output(0);
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
fn mistakes_are_named() -> Result<()> {
    let graph = Graph::new();
    assert!(string_input_producer(&graph, &[], &InputOptions::default()).is_err());
    let one = graph.constant_tensor(&Tensor::scalar(1f32));
    assert!(input_producer(&one, &InputOptions::default()).is_err());
    assert!(limit_epochs(&one, Some(0)).is_err());
    assert!(batch(&[], &BatchOptions::default()).is_err());
    let unknown = ferroflow::ops::array::placeholder(&graph, DType::Float, &PartialShape::from_dims(&[-1]));
    let status = batch(&[unknown], &BatchOptions::default()).unwrap_err();
    assert!(status.message().contains("fully defined"), "{status}");
    Ok(())
}
