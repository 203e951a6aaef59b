//! Warm starts with changed vocabularies: GenerateVocabRemapping, LoadAndRemapMatrix.

use super::scalar_text;
use crate::file_access::{Lines, file_system};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use std::collections::HashMap;
use storage::bundle::BundleReader;
use storage::record::CompressionType;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "GenerateVocabRemapping",
            inputs: &["new_vocab_file: string", "old_vocab_file: string"],
            outputs: &["remapping: int64", "num_present: int32"],
            attrs: &["new_vocab_offset: int >= 0", "num_new_vocab: int >= 0", "old_vocab_size: int >= -1 = -1"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            c.with_rank(0, 0)?;
            c.with_rank(1, 0)?;
            c.set_output(0, PartialShape::from_dims(&[c.attrs.int("num_new_vocab")?]));
            c.set_output(1, PartialShape::scalar());
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(GenerateVocabRemapping::create)],
    },
    Op {
        def: OpDef {
            name: "LoadAndRemapMatrix",
            inputs: &[
                "ckpt_path: string",
                "old_tensor_name: string",
                "row_remapping: int64",
                "col_remapping: int64",
                "initializing_values: float",
            ],
            outputs: &["output_matrix: float"],
            attrs: &["num_rows: int >= 0", "num_cols: int >= 1", "max_rows_in_memory: int = -1"],
            flags: OpFlags::STATEFUL,
        },
        shape: matrix_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(LoadAndRemapMatrix::create)],
    },
];

fn matrix_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for input in 2..5 {
        c.with_rank_at_most(input, 1)?;
    }
    let (rows, columns) = (c.attrs.int("num_rows")?, c.attrs.int("num_cols")?);
    c.set_output(0, PartialShape::from_dims(&[rows, columns]));
    Ok(())
}

struct GenerateVocabRemapping {
    offset: usize,
    count: usize,
    old_size: Option<usize>,
}

/// The read size of vocabulary files.
const BUFFER_BYTES: usize = 64 << 10;

impl GenerateVocabRemapping {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let positive = |name: &str| -> Result<usize> {
            let value = attrs.int(name)?;
            usize::try_from(value).map_err(|_| Status::invalid_argument(format!("{name} must be >= 0, got {value}")))
        };
        BoxedKernel::new_blocking(GenerateVocabRemapping {
            offset: positive("new_vocab_offset")?,
            count: positive("num_new_vocab")?,
            old_size: usize::try_from(attrs.int("old_vocab_size")?).ok(),
        })
    }
}

impl Kernel for GenerateVocabRemapping {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let named = |input: usize, name: &str| -> Result<String> {
            let path = scalar_text(context.input(input)?, name)?;
            match path.is_empty() {
                true => Err(Status::invalid_argument(format!("{name} cannot be empty."))),
                false => Ok(path),
            }
        };
        let (new_path, old_path) = (named(0, "new vocab file")?, named(1, "old vocab file")?);
        let mut old = HashMap::new();
        let mut lines = Lines::open(&old_path, CompressionType::None, BUFFER_BYTES)?;
        while self.old_size.is_none_or(|size| old.len() < size)
            && let Some(line) = lines.next_line()?
        {
            let place = old.len() as i64;
            if old.insert(line.clone(), place).is_some() {
                return Err(Status::failed_precondition(format!(
                    "HashTable has different value for same key. Key {} is there twice",
                    String::from_utf8_lossy(&line)
                )));
            }
        }
        if self.old_size.is_some_and(|size| old.len() < size) {
            return Err(Status::invalid_argument(format!(
                "Invalid vocab_size in {old_path}: expected {} but got {}",
                self.old_size.unwrap_or(0),
                old.len()
            )));
        }
        let mut remapping = Vec::new();
        let mut lines = Lines::open(&new_path, CompressionType::None, BUFFER_BYTES)?;
        for index in 0.. {
            if remapping.len() == self.count {
                break;
            }
            let Some(line) = lines.next_line()? else {
                return Err(Status::invalid_argument(format!(
                    "{new_path} has {index} lines, but {} are needed",
                    self.offset.saturating_add(self.count)
                )));
            };
            if index >= self.offset {
                remapping.push(old.get(&line).copied().unwrap_or(-1));
            }
        }
        let present = remapping.iter().filter(|&&place| place >= 0).count();
        context.set_output(0, Tensor::vector(&remapping));
        context.set_output(1, Tensor::scalar(i32::try_from(present).unwrap_or(i32::MAX)));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct LoadAndRemapMatrix {
    rows: i64,
    columns: i64,
}

impl LoadAndRemapMatrix {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (rows, columns) = (builder.attrs().int("num_rows")?, builder.attrs().int("num_cols")?);
        BoxedKernel::new_blocking(LoadAndRemapMatrix { rows, columns })
    }
}

/// Returns a remapping after checking its length, and that it uses nothing twice.
fn remapping<'a>(tensor: &'a Tensor, name: &str, length: i64, size: i64) -> Result<&'a [i64]> {
    let places = tensor.as_slice::<i64>()?;
    if !tensor.shape().is_vector() || places.len() as i64 != length {
        return Err(Status::invalid_argument(format!(
            "{name} must be a vector of {length} elements, got shape {}",
            tensor.shape()
        )));
    }
    let mut seen = HashMap::with_capacity(places.len());
    for (new, &old) in places.iter().enumerate() {
        if old >= size {
            return Err(Status::invalid_argument(format!(
                "{name}[{new}] = {old}, but there are only {size} in the checkpoint"
            )));
        }
        if old >= 0
            && let Some(other) = seen.insert(old, new)
        {
            return Err(Status::unimplemented(format!(
                "Old ID: {old} is mapped to both new ID {other} and {new}, which is not currently supported."
            )));
        }
    }
    Ok(places)
}

impl Kernel for LoadAndRemapMatrix {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let path = context.input(0)?;
        let [path] = path.strings()? else {
            return Err(Status::invalid_argument(format!(
                "The `ckpt_path` tensor must have exactly one element, got tensor of shape {}.",
                path.shape()
            )));
        };
        let name = scalar_text(context.input(1)?, "old_tensor_name")?;
        let reader = BundleReader::open(file_system(), &String::from_utf8_lossy(path))?;
        let info = reader.info(&name)?;
        if !info.shape.is_matrix() {
            return Err(Status::invalid_argument(format!(
                "Tensor {name} must be rank 2 but is of shape {}",
                info.shape
            )));
        }
        if info.dtype != DType::Float {
            return Err(Status::invalid_argument(format!("Tensor {name} must be of type float, not {}", info.dtype)));
        }
        let (old_rows, old_columns) = (info.shape.dim(0), info.shape.dim(1));
        let rows = remapping(context.input(2)?, "row_remapping", self.rows, old_rows)?;
        let given_columns = context.input(3)?;
        let same: Vec<i64>;
        let columns = if given_columns.num_elements() > 0 {
            remapping(given_columns, "col_remapping", self.columns, old_columns)?
        } else if self.columns == old_columns {
            same = (0..old_columns).collect();
            &same[..]
        } else {
            return Err(Status::invalid_argument(format!(
                "Tensor {name} has {old_columns} columns, where num_cols is {} and there is no col_remapping",
                self.columns
            )));
        };
        let old = reader.lookup(&name)?;
        let old = old.as_slice::<f32>()?;
        let shape = Shape::new(&[self.rows, self.columns])?;
        let mut fresh = context.slice::<f32>(4)?.iter();
        let total = fresh.len();
        let mut matrix = Vec::with_capacity(shape.num_elements());
        for &row in rows {
            for &column in columns {
                matrix.push(match row >= 0 && column >= 0 {
                    true => old[(row * old_columns + column) as usize],
                    false => *fresh.next().ok_or_else(|| {
                        Status::invalid_argument(format!(
                            "{total} initializing_values are fewer than the missing values"
                        ))
                    })?,
                });
            }
        }
        let used = total - fresh.len();
        if used != total {
            return Err(Status::invalid_argument(format!(
                "initializing_values contained {total} elements, but only {used} elements were used to fill in missing \
                 values."
            )));
        }
        context.set_output(0, Tensor::from_slice(shape.dims(), &matrix)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Shape, Tensor};

    #[test]
    fn words_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Tensor::string(path.to_str().unwrap().to_owned())
        };
        let files = [file("new", "a\nb\nc\nd\n"), file("old", "c\nx\nb\n")];
        let run = |offset: i64, count: i64, size: i64| {
            let attrs = attrs![("new_vocab_offset", offset), ("num_new_vocab", count), ("old_vocab_size", size)];
            run_op("GenerateVocabRemapping", attrs, &files)
        };
        let outputs = run(1, 3, -1).unwrap();
        assert_eq!(outputs[0].as_slice::<i64>().unwrap(), &[2, 0, -1]);
        assert_eq!(outputs[1].to_scalar::<i32>().unwrap(), 2);
        assert_eq!(run(1, 3, 2).unwrap()[0].as_slice::<i64>().unwrap(), &[-1, 0, -1]);
        assert!(run(3, 2, -1).is_err());
        assert!(run(0, 1, 9).is_err());
    }

    #[test]
    fn matrices_are_put_together() {
        let directory = tempfile::tempdir().unwrap();
        let path = Tensor::string(directory.path().join("model").to_str().unwrap().to_owned());
        let strings = |text: &'static str| Tensor::from_strings(Shape::vector(1), vec![text.into()]).unwrap();
        let old = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        run_op("SaveV2", attrs![], &[path.clone(), strings("w"), strings(""), old]).unwrap();
        let run = |rows: &[i64], columns: &[i64], fresh: &[f32], num_cols: i64| {
            let inputs = [
                path.clone(),
                Tensor::string("w"),
                Tensor::vector(rows),
                Tensor::vector(columns),
                Tensor::vector(fresh),
            ];
            run_op("LoadAndRemapMatrix", attrs![("num_rows", rows.len() as i64), ("num_cols", num_cols)], &inputs)
        };
        let matrix = run(&[1, -1], &[2, 0, -1], &[7.0, 8.0, 9.0, 10.0], 3).unwrap();
        assert_eq!(matrix[0].as_slice::<f32>().unwrap(), &[6.0, 4.0, 7.0, 8.0, 9.0, 10.0]);
        let same = run(&[1], &[], &[], 3).unwrap();
        assert_eq!(same[0].as_slice::<f32>().unwrap(), &[4.0, 5.0, 6.0]);
        assert!(run(&[1, 1], &[], &[], 3).is_err());
        assert!(run(&[2], &[], &[], 3).is_err());
        assert!(run(&[-1], &[], &[1.0], 3).is_err());
        assert!(run(&[0], &[], &[1.0], 3).is_err());
    }

    #[test]
    fn shapes() {
        let attrs = attrs![("num_rows", 4i64), ("num_cols", 5i64)];
        check_shape("LoadAndRemapMatrix", attrs, "[];[];[4];[?];[?]", "[4,5]");
    }
}
