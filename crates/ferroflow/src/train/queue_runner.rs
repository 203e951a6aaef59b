//! [`QueueRunner`]: threads that keep a queue filled.

use super::Coordinator;
use crate::session::Session;
use graph::{Graph, NodeId, Operation, Output};
use parking_lot::Mutex;
use proto::QueueRunnerDef;
use std::collections::HashSet;
use std::sync::Arc;
use tensor::{Code, Result};

/// Fills a queue by running enqueue operations, each on its own thread.
///
/// ```
/// use ferroflow::input::{InputOptions, range_input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, QueueRunner};
///
/// let g = Graph::new();
/// let queue = range_input_producer(&g, 3, &InputOptions::default());
/// let more = queue.enqueue(&[g.constant(7i32)]);
/// let runner = QueueRunner::new(queue.handle(), &[more]);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// runner.create_threads(&session, &coordinator)?;
/// assert_eq!(session.eval::<i32>(&queue.dequeue(&[DType::Int32]).output(0))?, 7);
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueueRunner {
    name: String,
    enqueue: Vec<String>,
    close: String,
    cancel: String,
}

/// The queue runners of a graph, and which of them are running.
#[derive(Default)]
struct Runners {
    all: Mutex<Vec<QueueRunner>>,
    /// The running ones, by session.
    running: Arc<Mutex<HashSet<(usize, String)>>>,
}

impl QueueRunner {
    /// Adds the operations that close the queue, and returns a runner of the enqueue operations.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::train::{QueueRunner, add_queue_runner};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// // Two threads enqueue.
    /// let more = queue.enqueue(&[g.constant(7i32)]);
    /// add_queue_runner(&g, QueueRunner::new(queue.handle(), &[more.clone(), more]));
    /// ```
    #[track_caller]
    pub fn new(queue: &Output, enqueue: &[Operation]) -> QueueRunner {
        let graph = queue.graph();
        let name = queue.op.name();
        let op = if queue.is_ref() { "QueueClose" } else { "QueueCloseV2" };
        let close = || graph.op(op).input(queue).name(&format!("{name}_Close"));
        let close_op = close().attr("cancel_pending_enqueues", false).build();
        let cancel_op = close().attr("cancel_pending_enqueues", true).build();
        QueueRunner {
            enqueue: enqueue.iter().map(Operation::name).collect(),
            close: close_op.name(),
            cancel: cancel_op.name(),
            name,
        }
    }

    /// Returns the name of the queue.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::train::QueueRunner;
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// assert_eq!(QueueRunner::new(queue.handle(), &[]).name(), queue.handle().op.name());
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts the threads. The queue is closed when all of them have reached the end of their input; when the coordinator stops,
    /// pending operations are cancelled. A runner that is running already starts nothing.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::train::{Coordinator, QueueRunner};
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// let runner = QueueRunner::new(queue.handle(), &[queue.enqueue(&[g.constant(7i32)])]);
    /// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
    /// runner.create_threads(&session, &coordinator)?;
    /// coordinator.request_stop(None);
    /// coordinator.join(std::time::Duration::from_secs(10))?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn create_threads(&self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let running = session.graph().extension::<Runners>().running.clone();
        if !running.lock().insert((session.id(), self.name.clone())) {
            return Ok(());
        }
        let left = Arc::new(Mutex::new(self.enqueue.len()));
        for enqueue in &self.enqueue {
            let (runner, session, left) = (self.clone(), session.clone(), left.clone());
            let (enqueue, running) = (enqueue.clone(), running.clone());
            coordinator.spawn_daemon(&format!("fill {}", self.name), move |coordinator| {
                let result = runner.fill(&session, coordinator, &enqueue);
                let mut left = left.lock();
                *left -= 1;
                if *left == 0 {
                    running.lock().remove(&(session.id(), runner.name.clone()));
                    if result.is_ok() {
                        // Consumers dequeue the remaining elements, then reach the end.
                        let _ = session.runner().target_name(&runner.close).run();
                    }
                }
                result
            })?;
        }
        let (runner, session) = (self.clone(), session.clone());
        coordinator.spawn_daemon(&format!("cancel {}", self.name), move |coordinator| {
            coordinator.wait_for_stop(None);
            let _ = session.runner().target_name(&runner.cancel).run();
            Ok(())
        })
    }

    fn fill(&self, session: &Session, coordinator: &Coordinator, enqueue: &str) -> Result<()> {
        while !coordinator.should_stop() {
            match session.runner().target_name(enqueue).run() {
                Ok(_) => {}
                // The end of the input, or a closed queue.
                Err(status) if matches!(status.code(), Code::OutOfRange | Code::Cancelled) => break,
                Err(_) if coordinator.should_stop() => break,
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }
}

impl QueueRunner {
    /// Returns the runner's definition for a MetaGraph.
    pub(super) fn to_def(&self) -> QueueRunnerDef {
        QueueRunnerDef {
            queue_name: self.name.clone(),
            enqueue_op_name: self.enqueue.clone(),
            close_op_name: self.close.clone(),
            cancel_op_name: self.cancel.clone(),
            queue_closed_exception_types: vec![Code::OutOfRange as i32],
        }
    }

    /// Returns a runner of existing operations.
    pub(super) fn from_def(def: QueueRunnerDef) -> QueueRunner {
        QueueRunner {
            name: def.queue_name,
            enqueue: def.enqueue_op_name,
            close: def.close_op_name,
            cancel: def.cancel_op_name,
        }
    }
}

/// Returns the runners of a graph.
pub(super) fn queue_runners(graph: &Graph) -> Vec<QueueRunner> {
    graph.extension::<Runners>().all.lock().clone()
}

/// Adds a runner to those that [`start_queue_runners`] starts.
///
/// ```
/// use ferroflow::Graph;
/// use ferroflow::input::{InputOptions, range_input_producer};
/// use ferroflow::train::{QueueRunner, add_queue_runner};
///
/// let g = Graph::new();
/// let queue = range_input_producer(&g, 3, &InputOptions::default());
/// add_queue_runner(&g, QueueRunner::new(queue.handle(), &[queue.enqueue(&[g.constant(7i32)])]));
/// ```
pub fn add_queue_runner(graph: &Graph, runner: QueueRunner) {
    graph.extension::<Runners>().all.lock().push(runner);
}

/// Starts those of the graph's queue runners that aren't running.
///
/// ```
/// use ferroflow::input::{InputOptions, range_input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, start_queue_runners};
///
/// let g = Graph::new();
/// let number = range_input_producer(&g, 1, &InputOptions::default()).dequeue(&[DType::Int32]).output(0);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// start_queue_runners(&session, &coordinator)?;
/// assert_eq!(session.eval::<i32>(&number)?, 0);
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn start_queue_runners(session: &Session, coordinator: &Coordinator) -> Result<()> {
    let runners = session.graph().extension::<Runners>().all.lock().clone();
    for runner in runners {
        runner.create_threads(session, coordinator)?;
    }
    Ok(())
}

/// A queue in a graph, with the operations on it that input pipelines use.
///
/// ```
/// use ferroflow::ops::data_flow::{QueueSpec, fifo_queue};
/// use ferroflow::prelude::*;
/// use ferroflow::train::Queue;
///
/// let g = Graph::new();
/// let queue = Queue::new(fifo_queue(&g, &QueueSpec { capacity: 10, dtypes: &[DType::Float], shapes: &[], shared_name: "" }));
/// let put = queue.enqueue(&[g.constant(1.5f32)]);
/// let take = queue.dequeue(&[DType::Float]).output(0);
/// let session = Session::new(&g)?;
/// session.run_ops(&[&put])?;
/// assert_eq!(session.eval::<f32>(&take)?, 1.5);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queue {
    handle: Output,
}

impl Queue {
    /// Wraps a queue's handle.
    ///
    /// ```
    /// use ferroflow::ops::data_flow::{QueueSpec, fifo_queue};
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::Queue;
    ///
    /// let g = Graph::new();
    /// let handle = fifo_queue(&g, &QueueSpec { capacity: 10, dtypes: &[DType::Float], shapes: &[], shared_name: "" });
    /// assert_eq!(Queue::new(handle.clone()).handle().name(), handle.name());
    /// ```
    pub fn new(handle: Output) -> Queue {
        Queue { handle }
    }

    /// Returns the handle.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::input::{InputOptions, range_input_producer};
    ///
    /// let queue = range_input_producer(&Graph::new(), 3, &InputOptions::default());
    /// assert_eq!(queue.handle().op.op_type(), "FIFOQueueV2");
    /// ```
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Returns the node that creates the queue.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::input::{InputOptions, range_input_producer};
    ///
    /// let queue = range_input_producer(&Graph::new(), 3, &InputOptions::default());
    /// assert_eq!(queue.id(), queue.handle().op.id());
    /// ```
    pub fn id(&self) -> NodeId {
        self.handle.op.id()
    }

    fn op_name(&self, op: &str) -> String {
        if self.handle.is_ref() { op.to_owned() } else { format!("{op}V2") }
    }

    fn scoped(&self, what: &str) -> String {
        let name = self.handle.op.name();
        let last = name.rsplit('/').next().unwrap_or(&name);
        format!("{last}_{what}")
    }

    /// Adds an operation that enqueues one element.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&queue.enqueue(&[g.constant(7i32)])])?;
    /// assert_eq!(session.eval::<i32>(&queue.size())?, 1);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn enqueue(&self, components: &[Output]) -> Operation {
        self.put("QueueEnqueue", "enqueue", components)
    }

    /// Adds an operation that enqueues the rows of the components.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&queue.enqueue_many(&[g.constant([7i32, 8])])])?;
    /// assert_eq!(session.eval::<i32>(&queue.size())?, 2);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn enqueue_many(&self, components: &[Output]) -> Operation {
        self.put("QueueEnqueueMany", "EnqueueMany", components)
    }

    #[track_caller]
    fn put(&self, op: &str, what: &str, components: &[Output]) -> Operation {
        let graph = self.handle.graph();
        let op = graph.op(&self.op_name(op)).name(&self.scoped(what)).input(&self.handle).inputs(components);
        op.build()
    }

    /// Adds an operation that dequeues one element.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::{DType, Graph, Session};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&queue.enqueue(&[g.constant(7i32)])])?;
    /// assert_eq!(session.eval::<i32>(&queue.dequeue(&[DType::Int32]).output(0))?, 7);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn dequeue(&self, types: &[tensor::DType]) -> Operation {
        let op = self.handle.graph().op(&self.op_name("QueueDequeue")).name(&self.scoped("Dequeue"));
        op.input(&self.handle).attr("component_types", types).build()
    }

    /// Adds an operation that dequeues several elements as one batch; with `up_to`, fewer if the queue is closed.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::{DType, Graph, Session};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// let pair = queue.dequeue_many(&g.constant(2i32), &[DType::Int32], false).output(0);
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&queue.enqueue_many(&[g.constant([7i32, 8])])])?;
    /// assert_eq!(session.run(&[&pair])?[0].to_vec::<i32>()?, [7, 8]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn dequeue_many(&self, count: &Output, types: &[tensor::DType], up_to: bool) -> Operation {
        let (op, what) = if up_to { ("QueueDequeueUpTo", "DequeueUpTo") } else { ("QueueDequeueMany", "DequeueMany") };
        let op = self.handle.graph().op(&self.op_name(op)).name(&self.scoped(what));
        op.input(&self.handle).input(count).attr("component_types", types).build()
    }

    /// Adds the number of elements in the queue.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, range_input_producer};
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let queue = range_input_producer(&g, 3, &InputOptions::default());
    /// assert_eq!(Session::new(&g)?.eval::<i32>(&queue.size())?, 0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn size(&self) -> Output {
        let op = self.handle.graph().op(&self.op_name("QueueSize")).name(&self.scoped("Size"));
        op.input(&self.handle).output()
    }
}
