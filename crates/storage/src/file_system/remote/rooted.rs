//! Stores with restricted access: only beneath the URLs that `--file_root` names.

use super::{Location, RemoteFileSystem};
use crate::file_system::{FileRoot, FileStatistics, FileSystem, RandomAccessFile, WritableFile};
use tensor::{Result, Status};

/// The stores beneath some URLs; every other path is `PERMISSION_DENIED`.
pub struct RootedRemoteFileSystem {
    files: RemoteFileSystem,
    roots: Vec<(Root, bool)>,
}

struct Root {
    scheme: String,
    bucket: String,
    key: String,
}

impl RootedRemoteFileSystem {
    /// Confines a file system to some roots, which are URLs. Without roots, every access is refused. With `read_only`, nothing may be
    /// changed.
    pub fn new(files: RemoteFileSystem, roots: &[FileRoot], read_only: bool) -> Result<RootedRemoteFileSystem> {
        let roots = roots.iter().map(|root| {
            let Location { scheme, bucket, key } = Location::parse(&root.directory)?;
            let place = Root { scheme: scheme.to_owned(), bucket: bucket.to_owned(), key };
            Ok((place, read_only || root.read_only))
        });
        Ok(RootedRemoteFileSystem { files, roots: roots.collect::<Result<_>>()? })
    }

    fn for_reading(&self, path: &str) -> Result<&RemoteFileSystem> {
        self.is_read_only(path).map(|_| &self.files)
    }

    fn for_changes(&self, path: &str) -> Result<&RemoteFileSystem> {
        match self.is_read_only(path)? {
            false => Ok(&self.files),
            true => Err(Status::permission_denied(format!(
                "{path}; this server may only read there (--file_root URL:ro or --read_only)"
            ))),
        }
    }

    /// Returns whether the innermost root above a path is read-only.
    fn is_read_only(&self, path: &str) -> Result<bool> {
        let location = Location::parse(path)?;
        let around = self.roots.iter().filter(|(root, _)| root.holds(&location));
        around.max_by_key(|(root, _)| root.key.len()).map(|&(_, read_only)| read_only).ok_or_else(|| {
            Status::permission_denied(format!(
                "{path}; not beneath a URL that this server may use (--file_root {}://BUCKET/DIR)",
                location.scheme
            ))
        })
    }
}

impl Root {
    fn holds(&self, location: &Location<'_>) -> bool {
        let rest = location.key.strip_prefix(&self.key);
        let is_beneath = rest.is_some_and(|rest| self.key.is_empty() || rest.is_empty() || rest.starts_with('/'));
        self.scheme == location.scheme && self.bucket == location.bucket && is_beneath
    }
}

impl FileSystem for RootedRemoteFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        self.for_reading(path)?.open(path)
    }
    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_changes(path)?.create(path)
    }
    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_changes(path)?.create_new(path)
    }
    fn appears_whole(&self, path: &str) -> bool {
        self.files.appears_whole(path)
    }
    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.for_changes(path)?.open_append(path)
    }
    fn exists(&self, path: &str) -> Result<bool> {
        self.for_reading(path)?.exists(path)
    }
    fn stat(&self, path: &str) -> Result<FileStatistics> {
        self.for_reading(path)?.stat(path)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.for_changes(to)?;
        self.for_changes(from)?.rename(from, to)
    }
    fn delete_file(&self, path: &str) -> Result<()> {
        self.for_changes(path)?.delete_file(path)
    }
    fn delete_dir(&self, path: &str) -> Result<()> {
        self.for_changes(path)?.delete_dir(path)
    }
    fn create_dir(&self, path: &str) -> Result<()> {
        self.for_changes(path)?.create_dir(path)
    }
    fn create_dir_all(&self, path: &str) -> Result<()> {
        self.for_changes(path)?.create_dir_all(path)
    }
    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.for_reading(path)?.list(path)
    }
    fn sync_dir(&self, path: &str) -> Result<()> {
        self.for_reading(path)?.sync_dir(path)
    }
    fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        // A pattern that starts outside is refused; otherwise it would silently match nothing.
        self.for_reading(super::super::glob::fixed_directory(pattern))?.glob(pattern)
    }
}
