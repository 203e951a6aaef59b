//! Initialization of tables: InitializeTable, InitializeTableFromTextFile, by ref and by resource.

use super::table::Table;
use crate::file_access::Lines;
use crate::parsing::FromText;
use bytes::Bytes;
use graph::{Operation, Output};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use storage::record::CompressionType;
use tensor::{DType, Element, Result, Shape, Status, Tensor};

const STRINGS: &str = "table_handle: Ref(string)";
const RESOURCE: &str = "table_handle: resource";
const TYPES: &[&str] = &["Tkey: type", "Tval: type"];
const COLUMNS: &[&str] = &[
    "key_index: int >= -2",
    "value_index: int >= -2",
    "vocab_size: int >= -1 = -1",
    "delimiter: string = '\\011'",
    "offset: int = 0",
];
const FROM_TENSORS: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(InitializeTable))];
const FROM_TEXT: &[KernelDef] = &[KernelDef::any(InitializeFromText::create)];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    initializer("InitializeTable", &[STRINGS, "keys: Tkey", "values: Tval"], TYPES, OpFlags::NONE, FROM_TENSORS),
    initializer("InitializeTableV2", &[RESOURCE, "keys: Tkey", "values: Tval"], TYPES, OpFlags::STATEFUL, FROM_TENSORS),
    initializer("InitializeTableFromTextFile", &[STRINGS, "filename: string"], COLUMNS, OpFlags::NONE, FROM_TEXT),
    initializer(
        "InitializeTableFromTextFileV2",
        &[RESOURCE, "filename: string"],
        COLUMNS,
        OpFlags::STATEFUL,
        FROM_TEXT,
    ),
];

const fn initializer(
    name: &'static str,
    inputs: &'static [&'static str],
    attrs: &'static [&'static str],
    flags: OpFlags,
    kernels: &'static [KernelDef],
) -> Op {
    Op {
        def: OpDef { name, inputs, outputs: &[], attrs, flags },
        shape: initialize_shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

/// Initializes a table.
#[track_caller]
pub fn initialize_table(table: &Output, keys: &Output, values: &Output) -> Operation {
    table.graph().op("InitializeTableV2").input(table).input(keys).input(values).build()
}

/// Initializes a table from the lines of a file: one of keys and values is the line, and the other its number.
///
/// `key_index` and `value_index` are columns; -1 stands for the line's number and -2 for the whole line.
#[track_caller]
pub fn initialize_table_from_text_file(
    table: &Output,
    filename: &Output,
    key_index: i64,
    value_index: i64,
) -> Operation {
    let op = table.graph().op("InitializeTableFromTextFileV2").input(table).input(filename);
    op.attr("key_index", key_index).attr("value_index", value_index).build()
}

fn initialize_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.num_inputs() == 3 {
        let keys = c.with_rank(1, 1)?;
        keys.merge(&c.input(2))?;
    } else {
        c.with_rank(1, 0)?;
    }
    Ok(())
}

struct InitializeTable;

impl Kernel for InitializeTable {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let table = context.resource::<Table>(0)?;
        let (keys, values) = (context.input(1)?, context.input(2)?);
        let spec = table.spec();
        for (what, have, expected) in
            [("Key", keys.dtype(), spec.key_dtype), ("Value", values.dtype(), spec.value_dtype)]
        {
            if have != expected {
                return Err(Status::invalid_argument(format!("{what} must be type {expected} but got {have}")));
            }
        }
        if keys.num_elements() != values.num_elements() {
            return Err(Status::invalid_argument(format!(
                "Keys and values must have the same size {} vs {}",
                keys.num_elements(),
                values.num_elements()
            )));
        }
        table.initialize(keys, values)
    }
}

/// The position of a key or value in a line.
#[derive(Clone, Copy)]
enum Place {
    LineNumber,
    WholeLine,
    Column(usize),
}

struct InitializeFromText {
    key: Place,
    value: Place,
    /// The number of lines to read; fewer in the file are an error.
    vocabulary: Option<usize>,
    delimiter: u8,
    offset: i64,
}

impl InitializeFromText {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let place = |name: &str| {
            Ok(match attrs.int(name)? {
                -1 => Place::LineNumber,
                -2 => Place::WholeLine,
                column => Place::Column(
                    usize::try_from(column)
                        .map_err(|_| Status::invalid_argument(format!("{name} must be at least -2, got {column}")))?,
                ),
            })
        };
        let &[delimiter] = &attrs.bytes("delimiter")?[..] else {
            return Err(Status::invalid_argument("delimiter should be only 1 char"));
        };
        let vocabulary = usize::try_from(attrs.int("vocab_size")?).ok();
        BoxedKernel::new_blocking(InitializeFromText {
            key: place("key_index")?,
            value: place("value_index")?,
            vocabulary,
            delimiter,
            offset: attrs.int("offset").unwrap_or(0),
        })
    }
}

impl InitializeFromText {
    /// Fails if a line or its number doesn't have the table's type.
    fn check_types(&self, key: DType, value: DType) -> Result<()> {
        for (what, name, place, dtype) in [("Key", "key", self.key, key), ("Value", "value", self.value, value)] {
            if matches!(place, Place::LineNumber) && dtype != DType::Int64 {
                return Err(Status::invalid_argument(format!(
                    "{what} index for line number requires table {name} dtype of int64, got {dtype}"
                )));
            }
        }
        Ok(())
    }
}

impl Kernel for InitializeFromText {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        const BUFFER_BYTES: usize = 256 << 10;
        let table = context.resource::<Table>(0)?;
        let filename = context.input(1)?;
        let [path] = filename.strings()? else {
            return Err(Status::invalid_argument(format!(
                "filename should be a single string, but got {}",
                filename.shape()
            )));
        };
        let path = String::from_utf8_lossy(path).into_owned();
        self.check_types(table.spec().key_dtype, table.spec().value_dtype)?;
        let mut lines = Lines::open(&path, CompressionType::None, BUFFER_BYTES)?;
        let (mut keys, mut values) = (Column::new(table.spec().key_dtype)?, Column::new(table.spec().value_dtype)?);
        let mut number = 0;
        while self.vocabulary.is_none_or(|count| number < count) {
            let Some(line) = lines.next_line()? else { break };
            if line.is_empty() {
                return Err(Status::invalid_argument(format!(
                    "Invalid content in {path}: empty line found at position {}.",
                    lines.position()
                )));
            }
            keys.push(self, &line, self.key, number, &path)?;
            values.push(self, &line, self.value, number, &path)?;
            number += 1;
        }
        if self.vocabulary.is_none() && number == 0 {
            return Err(Status::out_of_range("Read less bytes than requested"));
        }
        if let Some(expected) = self.vocabulary
            && number < expected
        {
            return Err(Status::invalid_argument(format!(
                "Invalid vocab_size in {path}: expected {expected} but got {number}"
            )));
        }
        table.initialize(&keys.into_tensor()?, &values.into_tensor()?)
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

enum Column {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Text(Vec<Bytes>),
}

impl Column {
    fn new(dtype: DType) -> Result<Column> {
        Ok(match dtype {
            DType::Int32 => Column::Int32(Vec::new()),
            DType::Int64 => Column::Int64(Vec::new()),
            DType::Float => Column::Float(Vec::new()),
            DType::Double => Column::Double(Vec::new()),
            DType::String => Column::Text(Vec::new()),
            other => return Err(Status::invalid_argument(format!("Data type {other} not supported."))),
        })
    }

    fn push(
        &mut self,
        options: &InitializeFromText,
        line: &Bytes,
        place: Place,
        number: usize,
        path: &str,
    ) -> Result<()> {
        let counted;
        let text: &[u8] = match place {
            Place::WholeLine => line,
            Place::LineNumber => {
                counted = (number as i64).saturating_add(options.offset).to_string();
                counted.as_bytes()
            }
            Place::Column(column) => line.split(|&byte| byte == options.delimiter).nth(column).ok_or_else(|| {
                Status::invalid_argument(format!(
                    "Invalid number of columns in {path} line {number} ({}) : expected at least {} got {}",
                    String::from_utf8_lossy(line),
                    column + 1,
                    line.split(|&byte| byte == options.delimiter).count()
                ))
            })?,
        };
        fn number_in<T: FromText + Element>(text: &[u8], line: usize) -> Result<T> {
            T::from_text(text).ok_or_else(|| {
                let text = String::from_utf8_lossy(text);
                Status::invalid_argument(format!("Field {text} in line {line} is not a valid {}.", T::DTYPE))
            })
        }
        match self {
            Column::Int32(values) => values.push(number_in(text, number)?),
            Column::Int64(values) => values.push(number_in(text, number)?),
            Column::Float(values) => values.push(number_in(text, number)?),
            Column::Double(values) => values.push(number_in(text, number)?),
            Column::Text(values) => values.push(Bytes::copy_from_slice(text)),
        }
        Ok(())
    }

    fn into_tensor(self) -> Result<Tensor> {
        Ok(match self {
            Column::Int32(values) => Tensor::vector(&values),
            Column::Int64(values) => Tensor::vector(&values),
            Column::Float(values) => Tensor::vector(&values),
            Column::Double(values) => Tensor::vector(&values),
            Column::Text(values) => Tensor::from_strings(Shape::vector(values.len()), values)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{hash_table, lookup_table_export};
    use super::*;
    use crate::testing::TestSession;

    /// Initializes a table from a file, and returns its keys and values.
    fn fill(content: &str, types: (DType, DType), places: (i64, i64), vocabulary: i64) -> Result<(Tensor, Tensor)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("v.txt");
        std::fs::write(&path, content).unwrap();
        let session = TestSession::new();
        let table = hash_table(&session.graph, types.0, types.1, "");
        let name = session.graph.constant_tensor(&Tensor::string(path.to_str().unwrap().to_owned()));
        let op = session.graph.op("InitializeTableFromTextFileV2").input(&table).input(&name);
        let op = op.attr("key_index", places.0).attr("value_index", places.1).attr("vocab_size", vocabulary).build();
        session.run(&op, &[])?;
        let (keys, values) = lookup_table_export(&table, types.0, types.1);
        Ok((session.fetch(&keys, &[])?, session.fetch(&values, &[])?))
    }

    #[test]
    fn lines_and_their_numbers() {
        let (keys, values) = fill("a\nb\nc\n", (DType::String, DType::Int64), (-2, -1), -1).unwrap();
        assert_eq!(keys.strings().unwrap(), &["a", "b", "c"]);
        assert_eq!(values.as_slice::<i64>().unwrap(), &[0, 1, 2]);
        let (keys, _) = fill("a\nb\nc\n", (DType::String, DType::Int64), (-2, -1), 2).unwrap();
        assert_eq!(keys.dims(), &[2]);
        let (_, values) = fill("a\nb\n", (DType::Int64, DType::String), (-1, -2), -1).unwrap();
        assert_eq!(values.strings().unwrap(), &["a", "b"]);
        let (_, values) = fill("a\t10\nb\t20\n", (DType::String, DType::Float), (0, 1), -1).unwrap();
        assert_eq!(values.as_slice::<f32>().unwrap(), &[10., 20.]);
    }

    #[test]
    fn mistakes_read_as_tensorflow_writes_them() {
        let message = |content: &str, types, places, vocabulary| {
            fill(content, types, places, vocabulary).unwrap_err().message().to_owned()
        };
        let text = (DType::String, DType::Int64);
        assert!(message("a\t10\n", text, (0, 2), -1).contains("line 0 (a\t10) : expected at least 3 got 2"));
        assert!(message("a\n", text, (-2, -1), 9).contains(": expected 9 but got 1"));
        let numbers = (DType::Int64, DType::Int64);
        assert!(message("a\n", numbers, (-2, -1), -1).starts_with("Field a in line 0 is not a valid int64."));
    }
}
