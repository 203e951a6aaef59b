//! Conversions between encodings: UnicodeEncode, UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeTranscode.

use super::charset::Charset;
use bytes::Bytes;
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, shape,
};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const REPLACEMENT: &str = "replacement_char: int = 65533";
const CONTROLS: &str = "replace_control_characters: bool = false";
const ERRORS: &str = "errors: {'strict', 'replace', 'ignore'} = 'replace'";
const SPLITS: &str = "Tsplits: {int32, int64} = DT_INT64";
const DECODE_ATTRS: &[&str] = &["input_encoding: string", ERRORS, REPLACEMENT, CONTROLS, SPLITS];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "UnicodeEncode",
            inputs: &["input_values: int32", "input_splits: Tsplits"],
            outputs: &["output: string"],
            attrs: &[
                "errors: {'ignore', 'replace', 'strict'} = 'replace'",
                "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}",
                REPLACEMENT,
                SPLITS,
            ],
            flags: OpFlags::NONE,
        },
        shape: encode_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Encode::create)],
    },
    Op {
        def: OpDef {
            name: "UnicodeDecode",
            inputs: &["input: string"],
            outputs: &["row_splits: Tsplits", "char_values: int32"],
            attrs: DECODE_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: decode_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Decode::create)],
    },
    Op {
        def: OpDef {
            name: "UnicodeDecodeWithOffsets",
            inputs: &["input: string"],
            outputs: &["row_splits: Tsplits", "char_values: int32", "char_to_byte_starts: int64"],
            attrs: DECODE_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: decode_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Decode::create)],
    },
    Op {
        def: OpDef {
            name: "UnicodeTranscode",
            inputs: &["input: string"],
            outputs: &["output: string"],
            attrs: &[
                "input_encoding: string",
                "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}",
                ERRORS,
                REPLACEMENT,
                CONTROLS,
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Transcode::create)],
    },
];

fn encode_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    let splits = c.with_rank(1, 1)?;
    let rows = match splits.dim(0) {
        Some(0) => {
            return Err(Status::invalid_argument("Negative dimension size caused by subtracting 1 from 0"));
        }
        size => size.map(|size| size - 1),
    };
    c.set_output(0, PartialShape::new(&[rows]));
    Ok(())
}

fn decode_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let splits = c.input(0).num_elements().and_then(|count| count.checked_add(1));
    c.set_output(0, PartialShape::new(&[splits]));
    for output in 1..c.num_outputs() {
        c.set_output(output, PartialShape::unknown_of_rank(1));
    }
    Ok(())
}

/// The treatment of invalid characters.
#[derive(Clone, Copy, PartialEq)]
enum Mistakes {
    Strict,
    Replace(char),
    Ignore,
}

impl Mistakes {
    fn new(builder: &KernelBuilder<'_>) -> Result<Mistakes> {
        let replacement = builder.attrs().int("replacement_char")?;
        let replacement = u32::try_from(replacement)
            .ok()
            .and_then(char::from_u32)
            .ok_or_else(|| Status::invalid_argument("replacement_char out of unicode codepoint range"))?;
        Ok(match builder.attrs().string("errors")?.as_str() {
            "strict" => Mistakes::Strict,
            "ignore" => Mistakes::Ignore,
            _ => Mistakes::Replace(replacement),
        })
    }
}

/// Decoding options.
struct Reading {
    charset: Charset,
    mistakes: Mistakes,
    replace_controls: bool,
}

impl Reading {
    fn new(builder: &KernelBuilder<'_>) -> Result<Reading> {
        let name = builder.attrs().string("input_encoding")?;
        let charset = Charset::named(&name).ok_or_else(|| {
            Status::invalid_argument(format!("Could not create converter for input encoding: {name}"))
        })?;
        Ok(Reading {
            charset,
            mistakes: Mistakes::new(builder)?,
            replace_controls: builder.attrs().bool("replace_control_characters")?,
        })
    }

    /// Calls `visit` with each character and its position.
    fn read(&self, text: &[u8], mut visit: impl FnMut(char, usize)) -> Result<()> {
        let mut broken = false;
        self.charset.decode(text, |start, character| {
            let good = character.filter(|&character| !(self.replace_controls && character <= '\u{1f}'));
            match (good, self.mistakes) {
                (Some(character), _) => visit(character, start),
                (None, Mistakes::Replace(replacement)) => visit(replacement, start),
                (None, Mistakes::Ignore) => {}
                // A control character isn't an error in the text, and it has no other replacement.
                (None, Mistakes::Strict) if character.is_some() => visit('\u{fffd}', start),
                (None, Mistakes::Strict) => broken = true,
            }
        });
        match broken {
            true => Err(Status::invalid_argument("Invalid formatting on input string")),
            false => Ok(()),
        }
    }
}

/// Encoding options.
#[derive(Clone, Copy)]
enum Writing {
    Utf8,
    Utf16,
    Utf32,
}

impl Writing {
    fn new(builder: &KernelBuilder<'_>) -> Result<Writing> {
        match builder.attrs().string("output_encoding")?.as_str() {
            "UTF-8" => Ok(Writing::Utf8),
            "UTF-16-BE" => Ok(Writing::Utf16),
            "UTF-32-BE" => Ok(Writing::Utf32),
            other => Err(Status::invalid_argument(format!(
                "Unrecognized encoding: {other}. Must be one of UTF-8, UTF-16-BE, UTF-32-BE"
            ))),
        }
    }

    fn write(self, character: char, to: &mut Vec<u8>) {
        match self {
            Writing::Utf8 => to.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Writing::Utf16 => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    to.extend_from_slice(&unit.to_be_bytes());
                }
            }
            Writing::Utf32 => to.extend_from_slice(&u32::from(character).to_be_bytes()),
        }
    }
}

struct Transcode {
    reading: Reading,
    writing: Writing,
}

impl Transcode {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Transcode { reading: Reading::new(builder)?, writing: Writing::new(builder)? })
    }
}

impl Kernel for Transcode {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let mut outputs = Vec::with_capacity(input.num_elements());
        for text in input.strings()? {
            let mut written = Vec::with_capacity(text.len());
            self.reading.read(text, |character, _| self.writing.write(character, &mut written))?;
            outputs.push(Bytes::from(written));
        }
        let output = Tensor::from_strings(input.shape().clone(), outputs)?;
        context.set_output(0, output);
        Ok(())
    }
}

struct Decode {
    reading: Reading,
    splits: DType,
}

impl Decode {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Decode { reading: Reading::new(builder)?, splits: builder.attrs().dtype("Tsplits")? })
    }
}

impl Kernel for Decode {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let texts = context.input(0)?.strings()?;
        let mut ends = vec![0i64];
        let (mut characters, mut starts) = (Vec::new(), Vec::new());
        for text in texts {
            self.reading.read(text, |character, start| {
                characters.push(u32::from(character) as i32);
                starts.push(start as i64);
            })?;
            ends.push(characters.len() as i64);
        }
        context.set_output(0, index_vector(self.splits, &ends)?);
        context.set_output(1, Tensor::vector(&characters));
        context.set_output(2, Tensor::vector(&starts));
        Ok(())
    }
}

/// Returns numbers as a vector of `int32` or `int64`.
fn index_vector(dtype: DType, numbers: &[i64]) -> Result<Tensor> {
    if dtype != DType::Int32 {
        return Ok(Tensor::vector(numbers));
    }
    let narrow = |&number: &i64| {
        i32::try_from(number).map_err(|_| Status::invalid_argument("too many characters for int32 row splits"))
    };
    Ok(Tensor::vector(&numbers.iter().map(narrow).collect::<Result<Vec<i32>>>()?))
}

struct Encode {
    mistakes: Mistakes,
    writing: Writing,
}

impl Encode {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Encode { mistakes: Mistakes::new(builder)?, writing: Writing::new(builder)? })
    }

    /// Returns the character of a code; `None` if it is dropped.
    fn character(&self, code: i32) -> Result<Option<char>> {
        let number = u32::try_from(code).ok().filter(|&number| number <= u32::from(char::MAX));
        let assigned = number.and_then(char::from_u32).filter(|&character| !is_no_character(character));
        match (assigned, self.mistakes) {
            (Some(character), _) => Ok(Some(character)),
            (None, Mistakes::Replace(replacement)) => Ok(Some(replacement)),
            // Characters in Unicode's range are kept, as far as the encoding can represent them.
            (None, Mistakes::Ignore) => Ok(number.map(|number| char::from_u32(number).unwrap_or('\u{fffd}'))),
            (None, Mistakes::Strict) => {
                Err(Status::invalid_argument("Code point is out of range for Unicode, or a noncharacter."))
            }
        }
    }
}

fn is_no_character(character: char) -> bool {
    let code = u32::from(character);
    code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code)
}

impl Kernel for Encode {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let codes = context.slice::<i32>(0)?;
        let splits = context.input(1)?;
        if !splits.shape().is_vector() || !context.input(0)?.shape().is_vector() {
            return Err(Status::invalid_argument("input_values and input_splits must be vectors"));
        }
        let splits = splits.to_indices()?;
        let (Some(&first), Some(&last)) = (splits.first(), splits.last()) else {
            return Err(Status::invalid_argument("Invalid input_splits: it must not be empty"));
        };
        if first != 0 || !splits.is_sorted() || last != codes.len() as i64 {
            return Err(Status::invalid_argument(format!(
                "Invalid input_splits: they must rise from 0 to the number of values, {}",
                codes.len()
            )));
        }
        let mut outputs = Vec::with_capacity(splits.len() - 1);
        for pair in splits.windows(2) {
            let mut written = Vec::new();
            for &code in &codes[pair[0] as usize..pair[1] as usize] {
                if let Some(character) = self.character(code)? {
                    self.writing.write(character, &mut written);
                }
            }
            outputs.push(Bytes::from(written));
        }
        let output = Tensor::from_strings(Shape::vector(outputs.len()), outputs)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    fn texts(texts: &[&[u8]]) -> Tensor {
        let values = texts.iter().map(|text| Bytes::copy_from_slice(text)).collect();
        Tensor::from_strings(Shape::vector(texts.len()), values).unwrap()
    }

    #[test]
    fn decoding() {
        let input = texts(&[b"a\xffb", "é€😀".as_bytes(), b""]);
        let run = |errors: &str| {
            let attrs = attrs![("input_encoding", "UTF-8"), ("errors", errors)];
            run_op("UnicodeDecodeWithOffsets", attrs, std::slice::from_ref(&input))
        };
        let outputs = run("replace").unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[0, 3, 6, 6]);
        assert_eq!(outputs[1].as_slice::<i32>().unwrap(), &[97, 0xfffd, 98, 0xe9, 0x20ac, 0x1f600]);
        assert_eq!(outputs[2].as_slice::<i64>().unwrap(), &[0, 1, 2, 0, 2, 5]);
        assert_eq!(run("ignore").unwrap()[1].as_slice::<i32>().unwrap()[..2], [97, 98]);
        assert!(run("strict").is_err());
        let unknown = attrs![("input_encoding", "no such encoding")];
        assert!(run_op("UnicodeDecode", unknown, &[input]).is_err());
    }

    #[test]
    fn encoding_and_back() {
        let codes = Tensor::vector(&[65, 0x1f600, 0xd800, 66]);
        let splits = Tensor::vector(&[0i64, 2, 4]);
        let run = |encoding: &str| {
            let attrs = attrs![("output_encoding", encoding), ("replacement_char", 63i64)];
            run_op("UnicodeEncode", attrs, &[codes.clone(), splits.clone()]).unwrap().remove(0)
        };
        assert_eq!(run("UTF-8").strings().unwrap(), &["A😀".as_bytes(), b"?B"]);
        assert_eq!(run("UTF-16-BE").strings().unwrap()[0], &b"\0A\xd8\x3d\xde\0"[..]);
        for encoding in ["UTF-8", "UTF-16-BE", "UTF-32-BE"] {
            let attrs = attrs![("input_encoding", encoding), ("output_encoding", "UTF-8")];
            let back = run_op("UnicodeTranscode", attrs, &[run(encoding)]).unwrap();
            assert_eq!(back[0].strings().unwrap(), &["A😀".as_bytes(), b"?B"]);
        }
        for bad in [vec![0, 9], vec![1, 4], vec![0, 3, 2, 4], vec![]] {
            let attrs = attrs![("output_encoding", "UTF-8")];
            assert!(run_op("UnicodeEncode", attrs, &[codes.clone(), Tensor::vector::<i64>(&bad)]).is_err());
        }
    }

    #[test]
    fn shapes() {
        let attrs = || attrs![("input_encoding", "UTF-8")];
        check_shape("UnicodeDecode", attrs(), "[2,3]", "[7];[?]");
        check_shape("UnicodeEncode", attrs![("output_encoding", "UTF-8")], "[?];[4]", "[3]");
    }
}
