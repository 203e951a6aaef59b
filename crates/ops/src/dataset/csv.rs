//! CSVDataset in its versions: the records of files of comma-separated values.

use super::base::{Dataset, DatasetIterator, Element, Nesting, Next, argument, dataset_kernel, dataset_op, ready};
use super::position::{Position, Restoring, Saving};
use super::task::with_files;
use crate::file_access::file_system;
use crate::parsing::FromText;
use bytes::Bytes;
use kernel::{KernelBuilder, KernelDef, Op, OpContext, OpFlags, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::Arc;
use storage::record::CompressionType;
use storage::stream::{ByteStream, open_stream, stream_status};
use tensor::{DType, Result, Status, Tensor, check_interrupt};

/// Reading ahead stops after this many bytes or records.
const AHEAD_BYTES: usize = 256 << 10;
const AHEAD_RECORDS: usize = 256;

/// The most bytes of a file that are read at once.
const MAX_BUFFER_BYTES: i64 = 64 << 20;

const INPUTS: [&str; 9] = [
    "filenames: string",
    "compression_type: string",
    "buffer_size: int64",
    "header: bool",
    "field_delim: string",
    "use_quote_delim: bool",
    "na_value: string",
    "select_cols: int64",
    "record_defaults: output_types",
];
const ATTRS: &[&str] =
    &["output_types: list({float, double, int32, int64, string}) >= 1", "output_shapes: list(shape) >= 1"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op("CSVDataset", &INPUTS, ATTRS, OpFlags::STATEFUL, KERNELS),
    dataset_op(
        "CSVDatasetV2",
        &[
            INPUTS[0],
            INPUTS[1],
            INPUTS[2],
            INPUTS[3],
            INPUTS[4],
            INPUTS[5],
            INPUTS[6],
            INPUTS[7],
            INPUTS[8],
            "exclude_cols: int64",
        ],
        ATTRS,
        OpFlags::STATEFUL,
        KERNELS,
    ),
    dataset_op("ExperimentalCSVDataset", &INPUTS, ATTRS, OpFlags::STATEFUL, KERNELS),
];

const KERNELS: &[KernelDef] = &[KernelDef::any(|builder: &KernelBuilder<'_>| {
    let dtypes = builder.attrs().dtypes("output_types")?;
    let defaults = builder.input_range("record_defaults")?;
    dataset_kernel(move |context| {
        let excluded = if context.num_inputs() > defaults.end {
            columns(context, defaults.end, "exclude_cols")?
        } else {
            Vec::new()
        };
        let selected = columns(context, 7, "select_cols")?;
        if !selected.is_empty() && selected.len() != dtypes.len() {
            return Err(Status::invalid_argument("select_cols should match output size"));
        }
        if !selected.is_empty() && !excluded.is_empty() {
            return Err(Status::invalid_argument("Either select_cols or exclude_cols should be empty"));
        }
        let delimiter: Bytes = text(context, 4, "field_delim")?;
        let &[delimiter] = &delimiter[..] else {
            return Err(Status::invalid_argument("field_delim should be only 1 char"));
        };
        let fields = defaults.clone().zip(&dtypes).enumerate();
        let fields = fields.map(|(index, (input, &dtype))| field(context.input(input)?, index, dtype));
        let buffer_bytes = match argument::<i64>(context, 2, "buffer_size")? {
            bytes if bytes > 0 => bytes.min(MAX_BUFFER_BYTES) as usize,
            _ => return Err(Status::invalid_argument("buffer_size should be positive")),
        };
        Ok(Csv(Arc::new(Format {
            fields: fields.collect::<Result<_>>()?,
            files: file_names(context)?,
            compression: CompressionType::from_name(&String::from_utf8_lossy(&text(context, 1, "compression_type")?))?,
            buffer_bytes,
            has_header: argument(context, 3, "header")?,
            delimiter,
            uses_quotes: argument(context, 5, "use_quote_delim")?,
            missing: text(context, 6, "na_value")?,
            selected,
            excluded,
        })))
    })
})];

fn file_names(context: &OpContext<'_>) -> Result<Vec<String>> {
    let names = context.input(0)?;
    if names.shape().rank() > 1 {
        return Err(Status::invalid_argument("`filenames` must be a scalar or a vector."));
    }
    Ok(names.strings()?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

fn text(context: &OpContext<'_>, index: usize, name: &str) -> Result<Bytes> {
    match context.input(index)?.strings()? {
        [text] => Ok(text.clone()),
        _ => Err(Status::invalid_argument(format!("{name} must be a scalar"))),
    }
}

/// Returns the column numbers, which must be sorted.
fn columns(context: &OpContext<'_>, index: usize, name: &str) -> Result<Vec<usize>> {
    let input = context.input(index)?;
    if !input.shape().is_vector() {
        return Err(Status::invalid_argument(format!("`{name}` must be a vector.")));
    }
    let numbers = input.as_slice::<i64>()?;
    if numbers.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Status::invalid_argument(format!("{name} should be strictly increasing indices")));
    }
    let numbers = numbers.iter().map(|&number| usize::try_from(number));
    numbers
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Status::invalid_argument(format!("{name} should be non-negative indices")))
}

/// Returns the conversion of a column's field.
fn field(default: &Tensor, index: usize, dtype: DType) -> Result<Field> {
    if default.shape().rank() > 1 {
        return Err(Status::invalid_argument("Each record default should be at most rank 1"));
    }
    if default.num_elements() > 1 {
        return Err(Status::invalid_argument(format!(
            "There should only be 1 default per field but field {index} has {}",
            default.num_elements()
        )));
    }
    let default = if default.num_elements() == 1 { Some(default.reshape(tensor::Shape::scalar())?) } else { None };
    Ok(Field { dtype, default })
}

struct Field {
    dtype: DType,
    /// The default of a missing field; `None` if it is required.
    default: Option<Tensor>,
}

/// The files, and the options for reading them.
struct Format {
    fields: Vec<Field>,
    files: Vec<String>,
    compression: CompressionType,
    buffer_bytes: usize,
    has_header: bool,
    delimiter: u8,
    uses_quotes: bool,
    missing: Bytes,
    /// The columns to return; if empty, all except the excluded ones.
    selected: Vec<usize>,
    excluded: Vec<usize>,
}

impl Format {
    fn wants(&self, column: usize) -> bool {
        match self.selected.is_empty() {
            true => self.excluded.binary_search(&column).is_err(),
            false => self.selected.binary_search(&column).is_ok(),
        }
    }

    /// Converts a field to a tensor.
    fn convert(&self, text: &[u8], index: usize) -> Result<Tensor> {
        let Some(field) = self.fields.get(index) else {
            let count = self.fields.len();
            return Err(Status::invalid_argument(format!("Expect {count} fields but have more in record")));
        };
        if text.is_empty() || text == &self.missing[..] {
            return field
                .default
                .clone()
                .ok_or_else(|| Status::invalid_argument(format!("Field {index} is required but missing in record!")));
        }
        let number = match field.dtype {
            DType::Int32 => i32::from_text(text).map(Tensor::scalar),
            DType::Int64 => i64::from_text(text).map(Tensor::scalar),
            DType::Float => f32::from_text(text).map(Tensor::scalar),
            DType::Double => f64::from_text(text).map(Tensor::scalar),
            _ => Some(Tensor::string(Bytes::copy_from_slice(text))),
        };
        number.ok_or_else(|| {
            let text = String::from_utf8_lossy(text);
            Status::invalid_argument(format!("Field {index} in record is not a valid {}: {text}", field.dtype))
        })
    }
}

struct Csv(Arc<Format>);

impl Dataset for Csv {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let source = Source {
            format: self.0.clone(),
            next_file: 0,
            open: None,
            num_read: 0,
            num_skipped: 0,
            ahead: VecDeque::new(),
        };
        Ok(Box::new(CsvIterator { source: Arc::new(Mutex::new(source)) }))
    }
}

/// Reads ahead on a file thread, and returns records on request.
struct CsvIterator {
    source: Arc<Mutex<Source>>,
}

struct Source {
    format: Arc<Format>,
    next_file: usize,
    open: Option<Records>,
    /// The number of records read from the open file.
    num_read: u64,
    /// The number of records of the next file that were returned before it was closed, so that they are not returned again.
    num_skipped: u64,
    /// Records that were read but not returned; nothing follows a `None`.
    ahead: VecDeque<Result<Option<Element>>>,
}

impl Source {
    /// Reads some records, unless there are any.
    fn read_ahead(&mut self) -> Result<()> {
        let mut bytes = 0;
        while self.ahead.is_empty() || (bytes < AHEAD_BYTES && self.ahead.len() < AHEAD_RECORDS) {
            let record = self.next_record();
            // This ends the work for a cancelled request. The next one opens the file again.
            if let Err(status) = check_interrupt() {
                if let Ok(Some(record)) = record {
                    self.ahead.push_back(Ok(Some(record)));
                } else if self.open.take().is_some() {
                    self.next_file -= 1;
                    self.num_skipped = self.num_skipped.max(self.num_read);
                }
                return Err(status);
            }
            bytes += record.as_ref().map_or(0, |record| record.as_ref().map_or(0, super::base::element_bytes));
            let is_last = matches!(record, Ok(None));
            self.ahead.push_back(record);
            if is_last {
                break;
            }
        }
        Ok(())
    }

    fn next_record(&mut self) -> Result<Option<Element>> {
        loop {
            check_interrupt()?;
            if let Some(open) = &mut self.open {
                let record = open.next(&self.format);
                // An invalid record doesn't end the dataset: the next one may be valid.
                let is_record = !matches!(record, Ok(None));
                if is_record && check_interrupt().is_ok() {
                    self.num_read += 1;
                    if self.num_read <= self.num_skipped {
                        continue;
                    }
                    self.num_skipped = 0;
                }
                if is_record {
                    return record;
                }
                self.open = None;
                self.num_skipped = 0;
            }
            let Some(path) = self.format.files.get(self.next_file) else { return Ok(None) };
            let opened = Records::open(path, &self.format);
            if opened.is_err() {
                check_interrupt()?;
            }
            self.next_file += 1;
            self.num_read = 0;
            self.open = Some(opened?);
        }
    }

    /// Returns the position: the records read ahead, and the position in the current file.
    fn save(&self) -> Position {
        let is_open = self.open.is_some();
        let num_skipped = if is_open { self.num_read.max(self.num_skipped) } else { self.num_skipped };
        let position = Position::of::<Csv>().size(self.next_file - usize::from(is_open)).number(num_skipped as i64);
        self.ahead.iter().fold(position.size(self.ahead.len()), Position::result)
    }

    /// Moves to the position of an equivalent source; the records of the open file are read again when they are needed.
    fn restore(&mut self, state: SavedSource) {
        (self.next_file, self.num_skipped, self.ahead) = (state.next_file, state.num_skipped, state.ahead);
        self.open = None;
    }
}

/// The saved state of a [`Source`].
struct SavedSource {
    next_file: usize,
    num_skipped: u64,
    ahead: VecDeque<Result<Option<Element>>>,
}

impl SavedSource {
    fn read(position: &Position) -> Result<SavedSource> {
        let mut reader = position.read::<Csv>()?;
        let (next_file, num_skipped) = (reader.size()?, reader.size()? as u64);
        let ahead = (0..reader.size()?).map(|_| reader.result()).collect::<Result<_>>()?;
        Ok(SavedSource { next_file, num_skipped, ahead })
    }
}

impl DatasetIterator for CsvIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        // A cancelled request may still be reading; then nothing is read ahead yet.
        let ahead = self.source.try_lock().and_then(|mut source| source.ahead.pop_front());
        if let Some(record) = ahead {
            return ready(record);
        }
        Box::pin(async move {
            let read = |source: &mut Source| {
                source.read_ahead()?;
                Ok(source.ahead.pop_front())
            };
            with_files(step, "records of files", &self.source, read).await?.unwrap_or(Ok(None))
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(with_files(step, "records of files", &self.source, |source| Ok(source.save())))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let state = SavedSource::read(position)?;
            let restore = |source: &mut Source| {
                source.restore(state);
                Ok(())
            };
            with_files(step, "records of files", &self.source, restore).await
        })
    }
}

/// The records of a file. Quoted fields may contain line ends, so lines can't be split first.
struct Records {
    path: String,
    stream: ByteStream,
    /// The last record ended with a carriage return, to which a line feed may belong.
    ended_with_return: bool,
}

/// The reader's state within a field.
enum Place {
    Start,
    Plain,
    Quoted,
    /// After a quote within quotes: the end of the field, or the first of two quotes that stand for one.
    Quote,
}

/// The part of a record read so far.
struct Partial<'a> {
    format: &'a Format,
    element: Element,
    /// The current field.
    text: Vec<u8>,
    column: usize,
    /// The first error; the rest of the record is read nevertheless.
    mistake: Option<Status>,
    /// Whether the current field has an error, so that it is dropped.
    is_spoilt: bool,
    /// Whether the record is dropped.
    is_header: bool,
}

impl Partial<'_> {
    fn mistake(&mut self, message: &str) {
        self.mistake.get_or_insert_with(|| Status::invalid_argument(message));
    }

    fn push(&mut self, byte: u8) -> Result<()> {
        if self.text.len() >= tensor::tensor_bytes_max() {
            return Err(Status::resource_exhausted("a field of a record is larger than a tensor may be"));
        }
        self.text.push(byte);
        Ok(())
    }

    fn end_field(&mut self) {
        if !self.is_header && !self.is_spoilt && self.format.wants(self.column) {
            match self.format.convert(&self.text, self.element.len()) {
                Ok(tensor) => self.element.push(tensor),
                Err(status) => {
                    self.mistake.get_or_insert(status);
                    // It keeps its position, so that errors in later fields name the right one.
                    self.element.push(Tensor::scalar(false));
                }
            }
        }
        self.text.clear();
        self.is_spoilt = false;
        self.column += 1;
    }
}

impl Records {
    fn open(path: &str, format: &Format) -> Result<Records> {
        let stream = open_stream(file_system().open(path)?, format.compression, format.buffer_bytes);
        let mut records = Records { path: path.to_owned(), stream, ended_with_return: false };
        if format.has_header {
            match records.read(format, true) {
                Ok(Some(_)) => {}
                other => {
                    check_interrupt()?;
                    drop(other);
                    return Err(Status::invalid_argument("Can't read header of file"));
                }
            }
        }
        Ok(records)
    }

    /// Returns the next record, or nothing at the end of the file.
    fn next(&mut self, format: &Format) -> Result<Option<Element>> {
        let Some(element) = self.read(format, false)? else { return Ok(None) };
        let (expected, found) = (format.fields.len(), element.len());
        if expected != found {
            return Err(Status::invalid_argument(format!("Expect {expected} fields but have {found} in record")));
        }
        Ok(Some(element))
    }

    fn read(&mut self, format: &Format, is_header: bool) -> Result<Option<Element>> {
        let mut record = Partial {
            format,
            element: Vec::with_capacity(format.fields.len()),
            text: Vec::new(),
            column: 0,
            mistake: None,
            is_spoilt: false,
            is_header,
        };
        let mut place = Place::Start;
        let mut is_empty = true;
        'record: loop {
            check_interrupt()?;
            let chunk = self.stream.fill_buf().map_err(|error| stream_status(&self.path, &error))?;
            if chunk.is_empty() {
                if is_empty {
                    return Ok(None);
                }
                match place {
                    Place::Quoted => record.mistake("Reached end of file without closing quoted field in record"),
                    _ => record.end_field(),
                }
                break 'record;
            }
            let mut used = 0;
            for &byte in chunk {
                used += 1;
                if std::mem::take(&mut self.ended_with_return) && byte == b'\n' {
                    continue;
                }
                is_empty = false;
                let ends_line = matches!(byte, b'\n' | b'\r');
                match place {
                    Place::Start if format.uses_quotes && byte == b'"' => place = Place::Quoted,
                    Place::Start | Place::Plain if byte == format.delimiter => {
                        record.end_field();
                        place = Place::Start;
                    }
                    Place::Start | Place::Plain if ends_line => {
                        record.end_field();
                        self.ended_with_return = byte == b'\r';
                        self.stream.consume(used);
                        break 'record;
                    }
                    Place::Start | Place::Plain => {
                        if format.uses_quotes && byte == b'"' {
                            record.mistake("Unquoted fields cannot have quotes inside");
                        }
                        record.push(byte)?;
                        place = Place::Plain;
                    }
                    Place::Quoted if byte == b'"' => place = Place::Quote,
                    Place::Quoted => record.push(byte)?,
                    Place::Quote if byte == format.delimiter => {
                        record.end_field();
                        place = Place::Start;
                    }
                    Place::Quote if ends_line => {
                        record.end_field();
                        self.ended_with_return = byte == b'\r';
                        self.stream.consume(used);
                        break 'record;
                    }
                    Place::Quote => {
                        if byte != b'"' {
                            record.mistake("Quote inside a string has to be escaped by another quote");
                            record.is_spoilt = true;
                        }
                        record.push(byte)?;
                        place = Place::Quoted;
                    }
                }
            }
            self.stream.consume(used);
        }
        match record.mistake {
            Some(status) => Err(status),
            None => Ok(Some(record.element)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(files: Vec<String>) -> Format {
        let field = |dtype, default| Field { dtype, default };
        Format {
            fields: vec![field(DType::Int32, None), field(DType::String, Some(Tensor::string("d")))],
            files,
            compression: CompressionType::None,
            buffer_bytes: 3,
            has_header: true,
            delimiter: b',',
            uses_quotes: true,
            missing: Bytes::from_static(b"NA"),
            selected: Vec::new(),
            excluded: Vec::new(),
        }
    }

    /// An invalid record affects no others, and a position saved in the middle of a file continues there.
    #[test]
    fn records_come_one_by_one_and_go_on_where_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.csv");
        std::fs::write(&path, "h,\"i\nj\"\r\n1,\"a\"\"b,\nc\"\r\nx,y\r2,NA\n3,\"q\"r\"\n4,\n5,z").unwrap();
        let csv = Csv(Arc::new(format(vec![path.to_str().unwrap().to_owned()])));
        let source = |csv: &Csv| Source {
            format: csv.0.clone(),
            next_file: 0,
            open: None,
            num_read: 0,
            num_skipped: 0,
            ahead: VecDeque::new(),
        };
        let show = |record: Result<Option<Element>>| match record {
            Ok(Some(element)) => {
                let text = String::from_utf8_lossy(&element[1].strings().unwrap()[0]).into_owned();
                format!("{} {text}", element[0].to_scalar::<i32>().unwrap())
            }
            Ok(None) => "end".to_owned(),
            Err(status) => status.message().to_owned(),
        };
        let expected = [
            "1 a\"b,\nc",
            "Field 0 in record is not a valid int32: x",
            "2 d",
            "Quote inside a string has to be escaped by another quote",
            "4 d",
            "5 z",
            "end",
        ];
        for split in 0..expected.len() {
            let mut first = source(&csv);
            let mut found: Vec<String> = (0..split).map(|_| show(first.next_record())).collect();
            let saved = SavedSource::read(&first.save()).unwrap();
            let mut second = source(&csv);
            second.restore(saved);
            found.extend((split..expected.len()).map(|_| show(second.next_record())));
            assert_eq!(found, expected, "saved after {split}");
        }
    }
}
