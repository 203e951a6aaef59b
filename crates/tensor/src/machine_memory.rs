//! The memory of the machine, and of the control groups (of both versions) that this process runs in.

use crate::{Result, Status};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// The files in which the system reports memory; in tests, another root than `/` stands for another machine.
pub(crate) struct MachineMemory {
    root: PathBuf,
}

/// A control group that bounds memory.
struct Group {
    limit: u64,
    /// The memory that is in use and can't be reclaimed at once.
    used: u64,
}

impl MachineMemory {
    /// Returns what this machine says.
    pub(crate) fn of_this_machine() -> MachineMemory {
        MachineMemory { root: PathBuf::from("/") }
    }

    /// Returns how much there is for this process and all that share a control group with it.
    pub(crate) fn total(&self) -> Option<u64> {
        let groups = self.groups().into_iter().map(|group| group.limit);
        groups.chain(self.meminfo("MemTotal:")).min()
    }

    /// Returns how much of it nobody uses now.
    pub(crate) fn left(&self) -> Option<u64> {
        let groups = self.groups().into_iter().map(|group| group.limit.saturating_sub(group.used));
        groups.chain(self.meminfo("MemAvailable:")).min()
    }

    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = read_to_string(self.root.join("proc/meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// Returns the groups with a limit, from that of this process up to the root. In a container the path may be one of the
    /// machine's, of which only the upper end is there.
    fn groups(&self) -> Vec<Group> {
        let text = read_to_string(self.root.join("proc/self/cgroup")).unwrap_or_default();
        let mut groups = Vec::new();
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let mount = self.root.join("sys/fs/cgroup");
            let (mount, read): (PathBuf, fn(&Path) -> Option<Group>) = match controllers {
                "" => (mount, read_version_2),
                _ if controllers.split(',').any(|name| name == "memory") => (mount.join("memory"), read_version_1),
                _ => continue,
            };
            // Parts such as `..` lead out of what this process can see.
            let mut names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | "." | "..")).collect();
            loop {
                let directory = names.iter().fold(mount.clone(), |directory, name| directory.join(name));
                groups.extend(read(&directory));
                if names.pop().is_none() {
                    break;
                }
            }
        }
        groups
    }
}

fn read_version_2(group: &Path) -> Option<Group> {
    let limit = number(&group.join("memory.max"))?;
    let used = number(&group.join("memory.current")).unwrap_or(0);
    Some(Group { limit, used: used.saturating_sub(reclaimable(group, "inactive_file ")) })
}

fn read_version_1(group: &Path) -> Option<Group> {
    // No limit is a number that no machine has.
    let limit = number(&group.join("memory.limit_in_bytes")).filter(|&limit| limit < 1 << 60)?;
    let used = number(&group.join("memory.usage_in_bytes")).unwrap_or(0);
    Some(Group { limit, used: used.saturating_sub(reclaimable(group, "total_inactive_file ")) })
}

/// Returns how much of a group's memory holds pages of files that the kernel drops when it needs room.
fn reclaimable(group: &Path, name: &str) -> u64 {
    let text = read_to_string(group.join("memory.stat")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

fn number(file: &Path) -> Option<u64> {
    read_to_string(file).ok()?.trim().parse().ok()
}

/// Reads an amount of memory: bytes, with a unit such as `512M` or `4GiB`, or a share such as `80%` of what there is.
pub fn parse_memory_limit(text: &str) -> Result<usize> {
    let total = MachineMemory::of_this_machine().total().unwrap_or(isize::MAX as u64);
    parse_limit(text, total)
}

fn parse_limit(text: &str, total: u64) -> Result<usize> {
    let wrong = || {
        Status::invalid_argument(format!(
            "'{text}' is not an amount of memory: give bytes, a unit (512M, 4G, 1.5GiB) or a share (80%)"
        ))
    };
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let amount: f64 = digits.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_lowercase();
    let scale = match unit.trim_end_matches('b').trim_end_matches('i') {
        _ if unit == "%" => total as f64 / 100.0,
        "" if unit.is_empty() || unit == "b" => 1.0,
        "k" => (1u64 << 10) as f64,
        "m" => (1u64 << 20) as f64,
        "g" => (1u64 << 30) as f64,
        "t" => (1u64 << 40) as f64,
        _ => return Err(wrong()),
    };
    let bytes = amount * scale;
    if bytes >= 1.0 && bytes < isize::MAX as f64 { Ok(bytes as usize) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, MachineMemory) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        let memory = MachineMemory { root: root.path().to_owned() };
        (root, memory)
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:  6000 kB\n");

    #[test]
    fn without_groups_the_machine_counts() {
        let (_root, memory) = machine(&[MEMINFO]);
        assert_eq!((memory.total(), memory.left()), (Some(8000 << 10), Some(6000 << 10)));
        assert_eq!(machine(&[]).1.total(), None);
    }

    #[test]
    fn the_narrowest_group_on_the_way_up_counts() {
        let (_root, memory) = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/pod/task\n"),
            ("sys/fs/cgroup/pod/task/memory.max", "max\n"),
            ("sys/fs/cgroup/pod/task/memory.current", "700\n"),
            ("sys/fs/cgroup/pod/memory.max", "4096000\n"),
            ("sys/fs/cgroup/pod/memory.current", "4000000\n"),
            ("sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 1000000\n"),
        ]);
        assert_eq!((memory.total(), memory.left()), (Some(4_096_000), Some(1_096_000)));
    }

    #[test]
    fn the_older_version_is_read_too() {
        let (_root, memory) = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n3:memory:/docker/1\n0::/\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "2048000\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes", "48000\n"),
            ("sys/fs/cgroup/memory/docker/1/memory.stat", "inactive_file 5\ntotal_inactive_file 8000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!((memory.total(), memory.left()), (Some(2_048_000), Some(2_008_000)));
    }

    #[test]
    fn a_path_that_is_only_the_machines_leads_to_the_containers_own_root() {
        let (_root, memory) = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/../../system.slice/docker-1.scope\n"),
            ("sys/fs/cgroup/memory.max", "1024000\n"),
        ]);
        assert_eq!(memory.total(), Some(1_024_000));
    }

    #[test]
    fn limits_have_units() {
        for (text, bytes) in
            [("4G", 4 << 30), ("512M", 512 << 20), ("1.5GiB", 3 << 29), ("100", 100), ("80%", 800), ("7kb", 7 << 10)]
        {
            assert_eq!(parse_limit(text, 1000).unwrap(), bytes, "{text}");
        }
        for text in ["", "G", "-1", "0", "1X", "1e300T", "ten"] {
            assert!(parse_limit(text, 1000).is_err(), "{text}");
        }
    }
}
