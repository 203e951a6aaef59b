//! Ops on readers: creating them, reading, and querying their progress.
//!
//! Each op has two versions, which take the reader as a ref to two strings or as a resource.

use super::reader::{Amount, Reader};
use super::work::ReaderKind;
use crate::data_flow::{Queue, ResourceOp};
use crate::file_access::FixedLayout;
use graph::{Graph, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, ShapeContext, ShapeFn, shape,
};
use std::sync::Arc;
use storage::record::CompressionType;
use tensor::{DType, PartialShape, Result, Status, Tensor};

const READER: &str = "reader_handle: Ref(string)";
const QUEUE: &str = "queue_handle: Ref(string)";
const READER_V2: &str = "reader_handle: resource";
const QUEUE_V2: &str = "queue_handle: resource";
const CONTAINER: &str = "container: string = ''";
const SHARED_NAME: &str = "shared_name: string = ''";

const NAMES: &[&str] = &[CONTAINER, SHARED_NAME];
const TEXT_LINES: &[&str] = &["skip_header_lines: int = 0", CONTAINER, SHARED_NAME];
const RECORDS: &[&str] = &[CONTAINER, SHARED_NAME, "compression_type: string = ''"];
const FIXED: &[&str] = &[
    "header_bytes: int = 0",
    "record_bytes: int",
    "footer_bytes: int = 0",
    "hop_bytes: int = 0",
    CONTAINER,
    SHARED_NAME,
];
const FIXED_V2: &[&str] = &[
    "header_bytes: int = 0",
    "record_bytes: int",
    "footer_bytes: int = 0",
    "hop_bytes: int = 0",
    CONTAINER,
    SHARED_NAME,
    "encoding: string = ''",
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    maker("WholeFileReader", &[READER], NAMES),
    maker("WholeFileReaderV2", &[READER_V2], NAMES),
    maker("TextLineReader", &[READER], TEXT_LINES),
    maker("TextLineReaderV2", &[READER_V2], TEXT_LINES),
    maker("FixedLengthRecordReader", &[READER], FIXED),
    maker("FixedLengthRecordReaderV2", &[READER_V2], FIXED_V2),
    maker("TFRecordReader", &[READER], RECORDS),
    maker("TFRecordReaderV2", &[READER_V2], RECORDS),
    maker("IdentityReader", &[READER], NAMES),
    maker("IdentityReaderV2", &[READER_V2], NAMES),
    user("ReaderRead", &[READER, QUEUE], &["key: string", "value: string"], read_shape, READ),
    user("ReaderReadV2", &[READER_V2, QUEUE_V2], &["key: string", "value: string"], read_shape, READ),
    user(
        "ReaderReadUpTo",
        &[READER, QUEUE, "num_records: int64"],
        &["keys: string", "values: string"],
        read_up_to_shape,
        READ_UP_TO,
    ),
    user(
        "ReaderReadUpToV2",
        &[READER_V2, QUEUE_V2, "num_records: int64"],
        &["keys: string", "values: string"],
        read_up_to_shape,
        READ_UP_TO,
    ),
    user("ReaderNumRecordsProduced", &[READER], &["records_produced: int64"], ask_shape, RECORDS_PRODUCED),
    user("ReaderNumRecordsProducedV2", &[READER_V2], &["records_produced: int64"], ask_shape, RECORDS_PRODUCED),
    user("ReaderNumWorkUnitsCompleted", &[READER], &["units_completed: int64"], ask_shape, WORK_COMPLETED),
    user("ReaderNumWorkUnitsCompletedV2", &[READER_V2], &["units_completed: int64"], ask_shape, WORK_COMPLETED),
    user("ReaderSerializeState", &[READER], &["state: string"], ask_shape, SERIALIZE),
    user("ReaderSerializeStateV2", &[READER_V2], &["state: string"], ask_shape, SERIALIZE),
    user("ReaderRestoreState", &[READER, "state: string"], &[], restore_shape, RESTORE),
    user("ReaderRestoreStateV2", &[READER_V2, "state: string"], &[], restore_shape, RESTORE),
    user("ReaderReset", &[READER], &[], |c| reader_input(c), RESET),
    user("ReaderResetV2", &[READER_V2], &[], |c| reader_input(c), RESET),
];

const MAKE: &[KernelDef] = &[KernelDef::any(create_reader)];
const READ: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new_async(ReadOp { up_to: false }))];
const READ_UP_TO: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new_async(ReadOp { up_to: true }))];
const RECORDS_PRODUCED: &[KernelDef] =
    &[KernelDef::any(|_| BoxedKernel::new(AskOp(|reader| Ok(Tensor::scalar(reader.records_produced())))))];
const WORK_COMPLETED: &[KernelDef] =
    &[KernelDef::any(|_| BoxedKernel::new(AskOp(|reader| Ok(Tensor::scalar(reader.work_finished())))))];
const SERIALIZE: &[KernelDef] =
    &[KernelDef::any(|_| BoxedKernel::new(AskOp(|reader| Ok(Tensor::string(reader.serialize()?)))))];
const RESTORE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(RestoreOp))];
const RESET: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(ResetOp))];

const fn maker(name: &'static str, outputs: &'static [&'static str], attrs: &'static [&'static str]) -> Op {
    Op {
        def: OpDef { name, inputs: &[], outputs, attrs, flags: OpFlags::STATEFUL },
        shape: reader_shape,
        gradient: gradient_of(name),
        kernels: MAKE,
    }
}

/// An op on a reader; those by resource are stateful, those by ref aren't.
const fn user(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let flags = if is_second_version(name) { OpFlags::STATEFUL } else { OpFlags::NONE };
    Op { def: OpDef { name, inputs, outputs, attrs: &[], flags }, shape, gradient: gradient_of(name), kernels }
}

const fn is_second_version(name: &str) -> bool {
    name.as_bytes()[name.len() - 1] == b'2'
}

/// TensorFlow declares only the first versions as having no gradient.
const fn gradient_of(name: &str) -> Gradient {
    if is_second_version(name) { Gradient::Unsupported } else { Gradient::NotDifferentiable }
}

/// The compression of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// With gzip.
    Gzip,
    /// With zlib.
    Zlib,
}

impl Compression {
    /// Returns the value of the attribute `compression_type`.
    pub fn attr(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => "GZIP",
            Compression::Zlib => "ZLIB",
        }
    }
}

/// Returns a reader of TFRecords.
#[track_caller]
pub fn tf_record_reader(graph: &Graph, compression: Compression) -> Output {
    graph.op("TFRecordReaderV2").attr("compression_type", compression.attr()).output()
}

/// Returns a reader of lines, which skips the first lines.
#[track_caller]
pub fn text_line_reader(graph: &Graph, skip_header_lines: i64) -> Output {
    graph.op("TextLineReaderV2").attr("skip_header_lines", skip_header_lines).output()
}

/// Returns a reader of fixed-length records, between a header and a footer.
#[track_caller]
pub fn fixed_length_record_reader(graph: &Graph, record_bytes: i64, header_bytes: i64, footer_bytes: i64) -> Output {
    let op = graph.op("FixedLengthRecordReaderV2").attr("record_bytes", record_bytes);
    op.attr("header_bytes", header_bytes).attr("footer_bytes", footer_bytes).output()
}

/// Returns a reader of which each file is one record.
#[track_caller]
pub fn whole_file_reader(graph: &Graph) -> Output {
    graph.op("WholeFileReaderV2").output()
}

/// Reads a record from the files whose names are in a queue; returns its key and its value.
#[track_caller]
pub fn reader_read(reader: &Output, queue: &Output) -> (Output, Output) {
    let read = reader.graph().op("ReaderReadV2").input(reader).input(queue).build();
    (read.output(0), read.output(1))
}

/// As [`reader_read`], but reads up to `num_records` from one file.
#[track_caller]
pub fn reader_read_up_to(reader: &Output, queue: &Output, num_records: &Output) -> (Output, Output) {
    let read = reader.graph().op("ReaderReadUpToV2").input(reader).input(queue).input(num_records).build();
    (read.output(0), read.output(1))
}

fn reader_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let by_ref = c.output_types[0].dtype == DType::String;
    c.set_output(0, if by_ref { PartialShape::from_dims(&[2]) } else { PartialShape::scalar() });
    Ok(())
}

fn reader_input(c: &ShapeContext<'_>) -> Result<()> {
    if is_second_version(&c.schema.name) {
        return Ok(());
    }
    let handle = c.with_rank(0, 1)?;
    match handle.dim(0) {
        Some(size) if size != 2 => Err(Status::invalid_argument(format!("Dimension must be 2 but is {size}"))),
        _ => Ok(()),
    }
}

fn read_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    reader_input(c)?;
    shape::scalar(c)
}

fn ask_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    reader_input(c)?;
    shape::scalar(c)
}

fn read_up_to_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    reader_input(c)?;
    c.with_rank(2, 0)?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    Ok(())
}

fn restore_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    reader_input(c)?;
    c.with_rank(1, 0)?;
    Ok(())
}

fn create_reader(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let kind = match builder.node.op().trim_end_matches("V2") {
        "IdentityReader" => ReaderKind::Identity,
        "WholeFileReader" => ReaderKind::WholeFile,
        "TextLineReader" => {
            let skip_header_lines = attrs.int("skip_header_lines")?;
            let skip_header_lines = usize::try_from(skip_header_lines).map_err(|_| {
                Status::invalid_argument(format!("skip_header_lines must be >= 0 not {skip_header_lines}"))
            })?;
            ReaderKind::TextLine { skip_header_lines }
        }
        "FixedLengthRecordReader" => ReaderKind::FixedLength {
            layout: FixedLayout::new(
                attrs.int("header_bytes")?,
                attrs.int("record_bytes")?,
                attrs.int("footer_bytes")?,
                attrs.int("hop_bytes")?,
            )?,
            compression: CompressionType::from_name(&attrs.string("encoding").unwrap_or_default())?,
        },
        _ => ReaderKind::TfRecord(CompressionType::from_name(&attrs.string("compression_type")?)?),
    };
    let wanted = kind.clone();
    ResourceOp::boxed(
        builder,
        move |name| Ok(Reader::new(name, kind.clone())),
        move |reader, name| match *reader.kind() == wanted {
            true => Ok(()),
            false => Err(Status::invalid_argument(format!(
                "Shared reader '{name}' is a {} of other options than requested",
                reader.kind().name()
            ))),
        },
    )
}

struct ReadOp {
    up_to: bool,
}

impl ReadOp {
    fn prepare(&self, context: &OpContext<'_>) -> Result<(Arc<Reader>, Arc<Queue>, Amount)> {
        let (reader, queue) = (context.resource::<Reader>(0)?, context.resource::<Queue>(1)?);
        if !self.up_to {
            return Ok((reader, queue, Amount::One));
        }
        let count = context.scalar::<i64>(2, "num_records")?;
        match usize::try_from(count) {
            Ok(count) => Ok((reader, queue, Amount::UpTo(count))),
            Err(_) => Err(Status::invalid_argument(format!("num_records must be >= 0 but got {count}"))),
        }
    }
}

impl AsyncKernel for ReadOp {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        match prepared {
            Ok((reader, queue, amount)) => reader.read(context, queue, amount),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct AskOp(fn(&Reader) -> Result<Tensor>);

impl Kernel for AskOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let answer = (self.0)(&*context.resource::<Reader>(0)?)?;
        context.set_output(0, answer);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct RestoreOp;

impl Kernel for RestoreOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let reader = context.resource::<Reader>(0)?;
        let state = context.input(1)?;
        match state.strings()? {
            [state] => reader.restore(state),
            _ => {
                Err(Status::invalid_argument(format!("Reader state must be scalar, but had shape: {}", state.shape())))
            }
        }
    }
}

struct ResetOp;

impl Kernel for ResetOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.resource::<Reader>(0)?.reset();
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_flow::{QueueSpec, fifo_queue, queue_close, queue_enqueue_many};
    use crate::testing::{TestSession, attrs, check_shape, finished, waits};
    use graph::Operation;
    use storage::file_system::{FileSystem, LocalFileSystem};
    use storage::record::RecordWriter;
    use tensor::{Code, Shape};

    struct Setting {
        session: TestSession,
        names: Output,
        enqueue: Operation,
        close: Operation,
        queue: Output,
        directory: tempfile::TempDir,
    }

    fn setting() -> Setting {
        let session = TestSession::new();
        let spec =
            QueueSpec { capacity: 10, dtypes: &[DType::String], shapes: &[PartialShape::scalar()], shared_name: "" };
        let queue = fifo_queue(&session.graph, &spec);
        let names = session.placeholder(DType::String);
        let enqueue = queue_enqueue_many(&queue, &[names.clone()]);
        let close = queue_close(&queue, false);
        Setting { session, names, enqueue, close, queue, directory: tempfile::tempdir().unwrap() }
    }

    impl Setting {
        fn file(&self, name: &str, content: &[u8]) -> String {
            let path = self.directory.path().join(name).to_str().unwrap().to_owned();
            std::fs::write(&path, content).unwrap();
            path
        }

        fn enqueue(&self, names: &[&str]) {
            let texts = names.iter().map(|name| name.to_string().into()).collect();
            let names = Tensor::from_strings(Shape::vector(names.len()), texts).unwrap();
            self.session.run(&self.enqueue, &[(&self.names, names)]).unwrap();
        }

        fn read(&self, reader: &Output) -> Operation {
            reader_read(reader, &self.queue).0.op
        }

        fn next(&self, read: &Operation) -> (String, String) {
            let outputs = self.session.run(read, &[]).unwrap();
            let text = |index: usize| String::from_utf8_lossy(&outputs[index].strings().unwrap()[0]).into_owned();
            (text(0), text(1))
        }
    }

    #[test]
    fn lines_come_with_their_numbers() {
        let setting = setting();
        let path = setting.file("t.txt", b"head\na\rb\r\nc\r\r\n\nlast\r");
        setting.enqueue(&[&path]);
        let read = setting.read(&text_line_reader(&setting.session.graph, 1));
        for (number, line) in [(2, "a\rb"), (3, "c\r"), (4, ""), (5, "last")] {
            assert_eq!(setting.next(&read), (format!("{path}:{number}"), line.to_owned()));
        }
        setting.session.run(&setting.close, &[]).unwrap();
        let status = setting.session.run(&read, &[]).unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange);
        assert!(status.message().contains("is closed and has insufficient elements"), "{status}");
    }

    #[test]
    fn records_come_with_their_offsets_from_one_file_after_the_other() {
        let setting = setting();
        let paths = [setting.file("a", b""), setting.file("b", b"")];
        for (path, records) in paths.iter().zip([&["one", "two"][..], &["three"]]) {
            let mut writer = RecordWriter::new(LocalFileSystem.create(path).unwrap(), CompressionType::Gzip);
            for record in records {
                writer.write_record(record.as_bytes()).unwrap();
            }
            writer.close().unwrap();
        }
        setting.enqueue(&[&paths[0], &paths[1]]);
        let reader = tf_record_reader(&setting.session.graph, Compression::Gzip);
        let read = setting.read(&reader);
        assert_eq!(setting.next(&read), (format!("{}:0", paths[0]), "one".to_owned()));
        assert_eq!(setting.next(&read), (format!("{}:19", paths[0]), "two".to_owned()));
        assert_eq!(setting.next(&read), (format!("{}:0", paths[1]), "three".to_owned()));
        let ask = |op: &str| {
            let asked = setting.session.graph.op(op).input(&reader).output();
            setting.session.fetch(&asked, &[]).unwrap().to_scalar::<i64>().unwrap()
        };
        assert_eq!(ask("ReaderNumRecordsProducedV2"), 3);
        assert_eq!(ask("ReaderNumWorkUnitsCompletedV2"), 1);
        let reset = setting.session.graph.op("ReaderResetV2").input(&reader).build();
        setting.session.run(&reset, &[]).unwrap();
        assert_eq!(ask("ReaderNumRecordsProducedV2"), 0);
        let status =
            setting.session.run(&setting.session.graph.op("ReaderSerializeStateV2").input(&reader).build(), &[]);
        assert_eq!(status.unwrap_err().code(), Code::Unimplemented);
    }

    #[test]
    fn records_of_one_size_lie_between_header_and_footer() {
        // What TensorFlow reads from twenty bytes, by header, record, footer and hop.
        for (header, record, footer, hop, firsts) in [
            (2, 4, 3, 0, &[2u8, 6, 10][..]),
            (2, 4, 3, 2, &[2, 4, 6, 8, 10, 12]),
            (2, 4, 3, 6, &[2, 8]),
            (0, 7, 0, 0, &[0, 7]),
            (1, 3, 17, 0, &[]),
            (1, 3, 16, 0, &[1]),
        ] {
            let setting = setting();
            let content: Vec<u8> = (0..20).collect();
            let path = setting.file("f", &content);
            let reader = fixed_length_record_reader(&setting.session.graph, record, header, footer);
            let reader = match hop {
                0 => reader,
                hop => {
                    let op = setting.session.graph.op("FixedLengthRecordReader").attr("record_bytes", record);
                    op.attr("header_bytes", header).attr("footer_bytes", footer).attr("hop_bytes", hop as i64).output()
                }
            };
            setting.enqueue(&[&path]);
            setting.session.run(&setting.close, &[]).unwrap();
            let read = match hop {
                0 => setting.read(&reader),
                // The older op needs the older queue, so its records are read through a separate one.
                _ => {
                    let graph = &setting.session.graph;
                    let queue = graph.op("FIFOQueue").attr("component_types", &[DType::String][..]).output();
                    let enqueue = graph.op("QueueEnqueue").input(&queue).inputs(&[setting.names.clone()]).build();
                    setting.session.run(&enqueue, &[(&setting.names, Tensor::string(path.clone()))]).unwrap();
                    setting.session.run(&graph.op("QueueClose").input(&queue).build(), &[]).unwrap();
                    graph.op("ReaderRead").input(&reader).input(&queue).build()
                }
            };
            for (number, first) in firsts.iter().enumerate() {
                let expected: Vec<u8> = (*first..*first + record as u8).collect();
                let outputs = setting.session.run(&read, &[]).unwrap();
                assert_eq!(outputs[0].strings().unwrap()[0], format!("{path}:{number}"));
                assert_eq!(outputs[1].strings().unwrap()[0], expected);
            }
            assert_eq!(setting.session.run(&read, &[]).unwrap_err().code(), Code::OutOfRange, "{header} {record}");
        }
    }

    #[test]
    fn whole_files_and_names_can_be_saved_and_restored() {
        let setting = setting();
        let path = setting.file("w", b"content");
        let graph = &setting.session.graph;
        let reader = graph.op("IdentityReaderV2").output();
        setting.enqueue(&[&path, "b"]);
        let read = setting.read(&reader);
        assert_eq!(setting.next(&read), (path.clone(), path.clone()));
        let save = graph.op("ReaderSerializeStateV2").input(&reader).output();
        let state = setting.session.fetch(&save, &[]).unwrap();
        assert_eq!(setting.next(&read), ("b".to_owned(), "b".to_owned()));
        let fed = setting.session.placeholder(DType::String);
        let restore = graph.op("ReaderRestoreStateV2").input(&reader).input(&fed).build();
        setting.session.run(&restore, &[(&fed, state)]).unwrap();
        let produced = graph.op("ReaderNumRecordsProducedV2").input(&reader).output();
        assert_eq!(setting.session.fetch(&produced, &[]).unwrap().to_scalar::<i64>().unwrap(), 1);
        let status = setting.session.run(&restore, &[(&fed, Tensor::string("\u{1}nonsense"))]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let read = setting.read(&whole_file_reader(graph));
        setting.enqueue(&[&path, "/no/such/file", &path]);
        assert_eq!(setting.next(&read), (path.clone(), "content".to_owned()));
        assert_eq!(setting.session.run(&read, &[]).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn several_records_come_from_one_file() {
        let setting = setting();
        let (a, b) = (setting.file("a", b"1\n2\n3\n"), setting.file("b", b"4\n"));
        setting.enqueue(&[&a, &b]);
        let reader = text_line_reader(&setting.session.graph, 0);
        let count = setting.session.placeholder(DType::Int64);
        let read = reader_read_up_to(&reader, &setting.queue, &count).1;
        let values = |wanted: i64| {
            let read = setting.session.fetch(&read, &[(&count, Tensor::scalar(wanted))]).unwrap();
            read.strings().unwrap().iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values(2), ["1", "2"]);
        assert_eq!(values(5), ["3"]);
        assert_eq!(values(5), ["4"]);
    }

    #[test]
    fn a_read_waits_for_work_and_others_wait_in_line() {
        let setting = setting();
        let read = setting.read(&text_line_reader(&setting.session.graph, 0));
        let first = setting.session.start(&read, &[]).unwrap();
        let second_step = setting.session.another_step();
        let second = second_step.start(&read, &[]).unwrap();
        let third = setting.session.start(&read, &[]).unwrap();
        assert!(waits(&first) && waits(&second) && waits(&third));
        second_step.step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(finished(&second).unwrap_err().code(), Code::Cancelled);
        let (empty, path) = (setting.file("e", b""), setting.file("t", b"x\ny\n"));
        setting.enqueue(&[&empty, &path]);
        assert_eq!(finished(&first).unwrap()[1].strings().unwrap()[0], "x");
        assert_eq!(finished(&third).unwrap()[1].strings().unwrap()[0], "y");
        let fourth = setting.session.start(&read, &[]).unwrap();
        assert!(waits(&fourth));
        setting.session.step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(finished(&fourth).unwrap_err().code(), Code::Cancelled);
    }

    #[test]
    fn a_queue_of_something_else_is_refused() {
        let session = TestSession::new();
        let spec = QueueSpec { capacity: 1, dtypes: &[DType::Int32], shapes: &[], shared_name: "" };
        let queue = fifo_queue(&session.graph, &spec);
        let reader = whole_file_reader(&session.graph);
        let status = session.run(&reader_read(&reader, &queue).0.op, &[]).unwrap_err();
        assert_eq!(status.message(), "Expected queue with single string component");
    }

    #[test]
    fn shapes() {
        check_shape("TFRecordReader", attrs![], "", "[2]");
        check_shape("TFRecordReaderV2", attrs![], "", "[]");
        check_shape("ReaderRead", attrs![], "[2];[2]", "[];[]");
        check_shape("ReaderReadUpToV2", attrs![], "[];[];[]", "[?];[?]");
    }
}
