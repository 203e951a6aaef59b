//! Temporary files beside the file that they will replace, and how to recognize those whose writer has died.

use super::{FileSystem, WritableFile, hostname, path};
use std::sync::LazyLock;
use tensor::{Code, Result, Status};

/// Creates a file with a unique name beside `path`. It is locked until it is closed, which must not happen before it has its
/// final name: a temporary file without a lock is a leftover.
///
/// The name starts with `PATH.tempstate-`. TensorFlow's have digits in place of the dash, and no lock.
pub fn create_temporary<F: FileSystem + ?Sized>(
    file_system: &F,
    path: &str,
) -> Result<(String, Box<dyn WritableFile>)> {
    let (host, process) = (host_number(), std::process::id());
    for attempt in 0..MAX_TEMPORARY_FILES {
        let temporary = format!("{path}{TEMPORARY}{host:08x}-{process}-{attempt}");
        match file_system.create_locked(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(status) if status.code() == Code::AlreadyExists => continue,
            Err(status) => return Err(status),
        }
    }
    Err(Status::resource_exhausted(format!("{MAX_TEMPORARY_FILES} files named {path}.tempstate* are left over")))
}

/// Deletes the temporary files in a directory whose process was killed.
///
/// `before_deletion` is called with the path of each and that of the file that it would have become, while it is locked.
/// Nothing depends on any of this, so what can't be deleted stays.
pub fn sweep_temporary<F: FileSystem + ?Sized>(
    file_system: &F,
    directory: &str,
    mut before_deletion: impl FnMut(&str, &str),
) {
    let listed = if directory.is_empty() { "." } else { directory };
    let mut reaches_all = None;
    for name in file_system.list(listed).unwrap_or_default() {
        let Some((target, host)) = parse_temporary(&name) else { continue };
        // Where others don't see our locks, we don't see theirs.
        if host != host_number() && !*reaches_all.get_or_insert_with(|| file_system.locks_reach_all_hosts(listed)) {
            continue;
        }
        let leftover = path::join(directory, &name);
        if let Ok(Some(_locked)) = file_system.lock_existing(&leftover) {
            before_deletion(&leftover, &path::join(directory, target));
            let _ = file_system.delete_file(&leftover);
        }
    }
}

/// Returns the name that a temporary file of ours would have got, and the number of the machine that wrote it.
pub fn parse_temporary(name: &str) -> Option<(&str, u32)> {
    let (target, numbers) = name.rsplit_once(TEMPORARY)?;
    let mut numbers = numbers.splitn(3, '-');
    let host = numbers.next().filter(|digits| digits.len() == 8)?;
    let host = u32::from_str_radix(host, 16).ok()?;
    numbers.next()?.parse::<u32>().ok()?;
    numbers.next()?.parse::<u32>().ok()?;
    Some((target, host))
}

/// Returns a number that stands for this machine's name.
pub fn host_number() -> u32 {
    static NUMBER: LazyLock<u32> = LazyLock::new(|| crc32c::crc32c(hostname().as_bytes()));
    *NUMBER
}

/// What the name of a temporary file has between that of the file it will be and the numbers that make it unique.
const TEMPORARY: &str = ".tempstate-";

/// The most temporary files of one name that one process may leave beside each other.
const MAX_TEMPORARY_FILES: u32 = 10_000;
