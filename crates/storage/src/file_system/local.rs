//! The local disk.

use super::lock::is_at;
use super::{
    ExistingLock, FileStatistics, FileSystem, LockFile, Locking, RandomAccessFile, WritableFile, path, status_from_io,
};
use std::fs::{self, File, FileType, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;
use tensor::{Code, Result, Status, check_interrupt};

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFileSystem;

/// Small appends are gathered up to this many bytes; larger ones go straight through.
const WRITE_BUFFER_BYTES: usize = 128 << 10;

/// How much of a lock file's description of its holder is read.
const HOLDER_BYTES: u64 = 200;

/// How often a lock file may be deleted by its holder just when it was opened.
const LOCK_ATTEMPTS: u32 = 1000;

/// The largest piece that is read or written at once. Cancellation is checked between pieces.
const PIECE_BYTES: usize = 1 << 20;

impl FileSystem for LocalFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        reader(open_at_once(path, OpenOptions::new().read(true))?, path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        open_writable(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        open_writable(path, OpenOptions::new().write(true).create_new(true))
    }

    fn create_locked(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        let file = at(path, OpenOptions::new().write(true).create_new(true).open(path::local(path)))?;
        lock_created(file, path::local(path), path)
    }

    fn lock_existing(&self, path: &str) -> Result<Option<ExistingLock>> {
        let file = open_regular(path, OpenOptions::new().read(true))?;
        let is_locked = file.try_lock().is_ok() && is_at(&file, Path::new(path::local(path)));
        Ok(is_locked.then(|| ExistingLock::new(file)))
    }

    fn locks_reach_all_hosts(&self, directory: &str) -> bool {
        /// The file systems of disks and of memory, by the numbers in statfs(2): ext, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS.
        const OF_THIS_MACHINE: [u64; 7] =
            [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1];
        let found = rustix::fs::statfs(path::local(directory));
        // The type of the number differs between systems.
        found.is_ok_and(|found| OF_THIS_MACHINE.contains(&(found.f_type as u64)))
    }

    fn try_lock_file(&self, path: &str, holder: &str) -> Result<Locking> {
        let local = Path::new(path::local(path));
        for _ in 0..LOCK_ATTEMPTS {
            let is_new = !at(path, fs::exists(local))?;
            // Only its owner may open it: others would have only to lock it to keep us out for good.
            let opened = open_regular(path, OpenOptions::new().read(true).write(true).create(true).mode(0o600));
            let mut file = match opened {
                Ok(file) => file,
                Err(status) => match fs::symlink_metadata(local) {
                    Ok(there) if there.is_file() && status.code() == Code::PermissionDenied => {
                        return Ok(Locking::Taken(format!("a process of user {}", there.uid())));
                    }
                    _ => return Err(status),
                },
            };
            match file.try_lock() {
                // Its holder may have deleted it in between.
                Ok(()) if !is_at(&file, local) => continue,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut who = Vec::new();
                    at(path, file.take(HOLDER_BYTES).read_to_end(&mut who))?;
                    return Ok(Locking::Taken(String::from_utf8_lossy(&who).trim().to_owned()));
                }
                Err(TryLockError::Error(_)) => {
                    if is_new {
                        let _ = fs::remove_file(local);
                    }
                    return Ok(Locking::Unsupported);
                }
            }
            let written = file.set_len(0).and_then(|()| writeln!(file, "{holder}"));
            let lock = LockFile::new(file, local.to_owned());
            return at(path, written).map(|()| Locking::Held(lock));
        }
        Ok(Locking::Taken(String::new()))
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
        // A file that takes the place of a device would be the end of the device.
        if let Ok(metadata) = fs::symlink_metadata(path::local(to)) {
            check_not_special(to, metadata.file_type())?;
        }
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

/// Opens a file that must be a regular one, so that a planted pipe or link does no harm.
fn open_regular(path: &str, options: &mut OpenOptions) -> Result<File> {
    let file = at(path, options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path::local(path)))?;
    if !at(path, file.metadata())?.is_file() {
        return Err(Status::failed_precondition(format!("{path} is no regular file")));
    }
    Ok(file)
}

/// Opens a file without blocking, should it be a pipe whose other end isn't open.
fn open_at_once(path: &str, options: &mut OpenOptions) -> Result<File> {
    // To open a terminal might make it this process's own.
    match options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path::local(path)) {
        // A pipe without a reader, or a socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            let metadata = at(path, fs::metadata(path::local(path)))?;
            check_not_special(path, metadata.file_type())?;
            Err(status_from_io(path, &error))
        }
        opened => at(path, opened),
    }
}

/// Refuses what is neither a file nor a directory: it may have no end, or wait for another program.
pub(super) fn check_not_special(path: &str, file_type: FileType) -> Result<()> {
    let kind = match file_type {
        kind if kind.is_char_device() => "a character device",
        kind if kind.is_block_device() => "a block device",
        kind if kind.is_fifo() => "a named pipe",
        kind if kind.is_socket() => "a socket",
        _ => return Ok(()),
    };
    Err(Status::failed_precondition(format!("{path}; Not a regular file but {kind}")))
}

fn open_writable(path: &str, options: &mut OpenOptions) -> Result<Box<dyn WritableFile>> {
    writer(open_at_once(path, options)?, path)
}

/// Locks a file that was just created as `local`, unless another process has locked or deleted it in the meantime.
pub(super) fn lock_created(file: File, local: &str, path: &str) -> Result<Box<dyn WritableFile>> {
    // A sweep may have found it before it was locked, and may have deleted it or be about to.
    let is_ours = match file.try_lock() {
        Ok(()) => is_at(&file, Path::new(local)),
        Err(TryLockError::WouldBlock) => false,
        // Some file systems have no locks; there, nothing is swept.
        Err(TryLockError::Error(_)) => true,
    };
    match is_ours {
        true => writer(file, path),
        false => Err(Status::already_exists(path)),
    }
}

/// Wraps a file that is open for reading.
pub(super) fn reader(file: File, path: &str) -> Result<Box<dyn RandomAccessFile>> {
    let file_type = at(path, file.metadata())?.file_type();
    if file_type.is_dir() {
        return Err(status_from_io(path, &io::Error::from_raw_os_error(libc::EISDIR)));
    }
    check_not_special(path, file_type)?;
    Ok(Box::new(LocalFile { file, path: path.to_owned() }))
}

/// Wraps a file that is open for writing.
pub(super) fn writer(file: File, path: &str) -> Result<Box<dyn WritableFile>> {
    check_not_special(path, at(path, file.metadata())?.file_type())?;
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
            check_interrupt()?;
            let end = buffer.len().min(filled + PIECE_BYTES);
            match self.file.read_at(&mut buffer[filled..end], position) {
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
        for piece in data.chunks(PIECE_BYTES) {
            check_interrupt()?;
            at(&self.path, self.file.write_all(piece))?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_resource_exhausted() {
        // The device that is always full.
        let file = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut file = LocalWriter { file: BufWriter::new(file), path: "/dev/full".to_owned() };
        let status = file.append(&vec![0; 1 << 20]).and_then(|()| file.flush()).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "/dev/full; No space left on device");
    }
}
