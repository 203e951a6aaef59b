//! Writing a file of slices.

use super::values::{check_writable, encode};
use super::{CONTENTS_KEY, FORMAT_VERSION};
use crate::bundle::{TensorSlice, encode_tensor_name_slice};
use crate::file_system::{FileSystem, create_temporary, path, sweep_temporary};
use crate::table::{TableOptions, TableWriter};
use prost::Message;
use proto::{SavedSlice, SavedSliceMeta, SavedTensorSliceMeta, SavedTensorSlices, VersionDef};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tensor::{Result, Shape, Status, Tensor};

/// Collects slices, and writes them when it is finished; until then nothing is visible under the file's name.
pub struct SliceWriter {
    file_system: Arc<dyn FileSystem>,
    path: String,
    contents: Vec<SavedSliceMeta>,
    /// Where a tensor is in the contents.
    places: HashMap<String, usize>,
    slices: BTreeMap<Vec<u8>, Slice>,
}

struct Slice {
    name: String,
    slice: TensorSlice,
    tensor: Tensor,
}

impl SliceWriter {
    /// Starts a file.
    pub fn new(file_system: Arc<dyn FileSystem>, path: &str) -> SliceWriter {
        SliceWriter {
            file_system,
            path: path.to_owned(),
            contents: Vec::new(),
            places: HashMap::new(),
            slices: BTreeMap::new(),
        }
    }

    /// Adds a whole tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.add_slice(name, tensor.shape(), &TensorSlice::full(tensor.shape().rank()), tensor)
    }

    /// Adds a slice of a tensor; the others may be in other files.
    pub fn add_slice(&mut self, name: &str, full_shape: &Shape, slice: &TensorSlice, tensor: &Tensor) -> Result<()> {
        let shape = slice.slice_shape(full_shape)?;
        if shape != *tensor.shape() {
            return Err(Status::invalid_argument(format!(
                "Slice {slice} of {name} has shape {shape}, the tensor to save {}",
                tensor.shape()
            )));
        }
        check_writable(tensor, name.len())?;
        let key = encode_tensor_name_slice(name, slice);
        // TensorFlow writes such a file, and then can't read it.
        if self.slices.contains_key(&key) {
            return Err(Status::invalid_argument(format!("Slice {slice} of {name} is saved twice")));
        }
        let place = match self.places.get(name) {
            Some(&place) => place,
            None => {
                self.places.insert(name.to_owned(), self.contents.len());
                self.contents.push(SavedSliceMeta {
                    name: name.to_owned(),
                    shape: Some(full_shape.to_proto()),
                    r#type: tensor.dtype() as i32,
                    slice: Vec::new(),
                });
                self.contents.len() - 1
            }
        };
        let entry = &mut self.contents[place];
        if entry.shape.as_ref() != Some(&full_shape.to_proto()) {
            return Err(Status::invalid_argument(format!(
                "Mismatching shapes: trying to add name {name}, shape = {full_shape}, after another shape"
            )));
        }
        if entry.r#type != tensor.dtype() as i32 {
            return Err(Status::invalid_argument(format!(
                "Mismatching types: trying to add name {name}, type = {}, after another type",
                tensor.dtype()
            )));
        }
        entry.slice.push(slice.to_proto());
        self.slices.insert(key, Slice { name: name.to_owned(), slice: slice.clone(), tensor: tensor.clone() });
        Ok(())
    }

    /// Writes the file and puts it in place in one step.
    pub fn finish(self) -> Result<()> {
        let appears_whole = self.file_system.appears_whole(&self.path);
        let (temporary, mut file) = if appears_whole {
            (self.path.clone(), self.file_system.create(&self.path)?)
        } else {
            // What savers left that were killed would stay for good.
            sweep_temporary(&*self.file_system, path::dirname(&self.path), |_, _| {});
            create_temporary(&*self.file_system, &self.path)?
        };
        let written = (|| {
            let mut table = TableWriter::new(&mut *file, TableOptions::default());
            let versions = VersionDef { producer: FORMAT_VERSION, ..Default::default() };
            let meta = SavedTensorSliceMeta { tensor: self.contents, versions: Some(versions) };
            table.add(CONTENTS_KEY, &SavedTensorSlices { meta: Some(meta), data: None }.encode_to_vec())?;
            // One slice is encoded at a time, so that a checkpoint isn't in memory twice.
            for (key, Slice { name, slice, tensor }) in self.slices {
                let data = SavedSlice { name, slice: Some(slice.to_proto()), data: Some(encode(&tensor)?) };
                table.add(&key, &SavedTensorSlices { meta: None, data: Some(data) }.encode_to_vec())?;
            }
            table.finish()?;
            file.sync()
        })();
        if appears_whole {
            return written.and_then(|()| file.close());
        }
        // It is closed under its new name: until then the lock says that it is no leftover.
        let installed =
            written.and_then(|()| self.file_system.rename(&temporary, &self.path)).and_then(|()| file.close());
        if installed.is_err() {
            // The leftover is useless, and the first error is the one to report.
            let _ = self.file_system.delete_file(&temporary);
        }
        installed
    }
}
