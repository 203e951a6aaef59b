//! Processes of `ferroflow` for tests: started, read, signalled, and ended with the test.

#![allow(dead_code, reason = "every test program uses some of it")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A bound on every wait, so that what hangs fails.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A process whose output is read; it is killed when the test is over.
pub struct Process {
    pub name: String,
    pub child: Child,
    pub lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Process {
    pub fn start(name: &str, arguments: &[&str]) -> Process {
        Process::spawn(name, Command::new(env!("CARGO_BIN_EXE_ferroflow")).args(arguments))
    }

    pub fn spawn(name: &str, command: &mut Command) -> Process {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let outputs: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Process { name: name.to_owned(), child, lines, seen: Vec::new() }
    }

    /// Waits for a line that holds this.
    pub fn wait_for(&mut self, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(error) => panic!("{} never said '{part}' ({error:?}), but:\n{}", self.name, self.seen.join("\n")),
            }
        }
    }

    /// Waits for a line that tells of steps done. A worker that waits for the chief names the global step, too.
    pub fn wait_for_step(&mut self) {
        while !self.wait_for("step ").starts_with("step ") {}
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push(line),
                // Both outputs are at their end: the process is, too.
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().unwrap(),
                Err(RecvTimeoutError::Timeout) => panic!("{} doesn't end:\n{}", self.name, self.seen.join("\n")),
            }
        }
    }

    pub fn wait_for_success(&mut self) -> &[String] {
        let status = self.wait();
        assert!(status.success(), "{}: {status}\n{}", self.name, self.seen.join("\n"));
        &self.seen
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tasks of a cluster on free ports, with flags that all share.
pub struct Tasks {
    pub ps_hosts: String,
    pub worker_hosts: String,
    pub shared: Vec<String>,
}

impl Tasks {
    pub fn new(ps: usize, workers: usize, shared: &[&str]) -> Tasks {
        let all = cluster::unused_addresses(ps + workers).unwrap();
        Tasks {
            ps_hosts: format!("--ps_hosts={}", all[..ps].join(",")),
            worker_hosts: format!("--worker_hosts={}", all[ps..].join(",")),
            shared: shared.iter().map(|flag| (*flag).to_owned()).collect(),
        }
    }

    pub fn start(&self, job: &str, index: usize) -> Process {
        let (job_name, task_index) = (format!("--job_name={job}"), format!("--task_index={index}"));
        let mut arguments = vec!["train", &job_name, &task_index, &self.worker_hosts];
        // There are none by all-reduce.
        arguments.extend(Some(self.ps_hosts.as_str()).filter(|flag| !flag.ends_with('=')));
        arguments.extend(self.shared.iter().map(String::as_str));
        Process::start(&format!("{job} {index}"), &arguments)
    }
}

/// Returns the accuracy in the last line, in percent.
pub fn accuracy(lines: &[String]) -> f64 {
    let last = lines.iter().rfind(|line| line.starts_with("test accuracy"));
    let last = last.unwrap_or_else(|| panic!("no accuracy:\n{}", lines.join("\n")));
    last.strip_prefix("test accuracy ").unwrap().strip_suffix(" %").unwrap().parse().unwrap()
}

pub fn logdir_flag(directory: &Path) -> String {
    format!("--logdir={}", directory.display())
}

pub fn run(arguments: &[&str]) -> Vec<String> {
    Process::start("train", arguments).wait_for_success().to_vec()
}

/// Returns the step of the newest checkpoint of a directory, when there is one.
pub fn newest_step(directory: &Path) -> Option<i64> {
    let state = std::fs::read_to_string(directory.join("checkpoint")).ok()?;
    state.lines().next()?.trim_end_matches('"').rsplit('-').next()?.parse().ok()
}

/// Returns the process of a task that `train --processes` has started.
pub fn pid_of_task(parent: u32, job: &str, index: u32) -> u32 {
    let flags = [format!("--job_name={job}"), format!("--task_index={index}")];
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok());
    let found = processes.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        // Behind the name, which is in brackets, are the state and the parent.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let is_child = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse() == Ok(parent);
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        let is_task = flags.iter().all(|flag| command.split('\0').any(|word| word == flag));
        (is_child && is_task).then_some(pid)
    });
    let found: Vec<u32> = found.collect();
    assert_eq!(found.len(), 1, "{job} {index} of {parent}: {found:?}");
    found[0]
}

/// Sends a signal to a process.
pub fn signal(signal: &str, pid: u32) {
    let number = match signal {
        "-KILL" => rustix::process::Signal::KILL,
        "-STOP" => rustix::process::Signal::STOP,
        _ => panic!("{signal}"),
    };
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, number).unwrap();
}

/// Waits until a process that isn't a child of this one has ended; who its parent is now may leave it a zombie.
pub fn wait_for_end(pid: u32) {
    let until = Instant::now() + PATIENCE;
    let is_there = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(!stat.rsplit_once(") ")?.1.starts_with('Z'))
    };
    while is_there() == Some(true) {
        assert!(Instant::now() < until, "process {pid} doesn't end");
        std::thread::sleep(Duration::from_millis(10));
    }
}
