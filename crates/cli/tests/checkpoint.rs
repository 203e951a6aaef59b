//! Checkpoints across processes: shards of tasks with disks of their own, and `ferroflow checkpoint`.

use ferroflow::distributed::{ClusterSpec, start_server, stop};
use ferroflow::session::Target;
use ferroflow::train::{ReplicaDeviceSetter, Saver, SaverOptions, global_variables_initializer, latest_checkpoint};
use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
use ferroflow::{Graph, Output, Result, Status, Tensor, initializers};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Output as Finished, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// A bound on every wait, so that what hangs fails.
const PATIENCE: Duration = Duration::from_secs(240);

/// A parameter server that is a process; it is killed when the test is over.
struct Ps(Child);

impl Ps {
    /// Starts a task in a directory, and waits until it is ready.
    fn start(ps_hosts: &str, worker_hosts: &str, index: usize, directory: &Path) -> Ps {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ferroflow"))
            .args(["server", "--job_name=ps", &format!("--task_index={index}")])
            .args([format!("--ps_hosts={ps_hosts}"), format!("--worker_hosts={worker_hosts}")])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let ps = Ps(child);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                let _ = sender.send(line);
            }
        });
        while !lines.recv_timeout(PATIENCE).unwrap().contains("ready") {}
        ps
    }
}

impl Drop for Ps {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A graph whose variables are on two parameter servers; their values are all `value`.
fn model(value: f64) -> Result<(Graph, Vec<Output>, Saver)> {
    let graph = Graph::new();
    let values = ReplicaDeviceSetter::new(2).worker_device("/job:worker/task:0")?.scope(&graph, |_| {
        let v = get_variable(&graph, "v", &[3]).initializer(initializers::constant(value)).get();
        let w = get_variable(&graph, "w", &[1000]).initializer(initializers::constant(value)).get();
        let table = get_variable(&graph, "table", &[5, 2]).initializer(initializers::constant(value));
        let table = table.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
        Ok::<_, Status>(vec![v.value().clone(), w.value().clone(), table.as_tensor()])
    })?;
    let saver = Saver::with_options(&graph, SaverOptions { sharded: true, max_to_keep: 2, ..Default::default() })?;
    Ok((graph, values, saver))
}

fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn shards_of_tasks_without_the_chiefs_disk_are_sent_to_it() -> Result<()> {
    let addresses = cluster::unused_addresses(3).unwrap();
    let cluster = ClusterSpec::new().with_job("ps", &addresses[..2])?.with_job("worker", &addresses[2..])?;
    let disks = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let tasks: Vec<Ps> =
        (0..2).map(|index| Ps::start(&addresses[..2].join(","), &addresses[2], index, disks[index].path())).collect();
    let server = start_server(&cluster, "worker", 0)?;

    // A directory that only this process has under this name.
    let chiefs = tempfile::tempdir().unwrap();
    let opened = std::fs::File::open(chiefs.path()).unwrap();
    let directory = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let prefix = format!("{directory}/model.ckpt");

    let (graph, _, saver) = model(2.5)?;
    let init = global_variables_initializer(&graph);
    let session = Target::from(&server).session(&graph, &Default::default())?;
    session.run_ops(&[&init])?;
    for step in 1..=3 {
        assert_eq!(saver.save_with_meta_graph(&session, &prefix, Some(step))?, format!("{prefix}-{step}"));
    }
    session.close()?;
    let of = |step: i64| {
        let endings = ["data-00000-of-00002", "data-00001-of-00002", "index", "meta"];
        endings.map(|ending| format!("model.ckpt-{step}.{ending}")).to_vec()
    };
    assert_eq!(files(chiefs.path()), [vec!["checkpoint".to_owned()], of(2), of(3)].concat());
    assert_eq!(latest_checkpoint(&directory)?, Some(format!("{prefix}-3")));
    assert!(disks.iter().all(|disk| files(disk.path()).is_empty()));

    // Restored without that disk, by a saver of its own and by one that comes with the graph.
    let (other, values, saver) = model(0.0)?;
    let imported = Graph::new();
    let meta = std::fs::read(chiefs.path().join("model.ckpt-3.meta")).unwrap();
    let meta = ferroflow::train::meta_graph::read_meta_graph(&meta)?;
    let its_saver = ferroflow::train::meta_graph::import_meta_graph(&imported, &meta)?.unwrap();
    let names: Vec<String> = values.iter().map(Output::name).collect();
    for (graph, saver) in [(&other, saver), (&imported, its_saver)] {
        let init = match graph.operation("init") {
            Some(init) => init,
            None => global_variables_initializer(graph),
        };
        let session = Target::from(&server).session(graph, &Default::default())?;
        session.run_ops(&[&init])?;
        saver.restore(&session, &format!("{prefix}-3"))?;
        let fetches: Vec<Output> = names.iter().map(|name| graph.output(name)).collect::<Result<_>>()?;
        for value in session.run(&fetches.iter().collect::<Vec<_>>())? {
            assert!(value.as_slice::<f32>()?.iter().all(|&number| number == 2.5), "{value:?}");
        }
        // What isn't there is said to be missing, whoever looks.
        assert!(saver.restore(&session, &format!("{prefix}-1")).is_err());
        session.close()?;
    }
    stop(&server)?;
    drop(tasks);
    Ok(())
}

fn ferroflow(arguments: &[&str]) -> Finished {
    Command::new(env!("CARGO_BIN_EXE_ferroflow")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn checkpoints_are_listed_and_shown() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let graph = Graph::new();
    get_variable(&graph, "layer/w", &[2, 3])
        .initializer(initializers::tensor(Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.5, 5.0, 6.0])?))
        .get();
    let table = get_variable(&graph, "table", &[5, 2]).initializer(initializers::constant(3.0));
    table.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
    let (saver, init) = (Saver::new(&graph)?, global_variables_initializer(&graph));
    let session = ferroflow::Session::new(&graph)?;
    session.run_ops(&[&init])?;
    let path = directory.path().to_str().unwrap();
    let written = saver.save(&session, &format!("{path}/model.ckpt"), Some(7))?;

    // By its name, as the newest of its directory, and by the file that Tab completes to.
    let (state, data) = (format!("{path}/checkpoint"), format!("{written}.data-00000-of-00001"));
    for path in [&*written, path, &format!("{written}.index"), &data, &state] {
        let listed = ferroflow(&["checkpoint", "ls", path]);
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["layer/w", "float", "[2,3]", "24", "bytes"], "{text}");
        assert_eq!(lines[1], ["table", "float", "[5,2]", "40", "bytes"], "{text}");
        assert_eq!(text.lines().last(), Some("64 bytes in 1 data file(s)"), "{text}");
        let shown = ferroflow(&["checkpoint", "show", path, "layer/w"]);
        let text = String::from_utf8(shown.stdout).unwrap();
        assert_eq!(text, "layer/w: float [2,3]\n1.0 2.0 3.0\n4.5 5.0 6.0\n");
        let whole = ferroflow(&["checkpoint", "show", path, "table"]);
        assert_eq!(String::from_utf8(whole.stdout).unwrap().lines().filter(|line| *line == "3.0 3.0").count(), 5);
    }
    let empty = tempfile::tempdir().unwrap();
    let empty = empty.path().to_str().unwrap();
    for (arguments, part) in [
        (&["checkpoint", "show", &*written, "nothing"][..], "nothing"),
        (&["checkpoint", "show", "/no/such/model.ckpt", "v"], "/no/such/model.ckpt"),
        (&["checkpoint", "ls", empty], "there is no checkpoint in /"),
    ] {
        let failed = ferroflow(arguments);
        assert!(!failed.status.success());
        let text = String::from_utf8(failed.stderr).unwrap();
        assert!(text.contains(part), "{text}");
    }
    Ok(())
}
