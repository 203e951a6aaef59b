//! StringNGrams: joins consecutive words.

use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "StringNGrams",
        inputs: &["data: string", "data_splits: Tsplits"],
        outputs: &["ngrams: string", "ngrams_splits: Tsplits"],
        attrs: &[
            "separator: string",
            "ngram_widths: list(int) >= 0",
            "left_pad: string",
            "right_pad: string",
            "pad_width: int",
            "preserve_short_sequences: bool",
            "Tsplits: {int32, int64} = DT_INT64",
        ],
        flags: OpFlags::NONE,
    },
    shape: |c| {
        c.with_rank(0, 1)?;
        let splits = c.with_rank(1, 1)?;
        c.set_output(0, PartialShape::unknown_of_rank(1));
        c.set_output(1, splits);
        Ok(())
    },
    gradient: Gradient::Unsupported,
    kernels: &[
        KernelDef { types: &[("Tsplits", DType::Int32)], create: NGrams::create },
        KernelDef { types: &[("Tsplits", DType::Int64)], create: NGrams::create },
    ],
}];

struct NGrams {
    separator: Vec<u8>,
    widths: Vec<i64>,
    left: Vec<u8>,
    right: Vec<u8>,
    pad_width: i64,
    preserve_short: bool,
}

impl NGrams {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(NGrams {
            separator: attrs.bytes("separator")?.to_vec(),
            widths: attrs.ints("ngram_widths")?.to_vec(),
            left: attrs.bytes("left_pad")?.to_vec(),
            right: attrs.bytes("right_pad")?.to_vec(),
            pad_width: attrs.int("pad_width")?,
            preserve_short: attrs.bool("preserve_short_sequences")?,
        })
    }

    /// Returns the number of paddings on each side, which is less than the n-gram's width.
    fn padding(&self, width: i64) -> i64 {
        let widest = width - 1;
        if self.pad_width < 0 { widest } else { self.pad_width.min(widest) }
    }

    /// Returns the number of n-grams of a width in this many words.
    fn count(&self, len: i64, width: i64) -> Result<i64> {
        let padding = self.padding(width);
        if padding > i64::from(i32::MAX) / 2 - len {
            return Err(Status::invalid_argument(format!(
                "Pad width could lead to integer overflow, got pad_width = {padding}"
            )));
        }
        Ok((len + 2 * padding - width + 1).max(0))
    }

    /// Appends the n-grams of one width.
    fn join(&self, words: &[bytes::Bytes], width: i64, count: i64, padding: i64, to: &mut Vec<bytes::Bytes>) {
        for index in 0..count {
            let left = (padding - index).max(0);
            let right = (padding - (count - (index + 1))).max(0);
            let first = (index - padding).max(0) as usize;
            let inner = (width - left - right).max(0) as usize;
            let parts = std::iter::repeat_n(&self.left[..], left as usize)
                .chain(words[first.min(words.len())..].iter().take(inner).map(|word| &word[..]))
                .chain(std::iter::repeat_n(&self.right[..], right as usize));
            let mut joined = Vec::new();
            for (number, part) in parts.enumerate() {
                if number > 0 {
                    joined.extend_from_slice(&self.separator);
                }
                joined.extend_from_slice(part);
            }
            to.push(joined.into());
        }
    }

    fn of_sequence(&self, words: &[bytes::Bytes], to: &mut Vec<bytes::Bytes>) -> Result<()> {
        let (len, before) = (words.len() as i64, to.len());
        for &width in &self.widths {
            self.join(words, width, self.count(len, width)?, self.padding(width), to);
        }
        if self.preserve_short && to.len() == before && len > 0 {
            if self.pad_width < 0 {
                return Err(Status::invalid_argument(format!(
                    "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not provided, got {}",
                    self.pad_width
                )));
            }
            let width = len.saturating_add(self.pad_width.saturating_mul(2));
            self.count(len, width)?;
            self.join(words, width, 1, self.padding(width), to);
        }
        Ok(())
    }
}

/// Checks that splits begin at zero, increase, and end with the data.
fn check_splits(splits: &[i64], len: i64) -> Result<()> {
    let Some((&first, rest)) = splits.split_first() else { return Ok(()) };
    if first != 0 {
        return Err(Status::invalid_argument(format!("First split value must be 0, got {first}")));
    }
    let mut before = first;
    for &split in rest {
        if split < before || split > len {
            return Err(Status::invalid_argument(format!("Invalid split value {split}, must be in [{before}, {len}]")));
        }
        before = split;
    }
    if before != len {
        return Err(Status::invalid_argument(format!(
            "Last split value must be data size. Expected {len}, got {before}"
        )));
    }
    Ok(())
}

impl Kernel for NGrams {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        if self.widths.iter().any(|&width| width <= 0) {
            return Err(Status::invalid_argument("ngram_widths must contain positive values"));
        }
        let (data, splits) = (context.input(0)?, context.input(1)?);
        let (words, dtype, shape) = (data.strings()?, splits.dtype(), splits.shape().clone());
        let splits = splits.to_indices()?;
        check_splits(&splits, words.len() as i64)?;
        let (mut grams, mut ends) = (Vec::new(), vec![0i64; splits.len()]);
        if !words.is_empty() {
            for (index, pair) in splits.windows(2).enumerate() {
                self.of_sequence(&words[pair[0] as usize..pair[1] as usize], &mut grams)?;
                ends[index + 1] = grams.len() as i64;
            }
        }
        let ends = match dtype {
            DType::Int32 => Tensor::build(shape, |out: &mut [i32]| {
                out.iter_mut().zip(&ends).for_each(|(out, &end)| *out = end as i32);
            })?,
            _ => Tensor::build(shape, |out: &mut [i64]| out.copy_from_slice(&ends))?,
        };
        context.set_output(0, Tensor::from_strings(Shape::vector(grams.len()), grams)?);
        context.set_output(1, ends);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Shape, Tensor};

    fn run(widths: &[i64], pad_width: i64, preserve: bool) -> tensor::Result<(Vec<String>, Vec<i64>)> {
        let words = ["a", "b", "c", "d"].map(|word| bytes::Bytes::from_static(word.as_bytes())).to_vec();
        let data = Tensor::from_strings(Shape::vector(4), words).unwrap();
        let attrs = attrs![
            ("separator", "|"),
            ("ngram_widths", widths),
            ("left_pad", "<"),
            ("right_pad", ">"),
            ("pad_width", pad_width),
            ("preserve_short_sequences", preserve)
        ];
        let outputs = run_op("StringNGrams", attrs, &[data, Tensor::vector(&[0i64, 3, 4, 4])])?;
        let grams =
            outputs[0].strings().unwrap().iter().map(|gram| String::from_utf8_lossy(gram).into_owned()).collect();
        Ok((grams, outputs[1].as_slice::<i64>().unwrap().to_vec()))
    }

    #[test]
    fn words_are_joined_with_paddings() {
        assert_eq!(run(&[2], 0, false).unwrap(), (vec!["a|b".into(), "b|c".into()], vec![0, 2, 2, 2]));
        let padded = ["<|a", "a|b", "b|c", "c|>", "<|d", "d|>", "<|>"].map(String::from).to_vec();
        assert_eq!(run(&[2], -1, false).unwrap(), (padded, vec![0, 4, 6, 7]));
        assert_eq!(run(&[3], 0, true).unwrap(), (vec!["a|b|c".into(), "d".into()], vec![0, 1, 2, 2]));
        assert_eq!(run(&[0], 0, true).unwrap_err().code(), Code::InvalidArgument);
        check_shape("StringNGrams", attrs![], "[?];[3]", "[?];[3]");
    }
}
