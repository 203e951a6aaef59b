//! Checks that the code that runs steps gets the time, threads, tasks and random numbers from its environment only, so that a simulation
//! can provide its own.

use crate::process;
use std::collections::BTreeMap;

/// The crates that are checked.
const HELD: [&str; 3] = ["kernel", "executor", "cluster"];

/// Names that bypass the environment.
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

/// The files that use them, how many times outside of tests, and why. A number that has become smaller must be updated here, and none
/// may grow.
const KNOWN: &[(&str, usize, &str)] = &[
    ("crates/cluster/src/clock.rs", 3, "is the environment"),
    ("crates/cluster/src/listen.rs", 1, "the system's look-up of names may hold a thread for minutes"),
    ("crates/cluster/src/random.rs", 1, "secrets come from the system's generator"),
    ("crates/cluster/src/stand_ins.rs", 2, "moves what a thread of the runtime would run next to where others find it"),
    ("crates/cluster/src/threads.rs", 1, "starts the threads that serve peers on this machine"),
    ("crates/cluster/src/transport/grpc/gate.rs", 2, "serves sockets, which simulations do without"),
    ("crates/cluster/src/transport/grpc/server.rs", 2, "serves sockets, which simulations do without"),
    ("crates/cluster/src/transport/grpc/socket_owner/linux.rs", 1, "reads a list of the system that may be long"),
    (
        "crates/cluster/src/transport/stream/mod.rs",
        1,
        "a Unix socket whose queue is full is connected by a blocking call only",
    ),
    ("crates/kernel/src/io_pool.rs", 1, "starts the threads for files, unless there is an environment"),
    ("crates/kernel/src/timer.rs", 3, "is the environment"),
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
    let known: BTreeMap<String, usize> = KNOWN.iter().map(|(path, count, _)| ((*path).to_owned(), *count)).collect();
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
