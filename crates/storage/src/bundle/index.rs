//! The index of a checkpoint: its header and its entries, in and out of the table.

use super::{data_filename, meta_filename};
use crate::file_system::{FileSystem, create_temporary, path};
use crate::table::{Table, TableOptions, TableWriter};
use prost::Message;
use proto::bundle_header_proto::Endianness;
use proto::{BundleEntryProto, BundleHeaderProto, VersionDef};
use std::collections::{BTreeMap, BTreeSet};
use tensor::{Result, Status};

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

/// Fails for a file whose writer says that we can't read it.
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

/// Calls `visit` with every entry but the header.
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

/// Puts a checkpoint in place: first its data files, by renaming, then its index.
///
/// Everything is on stable storage before the index appears under its name, and the index appears in one step, so that
/// whoever opens `PREFIX.index`, at whatever instant the machine stopped, finds what belongs to it. The data files of
/// a checkpoint that is being replaced are deleted last.
pub(super) fn install(
    file_system: &dyn FileSystem,
    prefix: &str,
    data_files: &[String],
    entries: &Entries,
) -> Result<()> {
    let directory = path::dirname(prefix);
    let num_shards = unused_num_shards(file_system, prefix, data_files.len())?;
    let temporary = write_index(file_system, prefix, num_shards, entries)?;
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
    Ok(())
}

/// Writes and syncs the index under a temporary name, which is returned.
fn write_index(file_system: &dyn FileSystem, prefix: &str, num_shards: usize, entries: &Entries) -> Result<String> {
    let num_shards = i32::try_from(num_shards).map_err(|_| Status::invalid_argument("too many data files"))?;
    let version = VersionDef { producer: FORMAT_VERSION, ..Default::default() };
    let header = BundleHeaderProto { num_shards, endianness: Endianness::Little.into(), version: Some(version) };
    let (temporary, mut file) = create_temporary(file_system, &meta_filename(prefix))?;
    let written = (|| {
        let mut table = TableWriter::new(&mut *file, TableOptions::default());
        table.add(b"", &header.encode_to_vec())?;
        for (key, entry) in entries {
            table.add(key, &entry.encode_to_vec())?;
        }
        table.finish()?;
        file.sync()
    })();
    if let Err(status) = written.and_then(|()| file.close()) {
        let _ = file_system.delete_file(&temporary);
        return Err(status);
    }
    Ok(temporary)
}

/// Returns for how many data files to name the new ones.
///
/// When PREFIX is complete already, its data files must keep their names until the new index is there. The number of
/// data files is part of their names, and one that is larger than needed does no harm: nobody opens a data file that
/// no entry refers to.
fn unused_num_shards(file_system: &dyn FileSystem, prefix: &str, needed: usize) -> Result<usize> {
    if is_scratch(prefix) || !file_system.exists(&meta_filename(prefix))? {
        return Ok(needed.max(1));
    }
    let taken: BTreeSet<usize> =
        existing_data_files(file_system, prefix)?.into_iter().map(|(_, total)| total).collect();
    let first = needed.max(1);
    // One of the first `taken.len() + 1` numbers isn't taken.
    Ok((first..=first + taken.len()).find(|number| !taken.contains(number)).unwrap_or(first))
}

/// Returns whether this is a part of a sharded save, as TensorFlow's Saver names them, that waits to be merged.
///
/// Such a part holds nothing that must survive, and TensorFlow's own merge, which may be the one that reads it, expects
/// as many data files as the number in their names says.
fn is_scratch(prefix: &str) -> bool {
    path::basename(prefix).starts_with("part-") && path::basename(path::dirname(prefix)).contains("_temp")
}

/// Returns the names of PREFIX's data files, each with the number of data files that is part of it.
fn existing_data_files(file_system: &dyn FileSystem, prefix: &str) -> Result<Vec<(String, usize)>> {
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
        assert!(is_scratch("/logs/model.ckpt-3_temp_0123abc/part-00000-of-00002"));
        assert!(!is_scratch("/logs/part-00000") && !is_scratch("/x_temp/model.ckpt"));
    }

    #[test]
    fn versions() {
        assert!(check_version(&VersionDef { producer: 7, ..Default::default() }).is_ok());
        assert!(check_version(&VersionDef { min_consumer: 2, ..Default::default() }).is_err());
        assert!(check_version(&VersionDef { bad_consumers: vec![1], ..Default::default() }).is_err());
    }
}
