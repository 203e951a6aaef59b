//! Merging the shards that the tasks of a cluster have written into one checkpoint.

use super::index::{Entries, for_each_entry, install, open_index};
use super::{data_filename, meta_filename};
use crate::file_system::{FileSystem, path};
use crate::table::Table;
use proto::{BundleEntryProto, BundleHeaderProto};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tensor::{Code, Result, ResultExt, Status};

/// Options of a merge.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergeOptions {
    /// Whether missing shards are left out, as long as one exists.
    pub allow_missing_files: bool,
    /// Whether the shards' directories are deleted afterwards, if nothing else is in them.
    pub delete_old_dirs: bool,
}

/// Merges several checkpoints into one: renames their data files and merges their indexes.
///
/// Everything is checked before the first file is renamed.
pub fn merge_bundles(
    file_system: &dyn FileSystem,
    prefixes: &[String],
    merged_prefix: &str,
    options: MergeOptions,
) -> Result<()> {
    let merged_dir = path::dirname(merged_prefix);
    match file_system.create_dir(merged_dir) {
        Err(status) if status.code() != Code::AlreadyExists => return Err(status),
        _ => {}
    }
    let mut merge = Merge::default();
    let mut found = false;
    for prefix in prefixes {
        match open_index(file_system, prefix) {
            Err(status) if options.allow_missing_files && status.code() == Code::NotFound => continue,
            opened => merge.add_bundle(file_system, prefix, opened?)?,
        }
        found = true;
    }
    if !found {
        return Err(Status::invalid_argument("At least one prefix checkpoint file must exist, but none existed."));
    }
    install(file_system, merged_prefix, &merge.data_files, &merge.entries)?.close()?;
    for prefix in prefixes.iter().filter(|prefix| *prefix != merged_prefix) {
        let _ = file_system.delete_file(&meta_filename(prefix));
    }
    if options.delete_old_dirs {
        for prefix in prefixes.iter().filter(|prefix| path::dirname(prefix) != merged_dir) {
            let _ = file_system.delete_dir(path::dirname(prefix));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Merge {
    entries: Entries,
    /// The data files that entries refer to; the position is the number in the merged checkpoint.
    data_files: Vec<String>,
}

impl Merge {
    fn add_bundle(
        &mut self,
        file_system: &dyn FileSystem,
        prefix: &str,
        (table, header): (Table, BundleHeaderProto),
    ) -> Result<()> {
        let num_shards = usize::try_from(header.num_shards)
            .map_err(|_| Status::data_loss(format!("{} has {} shards", meta_filename(prefix), header.num_shards)))?;
        // The number and the length of every data file of this bundle that is referred to.
        let mut shards: BTreeMap<i32, (i32, u64)> = BTreeMap::new();
        for_each_entry(&table, |key, mut entry| {
            // The entry of a partitioned variable has no bytes of its own.
            if !entry.slices.is_empty() {
                return self.add_sliced(key, entry).context(|| format!("when merging prefix: {prefix}"));
            }
            let &mut (shard, length) = match shards.entry(entry.shard_id) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(vacant) => {
                    let shard = usize::try_from(entry.shard_id).ok().filter(|&shard| shard < num_shards);
                    let shard = shard.ok_or_else(|| {
                        Status::data_loss(format!("{} refers to shard {}", meta_filename(prefix), entry.shard_id))
                    })?;
                    let file = data_filename(prefix, shard, num_shards);
                    let length = file_system.stat(&file)?.length;
                    let number = i32::try_from(self.data_files.len())
                        .map_err(|_| Status::invalid_argument("too many data files"))?;
                    self.data_files.push(file);
                    vacant.insert((number, length))
                }
            };
            let end = entry.offset.checked_add(entry.size).and_then(|end| u64::try_from(end).ok());
            if end.is_none_or(|end| end > length) {
                return Err(Status::data_loss(format!(
                    "a data file of {prefix} is truncated: {} bytes at {} of {length}",
                    entry.size, entry.offset
                )));
            }
            entry.shard_id = shard;
            if self.entries.insert(key.to_vec(), entry).is_some() {
                return Err(duplicate(key, prefix));
            }
            Ok(())
        })
    }

    /// Adds the list of a variable's slices to those of other shards.
    fn add_sliced(&mut self, key: &[u8], entry: BundleEntryProto) -> Result<()> {
        match self.entries.entry(key.to_vec()) {
            Entry::Vacant(vacant) => {
                vacant.insert(entry);
            }
            Entry::Occupied(mut existing) => {
                let existing = existing.get_mut();
                if existing.slices.is_empty() || existing.dtype != entry.dtype || existing.shape != entry.shape {
                    return Err(Status::invalid_argument(format!(
                        "Slices of {} do not agree in type and shape",
                        key.escape_ascii()
                    )));
                }
                existing.slices.extend(entry.slices);
            }
        }
        Ok(())
    }
}

fn duplicate(key: &[u8], prefix: &str) -> Status {
    let key = key.escape_ascii();
    Status::invalid_argument(format!("Duplicate tensor keyed by {key} encountered, when merging prefix: {prefix}"))
}
