//! [`DirectoryLock`]: keeps a second trainer out of a checkpoint directory, since the two would overwrite each other's files.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use storage::file_system::{FileSystem, FileSystems, LockFile, Locking, holder, path};
use tensor::{Result, Status};

/// The file that names the process that saves checkpoints in a directory.
const LOCK_FILE: &str = "ferroflow.lock";

/// This process's right to save checkpoints in a directory. It ends when it is dropped, or with the process, however that ends.
///
/// A process can hold it several times: the supervisors of one program cooperate.
pub(super) struct DirectoryLock {
    directory: PathBuf,
}

/// The directories that this process has locked, with the number of users of each.
static HELD: Mutex<BTreeMap<PathBuf, (Option<LockFile>, usize)>> = Mutex::new(BTreeMap::new());

impl DirectoryLock {
    /// Locks an existing directory; the error says who has it.
    pub(super) fn take(directory: &str) -> Result<DirectoryLock> {
        let key = std::fs::canonicalize(path::local(directory)).unwrap_or_else(|_| PathBuf::from(directory));
        let mut held = HELD.lock();
        if let Some((_, users)) = held.get_mut(&key) {
            *users += 1;
            return Ok(DirectoryLock { directory: key });
        }
        let file = path::join(directory, LOCK_FILE);
        let lock = match FileSystems::all().try_lock_file(&file, &holder())? {
            Locking::Held(lock) => Some(lock),
            Locking::Taken(who) => {
                let who = if who.is_empty() { "another process" } else { &who };
                return Err(Status::failed_precondition(format!(
                    "{who} saves its checkpoints in {directory} (see {file}). Choose another directory, or stop it first"
                )));
            }
            Locking::Unsupported => {
                tracing::warn!(
                    "{directory} is on a file system without locks: make sure that no second trainer saves its checkpoints \
                     there"
                );
                None
            }
        };
        held.insert(key.clone(), (lock, 1));
        Ok(DirectoryLock { directory: key })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let mut held = HELD.lock();
        if let Some((_, users)) = held.get_mut(&self.directory) {
            *users -= 1;
            if *users == 0 {
                // The file is deleted before another part of this process can lock the directory.
                held.remove(&self.directory);
            }
        }
    }
}
