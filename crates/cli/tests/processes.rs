//! `ferroflow train` as many processes that are interrupted in a terminal, killed and started again, and two of them in one
//! directory.

mod common;

use common::{PATIENCE, Process, Tasks, accuracy, logdir_flag, newest_step, pid_of_task, run, signal};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

/// The step that a bar on a terminal is at.
fn step_in(screen: &str) -> Option<i64> {
    let (before, _) = screen.rsplit_once("/100000000 ")?;
    before.rsplit(' ').next()?.parse().ok()
}

/// A command of `ferroflow` in the foreground of a terminal.
struct Terminal {
    child: std::process::Child,
    terminal: std::sync::Arc<pty_process::blocking::Pty>,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    fn train(arguments: &[&str]) -> Terminal {
        Terminal::start(&[&["train"], arguments].concat())
    }

    fn start(arguments: &[&str]) -> Terminal {
        let (terminal, other_end) = pty_process::blocking::open().unwrap();
        terminal.resize(pty_process::Size::new(24, 200)).unwrap();
        let command = pty_process::blocking::Command::new(env!("CARGO_BIN_EXE_ferroflow"));
        let child = command.args(arguments).spawn(other_end).unwrap();
        let terminal = std::sync::Arc::new(terminal);
        let (sender, output) = channel();
        let reader = terminal.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when nobody has the other end open any more.
            while let Ok(count @ 1..) = (&*reader).read(&mut buffer) {
                let _ = sender.send(buffer[..count].to_vec());
            }
        });
        Terminal { child, terminal, output, screen: String::new() }
    }

    /// Takes what is printed until `is_there` says so, or until then; returns whether it was there.
    fn read_until(&mut self, until: Instant, is_there: impl Fn(&str) -> bool) -> bool {
        while !is_there(&self.screen) {
            let Ok(bytes) = self.output.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                return false;
            };
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
        true
    }

    fn press(&self, key: &[u8]) {
        (&*self.terminal).write_all(key).unwrap();
    }

    fn press_control_c(&self) {
        self.press(b"\x03");
    }

    /// Waits for the end of the process; everything it printed is on the screen then.
    fn wait(&mut self) -> std::process::ExitStatus {
        self.read_until(Instant::now() + PATIENCE, |_| false);
        self.child.wait().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn control_c_in_a_terminal_at_any_moment_loses_no_step() {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("FERROFLOW_TEST_SEED").map_or(seed, |text| text.parse().unwrap());
    println!("FERROFLOW_TEST_SEED={seed}");
    let mut random = seed | 1;
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    let mut reached = 0;
    for round in 0..5 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let moment = Duration::from_millis(random % 400);
        let mut terminal = Terminal::train(&[
            "--processes",
            "--hidden_units=16",
            "--batch_size=20",
            "--train_steps=100000000",
            &logdir,
        ]);
        // Sometimes training has not begun by then.
        if round != 0 {
            assert!(terminal.read_until(Instant::now() + PATIENCE, |screen| step_in(screen) > Some(0)));
        }
        terminal.read_until(Instant::now() + moment, |_| false);
        terminal.press_control_c();
        let status = terminal.wait();
        let said = format!("round {round}, seed {seed}, after {moment:?}: {status}\n{}", terminal.screen);
        let at = step_in(&terminal.screen).filter(|&step| step > 0);
        assert!(status.success() || at.is_none(), "{said}");
        if let Some(at) = at {
            assert!(at >= reached, "went on from less than {reached}: {said}");
            reached = at;
            assert!(newest_step(directory.path()).is_some_and(|saved| saved >= at), "{at} is lost: {said}");
            assert!(terminal.screen.contains("interrupted; run it again"), "{said}");
        }
    }
    assert!(reached > 0);
}

#[test]
fn a_second_control_c_ends_everything_at_once() {
    let mut terminal = Terminal::train(&["--processes", "--hidden_units=16", "--train_steps=100000000"]);
    assert!(terminal.read_until(Instant::now() + PATIENCE, |screen| step_in(screen) > Some(0)));
    // A worker that is stopped does not leave, so that the first Ctrl-C takes its time.
    let worker = pid_of_task(terminal.child.id(), "worker", 1);
    signal("-STOP", worker);
    terminal.press_control_c();
    assert!(terminal.read_until(Instant::now() + PATIENCE, |screen| screen.contains("press Ctrl-C again")));
    terminal.press_control_c();
    let status = terminal.wait();
    assert_eq!(status.code(), Some(130), "{}", terminal.screen);
    assert!(terminal.screen.contains("ended at once"), "{}", terminal.screen);
    assert!(!Path::new(&format!("/proc/{worker}")).exists());
}

#[test]
fn top_shows_a_cluster_again_and_again_until_a_key_ends_it() {
    let mut server = Process::start("server", &["server", "--port=0"]);
    let line = server.wait_for("server ready: ");
    let address = line.rsplit(' ').next().unwrap();
    let mut terminal = Terminal::start(&["top", address]);
    let is_shown_anew = |screen: &str| screen.matches("1 of 1 tasks are well").count() >= 3;
    assert!(terminal.read_until(Instant::now() + PATIENCE, is_shown_anew), "{}", terminal.screen);
    terminal.press(b"q");
    let status = terminal.wait();
    assert!(status.success() && !terminal.screen.contains("panicked"), "{}", terminal.screen);
}

#[test]
fn tasks_that_are_killed_are_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let start = |steps: i64| {
        let (steps, logdir) = (format!("--train_steps={steps}"), logdir_flag(directory.path()));
        let small = ["--hidden_units=16", "--batch_size=20", "--save_checkpoint_secs=0.2"];
        Process::start("train", &[&["train", "--processes", &steps, &logdir], &small[..]].concat())
    };
    // Without an end, however fast the machine is.
    let mut job = start(100_000_000);
    job.wait_for_step();
    for (count, (task, index)) in [("ps", 0), ("worker", 1), ("worker", 0)].into_iter().enumerate() {
        signal("-KILL", pid_of_task(job.child.id(), task, index));
        job.wait_for(&format!("{task} {index} ended with signal 9; starting it again ({} of 10", count + 1));
        if task == "ps" {
            job.wait_for("a task was lost and is back");
        }
        job.wait_for_step();
    }
    job.signal("-TERM");
    assert_eq!(job.wait().code(), Some(143), "{:?}", job.seen);
    // And with an end, which is the right one all the same.
    let steps = newest_step(directory.path()).unwrap() + 1500;
    let mut job = start(steps);
    job.wait_for("goes on from");
    signal("-KILL", pid_of_task(job.child.id(), "ps", 0));
    job.wait_for("ps 0 ended with signal 9; starting it again (1 of 10");
    assert!(accuracy(job.wait_for_success()) > 80.0);
    let last = newest_step(directory.path()).unwrap();
    // Workers that train asynchronously see each other's last steps late.
    assert!((steps..steps + 5).contains(&last), "{last} for {steps}: {:?}", job.seen);
}

#[test]
fn a_task_that_fails_again_and_again_ends_the_run_with_its_reason() {
    let directory = tempfile::tempdir().unwrap();
    // No file may become larger than 32 KB, and a checkpoint has more.
    let limited = "ulimit -f 64; trap '' XFSZ; exec \"$0\" \"$@\"";
    let mut job = Process::spawn(
        "limited",
        Command::new("sh")
            .args(["-c", limited, env!("CARGO_BIN_EXE_ferroflow"), "train", "--processes", "--hidden_units=32"])
            .arg(logdir_flag(directory.path())),
    );
    assert!(!job.wait().success());
    let restarts = job.seen.iter().filter(|line| line.contains("starting it again")).count();
    let last = job.seen.iter().rfind(|line| line.starts_with("ferroflow: ")).unwrap();
    assert_eq!(restarts, 2, "{:?}", job.seen);
    assert!(
        last.contains("worker 0 ended with exit code 1, 3 times in a row") && last.contains("File too large"),
        "{last}"
    );
}

#[test]
fn a_second_trainer_is_kept_out_of_the_directory_until_the_first_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    let mut first = Process::start("first", &["train", "--hidden_units=16", "--train_steps=100000000", &logdir]);
    first.wait_for_step();
    let holder = format!("process {} on ", first.child.id());
    for more in [&[][..], &["--processes"]] {
        let mut second = Process::start("second", &[&["train", "--hidden_units=16", &logdir], more].concat());
        assert_eq!(second.wait().code(), Some(1), "{:?}", second.seen);
        let last = second.seen.iter().rfind(|line| line.starts_with("ferroflow: ")).unwrap();
        assert!(last.contains(&holder) && last.contains(directory.path().to_str().unwrap()), "{last}");
        assert!(!second.seen.iter().any(|line| line.contains("starting it again")), "{:?}", second.seen);
    }
    // A lock ends with its process, even with one that had no time to clean up.
    first.kill();
    assert!(directory.path().join("ferroflow.lock").exists());
    // It may have been killed before its first checkpoint, or after many steps.
    let saved = newest_step(directory.path());
    let steps = format!("--train_steps={}", saved.unwrap_or(0) + 10);
    let lines = run(&["train", "--hidden_units=16", &steps, &logdir]);
    assert_eq!(lines.iter().any(|line| line.contains("goes on from")), saved.is_some(), "{lines:?}");
    assert!(!directory.path().join("ferroflow.lock").exists());
}

#[test]
fn a_ps_that_is_interrupted_first_stays_until_the_chief_has_saved() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    let tasks = Tasks::new(1, 2, &["--hidden_units=16", "--train_steps=100000000", &logdir]);
    let mut ps = tasks.start("ps", 0);
    let mut chief = tasks.start("worker", 0);
    let mut worker = tasks.start("worker", 1);
    chief.wait_for_step();
    worker.wait_for_step();
    ps.signal("-INT");
    ps.wait_for("stopping when the workers have saved and left");
    worker.signal("-INT");
    worker.wait_for_success();
    chief.signal("-INT");
    let lines = chief.wait_for_success();
    assert!(lines.iter().any(|line| line.contains("interrupted; run it again")), "{lines:?}");
    ps.wait_for_success();
    assert!(newest_step(directory.path()).is_some_and(|step| step > 0));
}

#[test]
fn a_ps_without_workers_leaves_when_it_is_interrupted() {
    let tasks = Tasks::new(1, 1, &[]);
    let mut ps = tasks.start("ps", 0);
    ps.wait_for("ready");
    ps.signal("-INT");
    let lines = ps.wait_for_success();
    assert!(!lines.iter().any(|line| line.contains("stopping when")), "{lines:?}");
}
