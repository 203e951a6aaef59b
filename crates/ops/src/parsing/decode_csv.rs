//! Comma-separated values: DecodeCSV.

use super::number::FromText;
use bytes::Bytes;
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use tensor::{DType, Element, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "DecodeCSV",
        inputs: &["records: string", "record_defaults: OUT_TYPE"],
        outputs: &["output: OUT_TYPE"],
        attrs: &[
            "OUT_TYPE: list({float, double, int32, int64, string}) >= 1",
            "field_delim: string = ','",
            "use_quote_delim: bool = true",
            "na_value: string = ''",
            "select_cols: list(int) = []",
        ],
        flags: OpFlags::NONE,
    },
    shape: decode_csv_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(DecodeCsv::create)],
}];

/// Splits lines at commas; each field becomes a tensor with the lines' shape and its default's type. An empty default means that
/// the field is required.
#[track_caller]
pub fn decode_csv(records: &Output, record_defaults: &[Output]) -> Vec<Output> {
    records.graph().op("DecodeCSV").input(records).inputs(record_defaults).outputs()
}

fn decode_csv_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 1..c.num_inputs() {
        let default = c.with_rank_at_most(index, 1)?;
        if default.num_elements().is_some_and(|count| count > 1) {
            return Err(Status::invalid_argument(
                "Shape of a default must be a length-0 or length-1 vector, or a scalar.",
            ));
        }
    }
    for index in 0..c.num_outputs() {
        c.set_output(index, c.input(0));
    }
    Ok(())
}

struct DecodeCsv {
    dtypes: Vec<DType>,
    delimiter: u8,
    uses_quotes: bool,
    missing: Bytes,
    /// The columns to return; all if empty.
    selected: Vec<usize>,
}

impl DecodeCsv {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let &[delimiter] = &attrs.bytes("field_delim")?[..] else {
            return Err(Status::invalid_argument("field_delim should be only 1 char"));
        };
        let dtypes = attrs.dtypes("OUT_TYPE")?;
        let mut selected = Vec::new();
        for &column in attrs.ints("select_cols")? {
            match usize::try_from(column) {
                Ok(column) if selected.last().is_none_or(|&last| last < column) => selected.push(column),
                _ => return Err(Status::invalid_argument("select_cols should be strictly increasing indices")),
            }
        }
        if !selected.is_empty() && selected.len() != dtypes.len() {
            return Err(Status::invalid_argument("select_cols should match output size"));
        }
        BoxedKernel::new(DecodeCsv {
            dtypes,
            delimiter,
            uses_quotes: attrs.bool("use_quote_delim")?,
            missing: attrs.bytes("na_value")?.clone(),
            selected,
        })
    }

    /// Returns the wanted fields of a line.
    fn fields<'a>(&self, line: &'a Bytes, fields: &mut Vec<Field<'a>>) -> Result<()> {
        let error = |text: &str| Err(Status::invalid_argument(text));
        fields.clear();
        if line.is_empty() {
            return Ok(());
        }
        let (mut at, mut column) = (0, 0);
        loop {
            let quoted = self.uses_quotes && line.get(at) == Some(&b'"');
            let field = if quoted {
                let mut text = Vec::new();
                at += 1;
                loop {
                    let Some(length) = line[at..].iter().position(|&byte| byte == b'"') else {
                        return error("Quoted field has to end with quote followed by delim or end");
                    };
                    text.extend_from_slice(&line[at..at + length]);
                    at += length + 1;
                    match line.get(at) {
                        Some(b'"') => {
                            text.push(b'"');
                            at += 1;
                        }
                        None => break,
                        Some(&byte) if byte == self.delimiter => break,
                        Some(_) => return error("Quote inside a string has to be escaped by another quote"),
                    }
                }
                Field::Owned(text)
            } else {
                let length = line[at..].iter().position(|&byte| byte == self.delimiter).unwrap_or(line.len() - at);
                let text = &line[at..at + length];
                if self.uses_quotes && text.iter().any(|byte| matches!(byte, b'"' | b'\r' | b'\n')) {
                    return error("Unquoted fields cannot have quotes/CRLFs inside");
                }
                at += length;
                Field::Part(text)
            };
            if self.selected.is_empty() || self.selected.get(fields.len()) == Some(&column) {
                fields.push(field);
            }
            column += 1;
            if at >= line.len() {
                return Ok(());
            }
            at += 1;
        }
    }
}

/// A field of a line.
enum Field<'a> {
    Part(&'a [u8]),
    Owned(Vec<u8>),
}

impl Field<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Field::Part(bytes) => bytes,
            Field::Owned(bytes) => bytes,
        }
    }
}

impl Kernel for DecodeCsv {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let records = context.input(0)?;
        let lines = records.strings()?;
        let defaults = context.input_list(1..context.num_inputs())?;
        for (index, default) in defaults.iter().enumerate() {
            if default.num_elements() > 1 {
                return Err(Status::invalid_argument(format!(
                    "There should only be 1 default per field but field {index} has {}",
                    default.num_elements()
                )));
            }
        }
        let count = self.dtypes.len();
        let mut columns: Vec<Column> =
            self.dtypes.iter().map(|&dtype| Column::new(dtype, lines.len())).collect::<Result<_>>()?;
        let mut fields = Vec::with_capacity(count);
        for (row, line) in lines.iter().enumerate() {
            self.fields(line, &mut fields)?;
            if fields.len() != count {
                return Err(Status::invalid_argument(format!(
                    "Expect {count} fields but have {} in record {row}",
                    fields.len()
                )));
            }
            for (index, (column, field)) in columns.iter_mut().zip(&fields).enumerate() {
                let text = field.bytes();
                let is_missing = text.is_empty() || text == &self.missing[..];
                column.push(is_missing.then_some(defaults[index]), text).map_err(|problem| {
                    Status::invalid_argument(match problem {
                        Problem::Required => format!("Field {index} is required but missing in record {row}!"),
                        Problem::Invalid => format!(
                            "Field {index} in record {row} is not a valid {}: {}",
                            self.dtypes[index],
                            String::from_utf8_lossy(text)
                        ),
                    })
                })?;
            }
        }
        let shape = records.shape().clone();
        drop(defaults);
        for (index, column) in columns.into_iter().enumerate() {
            let output = match column {
                Column::Float(values) => Tensor::from_slice(shape.dims(), &values),
                Column::Double(values) => Tensor::from_slice(shape.dims(), &values),
                Column::Int32(values) => Tensor::from_slice(shape.dims(), &values),
                Column::Int64(values) => Tensor::from_slice(shape.dims(), &values),
                Column::Text(values) => Tensor::from_strings(shape.clone(), values),
            };
            context.set_output(index, output?);
        }
        Ok(())
    }
}

enum Column {
    Float(Vec<f32>),
    Double(Vec<f64>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Text(Vec<Bytes>),
}

enum Problem {
    Required,
    Invalid,
}

impl Column {
    fn new(dtype: DType, capacity: usize) -> Result<Column> {
        Ok(match dtype {
            DType::Float => Column::Float(Vec::with_capacity(capacity)),
            DType::Double => Column::Double(Vec::with_capacity(capacity)),
            DType::Int32 => Column::Int32(Vec::with_capacity(capacity)),
            DType::Int64 => Column::Int64(Vec::with_capacity(capacity)),
            DType::String => Column::Text(Vec::with_capacity(capacity)),
            other => return Err(Status::invalid_argument(format!("csv: data type {other} not supported"))),
        })
    }

    /// Parses a field, or returns the default.
    fn push(&mut self, default: Option<&Tensor>, text: &[u8]) -> Result<(), Problem> {
        fn number<T: FromText + Element>(default: Option<&Tensor>, text: &[u8]) -> Result<T, Problem> {
            match default {
                Some(default) => {
                    default.as_slice::<T>().ok().and_then(|values| values.first().copied()).ok_or(Problem::Required)
                }
                None => T::from_text(text).ok_or(Problem::Invalid),
            }
        }
        match self {
            Column::Float(values) => values.push(number(default, text)?),
            Column::Double(values) => values.push(number(default, text)?),
            Column::Int32(values) => values.push(number(default, text)?),
            Column::Int64(values) => values.push(number(default, text)?),
            Column::Text(values) => values.push(match default {
                Some(default) => {
                    default.strings().ok().and_then(|texts| texts.first().cloned()).ok_or(Problem::Required)?
                }
                None => Bytes::copy_from_slice(text),
            }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};
    use graph::AttrMap;

    fn csv(line: &str, attrs: AttrMap) -> Result<(i32, f32, String)> {
        let defaults = [Tensor::vector(&[7i32]), Tensor::vector(&[8.5f32]), Tensor::string("d")];
        let inputs = [&[Tensor::string(line.to_owned())][..], &defaults].concat();
        let outputs = run_op("DecodeCSV", attrs, &inputs)?;
        let text = String::from_utf8_lossy(&outputs[2].strings()?[0]).into_owned();
        Ok((outputs[0].to_scalar()?, outputs[1].to_scalar()?, text))
    }

    #[test]
    fn fields() {
        for (line, expected) in [
            ("1,2.5,abc", (1, 2.5, "abc")),
            (",,", (7, 8.5, "d")),
            ("1,2,\"a\"\"b,c\"", (1, 2.0, "a\"b,c")),
            ("1 , 2 ,3 ", (1, 2.0, "3 ")),
            ("1,\"2\",\"\"", (1, 2.0, "d")),
        ] {
            let (a, b, c) = csv(line, attrs![]).unwrap();
            assert_eq!((a, b, c.as_str()), expected, "{line}");
        }
        assert_eq!(csv("NA,NA,NA", attrs![("na_value", "NA")]).unwrap(), (7, 8.5, "d".to_owned()));
        assert_eq!(csv("1;2;3", attrs![("field_delim", ";")]).unwrap().2, "3");
        assert_eq!(csv("0,1,2,3", attrs![("select_cols", &[1i64, 2, 3][..])]).unwrap(), (1, 2.0, "3".to_owned()));
    }

    #[test]
    fn mistakes_read_as_tensorflow_writes_them() {
        for (line, expected) in [
            ("1,2", "Expect 3 fields but have 2 in record 0"),
            ("1,2,3,4", "Expect 3 fields but have 4 in record 0"),
            ("", "Expect 3 fields but have 0 in record 0"),
            ("x,2,3", "Field 0 in record 0 is not a valid int32: x"),
            ("9999999999,1,x", "Field 0 in record 0 is not a valid int32: 9999999999"),
            ("1,\"2\",  \"a\"", "Unquoted fields cannot have quotes/CRLFs inside"),
            ("1,2,a\r\n", "Unquoted fields cannot have quotes/CRLFs inside"),
            ("1,2,\"a\"b", "Quote inside a string has to be escaped by another quote"),
            ("1,2,\"ab", "Quoted field has to end with quote followed by delim or end"),
        ] {
            let status = csv(line, attrs![]).unwrap_err();
            assert_eq!(status.message().lines().next().unwrap(), expected, "{line}");
        }
        let status = run_op(
            "DecodeCSV",
            attrs![],
            &[Tensor::string("1,,"), Tensor::scalar(1i32), Tensor::vector::<f32>(&[]), Tensor::string("")],
        );
        assert!(status.unwrap_err().message().starts_with("Field 1 is required but missing in record 0!"));
        let status = csv("1,\"2,3", attrs![("use_quote_delim", false)]).unwrap_err();
        assert!(status.message().starts_with("Field 1 in record 0 is not a valid float: \"2"));
    }

    #[test]
    fn shapes() {
        check_shape(
            "DecodeCSV",
            attrs![("OUT_TYPE", &[DType::Float, DType::String][..])],
            "[2,3];[1];[]",
            "[2,3];[2,3]",
        );
    }
}
