//! The index of a checkpoint: writes and reads its header and entries.

use super::{data_filename, meta_filename};
use crate::file_system::{FileSystem, WritableFile, create_temporary, host_number, lock_within, path};
use crate::table::{Table, TableOptions, TableWriter};
use prost::Message;
use proto::bundle_header_proto::Endianness;
use proto::{BundleEntryProto, BundleHeaderProto, VersionDef};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tensor::{Code, Result, Status};

/// The version of the format that we write, and the newest that we read.
const FORMAT_VERSION: i32 = 1;

/// The entries by key; keys are names, or encoded names and slices.
pub(super) type Entries = BTreeMap<Vec<u8>, BundleEntryProto>;

/// Opens `PREFIX.index` and returns it with its header, whose version and byte order we understand.
pub(super) fn open_index(file_system: &dyn FileSystem, prefix: &str) -> Result<(Table, BundleHeaderProto)> {
    let path = meta_filename(prefix);
    let corrupt = |detail: &str, status: Status| {
        let message = format!(
            "Unable to read file ({path}). Perhaps the file is corrupt or was produced by a newer version of TensorFlow \
             with format changes ({detail}): {}",
            status.message()
        );
        Status::new(status.code(), message)
    };
    let file = file_system.open(&path)?;
    let table = Table::open(file).map_err(|status| corrupt("not a table", status))?;
    let header = table
        .get(b"")
        .and_then(|header| header.ok_or_else(|| Status::data_loss("there is no header entry")))
        .map_err(|status| corrupt("failed to seek to header entry", status))?;
    let header = BundleHeaderProto::decode(header.as_slice())
        .map_err(|error| corrupt("unable to parse header", Status::data_loss(error.to_string())))?;
    check_version(&header.version.clone().unwrap_or_default())?;
    if header.endianness() != Endianness::Little {
        return Err(Status::unimplemented(format!("{path} was written on a big-endian machine")));
    }
    Ok((table, header))
}

/// Returns an error for a file that, according to its header, this version can't read.
pub(crate) fn check_version(version: &VersionDef) -> Result<()> {
    let problem = if version.min_consumer > FORMAT_VERSION {
        format!(
            "Checkpoint min consumer version {} above current version {FORMAT_VERSION} for TensorFlow.  Please upgrade \
             TensorFlow: this checkpoint is likely newer than TensorFlow.",
            version.min_consumer
        )
    } else if version.bad_consumers.contains(&FORMAT_VERSION) {
        format!(
            "Checkpoint disallows consumer version {FORMAT_VERSION}.  Please upgrade TensorFlow: this version is likely \
             buggy."
        )
    } else {
        return Ok(());
    };
    Err(Status::invalid_argument(problem))
}

/// Parses an entry.
pub(super) fn decode_entry(key: &[u8], value: &[u8]) -> Result<BundleEntryProto> {
    BundleEntryProto::decode(value)
        .map_err(|_| Status::data_loss(format!("Entry for key {} not parseable.", key.escape_ascii())))
}

/// Calls `visit` with every entry except the header.
pub(super) fn for_each_entry(
    table: &Table,
    mut visit: impl FnMut(&[u8], BundleEntryProto) -> Result<()>,
) -> Result<()> {
    let mut iterator = table.iter();
    while iterator.advance()? {
        if let Some((key, value)) = iterator.current()
            && !key.is_empty()
        {
            visit(key, decode_entry(key, value)?)?;
        }
    }
    Ok(())
}

/// How long to wait for another saver of the same checkpoint.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// Puts a checkpoint in place: renames first its data files, then its index, which is returned open and locked.
///
/// Everything is on stable storage before the index appears under its name, and the index appears in one step. So a reader of
/// `PREFIX.index` finds the data files that belong to it, whenever the machine has stopped. The data files of a replaced checkpoint
/// are deleted last. The checkpoint is locked in the meantime: two savers that chose names at the same time would overwrite or delete
/// each other's data files.
pub(super) fn install(
    file_system: &dyn FileSystem,
    prefix: &str,
    data_files: &[String],
    entries: &Entries,
) -> Result<Box<dyn WritableFile>> {
    if file_system.appears_whole(prefix) {
        return install_whole(file_system, prefix, data_files, entries);
    }
    let directory = path::dirname(prefix);
    let _locked = lock_prefix(file_system, prefix, LOCK_PATIENCE)?;
    if is_part(prefix) {
        check_unwritten(file_system, prefix)?;
    }
    let num_shards = unused_num_shards(file_system, prefix, data_files.len())?;
    let (temporary, file) = write_index(file_system, prefix, num_shards, entries)?;
    let installed = (|| {
        for (shard, data_file) in data_files.iter().enumerate() {
            file_system.rename(data_file, &data_filename(prefix, shard, num_shards))?;
        }
        file_system.sync_dir(directory)?;
        file_system.rename(&temporary, &meta_filename(prefix))
    })();
    if let Err(status) = installed {
        let _ = file_system.delete_file(&temporary);
        return Err(status);
    }
    file_system.sync_dir(directory)?;
    for (name, total) in existing_data_files(file_system, prefix)? {
        if total != num_shards {
            let _ = file_system.delete_file(&path::join(directory, &name));
        }
    }
    Ok(file)
}

/// Puts a checkpoint in place in a file system in which files appear whole and can't be locked.
///
/// Data files of different savers have different names, since the names are reserved ([`create_data_file`]), and the index appears
/// last, in one step: of two concurrent savers, the one whose index is put last has written the checkpoint. Only the data files of the
/// previous index are deleted; the index of other data files may be about to appear.
fn install_whole(
    file_system: &dyn FileSystem,
    prefix: &str,
    data_files: &[String],
    entries: &Entries,
) -> Result<Box<dyn WritableFile>> {
    let index = meta_filename(prefix);
    let replaced = match file_system.exists(&index)? {
        true => num_shards_of(file_system, &index).ok(),
        false => None,
    };
    let start = format!("{}.data-", path::basename(prefix));
    let placed = match data_files {
        [only] if path::dirname(only) == path::dirname(prefix) => total_in_name(path::basename(only), &start),
        _ => None,
    };
    let num_shards = match placed {
        Some(num_shards) => num_shards,
        None => {
            let (num_shards, _, _reserved) = create_data_file(file_system, prefix, data_files.len())?;
            for (shard, data_file) in data_files.iter().enumerate() {
                file_system.rename(data_file, &data_filename(prefix, shard, num_shards))?;
            }
            num_shards
        }
    };
    let mut file = file_system.create(&index)?;
    fill_index(&mut *file, prefix, num_shards, entries)?;
    // The new checkpoint is there, so whatever can't be deleted is no failure.
    if let Some(replaced) = replaced.filter(|&replaced| replaced != num_shards) {
        for (name, total) in existing_data_files(file_system, prefix).into_iter().flatten() {
            if total == replaced {
                let _ = file_system.delete_file(&path::join(path::dirname(prefix), &name));
            }
        }
    }
    Ok(file)
}

/// Creates the first of `needed` data files in a file system in which files appear whole, under a name that no other saver has;
/// returns it with the number of data files in the name.
pub(super) fn create_data_file(
    file_system: &dyn FileSystem,
    prefix: &str,
    needed: usize,
) -> Result<(usize, String, Box<dyn WritableFile>)> {
    let first = unused_num_shards(file_system, prefix, needed)?;
    if is_part(prefix) {
        let name = data_filename(prefix, 0, first);
        return Ok((first, name.clone(), file_system.create(&name)?));
    }
    for num_shards in (first..=MAX_NUM_SHARDS).take(NAME_ATTEMPTS) {
        let name = data_filename(prefix, 0, num_shards);
        match file_system.create_new(&name) {
            Err(status) if status.code() == Code::AlreadyExists => {}
            created => return Ok((num_shards, name, created?)),
        }
    }
    Err(Status::resource_exhausted(format!("{prefix}: too many data files of savers that were killed; delete them")))
}

/// The most savers of one checkpoint that may have been killed before another one completes it.
const NAME_ATTEMPTS: usize = 1000;

/// Keeps other savers from putting PREFIX in place; `None` if the file system has no locks.
pub(super) fn lock_prefix(
    file_system: &dyn FileSystem,
    prefix: &str,
    patience: Duration,
) -> Result<Option<crate::file_system::LockFile>> {
    lock_within(file_system, &format!("{prefix}.lock"), patience)
}

/// Fails when another live saver has written the same part of a sharded checkpoint: merging its parts with ours would mix two
/// checkpoints.
fn check_unwritten(file_system: &dyn FileSystem, prefix: &str) -> Result<()> {
    let (index, start) = (meta_filename(prefix), Instant::now());
    loop {
        match file_system.lock_existing(&index) {
            Ok(None) if file_system.locks_reach_all_hosts(path::dirname(prefix)) => {}
            Err(status) if status.code() != Code::NotFound => return Err(status),
            _ => return Ok(()),
        }
        // A failed step holds its parts until its tasks have been told.
        if start.elapsed() >= PART_PATIENCE {
            return Err(Status::already_exists(format!(
                "{index} was written by another saver, which is about to merge it; two savers can't write one sharded \
                 checkpoint at the same time"
            )));
        }
        std::thread::sleep(PART_PAUSE);
    }
}

/// How long the parts of another save may be in the way, and the interval at which they are checked.
const PART_PATIENCE: Duration = Duration::from_secs(10);
const PART_PAUSE: Duration = Duration::from_millis(5);

/// Writes and syncs the index under a temporary name, which is returned with the open file.
fn write_index(
    file_system: &dyn FileSystem,
    prefix: &str,
    num_shards: usize,
    entries: &Entries,
) -> Result<(String, Box<dyn WritableFile>)> {
    let (temporary, mut file) = create_temporary(file_system, &meta_filename(prefix))?;
    if let Err(status) = fill_index(&mut *file, prefix, num_shards, entries) {
        let _ = file_system.delete_file(&temporary);
        return Err(status);
    }
    Ok((temporary, file))
}

/// Writes and syncs the header and all entries.
fn fill_index(file: &mut dyn WritableFile, prefix: &str, num_shards: usize, entries: &Entries) -> Result<()> {
    let num_shards = i32::try_from(num_shards).map_err(|_| Status::invalid_argument("too many data files"))?;
    let version = VersionDef { producer: FORMAT_VERSION, ..Default::default() };
    let header = BundleHeaderProto { num_shards, endianness: Endianness::Little.into(), version: Some(version) };
    let mut header = header.encode_to_vec();
    if is_part(prefix) {
        header.extend(part_mark(host_number()));
    }
    let mut table = TableWriter::new(&mut *file, TableOptions::default());
    table.add(b"", &header)?;
    for (key, entry) in entries {
        table.add(key, &entry.encode_to_vec())?;
    }
    table.finish()?;
    file.sync()
}

/// Returns the number of data files for the names of the new ones.
///
/// When PREFIX is complete already, its data files must keep their names until the new index is there. The number of
/// data files is part of their names, and one that is larger than needed does no harm: nobody opens a data file that
/// no entry refers to. Numbers go up, so that a reader who has the old index finds no data file rather than another
/// checkpoint's.
fn unused_num_shards(file_system: &dyn FileSystem, prefix: &str, needed: usize) -> Result<usize> {
    let needed = needed.max(1);
    if is_part(prefix) || !file_system.exists(&meta_filename(prefix))? {
        return Ok(needed);
    }
    let taken: BTreeSet<usize> =
        existing_data_files(file_system, prefix)?.into_iter().map(|(_, total)| total).collect();
    let next = taken.last().map_or(needed, |last| last.saturating_add(1).max(needed));
    if next <= MAX_NUM_SHARDS {
        return Ok(next);
    }
    // One of the first `taken.len() + 1` numbers isn't taken.
    Ok((needed..=needed + taken.len()).find(|number| !taken.contains(number)).unwrap_or(needed))
}

/// The largest number that a data file's name has digits for.
const MAX_NUM_SHARDS: usize = 99_999;

/// Returns whether this is a part of a sharded save, as TensorFlow's Saver names them, that waits to be merged.
///
/// Such a part holds nothing that must survive, and TensorFlow's own merge, which may be the one that reads it, expects
/// as many data files as the number in their names says.
pub fn is_part(prefix: &str) -> bool {
    path::basename(prefix).starts_with("part-") && path::basename(path::dirname(prefix)).contains("_temp")
}

/// Returns the field after a part's header that marks the part as written by this program, and names the machine. TensorFlow skips
/// unknown fields.
fn part_mark(host: u32) -> Vec<u8> {
    let mut field = PART_MARK.to_vec();
    field.extend(host.to_le_bytes());
    field
}

/// Field 15, of 13 bytes.
const PART_MARK: &[u8] = b"\x7a\x0dferroflow";

/// Returns the number of the machine on which this program wrote a part; `None` if another program wrote it.
pub(super) fn part_host(file_system: &dyn FileSystem, index: &str) -> Result<Option<u32>> {
    let header = Table::open(file_system.open(index)?)?.get(b"")?.unwrap_or_default();
    let Some((rest, host)) = header.split_last_chunk::<4>() else { return Ok(None) };
    Ok(rest.ends_with(PART_MARK).then(|| u32::from_le_bytes(*host)))
}

/// Returns the number of data files that an index names, under whatever name it is.
pub(super) fn num_shards_of(file_system: &dyn FileSystem, index: &str) -> Result<usize> {
    let header = Table::open(file_system.open(index)?)?.get(b"")?;
    let header = header.ok_or_else(|| Status::data_loss("there is no header entry"))?;
    let header = BundleHeaderProto::decode(header.as_slice()).map_err(|error| Status::data_loss(error.to_string()))?;
    usize::try_from(header.num_shards).map_err(|_| Status::data_loss("a negative number of shards"))
}

/// Returns the names of PREFIX's data files, each with the number of data files that is part of it.
pub(super) fn existing_data_files(file_system: &dyn FileSystem, prefix: &str) -> Result<Vec<(String, usize)>> {
    let start = format!("{}.data-", path::basename(prefix));
    let directory = match path::dirname(prefix) {
        "" => ".",
        directory => directory,
    };
    let names = file_system.list(directory)?.into_iter();
    Ok(names.filter_map(|name| total_in_name(&name, &start).map(|total| (name, total))).collect())
}

fn total_in_name(name: &str, start: &str) -> Option<usize> {
    let (shard, total) = name.strip_prefix(start)?.split_once("-of-")?;
    shard.parse::<usize>().ok()?;
    total.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_data_files() {
        assert_eq!(total_in_name("m.data-00000-of-00012", "m.data-"), Some(12));
        assert_eq!(total_in_name("m.data-00000-of-00012.tempstate1", "m.data-"), None);
        assert_eq!(total_in_name("n.data-00000-of-00012", "m.data-"), None);
        assert!(is_part("/logs/model.ckpt-3_temp_0123abc/part-00000-of-00002"));
        assert!(!is_part("/logs/part-00000") && !is_part("/x_temp/model.ckpt"));
    }

    #[test]
    fn versions() {
        assert!(check_version(&VersionDef { producer: 7, ..Default::default() }).is_ok());
        assert!(check_version(&VersionDef { min_consumer: 2, ..Default::default() }).is_err());
        assert!(check_version(&VersionDef { bad_consumers: vec![1], ..Default::default() }).is_err());
    }
}
