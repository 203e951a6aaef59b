//! A file system that reports every change, for records such as the audit log.

use super::{ExistingLock, FileStatistics, FileSystem, Locking, RandomAccessFile, WritableFile};
use std::fmt;
use std::sync::Arc;
use tensor::Result;

/// A change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created or truncated.
    Write,
    /// It was opened for appending.
    Append,
    /// It was renamed; the path is the new one.
    Rename,
    /// It was deleted.
    Delete,
    /// A directory was created.
    MakeDirectory,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Change::Write => "write",
            Change::Append => "append",
            Change::Rename => "rename",
            Change::Delete => "delete",
            Change::MakeDirectory => "mkdir",
        })
    }
}

/// Receives each change, with the path and the result.
pub type Observer = Arc<dyn Fn(Change, &str, Result<()>) + Send + Sync>;

/// Another file system, whose changes are reported to an observer, including failed ones.
pub struct ObservedFileSystem {
    files: Arc<dyn FileSystem>,
    observer: Observer,
}

impl ObservedFileSystem {
    /// Observes a file system.
    pub fn new(files: Arc<dyn FileSystem>, observer: Observer) -> ObservedFileSystem {
        ObservedFileSystem { files, observer }
    }

    fn told<T>(&self, change: Change, path: &str, result: Result<T>) -> Result<T> {
        (self.observer)(change, path, result.as_ref().map(drop).map_err(Clone::clone));
        result
    }
}

impl FileSystem for ObservedFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        self.files.open(path)
    }
    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.told(Change::Write, path, self.files.create(path))
    }
    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.told(Change::Write, path, self.files.create_new(path))
    }
    fn create_locked(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.told(Change::Write, path, self.files.create_locked(path))
    }
    fn lock_existing(&self, path: &str) -> Result<Option<ExistingLock>> {
        self.files.lock_existing(path)
    }
    fn locks_reach_all_hosts(&self, directory: &str) -> bool {
        self.files.locks_reach_all_hosts(directory)
    }
    fn try_lock_file(&self, path: &str, holder: &str) -> Result<Locking> {
        self.files.try_lock_file(path, holder)
    }
    fn appears_whole(&self, path: &str) -> bool {
        self.files.appears_whole(path)
    }
    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.told(Change::Append, path, self.files.open_append(path))
    }
    fn exists(&self, path: &str) -> Result<bool> {
        self.files.exists(path)
    }
    fn stat(&self, path: &str) -> Result<FileStatistics> {
        self.files.stat(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.told(Change::Rename, to, self.files.rename(from, to))
    }
    fn delete_file(&self, path: &str) -> Result<()> {
        self.told(Change::Delete, path, self.files.delete_file(path))
    }
    fn delete_dir(&self, path: &str) -> Result<()> {
        self.told(Change::Delete, path, self.files.delete_dir(path))
    }
    fn create_dir(&self, path: &str) -> Result<()> {
        let made = self.files.create_dir(path);
        match &made {
            // If the directory exists already, nothing is changed.
            Err(status) if status.code() == tensor::Code::AlreadyExists => made,
            _ => self.told(Change::MakeDirectory, path, made),
        }
    }
    fn create_dir_all(&self, path: &str) -> Result<()> {
        let is_there = self.files.exists(path).unwrap_or(false);
        let made = self.files.create_dir_all(path);
        if is_there { made } else { self.told(Change::MakeDirectory, path, made) }
    }
    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.files.list(path)
    }
    fn sync_dir(&self, path: &str) -> Result<()> {
        self.files.sync_dir(path)
    }
    fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        self.files.glob(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::LocalFileSystem;
    use std::sync::Mutex;
    use tensor::Code;

    #[test]
    fn every_change_is_told_and_what_fails_too() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        let told: Arc<Mutex<Vec<(Change, String, Option<Code>)>>> = Arc::default();
        let note = told.clone();
        let observer: Observer = Arc::new(move |change, path, outcome| {
            let name = path.rsplit('/').next().unwrap().to_owned();
            note.lock().unwrap().push((change, name, outcome.err().map(|status| status.code())));
        });
        let files = ObservedFileSystem::new(Arc::new(LocalFileSystem), observer);
        files.create(&at("a")).unwrap().close().unwrap();
        assert!(files.create_new(&at("a")).is_err());
        files.open_append(&at("a")).unwrap().close().unwrap();
        files.rename(&at("a"), &at("b")).unwrap();
        files.open(&at("b")).unwrap();
        files.delete_file(&at("b")).unwrap();
        assert!(files.delete_file(&at("b")).is_err());
        files.create_dir(&at("c")).unwrap();
        assert!(files.create_dir(&at("c")).is_err());
        files.create_dir_all(&at("c")).unwrap();
        let expected = [
            (Change::Write, "a", None),
            (Change::Write, "a", Some(Code::AlreadyExists)),
            (Change::Append, "a", None),
            (Change::Rename, "b", None),
            (Change::Delete, "b", None),
            (Change::Delete, "b", Some(Code::NotFound)),
            (Change::MakeDirectory, "c", None),
        ];
        let expected: Vec<_> = expected.map(|(change, name, code)| (change, name.to_owned(), code)).into();
        assert_eq!(*told.lock().unwrap(), expected);
    }
}
