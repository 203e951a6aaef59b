//! `ferroflow run`: clusters of shell programs and of `ferroflow train` itself, and how they end.

mod common;

use common::{Process, accuracy, logdir_flag, newest_step, signal, wait_for_end};
use std::process::Command;

/// Starts `ferroflow run` of a shell program that finds its job in `$job`.
fn run_shell(flags: &[&str], program: &str) -> Process {
    let find_job = r#"job=$(expr "$TF_CONFIG" : '.*"type": "\([a-z]*\)"'); "#;
    let program = format!("{find_job}{program}");
    let arguments = [&["run"], flags, &["--", "sh", "-c", &program]].concat();
    Process::start("run", &arguments)
}

fn count(lines: &[String], part: &str) -> usize {
    lines.iter().filter(|line| line.contains(part)).count()
}

#[test]
fn parameter_servers_that_never_end_are_ended_after_the_chief() {
    let flags = ["--ps=2", "--workers=3", "--evaluator"];
    let mut job = run_shell(&flags, r#"echo "here is $job"; echo problem >&2; if [ $job = ps ]; then sleep 1000; fi"#);
    let lines = job.wait_for_success();
    for (part, times) in [
        ("chief 0     | here is chief", 1),
        ("| here is worker", 2),
        ("ps 1        | here is ps", 1),
        ("evaluator 0 | here is evaluator", 1),
        ("| problem", 6),
        ("ferroflow run: chief 0 is done", 1),
        ("killed", 0),
        ("ended with", 0),
    ] {
        assert_eq!(count(lines, part), times, "{part}: {lines:#?}");
    }
}

#[test]
fn who_failed_is_said_and_its_exit_code_passed_on() {
    let mut job = run_shell(&["--workers=2"], "if [ $job = worker ]; then echo oh; exit 7; fi; sleep 1000");
    let status = job.wait();
    assert_eq!(status.code(), Some(7), "{:?}", job.seen);
    assert_eq!(count(&job.seen, "worker 0 ended with exit code 7; stopping the others"), 1, "{:?}", job.seen);
    assert_eq!(job.seen.last().map(String::as_str), Some("ferroflow: worker 0 ended with exit code 7"));
    let mut job = run_shell(&["--workers=1"], "if [ $job = chief ]; then kill -SEGV $$; fi; sleep 1000");
    assert_eq!(job.wait().code(), Some(139), "{:?}", job.seen);
    assert_eq!(count(&job.seen, "chief 0 ended with signal 11"), 2, "{:?}", job.seen);
}

#[test]
fn workers_that_go_on_after_the_chief_are_told_to_end() {
    let mut job = run_shell(&["--grace=1", "--ps=0"], "if [ $job = worker ]; then sleep 1000; fi");
    let lines = job.wait_for_success();
    assert_eq!(count(lines, "worker 0 still running 1 s after the chief: asking them to stop"), 1, "{lines:?}");
}

#[test]
fn a_signal_is_passed_on_and_parameter_servers_are_told_last() {
    let program =
        r#"leave() { echo "leaving $job"; exit 0; }; trap leave TERM INT; echo "up $job"; while :; do sleep 0.1; done"#;
    for (name, code) in [("-TERM", 143), ("-INT", 130)] {
        let mut job = run_shell(&["--workers=1"], program);
        for _ in 0..2 {
            job.wait_for("up ");
        }
        job.signal(name);
        assert_eq!(job.wait().code(), Some(code), "{:?}", job.seen);
        let leaving: Vec<&String> = job.seen.iter().filter(|line| line.contains("leaving")).collect();
        assert_eq!(leaving.len(), 2, "{:?}", job.seen);
        assert!(leaving[0].contains("chief") && leaving[1].contains("ps"), "{leaving:?}");
    }
}

#[test]
fn tasks_end_with_the_process_that_started_them() {
    let mut job = run_shell(&["--workers=1", "--ps=0"], r#"echo "pid $$"; while :; do sleep 0.1; done"#);
    let line = job.wait_for("pid ");
    let pid: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
    signal("-KILL", job.child.id());
    wait_for_end(pid);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let mut job = Process::start("run", &["run", "--workers=1", "--ps=0", "--", "/no/such/program"]);
    assert_eq!(job.wait().code(), Some(127), "{:?}", job.seen);
    assert_eq!(count(&job.seen, "can't start /no/such/program"), 1, "{:?}", job.seen);
    let mut job = Process::start("run", &["run", "--workers=1"]);
    assert_eq!(job.wait().code(), Some(2), "{:?}", job.seen);
}

#[test]
fn training_by_tf_config() {
    let program = env!("CARGO_BIN_EXE_ferroflow");
    let flags = ["--hidden_units=16", "--train_steps=400"];
    let arguments = [&["run", "--ps=2", "--workers=2", "--", program, "train"][..], &flags].concat();
    let mut job = Process::start("run", &arguments);
    let lines: Vec<String> = job.wait_for_success().to_vec();
    for task in ["chief/task:0", "worker/task:0", "ps/task:0", "ps/task:1"] {
        let said = format!("/job:{task}: the cluster and the task are those of TF_CONFIG");
        assert_eq!(count(&lines, &said), 1, "{task}: {lines:#?}");
    }
    let of_chief: Vec<String> =
        lines.iter().filter_map(|line| line.strip_prefix("chief 0  | ")).map(str::to_owned).collect();
    assert!(accuracy(&of_chief) > 80.0, "{lines:#?}");
}

#[test]
fn wide_and_deep_is_evaluated_beside_the_training() {
    let directory = tempfile::tempdir().unwrap();
    let (program, logdir) = (env!("CARGO_BIN_EXE_ferroflow"), logdir_flag(&directory.path().join("log")));
    let export = format!("--export={}", directory.path().join("served").display());
    let flags = ["--model=wide_deep", "--train_steps=300", "--eval_every=150", &logdir, &export];
    let arguments = [&["run", "--evaluator", "--", program, "train"][..], &flags].concat();
    let mut job = Process::start("run", &arguments);
    let lines: Vec<String> = job.wait_for_success().to_vec();
    let auc = lines
        .iter()
        .find_map(|line| line.strip_prefix("evaluator 0 | test AUC "))
        .unwrap_or_else(|| panic!("{lines:#?}"));
    assert!(auc.parse::<f64>().unwrap() > 0.8, "{lines:#?}");
    assert_eq!(count(&lines, "chief 0     | exported "), 1, "{lines:#?}");
    assert!(newest_step(&directory.path().join("log")).unwrap() >= 300);
}

/// Runs a command with a `TF_CONFIG`; returns its exit code and all that it printed.
fn with_tf_config(tf_config: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroflow"));
    let output = command.env("TF_CONFIG", tf_config).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn a_wrong_tf_config_is_shown_with_its_place() {
    let cluster = r#""cluster": {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}"#;
    for (tf_config, part) in [
        (format!("{{{cluster} oh"), "is not JSON: expected `,` or `}`"),
        (format!("{{{cluster}}}"), "TF_CONFIG: it has no 'task'"),
        (format!(r#"{{{cluster}, "task": {{"type": "worker"}}}}"#), "task.type: the cluster has no job 'worker'"),
        (format!(r#"{{{cluster}, "task": {{"type": "ps", "index": 9}}}}"#), "task.index: job 'ps' has no task 9"),
    ] {
        for command in ["server", "train"] {
            let (code, text) = with_tf_config(&tf_config, &[command]);
            assert!(code == Some(1) && text.contains(part), "{command}: {code:?} {text}");
        }
    }
}

#[test]
fn a_server_says_what_it_was_told_by_and_how_it_ended() {
    let tf_config = r#"{"cluster": {"chief": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}}"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroflow"));
    let mut server = Process::spawn("server", command.env("TF_CONFIG", tf_config).arg("server"));
    server.wait_for("server ready: /job:evaluator/task:0 at");
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(143), "{:?}", server.seen);
    assert_eq!(count(&server.seen, "the cluster and the task are those of TF_CONFIG"), 1, "{:?}", server.seen);
    assert_eq!(count(&server.seen, "panicked"), 0, "{:?}", server.seen);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroflow"));
    let command =
        command.env("TF_CONFIG", tf_config).args(["server", "--cluster_spec=ps|127.0.0.1:0", "--job_name=ps"]);
    let mut server = Process::spawn("server", command);
    server.wait_for("server ready: /job:ps/task:0 at");
    server.signal("-INT");
    server.wait_for_success();
    assert_eq!(count(&server.seen, "panicked"), 0, "{:?}", server.seen);
    let said = "the cluster is that of --cluster_spec; TF_CONFIG is set, too, and not used";
    assert_eq!(count(&server.seen, said), 1, "{:?}", server.seen);
}
