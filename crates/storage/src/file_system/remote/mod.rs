//! Object stores as file systems: S3, Google Cloud Storage, Azure Blob Storage, and servers with their protocols.
//!
//! A path is `SCHEME://BUCKET/KEY`. The differences from a disk: an object appears whole when its file is closed or flushed; a directory
//! exists as long as something is beneath it; a rename is a copy and a deletion; and there are no locks. A file that must be new is
//! created by a request that the store refuses if the object exists, so that two writers can't both get a name.

mod errors;
mod reader;
mod rooted;
mod runtime;
mod stores;
mod writer;

pub use rooted::RootedRemoteFileSystem;
pub use stores::SCHEMES;

use super::{FileStatistics, FileSystem, RandomAccessFile, WritableFile};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use reader::ObjectFile;
use std::sync::Arc;
use stores::{EnvironmentStores, Stores};
use tensor::{Code, Result, Status};
use writer::ObjectWriter;

/// Larger objects are copied through this process in parts: S3 copies at most 5 GB in one request, which must not take too long.
const COPY_BYTES_MAX: u64 = 4 << 30;

/// The most names in a directory, since all are kept in memory.
const NAMES_MAX: usize = 1 << 20;

/// The object stores that the environment gives access to.
pub struct RemoteFileSystem {
    stores: Arc<dyn Stores>,
}

impl Default for RemoteFileSystem {
    fn default() -> Self {
        RemoteFileSystem { stores: Arc::new(EnvironmentStores::default()) }
    }
}

/// The name of an object, which may not exist.
#[derive(Clone)]
struct Object {
    store: Arc<dyn ObjectStore>,
    key: Path,
    /// The path as the program wrote it.
    path: String,
}

impl Object {
    /// Returns the store's metadata of the object, which must exist.
    fn head(&self) -> Result<ObjectMeta> {
        let (store, key) = (self.store.clone(), self.key.clone());
        runtime::wait(&self.path, async move { store.head(&key).await })
    }

    fn head_if_there(&self) -> Result<Option<ObjectMeta>> {
        if self.is_bucket() {
            return Ok(None);
        }
        match self.head() {
            Err(status) if status.code() == Code::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    fn is_bucket(&self) -> bool {
        self.key.as_ref().is_empty()
    }

    /// Returns whether this is a directory: whether something is beneath it.
    fn is_directory(&self) -> Result<bool> {
        let (store, key) = (self.store.clone(), self.key.clone());
        let first = runtime::wait(&self.path, async move {
            let beneath = store.list(Some(&key)).try_filter(|meta| std::future::ready(meta.location != key));
            std::pin::pin!(beneath).next().await.transpose()
        })?;
        Ok(first.is_some())
    }

    /// Fails if this is a bucket, which is no file.
    fn file(self) -> Result<Object> {
        match self.is_bucket() {
            true => Err(Status::failed_precondition(format!("{}; Is a directory", self.path))),
            false => Ok(self),
        }
    }

    fn delete(&self) -> Result<()> {
        let (store, key) = (self.store.clone(), self.key.clone());
        runtime::wait(&self.path, async move { store.delete(&key).await })
    }
}

impl RemoteFileSystem {
    /// Returns a file system on the given stores, for tests.
    #[cfg(test)]
    fn with_stores(stores: Arc<dyn Stores>) -> RemoteFileSystem {
        RemoteFileSystem { stores }
    }

    fn object(&self, path: &str) -> Result<Object> {
        let Location { scheme, bucket, key } = Location::parse(path)?;
        let key = Path::parse(&key)
            .map_err(|_| Status::invalid_argument(format!("{path}; Not a name that a store can have")))?;
        Ok(Object { store: self.stores.store(scheme, bucket)?, key, path: path.to_owned() })
    }

    fn not_found(path: &str) -> Status {
        Status::not_found(format!("{path}; No such file or directory"))
    }
}

/// A parsed path.
#[derive(Debug, PartialEq, Eq)]
struct Location<'a> {
    scheme: &'a str,
    bucket: &'a str,
    /// The key without empty and `.` components.
    key: String,
}

impl Location<'_> {
    fn parse(path: &str) -> Result<Location<'_>> {
        let invalid = |why: &str| Status::invalid_argument(format!("{path}; {why}"));
        let (scheme, rest) = path.split_once("://").ok_or_else(|| invalid("Not SCHEME://BUCKET/KEY"))?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        // The name becomes part of a request's address.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '$');
        if bucket.is_empty() || !bucket.chars().all(is_plain) {
            return Err(invalid("Not the name of a bucket"));
        }
        let parts: Vec<&str> = key.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err(invalid("A store has no '..'"));
        }
        Ok(Location { scheme, bucket, key: parts.join("/") })
    }
}

impl FileSystem for RemoteFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        Ok(Box::new(ObjectFile::open(self.object(path)?.file()?)?))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        Ok(Box::new(ObjectWriter::new(self.object(path)?.file()?)))
    }

    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        let object = self.object(path)?.file()?;
        let (store, key) = (object.store.clone(), object.key.clone());
        let reserved = runtime::wait(path, async move {
            // An empty object reserves the name until the content takes its place.
            store.put_opts(&key, PutPayload::default(), PutOptions::from(PutMode::Create)).await
        });
        match reserved {
            // The store has no conditional requests.
            Err(status) if status.code() == Code::Unimplemented => {
                if object.head_if_there()?.is_some() {
                    return Err(Status::already_exists(format!("{path}; File exists")));
                }
            }
            Err(status) if status.code() == Code::Aborted => {
                return Err(Status::already_exists(format!("{path}; File exists")));
            }
            reserved => drop(reserved?),
        }
        Ok(Box::new(ObjectWriter::new(object)))
    }

    fn appears_whole(&self, _path: &str) -> bool {
        true
    }

    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        let object = self.object(path)?.file()?;
        Ok(Box::new(match object.head_if_there()? {
            Some(meta) => ObjectWriter::resume(object, meta.size),
            None => ObjectWriter::new(object),
        }))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        let object = self.object(path)?;
        Ok(object.head_if_there()?.is_some() || object.is_directory()?)
    }

    fn stat(&self, path: &str) -> Result<FileStatistics> {
        let object = self.object(path)?;
        if let Some(meta) = object.head_if_there()? {
            let modified_nanos = meta.last_modified.timestamp_nanos_opt().unwrap_or(i64::MAX);
            return Ok(FileStatistics { length: meta.size, modified_nanos, is_directory: false });
        }
        match object.is_directory()? || object.is_bucket() {
            true => Ok(FileStatistics { length: 0, modified_nanos: 0, is_directory: true }),
            false => Err(Self::not_found(path)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.object(from)?.file()?, self.object(to)?.file()?);
        let Some(meta) = source.head_if_there()? else {
            return Err(match source.is_directory()? {
                true => Status::unimplemented(format!("{from}; A store can't rename a directory")),
                false => Self::not_found(from),
            });
        };
        if Arc::ptr_eq(&source.store, &target.store) && source.key == target.key {
            return Ok(());
        }
        if Arc::ptr_eq(&source.store, &target.store) && meta.size <= COPY_BYTES_MAX {
            let (store, from_key, to_key) = (source.store.clone(), source.key.clone(), target.key.clone());
            runtime::wait(from, async move { store.copy(&from_key, &to_key).await })?;
        } else {
            copy_through(ObjectFile::open(source.clone())?, ObjectWriter::new(target))?;
        }
        source.delete()
    }

    fn delete_file(&self, path: &str) -> Result<()> {
        let object = self.object(path)?.file()?;
        // Most stores report success if there was no object.
        match object.head_if_there()? {
            Some(_) => object.delete(),
            None => Err(Self::not_found(path)),
        }
    }

    fn delete_dir(&self, path: &str) -> Result<()> {
        let object = self.object(path)?.file()?;
        match object.is_directory()? {
            true => Err(Status::failed_precondition(format!("{path}; Directory not empty"))),
            false => Ok(()),
        }
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        let object = self.object(path)?;
        match object.is_bucket() || object.head_if_there()?.is_some() || object.is_directory()? {
            true => Err(Status::already_exists(format!("{path}; File exists"))),
            false => Ok(()),
        }
    }

    fn create_dir_all(&self, path: &str) -> Result<()> {
        match self.object(path)?.head_if_there()? {
            Some(_) => Err(Status::already_exists(format!("{path}; File exists"))),
            None => Ok(()),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        let object = self.object(path)?;
        let (store, key) = (object.store.clone(), object.key.clone());
        let found = runtime::wait(path, async move {
            let prefix = (!key.as_ref().is_empty()).then_some(&key);
            store.list_with_delimiter(prefix).await
        })?;
        let locations = found.objects.iter().map(|meta| &meta.location).chain(&found.common_prefixes);
        // Some tools write an empty object for a directory.
        let names = locations.filter(|location| **location != object.key).filter_map(|location| location.filename());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        if names.len() > NAMES_MAX {
            return Err(Status::resource_exhausted(format!("{path}; There are more than {NAMES_MAX} names in it")));
        }
        names.sort_unstable();
        names.dedup();
        match names.is_empty() && !object.is_bucket() {
            true if object.head_if_there()?.is_some() => {
                Err(Status::failed_precondition(format!("{path}; Not a directory")))
            }
            true => Err(Self::not_found(path)),
            false => Ok(names),
        }
    }

    fn sync_dir(&self, _path: &str) -> Result<()> {
        Ok(())
    }
}

/// Copies a file in parts. An existing object with the new name is replaced in one step.
fn copy_through(source: ObjectFile, target: ObjectWriter) -> Result<()> {
    let (mut target, mut buffer, mut offset): (Box<dyn WritableFile>, _, u64) =
        (Box::new(target), vec![0; writer::PART_BYTES], 0);
    loop {
        let count = source.read_at(offset, &mut buffer)?;
        if count == 0 {
            return target.close();
        }
        target.append(&buffer[..count])?;
        offset += count as u64;
    }
}

#[cfg(test)]
mod tests;
