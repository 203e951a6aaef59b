//! Event files that ops write: SummaryWriter, CreateSummaryFileWriter, FlushSummaryWriter, CloseSummaryWriter, ImportEvent,
//! WriteSummary, WriteScalarSummary, WriteHistogramSummary, WriteImageSummary, WriteAudioSummary, WriteRawProtoSummary,
//! WriteGraphSummary.

use super::histogram::Histogram;
use super::media::{at_most, summary_of_images, summary_of_sounds};
use super::summarize::for_each_number;
use super::summary::tag_of;
use crate::data_flow::ResourceOp;
use crate::file_access::file_system;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, Resource, ShapeContext, shape,
};
use parking_lot::Mutex;
use prost::Message;
use proto::event::What;
use proto::summary::{Value, value};
use proto::{Event, Summary, SummaryMetadata};
use std::time::{SystemTime, UNIX_EPOCH};
use storage::event::{EventsWriter, FlushPolicy};
use tensor::{Result, Status, Tensor};

const WRITER: &str = "writer: resource";
const STEP: &str = "step: int64";

macro_rules! action {
    ($name:literal, [$($input:expr),*], [$($attr:expr),*], $run:expr) => {
        Op {
            def: OpDef {
                name: $name,
                inputs: &[$($input),*],
                outputs: &[],
                attrs: &[$($attr),*],
                flags: OpFlags::STATEFUL,
            },
            shape: writer_shape,
            gradient: Gradient::NotDifferentiable,
            kernels: &[KernelDef::any(|_| BoxedKernel::new_blocking(Action($run)))],
        }
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "SummaryWriter",
            inputs: &[],
            outputs: &[WRITER],
            attrs: &["shared_name: string = ''", "container: string = ''"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            ResourceOp::boxed(builder, |_| Ok(Writer { file: Mutex::new(None) }), |_, _| Ok(()))
        })],
    },
    action!(
        "CreateSummaryFileWriter",
        [WRITER, "logdir: string", "max_queue: int32", "flush_millis: int32", "filename_suffix: string"],
        [],
        create
    ),
    action!("FlushSummaryWriter", [WRITER], [], |_, writer| writer.with_file(EventsWriter::flush)),
    action!("CloseSummaryWriter", [WRITER], [], close),
    action!("ImportEvent", [WRITER, "event: string"], [], import),
    action!(
        "WriteSummary",
        [WRITER, STEP, "tensor: T", "tag: string", "summary_metadata: string"],
        ["T: type"],
        write_tensor
    ),
    action!(
        "WriteScalarSummary",
        [WRITER, STEP, "tag: string", "value: T"],
        ["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
        write_scalar
    ),
    action!(
        "WriteHistogramSummary",
        [WRITER, STEP, "tag: string", "values: T"],
        [
            "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, bool} = DT_FLOAT"
        ],
        write_histogram
    ),
    Op {
        def: OpDef {
            name: "WriteImageSummary",
            inputs: &[WRITER, STEP, "tag: string", "tensor: T", "bad_color: uint8"],
            outputs: &[],
            attrs: &["max_images: int >= 1 = 3", "T: {uint8, double, float, half} = DT_FLOAT"],
            flags: OpFlags::STATEFUL,
        },
        shape: writer_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            let max = at_most(builder, "max_images")?;
            BoxedKernel::new_blocking(WriteMedia { max, summary: image_summary })
        })],
    },
    Op {
        def: OpDef {
            name: "WriteAudioSummary",
            inputs: &[WRITER, STEP, "tag: string", "tensor: float", "sample_rate: float"],
            outputs: &[],
            attrs: &["max_outputs: int >= 1 = 3"],
            flags: OpFlags::STATEFUL,
        },
        shape: writer_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            let max = at_most(builder, "max_outputs")?;
            BoxedKernel::new_blocking(WriteMedia { max, summary: sound_summary })
        })],
    },
    action!("WriteRawProtoSummary", [WRITER, STEP, "tensor: string"], [], write_serialized),
    action!("WriteGraphSummary", [WRITER, STEP, "tensor: string"], [], write_graph),
];

fn writer_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 0)?;
    Ok(())
}

/// An open event file.
struct Writer {
    file: Mutex<Option<EventsWriter>>,
}

impl Resource for Writer {
    fn type_name(&self) -> &'static str {
        "tensorflow::SummaryWriterInterface"
    }

    fn describe(&self) -> String {
        let file = self.file.lock();
        file.as_ref().map_or_else(|| "a summary writer without a file".to_owned(), |file| file.path().to_owned())
    }
}

impl Writer {
    fn with_file(&self, f: impl FnOnce(&mut EventsWriter) -> Result<()>) -> Result<()> {
        f(self.file.lock().as_mut().ok_or_else(no_file)?)
    }

    /// Writes an event at the step of input 1.
    fn write(&self, context: &OpContext<'_>, what: What) -> Result<()> {
        let step = context.scalar::<i64>(1, "step")?;
        let event = Event { wall_time: wall_time(), step, what: Some(what), ..Default::default() };
        self.with_file(|file| file.write(&event))
    }

    /// Writes a summary of one value.
    fn write_value(&self, context: &OpContext<'_>, value: Value) -> Result<()> {
        self.write(context, What::Summary(Summary { value: vec![value] }))
    }
}

fn no_file() -> Status {
    Status::not_found("the summary writer has no file: CreateSummaryFileWriter must run first")
}

fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Runs a function with the writer of input 0.
struct Action(fn(&OpContext<'_>, &Writer) -> Result<()>);

impl Kernel for Action {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let writer = context.resource::<Writer>(0)?;
        (self.0)(context, &writer)
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Writes the summary of a batch of pictures or sounds.
struct WriteMedia {
    /// The most values of the summary.
    max: usize,
    summary: fn(&OpContext<'_>, usize) -> Result<Summary>,
}

impl Kernel for WriteMedia {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let writer = context.resource::<Writer>(0)?;
        let summary = (self.summary)(context, self.max)?;
        writer.write(context, What::Summary(summary))
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

fn image_summary(context: &OpContext<'_>, max: usize) -> Result<Summary> {
    let bad_color = context.input(4)?;
    if !bad_color.shape().is_vector() {
        return Err(Status::invalid_argument(format!("bad_color must be a vector, got shape {}", bad_color.shape())));
    }
    summary_of_images(&tag_of(context.input(2)?)?, context.input(3)?, bad_color.as_slice::<u8>()?, max)
}

fn sound_summary(context: &OpContext<'_>, max: usize) -> Result<Summary> {
    let rate = context.scalar::<f32>(4, "sample_rate")?;
    summary_of_sounds(&tag_of(context.input(2)?)?, context.input(3)?, rate, max)
}

fn text(tensor: &Tensor, name: &str) -> Result<String> {
    match tensor.strings()? {
        [text] => Ok(String::from_utf8_lossy(text).into_owned()),
        _ => Err(Status::invalid_argument(format!("{name} must be a scalar"))),
    }
}

fn create(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let logdir = text(context.input(1)?, "logdir")?;
    let max_queue = context.scalar::<i32>(2, "max_queue")?;
    let flush_millis = context.scalar::<i32>(3, "flush_millis")?;
    let suffix = text(context.input(4)?, "filename_suffix")?;
    let mut file = writer.file.lock();
    if file.is_none() {
        let policy = FlushPolicy {
            max_events: usize::try_from(max_queue).unwrap_or(0).saturating_add(1),
            max_seconds: f64::from(flush_millis.max(0)) / 1000.0,
            sync: false,
        };
        *file = Some(EventsWriter::create_in(file_system(), &logdir, &suffix, wall_time(), policy)?);
    }
    Ok(())
}

fn close(_: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let file = writer.file.lock().take();
    file.ok_or_else(no_file)?.close()
}

fn import(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let [event] = context.input(1)?.strings()? else {
        return Err(Status::invalid_argument("event must be a scalar"));
    };
    let event = Event::decode(&event[..])
        .map_err(|_| Status::invalid_argument("Received invalid event proto from op input"))?;
    writer.with_file(|file| file.write(&event))
}

fn write_tensor(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let [metadata] = context.input(4)?.strings()? else {
        return Err(Status::invalid_argument("summary_metadata must be a scalar"));
    };
    let metadata =
        SummaryMetadata::decode(&metadata[..]).map_err(|_| Status::invalid_argument("Bad summary_metadata proto"))?;
    let tensor = tensor::tensor_to_proto(context.input(2)?)?;
    writer.write_value(
        context,
        Value {
            tag: tag_of(context.input(3)?)?,
            metadata: Some(metadata),
            value: Some(value::Value::Tensor(tensor)),
            ..Default::default()
        },
    )
}

fn write_scalar(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let number = context.input(3)?;
    if number.num_elements() != 1 {
        return Err(Status::invalid_argument("the value of a scalar summary must be a scalar"));
    }
    let mut simple = 0.0;
    for_each_number(number, |number| simple = number as f32)?;
    let value = Some(value::Value::SimpleValue(simple));
    writer.write_value(context, Value { tag: tag_of(context.input(2)?)?, value, ..Default::default() })
}

fn write_histogram(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let mut histogram = Histogram::new();
    let mut odd = None;
    for_each_number(context.input(3)?, |number| {
        if !number.is_finite() {
            odd.get_or_insert(number);
        }
        histogram.add(number);
    })?;
    let tag = tag_of(context.input(2)?)?;
    if let Some(odd) = odd {
        return Err(Status::invalid_argument(format!("{odd} in summary histogram for: {tag}")));
    }
    let value = Some(value::Value::Histo(histogram.into_proto()));
    writer.write_value(context, Value { tag, value, ..Default::default() })
}

fn write_serialized(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    for serialized in context.input(2)?.strings()? {
        let summary = Summary::decode(&serialized[..])
            .map_err(|_| Status::data_loss("Bad tf.compat.v1.Summary binary proto tensor string"))?;
        writer.write(context, What::Summary(summary))?;
    }
    Ok(())
}

fn write_graph(context: &OpContext<'_>, writer: &Writer) -> Result<()> {
    let [graph] = context.input(2)?.strings()? else {
        return Err(Status::invalid_argument("the graph must be a scalar"));
    };
    writer.write(context, What::GraphDef(graph.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestSession;
    use storage::event::EventsReader;
    use tensor::DType;

    #[test]
    fn events_are_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let session = TestSession::new();
        let graph = &session.graph;
        let writer = graph.op("SummaryWriter").attr("shared_name", "w").output();
        let constant = |value: &Tensor| graph.constant_tensor(value);
        let path = directory.path().join("logs").to_str().unwrap().to_owned();
        let write = graph.op("WriteScalarSummary").input(&writer).input(&constant(&Tensor::scalar(7i64)));
        let write = write.input(&constant(&Tensor::string("loss"))).input(&constant(&Tensor::scalar(2.5f64))).build();
        assert_eq!(session.run(&write, &[]).unwrap_err().code(), tensor::Code::NotFound);
        let create = graph.op("CreateSummaryFileWriter").input(&writer).input(&constant(&Tensor::string(path.clone())));
        let create = create.input(&constant(&Tensor::scalar(10i32))).input(&constant(&Tensor::scalar(1000i32)));
        let create = create.input(&constant(&Tensor::string(".v2"))).build();
        session.run(&create, &[]).unwrap();
        session.run(&write, &[]).unwrap();
        let event = Event { step: 9, what: Some(What::GraphDef(vec![1].into())), ..Default::default() };
        let bytes = constant(&Tensor::string(event.encode_to_vec()));
        session.run(&graph.op("ImportEvent").input(&writer).input(&bytes).build(), &[]).unwrap();
        let garbage = session.placeholder(DType::String);
        let import = graph.op("ImportEvent").input(&writer).input(&garbage).build();
        assert!(session.run(&import, &[(&garbage, Tensor::string("\u{1}\u{2}x"))]).is_err());
        session.run(&graph.op("FlushSummaryWriter").input(&writer).build(), &[]).unwrap();
        session.run(&graph.op("CloseSummaryWriter").input(&writer).build(), &[]).unwrap();
        let file = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
        let name = file.to_str().unwrap().to_owned();
        assert!(name.ends_with(".v2"));
        let mut reader = EventsReader::open(&*file_system(), &name).unwrap();
        let mut steps = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            steps.push(event.step);
        }
        assert_eq!(steps, [0, 7, 9]);
        assert!(session.run(&write, &[]).is_err());
    }
}
