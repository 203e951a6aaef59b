//! [`Disks`]: the disks of simulated machines, as `sim://HOST/…`. Data that was not synced may be lost when a machine dies, and a
//! machine can be made to die at any write.
//!
//! Data that a process has written is visible to its whole machine at once, and survives the process. When a machine dies, each file
//! keeps the data that was synced, and perhaps some that was appended later. Of the names that were created, renamed and deleted since
//! their directory was synced, the machine keeps the first changes, perhaps none.

use super::random::Random;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::file_system::{FileStatistics, FileSystem, RandomAccessFile, WritableFile};
use tensor::{Result, Status};

/// The prefix of paths on these disks.
pub const SCHEME: &str = "sim";

thread_local! {
    /// The disks of the simulation on this thread.
    static CURRENT: RefCell<Option<Arc<Disks>>> = const { RefCell::new(None) };
}

/// The disks of a simulation.
pub struct Disks {
    state: Mutex<State>,
}

struct State {
    random: Random,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// The names that processes see.
    names: BTreeMap<String, u64>,
    /// The names that survive the end of their machine.
    lasting: BTreeMap<String, u64>,
    directories: BTreeSet<String>,
    /// The changes of names that were not synced, in order.
    unsynced: Vec<Change>,
    /// The number of writes until a machine dies.
    writes_left: BTreeMap<String, u64>,
    /// The machines that have just died at a write.
    died: Vec<String>,
    dead: BTreeSet<String>,
    writes: u64,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

enum Change {
    Add(String, u64),
    Remove(String),
    Rename(String, String, u64),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Change::Add(name, file) => drop(names.insert(name.clone(), *file)),
            Change::Remove(name) => drop(names.remove(name)),
            Change::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }

    fn path(&self) -> &str {
        match self {
            Change::Add(path, _) | Change::Remove(path) | Change::Rename(path, _, _) => path,
        }
    }

    /// Returns whether it is in a directory.
    fn is_within(&self, directory: &str) -> bool {
        let to = if let Change::Rename(_, to, _) = self { to } else { self.path() };
        directory_of(self.path()) == directory || directory_of(to) == directory
    }
}

/// Returns the machine that a path is on.
fn host_of(path: &str) -> &str {
    path.strip_prefix("sim://").unwrap_or(path).split('/').next().unwrap_or_default()
}

fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn not_found(path: &str) -> Status {
    Status::not_found(format!("{path}; No such file or directory"))
}

impl Disks {
    /// Returns empty disks.
    pub fn new(seed: u64) -> Arc<Disks> {
        let state = State {
            random: Random::new(seed, "disks"),
            files: BTreeMap::new(),
            next_file: 0,
            names: BTreeMap::new(),
            lasting: BTreeMap::new(),
            directories: BTreeSet::new(),
            unsynced: Vec::new(),
            writes_left: BTreeMap::new(),
            died: Vec::new(),
            dead: BTreeSet::new(),
            writes: 0,
        };
        Arc::new(Disks { state: Mutex::new(state) })
    }

    /// Makes the ops on this thread use these disks, until the returned value is dropped.
    pub fn enter(self: &Arc<Disks>) -> Entered {
        CURRENT.set(Some(self.clone()));
        Entered
    }

    /// Returns the number of writes and renames.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Makes a machine die at one of its next writes.
    pub fn die_after(&self, host: usize, writes: u64) {
        self.state.lock().writes_left.insert(host.to_string(), writes);
    }

    /// Returns the machines that have died at a write since the last call.
    pub fn take_died(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().died).iter().filter_map(|host| host.parse().ok()).collect()
    }

    /// Makes a machine's disk refuse the process that is ending on it, or serve the next one.
    pub fn set_dead(&self, host: usize, is_dead: bool) {
        let mut state = self.state.lock();
        match is_dead {
            true => state.dead.insert(host.to_string()),
            false => state.dead.remove(&host.to_string()),
        };
    }

    /// Drops the data that a dying machine loses.
    pub fn machine_died(&self, host: usize) {
        let host = host.to_string();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.writes_left.remove(&host);
        let changes = std::mem::take(&mut state.unsynced);
        let (own, others): (Vec<Change>, Vec<Change>) =
            changes.into_iter().partition(|change| host_of(change.path()) == host);
        state.unsynced = others;
        let kept = state.random.below(own.len() + 1);
        for change in own.iter().take(kept) {
            change.apply(&mut state.lasting);
        }
        state.names.retain(|name, _| host_of(name) != host);
        let lasting: Vec<(String, u64)> = state
            .lasting
            .iter()
            .filter(|(name, _)| host_of(name) == host)
            .map(|(name, id)| (name.clone(), *id))
            .collect();
        for (name, id) in lasting {
            state.names.insert(name, id);
            let random = &mut state.random;
            if let Some(content) = state.files.get_mut(&id) {
                content.crash(random);
            }
        }
    }
}

impl Content {
    /// Keeps the synced data, and perhaps some that was appended.
    fn crash(&mut self, random: &mut Random) {
        if self.bytes == self.synced {
            return;
        }
        let kept = match self.bytes.starts_with(&self.synced) {
            true => self.synced.len() + random.below(self.bytes.len() - self.synced.len() + 1),
            false => 0,
        };
        match kept {
            0 => self.bytes = self.synced.clone(),
            kept => self.bytes.truncate(kept),
        }
        // The length may have been written, but not the content.
        if random.one_of_thousand(300) {
            let synced = self.synced.len().min(self.bytes.len());
            self.bytes[synced..].fill(0);
        }
        self.synced = self.bytes.clone();
    }
}

impl State {
    /// Counts a write of a machine, which may be the one at which it dies.
    fn write(&mut self, path: &str) -> Result<()> {
        let host = host_of(path).to_owned();
        self.alive(path)?;
        self.writes += 1;
        if let Some(left) = self.writes_left.get_mut(&host) {
            if *left == 0 {
                self.writes_left.remove(&host);
                self.dead.insert(host.clone());
                self.died.push(host);
                return Err(Status::unavailable(format!("{path}; its machine has died")));
            }
            *left -= 1;
        }
        Ok(())
    }

    fn alive(&self, path: &str) -> Result<()> {
        match self.dead.contains(host_of(path)) {
            true => Err(Status::unavailable(format!("{path}; its machine has died"))),
            false => Ok(()),
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.unsynced.push(change);
    }

    fn file(&self, path: &str) -> Result<u64> {
        self.alive(path)?;
        self.names.get(path).copied().ok_or_else(|| not_found(path))
    }

    fn is_directory(&self, path: &str) -> bool {
        let within = format!("{}/", path.trim_end_matches('/'));
        self.directories.contains(path.trim_end_matches('/')) || self.names.keys().any(|name| name.starts_with(&within))
    }
}

/// The disks that ops on this thread use.
pub struct Entered;

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// The file system of the simulation on the calling thread.
pub struct SimulatedFileSystem;

impl SimulatedFileSystem {
    fn disks() -> Result<Arc<Disks>> {
        let current = CURRENT.with_borrow(Clone::clone);
        current.ok_or_else(|| Status::failed_precondition("no simulation runs on this thread"))
    }

    fn add(path: &str, keeps: bool, is_new: bool) -> Result<Box<dyn WritableFile>> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(path)?;
        let known = state.names.get(path).copied();
        if is_new && known.is_some() {
            return Err(Status::already_exists(format!("{path}; File exists")));
        }
        let id = match known {
            Some(id) => {
                if !keeps && let Some(content) = state.files.get_mut(&id) {
                    content.bytes.clear();
                }
                id
            }
            None => {
                let id = state.next_file;
                state.next_file += 1;
                state.files.insert(id, Content::default());
                state.change(Change::Add(path.to_owned(), id));
                id
            }
        };
        drop(state);
        Ok(Box::new(Open { disks, id, path: path.to_owned() }))
    }
}

struct Open {
    disks: Arc<Disks>,
    id: u64,
    path: String,
}

impl WritableFile for Open {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        let mut state = self.disks.state.lock();
        state.write(&self.path)?;
        if let Some(content) = state.files.get_mut(&self.id) {
            content.bytes.extend_from_slice(data);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.disks.state.lock().alive(&self.path)
    }

    fn sync(&mut self) -> Result<()> {
        let mut state = self.disks.state.lock();
        state.write(&self.path)?;
        if let Some(content) = state.files.get_mut(&self.id) {
            content.synced = content.bytes.clone();
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.disks.state.lock().alive(&self.path)
    }
}

impl RandomAccessFile for Open {
    fn length(&self) -> Result<u64> {
        let state = self.disks.state.lock();
        state.alive(&self.path)?;
        Ok(state.files.get(&self.id).map_or(0, |content| content.bytes.len() as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let state = self.disks.state.lock();
        state.alive(&self.path)?;
        let bytes = state.files.get(&self.id).map_or(&[][..], |content| &content.bytes);
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl FileSystem for SimulatedFileSystem {
    fn open(&self, path: &str) -> Result<Box<dyn RandomAccessFile>> {
        let disks = SimulatedFileSystem::disks()?;
        let id = disks.state.lock().file(path)?;
        Ok(Box::new(Open { disks, id, path: path.to_owned() }))
    }

    fn create(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        SimulatedFileSystem::add(path, false, false)
    }

    fn create_new(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        SimulatedFileSystem::add(path, false, true)
    }

    fn open_append(&self, path: &str) -> Result<Box<dyn WritableFile>> {
        SimulatedFileSystem::add(path, true, false)
    }

    fn exists(&self, path: &str) -> Result<bool> {
        let disks = SimulatedFileSystem::disks()?;
        let state = disks.state.lock();
        state.alive(path)?;
        Ok(state.names.contains_key(path) || state.is_directory(path))
    }

    fn stat(&self, path: &str) -> Result<FileStatistics> {
        let disks = SimulatedFileSystem::disks()?;
        let state = disks.state.lock();
        state.alive(path)?;
        if state.is_directory(path) {
            return Ok(FileStatistics { length: 0, modified_nanos: 0, is_directory: true });
        }
        let id = state.file(path)?;
        let length = state.files.get(&id).map_or(0, |content| content.bytes.len() as u64);
        Ok(FileStatistics { length, modified_nanos: 0, is_directory: false })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(from)?;
        let file = state.file(from)?;
        state.change(Change::Rename(from.to_owned(), to.to_owned(), file));
        Ok(())
    }

    fn delete_file(&self, path: &str) -> Result<()> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(path)?;
        state.file(path)?;
        state.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    fn delete_dir(&self, path: &str) -> Result<()> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(path)?;
        state.directories.remove(path.trim_end_matches('/'));
        Ok(())
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(path)?;
        match state.directories.insert(path.trim_end_matches('/').to_owned()) {
            true => Ok(()),
            false => Err(Status::already_exists(format!("{path}; File exists"))),
        }
    }

    fn create_dir_all(&self, path: &str) -> Result<()> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(path)?;
        state.directories.insert(path.trim_end_matches('/').to_owned());
        Ok(())
    }

    fn list(&self, path: &str) -> Result<Vec<String>> {
        let disks = SimulatedFileSystem::disks()?;
        let state = disks.state.lock();
        state.alive(path)?;
        let within = format!("{}/", path.trim_end_matches('/'));
        let names = state.names.keys().chain(&state.directories).filter_map(|name| name.strip_prefix(&within));
        let first: BTreeSet<&str> = names.filter_map(|name| name.split('/').next()).collect();
        if first.is_empty() && !state.is_directory(path) {
            return Err(not_found(path));
        }
        Ok(first.into_iter().map(str::to_owned).collect())
    }

    fn sync_dir(&self, path: &str) -> Result<()> {
        let disks = SimulatedFileSystem::disks()?;
        let mut state = disks.state.lock();
        state.write(&format!("{path}/"))?;
        let state = &mut *state;
        let directory = path.trim_end_matches('/');
        let changes = std::mem::take(&mut state.unsynced);
        for change in changes {
            match change.is_within(directory) {
                true => change.apply(&mut state.lasting),
                false => state.unsynced.push(change),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "sim://0/d/file";

    fn write(path: &str, text: &[u8], syncs: bool) {
        let mut file = SimulatedFileSystem.create(path).unwrap();
        file.append(text).unwrap();
        if syncs {
            file.sync().unwrap();
        }
        file.close().unwrap();
    }

    #[test]
    fn what_was_synced_survives_its_machine_and_nothing_else_must() {
        let mut kept = 0;
        for seed in 0..100 {
            let disks = Disks::new(seed);
            let _entered = disks.enter();
            write(FILE, b"old", true);
            SimulatedFileSystem.sync_dir("sim://0/d").unwrap();
            SimulatedFileSystem.write_atomically("sim://0/d/atomic", b"old").unwrap();
            write("sim://0/d/new", b"new", true);
            SimulatedFileSystem.rename("sim://0/d/new", FILE).unwrap();
            assert_eq!(SimulatedFileSystem.read(FILE).unwrap(), b"new");
            disks.machine_died(0);
            let content = SimulatedFileSystem.read(FILE).unwrap();
            assert!(content == b"old" || content == b"new", "{content:?}");
            kept += usize::from(content == b"new");
            assert_eq!(SimulatedFileSystem.read("sim://0/d/atomic").unwrap(), b"old");
        }
        assert!((10..90).contains(&kept), "{kept} of 100 renames were kept");
    }

    #[test]
    fn a_rename_before_its_sync_may_leave_nothing() {
        let lost = |seed| {
            let disks = Disks::new(seed);
            let _entered = disks.enter();
            write("sim://0/d/new", b"new", false);
            SimulatedFileSystem.rename("sim://0/d/new", FILE).unwrap();
            SimulatedFileSystem.sync_dir("sim://0/d").unwrap();
            disks.machine_died(0);
            SimulatedFileSystem.read(FILE).unwrap() != b"new"
        };
        assert!((0..20).any(lost));
    }

    #[test]
    fn a_machine_dies_at_the_write_that_was_said() {
        let disks = Disks::new(1);
        let _entered = disks.enter();
        disks.die_after(0, 1);
        let mut file = SimulatedFileSystem.create(FILE).unwrap();
        assert!(file.append(b"x").unwrap_err().message().contains("died"));
        assert!(SimulatedFileSystem.open(FILE).is_err() && SimulatedFileSystem.create("sim://1/x").is_ok());
        assert_eq!(disks.take_died(), [0]);
        disks.machine_died(0);
        disks.set_dead(0, false);
        assert!(!SimulatedFileSystem.exists(FILE).unwrap(), "its name was not synced");
    }
}
