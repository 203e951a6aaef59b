//! Tests of queues: order, batches, waiting, closing, cancelling, and TensorFlow's error messages.

use super::*;
use crate::testing::{TestSession, finished, waits};
use tensor::Code;

fn spec<'a>(capacity: i64, dtypes: &'a [DType], shapes: &'a [PartialShape]) -> QueueSpec<'a> {
    QueueSpec { capacity, dtypes, shapes, shared_name: "" }
}

/// A queue of scalars with the ops that tests use.
struct Scalars {
    session: TestSession,
    value: Output,
    count: Output,
    queue: Output,
    enqueue: Operation,
    enqueue_many: Operation,
    dequeue: Operation,
    dequeue_many: Operation,
    dequeue_up_to: Operation,
    close: Operation,
}

impl Scalars {
    fn new(make: impl FnOnce(&Graph, &QueueSpec<'_>) -> Output, capacity: i64) -> Scalars {
        let session = TestSession::new();
        let dtypes = [DType::Int32];
        let queue = make(&session.graph, &spec(capacity, &dtypes, &[PartialShape::scalar()]));
        let (value, count) = (session.placeholder(DType::Int32), session.placeholder(DType::Int32));
        Scalars {
            enqueue: queue_enqueue(&queue, std::slice::from_ref(&value)),
            enqueue_many: queue_enqueue_many(&queue, std::slice::from_ref(&value)),
            dequeue: queue_dequeue(&queue, &dtypes)[0].op.clone(),
            dequeue_many: queue_dequeue_many(&queue, &count, &dtypes)[0].op.clone(),
            dequeue_up_to: queue_dequeue_up_to(&queue, &count, &dtypes)[0].op.clone(),
            close: queue_close(&queue, false),
            session,
            value,
            count,
            queue,
        }
    }

    fn put(&self, values: &[i32]) {
        self.session.run(&self.enqueue_many, &[(&self.value, Tensor::vector(values))]).unwrap();
    }

    fn take(&self, count: i32) -> Result<Vec<i32>> {
        let result = self.session.run(&self.dequeue_many, &[(&self.count, Tensor::scalar(count))])?;
        Ok(result[0].as_slice::<i32>()?.to_vec())
    }

    fn take_one(&self) -> Result<i32> {
        self.session.run(&self.dequeue, &[])?[0].to_scalar()
    }

    fn len(&self) -> i32 {
        self.session.fetch(&queue_size(&self.queue), &[]).unwrap().to_scalar().unwrap()
    }
}

#[test]
fn elements_come_out_as_they_went_in() {
    let queue = Scalars::new(fifo_queue, 10);
    queue.put(&[1, 2, 3, 4]);
    assert_eq!(queue.take_one().unwrap(), 1);
    assert_eq!(queue.take(2).unwrap(), [2, 3]);
    assert_eq!(queue.len(), 1);
    assert!(queue.take(0).unwrap().is_empty());
    assert_eq!(queue.dequeue_many.output(0).shape().to_string(), "[?]");
}

#[test]
fn who_finds_no_element_waits() {
    let queue = Scalars::new(fifo_queue, 10);
    let feeds = [(&queue.count, Tensor::scalar(3i32))];
    let first = queue.session.start(&queue.dequeue_many, &feeds).unwrap();
    let second = queue.session.start(&queue.dequeue, &[]).unwrap();
    queue.put(&[1, 2]);
    assert!(waits(&first) && waits(&second), "the one in front has not enough");
    assert_eq!(queue.len(), 0, "it has taken what there was");
    queue.put(&[3, 4]);
    assert_eq!(finished(&first).unwrap()[0].as_slice::<i32>().unwrap(), &[1, 2, 3]);
    assert_eq!(finished(&second).unwrap()[0].to_scalar::<i32>().unwrap(), 4);
}

#[test]
fn who_finds_no_room_waits_and_batches_may_exceed_the_capacity() {
    let queue = Scalars::new(fifo_queue, 2);
    let feeds = [(&queue.value, Tensor::vector(&[1i32, 2, 3, 4, 5]))];
    let batch = queue.session.start(&queue.enqueue_many, &feeds).unwrap();
    assert!(waits(&batch));
    assert_eq!(queue.len(), 2);
    let behind = queue.session.start(&queue.enqueue, &[(&queue.value, Tensor::scalar(6i32))]).unwrap();
    assert_eq!(queue.take(4).unwrap(), [1, 2, 3, 4]);
    finished(&batch).unwrap();
    finished(&behind).unwrap();
    assert_eq!(queue.take(2).unwrap(), [5, 6]);
}

#[test]
fn a_closed_queue_gives_what_it_has() {
    let queue = Scalars::new(fifo_queue, 10);
    queue.put(&[1, 2, 3]);
    let feeds = [(&queue.count, Tensor::scalar(5i32))];
    let many = queue.session.start(&queue.dequeue_many, &feeds).unwrap();
    assert_eq!(queue.len(), 0);
    queue.session.run(&queue.close, &[]).unwrap();
    let status = finished(&many).unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    let text = "is closed and has insufficient elements (requested 2, current size 0)";
    assert!(status.message().starts_with("FIFOQueue '_") && status.message().ends_with(text), "{status}");
    let up_to = queue.session.run(&queue.dequeue_up_to, &feeds).unwrap();
    assert_eq!(up_to[0].as_slice::<i32>().unwrap(), &[1, 2, 3], "what a failed dequeue took came back");
    assert_eq!(queue.session.run(&queue.dequeue_up_to, &feeds).unwrap_err().code(), Code::OutOfRange);
    assert_eq!(queue.take_one().unwrap_err().code(), Code::OutOfRange);
    let enqueue = queue.session.run(&queue.enqueue, &[(&queue.value, Tensor::scalar(1i32))]).unwrap_err();
    assert_eq!(enqueue.code(), Code::Cancelled);
    assert!(enqueue.message().ends_with("' is closed."), "{enqueue}");
    let again = queue.session.run(&queue.close, &[]).unwrap_err();
    assert!(again.message().ends_with("' is already closed."), "{again}");
    assert!(queue.session.fetch(&queue_is_closed(&queue.queue), &[]).unwrap().to_scalar::<bool>().unwrap());
}

#[test]
fn closing_waits_for_enqueues_or_cancels_them() {
    let queue = Scalars::new(fifo_queue, 1);
    queue.put(&[1]);
    let feeds = [(&queue.value, Tensor::scalar(2i32))];
    let enqueue = queue.session.start(&queue.enqueue, &feeds).unwrap();
    let close = queue.session.start(&queue.close, &[]).unwrap();
    let late = queue.session.start(&queue.enqueue, &feeds).unwrap();
    assert!(waits(&enqueue) && waits(&close) && waits(&late));
    assert_eq!(queue.take_one().unwrap(), 1);
    finished(&enqueue).unwrap();
    finished(&close).unwrap();
    assert_eq!(finished(&late).unwrap_err().code(), Code::Cancelled);
    assert_eq!(queue.take_one().unwrap(), 2);

    let queue = Scalars::new(fifo_queue, 1);
    queue.put(&[1]);
    let enqueue = queue.session.start(&queue.enqueue, &[(&queue.value, Tensor::scalar(2i32))]).unwrap();
    queue.session.run(&queue_close(&queue.queue, true), &[]).unwrap();
    assert_eq!(finished(&enqueue).unwrap_err().message(), "Enqueue operation was cancelled");
    assert_eq!(queue.take_one().unwrap(), 1);
}

#[test]
fn a_cancelled_step_leaves_the_line_and_loses_nothing() {
    let queue = Scalars::new(fifo_queue, 10);
    let other = queue.session.another_step();
    let feeds = [(&queue.count, Tensor::scalar(3i32))];
    let many = other.start(&queue.dequeue_many, &feeds).unwrap();
    let behind = queue.session.start(&queue.dequeue, &[]).unwrap();
    queue.put(&[1, 2]);
    assert!(waits(&many) && waits(&behind));
    other.step.cancellation.cancel(Status::cancelled("stop"));
    assert_eq!(finished(&many).unwrap_err().message(), "Dequeue operation was cancelled");
    assert_eq!(finished(&behind).unwrap()[0].to_scalar::<i32>().unwrap(), 1);
    assert_eq!(queue.take_one().unwrap(), 2);
    let status = finished(&other.start(&queue.dequeue, &[]).unwrap()).unwrap_err();
    assert_eq!(status.code(), Code::Cancelled, "a step that is cancelled already can't wait");
}

#[test]
fn shuffled_as_tensorflow_shuffles() {
    let make = |graph: &Graph, spec: &QueueSpec<'_>| random_shuffle_queue(graph, spec, 0, Some(7));
    let queue = Scalars::new(make, 100);
    queue.put(&(0..20).collect::<Vec<i32>>());
    assert_eq!(queue.take(5).unwrap(), [7, 4, 19, 15, 0]);
    assert_eq!(queue.take_one().unwrap(), 8);
    assert_eq!(queue.take(14).unwrap(), [10, 11, 14, 6, 16, 1, 12, 3, 17, 5, 2, 18, 13, 9]);
}

#[test]
fn some_stay_behind_until_the_queue_is_closed() {
    let make = |graph: &Graph, spec: &QueueSpec<'_>| random_shuffle_queue(graph, spec, 2, None);
    let queue = Scalars::new(make, 10);
    queue.put(&[1, 2, 3]);
    queue.take_one().unwrap();
    let waiting = queue.session.start(&queue.dequeue, &[]).unwrap();
    assert!(waits(&waiting));
    queue.session.run(&queue.close, &[]).unwrap();
    finished(&waiting).unwrap();
    queue.take_one().unwrap();
    let status = queue.take_one().unwrap_err();
    assert!(status.message().starts_with("RandomShuffleQueue '"), "{status}");
}

#[test]
fn elements_of_different_size_are_padded() {
    let session = TestSession::new();
    let dtypes = [DType::Int32];
    let queue = padding_fifo_queue(&session.graph, &spec(10, &dtypes, &[PartialShape::from_dims(&[-1])]));
    let value = session.placeholder(DType::Int32);
    let enqueue = queue_enqueue(&queue, std::slice::from_ref(&value));
    session.run(&enqueue, &[(&value, Tensor::vector(&[1i32, 2]))]).unwrap();
    session.run(&enqueue, &[(&value, Tensor::vector(&[3i32]))]).unwrap();
    let wrong = Tensor::from_slice(&[1, 1], &[1i32]).unwrap();
    let status = session.run(&enqueue, &[(&value, wrong)]).unwrap_err();
    assert_eq!(status.message(), "Shape mismatch in tuple component 0. Expected [?], got [1,1]");
    let count = session.placeholder(DType::Int32);
    let many = queue_dequeue_many(&queue, &count, &dtypes).remove(0);
    let batch = session.fetch(&many, &[(&count, Tensor::scalar(2i32))]).unwrap();
    assert_eq!((batch.dims(), batch.as_slice::<i32>().unwrap()), (&[2i64, 2][..], &[1, 2, 3, 0][..]));
}

#[test]
fn lower_priorities_come_first() {
    let session = TestSession::new();
    let queue = priority_queue(&session.graph, &spec(10, &[DType::String], &[PartialShape::scalar()]));
    let (priority, text) = (session.placeholder(DType::Int64), session.placeholder(DType::String));
    let enqueue = queue_enqueue_many(&queue, &[priority.clone(), text.clone()]);
    let words: Vec<_> = ["a", "b", "c", "d"].iter().map(|word| bytes::Bytes::from(*word)).collect();
    let words = Tensor::from_strings(tensor::Shape::vector(4), words).unwrap();
    session.run(&enqueue, &[(&priority, Tensor::vector(&[3i64, 1, 2, 1])), (&text, words)]).unwrap();
    let count = session.placeholder(DType::Int32);
    let many = queue_dequeue_many(&queue, &count, &[DType::Int64, DType::String]);
    let batch = session.run(&many[0].op, &[(&count, Tensor::scalar(4i32))]).unwrap();
    assert_eq!(batch[0].as_slice::<i64>().unwrap(), &[1, 1, 2, 3]);
    assert_eq!(batch[1].strings().unwrap(), ["b", "d", "c", "a"]);
}

#[test]
fn the_first_version_takes_strings() {
    let session = TestSession::new();
    let queue = session.graph.op("FIFOQueue").attr("component_types", &[DType::Float][..]).output();
    let value = session.placeholder(DType::Float);
    let enqueue = session.graph.op("QueueEnqueue").input(&queue).input(&value).build();
    session.run(&enqueue, &[(&value, Tensor::scalar(1f32))]).unwrap();
    let size = session.graph.op("QueueSize").input(&queue).output();
    assert_eq!(session.fetch(&size, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
    let dequeue = session.graph.op("QueueDequeue").input(&queue).attr("component_types", &[DType::Float][..]);
    assert_eq!(session.fetch(&dequeue.output(), &[]).unwrap().to_scalar::<f32>().unwrap(), 1.0);
    assert_eq!(queue.shape().to_string(), "[2]");
}

#[test]
fn what_does_not_fit_is_an_error() {
    let session = TestSession::new();
    let shapes = [PartialShape::from_dims(&[2]), PartialShape::scalar()];
    let queue = fifo_queue(&session.graph, &spec(3, &[DType::Float, DType::Int32], &shapes));
    let (a, b) = (session.placeholder(DType::Float), session.placeholder(DType::Int32));
    let message = |op: &Operation, a_value: Tensor, b_value: Tensor| {
        session.run(op, &[(&a, a_value), (&b, b_value)]).unwrap_err().message().to_owned()
    };
    let one = queue_enqueue(&queue, &[a.clone(), b.clone()]);
    let many = queue_enqueue_many(&queue, &[a.clone(), b.clone()]);
    assert_eq!(
        message(&one, Tensor::vector(&[1f32, 2.0, 3.0]), Tensor::scalar(1i32)),
        "Shape mismatch in tuple component 0. Expected [2], got [3]"
    );
    let row = || Tensor::from_slice(&[1, 2], &[1f32, 2.0]).unwrap();
    assert_eq!(
        message(&many, row(), Tensor::vector(&[1i32, 2])),
        "Shape mismatch in tuple component 1. Expected [1], got [2]"
    );
    assert!(message(&many, Tensor::scalar(1f32), Tensor::vector(&[1i32])).contains("at least one dimension"));
    assert_eq!(
        message(&queue_enqueue(&queue, std::slice::from_ref(&a)), row(), Tensor::scalar(0i32)),
        "Signature mismatch, have: resource, float-> expected: resource, float, int32->"
    );
    let wrong = queue_dequeue(&queue, &[DType::Int32]).remove(0);
    assert_eq!(
        session.fetch(&wrong, &[]).unwrap_err().message(),
        "Signature mismatch, have: resource->int32 expected: resource->float, int32"
    );
    let count = session.placeholder(DType::Int32);
    let negative = queue_dequeue_many(&queue, &count, &[DType::Float, DType::Int32]).remove(0);
    let status = session.fetch(&negative, &[(&count, Tensor::scalar(-1i32))]).unwrap_err();
    assert_eq!(status.message(), "DequeueManyOp requested -1 < 0 elements");
    let loose = fifo_queue(&session.graph, &spec(3, &[DType::Float], &[]));
    let many = queue_dequeue_many(&loose, &count, &[DType::Float]).remove(0);
    assert_eq!(
        session.fetch(&many, &[(&count, Tensor::scalar(1i32))]).unwrap_err().message(),
        "FIFOQueue's DequeueMany and DequeueUpTo require the components to have specified shapes."
    );
}

#[test]
fn a_shared_name_stands_for_one_queue() {
    let session = TestSession::new();
    let (float, int) = ([DType::Float], [DType::Int32]);
    let base = QueueSpec { capacity: 3, dtypes: &float, shapes: &[], shared_name: "shared" };
    let size = |queue: Output| session.fetch(&queue_size(&queue), &[]).map(|_| ());
    let message = |queue: Output| size(queue).unwrap_err().message().to_owned();
    size(fifo_queue(&session.graph, &base)).unwrap();
    size(fifo_queue(&session.graph, &base)).unwrap();
    assert_eq!(
        message(fifo_queue(&session.graph, &QueueSpec { dtypes: &int, ..base.clone() })),
        "Shared queue 'shared' has component types float but requested component types were int32"
    );
    assert_eq!(
        message(fifo_queue(&session.graph, &QueueSpec { capacity: 4, ..base.clone() })),
        "Shared queue 'shared' has capacity 3 but requested capacity was 4"
    );
    let shapes = [PartialShape::from_dims(&[2])];
    assert_eq!(
        message(fifo_queue(&session.graph, &QueueSpec { shapes: &shapes, ..base.clone() })),
        "Shared queue 'shared' has component shapes [] but requested component shapes were [[2]]"
    );
    assert_eq!(
        message(random_shuffle_queue(&session.graph, &base, 0, None)),
        "Expected FIFOQueue, found RandomShuffleQueueV2"
    );
    assert_eq!(
        message(fifo_queue(&session.graph, &QueueSpec { shared_name: "_bad", ..base })),
        "shared_name cannot start with '_':_bad"
    );
}

#[test]
fn a_private_queue_goes_with_its_session() {
    let queue = Scalars::new(fifo_queue, 3);
    queue.put(&[1]);
    let resources = queue.session.step.resources.clone();
    assert_eq!(resources.list().len(), 1);
    drop(queue);
    assert!(resources.list().is_empty());
}
