//! Input pipelines of queues: file names, then records, then batches, each stage on its own threads.
//!
//! The queue runners are added to the graph; [`start_queue_runners`](crate::train::start_queue_runners), a
//! [`Supervisor`](crate::train::Supervisor) or a [`MonitoredSession`](crate::train::MonitoredSession) starts them.
//!
//! ```
//! use ferroflow::input::{BatchOptions, Compression, InputOptions, Reader, batch, string_input_producer};
//! use ferroflow::Graph;
//!
//! let g = Graph::new();
//! let names = string_input_producer(&g, &["a.tfrecord", "b.tfrecord"], &InputOptions::default());
//! let (_key, record) = Reader::tf_record(&g, Compression::None).read(&names);
//! let records = batch(&[record], &BatchOptions { batch_size: 32, ..Default::default() });
//! assert_eq!(records[0].shape().to_string(), "[32]");
//! ```

pub use ops::io::Compression;

use crate::kept::{kept, kept_as, kept_in};
use crate::summary;
use crate::train::{Queue, QueueRunner, add_queue_runner};
use crate::variable::{Variable, collections, named_constant};
use bytes::Bytes;
use graph::{Graph, Output};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// Options of a queue that produces the elements of a tensor.
///
/// ```
/// use ferroflow::input::{InputOptions, range_input_producer};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let options = InputOptions { num_epochs: Some(2), shuffle: false, ..InputOptions::default() };
/// let queue = range_input_producer(&g, 3, &options);
/// assert_eq!(queue.handle().op.op_type(), "FIFOQueueV2");
/// ```
#[derive(Clone, Debug)]
pub struct InputOptions {
    /// The number of times that each element is produced; `None` means without end.
    pub num_epochs: Option<i64>,
    /// Whether every epoch is shuffled.
    pub shuffle: bool,
    /// The seed of the shuffles.
    pub seed: Option<i64>,
    /// The queue's capacity in elements.
    pub capacity: i64,
    /// The name under which sessions share the queue; empty if they don't.
    pub shared_name: String,
}

impl Default for InputOptions {
    fn default() -> Self {
        InputOptions { num_epochs: None, shuffle: true, seed: None, capacity: 32, shared_name: String::new() }
    }
}

/// Adds a queue of strings, such as file names, and its runner.
///
/// ```
/// use ferroflow::input::{InputOptions, string_input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, start_queue_runners};
///
/// let g = Graph::new();
/// let options = InputOptions { shuffle: false, ..InputOptions::default() };
/// let names = string_input_producer(&g, &["a.tfrecord", "b.tfrecord"], &options);
/// let name = names.dequeue(&[DType::String]).output(0);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// start_queue_runners(&session, &coordinator)?;
/// assert_eq!(session.run(&[&name])?[0].strings()?[0], "a.tfrecord");
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn string_input_producer(graph: &Graph, strings: &[&str], options: &InputOptions) -> Queue {
    let values = strings.iter().map(|string| Bytes::from((*string).to_owned())).collect();
    let add = || {
        if strings.is_empty() {
            return Err(Status::invalid_argument("string_input_producer requires a non-null input tensor"));
        }
        graph.name_scope("input_producer", |graph| {
            let strings = Tensor::from_strings(Shape::vector(strings.len()), values)?;
            input_producer_in(graph, &graph.constant_tensor(&strings), options)
        })
    };
    kept_in(graph, "string_input_producer", &[], add, standing_queue)
}

/// Adds a queue of the rows of a tensor, and its runner.
///
/// ```
/// use ferroflow::input::{InputOptions, input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, start_queue_runners};
///
/// let g = Graph::new();
/// let options = InputOptions { shuffle: false, ..InputOptions::default() };
/// let rows = input_producer(&g.constant([[1f32, 2.0], [3.0, 4.0]]), &options);
/// let row = rows.dequeue(&[DType::Float]).output(0);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// start_queue_runners(&session, &coordinator)?;
/// assert_eq!(session.run(&[&row])?[0].to_vec::<f32>()?, [1.0, 2.0]);
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn input_producer(rows: &Output, options: &InputOptions) -> Queue {
    let add = || rows.graph().name_scope("input_producer", |graph| input_producer_in(graph, rows, options));
    kept_as("input_producer", &[rows], add, standing_queue)
}

/// Adds a queue of the integers from 0 up to a limit, and its runner.
///
/// ```
/// use ferroflow::input::{InputOptions, range_input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, start_queue_runners};
///
/// let g = Graph::new();
/// let options = InputOptions { shuffle: false, ..InputOptions::default() };
/// let number = range_input_producer(&g, 3, &options).dequeue(&[DType::Int32]).output(0);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// start_queue_runners(&session, &coordinator)?;
/// let numbers = [session.eval::<i32>(&number)?, session.eval::<i32>(&number)?, session.eval::<i32>(&number)?];
/// assert_eq!(numbers, [0, 1, 2]);
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn range_input_producer(graph: &Graph, limit: i32, options: &InputOptions) -> Queue {
    let add = || {
        graph.name_scope("input_producer", |graph| {
            let range: Vec<i32> = (0..limit).collect();
            input_producer_in(graph, &graph.constant_tensor(&Tensor::vector(&range)), options)
        })
    };
    kept_in(graph, "range_input_producer", &[], add, standing_queue)
}

/// Returns a queue made of an inert output, in place of one that could not be built.
fn standing_queue(mistaken: &Output) -> Queue {
    Queue::new(mistaken.clone())
}

fn input_producer_in(graph: &Graph, rows: &Output, options: &InputOptions) -> Result<Queue> {
    let rows = if options.shuffle {
        let (seed, seed2) = graph.random_seeds(options.seed);
        graph.op("RandomShuffle").input(rows).attr("seed", seed).attr("seed2", seed2).try_build()?.output(0)
    } else {
        rows.clone()
    };
    let rows = with_limit(&rows, options.num_epochs)?;
    let element = row_shape(&rows)?;
    let queue = new_queue(graph, "FIFOQueueV2", "input_producer", options.capacity, &[rows.dtype()], &[element])?;
    let queue = Queue::new(queue.attr("shared_name", options.shared_name.as_str()).try_build()?.output(0));
    let enqueue = queue.enqueue_many(&[rows]);
    add_queue_runner(graph, QueueRunner::new(queue.handle(), &[enqueue]));
    note_fraction(graph, &queue, options.capacity)?;
    Ok(queue)
}

/// Returns a tensor that can be read `num_epochs` times; further reads are the end of the input (`OutOfRange`). The count is a
/// local variable.
///
/// ```
/// use ferroflow::input::limit_epochs;
/// use ferroflow::prelude::*;
/// use ferroflow::{Code, train::local_variables_initializer};
///
/// let g = Graph::new();
/// let twice = limit_epochs(&g.constant(7f32), Some(2));
/// let session = Session::new(&g)?;
/// session.run_ops(&[&local_variables_initializer(&g)])?;
/// assert_eq!((session.eval::<f32>(&twice)?, session.eval::<f32>(&twice)?), (7.0, 7.0));
/// assert_eq!(session.eval::<f32>(&twice).unwrap_err().code(), Code::OutOfRange);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn limit_epochs(tensor: &Output, num_epochs: Option<i64>) -> Output {
    kept("limit_epochs", &[tensor], || with_limit(tensor, num_epochs))
}

fn with_limit(tensor: &Output, num_epochs: Option<i64>) -> Result<Output> {
    let Some(num_epochs) = num_epochs else { return Ok(tensor.clone()) };
    if num_epochs <= 0 {
        return Err(Status::invalid_argument(format!("num_epochs must be > 0 not {num_epochs}.")));
    }
    tensor.graph().name_scope("limit_epochs", |graph| {
        let zero = graph.constant_tensor(&Tensor::scalar(0i64));
        let epochs = Variable::in_graph(graph, "epochs")
            .trainable(false)
            .collections(&[collections::LOCAL_VARIABLES])
            .build_from(&zero);
        let counter = graph.op("CountUpTo").input(epochs.handle()).attr("limit", num_epochs).try_build()?;
        graph.control_dependencies(&[counter], |graph| {
            Ok(graph.op("Identity").name("limit_epochs").input(tensor).try_build()?.output(0))
        })
    })
}

/// Reads records from files.
///
/// ```
/// use ferroflow::input::{InputOptions, Reader, string_input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, start_queue_runners};
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("lines.txt");
/// # let path = path.to_str().unwrap();
/// std::fs::write(path, "first\nsecond\n").unwrap();
///
/// let g = Graph::new();
/// let names = string_input_producer(&g, &[path], &InputOptions::default());
/// let (_key, line) = Reader::text_line(&g, 0).read(&names);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// start_queue_runners(&session, &coordinator)?;
/// assert_eq!(session.run(&[&line])?[0].strings()?[0], "first");
/// assert_eq!(session.run(&[&line])?[0].strings()?[0], "second");
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    handle: Output,
}

impl Reader {
    /// Adds a reader of TFRecord files.
    ///
    /// ```
    /// use ferroflow::input::{Compression, Reader};
    ///
    /// let g = ferroflow::Graph::new();
    /// assert_eq!(Reader::tf_record(&g, Compression::Gzip).handle().op.op_type(), "TFRecordReaderV2");
    /// ```
    #[track_caller]
    pub fn tf_record(graph: &Graph, compression: Compression) -> Reader {
        Reader { handle: graph.op("TFRecordReaderV2").attr("compression_type", compression.attr()).output() }
    }

    /// Adds a reader of the lines of text files, which skips the first lines.
    ///
    /// ```
    /// use ferroflow::input::Reader;
    ///
    /// let g = ferroflow::Graph::new();
    /// // A table whose first line names the columns.
    /// assert_eq!(Reader::text_line(&g, 1).handle().op.op_type(), "TextLineReaderV2");
    /// ```
    #[track_caller]
    pub fn text_line(graph: &Graph, skip_header_lines: i64) -> Reader {
        Reader { handle: graph.op("TextLineReaderV2").attr("skip_header_lines", skip_header_lines).output() }
    }

    /// Adds a reader of fixed-length records, between a header and a footer.
    ///
    /// ```
    /// use ferroflow::input::Reader;
    ///
    /// let g = ferroflow::Graph::new();
    /// // CIFAR-10: a label and 32 × 32 pixels of three colours.
    /// let reader = Reader::fixed_length_record(&g, 1 + 32 * 32 * 3, 0, 0);
    /// assert_eq!(reader.handle().op.op_type(), "FixedLengthRecordReaderV2");
    /// ```
    #[track_caller]
    pub fn fixed_length_record(graph: &Graph, record_bytes: i64, header_bytes: i64, footer_bytes: i64) -> Reader {
        let op = graph.op("FixedLengthRecordReaderV2").attr("record_bytes", record_bytes);
        Reader { handle: op.attr("header_bytes", header_bytes).attr("footer_bytes", footer_bytes).output() }
    }

    /// Adds a reader that returns each file as one record.
    ///
    /// ```
    /// use ferroflow::input::Reader;
    ///
    /// let g = ferroflow::Graph::new();
    /// assert_eq!(Reader::whole_file(&g).handle().op.op_type(), "WholeFileReaderV2");
    /// ```
    #[track_caller]
    pub fn whole_file(graph: &Graph) -> Reader {
        Reader { handle: graph.op("WholeFileReaderV2").output() }
    }

    /// Returns the reader's handle.
    ///
    /// ```
    /// use ferroflow::{DType, Graph, input::Reader};
    ///
    /// let g = Graph::new();
    /// assert_eq!(Reader::whole_file(&g).handle().dtype(), DType::Resource);
    /// ```
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Adds an op that reads the next record as a key and a value; when a file ends, the reader takes the next file name from the
    /// queue.
    ///
    /// ```
    /// use ferroflow::input::{InputOptions, Reader, string_input_producer};
    /// use ferroflow::{DType, Graph};
    ///
    /// let g = Graph::new();
    /// let names = string_input_producer(&g, &["cat.jpg", "dog.jpg"], &InputOptions::default());
    /// let (name, bytes) = Reader::whole_file(&g).read(&names);
    /// assert_eq!((name.dtype(), bytes.dtype()), (DType::String, DType::String));
    /// ```
    #[track_caller]
    pub fn read(&self, names: &Queue) -> (Output, Output) {
        let op = self.handle.graph().op("ReaderReadV2").input(&self.handle).input(names.handle()).build();
        (op.output(0), op.output(1))
    }

    /// Adds an op that reads up to a number of records, as vectors of keys and values.
    ///
    /// ```
    /// use ferroflow::input::{Compression, InputOptions, Reader, string_input_producer};
    /// use ferroflow::{Graph, PartialShape};
    ///
    /// let g = Graph::new();
    /// let names = string_input_producer(&g, &["train.tfrecord"], &InputOptions::default());
    /// let (_keys, records) = Reader::tf_record(&g, Compression::None).read_up_to(&names, 64);
    /// assert_eq!(records.shape(), PartialShape::from([-1]));
    /// ```
    #[track_caller]
    pub fn read_up_to(&self, names: &Queue, count: i64) -> (Output, Output) {
        let graph = self.handle.graph();
        let count = graph.constant_tensor(&Tensor::scalar(count));
        let op = graph.op("ReaderReadUpToV2").input(&self.handle).input(names.handle()).input(&count).build();
        (op.output(0), op.output(1))
    }
}

/// Options of batches.
///
/// ```
/// use ferroflow::Graph;
/// use ferroflow::input::{BatchOptions, batch};
///
/// let g = Graph::new();
/// let options = BatchOptions { batch_size: 2, allow_smaller_final_batch: true, ..BatchOptions::default() };
/// let batches = batch(&[g.constant([1f32, 2.0])], &options);
/// assert_eq!(batches[0].shape(), ferroflow::PartialShape::from([-1, 2]));
/// ```
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// The number of elements in a batch.
    pub batch_size: i32,
    /// The number of threads that fill the queue.
    pub num_threads: usize,
    /// The queue's capacity in elements.
    pub capacity: i64,
    /// Whether the input tensors are already batches of elements.
    pub enqueue_many: bool,
    /// Whether elements of different sizes are padded to the largest of their batch.
    pub dynamic_pad: bool,
    /// Whether the last batch may be smaller.
    pub allow_smaller_final_batch: bool,
    /// The name under which sessions share the queue; empty if they don't.
    pub shared_name: String,
}

impl Default for BatchOptions {
    fn default() -> Self {
        BatchOptions {
            batch_size: 32,
            num_threads: 1,
            capacity: 32,
            enqueue_many: false,
            dynamic_pad: false,
            allow_smaller_final_batch: false,
            shared_name: String::new(),
        }
    }
}

/// Options of shuffled batches.
///
/// ```
/// use ferroflow::Graph;
/// use ferroflow::input::{BatchOptions, ShuffleOptions, shuffle_batch};
///
/// let g = Graph::new();
/// let shuffle = ShuffleOptions { min_after_dequeue: 1000, seed: Some(7) };
/// let options = BatchOptions { batch_size: 32, capacity: 2000, ..BatchOptions::default() };
/// let batches = shuffle_batch(&[g.constant(1f32)], &options, &shuffle);
/// assert_eq!(batches[0].shape(), ferroflow::PartialShape::from([32]));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ShuffleOptions {
    /// The number of elements that stay in the queue for shuffling.
    pub min_after_dequeue: i64,
    /// The seed of the shuffle.
    pub seed: Option<i64>,
}

/// Adds batches of tensors in order, through a queue with its runner.
///
/// ```
/// use ferroflow::input::{BatchOptions, InputOptions, batch, range_input_producer};
/// use ferroflow::prelude::*;
/// use ferroflow::train::{Coordinator, start_queue_runners};
///
/// let g = Graph::new();
/// let options = InputOptions { shuffle: false, ..InputOptions::default() };
/// let number = range_input_producer(&g, 4, &options).dequeue(&[DType::Int32]).output(0);
/// let numbers = batch(&[number], &BatchOptions { batch_size: 4, ..BatchOptions::default() }).remove(0);
/// let (session, coordinator) = (Session::new(&g)?, Coordinator::new());
/// start_queue_runners(&session, &coordinator)?;
/// assert_eq!(session.run(&[&numbers])?[0].to_vec::<i32>()?, [0, 1, 2, 3]);
/// coordinator.request_stop(None);
/// coordinator.join(std::time::Duration::from_secs(10))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn batch(tensors: &[Output], options: &BatchOptions) -> Vec<Output> {
    kept_batches("batch", &[tensors], options, None)
}

/// Adds batches of tensors in a random order.
///
/// ```
/// use ferroflow::input::{BatchOptions, ShuffleOptions, shuffle_batch};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let (image, label) = (g.constant([0f32; 784]), g.constant(3i64));
/// let options = BatchOptions { batch_size: 100, capacity: 2000, ..BatchOptions::default() };
/// let batches = shuffle_batch(&[image, label], &options, &ShuffleOptions { min_after_dequeue: 1000, seed: None });
/// assert_eq!(batches[0].shape(), PartialShape::from([100, 784]));
/// assert_eq!(batches[1].shape(), PartialShape::from([100]));
/// ```
#[track_caller]
pub fn shuffle_batch(tensors: &[Output], options: &BatchOptions, shuffle: &ShuffleOptions) -> Vec<Output> {
    kept_batches("shuffle_batch", &[tensors], options, Some(shuffle))
}

/// Adds batches from several sources, each of which has a thread.
///
/// ```
/// use ferroflow::input::{BatchOptions, batch_join};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let (first, second) = ([g.constant(1f32)], [g.constant(2f32)]);
/// let batches = batch_join(&[&first, &second], &BatchOptions { batch_size: 8, ..BatchOptions::default() });
/// assert_eq!(batches[0].shape(), PartialShape::from([8]));
/// ```
#[track_caller]
pub fn batch_join(sources: &[&[Output]], options: &BatchOptions) -> Vec<Output> {
    kept_batches("batch_join", sources, options, None)
}

/// Adds batches from several sources in a random order.
///
/// ```
/// use ferroflow::input::{BatchOptions, ShuffleOptions, shuffle_batch_join};
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let (first, second) = ([g.constant(1f32)], [g.constant(2f32)]);
/// let options = BatchOptions { batch_size: 8, ..BatchOptions::default() };
/// let shuffle = ShuffleOptions { min_after_dequeue: 16, seed: None };
/// let batches = shuffle_batch_join(&[&first, &second], &options, &shuffle);
/// assert_eq!(batches[0].shape(), PartialShape::from([8]));
/// ```
#[track_caller]
pub fn shuffle_batch_join(sources: &[&[Output]], options: &BatchOptions, shuffle: &ShuffleOptions) -> Vec<Output> {
    kept_batches("shuffle_batch_join", sources, options, Some(shuffle))
}

/// Adds batches. If they can't be built, returns as many inert outputs as there would be batches, but at least one, which carries
/// the mistake to its users.
#[track_caller]
fn kept_batches(
    name: &str,
    sources: &[&[Output]],
    options: &BatchOptions,
    shuffle: Option<&ShuffleOptions>,
) -> Vec<Output> {
    let inputs: Vec<&Output> = sources.iter().copied().flatten().collect();
    let count = sources.first().map_or(1, |source| source.len().max(1));
    let add = || make_batches(name, sources, options, shuffle);
    kept_as(name, &inputs, add, |instead| vec![instead.clone(); count])
}

fn make_batches(
    name: &str,
    sources: &[&[Output]],
    options: &BatchOptions,
    shuffle: Option<&ShuffleOptions>,
) -> Result<Vec<Output>> {
    let first = sources.first().copied().unwrap_or_default();
    let Some(graph) = first.first().map(|tensor| tensor.graph().clone()) else {
        return Err(Status::invalid_argument("there are no tensors to batch"));
    };
    if options.batch_size < 1 || options.num_threads < 1 {
        return Err(Status::invalid_argument("batch_size and num_threads must be positive"));
    }
    if sources.iter().any(|source| source.len() != first.len()) {
        return Err(Status::invalid_argument("all sources must have the same number of tensors"));
    }
    let types: Vec<DType> = first.iter().map(Output::dtype).collect();
    let mut shapes = Vec::with_capacity(first.len());
    for index in 0..first.len() {
        let mut common: Option<PartialShape> = None;
        for source in sources {
            let shape = if options.enqueue_many { row_shape(&source[index])? } else { source[index].shape() };
            common = Some(match common {
                None => shape,
                Some(other) if other == shape => other,
                Some(other) if options.dynamic_pad && other.rank() == shape.rank() => loosest(&other, &shape)?,
                Some(other) => {
                    return Err(Status::invalid_argument(format!("sources with shapes {other} and {shape}")));
                }
            });
        }
        shapes.push(common.unwrap_or_else(PartialShape::unknown));
    }
    if !options.dynamic_pad
        && let Some(shape) = shapes.iter().find(|shape| !shape.is_fully_defined())
    {
        return Err(Status::invalid_argument(format!(
            "All shapes must be fully defined: {shape}; dynamic_pad is for tensors of unknown size"
        )));
    }
    graph.name_scope(name, |graph| {
        let (op, queue_name) = match (shuffle, options.dynamic_pad) {
            (Some(_), true) => return Err(Status::invalid_argument("shuffled batches can't be padded")),
            (Some(_), false) => ("RandomShuffleQueueV2", "random_shuffle_queue"),
            (None, true) => ("PaddingFIFOQueueV2", "padding_fifo_queue"),
            (None, false) => ("FIFOQueueV2", "fifo_queue"),
        };
        let mut queue = new_queue(graph, op, queue_name, options.capacity, &types, &shapes)?;
        queue = queue.attr("shared_name", options.shared_name.as_str());
        if let Some(shuffle) = shuffle {
            let (seed, seed2) = graph.random_seeds(shuffle.seed);
            queue = queue.attr("min_after_dequeue", shuffle.min_after_dequeue).attr("seed", seed).attr("seed2", seed2);
        }
        let queue = Queue::new(queue.try_build()?.output(0));
        let mut enqueue = Vec::new();
        for source in sources {
            enqueue.push(if options.enqueue_many { queue.enqueue_many(source) } else { queue.enqueue(source) });
        }
        if let [only] = &enqueue[..] {
            // Several threads run the same operation.
            enqueue = vec![only.clone(); options.num_threads];
        }
        add_queue_runner(graph, QueueRunner::new(queue.handle(), &enqueue));
        note_fraction(graph, &queue, options.capacity)?;
        let count = named_constant(graph, "n", &Tensor::scalar(options.batch_size));
        let dequeue = queue.dequeue_many(&count, &types, options.allow_smaller_final_batch);
        Ok((0..types.len()).map(|port| dequeue.output(port as u32)).collect())
    })
}

fn new_queue(
    graph: &Graph,
    op: &str,
    name: &str,
    capacity: i64,
    types: &[DType],
    shapes: &[PartialShape],
) -> Result<graph::builder::OpBuilder> {
    if capacity == 0 {
        return Err(Status::invalid_argument("a queue without capacity"));
    }
    Ok(graph.op(op).name(name).attr("component_types", types).attr("shapes", shapes).attr("capacity", capacity))
}

/// Adds a summary of the fraction of the queue that is full.
fn note_fraction(graph: &Graph, queue: &Queue, capacity: i64) -> Result<()> {
    if capacity < 0 {
        return Ok(());
    }
    let size = queue.size();
    let size = graph.op("Cast").input(&size).attr("DstT", DType::Float).try_build()?.output(0);
    let each = graph.constant_tensor(&Tensor::scalar(1.0 / capacity as f32));
    let fraction = graph.op("Mul").name("mul").input(&size).input(&each).try_build()?.output(0);
    summary::scalar(&format!("fraction_of_{capacity}_full"), &fraction);
    Ok(())
}

/// Returns the shape of the rows of a tensor.
fn row_shape(tensor: &Output) -> Result<PartialShape> {
    let shape = tensor.shape();
    match shape.dims() {
        Some([_, row @ ..]) => Ok(PartialShape::new(row)),
        _ => Err(Status::invalid_argument(format!("{} must have rows, but its shape is {shape}", tensor.name()))),
    }
}

fn loosest(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    match (a.dims(), b.dims()) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            let dims: Vec<Option<i64>> = a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect();
            Ok(PartialShape::new(&dims))
        }
        _ => Err(Status::invalid_argument(format!("sources with shapes {a} and {b}"))),
    }
}
