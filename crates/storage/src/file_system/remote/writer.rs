//! Writing an object: small ones in one request, larger ones in parts that become visible together when the file is closed.
//!
//! A store can't append. Each flush puts the whole file, so that readers see it. Once a file has more than one part, writing after a
//! flush starts a new upload, into which the content so far is copied.

use super::Object;
use super::runtime::{self, Pending};
use crate::file_system::WritableFile;
use bytes::{Bytes, BytesMut};
use object_store::{GetOptions, GetRange, MultipartUpload, ObjectStoreExt, PutPayload};
use std::collections::VecDeque;
use tensor::{Result, Status};

/// The size of the first parts. All stores accept parts of 5 MB and more.
pub(super) const PART_BYTES: usize = 8 << 20;

/// After this many parts, the size of parts doubles: S3 allows at most 10,000 parts.
const PARTS_OF_A_SIZE: usize = 1500;

/// The most parts that are uploaded at the same time.
const UNDER_WAY_MAX: usize = 4;

/// The most parts of an object.
const PARTS_MAX: usize = 10_000;

/// An object that is being written.
pub(super) struct ObjectWriter {
    object: Object,
    /// The content that is not in a part yet; all of it if there are no parts.
    buffer: BytesMut,
    upload: Option<Upload>,
    /// The number of bytes that are in the store already, which are copied if more are appended.
    stored: u64,
    /// Whether something was appended since the last put, or nothing was put yet.
    is_dirty: bool,
    failed: Option<Status>,
}

/// An upload in parts. If it is dropped before it is finished, it is aborted, and the store discards its parts.
struct Upload {
    parts: Option<Box<dyn MultipartUpload>>,
    count: usize,
    length: u64,
    under_way: VecDeque<Pending<()>>,
}

impl ObjectWriter {
    /// Starts an object, which becomes visible when it is flushed or closed.
    pub(super) fn new(object: Object) -> ObjectWriter {
        ObjectWriter { object, buffer: BytesMut::new(), upload: None, stored: 0, is_dirty: true, failed: None }
    }

    /// Continues an object of `length` bytes.
    pub(super) fn resume(object: Object, length: u64) -> ObjectWriter {
        let mut writer = ObjectWriter::new(object);
        (writer.stored, writer.is_dirty) = (length, false);
        writer
    }

    /// Fetches the flushed content, so that more can be appended to it.
    fn fetch_stored(&mut self) -> Result<()> {
        let (length, mut offset) = (std::mem::take(&mut self.stored), 0);
        while offset < length {
            let range = offset..length.min(offset + PART_BYTES as u64);
            let (store, key) = (self.object.store.clone(), self.object.key.clone());
            offset = range.end;
            let piece = runtime::wait(&self.object.path, async move {
                let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
                store.get_opts(&key, options).await?.bytes().await
            })?;
            self.add(&piece)?;
        }
        Ok(())
    }

    fn add(&mut self, data: &[u8]) -> Result<()> {
        let mut rest = data;
        loop {
            let part_bytes = self.upload.as_ref().map_or(PART_BYTES, Upload::part_bytes);
            let room = part_bytes.saturating_sub(self.buffer.len());
            if rest.len() <= room {
                self.buffer.extend_from_slice(rest);
                return Ok(());
            }
            self.buffer.extend_from_slice(&rest[..room]);
            rest = &rest[room..];
            self.put_part()?;
        }
    }

    fn put_part(&mut self) -> Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            None => self.upload.insert(Upload::start(&self.object)?),
        };
        upload.put(&self.object, self.buffer.split().freeze())
    }

    /// Makes everything visible.
    fn put_all(&mut self) -> Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        match self.upload.take() {
            None => {
                let (store, key) = (self.object.store.clone(), self.object.key.clone());
                let payload = PutPayload::from(Bytes::copy_from_slice(&self.buffer));
                runtime::wait(&self.object.path, async move { store.put(&key, payload).await })?;
            }
            Some(upload) => self.stored = upload.finish(&self.object, self.buffer.split().freeze())?,
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Runs `work`. Once it has failed, all later calls fail: a file with a missing part must not become visible.
    fn unless_failed(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(status) = &self.failed {
            return Err(status.clone());
        }
        let done = work(self);
        if let Err(status) = &done {
            self.failed = Some(status.clone());
            self.upload = None;
        }
        done
    }
}

impl Upload {
    fn start(object: &Object) -> Result<Upload> {
        let (store, key) = (object.store.clone(), object.key.clone());
        let parts = runtime::wait(&object.path, async move { store.put_multipart(&key).await })?;
        Ok(Upload { parts: Some(parts), count: 0, length: 0, under_way: VecDeque::new() })
    }

    /// Returns the size of the next part.
    fn part_bytes(&self) -> usize {
        PART_BYTES << (self.count / PARTS_OF_A_SIZE).min(6)
    }

    fn put(&mut self, object: &Object, part: Bytes) -> Result<()> {
        let Some(parts) = self.parts.as_mut().filter(|_| self.count < PARTS_MAX) else {
            return Err(Status::out_of_range(format!("{}; File too large", object.path)));
        };
        while self.under_way.len() >= UNDER_WAY_MAX {
            self.under_way.pop_front().map_or(Ok(()), Pending::wait)?;
        }
        self.count += 1;
        self.length += part.len() as u64;
        self.under_way.push_back(runtime::start(&object.path, parts.put_part(part.into()))?);
        Ok(())
    }

    /// Adds the last part, which may be smaller or empty, makes the object visible, and returns its length.
    fn finish(mut self, object: &Object, rest: Bytes) -> Result<u64> {
        if !rest.is_empty() {
            self.put(object, rest)?;
        }
        while let Some(part) = self.under_way.pop_front() {
            part.wait()?;
        }
        if let Some(mut parts) = self.parts.take() {
            runtime::wait(&object.path, async move {
                let completed = parts.complete().await;
                if completed.is_err() {
                    let _ = parts.abort().await;
                }
                completed
            })?;
        }
        Ok(self.length)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.under_way.clear();
        if let Some(mut parts) = self.parts.take() {
            // Nobody waits for this. If it fails, a bucket's rule for unfinished uploads removes the parts.
            runtime::detach(async move { drop(parts.abort().await) });
        }
    }
}

impl WritableFile for ObjectWriter {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.unless_failed(|writer| {
            if data.is_empty() {
                return Ok(());
            }
            if writer.stored > 0 {
                writer.fetch_stored()?;
            }
            writer.is_dirty = true;
            writer.add(data)
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.unless_failed(ObjectWriter::put_all)
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}
