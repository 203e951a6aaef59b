//! StringFormat: tensors in text; and the summary of a tensor, which printing ops use too.

use super::number_format::{round_trip_f32, round_trip_f64};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{DType, PartialShape, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "StringFormat",
        inputs: &["inputs: T"],
        outputs: &["output: string"],
        attrs: &["T: list(type) >= 0", "template: string = '%s'", "placeholder: string = '%s'", "summarize: int = 3"],
        flags: OpFlags::NONE,
    },
    shape: string_format_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(StringFormat::create)],
}];

/// Returns `template` with each `{}` replaced by a tensor, with at most `2 * summarize` elements per dimension.
#[track_caller]
pub fn string_format(template: &str, inputs: &[Output], summarize: i64) -> Output {
    let Some(first) = inputs.first() else {
        return graph::builder::mistaken_output(
            "StringFormat",
            tensor::Status::invalid_argument("string_format needs at least one tensor"),
        );
    };
    let types: Vec<DType> = inputs.iter().map(Output::dtype).collect();
    let builder = first.graph().op("StringFormat").inputs(inputs).attr("T", &types[..]).attr("template", template);
    builder.attr("placeholder", "{}").attr("summarize", summarize).output()
}

fn string_format_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let pieces = pieces(&c.attrs.string("template")?, &c.attrs.string("placeholder")?);
    check_count(pieces.len() - 1, c.num_inputs())?;
    c.set_output(0, PartialShape::scalar());
    Ok(())
}

/// Splits a template at its placeholders.
fn pieces(template: &str, placeholder: &str) -> Vec<String> {
    if placeholder.is_empty() {
        return vec![template.to_owned()];
    }
    template.split(placeholder).map(str::to_owned).collect()
}

fn check_count(placeholders: usize, inputs: usize) -> Result<()> {
    if placeholders == inputs {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "num placeholders in template and num inputs must match: {placeholders} vs. {inputs}"
    )))
}

struct StringFormat {
    pieces: Vec<String>,
    summarize: Option<usize>,
}

impl StringFormat {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let pieces = pieces(&attrs.string("template")?, &attrs.string("placeholder")?);
        BoxedKernel::new(StringFormat { pieces, summarize: usize::try_from(attrs.int("summarize")?).ok() })
    }
}

impl Kernel for StringFormat {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        check_count(self.pieces.len() - 1, context.num_inputs())?;
        let mut out = String::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            out.push_str(piece);
            if index + 1 < self.pieces.len() {
                out.push_str(&summary(context.input(index)?, self.summarize));
            }
        }
        context.set_output(0, Tensor::string(out));
        Ok(())
    }
}

/// Returns a tensor's elements as nested lists, at most `edge` from each end of a dimension; `None` means all.
pub(crate) fn summary(tensor: &Tensor, edge: Option<usize>) -> String {
    let elements = Elements::of(tensor);
    if tensor.shape().is_scalar() {
        return elements.show(0);
    }
    let mut out = String::new();
    let mut start = 0;
    let dims = tensor.shape().to_usize();
    // A dimension of size 0 still has brackets around the omitted part.
    write_dimension(&elements, &dims, edge, 0, &mut start, &mut out);
    out
}

fn write_dimension(
    elements: &Elements<'_>,
    dims: &[usize],
    edge: Option<usize>,
    depth: usize,
    start: &mut usize,
    out: &mut String,
) {
    let size = dims[depth];
    let inner: usize = dims[depth + 1..].iter().product();
    let is_last = depth + 1 == dims.len();
    // Between rows there are as many line breaks as dimensions below.
    let gap = if is_last {
        " ".to_owned()
    } else {
        format!("{}{}", "\n".repeat(dims.len() - depth - 1), " ".repeat(depth + 1))
    };
    out.push('[');
    let edge = edge.unwrap_or(size);
    let is_cut = size > edge.saturating_mul(2);
    for index in 0..size {
        let is_shown = !is_cut || index < edge || index >= size - edge;
        if index > 0 && (is_shown || index == edge) {
            out.push_str(&gap);
        }
        if is_shown {
            if is_last {
                out.push_str(&elements.show(*start));
            } else {
                let mut position = *start;
                write_dimension(elements, dims, Some(edge), depth + 1, &mut position, out);
            }
        } else if index == edge {
            if index == 0 {
                out.push_str(&gap);
            }
            out.push_str("...");
        }
        *start += inner;
    }
    out.push(']');
}

/// A tensor's elements for display.
struct Elements<'a>(&'a Tensor);

impl Elements<'_> {
    fn of(tensor: &Tensor) -> Elements<'_> {
        Elements(tensor)
    }

    fn show(&self, index: usize) -> String {
        macro_rules! by_type {
            ($($dtype:ident: $rust:ty => $show:expr),* $(,)?) => {
                match self.0.dtype() {
                    $(DType::$dtype => {
                        let value = self.0.as_slice::<$rust>().ok().and_then(|values| values.get(index).copied());
                        value.map($show)
                    })*
                    DType::String => self.0.strings().ok().and_then(|values| values.get(index)).map(|text| quoted(text)),
                    DType::Variant => {
                        self.0.variants().ok().and_then(|values| values.get(index)).map(|value| format!("{value:?}"))
                    }
                    _ => None,
                }
            };
        }
        let shown = by_type!(
            Float: f32 => round_trip_f32,
            Double: f64 => round_trip_f64,
            Half: f16 => |value| round_trip_f32(value.to_f32()),
            BFloat16: bf16 => |value| round_trip_f32(value.to_f32()),
            Int8: i8 => |value| value.to_string(),
            Int16: i16 => |value| value.to_string(),
            Int32: i32 => |value| value.to_string(),
            Int64: i64 => |value| value.to_string(),
            UInt8: u8 => |value| value.to_string(),
            UInt16: u16 => |value| value.to_string(),
            UInt32: u32 => |value| value.to_string(),
            UInt64: u64 => |value| value.to_string(),
            Bool: bool => |value| u8::from(value).to_string(),
            QInt8: i8 => |value| value.to_string(),
            QUInt8: u8 => |value| value.to_string(),
            QInt32: i32 => |value| value.to_string(),
            QInt16: i16 => |value| value.to_string(),
            QUInt16: u16 => |value| value.to_string(),
        );
        shown.unwrap_or_else(|| "?".to_owned())
    }
}

/// Returns a string in quotes, with unprintable characters escaped as in C.
fn quoted(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in text {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\'' => out.push_str("\\'"),
            b'\\' => out.push_str("\\\\"),
            0x20..=0x7e => out.push(char::from(byte)),
            other => out.push_str(&format!("\\{other:03o}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};
    use tensor::Shape;

    /// The texts in these tests are TensorFlow's.
    #[test]
    fn summaries() {
        let counted = |dims: &[i64]| {
            let count: i64 = dims.iter().product();
            Tensor::from_slice(dims, &(0..count).collect::<Vec<i64>>()).unwrap()
        };
        assert_eq!(summary(&counted(&[10]), Some(3)), "[0 1 2 ... 7 8 9]");
        assert_eq!(summary(&counted(&[6]), Some(3)), "[0 1 2 3 4 5]");
        assert_eq!(summary(&counted(&[3, 4]), Some(1)), "[[0 ... 3]\n ...\n [8 ... 11]]");
        assert_eq!(summary(&counted(&[3, 4]), None), "[[0 1 2 3]\n [4 5 6 7]\n [8 9 10 11]]");
        assert_eq!(
            summary(&counted(&[4, 4, 4]), Some(1)),
            "[[[0 ... 3]\n  ...\n  [12 ... 15]]\n\n ...\n\n [[48 ... 51]\n  ...\n  [60 ... 63]]]"
        );
        assert_eq!(summary(&counted(&[3, 1, 4]), Some(2)), "[[[0 1 2 3]]\n\n [[4 5 6 7]]\n\n [[8 9 10 11]]]");
        assert_eq!(summary(&counted(&[0, 3]), Some(3)), "[]");
        assert_eq!(summary(&Tensor::vector(&[true, false]), Some(3)), "[1 0]");
        let floats = Tensor::vector(&[1f32 / 3.0, 0.1, 16777216.0, 1e6, 123456.7, 1e-5, f32::NAN]);
        assert_eq!(summary(&floats, None), "[0.333333343 0.1 16777216 1e+06 123456.703 1e-05 nan]");
        let doubles = Tensor::vector(&[1f64 / 3.0, 0.1, 1e6, 1e15, 1e16, 2.5e17]);
        assert_eq!(summary(&doubles, None), "[0.33333333333333331 0.1 1000000 1e+15 1e+16 2.5e+17]");
        let texts = Tensor::from_strings(Shape::vector(2), vec!["a\"b\n".into(), "é".into()]).unwrap();
        assert_eq!(summary(&texts, None), "[\"a\\\"b\\n\" \"\\303\\251\"]");
    }

    #[test]
    fn templates() {
        let x = [Tensor::vector(&[1i32, 2]), Tensor::scalar(1.5f32)];
        let y = run_op("StringFormat", attrs![("template", "x %s y %s!")], &x).unwrap();
        assert_eq!(y[0].strings().unwrap()[0], "x [1 2] y 1.5!");
        assert!(run_op("StringFormat", attrs![("template", "%s")], &x).is_err());
    }
}
