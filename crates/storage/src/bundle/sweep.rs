//! Deletes what killed savers left behind: temporary files, data files without an index, and the directories of sharded saves
//! that were never merged.
//!
//! A live saver holds a lock on everything it works on: on temporary files while they are open, on the parts of a sharded save
//! during the step that writes and merges them. A file without a lock is a leftover, unless it is TensorFlow's, which locks nothing.

use super::index::{existing_data_files, is_part, lock_prefix, num_shards_of, part_host};
use super::meta_filename;
use crate::file_system::{ExistingLock, FileSystem, host_number, parse_temporary, path, sweep_temporary};
use std::time::Duration;
use tensor::Result;

/// Deletes the leftovers in the directory of a checkpoint that is about to be written.
///
/// Nothing depends on it: files that can't be deleted, or may be in use, stay.
pub(super) fn sweep_leftovers(file_system: &dyn FileSystem, prefix: &str) {
    let own = path::dirname(prefix);
    // The parts of a sharded save are in a directory beside its checkpoint.
    let directory = if is_part(prefix) { path::dirname(own) } else { own };
    sweep_files(file_system, directory);
    let listed = if directory.is_empty() { "." } else { directory };
    for name in file_system.list(listed).unwrap_or_default() {
        let parts = path::join(directory, &name);
        if is_directory_of_parts(&name) && parts != own {
            let _ = sweep_parts(file_system, &parts);
        }
    }
}

/// Deletes temporary files, and the data files that were put in place for an index that never was.
fn sweep_files(file_system: &dyn FileSystem, directory: &str) {
    sweep_temporary(file_system, directory, |leftover, target| {
        if let Some(prefix) = target.strip_suffix(".index") {
            // A damaged index was never complete, so that no data file was put in place for it.
            let _ = sweep_data_files(file_system, prefix, leftover);
        }
    });
}

fn sweep_data_files(file_system: &dyn FileSystem, prefix: &str, leftover: &str) -> Result<()> {
    // The holder of the lock is about to replace or delete these files anyway.
    let _locked = lock_prefix(file_system, prefix, Duration::ZERO)?;
    let num_shards = num_shards_of(file_system, leftover)?;
    let index = meta_filename(prefix);
    if file_system.exists(&index)? && num_shards_of(file_system, &index)? == num_shards {
        return Ok(());
    }
    let written = file_system.stat(leftover)?.modified_nanos;
    for (name, total) in existing_data_files(file_system, prefix)? {
        let data = path::join(path::dirname(prefix), &name);
        // A file that is newer than the index was written by another program, such as TensorFlow, which may still use it.
        if total == num_shards && file_system.stat(&data)?.modified_nanos <= written {
            file_system.delete_file(&data)?;
        }
    }
    Ok(())
}

/// Returns whether TensorFlow's savers, or ours, name directories for parts like this.
fn is_directory_of_parts(name: &str) -> bool {
    let Some((_, unique)) = name.rsplit_once("_temp") else { return false };
    unique.is_empty()
        || unique.strip_prefix('_').is_some_and(|digits| {
            digits.len() == 32 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        })
}

/// Deletes a directory of parts if this program wrote everything in it and none of its savers is running.
fn sweep_parts(file_system: &dyn FileSystem, directory: &str) -> Result<()> {
    let reaches_all = file_system.locks_reach_all_hosts(directory);
    let is_told = |host: u32| reaches_all || host == host_number();
    let (mut locks, mut files): (Vec<ExistingLock>, Vec<String>) = (Vec::new(), Vec::new());
    let names = file_system.list(directory)?;
    for name in &names {
        let file = path::join(directory, name);
        let host = match (parse_temporary(name), name.strip_suffix(".index")) {
            (Some((_, host)), _) => Some(host),
            (None, Some(part)) if part.starts_with("part-") => part_host(file_system, &file)?,
            // A data file belongs to the owner of its index, which exists or is about to.
            _ if is_data_of(name, &names) => {
                files.push(file);
                continue;
            }
            _ => None,
        };
        let Some(lock) = host.filter(|&host| is_told(host)).and_then(|_| file_system.lock_existing(&file).transpose())
        else {
            return Ok(());
        };
        locks.push(lock?);
        files.push(file);
    }
    // An empty directory may just have been created.
    if files.is_empty() {
        return Ok(());
    }
    files.iter().try_for_each(|file| file_system.delete_file(file))?;
    file_system.delete_dir(directory)
}

/// Returns whether this is a data file of a part whose index is among the names, be it under a temporary one.
fn is_data_of(name: &str, names: &[String]) -> bool {
    let Some((part, _)) = name.split_once(".data-").filter(|(part, _)| part.starts_with("part-")) else {
        return false;
    };
    let index = meta_filename(part);
    names.iter().any(|other| *other == index || parse_temporary(other).is_some_and(|(target, _)| target == index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories() {
        assert!(is_directory_of_parts("model.ckpt-3_temp"));
        assert!(is_directory_of_parts("model.ckpt-3_temp_0123456789abcdef0123456789abcdef"));
        assert!(!is_directory_of_parts("my_temperatures") && !is_directory_of_parts("model_temp_17"));
    }
}
