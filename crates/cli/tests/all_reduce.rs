//! `ferroflow train --strategy allreduce`: in one process, in many, and as tasks.

mod common;

use common::{Tasks, accuracy, logdir_flag, newest_step, run};

/// Returns the line that tells how many steps were done.
fn steps_line(lines: &[String]) -> &String {
    lines.iter().find(|line| line.contains(" steps in ")).unwrap_or_else(|| panic!("{lines:?}"))
}

#[test]
fn by_all_reduce_in_one_process_and_in_many() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    let small = ["--strategy=allreduce", "--hidden_units=32", "--train_steps=60"];
    for more in [&["--workers=3"][..], &["--processes", &logdir]] {
        let lines = run(&[&["train"], &small[..], more].concat());
        assert!(accuracy(&lines) > 60.0, "{lines:?}");
        assert!(steps_line(&lines).starts_with("60 steps in "), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("; 0 ps and ")), "{lines:?}");
    }
    assert_eq!(newest_step(directory.path()), Some(60));
}

#[test]
fn by_all_reduce_as_tasks_without_parameter_servers() {
    let tasks = Tasks::new(0, 2, &["--strategy=allreduce", "--hidden_units=32", "--train_steps=60"]);
    let mut worker = tasks.start("worker", 1);
    let mut chief = tasks.start("worker", 0);
    let lines = chief.wait_for_success();
    assert!(accuracy(lines) > 60.0 && steps_line(lines).starts_with("60 steps in "), "{lines:?}");
    worker.wait_for_success();
}
