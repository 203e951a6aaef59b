//! Writing a checkpoint, or one shard of it.

use super::index::{Entries, create_data_file, install};
use super::strings::encode_lengths;
use super::sweep::sweep_leftovers;
use super::{TensorSlice, data_filename, encode_tensor_name_slice, variants};
use crate::coding::mask_crc32c;
use crate::file_system::{FileSystem, WritableFile, create_temporary, path};
use proto::BundleEntryProto;
use std::sync::{Arc, Mutex};
use tensor::{Code, DType, Result, Shape, Status, Tensor};

/// The layout of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct BundleWriterOptions {
    /// Every tensor starts at a multiple of this in the data file.
    pub data_alignment: usize,
}

impl Default for BundleWriterOptions {
    fn default() -> Self {
        BundleWriterOptions { data_alignment: 1 }
    }
}

/// Writes the tensors of one data file, and the index when it is finished.
///
/// Until then, nothing is visible under the checkpoint's names. If the writer is dropped before, it cleans up.
pub struct BundleWriter {
    file_system: Arc<dyn FileSystem>,
    prefix: String,
    options: BundleWriterOptions,
    entries: Entries,
    /// The data file; `None` once it is closed.
    data: Option<Box<dyn WritableFile>>,
    /// The name of the data file until the index is in place; in a file system in which files appear whole, this is the final name.
    temporary: String,
    size: u64,
    /// Whether a write has failed, after which the data file is of no use.
    failed: Option<Status>,
    installed: bool,
}

/// The checksum is taken of as many bytes as stay in the cache until they are written.
const CHUNK_BYTES: usize = 1 << 20;

impl BundleWriter {
    /// Starts a checkpoint; creates the directory if only that is missing.
    pub fn new(file_system: Arc<dyn FileSystem>, prefix: &str, options: BundleWriterOptions) -> Result<BundleWriter> {
        match file_system.create_dir(path::dirname(prefix)) {
            Err(status) if status.code() != Code::AlreadyExists => return Err(status),
            _ => {}
        }
        let (temporary, data) = if file_system.appears_whole(prefix) {
            let (_, name, data) = create_data_file(&*file_system, prefix, 1)?;
            (name, data)
        } else {
            // The leftovers of killed savers would stay forever.
            sweep_leftovers(&*file_system, prefix);
            create_temporary(&*file_system, &data_filename(prefix, 0, 1))?
        };
        Ok(BundleWriter {
            file_system,
            prefix: prefix.to_owned(),
            options,
            entries: Entries::new(),
            data: Some(data),
            temporary,
            size: 0,
            failed: None,
            installed: false,
        })
    }

    /// Writes a whole tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        self.add_entry(name.as_bytes().to_vec(), tensor)
    }

    /// Writes a slice of a tensor whose other slices are written with other calls, or to other shards.
    pub fn add_slice(&mut self, name: &str, full_shape: &Shape, slice: &TensorSlice, tensor: &Tensor) -> Result<()> {
        let shape = slice.slice_shape(full_shape)?;
        if shape != *tensor.shape() {
            return Err(Status::invalid_argument(format!(
                "Slice in shape_and_slice specification of {name} does not match the shape of the tensor to save: \
                 {full_shape} {slice}, tensor: {}",
                tensor.shape()
            )));
        }
        if slice.covers(full_shape) {
            return self.add(name, tensor);
        }
        if name.is_empty() {
            return Err(empty_name());
        }
        let dtype = tensor.dtype() as i32;
        if let Some(entry) = self.entries.get(name.as_bytes())
            && (entry.dtype != dtype || entry.shape != Some(full_shape.to_proto()) || entry.slices.is_empty())
        {
            return Err(Status::invalid_argument(format!(
                "Slices of {name} do not agree: {} {full_shape} after another type or shape",
                tensor.dtype()
            )));
        }
        self.add_entry(encode_tensor_name_slice(name, slice), tensor)?;
        let entry = self.entries.entry(name.as_bytes().to_vec()).or_insert_with(|| BundleEntryProto {
            dtype,
            shape: Some(full_shape.to_proto()),
            ..Default::default()
        });
        entry.slices.push(slice.to_proto());
        Ok(())
    }

    /// Puts the checkpoint in place. An old one with the same prefix stays complete until the new one is, even if this process is killed.
    pub fn finish(self) -> Result<()> {
        self.finish_and_hold().map(drop)
    }

    /// Puts a part of a sharded checkpoint in place. Until the returned value is dropped, other savers know that the part is about to be
    /// merged.
    pub fn finish_and_hold(mut self) -> Result<HeldPart> {
        if let Some(status) = self.failed.take() {
            return Err(status);
        }
        let Some(mut data) = self.data.take() else {
            return Err(Status::internal("BundleWriter is closed"));
        };
        data.sync()?;
        let data_files = [self.temporary.clone()];
        let installed = install(&*self.file_system, &self.prefix, &data_files, &self.entries);
        // In a store the index may be there although an answer was lost: then the data file must stay.
        self.installed = installed.is_ok() || self.file_system.appears_whole(&self.prefix);
        let index = installed?;
        // Under its new name: until then the lock of an open file says that it is no leftover.
        data.close()?;
        Ok(HeldPart { index: Mutex::new(index) })
    }

    fn add_entry(&mut self, key: Vec<u8>, tensor: &Tensor) -> Result<()> {
        if let Some(status) = &self.failed {
            return Err(status.clone());
        }
        if key.is_empty() {
            return Err(empty_name());
        }
        if self.entries.contains_key(&key) {
            return Err(Status::invalid_argument(format!("Adding duplicate key: {}", key.escape_ascii())));
        }
        let offset = i64::try_from(self.size).map_err(|_| Status::out_of_range("the data file is too large"))?;
        let written = self.write_tensor(tensor);
        if let Err(status) = &written
            && status.code() != Code::Unimplemented
        {
            self.failed = Some(status.clone());
        }
        let (size, checksum) = written?;
        self.entries.insert(
            key,
            BundleEntryProto {
                dtype: tensor.dtype() as i32,
                shape: Some(tensor.shape().to_proto()),
                shard_id: 0,
                offset,
                size: i64::try_from(size).map_err(|_| Status::out_of_range("a tensor is too large"))?,
                crc32c: mask_crc32c(checksum),
                slices: Vec::new(),
            },
        );
        Ok(())
    }

    /// Writes the bytes and returns how many, and their checksum.
    fn write_tensor(&mut self, tensor: &Tensor) -> Result<(u64, u32)> {
        let start = self.size;
        let checksum = match (tensor.dtype(), tensor.buffer()) {
            (DType::String, _) => self.write_strings(tensor)?,
            (DType::Variant, _) => {
                let (data, checksum) = variants::encode(tensor.variants()?)?;
                self.append(&data)?;
                checksum
            }
            (_, Some(buffer)) => {
                let mut checksum = 0;
                for chunk in buffer.bytes().chunks(CHUNK_BYTES) {
                    checksum = crc32c::crc32c_append(checksum, chunk);
                    self.append(chunk)?;
                }
                checksum
            }
            (dtype, None) => {
                return Err(Status::unimplemented(format!("{dtype} tensors can't be saved in a checkpoint")));
            }
        };
        let size = self.size - start;
        let alignment = self.options.data_alignment.max(1) as u64;
        let padding = self.size.next_multiple_of(alignment) - self.size;
        if padding > 0 {
            self.append(&vec![0; padding as usize])?;
        }
        Ok((size, checksum))
    }

    fn write_strings(&mut self, tensor: &Tensor) -> Result<u32> {
        let strings = tensor.strings()?;
        let (lengths, mut checksum) = encode_lengths(strings);
        self.append(&lengths)?;
        for string in strings {
            checksum = crc32c::crc32c_append(checksum, string);
            self.append(string)?;
        }
        Ok(checksum)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let data = self.data.as_mut().ok_or_else(|| Status::internal("BundleWriter is closed"))?;
        data.append(bytes)?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for BundleWriter {
    fn drop(&mut self) {
        if !self.installed {
            self.data = None;
            let _ = self.file_system.delete_file(&self.temporary);
        }
    }
}

/// A part of a sharded checkpoint that is in place and locked.
pub struct HeldPart {
    #[expect(dead_code, reason = "it is kept open for its lock")]
    index: Mutex<Box<dyn WritableFile>>,
}

fn empty_name() -> Status {
    Status::invalid_argument("a tensor in a checkpoint needs a name")
}
