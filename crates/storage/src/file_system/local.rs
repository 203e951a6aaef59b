//! The local disk.

use super::{FileStatistics, FileSystem, RandomAccessFile, WritableFile, path, status_from_io};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::time::UNIX_EPOCH;
use tensor::{Result, Status};

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFileSystem;

/// Small appends are gathered up to this many bytes; larger ones go straight through.
const WRITE_BUFFER_BYTES: usize = 128 << 10;

impl FileSystem for LocalFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        reader(at(path, File::open(path::local(path)))?, path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        open_writable(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        open_writable(path, OpenOptions::new().write(true).create_new(true))
    }

    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        open_writable(path, OpenOptions::new().append(true).create(true))
    }

    fn exists(&self, path: &str) -> Result<bool> {
        match fs::metadata(path::local(path)) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(status_from_io(path, &error)),
        }
    }

    fn stat(&self, path: &str) -> Result<FileStatistics> {
        statistics(path, &at(path, fs::metadata(path::local(path)))?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        at(from, fs::rename(path::local(from), path::local(to)))
    }

    fn delete_file(&self, path: &str) -> Result<()> {
        at(path, fs::remove_file(path::local(path)))
    }

    fn delete_dir(&self, path: &str) -> Result<()> {
        at(path, fs::remove_dir(path::local(path)))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        // The directory of a bare file name is the working directory, which is there.
        if path::local(path).is_empty() {
            return Err(Status::already_exists(path));
        }
        at(path, fs::create_dir(path::local(path)))
    }

    fn create_dir_all(&self, path: &str) -> Result<()> {
        match path::local(path) {
            "" => Ok(()),
            local => at(path, fs::create_dir_all(local)),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in at(path, fs::read_dir(path::local(path)))? {
            // A name that isn't UTF-8 can't be written as a path of ours, so nobody can ask for it.
            if let Ok(name) = at(path, entry)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, path: &str) -> Result<()> {
        let local = match path::local(path) {
            "" => ".",
            local => local,
        };
        sync_directory(path, &at(path, File::open(local))?)
    }
}

pub(super) fn at<T>(path: &str, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| status_from_io(path, &error))
}

fn open_writable(path: &str, options: &OpenOptions) -> Result<Box<dyn WritableFile>> {
    writer(at(path, options.open(path::local(path)))?, path)
}

/// Wraps a file that is open for reading.
pub(super) fn reader(file: File, path: &str) -> Result<Box<dyn RandomAccessFile>> {
    if at(path, file.metadata())?.is_dir() {
        return Err(status_from_io(path, &io::Error::from_raw_os_error(libc::EISDIR)));
    }
    Ok(Box::new(LocalFile { file, path: path.to_owned() }))
}

/// Wraps a file that is open for writing.
pub(super) fn writer(file: File, path: &str) -> Result<Box<dyn WritableFile>> {
    Ok(Box::new(LocalWriter { file: BufWriter::with_capacity(WRITE_BUFFER_BYTES, file), path: path.to_owned() }))
}

pub(super) fn statistics(path: &str, metadata: &fs::Metadata) -> Result<FileStatistics> {
    let modified = at(path, metadata.modified())?;
    let nanos = match modified.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
    };
    let is_directory = metadata.is_dir();
    let length = if is_directory { 0 } else { metadata.len() };
    Ok(FileStatistics { length, modified_nanos: nanos, is_directory })
}

pub(super) fn sync_directory(path: &str, directory: &File) -> Result<()> {
    match directory.sync_all() {
        // Some file systems can't sync a directory; their renames are as durable as they get.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        result => at(path, result),
    }
}

struct LocalFile {
    file: File,
    path: String,
}

impl RandomAccessFile for LocalFile {
    fn length(&self) -> Result<u64> {
        Ok(at(&self.path, self.file.metadata())?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let position = offset.checked_add(filled as u64).filter(|&position| position <= i64::MAX as u64);
            let Some(position) = position else { break };
            match self.file.read_at(&mut buffer[filled..], position) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(status_from_io(&self.path, &error)),
            }
        }
        Ok(filled)
    }
}

struct LocalWriter {
    file: BufWriter<File>,
    path: String,
}

impl WritableFile for LocalWriter {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        at(&self.path, self.file.write_all(data))
    }

    fn flush(&mut self) -> Result<()> {
        at(&self.path, self.file.flush())
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        at(&self.path, self.file.get_ref().sync_all())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.flush()
    }
}
