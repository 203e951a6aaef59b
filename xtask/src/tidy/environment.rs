//! Holds what runs steps to the environment that it is given: the time, threads, tasks and random numbers come from there, so that a
//! simulation can give its own.

use crate::process;
use std::collections::BTreeMap;

/// The crates that are held to it.
const HELD: [&str; 3] = ["kernel", "executor", "cluster"];

/// What reaches past the environment.
const DIRECT: [&str; 10] = [
    "Instant::now",
    "SystemTime::now",
    "thread::spawn",
    "thread::Builder",
    "thread::sleep",
    "getrandom::",
    "rand::",
    "tokio::spawn",
    "tokio::time::",
    "spawn_blocking",
];

/// Where that is done, and how often, outside of tests. A number that has become smaller must be written down here, and none may grow.
/// `clock`, `spawner` and `timer` are the environment itself; `io_pool`, `threads` and `random` are what a process has in place of one.
/// The rest serves sockets, which simulations do without so far.
const KNOWN: &[(&str, usize)] = &[
    ("crates/cluster/src/clock.rs", 3),
    ("crates/cluster/src/listen.rs", 3),
    ("crates/cluster/src/random.rs", 1),
    ("crates/cluster/src/server.rs", 1),
    ("crates/cluster/src/stand_ins.rs", 2),
    ("crates/cluster/src/threads.rs", 1),
    ("crates/cluster/src/transport/grpc/gate.rs", 2),
    ("crates/cluster/src/transport/grpc/server.rs", 2),
    ("crates/cluster/src/transport/grpc/socket_owner.rs", 1),
    ("crates/cluster/src/transport/stream/mod.rs", 1),
    ("crates/kernel/src/io_pool.rs", 1),
    ("crates/kernel/src/timer.rs", 3),
];

#[test]
fn nothing_that_runs_steps_reaches_past_its_environment() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for path in super::rust_files() {
        let shown = path.strip_prefix(process::root()).unwrap_or(&path).display().to_string();
        let is_held = HELD.iter().any(|name| shown.starts_with(&format!("crates/{name}/src/")));
        if !is_held || shown.ends_with("/tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file is readable");
        let code = super::arrows::without_tests(&text);
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let count: usize =
            lines.map(|line| DIRECT.iter().map(|direct| line.matches(direct).count()).sum::<usize>()).sum();
        if count > 0 {
            found.insert(shown, count);
        }
    }
    let known: BTreeMap<String, usize> = KNOWN.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect();
    let mut complaints = Vec::new();
    for (path, count) in &found {
        match known.get(path) {
            Some(known) if known == count => {}
            Some(known) if known > count => {
                complaints.push(format!(
                    "{path} reaches past its environment {count} times: write that down in place of {known}"
                ));
            }
            _ => complaints.push(format!(
                "{path} reads the clock, starts threads or tasks, or draws random numbers itself, {count} times: use \
                 `numeric::environment`, `cluster::clock` or a `Spawner`"
            )),
        }
    }
    for path in known.keys().filter(|path| !found.contains_key(*path)) {
        complaints.push(format!("{path} does not reach past its environment any more: take it out of the list"));
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
