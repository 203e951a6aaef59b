//! Reading a checkpoint, tensor by tensor or slice by slice.

use super::index::{decode_entry, for_each_entry, open_index};
use super::region::{Run, Runs, covering_runs, whole};
use super::tensor_slice::Extent;
use super::{TensorSlice, data_filename, encode_tensor_name_slice, strings, variants};
use crate::coding::unmask_crc32c;
use crate::file_system::{FileSystem, RandomAccessFile};
use crate::table::Table;
use bytes::Bytes;
use proto::BundleEntryProto;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tensor::{Buffer, Code, DType, Result, Shape, Status, StringElement, Tensor, Variant};

/// The description of a tensor in a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// The name.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape of the whole tensor.
    pub shape: Shape,
    /// Its size in the data files, in bytes.
    pub bytes: u64,
    /// The slices in which it is stored; empty if it is stored in one piece.
    pub slices: Vec<TensorSlice>,
}

/// An open checkpoint. Tensors are read on request, also by several threads at the same time.
pub struct BundleReader {
    file_system: Arc<dyn FileSystem>,
    prefix: String,
    table: Table,
    num_shards: i32,
    data_files: Mutex<HashMap<i32, DataFile>>,
    /// The ranges whose checksum was verified, so that parts of them may be read alone.
    verified: Mutex<HashSet<Place>>,
}

/// A run of bytes in a data file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    shard: i32,
    offset: u64,
    size: usize,
}

#[derive(Clone)]
struct DataFile {
    file: Arc<dyn RandomAccessFile>,
    length: u64,
}

/// The location of the bytes of a tensor or of a slice.
struct Stored {
    dtype: DType,
    shape: Shape,
    place: Place,
    checksum: u32,
    data: DataFile,
}

/// The bytes that are read at once: few enough that their checksum is computed while they are in the cache.
const CHUNK_BYTES: usize = 1 << 20;

/// Runs of at least this many bytes are read separately, once the checksum of their tensor was verified.
const SINGLE_READ_BYTES: usize = 64 << 10;

/// The number of times that a checkpoint may be replaced between the opening of its index and that of its data.
const OPEN_ATTEMPTS: u32 = 100;

impl BundleReader {
    /// Opens `PREFIX.index` and the first of its data files; the others are opened when they are needed.
    ///
    /// A checkpoint with one data file can be read to its end even if it is replaced in the meantime.
    pub fn open(file_system: Arc<dyn FileSystem>, prefix: &str) -> Result<BundleReader> {
        let (mut table, mut header) = open_index(&*file_system, prefix)?;
        let mut data_files = HashMap::new();
        for _ in 0..OPEN_ATTEMPTS {
            match open_data_file(&*file_system, prefix, 0, header.num_shards) {
                Ok(file) => {
                    data_files.insert(0, file);
                    break;
                }
                Err(status) if status.code() == Code::NotFound => {}
                // The error is returned when a tensor is requested; an index alone can be listed.
                Err(_) => break,
            }
            let before = header.num_shards;
            (table, header) = open_index(&*file_system, prefix)?;
            // A different number means that the checkpoint was replaced after its index was opened.
            if header.num_shards == before {
                break;
            }
        }
        Ok(BundleReader {
            file_system,
            prefix: prefix.to_owned(),
            table,
            num_shards: header.num_shards,
            data_files: Mutex::new(data_files),
            verified: Mutex::default(),
        })
    }

    /// Returns the prefix that was opened.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the number of data files in the names of the checkpoint's files.
    pub fn num_shards(&self) -> usize {
        usize::try_from(self.num_shards).unwrap_or(0)
    }

    /// Returns whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> Result<bool> {
        Ok(!name.is_empty() && self.table.get(name.as_bytes())?.is_some())
    }

    /// Returns the description of a tensor in the index.
    pub fn info(&self, name: &str) -> Result<TensorInfo> {
        self.info_from_entry(name.to_owned(), &self.entry(name)?)
    }

    /// Returns the descriptions of all tensors in the index, by name.
    pub fn list(&self) -> Result<Vec<TensorInfo>> {
        let mut infos = Vec::new();
        for_each_entry(&self.table, |key, entry| {
            // Slices are described with their tensor.
            if !key.starts_with(&[0]) {
                infos.push(self.info_from_entry(String::from_utf8_lossy(key).into_owned(), &entry)?);
            }
            Ok(())
        })?;
        Ok(infos)
    }

    /// Reads a whole tensor, from its slices if it is stored in slices.
    pub fn lookup(&self, name: &str) -> Result<Tensor> {
        let entry = self.entry(name)?;
        if entry.slices.is_empty() {
            return self.read_whole(&self.stored(name, &entry)?);
        }
        let rank = entry.shape.as_ref().map_or(0, |shape| shape.dim.len());
        self.lookup_entry_slice(name, &entry, &TensorSlice::full(rank))
    }

    /// Reads a slice of a tensor, in however many and whichever slices it is stored.
    ///
    /// This allocates memory for the result, not for the stored tensor.
    pub fn lookup_slice(&self, name: &str, slice: &TensorSlice) -> Result<Tensor> {
        self.lookup_entry_slice(name, &self.entry(name)?, slice)
    }

    /// Reads everything and verifies every checksum.
    pub fn verify(&self) -> Result<()> {
        for_each_entry(&self.table, |key, entry| {
            if !entry.slices.is_empty() {
                return Ok(());
            }
            let stored = self.stored(&key.escape_ascii().to_string(), &entry)?;
            match stored.dtype {
                DType::String => self.read_strings(&stored).map(drop),
                DType::Variant => self.read_variants(&stored).map(drop),
                _ => self.stream(&stored, 0..stored.place.size, |_, _| {}),
            }
        })
    }

    fn entry(&self, name: &str) -> Result<BundleEntryProto> {
        let value = if name.is_empty() { None } else { self.table.get(name.as_bytes())? };
        let value = value.ok_or_else(|| Status::not_found(format!("Key {name} not found in checkpoint")))?;
        decode_entry(name.as_bytes(), &value)
    }

    fn slice_entry(&self, name: &str, slice: &TensorSlice) -> Result<BundleEntryProto> {
        let key = encode_tensor_name_slice(name, slice);
        let missing = || Status::data_loss(format!("Slice {slice} of {name} not found in checkpoint"));
        decode_entry(name.as_bytes(), &self.table.get(&key)?.ok_or_else(missing)?)
    }

    fn info_from_entry(&self, name: String, entry: &BundleEntryProto) -> Result<TensorInfo> {
        let (dtype, shape) = type_and_shape(&name, entry)?;
        let slices = stored_slices(&name, entry)?;
        let size = |entry: &BundleEntryProto| u64::try_from(entry.size).unwrap_or(0);
        let mut bytes = size(entry);
        for slice in &slices {
            bytes = bytes.saturating_add(size(&self.slice_entry(&name, slice)?));
        }
        Ok(TensorInfo { name, dtype, shape, bytes, slices })
    }

    fn lookup_entry_slice(&self, name: &str, entry: &BundleEntryProto, slice: &TensorSlice) -> Result<Tensor> {
        let (dtype, full_shape) = type_and_shape(name, entry)?;
        let wanted = slice.resolve(&full_shape).map_err(|status| status.context(format!("tensor {name}")))?;
        let slices = stored_slices(name, entry)?;
        if slices.is_empty() {
            let stored = self.stored(name, entry)?;
            return match slice.covers(&full_shape) {
                true => self.read_whole(&stored),
                false => self.assemble(dtype, &wanted, &[(whole(&full_shape), stored)]),
            };
        }
        let boxes: Vec<Vec<Extent>> = slices
            .iter()
            .map(|stored| stored.resolve(&full_shape).map_err(|status| Status::data_loss(status.message())))
            .collect::<Result<_>>()?;
        let parts = covering_runs(&boxes, &wanted).map_err(|status| {
            let message =
                format!("{} for partitioned tensor {name} to restore in slice_spec: {slice}", status.message());
            Status::new(status.code(), message)
        })?;
        let mut stored = Vec::with_capacity(parts.len());
        for (index, _) in parts {
            let entry = self.slice_entry(name, &slices[index])?;
            let part = self.stored(name, &entry)?;
            if part.dtype != dtype || whole_lengths(&boxes[index]) != part.shape.dims() {
                return Err(Status::data_loss(format!("Slice {} of {name} has another type or shape", slices[index])));
            }
            stored.push((boxes[index].clone(), part));
        }
        check_total(name, &stored)?;
        match stored.as_slice() {
            [(extents, part)] if *extents == wanted => self.read_whole(part),
            _ => self.assemble(dtype, &wanted, &stored),
        }
    }

    /// Assembles one tensor, the box `wanted`, from parts of the stored ones.
    fn assemble(&self, dtype: DType, wanted: &[Extent], stored: &[(Vec<Extent>, Stored)]) -> Result<Tensor> {
        let shape = Shape::new(&whole_lengths(wanted))?;
        if dtype == DType::Variant {
            return Err(Status::unimplemented("slices of variant tensors can't be restored"));
        }
        if dtype == DType::String {
            let mut elements = vec![StringElement::new(); shape.num_elements()];
            for (extents, part) in stored {
                let strings = self.read_strings(part)?;
                for Run { source, destination, length } in Runs::between(extents, wanted).into_iter().flatten() {
                    let source = strings.get(source..source + length).ok_or_else(out_of_step)?;
                    elements
                        .get_mut(destination..destination + length)
                        .ok_or_else(out_of_step)?
                        .clone_from_slice(source);
                }
            }
            return Tensor::from_strings(shape, elements);
        }
        let mut buffer = Buffer::new(shape.num_bytes(dtype.size())?)?;
        let bytes = buffer.bytes_mut().ok_or_else(out_of_step)?;
        for (extents, part) in stored {
            if let Some(runs) = Runs::between(extents, wanted) {
                self.read_runs(part, runs.scaled(dtype.size()), bytes)?;
            }
        }
        Tensor::from_buffer(dtype, shape, buffer)
    }

    fn read_whole(&self, stored: &Stored) -> Result<Tensor> {
        if stored.dtype == DType::String {
            return Tensor::from_strings(stored.shape.clone(), self.read_strings(stored)?);
        }
        if stored.dtype == DType::Variant {
            return Tensor::from_variants(stored.shape.clone(), self.read_variants(stored)?);
        }
        let mut buffer = Buffer::new(stored.place.size)?;
        let bytes = buffer.bytes_mut().ok_or_else(out_of_step)?;
        let mut checksum = 0;
        let mut offset = stored.place.offset;
        for chunk in bytes.chunks_mut(CHUNK_BYTES) {
            stored.read_at(offset, chunk)?;
            checksum = crc32c::crc32c_append(checksum, chunk);
            offset += chunk.len() as u64;
        }
        self.compare_checksum(stored, checksum)?;
        Tensor::from_buffer(stored.dtype, stored.shape.clone(), buffer)
    }

    fn read_strings(&self, stored: &Stored) -> Result<Vec<StringElement>> {
        let mut data = vec![0; stored.place.size];
        stored.read_at(stored.place.offset, &mut data)?;
        let (strings, checksum) =
            strings::decode(&Bytes::from(data), stored.shape.num_elements()).map_err(|status| {
                status.context(format!("TensorBundle at {} shard {}", self.prefix, stored.place.shard))
            })?;
        self.compare_checksum(stored, checksum)?;
        Ok(strings)
    }

    fn read_variants(&self, stored: &Stored) -> Result<Vec<Variant>> {
        let mut data = vec![0; stored.place.size];
        stored.read_at(stored.place.offset, &mut data)?;
        let (elements, checksum) = variants::decode(&data, stored.shape.num_elements())?;
        self.compare_checksum(stored, checksum)?;
        Ok(elements)
    }

    /// Copies runs of stored bytes to `output`.
    fn read_runs(&self, stored: &Stored, runs: Runs, output: &mut [u8]) -> Result<()> {
        let verified = self.lock_verified().contains(&stored.place);
        if verified && runs.run_length() >= SINGLE_READ_BYTES {
            for Run { source, destination, length } in runs {
                let target = output.get_mut(destination..destination + length).ok_or_else(out_of_step)?;
                stored.read_at(stored.place.offset + source as u64, target)?;
            }
            return Ok(());
        }
        let range = match verified {
            true => runs.clone().next().map_or(0, |run| run.source)..runs.source_end().min(stored.place.size),
            false => 0..stored.place.size,
        };
        let mut runs = runs.peekable();
        self.stream(stored, range, |chunk_start, chunk| {
            let chunk_end = chunk_start + chunk.len();
            while let Some(&Run { source, destination, length }) = runs.peek() {
                let (from, to) = (source.max(chunk_start), (source + length).min(chunk_end));
                if from < to {
                    let target = destination + (from - source);
                    output[target..target + (to - from)].copy_from_slice(&chunk[from - chunk_start..to - chunk_start]);
                }
                if source + length > chunk_end {
                    break;
                }
                runs.next();
            }
        })
    }

    /// Reads a range of a stored tensor or slice, chunk by chunk, and verifies the checksum if the range is all of it.
    fn stream(
        &self,
        stored: &Stored,
        range: std::ops::Range<usize>,
        mut visit: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let complete = range == (0..stored.place.size);
        let mut buffer = vec![0; range.len().min(CHUNK_BYTES)];
        let mut checksum = 0;
        let mut position = range.start;
        while position < range.end {
            let count = buffer.len().min(range.end - position);
            let chunk = &mut buffer[..count];
            stored.read_at(stored.place.offset + position as u64, chunk)?;
            if complete {
                checksum = crc32c::crc32c_append(checksum, chunk);
            }
            visit(position, chunk);
            position += count;
        }
        if complete { self.compare_checksum(stored, checksum) } else { Ok(()) }
    }

    fn compare_checksum(&self, stored: &Stored, checksum: u32) -> Result<()> {
        if stored.checksum != checksum {
            return Err(Status::data_loss(format!(
                "TensorBundle at {} shard {} ({} bytes): Checksum does not match: stored {:08} vs. calculated on the \
                 restored bytes {checksum:08}",
                self.prefix, stored.place.shard, stored.place.size, stored.checksum
            )));
        }
        self.lock_verified().insert(stored.place);
        Ok(())
    }

    /// Checks an entry against its data file, so that nothing is allocated for bytes that don't exist.
    fn stored(&self, name: &str, entry: &BundleEntryProto) -> Result<Stored> {
        let (dtype, shape) = type_and_shape(name, entry)?;
        let data = self.data_file(entry.shard_id)?;
        let length = data.length;
        let invalid = |expected: &str| {
            Status::data_loss(format!(
                "Invalid size in bundle entry: key {name}; stored size {}; expected size {expected}",
                entry.size
            ))
        };
        let size = usize::try_from(entry.size).map_err(|_| invalid("is not negative"))?;
        if dtype.is_plain() {
            let expected = shape.num_bytes(dtype.size())?;
            if size != expected {
                return Err(invalid(&expected.to_string()));
            }
        } else if matches!(dtype, DType::String | DType::Variant) {
            if size < shape.num_elements() {
                return Err(invalid(&format!("is at least {}", shape.num_elements())));
            }
        } else {
            return Err(Status::unimplemented(format!("{name} is a {dtype} tensor, which can't be restored")));
        }
        let offset = u64::try_from(entry.offset).ok();
        let end = offset.and_then(|offset| offset.checked_add(size as u64));
        let Some(offset) = offset.filter(|_| end.is_some_and(|end| end <= length)) else {
            return Err(Status::data_loss(format!(
                "{} is truncated: {name} is {size} bytes at {}, the file has {length}",
                data_path(&self.prefix, entry.shard_id, self.num_shards),
                entry.offset
            )));
        };
        let checksum = unmask_crc32c(entry.crc32c);
        Ok(Stored { dtype, shape, place: Place { shard: entry.shard_id, offset, size }, checksum, data })
    }

    fn data_file(&self, shard: i32) -> Result<DataFile> {
        if shard < 0 || shard >= self.num_shards {
            return Err(Status::data_loss(format!(
                "{} refers to shard {shard} of {}",
                super::meta_filename(&self.prefix),
                self.num_shards
            )));
        }
        let mut files = self.data_files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&shard) {
            return Ok(file.clone());
        }
        let opened = open_data_file(&*self.file_system, &self.prefix, shard, self.num_shards)?;
        files.insert(shard, opened.clone());
        Ok(opened)
    }

    fn lock_verified(&self) -> MutexGuard<'_, HashSet<Place>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_data_file(file_system: &dyn FileSystem, prefix: &str, shard: i32, num_shards: i32) -> Result<DataFile> {
    let file: Arc<dyn RandomAccessFile> = file_system.open(&data_path(prefix, shard, num_shards))?.into();
    let length = file.length()?;
    Ok(DataFile { file, length })
}

fn data_path(prefix: &str, shard: i32, num_shards: i32) -> String {
    let [shard, num_shards] = [shard, num_shards].map(|number| usize::try_from(number).unwrap_or(0));
    data_filename(prefix, shard, num_shards)
}

impl Stored {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.data.file.read_exact_at(offset, buffer).map_err(|status| match status.code() {
            // To a training loop OUT_OF_RANGE means the end of its input, which a file cut short is not.
            Code::OutOfRange => Status::data_loss(status.message()),
            _ => status,
        })
    }
}

fn type_and_shape(name: &str, entry: &BundleEntryProto) -> Result<(DType, Shape)> {
    let invalid = |status: Status| Status::data_loss(format!("Entry for key {name}: {}", status.message()));
    let dtype = DType::from_i32(entry.dtype).map_err(invalid)?;
    let shape = match &entry.shape {
        Some(shape) => Shape::from_proto(shape).map_err(invalid)?,
        None => Shape::scalar(),
    };
    Ok((dtype, shape))
}

fn stored_slices(name: &str, entry: &BundleEntryProto) -> Result<Vec<TensorSlice>> {
    let slices = entry.slices.iter().map(TensorSlice::from_proto).collect::<Result<_>>();
    slices.map_err(|status: Status| Status::data_loss(format!("Entry for key {name}: {}", status.message())))
}

/// Fails when slices share bytes, so that a small file can't stand for a huge tensor.
fn check_total(name: &str, stored: &[(Vec<Extent>, Stored)]) -> Result<()> {
    let shards: HashMap<i32, u64> = stored.iter().map(|(_, part)| (part.place.shard, part.data.length)).collect();
    let available: u128 = shards.values().map(|&length| u128::from(length)).sum();
    let needed: u128 = stored.iter().map(|(_, part)| part.place.size as u128).sum();
    if needed > available {
        return Err(Status::data_loss(format!("The slices of {name} have {needed} bytes, their files {available}")));
    }
    Ok(())
}

fn whole_lengths(extents: &[Extent]) -> Vec<i64> {
    extents.iter().map(|extent| extent.length).collect()
}

/// Sizes that were checked don't fit all the same.
fn out_of_step() -> Status {
    Status::internal("the parts of a tensor do not fit it")
}
