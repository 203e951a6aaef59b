//! RecordInput: shuffled batches of records from all files of a pattern, epoch after epoch.
//!
//! The files of an epoch are shuffled and distributed to `file_parallelism` shards. Each new record is swapped with a random one
//! of the buffer, and a batch takes records from the buffer's end. TensorFlow fills the buffer from its own threads, so its order
//! is only defined for a first epoch that fits into the buffer and is read by one shard: then it is the same here. Here the
//! shards take turns, and the requests for records read them.

use crate::file_access::file_system;
use crate::random::MersenneTwister;
use crate::string::murmur64_seeded;
use bytes::Bytes;
use kernel::{
    BoxedKernel, Cancellation, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use storage::record::{CompressionType, RecordReader, RecordReaderOptions};
use tensor::{DType, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "RecordInput",
        inputs: &[],
        outputs: &["records: string"],
        attrs: &[
            "file_pattern: string",
            "file_random_seed: int = 301",
            "file_shuffle_shift_ratio: float = 0.0",
            "file_buffer_size: int = 10000",
            "file_parallelism: int = 16",
            "batch_size: int = 32",
            "compression_type: string = ''",
        ],
        flags: OpFlags::STATEFUL,
    },
    shape: shape::unknown,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(RecordInput::create)],
}];

/// The number of records that a shard reads before it puts them into the buffer.
const CHUNK_RECORDS: usize = 16;

struct RecordInput {
    batch_size: usize,
    yielder: Mutex<Yielder>,
}

impl RecordInput {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let at_least = |name: &str, least: i64| match attrs.int(name)? {
            value if value >= least => Ok(usize::try_from(value).unwrap_or(usize::MAX)),
            value => Err(Status::invalid_argument(format!("{name} must be at least {least}, got {value}"))),
        };
        // TensorFlow waits forever if the buffer has no capacity, or nothing reads.
        let options = Options {
            file_pattern: attrs.string("file_pattern")?,
            seed: attrs.int("file_random_seed")? as u64,
            shift_ratio: attrs.float("file_shuffle_shift_ratio")?,
            buffer_records: at_least("file_buffer_size", 1)?,
            parallelism: at_least("file_parallelism", 1)?,
            compression: CompressionType::from_name(&attrs.string("compression_type")?)?,
        };
        let batch_size = at_least("batch_size", 0)?;
        BoxedKernel::new_blocking(RecordInput { batch_size, yielder: Mutex::new(Yielder::new(options)) })
    }
}

impl Kernel for RecordInput {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut records = Tensor::zeros(DType::String, Shape::vector(self.batch_size))?;
        let mut yielder = self.yielder.lock();
        for record in records.strings_mut()? {
            *record = yielder.next(&context.step().cancellation)?;
        }
        drop(yielder);
        context.set_output(0, records);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct Options {
    file_pattern: String,
    seed: u64,
    shift_ratio: f32,
    buffer_records: usize,
    parallelism: usize,
    compression: CompressionType,
}

/// Yields records without end.
struct Yielder {
    options: Options,
    generator: MersenneTwister,
    epoch: i64,
    epoch_records: u64,
    /// The shards with records left, in the order of their turns.
    shards: VecDeque<Shard>,
    buffer: Vec<Bytes>,
    /// The first error, which is the answer from then on, as in TensorFlow.
    failed: Option<Status>,
}

/// Some of an epoch's files.
#[derive(Default)]
struct Shard {
    filenames: VecDeque<String>,
    reader: Option<RecordReader>,
    /// The records that were read but aren't in the buffer yet.
    records: Vec<Bytes>,
}

impl Yielder {
    fn new(options: Options) -> Yielder {
        Yielder {
            generator: MersenneTwister::new(options.seed),
            options,
            epoch: 0,
            epoch_records: 0,
            shards: VecDeque::new(),
            buffer: Vec::new(),
            failed: None,
        }
    }

    fn next(&mut self, cancellation: &Cancellation) -> Result<Bytes> {
        if let Some(status) = &self.failed {
            return Err(status.clone());
        }
        loop {
            // The files aren't at fault, so the next step may continue.
            if let Some(status) = cancellation.status() {
                return Err(status);
            }
            match self.advance() {
                Ok(Some(record)) => return Ok(record),
                Ok(None) => {}
                Err(status) => {
                    self.failed = Some(status.clone());
                    return Err(status);
                }
            }
        }
    }

    /// Reads a little more, or returns a record if the buffer is full or the epoch has no more.
    fn advance(&mut self) -> Result<Option<Bytes>> {
        if self.buffer.len() < self.options.buffer_records
            && let Some(mut shard) = self.shards.pop_front()
        {
            let more = shard.read_chunk(self.options.compression)?;
            // Only this takes the last, short chunk of a shard, so it stays until all of it has found room.
            if shard.records.len() >= CHUNK_RECORDS || !more {
                self.add(&mut shard.records);
            }
            if more || !shard.records.is_empty() {
                self.shards.push_back(shard);
            }
            return Ok(None);
        }
        match self.buffer.pop() {
            Some(record) => Ok(Some(record)),
            None => self.start_epoch().map(|()| None),
        }
    }

    /// Moves records into the buffer, the last one first, as long as there is room.
    fn add(&mut self, records: &mut Vec<Bytes>) {
        while self.buffer.len() < self.options.buffer_records
            && let Some(record) = records.pop()
        {
            self.epoch_records += 1;
            self.buffer.push(record);
            let last = self.buffer.len() - 1;
            let other = (self.generator.next() % self.buffer.len() as u64) as usize;
            self.buffer.swap(other, last);
        }
    }

    fn start_epoch(&mut self) -> Result<()> {
        let pattern = &self.options.file_pattern;
        if self.epoch > 0 && self.epoch_records == 0 {
            return Err(Status::not_found(format!("Found no records in the files at {pattern}")));
        }
        self.epoch += 1;
        self.epoch_records = 0;
        let mut filenames = Vec::new();
        for part in pattern.split(',') {
            filenames.extend(file_system().glob(part)?);
        }
        if filenames.is_empty() {
            return Err(Status::not_found(format!("Found no files at {pattern}")));
        }
        let seed = murmur64_seeded(&self.epoch.to_le_bytes(), self.options.seed);
        MersenneTwister::new(seed).shuffle(&mut filenames);
        let ratio = self.options.shift_ratio;
        if (0.0..1.0).contains(&ratio) {
            let shift = (ratio * filenames.len() as f32) as usize;
            let count = filenames.len();
            filenames.rotate_left(shift.min(count));
        }
        let count = self.options.parallelism.min(filenames.len());
        self.shards = (0..count).map(|_| Shard::default()).collect();
        for (index, filename) in filenames.into_iter().enumerate() {
            self.shards[index % count].filenames.push_back(filename);
        }
        Ok(())
    }
}

impl Shard {
    /// Reads until there are records for a chunk, and returns whether there may be more after it.
    fn read_chunk(&mut self, compression: CompressionType) -> Result<bool> {
        while self.records.len() < CHUNK_RECORDS {
            let Some(reader) = &mut self.reader else {
                let Some(filename) = self.filenames.pop_front() else {
                    return Ok(false);
                };
                let file = file_system()
                    .open(&filename)
                    .map_err(|_| Status::invalid_argument(format!("Can't open {filename}")))?;
                self.reader = Some(RecordReader::new(file, RecordReaderOptions::compressed(compression)));
                continue;
            };
            match reader.next_record()? {
                Some(record) => self.records.push(record.into()),
                None => self.reader = None,
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestSession;
    use std::path::Path;
    use storage::record::RecordWriter;
    use tensor::Code;

    fn write(path: &Path, records: std::ops::Range<u32>) {
        let file = file_system().create(path.to_str().unwrap()).unwrap();
        let mut writer = RecordWriter::new(file, CompressionType::None);
        for record in records {
            writer.write_record(format!("{record}").as_bytes()).unwrap();
        }
        writer.close().unwrap();
    }

    fn input(session: &TestSession, pattern: &str, batch_size: i64, buffer: i64) -> graph::Output {
        let op = session.graph.op("RecordInput").attr("file_pattern", pattern).attr("batch_size", batch_size);
        op.attr("file_buffer_size", buffer).attr("file_parallelism", 2i64).output()
    }

    fn numbers(batch: &Tensor) -> Vec<u32> {
        batch.strings().unwrap().iter().map(|text| std::str::from_utf8(text).unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn every_record_comes_once_in_every_epoch() {
        let directory = tempfile::tempdir().unwrap();
        for file in 0..5 {
            write(&directory.path().join(format!("r{file}")), file * 20..file * 20 + 20);
        }
        let pattern = directory.path().join("r*").to_str().unwrap().to_owned();
        // A buffer for everything, one that fills up, and one without any mixing.
        for buffer in [1000, 30, 1] {
            let session = TestSession::new();
            let batch = input(&session, &pattern, 25, buffer);
            let mut orders = Vec::new();
            for _ in 0..3 {
                let epoch: Vec<u32> = (0..4).flat_map(|_| numbers(&session.fetch(&batch, &[]).unwrap())).collect();
                let mut sorted = epoch.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..100).collect::<Vec<_>>(), "a buffer of {buffer}");
                orders.push(epoch);
            }
            assert_ne!(orders[0], orders[1]);
        }
    }

    #[test]
    fn mistakes_are_errors_and_nothing_waits_for_what_never_comes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let session = TestSession::new();
        let fetch = |pattern: String, batch: i64, buffer: i64| {
            session.fetch(&input(&session, &pattern, batch, buffer), &[]).map(|_| ()).unwrap_err().code()
        };
        assert_eq!(fetch(at("none*"), 1, 1), Code::NotFound);
        write(Path::new(&at("empty")), 0..0);
        assert_eq!(fetch(at("empty"), 1, 1), Code::NotFound);
        write(Path::new(&at("one")), 0..1);
        assert_eq!(fetch(at("one"), -1, 1), Code::InvalidArgument);
        assert_eq!(fetch(at("one"), 1, 0), Code::InvalidArgument);
        assert_eq!(fetch(at("one"), i64::MAX, 1), Code::ResourceExhausted);
        std::fs::write(at("broken"), b"this is no file of records").unwrap();
        assert_eq!(fetch(at("broken"), 1, 1), Code::DataLoss);
        let other = session.another_step();
        let batch = input(&session, &at("one"), 1000, 1);
        other.step.cancellation.cancel(Status::cancelled("stop"));
        assert_eq!(other.fetch(&batch, &[]).unwrap_err().code(), Code::Cancelled);
        assert_eq!(session.fetch(&batch, &[]).unwrap().num_elements(), 1000);
    }
}
