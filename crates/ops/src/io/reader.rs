//! [`Reader`]: the resource that reads records from files whose names come from a queue.
//!
//! Reads are served one at a time. A read that needs another file dequeues its name and waits there, without a thread; those
//! behind it wait in line.

use super::work::{ReaderKind, Work};
use crate::data_flow::{DequeueMode, Queue};
use bytes::Bytes;
use kernel::{
    AsyncContext, CancellationToken, Completion, FrameAndIteration, Outputs, Resource, Step, Value, Values, run_io,
};
use parking_lot::Mutex;
use prost::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{DType, Result, Shape, Status, Tensor, check_interrupt};

/// Reads records of one kind.
pub(super) struct Reader {
    name: String,
    kind: ReaderKind,
    state: Mutex<State>,
}

struct State {
    /// The current file.
    work: Option<Arc<Mutex<Source>>>,
    work_name: Bytes,
    work_started: i64,
    work_finished: i64,
    records_produced: i64,
    line: VecDeque<Read>,
    next_id: u64,
    /// The read for which a pending dequeue was made.
    waits_for_queue: Option<u64>,
    /// The read for which a file thread is reading records.
    waits_for_records: Option<u64>,
    /// Whether the line is being served; the server checks it again before it stops.
    is_served: bool,
}

/// Reading ahead stops after this many bytes or records.
const AHEAD_BYTES: usize = 256 << 10;
const AHEAD_RECORDS: usize = 1024;

/// An open file, which file threads read.
struct Source {
    kind: ReaderKind,
    name: Bytes,
    open: Option<Box<dyn Work>>,
    /// The number of records read.
    num_read: u64,
    /// Records that were read but not returned.
    ahead: VecDeque<Ahead>,
}

/// An item read from a file.
enum Ahead {
    /// A record, unless the file had no more, and whether it was the last.
    Record(Option<Record>, bool),
    Failed(Status),
    NotOpened(Status),
}

impl Source {
    fn new(kind: &ReaderKind, name: &Bytes) -> Source {
        Source { kind: kind.clone(), name: name.clone(), open: None, num_read: 0, ahead: VecDeque::new() }
    }

    /// Reads some records, unless there are any. Fails if the read was cancelled; the next one continues at the same position.
    fn read_ahead(&mut self) -> Result<()> {
        let mut bytes = 0;
        while self.ahead.is_empty() || (bytes < AHEAD_BYTES && self.ahead.len() < AHEAD_RECORDS) {
            let found = self.read();
            if check_interrupt().is_err() && !matches!(found, Ahead::Record(Some(_), _)) {
                self.open = None;
                return check_interrupt();
            }
            let is_last = match &found {
                Ahead::Record(record, at_end) => {
                    self.num_read += u64::from(record.is_some());
                    bytes += record.as_ref().map_or(0, |(_, value)| value.len());
                    *at_end
                }
                Ahead::Failed(_) | Ahead::NotOpened(_) => true,
            };
            self.ahead.push_back(found);
            if is_last {
                break;
            }
            check_interrupt()?;
        }
        Ok(())
    }

    fn read(&mut self) -> Ahead {
        let open = match &mut self.open {
            Some(open) => open,
            None => match self.reopened() {
                Ok(open) => self.open.insert(open),
                Err(status) => return Ahead::NotOpened(status),
            },
        };
        match open.next() {
            Ok((record, at_end)) => Ahead::Record(record, at_end),
            Err(status) => Ahead::Failed(status),
        }
    }

    /// Opens the file and skips the records that were read before.
    fn reopened(&self) -> Result<Box<dyn Work>> {
        let mut open = self.kind.open(&self.name)?;
        for _ in 0..self.num_read {
            open.next()?;
        }
        Ok(open)
    }
}

/// The amount that a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// One record.
    One,
    /// The remaining records of the file, up to this number.
    UpTo(usize),
}

type Record = (Bytes, Bytes);

struct Read {
    id: u64,
    amount: Amount,
    queue: Arc<Queue>,
    records: Vec<Record>,
    context: AsyncContext,
    token: Option<CancellationToken>,
}

enum Progress {
    Done(Result<()>),
    NeedsWork,
    NeedsRecords(Arc<Mutex<Source>>),
}

/// A reader's state between two files, in serialized form.
#[derive(Clone, PartialEq, Message)]
struct ReaderBaseState {
    #[prost(int64, tag = "1")]
    work_started: i64,
    #[prost(int64, tag = "2")]
    work_finished: i64,
    #[prost(int64, tag = "3")]
    num_records_produced: i64,
    #[prost(bytes = "bytes", tag = "4")]
    current_work: Bytes,
}

impl Reader {
    pub(super) fn new(name: &str, kind: ReaderKind) -> Reader {
        let state = State {
            work: None,
            work_name: Bytes::new(),
            work_started: 0,
            work_finished: 0,
            records_produced: 0,
            line: VecDeque::new(),
            next_id: 0,
            waits_for_queue: None,
            waits_for_records: None,
            is_served: false,
        };
        Reader { name: name.to_owned(), kind, state: Mutex::new(state) }
    }

    pub(super) fn kind(&self) -> &ReaderKind {
        &self.kind
    }

    /// Reads records, which become the node's outputs.
    pub(super) fn read(self: &Arc<Self>, context: AsyncContext, queue: Arc<Queue>, amount: Amount) {
        let cancellation = context.step().cancellation.clone();
        let id = {
            let mut state = self.state.lock();
            let id = state.next_id;
            state.next_id += 1;
            state.line.push_back(Read { id, amount, queue, records: Vec::new(), context, token: None });
            id
        };
        self.serve();
        let mut given_up = None;
        {
            let mut state = self.state.lock();
            if let Some(position) = state.position(id) {
                let reader = Arc::downgrade(self);
                let registered = cancellation.register(move |_| {
                    if let Some(reader) = reader.upgrade() {
                        reader.cancel(id);
                    }
                });
                match registered {
                    Ok(token) => state.line[position].token = Some(token),
                    Err(_) => given_up = state.line.remove(position),
                }
            }
        }
        if let Some(read) = given_up {
            read.finish(Err(cancelled()));
        }
    }

    /// Returns the number of records read.
    pub(super) fn records_produced(&self) -> i64 {
        self.state.lock().records_produced
    }

    /// Returns the number of completely read files.
    pub(super) fn work_finished(&self) -> i64 {
        self.state.lock().work_finished
    }

    /// Resets the state to that of a new reader.
    pub(super) fn reset(&self) {
        let mut state = self.state.lock();
        state.work = None;
        state.work_name = Bytes::new();
        state.work_started = 0;
        state.work_finished = 0;
        state.records_produced = 0;
    }

    /// Returns the state for [`restore`](Reader::restore).
    pub(super) fn serialize(&self) -> Result<Bytes> {
        if !self.kind.can_save() {
            return Err(Status::unimplemented("Reader SerializeState"));
        }
        let state = self.state.lock();
        let saved = ReaderBaseState {
            work_started: state.work_started,
            work_finished: state.work_finished,
            num_records_produced: state.records_produced,
            current_work: state.work_name.clone(),
        };
        Ok(saved.encode_to_vec().into())
    }

    /// Restores a saved state.
    pub(super) fn restore(&self, saved: &[u8]) -> Result<()> {
        if !self.kind.can_save() {
            return Err(Status::unimplemented("Reader RestoreState"));
        }
        let parsed = ReaderBaseState::decode(saved).map_err(|_| {
            Status::invalid_argument(format!("Could not parse state for {} '{}'", self.kind.name(), self.name))
        })?;
        for (value, what) in [
            (parsed.work_started, "started"),
            (parsed.work_finished, "finished"),
            (parsed.num_records_produced, "num records"),
        ] {
            if value < 0 {
                return Err(Status::invalid_argument(format!(
                    "Unexpected negative value when restoring in reader '{}': {what}",
                    self.name
                )));
            }
        }
        if parsed.work_started < parsed.work_finished {
            return Err(Status::invalid_argument(format!(
                "Inconsistent work started vs. finished when restoring in reader '{}'",
                self.name
            )));
        }
        let work = match parsed.work_started > parsed.work_finished {
            true => Some(Arc::new(Mutex::new(Source::new(&self.kind, &parsed.current_work)))),
            false => None,
        };
        let mut state = self.state.lock();
        state.work = work;
        state.work_started = parsed.work_started;
        state.work_finished = parsed.work_finished;
        state.records_produced = parsed.num_records_produced;
        state.work_name = parsed.current_work;
        Ok(())
    }

    /// Serves the line as far as possible.
    fn serve(self: &Arc<Self>) {
        let mut finished = Vec::new();
        let mut state = self.state.lock();
        if state.is_served {
            return;
        }
        state.is_served = true;
        while state.waits_for_queue.is_none()
            && state.waits_for_records.is_none()
            && let Some(mut read) = state.line.pop_front()
        {
            match state.advance(&mut read) {
                Progress::Done(result) => finished.push((read, result)),
                Progress::NeedsWork => {
                    let (id, queue, step) = (read.id, read.queue.clone(), read.context.step().clone());
                    state.waits_for_queue = Some(id);
                    state.line.push_front(read);
                    drop(state);
                    self.ask_for_work(id, &queue, step);
                    state = self.state.lock();
                }
                Progress::NeedsRecords(source) => {
                    let (id, step) = (read.id, read.context.step().clone());
                    state.waits_for_records = Some(id);
                    state.line.push_front(read);
                    drop(state);
                    self.ask_for_records(id, source, &step);
                    state = self.state.lock();
                }
            }
        }
        state.is_served = false;
        drop(state);
        // The receiver of the records may return at once, so no lock is held here.
        for (read, result) in finished {
            read.finish(result);
        }
    }

    fn ask_for_work(self: &Arc<Self>, id: u64, queue: &Arc<Queue>, step: Arc<Step>) {
        if queue.options().dtypes != [DType::String] {
            let message = match queue.options().dtypes.len() {
                1 => "Expected queue with single string component",
                _ => "Expected single component queue",
            };
            return self.given_work(id, Err(Status::invalid_argument(message)));
        }
        let answer = Box::new(Answer { reader: self.clone(), id });
        let outputs: Outputs = std::iter::once(Value::None).collect();
        let frame = FrameAndIteration::default();
        let name: Arc<str> = self.name.as_str().into();
        queue.dequeue(AsyncContext::new(Values::new(), outputs, step, name, frame, false, answer), DequeueMode::One, 1);
    }

    fn ask_for_records(self: &Arc<Self>, id: u64, source: Arc<Mutex<Source>>, step: &Step) {
        let reader = self.clone();
        let read = move || source.lock().read_ahead();
        let done = move |result| reader.given_records(id, result);
        match self.kind {
            // That isn't a file name.
            ReaderKind::Identity => done(read()),
            _ => run_io(step, &self.name, read, done),
        }
    }

    fn given_records(self: &Arc<Self>, id: u64, result: Result<()>) {
        let failed = {
            let mut state = self.state.lock();
            state.waits_for_records = None;
            result.err().and_then(|status| {
                let read = state.position(id).and_then(|at| state.line.remove(at));
                read.map(|read| (read, status))
            })
        };
        if let Some((read, status)) = failed {
            read.finish(Err(status));
        }
        self.serve();
    }

    fn given_work(self: &Arc<Self>, id: u64, answer: Result<Tensor>) {
        let failed = {
            let mut state = self.state.lock();
            state.waits_for_queue = None;
            match answer.and_then(|name| self.start_work(&mut state, &name)) {
                Ok(()) => None,
                // The read that dequeued may have been cancelled; then the next one dequeues for itself.
                Err(status) => state.position(id).and_then(|at| state.line.remove(at)).map(|read| (read, status)),
            }
        };
        if let Some((read, status)) = failed {
            read.finish(Err(status));
        }
        self.serve();
    }

    fn start_work(&self, state: &mut State, name: &Tensor) -> Result<()> {
        let [name] = name.strings()? else {
            return Err(Status::invalid_argument("Expected to dequeue a one-element string tensor"));
        };
        state.work_started += 1;
        state.work_name = name.clone();
        state.work = Some(Arc::new(Mutex::new(Source::new(&self.kind, name))));
        Ok(())
    }

    fn cancel(self: &Arc<Self>, id: u64) {
        let read = {
            let mut state = self.state.lock();
            // The queue notifies the one that waits there, and the file threads do the same.
            if state.waits_for_queue == Some(id) || state.waits_for_records == Some(id) {
                return;
            }
            state.position(id).and_then(|position| state.line.remove(position))
        };
        if let Some(read) = read {
            read.finish(Err(cancelled()));
        }
    }
}

impl State {
    fn position(&self, id: u64) -> Option<usize> {
        self.line.iter().position(|read| read.id == id)
    }

    /// Reads as much as a read wants, as far as the file goes.
    fn advance(&mut self, read: &mut Read) -> Progress {
        let wanted = match read.amount {
            Amount::One => 1,
            Amount::UpTo(count) => count,
        };
        while read.records.len() < wanted {
            let Some(work) = &self.work else {
                // Records are not held back for the next file.
                return if read.records.is_empty() { Progress::NeedsWork } else { Progress::Done(Ok(())) };
            };
            // A cancelled read may still be in progress; then nothing is read ahead yet.
            let ahead = work.try_lock().and_then(|mut source| source.ahead.pop_front());
            let (record, at_end) = match ahead {
                Some(Ahead::Record(record, at_end)) => (record, at_end),
                Some(Ahead::Failed(status)) => return Progress::Done(Err(status)),
                Some(Ahead::NotOpened(status)) => {
                    self.work = None;
                    self.work_finished = self.work_started;
                    return Progress::Done(Err(status));
                }
                None => return Progress::NeedsRecords(work.clone()),
            };
            if let Some(record) = record {
                self.records_produced += 1;
                read.records.push(record);
            }
            if at_end {
                self.work = None;
                self.work_finished = self.work_started;
            }
        }
        Progress::Done(Ok(()))
    }
}

impl Read {
    fn finish(self, result: Result<()>) {
        let Read { amount, records, context, token, .. } = self;
        if let Some(token) = token {
            context.step().cancellation.deregister(token);
        }
        context.finish_with(|context| {
            result?;
            let shape = match amount {
                Amount::One => Shape::scalar(),
                Amount::UpTo(_) => Shape::vector(records.len()),
            };
            let (keys, values) = records.into_iter().unzip();
            context.set_output(0, Tensor::from_strings(shape.clone(), keys)?);
            context.set_output(1, Tensor::from_strings(shape, values)?);
            Ok(())
        });
    }
}

/// Passes the queue's answer to the reader.
struct Answer {
    reader: Arc<Reader>,
    id: u64,
}

impl Completion for Answer {
    fn complete(self: Box<Self>, result: Result<Outputs>) {
        let name = result.and_then(|outputs| match outputs.into_iter().next() {
            Some(Value::Tensor(name)) => Ok(name),
            _ => Err(Status::internal("the queue gave no work")),
        });
        self.reader.given_work(self.id, name);
    }
}

fn cancelled() -> Status {
    Status::cancelled("Read operation was cancelled")
}

impl Resource for Reader {
    fn type_name(&self) -> &'static str {
        "N10tensorflow15ReaderInterfaceE"
    }

    fn describe(&self) -> String {
        format!("{} that has read {} records", self.kind.name(), self.records_produced())
    }
}
