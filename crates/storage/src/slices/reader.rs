//! Reading what one or more files of slices hold.

use super::CONTENTS_KEY;
use super::values::decode;
use crate::bundle::{Extent, Run, Runs, TensorSlice, check_version, covering_runs, encode_tensor_name_slice};
use crate::file_system::FileSystem;
use crate::table::Table;
use prost::Message;
use proto::{SavedSliceMeta, SavedTensorSlices};
use std::collections::HashMap;
use tensor::{Buffer, Code, DType, Result, Shape, Status, StringElement, Tensor};

/// An open checkpoint. Only what it holds is in memory, not the values.
pub struct SliceReader {
    pattern: String,
    files: Vec<Table>,
    tensors: HashMap<String, Stored>,
}

struct Stored {
    dtype: DType,
    shape: Shape,
    slices: Vec<StoredSlice>,
}

struct StoredSlice {
    slice: TensorSlice,
    file: usize,
}

/// Returns the code that TensorFlow gives to an error while opening, unless the file is out of reach: that is no fault of the
/// file's.
fn wrapped_code(status: &Status, usual: Code) -> Code {
    if status.code() == Code::PermissionDenied { Code::PermissionDenied } else { usual }
}

impl SliceReader {
    /// Opens all files that a pattern names.
    pub fn open(file_system: &dyn FileSystem, pattern: &str) -> Result<SliceReader> {
        let failed = "Unsuccessful TensorSliceReader constructor";
        let paths = file_system.glob(pattern).map_err(|status| {
            let code = wrapped_code(&status, Code::InvalidArgument);
            Status::new(code, format!("{failed}: Failed to get matching files on {pattern}: {status}"))
        })?;
        if paths.is_empty() {
            return Err(Status::not_found(format!("{failed}: Failed to find any matching files for {pattern}")));
        }
        let mut reader = SliceReader { pattern: pattern.to_owned(), files: Vec::new(), tensors: HashMap::new() };
        for path in paths {
            let table = file_system.open(&path).and_then(Table::open).map_err(|status| {
                let text = format!(
                    "Unable to open table file {path}: {}: perhaps your file is in a different file format and you need \
                     to use a different restore operator?",
                    status.message()
                );
                Status::new(wrapped_code(&status, Code::DataLoss), text)
            })?;
            reader.add_file(&path, table)?;
        }
        Ok(reader)
    }

    /// Returns the type and the shape of a tensor.
    pub fn info(&self, name: &str) -> Result<(DType, &Shape)> {
        self.stored(name).map(|stored| (stored.dtype, &stored.shape))
    }

    /// Reads a whole tensor.
    pub fn lookup(&self, name: &str) -> Result<Tensor> {
        let rank = self.stored(name)?.shape.rank();
        self.lookup_slice(name, &TensorSlice::full(rank))
    }

    /// Reads a slice, which needn't be one that is stored.
    pub fn lookup_slice(&self, name: &str, slice: &TensorSlice) -> Result<Tensor> {
        let stored = self.stored(name)?;
        let wanted = slice.resolve(&stored.shape)?;
        let boxes: Vec<Vec<Extent>> =
            stored.slices.iter().map(|part| part.slice.resolve(&stored.shape)).collect::<Result<_>>()?;
        let parts = covering_runs(&boxes, &wanted).map_err(|status| {
            Status::new(status.code(), format!("{} for slice {slice} of {name}", status.message()))
        })?;
        if let [(index, _)] = parts[..]
            && boxes[index] == wanted
        {
            return self.read(name, stored, &stored.slices[index]);
        }
        let shape = slice.slice_shape(&stored.shape)?;
        // Every value takes a byte at least, so a list of contents can't make us allocate more than its files justify.
        let available: u128 = self.files.iter().map(|file| u128::from(file.values_bytes_max())).sum();
        if shape.num_elements() as u128 > available {
            return Err(Status::data_loss(format!("{name} is said to have more values than the files have bytes")));
        }
        self.assemble(name, stored, shape, parts)
    }

    fn stored(&self, name: &str) -> Result<&Stored> {
        self.tensors.get(name).ok_or_else(|| {
            Status::not_found(format!("Tensor name \"{name}\" not found in checkpoint files {}", self.pattern))
        })
    }

    fn add_file(&mut self, path: &str, table: Table) -> Result<()> {
        let contents = table.get(CONTENTS_KEY)?.and_then(|bytes| SavedTensorSlices::decode(bytes.as_slice()).ok());
        let Some(contents) = contents.and_then(|contents| contents.meta) else {
            return Err(Status::data_loss(format!(
                "Failed to find the saved tensor slices at the beginning of the checkpoint file: {path}"
            )));
        };
        check_version(&contents.versions.unwrap_or_default())?;
        let file = self.files.len();
        self.files.push(table);
        for tensor in &contents.tensor {
            self.add_tensor(tensor, file)
                .map_err(|status| Status::data_loss(format!("{path}: {}: {}", tensor.name, status.message())))?;
        }
        Ok(())
    }

    fn add_tensor(&mut self, tensor: &SavedSliceMeta, file: usize) -> Result<()> {
        let dtype = DType::from_i32(tensor.r#type)?;
        let shape = tensor.shape.as_ref().map_or_else(|| Ok(Shape::scalar()), Shape::from_proto)?;
        let stored = self.tensors.entry(tensor.name.clone()).or_insert_with(|| Stored {
            dtype,
            shape: shape.clone(),
            slices: Vec::new(),
        });
        if stored.dtype != dtype || stored.shape != shape {
            return Err(Status::data_loss("the files disagree about its type or its shape"));
        }
        for slice in &tensor.slice {
            let slice = TensorSlice::from_proto(slice)?;
            slice.resolve(&shape)?;
            stored.slices.push(StoredSlice { slice, file });
        }
        Ok(())
    }

    /// Puts a slice together from parts of those that are stored.
    fn assemble(&self, name: &str, stored: &Stored, shape: Shape, parts: Vec<(usize, Runs)>) -> Result<Tensor> {
        if stored.dtype == DType::String {
            let mut elements = vec![StringElement::new(); shape.num_elements()];
            for (index, runs) in parts {
                copy_runs(self.read(name, stored, &stored.slices[index])?.strings()?, runs, &mut elements)?;
            }
            return Tensor::from_strings(shape, elements);
        }
        let size = stored.dtype.size();
        let mut buffer = Buffer::new(shape.num_bytes(size)?)?;
        let bytes = buffer.bytes_mut().ok_or_else(misfit)?;
        for (index, runs) in parts {
            let part = self.read(name, stored, &stored.slices[index])?;
            copy_runs(part.buffer().ok_or_else(misfit)?.bytes(), runs.scaled(size), bytes)?;
        }
        Tensor::from_buffer(stored.dtype, shape, buffer)
    }

    fn read(&self, name: &str, stored: &Stored, part: &StoredSlice) -> Result<Tensor> {
        let shape = part.slice.slice_shape(&stored.shape)?;
        let damaged = |what: &str| Status::data_loss(format!("Slice {} of {name} {what}", part.slice));
        let value = self.files[part.file].get(&encode_tensor_name_slice(name, &part.slice)).map_err(|status| {
            match status.code() {
                // To a training loop OUT_OF_RANGE means the end of its input, which a file cut short is not.
                Code::OutOfRange => Status::data_loss(status.message()),
                _ => status,
            }
        })?;
        let value = value.ok_or_else(|| damaged("is listed and not there"))?;
        let value = SavedTensorSlices::decode(value.as_slice()).map_err(|_| damaged("can't be parsed"))?;
        let values = value.data.and_then(|data| data.data).unwrap_or_default();
        decode(values, stored.dtype, &shape)
    }
}

fn copy_runs<T: Clone>(source: &[T], runs: Runs, target: &mut [T]) -> Result<()> {
    for Run { source: from, destination: to, length } in runs {
        let part = source.get(from..from + length).ok_or_else(misfit)?;
        target.get_mut(to..to + length).ok_or_else(misfit)?.clone_from_slice(part);
    }
    Ok(())
}

/// Sizes that were checked don't fit all the same.
fn misfit() -> Status {
    Status::internal("the parts of a tensor do not fit it")
}
