//! Splitting strings: StringSplit, StringSplitV2.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{PartialShape, Result, Shape, Status, StringElement, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "StringSplit",
            inputs: &["input: string", "delimiter: string"],
            outputs: &["indices: int64", "values: string", "shape: int64"],
            attrs: &["skip_empty: bool = true"],
            flags: OpFlags::NONE,
        },
        shape: split_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(StringSplit { skip_empty: builder.attrs().bool("skip_empty")? })
        })],
    },
    Op {
        def: OpDef {
            name: "StringSplitV2",
            inputs: &["input: string", "sep: string"],
            outputs: &["indices: int64", "values: string", "shape: int64"],
            attrs: &["maxsplit: int = -1"],
            flags: OpFlags::NONE,
        },
        shape: split_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(StringSplitV2 { max_splits: usize::try_from(builder.attrs().int("maxsplit")?).ok() })
        })],
    },
];

/// Splits each string of a vector at `separator` (at white space if it is empty) into the rows of a sparse tensor: indices,
/// values and shape.
#[track_caller]
pub fn string_split_v2(input: &Output, separator: &str) -> (Output, Output, Output) {
    let separator = input.graph().constant_tensor(&Tensor::string(separator.to_owned()));
    let op = input.graph().op("StringSplitV2").input(input).input(&separator).build();
    (op.output(0), op.output(1), op.output(2))
}

fn split_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    c.with_rank(1, 0)?;
    c.set_output(0, PartialShape::new(&[None, Some(2)]));
    c.set_output(1, PartialShape::new(&[None]));
    c.set_output(2, PartialShape::new(&[Some(2)]));
    Ok(())
}

/// Sets the outputs from the parts of each string.
fn set_parts(context: &mut OpContext<'_>, rows: Vec<Vec<StringElement>>) -> Result<()> {
    let count = rows.iter().map(Vec::len).sum();
    let widest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let num_rows = rows.len();
    let mut indices = Vec::with_capacity(2 * count);
    let mut values = Vec::with_capacity(count);
    for (row, parts) in rows.into_iter().enumerate() {
        for (column, part) in parts.into_iter().enumerate() {
            indices.extend([row as i64, column as i64]);
            values.push(part);
        }
    }
    context.set_output(0, Tensor::from_slice(&[count as i64, 2], &indices)?);
    context.set_output(1, Tensor::from_strings(Shape::vector(count), values)?);
    context.set_output(2, Tensor::vector(&[num_rows as i64, widest as i64]));
    Ok(())
}

fn inputs<'a>(context: &'a OpContext<'_>, name: &str) -> Result<(&'a [StringElement], &'a StringElement)> {
    let (input, separator) = (context.input(0)?, context.input(1)?);
    if !input.shape().is_vector() {
        return Err(Status::invalid_argument(format!("input must be a vector, got shape: {}", input.shape())));
    }
    match separator.strings()? {
        [text] if separator.shape().is_scalar() => Ok((input.strings()?, text)),
        _ => Err(Status::invalid_argument(format!("{name} must be a scalar, got shape: {}", separator.shape()))),
    }
}

struct StringSplit {
    skip_empty: bool,
}

impl Kernel for StringSplit {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (strings, delimiter) = inputs(context, "delimiter")?;
        let rows = strings.iter().map(|text| self.parts(text, delimiter)).collect();
        set_parts(context, rows)
    }
}

impl StringSplit {
    /// Each byte of the delimiter is one; without a delimiter each byte is a part.
    fn parts(&self, text: &StringElement, delimiter: &[u8]) -> Vec<StringElement> {
        if text.is_empty() {
            return Vec::new();
        }
        if delimiter.is_empty() {
            return (0..text.len()).map(|index| text.slice(index..index + 1)).collect();
        }
        let mut parts = Vec::new();
        let mut start = 0;
        let mut push = |start: usize, end: usize| {
            if end > start || !self.skip_empty {
                parts.push(text.slice(start..end));
            }
        };
        for (index, byte) in text.iter().enumerate() {
            if delimiter.contains(byte) {
                push(start, index);
                start = index + 1;
            }
        }
        push(start, text.len());
        parts
    }
}

struct StringSplitV2 {
    max_splits: Option<usize>,
}

impl Kernel for StringSplitV2 {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (strings, separator) = inputs(context, "sep")?;
        let rows = strings.iter().map(|text| self.parts(text, separator)).collect();
        set_parts(context, rows)
    }
}

impl StringSplitV2 {
    fn parts(&self, text: &StringElement, separator: &[u8]) -> Vec<StringElement> {
        if self.max_splits == Some(0) {
            return vec![text.clone()];
        }
        if separator.is_empty() { self.words(text) } else { self.fields(text, separator) }
    }

    fn words(&self, text: &StringElement) -> Vec<StringElement> {
        let mut parts = Vec::new();
        let mut start = skip(text, 0, is_space);
        while start < text.len() {
            let end = skip(text, start, |byte| !is_space(byte));
            parts.push(text.slice(start..end));
            start = skip(text, end, is_space);
            if self.max_splits == Some(parts.len()) {
                // The rest is a part, even if it is empty.
                parts.push(text.slice(start..));
                break;
            }
        }
        parts
    }

    fn fields(&self, text: &StringElement, separator: &[u8]) -> Vec<StringElement> {
        let mut parts = Vec::new();
        let mut start = 0;
        while self.max_splits != Some(parts.len())
            && let Some(at) = find(&text[start..], separator)
        {
            parts.push(text.slice(start..start + at));
            start += at + separator.len();
        }
        parts.push(text.slice(start..));
        parts
    }
}

/// Returns where the bytes that `matches` end.
fn skip(text: &[u8], start: usize, matches: impl Fn(u8) -> bool) -> usize {
    text[start..].iter().position(|&byte| !matches(byte)).map_or(text.len(), |len| start + len)
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\x0b' | b'\x0c' | b'\r')
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    match pattern {
        [only] => text.iter().position(|byte| byte == only),
        _ => text.windows(pattern.len()).position(|window| window == pattern),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use graph::AttrMap;
    use tensor::{Shape, Tensor};

    fn split(op: &str, attrs: AttrMap, texts: &[&'static str], separator: &'static str) -> String {
        let input =
            Tensor::from_strings(Shape::vector(texts.len()), texts.iter().map(|&text| text.into()).collect()).unwrap();
        let y = run_op(op, attrs, &[input, Tensor::string(separator)]).unwrap();
        let shape = y[2].as_slice::<i64>().unwrap();
        let mut rows = vec![Vec::new(); shape[0] as usize];
        for (index, value) in y[0].as_slice::<i64>().unwrap().chunks(2).zip(y[1].strings().unwrap()) {
            let row = &mut rows[index[0] as usize];
            assert_eq!(index[1] as usize, row.len());
            row.push(String::from_utf8_lossy(value).into_owned());
        }
        assert_eq!(rows.iter().map(Vec::len).max().unwrap_or(0), shape[1] as usize);
        rows.iter().map(|row| row.join("|")).collect::<Vec<_>>().join(";")
    }

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn old_splits() {
        let texts = &["a b", " c,,d ", "", "xaybab"];
        let keep = || attrs![("skip_empty", false)];
        assert_eq!(split("StringSplit", attrs![], texts, " "), "a|b;c,,d;;xaybab");
        assert_eq!(split("StringSplit", keep(), texts, " "), "a|b;|c,,d|;;xaybab");
        assert_eq!(split("StringSplit", attrs![], texts, "ab"), " ; c,,d ;;x|y");
        assert_eq!(split("StringSplit", keep(), texts, ", "), "a|b;|c||d|;;xaybab");
        assert_eq!(split("StringSplit", attrs![], &["ab", ""], ""), "a|b;");
    }

    #[test]
    fn new_splits() {
        let texts = &["a b  c", " c,,d ", "", "xabyabz"];
        let at_most = |count: i64| attrs![("maxsplit", count)];
        assert_eq!(split("StringSplitV2", attrs![], texts, ""), "a|b|c;c,,d;;xabyabz");
        assert_eq!(split("StringSplitV2", at_most(1), texts, ""), "a|b  c;c,,d|;;xabyabz|");
        assert_eq!(split("StringSplitV2", at_most(2), texts, ""), "a|b|c;c,,d;;xabyabz");
        assert_eq!(split("StringSplitV2", at_most(0), texts, ""), "a b  c; c,,d ;;xabyabz");
        assert_eq!(split("StringSplitV2", attrs![], texts, " "), "a|b||c;|c,,d|;;xabyabz");
        assert_eq!(split("StringSplitV2", at_most(2), texts, " "), "a|b| c;|c,,d|;;xabyabz");
        assert_eq!(split("StringSplitV2", attrs![], texts, "ab"), "a b  c; c,,d ;;x|y|z");
        assert_eq!(split("StringSplitV2", at_most(1), texts, "ab"), "a b  c; c,,d ;;x|yabz");
    }

    #[test]
    fn shapes() {
        check_shape("StringSplit", attrs![], "[?];[]", "[?,2];[?];[2]");
        assert!(run_op("StringSplit", attrs![], &[Tensor::string("a"), Tensor::string("b")]).is_err());
    }
}
