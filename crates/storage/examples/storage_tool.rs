//! Reads and writes this crate's files from the command line; the interop tests compare the result with TensorFlow's.
//!
//!     storage_tool ls PREFIX                       the tensors of a checkpoint
//!     storage_tool verify PREFIX                   compares every checksum
//!     storage_tool copy PREFIX NEW                 reads and writes a checkpoint
//!     storage_tool repartition PREFIX NEW SHARDS   writes it in shards, tensors in slices of rows, and merges
//!     storage_tool merge NEW PREFIX...             merges checkpoints
//!     storage_tool table FILE                      the entries of a sorted table, in hexadecimal
//!     storage_tool records FROM TO COMPRESSION COMPRESSION
//!     storage_tool events FILE LOGDIR              reads an event file and writes another
//!     storage_tool latest DIRECTORY                the newest checkpoint
//!     storage_tool update DIRECTORY PREFIX...      names the checkpoints of a directory, the newest last

use std::process::ExitCode;
use std::sync::Arc;
use storage::bundle::{
    BundleReader, BundleWriter, BundleWriterOptions, Extent, MergeOptions, TensorSlice, merge_bundles,
};
use storage::checkpoint_state::{SavedPaths, latest_checkpoint, update_checkpoint_state};
use storage::event::{EventsReader, EventsWriter, FlushPolicy};
use storage::file_system::{FileSystem, FileSystems};
use storage::record::{CompressionType, RecordReader, RecordReaderOptions, RecordWriter};
use storage::table::Table;
use tensor::{Result, Status};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            eprintln!("{status}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    let file_system: Arc<dyn FileSystem> = Arc::new(FileSystems::all());
    match arguments {
        ["ls", prefix] => list(file_system, prefix),
        ["verify", prefix] => BundleReader::open(file_system, prefix)?.verify(),
        ["copy", prefix, new] => copy(file_system, prefix, new),
        ["repartition", prefix, new, shards] => repartition(file_system, prefix, new, number(shards)?),
        ["merge", new, prefixes @ ..] => {
            let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
            merge_bundles(&*file_system, &prefixes, new, MergeOptions::default())
        }
        ["table", file] => dump_table(&*file_system, file),
        ["records", from, to, read_as, write_as] => copy_records(&*file_system, from, to, read_as, write_as),
        ["events", file, logdir] => copy_events(file_system, file, logdir),
        ["latest", directory] => {
            println!("{}", latest_checkpoint(&*file_system, directory, None)?.unwrap_or_default());
            Ok(())
        }
        ["update", directory, all @ .., newest] => {
            let state = proto::CheckpointState {
                model_checkpoint_path: (*newest).to_owned(),
                all_model_checkpoint_paths: all.iter().map(|&path| path.to_owned()).collect(),
                ..Default::default()
            };
            update_checkpoint_state(&*file_system, directory, state, None, SavedPaths::AsGiven)
        }
        _ => Err(Status::invalid_argument("see the top of storage_tool.rs for how to call it")),
    }
}

fn number(text: &str) -> Result<usize> {
    text.parse().map_err(|_| Status::invalid_argument(format!("{text} is not a number")))
}

fn list(file_system: Arc<dyn FileSystem>, prefix: &str) -> Result<()> {
    for info in BundleReader::open(file_system, prefix)?.list()? {
        let slices: Vec<String> = info.slices.iter().map(TensorSlice::to_string).collect();
        println!("{}\t{}\t{}\t{}\t{}", info.name, info.dtype, info.shape, info.bytes, slices.join(" "));
    }
    Ok(())
}

fn copy(file_system: Arc<dyn FileSystem>, prefix: &str, new: &str) -> Result<()> {
    let reader = BundleReader::open(file_system.clone(), prefix)?;
    let mut writer = BundleWriter::new(file_system, new, BundleWriterOptions::default())?;
    for info in reader.list()? {
        if info.slices.is_empty() {
            writer.add(&info.name, &reader.lookup(&info.name)?)?;
        }
        for slice in &info.slices {
            writer.add_slice(&info.name, &info.shape, slice, &reader.lookup_slice(&info.name, slice)?)?;
        }
    }
    writer.finish()
}

fn repartition(file_system: Arc<dyn FileSystem>, prefix: &str, new: &str, shards: usize) -> Result<()> {
    let reader = BundleReader::open(file_system.clone(), prefix)?;
    let mut parts = Vec::new();
    for shard in 0..shards {
        let part = format!("{new}_temp/part-{shard:05}-of-{shards:05}");
        let mut writer = BundleWriter::new(file_system.clone(), &part, BundleWriterOptions::default())?;
        for (index, info) in reader.list()?.into_iter().enumerate() {
            let rows = info.shape.first().copied().unwrap_or(0);
            let (start, end) = (rows * shard as i64 / shards as i64, rows * (shard as i64 + 1) / shards as i64);
            if rows >= shards as i64 && start < end {
                let mut extents = vec![None; info.shape.rank()];
                extents[0] = Some(Extent { start, length: end - start });
                let slice = TensorSlice::new(extents)?;
                writer.add_slice(&info.name, &info.shape, &slice, &reader.lookup_slice(&info.name, &slice)?)?;
            } else if index % shards == shard {
                writer.add(&info.name, &reader.lookup(&info.name)?)?;
            }
        }
        writer.finish()?;
        parts.push(part);
    }
    merge_bundles(&*file_system, &parts, new, MergeOptions { delete_old_dirs: true, ..Default::default() })
}

fn dump_table(file_system: &dyn FileSystem, file: &str) -> Result<()> {
    let table = Table::open(file_system.open(file)?)?;
    let mut iterator = table.iter();
    while iterator.advance()? {
        if let Some((key, value)) = iterator.current() {
            println!("{} {}", hexadecimal(key), hexadecimal(value));
        }
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn copy_records(file_system: &dyn FileSystem, from: &str, to: &str, read_as: &str, write_as: &str) -> Result<()> {
    let options = RecordReaderOptions::compressed(CompressionType::from_name(read_as)?);
    let mut reader = RecordReader::new(file_system.open(from)?, options);
    let mut writer = RecordWriter::new(file_system.create(to)?, CompressionType::from_name(write_as)?);
    let mut record = Vec::new();
    while reader.read_record(&mut record)? {
        writer.write_record(&record)?;
    }
    writer.close()
}

fn copy_events(file_system: Arc<dyn FileSystem>, file: &str, logdir: &str) -> Result<()> {
    let mut reader = EventsReader::open(&*file_system, file)?;
    let first = reader.next_event()?.ok_or_else(|| Status::data_loss(format!("{file} has no events")))?;
    let mut writer = EventsWriter::create_in(file_system, logdir, "", first.wall_time, FlushPolicy::default())?;
    while let Some(event) = reader.next_event()? {
        writer.write(&event)?;
    }
    println!("{}", writer.path());
    writer.close()
}
