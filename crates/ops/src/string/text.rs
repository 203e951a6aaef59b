//! Basic string ops: StringStrip, StringLower, StringUpper, StringLength, Substr.

use super::split::is_space;
use crate::array::broadcast;
use bytes::Bytes;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{PartialShape, Result, Shape, Status, StringElement, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "StringStrip",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Map(strip)))],
    },
    Op {
        def: OpDef {
            name: "StringLower",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &["encoding: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| match is_unicode(builder)? {
            true => BoxedKernel::new(Map(|text| String::from_utf8_lossy(text).to_lowercase().into())),
            false => BoxedKernel::new(Map(|text| text.to_ascii_lowercase().into())),
        })],
    },
    Op {
        def: OpDef {
            name: "StringUpper",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &["encoding: string = ''"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| match is_unicode(builder)? {
            true => BoxedKernel::new(Map(|text| String::from_utf8_lossy(text).to_uppercase().into())),
            false => BoxedKernel::new(Map(|text| text.to_ascii_uppercase().into())),
        })],
    },
    Op {
        def: OpDef {
            name: "StringLength",
            inputs: &["input: string"],
            outputs: &["output: int32"],
            attrs: &["unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(StringLength { unit: Unit::of(builder)? }))],
    },
    Op {
        def: OpDef {
            name: "Substr",
            inputs: &["input: string", "pos: T", "len: T"],
            outputs: &["output: string"],
            attrs: &["T: {int32, int64}", "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"],
            flags: OpFlags::NONE,
        },
        shape: substr_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Substr { unit: Unit::of(builder)? }))],
    },
];

/// Returns the number of bytes of each string.
#[track_caller]
pub fn string_length(input: &Output) -> Output {
    input.graph().op("StringLength").input(input).output()
}

/// Returns `len` bytes of each string from `pos` on; a negative position counts from the end.
#[track_caller]
pub fn substr(input: &Output, pos: &Output, len: &Output) -> Output {
    input.graph().op("Substr").input(input).input(pos).input(len).output()
}

fn substr_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (input, pos, len) = (c.input(0), c.input(1), c.input(2));
    let pos = match (pos.rank(), len.rank()) {
        (Some(a), Some(b)) if a != b => {
            return Err(Status::invalid_argument(format!("Shape must be rank {b} but is rank {a}")));
        }
        _ => pos.merge(&len)?,
    };
    let shape: PartialShape = shape::broadcast(&input, &pos)?;
    c.set_output(0, shape);
    Ok(())
}

fn is_unicode(builder: &KernelBuilder<'_>) -> Result<bool> {
    match builder.attrs().string("encoding")?.as_str() {
        "" => Ok(false),
        "utf-8" => Ok(true),
        other => {
            Err(Status::invalid_argument(format!("only utf-8 or '' (no encoding) is supported, received {other}")))
        }
    }
}

fn strip(text: &StringElement) -> StringElement {
    let start = text.iter().position(|&byte| !is_space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|&byte| !is_space(byte)).map_or(start, |last| last + 1);
    text.slice(start..end)
}

/// Maps strings to strings.
struct Map(fn(&StringElement) -> StringElement);

impl Kernel for Map {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut output = context.take_input(0)?;
        output.strings_mut()?.iter_mut().for_each(|text| *text = (self.0)(text));
        context.set_output(0, output);
        Ok(())
    }
}

/// The unit of positions and lengths.
#[derive(Clone, Copy)]
enum Unit {
    Byte,
    Character,
}

impl Unit {
    fn of(builder: &KernelBuilder<'_>) -> Result<Unit> {
        match builder.attrs().string("unit")?.as_str() {
            "BYTE" => Ok(Unit::Byte),
            "UTF8_CHAR" => Ok(Unit::Character),
            other => Err(Status::invalid_argument(format!("unit must be BYTE or UTF8_CHAR, not {other}"))),
        }
    }
}

/// Returns whether a byte starts a character of UTF-8.
fn starts_character(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

struct StringLength {
    unit: Unit,
}

impl Kernel for StringLength {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let length = |text: &StringElement| match self.unit {
            Unit::Byte => text.len(),
            Unit::Character => text.iter().filter(|&&byte| starts_character(byte)).count(),
        };
        let strings = input.strings()?;
        let output = Tensor::build(input.shape().clone(), |out: &mut [i32]| {
            let bounded = |text: &StringElement| i32::try_from(length(text)).unwrap_or(i32::MAX);
            out.iter_mut().zip(strings).for_each(|(out, text)| *out = bounded(text));
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct Substr {
    unit: Unit,
}

impl Kernel for Substr {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, pos, len) = (context.input(0)?, context.input(1)?, context.input(2)?);
        if pos.shape() != len.shape() {
            return Err(Status::invalid_argument(format!(
                "pos and len should have the same shape, got: {} vs. {}",
                pos.shape(),
                len.shape()
            )));
        }
        let shape = common_shape(input.shape(), pos.shape())?;
        let spread = |tensor: &Tensor| match tensor.shape() == &shape {
            true => Ok(tensor.clone()),
            false => broadcast(tensor, shape.clone()),
        };
        let (input, pos, len) = (spread(input)?, spread(pos)?.to_indices()?, spread(len)?.to_indices()?);
        let mut values = Vec::with_capacity(pos.len());
        for (index, text) in input.strings()?.iter().enumerate() {
            values.push(self.cut(text, pos[index], len[index], index)?);
        }
        context.set_output(0, Tensor::from_strings(shape, values)?);
        Ok(())
    }
}

fn common_shape(a: &Shape, b: &Shape) -> Result<Shape> {
    let merged = shape::broadcast(&PartialShape::from(a), &PartialShape::from(b))?;
    merged.to_shape().ok_or_else(|| Status::invalid_argument(format!("Incompatible shapes: {a} vs. {b}")))
}

impl Substr {
    fn cut(&self, text: &StringElement, pos: i64, len: i64, index: usize) -> Result<StringElement> {
        let outside = || {
            Status::invalid_argument(format!(
                "pos {pos} out of range for string b'{}' at index {index}",
                String::from_utf8_lossy(text)
            ))
        };
        // A negative length is treated as a very large one, as in TensorFlow.
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        match self.unit {
            Unit::Byte => {
                let start = from_end(pos, text.len()).ok_or_else(outside)?;
                Ok(text.slice(start..start.saturating_add(len).min(text.len())))
            }
            Unit::Character => {
                let mut starts: Vec<usize> =
                    text.iter().enumerate().filter(|(_, byte)| starts_character(**byte)).map(|(at, _)| at).collect();
                let count = starts.len();
                starts.push(text.len());
                let start = from_end(pos, count).ok_or_else(outside)?;
                let end = start.saturating_add(len).min(count);
                Ok(Bytes::slice(text, starts[start]..starts[end]))
            }
        }
    }
}

/// Returns a position in `0..=size`; a negative one counts from the end.
fn from_end(pos: i64, size: usize) -> Option<usize> {
    let pos = if pos < 0 { pos.checked_add(size as i64)? } else { pos };
    usize::try_from(pos).ok().filter(|&pos| pos <= size)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use graph::AttrMap;
    use tensor::{Result, Shape, Tensor};

    fn texts(texts: &[&str]) -> Tensor {
        let values = texts.iter().map(|text| text.to_string().into()).collect();
        Tensor::from_strings(Shape::vector(texts.len()), values).unwrap()
    }

    fn mapped(op: &str, attrs: AttrMap, text: &str) -> String {
        let y = run_op(op, attrs, &[texts(&[text])]).unwrap();
        String::from_utf8(y[0].strings().unwrap()[0].to_vec()).unwrap()
    }

    /// The answers in these tests are TensorFlow's.
    #[test]
    fn maps() {
        assert_eq!(mapped("StringStrip", attrs![], "\x0b b\x0c \n"), "b");
        assert_eq!(mapped("StringStrip", attrs![], " \t"), "");
        assert_eq!(mapped("StringLower", attrs![], "ABCé É"), "abcé É");
        assert_eq!(mapped("StringLower", attrs![("encoding", "utf-8")], "ABCé É"), "abcé é");
        assert_eq!(mapped("StringUpper", attrs![("encoding", "utf-8")], "straße é"), "STRASSE É");
        assert!(run_op("StringUpper", attrs![("encoding", "x")], &[texts(&["a"])]).is_err());
        let y = run_op("StringLength", attrs![("unit", "UTF8_CHAR")], &[texts(&["abc", "é", "日本"])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[3, 1, 2]);
        let y = run_op("StringLength", attrs![], &[texts(&["é"])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[2]);
    }

    fn cut(unit: &str, text: &str, pos: i32, len: i32) -> Result<String> {
        let inputs = [Tensor::string(text.to_owned()), Tensor::scalar(pos), Tensor::scalar(len)];
        let y = run_op("Substr", attrs![("unit", unit)], &inputs)?;
        Ok(String::from_utf8(y[0].strings()?[0].to_vec()).unwrap())
    }

    #[test]
    fn parts() {
        assert_eq!(cut("BYTE", "hello", 1, 3).unwrap(), "ell");
        assert_eq!(cut("BYTE", "hello", -3, 2).unwrap(), "ll");
        assert_eq!(cut("BYTE", "hello", 5, 1).unwrap(), "");
        assert_eq!(cut("BYTE", "hello", 1, -2).unwrap(), "ello");
        assert!(cut("BYTE", "hello", 6, 1).is_err());
        assert!(cut("BYTE", "hello", -6, 1).is_err());
        assert!(cut("BYTE", "hello", i32::MIN, 1).is_err());
        assert_eq!(cut("UTF8_CHAR", "日本語x", 1, 2).unwrap(), "本語");
        assert_eq!(cut("UTF8_CHAR", "日本語x", -2, 2).unwrap(), "語x");
        assert_eq!(cut("UTF8_CHAR", "日本語x", 4, 2).unwrap(), "");
        assert!(cut("UTF8_CHAR", "日本語x", 5, 2).is_err());
        let matrix = texts(&["hello", "wo"]).reshape(Shape::new(&[2, 1]).unwrap()).unwrap();
        let y = run_op("Substr", attrs![], &[matrix, Tensor::vector(&[1i64, 2]), Tensor::vector(&[2i64, 3])]).unwrap();
        assert_eq!(
            (y[0].strings().unwrap(), y[0].dims()),
            (&["el", "llo", "o", ""].map(Into::into)[..], &[2i64, 2][..])
        );
        assert!(run_op("Substr", attrs![], &[texts(&["a"]), Tensor::vector(&[0i64]), Tensor::scalar(1i64)]).is_err());
        check_shape("Substr", attrs![], "[2,1];[3];[3]", "[2,3]");
    }
}
