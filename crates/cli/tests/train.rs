//! `ferroflow train` as processes: in one, in several, as tasks of a cluster, and with tasks that are killed.

mod common;

use common::{Process, Tasks, accuracy, logdir_flag, newest_step, pid_of_task, run, wait_for_end};
use std::path::Path;
use std::process::Command;

#[test]
fn in_one_process_with_checkpoints_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    let lines = run(&["train", "--hidden_units=32", "--train_steps=150", &logdir]);
    assert!(accuracy(&lines) > 80.0, "{lines:?}");
    assert!(lines.last().unwrap().starts_with("test accuracy"), "{lines:?}");
    let names: Vec<String> =
        std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains("tfevents")), "{names:?}");
    assert!(names.iter().any(|name| name == "checkpoint"), "{names:?}");
    assert!(names.iter().any(|name| name == "graph.pbtxt"), "{names:?}");
    // What came of it, where it is, and how to look at it.
    let logged = directory.path().display();
    let parts = [
        " digits to train on, 2500 to test on; 1 ps and 2 worker(s) in this process".to_owned(),
        format!("look into it with: ferroflow checkpoint ls {logged}/model.ckpt-"),
        format!("curves: tensorboard --logdir {logged}"),
        " steps/s".to_owned(),
        "test loss ".to_owned(),
    ];
    for part in parts {
        assert!(lines.iter().any(|line| line.contains(&part)), "{part}: {lines:?}");
    }

    let lines = run(&["train", "--hidden_units=32", "--train_steps=250", &logdir]);
    assert!(lines.iter().any(|line| line.contains("goes on from")), "{lines:?}");
    assert!(lines.iter().any(|line| line.starts_with("checkpoint") && line.contains("model.ckpt-25")), "{lines:?}");
}

#[test]
fn synchronously_and_with_convolutions() {
    let lines = run(&["train", "--sync_replicas", "--model=cnn", "--train_steps=30", "--batch_size=40"]);
    assert!(accuracy(&lines) > 50.0, "{lines:?}");
}

#[test]
fn wide_and_deep_on_census_rows() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    let lines = run(&["train", "--model=wide_deep", "--train_steps=150", &logdir]);
    assert!(lines.iter().any(|line| line.starts_with("32561 rows to train on, 16281 to test on")), "{lines:?}");
    assert!(accuracy(&lines) > 76.0 && !lines.iter().any(|line| line.contains("WARN")), "{lines:?}");
    // It goes on from there.
    run(&["train", "--model=wide_deep", "--train_steps=200", &logdir]);
    assert!(newest_step(directory.path()).is_some_and(|step| step >= 200));
}

#[test]
fn strips_of_digits() {
    let lines = run(&["train", "--model=crnn", "--train_steps=6", "--batch_size=8"]);
    assert!(lines.iter().any(|line| line.starts_with("13750 digits to train on, 2500 to test on")), "{lines:?}");
    let loss = lines.iter().find_map(|line| line.strip_prefix("test loss ")).unwrap();
    assert!(loss.parse::<f32>().unwrap() < 100.0, "{lines:?}");
    accuracy(&lines);
}

/// Returns all events of a directory.
fn events(directory: &Path) -> Vec<proto::Event> {
    let files = storage::file_system::FileSystems::local();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if !entry.to_string_lossy().contains("tfevents") {
            continue;
        }
        let mut reader = storage::event::EventsReader::open(&files, entry.to_str().unwrap()).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            found.push(event);
        }
    }
    found
}

/// Returns the steps at which there is a value with a tag.
fn steps_of(events: &[proto::Event], tag: &str) -> Vec<i64> {
    let has_tag = |event: &&proto::Event| {
        let Some(proto::event::What::Summary(summary)) = &event.what else { return false };
        summary.value.iter().any(|value| value.tag == tag)
    };
    events.iter().filter(has_tag).map(|event| event.step).collect()
}

#[test]
fn what_tensorboard_shows() {
    let directory = tempfile::tempdir().unwrap();
    let (logdir, export) = (directory.path().join("log"), directory.path().join("served"));
    // Synchronously, every worker takes part in every step.
    let flags = ["--hidden_units=16", "--train_steps=60", "--eval_every=20", "--batch_size=20", "--sync_replicas"];
    let more = [logdir_flag(&logdir), format!("--export={}", export.display())];
    let lines = run(&[&["train"], &flags[..], &[&more[0], &more[1]]].concat());
    assert!(!lines.iter().any(|line| line.contains("WARN")), "{lines:?}");
    for part in ["tested at step 0: loss ", "exported "] {
        assert!(lines.iter().any(|line| line.starts_with(part)), "{part}: {lines:?}");
    }
    let (model, test) = (events(&logdir), events(&logdir.join("eval")));
    for tag in ["accuracy", "average_loss"] {
        let steps = steps_of(&test, tag);
        assert!(steps.len() >= 2 && steps[0] == 0 && steps.last().is_some_and(|&step| step >= 60), "{tag}: {steps:?}");
    }
    assert!(!steps_of(&test, "misclassified/0").is_empty());
    for tag in ["loss", "accuracy", "weights/hid_w", "gradients_of/hid_w", "weights/sm_b"] {
        assert!(!steps_of(&model, tag).is_empty(), "{tag}");
    }
    // Each worker has its curves.
    for worker in ["worker-0", "worker-1"] {
        let own = events(&logdir.join(worker));
        assert!(!steps_of(&own, "loss").is_empty(), "{worker}");
    }
    // The graph folds, and one step is recorded in detail.
    let graph = model.iter().find_map(|event| match &event.what {
        Some(proto::event::What::GraphDef(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    });
    let graph = graph.unwrap();
    for scope in ["hidden/Relu", "logits/", "input/image", "cross_entropy/"] {
        assert!(graph.contains(scope), "{scope}");
    }
    let is_record = |event: &&proto::Event| matches!(event.what, Some(proto::event::What::TaggedRunMetadata(_)));
    assert_eq!(model.iter().filter(is_record).count(), 1);
    let names = std::fs::read_dir(&logdir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("timeline-")).count(), 1);
}

#[test]
fn mistakes_are_named() {
    for (arguments, part) in [
        (&["train", "--job_name=worker"][..], "--ps_hosts is missing"),
        (&["train", "--job_name=master", "--ps_hosts=a:1", "--worker_hosts=b:1", "--task_index=0"], "no job 'master'"),
        (&["train", "--job_name=ps", "--ps_hosts=a:1", "--worker_hosts=b:1"], "--task_index is missing"),
        (&["train", "--data_dir=/no/such/directory"], "train-images-idx3-ubyte"),
        (&["train", "--train_steps=20", "--logdir=/proc/no/such"], "/proc/no/such"),
        (&["train", "--eval_every=10", "--save_checkpoint_secs=1"], "cannot be used with"),
        (&["train", "--save_checkpoint_secs=-1", "--logdir=/tmp/no-such"], "must not be negative"),
        (&["train", "--model=wide_deep", "--sync_replicas"], "goes with mlp, cnn and crnn"),
        (
            &["train", "--job_name=evaluator", "--ps_hosts=a:1", "--worker_hosts=b:1", "--task_index=0"],
            "--logdir is missing",
        ),
        (&["train", "--model=wide_deep", "--data_dir=/no/such/directory"], "adult.csv"),
        (&["train", "--strategy=allreduce", "--ps=1"], "--ps doesn't go with --strategy allreduce"),
        (&["train", "--strategy=allreduce", "--sync_replicas"], "--sync_replicas doesn't go with --strategy allreduce"),
        (
            &[
                "train",
                "--strategy=allreduce",
                "--job_name=worker",
                "--ps_hosts=a:1",
                "--worker_hosts=b:1",
                "--task_index=0",
            ],
            "--ps_hosts doesn't go with --strategy allreduce",
        ),
        (&["train", "--strategy=allreduce", "--existing_servers"], "must know which of them leads"),
        (
            &["train", "--strategy=allreduce", "--job_name=ps", "--worker_hosts=b:1", "--task_index=0"],
            "--job_name must be worker",
        ),
        (&["train", "--min_workers=1"], "--min_workers needs --strategy allreduce"),
        (&["train", "--strategy=allreduce", "--min_workers=1"], "workers that can be lost"),
        (&["train", "--strategy=allreduce", "--min_workers=3", "--max_workers=2"], "more than --max_workers"),
    ] {
        let mut process = Process::start("train", arguments);
        assert!(!process.wait().success(), "{arguments:?}");
        assert!(process.seen.iter().any(|line| line.contains(part)), "{arguments:?}: {:?}", process.seen);
    }
}

#[test]
fn a_process_for_every_task() {
    let lines = run(&["train", "--processes", "--ps=2", "--hidden_units=32", "--train_steps=150"]);
    assert!(accuracy(&lines) > 80.0, "{lines:?}");
}

#[test]
fn the_tasks_of_a_cluster_and_the_ps_ends_with_them() {
    let tasks = Tasks::new(1, 2, &["--hidden_units=32", "--train_steps=150"]);
    let mut ps = tasks.start("ps", 0);
    let mut worker = tasks.start("worker", 1);
    let mut chief = tasks.start("worker", 0);
    assert!(accuracy(chief.wait_for_success()) > 80.0);
    worker.wait_for_success();
    ps.wait_for_success();
}

#[test]
fn on_servers_that_run_already_and_end_when_all_is_done() {
    let tasks = Tasks::new(2, 1, &["--hidden_units=32", "--train_steps=100", "--existing_servers"]);
    let serve = |job: &str, index: usize, more: &[&str]| {
        let (job_name, task_index) = (format!("--job_name={job}"), format!("--task_index={index}"));
        let flags = ["server", &tasks.ps_hosts, &tasks.worker_hosts, &job_name, &task_index];
        let mut process = Process::start(job, &[&flags[..], more].concat());
        process.wait_for("ready");
        process
    };
    let (mut ps, mut server) = (serve("ps", 0, &["--exit_when_done"]), serve("worker", 0, &["--exit_when_done"]));
    // This one wasn't told that it may end.
    let mut lasting = serve("ps", 1, &[]);
    assert!(accuracy(tasks.start("worker", 0).wait_for_success()) > 70.0);
    ps.wait_for_success();
    server.wait_for_success();
    assert!(lasting.child.try_wait().unwrap().is_none());
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_and_the_last_checkpoint_stays() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    run(&["train", "--hidden_units=32", "--train_steps=20", &logdir]);
    let before = std::fs::read_to_string(directory.path().join("checkpoint")).unwrap();
    // No file may become larger than 32 KB, and a checkpoint has more.
    let limited = "ulimit -f 64; trap '' XFSZ; exec \"$0\" \"$@\"";
    let program = env!("CARGO_BIN_EXE_ferroflow");
    let mut process = Process::spawn(
        "limited",
        Command::new("sh")
            .args(["-c", limited, program, "train", "--hidden_units=32"])
            .args(["--train_steps=40", &logdir]),
    );
    assert!(!process.wait().success());
    assert!(process.seen.iter().any(|line| line.contains("File too large")), "{:?}", process.seen);
    assert_eq!(std::fs::read_to_string(directory.path().join("checkpoint")).unwrap(), before);
    let lines = run(&["train", "--hidden_units=32", "--train_steps=40", &logdir]);
    assert!(lines.iter().any(|line| line.contains("goes on from")), "{lines:?}");
}

/// Returns the files of a directory with their contents, without events and those of other tasks.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut all: Vec<(String, Vec<u8>)> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().contains("tfevents") && entry.path().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_logdir_without_permission_is_an_error_and_what_is_there_stays() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let directory = tempfile::tempdir().unwrap();
    let logdir = directory.path().join("logdir");
    run(&["train", "--hidden_units=16", "--train_steps=20", &logdir_flag(&logdir)]);
    let before = contents(&logdir);
    assert!(before.iter().any(|(name, _)| name == "checkpoint"), "{before:?}");
    let set_mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set_mode(directory.path(), 0o755);
    set_mode(&logdir, 0o555);
    let is_root = std::fs::metadata(directory.path()).unwrap().uid() == 0;
    let program = directory.path().join("ferroflow");
    if is_root {
        // Root may write anywhere: the program runs as somebody else, who must be able to start it.
        std::fs::copy(env!("CARGO_BIN_EXE_ferroflow"), &program).unwrap();
        set_mode(&program, 0o755);
    } else {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferroflow"), &program).unwrap();
    }
    let mut command = Command::new(&program);
    command.args(["train", "--hidden_units=16", "--train_steps=40", &logdir_flag(&logdir)]);
    if is_root {
        command.uid(65534).gid(65534);
    }
    let mut process = Process::spawn("without permission", &mut command);
    assert!(!process.wait().success(), "{:?}", process.seen);
    let is_named = |line: &String| line.contains("Permission denied") && line.contains(logdir.to_str().unwrap());
    assert!(process.seen.iter().any(is_named), "{:?}", process.seen);
    set_mode(&logdir, 0o755);
    assert_eq!(contents(&logdir), before);
}

#[test]
fn a_truncated_checkpoint_is_an_error_and_what_is_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    run(&["train", "--hidden_units=16", "--train_steps=20", &logdir]);
    let state = std::fs::read_to_string(directory.path().join("checkpoint")).unwrap();
    let newest = state.lines().next().unwrap().trim_end_matches('"').rsplit('"').next().unwrap().to_owned();
    let data = directory.path().join(format!("{newest}.data-00000-of-00001"));
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..bytes.len() / 2]).unwrap();
    let before = contents(directory.path());
    let mut process = Process::start("truncated", &["train", "--hidden_units=16", "--train_steps=40", &logdir]);
    assert!(!process.wait().success(), "{:?}", process.seen);
    let restoring = format!("restoring '{}", directory.path().join(&newest).display());
    assert!(process.seen.iter().any(|line| line.contains(&restoring)), "{restoring}: {:?}", process.seen);
    assert_eq!(contents(directory.path()), before);
    // Whole again, it is gone on from.
    std::fs::write(&data, bytes).unwrap();
    run(&["train", "--hidden_units=16", "--train_steps=40", &logdir]);
}

#[test]
fn a_loss_that_is_no_number_is_an_error_and_the_last_good_checkpoint_stays() {
    let directory = tempfile::tempdir().unwrap();
    let logdir = logdir_flag(directory.path());
    run(&["train", "--hidden_units=16", "--train_steps=20", &logdir]);
    let before = contents(directory.path());
    let mut process = Process::start(
        "diverges",
        &["train", "--hidden_units=16", "--train_steps=4000", "--learning_rate=1e38", &logdir],
    );
    assert!(!process.wait().success(), "{:?}", process.seen);
    let is_named = |line: &String| line.contains("Model diverged with loss = NaN");
    assert!(process.seen.iter().any(is_named), "{:?}", process.seen);
    let after = contents(directory.path());
    for (name, content) in before.iter().filter(|(name, _)| name.starts_with("model.ckpt-") && !name.ends_with(".meta"))
    {
        assert!(after.iter().any(|(other, same)| other == name && same == content), "{name}");
    }
    run(&["train", "--hidden_units=16", "--train_steps=40", &logdir]);
}

#[test]
fn the_data_is_looked_at() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../digits/mnist");
    let lines = run(&["train", &format!("--data_dir={data}"), "--download_only"]);
    assert_eq!(lines, ["13750 digits to train on and 2500 to test on are there"]);
    let directory = tempfile::tempdir().unwrap();
    for name in
        ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
    {
        std::fs::copy(format!("{data}/{name}.gz"), directory.path().join(format!("{name}.gz"))).unwrap();
    }
    let labels = directory.path().join("t10k-labels-idx1-ubyte.gz");
    let mut bytes = std::fs::read(&labels).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&labels, bytes).unwrap();
    let data_dir = format!("--data_dir={}", directory.path().display());
    let mut process = Process::start("damaged", &["train", &data_dir, "--train_steps=1"]);
    assert!(!process.wait().success());
    let is_named = |line: &String| line.contains("t10k-labels-idx1-ubyte.gz is damaged");
    assert!(process.seen.iter().any(is_named), "{:?}", process.seen);
}

#[test]
fn an_interrupt_saves_and_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = Process::start(
        "train",
        &["train", "--hidden_units=16", "--train_steps=100000000", &logdir_flag(directory.path())],
    );
    process.wait_for_step();
    process.signal("-INT");
    let lines = process.wait_for_success();
    assert!(lines.iter().any(|line| line.contains("interrupted")), "{lines:?}");
    assert!(newest_step(directory.path()).is_some_and(|step| step > 0));
}

#[test]
fn the_processes_of_all_tasks_leave_with_the_one_that_started_them() {
    for signal in ["-TERM", "-KILL"] {
        let directory = tempfile::tempdir().unwrap();
        let logdir = logdir_flag(directory.path());
        let flags = ["train", "--processes", "--hidden_units=16", "--train_steps=100000000", &logdir];
        let mut process = Process::start("train", &flags);
        process.wait_for_step();
        let tasks =
            [("ps", 0), ("worker", 0), ("worker", 1)].map(|(job, index)| pid_of_task(process.child.id(), job, index));
        process.signal(signal);
        let status = process.wait();
        assert_eq!(status.code(), (signal == "-TERM").then_some(143), "{status} {:?}", process.seen);
        let is_said = process.seen.iter().any(|line| line.contains("interrupted"));
        assert_eq!(is_said, signal == "-TERM", "{:?}", process.seen);
        tasks.into_iter().for_each(wait_for_end);
        assert!(newest_step(directory.path()).is_some_and(|step| step > 0), "after {signal}: {:?}", process.seen);
    }
}

#[test]
fn a_worker_is_killed_and_the_rest_go_on() {
    let tasks = Tasks::new(1, 2, &["--hidden_units=16", "--train_steps=4000", "--batch_size=20"]);
    let mut ps = tasks.start("ps", 0);
    let mut chief = tasks.start("worker", 0);
    let mut worker = tasks.start("worker", 1);
    worker.wait_for_step();
    worker.kill();
    assert!(accuracy(chief.wait_for_success()) > 80.0);
    ps.wait_for_success();
}

#[test]
fn a_ps_is_killed_and_the_workers_go_on_from_the_last_checkpoint_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    // So many that the one that comes back late still finds something to do.
    let flags = ["--hidden_units=16", "--train_steps=12000", "--batch_size=20", "--save_checkpoint_secs=0.2"];
    let logdir = logdir_flag(directory.path());
    let tasks = Tasks::new(1, 2, &[&flags[..], &[&logdir]].concat());
    let mut ps = tasks.start("ps", 0);
    ps.wait_for("ready");
    let mut chief = tasks.start("worker", 0);
    let mut worker = tasks.start("worker", 1);
    chief.wait_for_step();
    worker.wait_for_step();
    ps.kill();
    let mut ps = tasks.start("ps", 0);
    chief.wait_for("a task was lost and is back");
    worker.wait_for("a task was lost and is back");
    assert!(accuracy(chief.wait_for_success()) > 80.0);
    worker.wait_for_success();
    ps.wait_for_success();
}

#[test]
fn the_chief_is_killed_and_its_successor_goes_on_from_the_last_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    // So many that the one that comes back late still finds something to do.
    let flags = ["--hidden_units=16", "--train_steps=12000", "--batch_size=20", "--save_checkpoint_secs=0.2"];
    let logdir = logdir_flag(directory.path());
    let tasks = Tasks::new(1, 2, &[&flags[..], &[&logdir]].concat());
    let mut ps = tasks.start("ps", 0);
    let mut chief = tasks.start("worker", 0);
    let mut worker = tasks.start("worker", 1);
    chief.wait_for_step();
    worker.wait_for_step();
    chief.kill();
    let mut chief = tasks.start("worker", 0);
    chief.wait_for("goes on from");
    assert!(accuracy(chief.wait_for_success()) > 80.0);
    worker.wait_for_success();
    ps.wait_for_success();
}

#[test]
fn a_worker_is_killed_in_synchronous_training_and_a_backup_is_there() {
    let flags =
        ["--hidden_units=16", "--train_steps=1500", "--batch_size=20", "--sync_replicas", "--replicas_to_aggregate=2"];
    let tasks = Tasks::new(1, 3, &flags);
    let mut ps = tasks.start("ps", 0);
    let mut chief = tasks.start("worker", 0);
    let mut worker = tasks.start("worker", 1);
    let mut backup = tasks.start("worker", 2);
    backup.wait_for_step();
    backup.kill();
    assert!(accuracy(chief.wait_for_success()) > 80.0);
    worker.wait_for_success();
    ps.wait_for_success();
}

#[test]
fn a_worker_is_killed_in_synchronous_training_and_waited_for() {
    let tasks = Tasks::new(1, 2, &["--hidden_units=16", "--train_steps=1500", "--batch_size=20", "--issync=1"]);
    let mut ps = tasks.start("ps", 0);
    let mut chief = tasks.start("worker", 0);
    let mut worker = tasks.start("worker", 1);
    worker.wait_for_step();
    worker.kill();
    chief.wait_for("waits for other workers");
    let mut worker = tasks.start("worker", 1);
    assert!(accuracy(chief.wait_for_success()) > 80.0);
    worker.wait_for_success();
    ps.wait_for_success();
}
