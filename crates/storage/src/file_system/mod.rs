//! File systems: the operations that checkpoints, records and event files need, as traits that the local disk and object stores
//! implement, and [`FileSystems`], which selects one by a path's scheme.
//!
//! Paths are strings, as they are on TensorFlow's wire. `file://` in front means the local disk, as does no scheme.

mod errno;
mod glob;
mod local;
mod lock;
mod observed;
pub mod path;
#[cfg(feature = "object_store")]
mod remote;
mod rooted;
mod temporary;

pub use errno::status_from_io;
pub use glob::matches as glob_matches;
pub use local::LocalFileSystem;
pub use lock::{ExistingLock, LockFile, Locking, holder, lock_within};
pub use observed::{Change, ObservedFileSystem, Observer};
#[cfg(feature = "object_store")]
pub use remote::{RemoteFileSystem, RootedRemoteFileSystem};
pub use rooted::{FileRoot, ReadOnlyFileSystem, RootedFileSystem};
pub use temporary::{create_temporary, host_number, parse_temporary, sweep_temporary};

use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{Code, Result, Status};

/// The properties of a path, from [`FileSystem::stat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatistics {
    /// The size in bytes; 0 for a directory.
    pub length: u64,
    /// When the content last changed, in nanoseconds since the Epoch.
    pub modified_nanos: i64,
    /// Whether the path is a directory.
    pub is_directory: bool,
}

/// A file that can be read at any offset, by several threads at once.
pub trait RandomAccessFile: Send + Sync {
    /// Returns the current length in bytes.
    fn length(&self) -> Result<u64>;

    /// Fills `buffer` from `offset` on and returns how many bytes there were: fewer than asked for only at the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Fills all of `buffer` from `offset` on; a file that ends before that is `OUT_OF_RANGE`.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let count = self.read_at(offset, buffer)?;
        if count < buffer.len() {
            return Err(Status::out_of_range(format!("Read less bytes than requested: {count} of {}", buffer.len())));
        }
        Ok(())
    }
}

/// A file that is being written from front to back.
pub trait WritableFile: Send {
    /// Appends `data`; it may stay in a buffer until [`flush`](WritableFile::flush).
    fn append(&mut self, data: &[u8]) -> Result<()>;

    /// Hands everything appended so far to the file system, so that readers see it.
    fn flush(&mut self) -> Result<()>;

    /// Flushes, and returns when the content is on stable storage.
    fn sync(&mut self) -> Result<()>;

    /// Flushes and closes. Dropping a file without this may lose what is in the buffer, and hides the error.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The operations on files and directories.
///
/// Errors carry TensorFlow's codes and read `PATH; No such file or directory`.
pub trait FileSystem: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>>;

    /// Creates a file, or empties the one that is there.
    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>>;

    /// Creates a file, and fails with `ALREADY_EXISTS` when there is one.
    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>>;

    /// Creates a file as [`create_new`](Self::create_new) does, and locks it as long as it is open, so that
    /// [`lock_existing`](Self::lock_existing) shows that it is being written. A file system without locks only creates it.
    fn create_locked(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.create_new(path)
    }

    /// Locks an existing file; `None` if another process holds its lock, or the file system has no locks.
    fn lock_existing(&self, _path: &str) -> Result<Option<ExistingLock>> {
        Ok(None)
    }

    /// Returns whether a lock in a directory is seen by every machine that can reach the directory. Some network file systems
    /// keep locks to the machine that took them.
    fn locks_reach_all_hosts(&self, _directory: &str) -> bool {
        false
    }

    /// Tries once to take the lock file `path`, which then holds the text `holder` until the returned lock is dropped. The lock
    /// of a killed process is free; its file is taken over.
    fn try_lock_file(&self, _path: &str, _holder: &str) -> Result<Locking> {
        Ok(Locking::Unsupported)
    }

    /// Returns whether a file appears under its name only when it is flushed or closed, then with all of its content, as in a store
    /// of objects. Such a file needs no temporary name. Renaming one may be slow, and nothing is locked.
    fn appears_whole(&self, _path: &str) -> bool {
        false
    }

    /// Opens a file for writing at its end, and creates it when there is none.
    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>>;

    /// Returns whether a file or a directory exists.
    fn exists(&self, path: &str) -> Result<bool>;

    /// Returns the size, the time of the last change, and whether it is a directory.
    fn stat(&self, path: &str) -> Result<FileStatistics>;

    /// Renames a file; one that has the new name already is replaced in one step.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Deletes a file.
    fn delete_file(&self, path: &str) -> Result<()>;

    /// Deletes an empty directory.
    fn delete_dir(&self, path: &str) -> Result<()>;

    /// Creates a directory in one that exists; `ALREADY_EXISTS` when it is there.
    fn create_dir(&self, path: &str) -> Result<()>;

    /// Creates a directory with all its parents, unless it is there.
    fn create_dir_all(&self, path: &str) -> Result<()>;

    /// Returns the names, not the paths, of what is in a directory, sorted.
    fn list(&self, path: &str) -> Result<Vec<String>>;

    /// Makes renames, creations and deletions in a directory survive a power cut.
    fn sync_dir(&self, path: &str) -> Result<()>;

    /// Returns the paths that match a pattern with `*`, `?` and `[...]`, none of which matches a `/`, sorted.
    fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        glob::glob(self, pattern)
    }

    /// Reads a whole file. One that is larger than a tensor may be is `RESOURCE_EXHAUSTED`, before any memory is taken for it.
    fn read(&self, path: &str) -> Result<Vec<u8>> {
        if self.appears_whole(path) {
            return read_whole(self, path);
        }
        let file = self.open(path)?;
        let mut content = Vec::new();
        loop {
            let start = content.len();
            // A file may grow or shrink in the meantime, so its length is only a first guess; some files report 0.
            let missing = file.length()?.saturating_sub(start as u64);
            let wanted = usize::try_from(missing).unwrap_or(usize::MAX).max(UNKNOWN_PIECE_BYTES.min(start.max(4096)));
            let end = start.saturating_add(wanted);
            tensor::check_elements_fit(end, 1)?;
            content.try_reserve_exact(wanted).map_err(|_| out_of_memory(path, end))?;
            content.resize(end, 0);
            let count = file.read_at(start as u64, &mut content[start..])?;
            content.truncate(start + count);
            if count < wanted {
                return Ok(content);
            }
        }
    }

    /// Reads up to `length` bytes at `offset`; fewer only when the file ends before.
    fn read_range(&self, path: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let file = self.open(path)?;
        let available = file.length()?.saturating_sub(offset);
        let length = length.min(usize::try_from(available).unwrap_or(usize::MAX));
        tensor::check_elements_fit(length, 1)?;
        let mut content = vec![0; length];
        let count = file.read_at(offset, &mut content)?;
        content.truncate(count);
        Ok(content)
    }

    /// Writes a whole file atomically: every reader, even after a crash, finds the old content or the new one.
    fn write_atomically(&self, path: &str, content: &[u8]) -> Result<()> {
        if self.appears_whole(path) {
            let mut file = self.create(path)?;
            file.append(content)?;
            return file.close();
        }
        let (temporary, mut file) = create_temporary(self, path)?;
        let written = file.append(content).and_then(|()| file.sync());
        // It is closed under its new name: until then the lock says that it is no leftover.
        let renamed = written.and_then(|()| self.rename(&temporary, path)).and_then(|()| file.close());
        if let Err(status) = renamed {
            let _ = self.delete_file(&temporary);
            return Err(status);
        }
        self.sync_dir(path::dirname(path))
    }

    /// Deletes a file, or a directory with everything in it.
    fn delete_recursively(&self, path: &str) -> Result<()> {
        if !self.stat(path)?.is_directory {
            return self.delete_file(path);
        }
        for name in self.list(path)? {
            self.delete_recursively(&path::join(path, &name))?;
        }
        self.delete_dir(path)
    }
}

/// The largest piece to read of a file whose length is unknown.
const UNKNOWN_PIECE_BYTES: usize = 1 << 20;

/// How often a file is read again that is replaced while it is read.
const READS_OF_A_REPLACED_FILE: usize = 5;

/// Reads a file that appears whole, as it was at one time: reading on at its end would continue it with what has replaced it meanwhile.
fn read_whole<F: FileSystem + ?Sized>(file_system: &F, path: &str) -> Result<Vec<u8>> {
    let mut reads = 0;
    loop {
        let file = file_system.open(path)?;
        let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
        tensor::check_elements_fit(length, 1)?;
        let mut content = Vec::new();
        content.try_reserve_exact(length).map_err(|_| out_of_memory(path, length))?;
        content.resize(length, 0);
        reads += 1;
        match file.read_exact_at(0, &mut content) {
            Err(status) if status.code() == Code::Aborted && reads < READS_OF_A_REPLACED_FILE => {}
            read => return read.map(|()| content),
        }
    }
}

fn out_of_memory(path: &str, bytes: usize) -> Status {
    Status::resource_exhausted(format!("{path}: out of memory: can't allocate {bytes} bytes"))
}

/// The file systems by scheme; itself a file system, which hands each path to the one that it belongs to.
#[derive(Clone)]
pub struct FileSystems {
    by_scheme: BTreeMap<String, Arc<dyn FileSystem>>,
}

impl FileSystems {
    /// Returns the local file system alone.
    pub fn local() -> FileSystems {
        let local: Arc<dyn FileSystem> = Arc::new(LocalFileSystem);
        FileSystems { by_scheme: BTreeMap::from([(String::new(), local.clone()), ("file".to_owned(), local)]) }
    }

    /// Returns the local file system and, if they are built in (feature `object_store`), the stores for `s3://`, `gs://` and `az://`.
    pub fn all() -> FileSystems {
        let files = FileSystems::local();
        #[cfg(feature = "object_store")]
        let files = files.with_remote(REMOTE.clone());
        files
    }

    /// Returns the file systems as far as their owner lets others reach them: beneath `roots`, or everywhere on the local disk if
    /// there are none; and only to read, where `read_only` says so. Stores are reached only beneath roots that are URLs.
    pub fn confined(roots: &[FileRoot], read_only: bool) -> Result<FileSystems> {
        let is_url = |root: &&FileRoot| !matches!(path::scheme(&root.directory), "" | "file");
        let (remote, local): (Vec<FileRoot>, Vec<FileRoot>) = roots.iter().cloned().partition(|root| is_url(&root));
        let reachable: Arc<dyn FileSystem> = match (roots.is_empty(), read_only) {
            (true, false) => Arc::new(LocalFileSystem),
            (true, true) => Arc::new(ReadOnlyFileSystem(LocalFileSystem)),
            (false, false) => Arc::new(RootedFileSystem::new(&local)?),
            (false, true) => Arc::new(ReadOnlyFileSystem(RootedFileSystem::new(&local)?)),
        };
        let files = FileSystems {
            by_scheme: BTreeMap::from([(String::new(), reachable.clone()), ("file".to_owned(), reachable)]),
        };
        for root in &remote {
            check_scheme(&root.directory)?;
        }
        #[cfg(feature = "object_store")]
        let files =
            files.with_remote(Arc::new(RootedRemoteFileSystem::new(RemoteFileSystem::default(), &remote, read_only)?));
        Ok(files)
    }

    /// Adds one file system for the schemes of all stores.
    #[cfg(feature = "object_store")]
    fn with_remote(self, remote: Arc<dyn FileSystem>) -> FileSystems {
        remote::SCHEMES.iter().fold(self, |files, scheme| files.with(scheme, remote.clone()))
    }

    /// Adds the file system for paths that start with `SCHEME://`.
    #[must_use]
    pub fn with(mut self, scheme: &str, file_system: Arc<dyn FileSystem>) -> FileSystems {
        self.by_scheme.insert(scheme.to_owned(), file_system);
        self
    }

    /// Returns the file system that a path belongs to.
    pub fn for_path(&self, path: &str) -> Result<&dyn FileSystem> {
        let scheme = path::scheme(path);
        self.by_scheme.get(scheme).map(|file_system| &**file_system).ok_or_else(|| {
            let known: Vec<&str> =
                self.by_scheme.keys().map(String::as_str).filter(|known| !known.is_empty()).collect();
            not_implemented(path, &known)
        })
    }
}

/// One for the whole process, so that its connections are reused.
#[cfg(feature = "object_store")]
static REMOTE: std::sync::LazyLock<Arc<RemoteFileSystem>> = std::sync::LazyLock::new(Arc::default);

/// Returns an error for a path with a scheme for which no build, or not this one, has a file system.
fn check_scheme(path: &str) -> Result<()> {
    let known = FileSystems::all();
    known.for_path(path).map(drop)
}

fn not_implemented(path: &str, known: &[&str]) -> Status {
    let scheme = path::scheme(path);
    let hint = match scheme {
        "s3" | "gs" | "az" => "this program is built without its feature object_store".to_owned(),
        "s3a" | "s3n" => "write s3://".to_owned(),
        "gcs" => "write gs://".to_owned(),
        "abfs" | "abfss" | "wasb" | "wasbs" | "azure" | "adl" => {
            "write az://CONTAINER/PATH, and set AZURE_STORAGE_ACCOUNT_NAME".to_owned()
        }
        "hdfs" | "viewfs" | "webhdfs" => {
            "mount it (HDFS has an NFS gateway), or use its S3 gateway with s3:// and AWS_ENDPOINT".to_owned()
        }
        _ => format!("there are {}", known.join(", ")),
    };
    Status::unimplemented(format!("File system scheme '{scheme}' not implemented (file: '{path}'): {hint}"))
}

impl Default for FileSystems {
    fn default() -> Self {
        FileSystems::all()
    }
}

impl FileSystem for FileSystems {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        self.for_path(path)?.open(path)
    }
    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_path(path)?.create(path)
    }
    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_path(path)?.create_new(path)
    }
    fn create_locked(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_path(path)?.create_locked(path)
    }
    fn lock_existing(&self, path: &str) -> Result<Option<ExistingLock>> {
        self.for_path(path)?.lock_existing(path)
    }
    fn locks_reach_all_hosts(&self, directory: &str) -> bool {
        self.for_path(directory).is_ok_and(|file_system| file_system.locks_reach_all_hosts(directory))
    }
    fn try_lock_file(&self, path: &str, holder: &str) -> Result<Locking> {
        self.for_path(path)?.try_lock_file(path, holder)
    }
    fn appears_whole(&self, path: &str) -> bool {
        self.for_path(path).is_ok_and(|file_system| file_system.appears_whole(path))
    }
    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_path(path)?.open_append(path)
    }
    fn exists(&self, path: &str) -> Result<bool> {
        self.for_path(path)?.exists(path)
    }
    fn stat(&self, path: &str) -> Result<FileStatistics> {
        self.for_path(path)?.stat(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.for_path(from)?, self.for_path(to)?);
        if !std::ptr::addr_eq(source, target) {
            return Err(Status::unimplemented(format!("Renaming {from} to {to} not implemented")));
        }
        source.rename(from, to)
    }
    fn delete_file(&self, path: &str) -> Result<()> {
        self.for_path(path)?.delete_file(path)
    }
    fn delete_dir(&self, path: &str) -> Result<()> {
        self.for_path(path)?.delete_dir(path)
    }
    fn create_dir(&self, path: &str) -> Result<()> {
        self.for_path(path)?.create_dir(path)
    }
    fn create_dir_all(&self, path: &str) -> Result<()> {
        self.for_path(path)?.create_dir_all(path)
    }
    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.for_path(path)?.list(path)
    }
    fn sync_dir(&self, path: &str) -> Result<()> {
        self.for_path(path)?.sync_dir(path)
    }
    fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        self.for_path(pattern)?.glob(pattern)
    }
}

/// Returns this machine's name, as event files carry it.
pub fn hostname() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    from_kernel
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests;
