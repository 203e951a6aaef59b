//! The local disk with restricted access: only beneath given directories, or read-only.
//!
//! The kernel resolves every path beneath an open directory (`openat2` with `RESOLVE_BENEATH`), so neither `..` nor a symbolic
//! link leads out, even if directories are moved concurrently. A link with an absolute target counts as leading out, wherever it
//! points.

use super::local::{self, at};
use super::{
    ExistingLock, FileStatistics, FileSystem, LocalFileSystem, Locking, RandomAccessFile, WritableFile, path,
    status_from_io,
};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::str::FromStr;
use tensor::{Code, Result, Status};

/// A directory beneath which files may be reached, as `--file_root` names it: `DIR`, or `DIR:ro` for reading only. It may be
/// the URL of a directory in a store, such as `s3://bucket/dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRoot {
    /// The directory, or the URL of one.
    pub directory: String,
    /// Whether nothing may be changed in it.
    pub read_only: bool,
}

impl FromStr for FileRoot {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<FileRoot, String> {
        let (directory, read_only) = match text.strip_suffix(":ro") {
            Some(directory) => (directory, true),
            None => (text, false),
        };
        match directory {
            "" => Err("a directory is missing".to_owned()),
            directory => Ok(FileRoot { directory: directory.to_owned(), read_only }),
        }
    }
}

impl fmt::Display for FileRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.directory, if self.read_only { ":ro" } else { "" })
    }
}

/// The local disk beneath some directories; every other path is `PERMISSION_DENIED`.
pub struct RootedFileSystem {
    roots: Vec<OpenRoot>,
    working_directory: String,
}

struct OpenRoot {
    /// The directory as it was named and as it is without symbolic links, both absolute: clients may use either.
    names: [String; 2],
    directory: File,
    read_only: bool,
}

/// The kind of access to a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Read,
    Change,
}

/// A path beneath one of the roots.
struct Place<'a> {
    root: &'a OpenRoot,
    /// The path from the root on; never empty.
    beneath: String,
    /// The path as the client wrote it.
    path: &'a str,
}

impl RootedFileSystem {
    /// Opens the directories, all of which must be there.
    pub fn new(roots: &[FileRoot]) -> Result<RootedFileSystem> {
        let working_directory = at(".", std::env::current_dir())?.to_string_lossy().into_owned();
        let mut open = Vec::with_capacity(roots.len());
        for root in roots {
            let named = absolute(&working_directory, path::local(&root.directory));
            let real = at(&named, std::fs::canonicalize(&named))?;
            let real = real.into_os_string().into_string();
            let real = real.map_err(|_| Status::invalid_argument(format!("{named} has a name that is not UTF-8")))?;
            let directory = at(&named, File::open(&real))?;
            if !at(&named, directory.metadata())?.is_dir() {
                return Err(status_from_io(&named, &io::Error::from_raw_os_error(libc::ENOTDIR)));
            }
            let root = OpenRoot { names: [named, real], directory, read_only: root.read_only };
            root.probe()?;
            open.push(root);
        }
        Ok(RootedFileSystem { roots: open, working_directory })
    }

    /// Finds the root that a path is beneath: the innermost one, so that a part of a root may have a rule of its own.
    fn place<'a>(&'a self, path: &'a str, purpose: Purpose) -> Result<Place<'a>> {
        let whole = absolute(&self.working_directory, path::local(path));
        let found = self.roots.iter().flat_map(|root| root.names.iter().map(move |name| (root, name)));
        let innermost = found
            .filter_map(|(root, name)| Some((root, name.len(), beneath(&whole, name)?)))
            .max_by_key(|&(_, length, _)| length);
        let Some((root, _, rest)) = innermost else {
            return Err(Status::permission_denied(format!(
                "{path}; not beneath a directory that this server may use (--file_root)"
            )));
        };
        if purpose == Purpose::Change && root.read_only {
            return Err(Status::permission_denied(format!(
                "{path}; this server may only read there (--file_root DIR:ro)"
            )));
        }
        let rest = if rest.is_empty() { "." } else { rest };
        Ok(Place { root, beneath: rest.to_owned(), path })
    }

    fn writer(&self, path: &str, flags: OFlags) -> Result<Box<dyn WritableFile>> {
        let place = self.place(path, Purpose::Change)?;
        let file = place.open(OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | flags)?;
        local::writer(file, path)
    }
}

impl OpenRoot {
    /// Fails where the kernel can't resolve paths beneath a directory (Linux before 5.6, or a filter of system calls).
    fn probe(&self) -> Result<()> {
        match open_beneath(&self.directory, ".", OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => Ok(()),
            Err(error) => Err(Status::unimplemented(format!(
                "--file_root {} can't be kept: this system has no usable openat2 ({error}); Linux 5.6 or newer is needed",
                self.names[0]
            ))),
        }
    }
}

impl Place<'_> {
    fn open(&self, flags: OFlags) -> Result<File> {
        open_beneath(&self.root.directory, &self.beneath, flags).map_err(|errno| self.status(errno))
    }

    /// Opens the directory that the last name is in, and returns it with that name.
    fn parent(&self) -> Result<(File, &str)> {
        let beneath = self.beneath.trim_end_matches('/');
        let (directory, name) = beneath.rsplit_once('/').unwrap_or((".", beneath));
        if matches!(name, "" | "." | "..") {
            // A directory by another name than its own can't be changed, whether it may be reached or not.
            self.open(OFlags::PATH)?;
            return Err(self.status(Errno::INVAL));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = open_beneath(&self.root.directory, if directory.is_empty() { "." } else { directory }, flags);
        Ok((opened.map_err(|errno| self.status(errno))?, name))
    }

    fn in_parent(&self, change: impl FnOnce(&File, &str) -> rustix::io::Result<()>) -> Result<()> {
        let (directory, name) = self.parent()?;
        change(&directory, name).map_err(|errno| self.status(errno))
    }

    fn status(&self, errno: Errno) -> Status {
        match errno {
            Errno::XDEV => Status::permission_denied(format!(
                "{}; leads out of the directory that this server may use (--file_root)",
                self.path
            )),
            other => status_from_io(self.path, &other.into()),
        }
    }
}

impl FileSystem for RootedFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        let place = self.place(path, Purpose::Read)?;
        local::reader(place.open(OFlags::RDONLY | OFlags::NONBLOCK)?, path)
    }

    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.writer(path, OFlags::TRUNC)
    }

    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.writer(path, OFlags::EXCL)
    }

    fn create_locked(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        let place = self.place(path, Purpose::Change)?;
        let (directory, name) = place.parent()?;
        let file = place.open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        local::lock_created(file, &through(&directory, name), path)
    }

    fn lock_existing(&self, path: &str) -> Result<Option<ExistingLock>> {
        let place = self.place(path, Purpose::Change)?;
        let (directory, name) = place.parent()?;
        let local = through(&directory, name);
        LocalFileSystem.lock_existing(&local).map_err(|status| named(&status, &local, path))
    }

    fn locks_reach_all_hosts(&self, directory: &str) -> bool {
        let opened =
            self.place(directory, Purpose::Read).and_then(|place| place.open(OFlags::PATH | OFlags::DIRECTORY));
        opened.is_ok_and(|opened| LocalFileSystem.locks_reach_all_hosts(&through(&opened, ".")))
    }

    fn try_lock_file(&self, path: &str, holder: &str) -> Result<Locking> {
        let place = self.place(path, Purpose::Change)?;
        let (directory, name) = place.parent()?;
        let local = through(&directory, name);
        match LocalFileSystem.try_lock_file(&local, holder).map_err(|status| named(&status, &local, path))? {
            Locking::Held(lock) => Ok(Locking::Held(lock.beneath(directory))),
            other => Ok(other),
        }
    }

    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.writer(path, OFlags::APPEND)
    }

    fn exists(&self, path: &str) -> Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            // Nothing exists beneath a file that is no directory.
            Err(status) if status.message().ends_with("Not a directory") => Ok(false),
            Err(status) => Err(status),
        }
    }

    fn stat(&self, path: &str) -> Result<FileStatistics> {
        let file = self.place(path, Purpose::Read)?.open(OFlags::PATH)?;
        local::statistics(path, &at(path, file.metadata())?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.place(from, Purpose::Change)?, self.place(to, Purpose::Change)?);
        let ((from_directory, from_name), (to_directory, to_name)) = (source.parent()?, target.parent()?);
        if let Ok(there) = target.open(OFlags::PATH | OFlags::NOFOLLOW) {
            local::check_not_special(to, at(to, there.metadata())?.file_type())?;
        }
        let renamed = rustix::fs::renameat(&from_directory, from_name, &to_directory, to_name);
        // Two roots may be on different disks, which isn't a way out.
        renamed.map_err(|errno| status_from_io(from, &errno.into()))
    }

    fn delete_file(&self, path: &str) -> Result<()> {
        let place = self.place(path, Purpose::Change)?;
        place.in_parent(|directory, name| rustix::fs::unlinkat(directory, name, AtFlags::empty()))
    }

    fn delete_dir(&self, path: &str) -> Result<()> {
        let place = self.place(path, Purpose::Change)?;
        place.in_parent(|directory, name| rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        let place = self.place(path, Purpose::Change)?;
        if place.beneath == "." {
            return Err(Status::already_exists(path));
        }
        place.in_parent(make_directory)
    }

    fn create_dir_all(&self, path: &str) -> Result<()> {
        let place = self.place(path, Purpose::Change)?;
        let ends = place.beneath.match_indices('/').map(|(slash, _)| slash).chain([place.beneath.len()]);
        for end in ends.filter(|_| place.beneath != ".") {
            // A directory above one that is there needn't be made; whether it may be reached, the next part tells.
            if place.beneath[..end].ends_with("..") {
                continue;
            }
            let part = Place { root: place.root, beneath: place.beneath[..end].to_owned(), path };
            match part.in_parent(make_directory) {
                Err(status) if status.code() == Code::AlreadyExists => {}
                result => result?,
            }
        }
        match self.stat(path)?.is_directory {
            true => Ok(()),
            false => Err(Status::already_exists(format!("{path}; File exists"))),
        }
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        let place = self.place(path, Purpose::Read)?;
        let directory = place.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(directory).map_err(|errno| place.status(errno))? {
            let entry = entry.map_err(|errno| place.status(errno))?;
            // A name that isn't UTF-8 can't be written as a path of ours, so nobody can ask for it.
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, path: &str) -> Result<()> {
        let place = self.place(path, Purpose::Read)?;
        local::sync_directory(path, &place.open(OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        // What can't be listed matches nothing; a pattern that starts outside is refused instead.
        match self.stat(super::glob::fixed_directory(pattern)) {
            Err(status) if status.code() == Code::PermissionDenied => Err(status),
            _ => super::glob::glob(self, pattern),
        }
    }
}

/// A file system that changes nothing.
pub struct ReadOnlyFileSystem<F>(pub F);

impl<F> ReadOnlyFileSystem<F> {
    fn refused<T>(&self, path: &str) -> Result<T> {
        Err(Status::permission_denied(format!("{path}; this server changes no files (--read_only)")))
    }
}

impl<F: FileSystem> FileSystem for ReadOnlyFileSystem<F> {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        self.0.open(path)
    }
    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.refused(path)
    }
    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.refused(path)
    }
    fn appears_whole(&self, path: &str) -> bool {
        self.0.appears_whole(path)
    }
    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        self.refused(path)
    }
    fn exists(&self, path: &str) -> Result<bool> {
        self.0.exists(path)
    }
    fn stat(&self, path: &str) -> Result<FileStatistics> {
        self.0.stat(path)
    }
    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        self.refused(from)
    }
    fn delete_file(&self, path: &str) -> Result<()> {
        self.refused(path)
    }
    fn delete_dir(&self, path: &str) -> Result<()> {
        self.refused(path)
    }
    fn create_dir(&self, path: &str) -> Result<()> {
        self.refused(path)
    }
    fn create_dir_all(&self, path: &str) -> Result<()> {
        self.refused(path)
    }
    fn list(&self, path: &str) -> Result<Vec<String>> {
        self.0.list(path)
    }
    fn sync_dir(&self, path: &str) -> Result<()> {
        self.refused(path)
    }
    fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        self.0.glob(pattern)
    }
}

/// Returns a path that leads to a name in an open directory, wherever that has been moved. Whoever uses it must not follow a
/// link that has the name.
fn through(directory: &File, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())
}

/// Puts the client's path in place of ours.
fn named(status: &Status, local: &str, path: &str) -> Status {
    Status::new(status.code(), status.message().replace(local, path))
}

fn make_directory(parent: &File, name: &str) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o777))
}

/// Opens a path beneath a directory, creating the file with the usual rights where the flags say so.
fn open_beneath(directory: &File, path: &str, flags: OFlags) -> rustix::io::Result<File> {
    let mode = if flags.contains(OFlags::CREATE) { Mode::from_raw_mode(0o666) } else { Mode::empty() };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..OPEN_ATTEMPTS {
        match rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, mode, resolve) {
            // A directory was renamed in the meantime, so the kernel could not determine whether `..` leads out.
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Ok(File::from(result?)),
        }
    }
    Err(Errno::AGAIN)
}

/// The number of attempts to resolve a path while directories are renamed at the same time.
const OPEN_ATTEMPTS: u32 = 128;

/// Returns a path that doesn't depend on the working directory, without `.` and doubled slashes; `..` stays, since only the
/// kernel knows where it leads.
fn absolute(working_directory: &str, path: &str) -> String {
    let mut whole = String::with_capacity(path.len() + 1);
    let start = if path.starts_with('/') { "" } else { working_directory };
    for part in start.split('/').chain(path.split('/')).filter(|part| !matches!(*part, "" | ".")) {
        whole.push('/');
        whole.push_str(part);
    }
    if whole.is_empty() { "/".to_owned() } else { whole }
}

/// Returns the rest of a path after a directory that it starts with.
fn beneath<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}
