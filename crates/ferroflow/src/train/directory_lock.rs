//! [`DirectoryLock`]: keeps a second trainer out of a directory of checkpoints, which the two would overwrite for each other.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use storage::file_system::{FileSystem, FileSystems, LockFile, Locking, holder, path};
use tensor::{Result, Status};

/// The file that says who saves checkpoints in a directory.
const LOCK_FILE: &str = "ferroflow.lock";

/// The right of this process to save checkpoints in a directory. It ends with this, or with the process, however that ends.
///
/// A process can have it more than once: supervisors of one program know of each other.
pub(super) struct DirectoryLock {
    directory: PathBuf,
}

/// What this process has locked, with the number of those who use it.
static HELD: Mutex<BTreeMap<PathBuf, (Option<LockFile>, usize)>> = Mutex::new(BTreeMap::new());

impl DirectoryLock {
    /// Locks a directory that is there, or says who has it.
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
                    "{who} saves its checkpoints in {directory} (see {file}). Choose another directory, or end it first"
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
                // The file is deleted before anybody else in this process asks for it.
                held.remove(&self.directory);
            }
        }
    }
}
