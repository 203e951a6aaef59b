//! Locks that end with their process, however it ends.

use super::{FileSystem, hostname};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tensor::{Result, Status};

/// The result of [`FileSystem::try_lock_file`].
pub enum Locking {
    /// The lock is ours.
    Held(LockFile),
    /// Another process holds it. The text describes the holder, and may be empty.
    Taken(String),
    /// This file system has no locks.
    Unsupported,
}

/// A lock file that is ours. The file is deleted and the lock released when this is dropped.
#[derive(Debug)]
#[must_use = "the lock ends when this is dropped"]
pub struct LockFile {
    file: File,
    path: PathBuf,
    /// The directory that `path` leads through, where it has no name of its own.
    directory: Option<File>,
}

/// A lock on a file that is there for another reason; it ends when this is dropped.
#[must_use = "the lock ends when this is dropped"]
pub struct ExistingLock(#[expect(dead_code, reason = "it is held, not read")] File);

impl LockFile {
    pub(super) fn new(file: File, path: PathBuf) -> LockFile {
        LockFile { file, path, directory: None }
    }

    /// Keeps the directory open that the path leads through.
    pub(super) fn beneath(self, directory: File) -> LockFile {
        let mut lock = self;
        lock.directory = Some(directory);
        lock
    }
}

impl ExistingLock {
    pub(super) fn new(file: File) -> ExistingLock {
        ExistingLock(file)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A process that waits for this lock takes it next, sees that the file has been deleted, and creates a new one.
        if is_at(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether an open file is the one with this name.
pub(super) fn is_at(file: &File, path: &std::path::Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// Waits for a lock file for a limited time; `None` if the file system has no locks.
pub fn lock_within(file_system: &dyn FileSystem, path: &str, patience: Duration) -> Result<Option<LockFile>> {
    let (holder, start) = (holder(), Instant::now());
    loop {
        match file_system.try_lock_file(path, &holder)? {
            Locking::Held(lock) => return Ok(Some(lock)),
            Locking::Unsupported => return Ok(None),
            Locking::Taken(who) if start.elapsed() >= patience => {
                let who = if who.is_empty() { "another process".to_owned() } else { who };
                return Err(Status::deadline_exceeded(format!(
                    "{path} has been locked for {} s by {who}, which may be stopped; end it, or delete the file",
                    patience.as_secs()
                )));
            }
            // No system call waits for a lock for a bounded time.
            Locking::Taken(_) => std::thread::sleep(LOCK_PAUSE),
        }
    }
}

/// How long to wait between attempts to take a lock. A holder only renames a few files, so waits are short.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Returns the text by which a lock file describes this process: `process 12 on HOST since 2020-02-20T20:20:20Z`.
pub fn holder() -> String {
    let since = humantime::format_rfc3339_seconds(SystemTime::now());
    format!("process {} on {} since {since}", std::process::id(), hostname())
}
