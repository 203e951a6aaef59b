//! Every example runs for a few steps, and what comes of it is looked at.

#[path = "../../../examples/crnn.rs"]
#[allow(dead_code)]
mod crnn;
#[path = "../../../examples/custom_estimator.rs"]
#[allow(dead_code)]
mod custom_estimator;
#[path = "../../../examples/dataset.rs"]
#[allow(dead_code)]
mod dataset;
#[path = "../../../examples/estimator.rs"]
#[allow(dead_code)]
mod estimator;
#[path = "../../../examples/hello.rs"]
#[allow(dead_code)]
mod hello;
#[path = "../../../examples/in_graph.rs"]
#[allow(dead_code)]
mod in_graph;
#[path = "../../../examples/mnist_replica.rs"]
#[allow(dead_code)]
mod mnist_replica;
#[path = "../../../examples/number_recognition.rs"]
#[allow(dead_code)]
mod number_recognition;
#[path = "../../../examples/trainer.rs"]
#[allow(dead_code)]
mod trainer;
#[path = "../../../examples/wide_deep.rs"]
#[allow(dead_code)]
mod wide_deep;

use ferroflow::distributed::{ClusterSpec, Server, start_embedded, start_server, stop};
use ferroflow::flags::Flags;
use ferroflow::session::Target;
use ferroflow::train::latest_checkpoint;
use ferroflow::{Code, Result};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn hello_runs_on_a_server_of_its_own() -> Result<()> {
    hello::main()
}

#[test]
fn dataset_trains_and_goes_on_where_it_stopped() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let logdir = format!("--logdir={}", directory.path().to_str().unwrap());
    let flags = Flags::new(words(&[&logdir, "--train_steps=100"]));
    let (first, second) = (dataset::train(&flags)?, dataset::train(&flags)?);
    assert!(first.0 >= 99 && second.0 >= 199, "{first:?} {second:?}");
    assert!(second.1 < first.1 && second.1 < 20.0, "{first:?} {second:?}");
    Ok(())
}

#[test]
fn trainer_trains_over_grpc_saves_and_goes_on() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let logdir = directory.path().to_str().unwrap();
    for (train_steps, at_most) in [(60, 1.9), (120, 1.2)] {
        let addresses = cluster::unused_addresses(4).unwrap();
        let cluster = ClusterSpec::new().with_job("ps", &addresses[..2])?.with_job("worker", &addresses[2..])?;
        let start = |job: &str, index: u32| start_server(&cluster, job, index);
        let servers: Vec<Server> = vec![start("ps", 0)?, start("ps", 1)?, start("worker", 0)?, start("worker", 1)?];
        let train = |task: usize| {
            let steps = format!("--train_steps={train_steps}");
            let flags = words(&[&steps, &format!("--task_index={task}"), &format!("--logdir={logdir}")]);
            trainer::train(&servers[2 + task], &cluster, &Flags::new(flags))
        };
        let (chief, worker) = std::thread::scope(|scope| {
            let worker = scope.spawn(|| train(1));
            (train(0), worker.join().unwrap())
        });
        let ((step, loss), (other_step, _)) = (chief?, worker?);
        assert!(step >= train_steps && other_step >= train_steps, "{step} {other_step}");
        assert!(loss < at_most, "loss {loss} at step {step}");
        let checkpoint = latest_checkpoint(logdir)?.unwrap();
        let saved: i64 = checkpoint.rsplit('-').next().unwrap().parse().unwrap();
        assert!(saved >= train_steps, "{checkpoint}");
        servers.iter().try_for_each(stop)?;
    }
    Ok(())
}

fn replicas(extra: &str) -> Result<()> {
    let cluster = ClusterSpec::new().with_job("ps", &["ps0:1"])?.with_job("worker", &["w0:1", "w1:1"])?;
    let running = start_embedded(&cluster)?;
    let train = |task: u32| {
        let flags = words(&["--train_steps=60", &format!("--task_index={task}"), "--hidden_units=32", extra]);
        let target = Target::from(running.master("worker", task)?);
        mnist_replica::train(target, &cluster, &Flags::new(flags))
    };
    let (chief, worker) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| train(1));
        (train(0), worker.join().unwrap())
    });
    let (steps, cross_entropy) = chief?;
    let other_steps = match worker {
        Ok((steps, _)) => steps,
        // The chief ends the queue of tokens when it is done.
        Err(status) if status.code() == Code::OutOfRange && extra.contains("sync") => 0,
        Err(status) => return Err(status),
    };
    assert!(steps + other_steps >= 60, "{steps} {other_steps}");
    // A guess costs ln 10 for each of the 1250 digits.
    assert!(cross_entropy < 1250.0 * 1.5, "{cross_entropy}");
    Ok(())
}

#[test]
fn mnist_replica_trains_asynchronously() -> Result<()> {
    replicas("--nosync")
}

#[test]
fn mnist_replica_trains_synchronously() -> Result<()> {
    replicas("--sync_replicas=True")
}

#[test]
fn number_recognition_reads_records_and_learns() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let accuracy = number_recognition::train(directory.path(), 80)?;
    assert!(accuracy > 0.6, "{accuracy}");
    Ok(())
}

#[test]
fn towers_in_one_graph_learn() -> Result<()> {
    let (first, last) = in_graph::train(30)?;
    assert!((2.0..2.6).contains(&first) && last < 0.9, "{first} {last}");
    Ok(())
}

/// Trains the recurrent network with two workers; returns the chief's losses.
fn strips(directory: &std::path::Path, extra: &str) -> Result<Vec<f32>> {
    let cluster = ClusterSpec::new().with_job("ps", &["ps0:1"])?.with_job("worker", &["w0:1", "w1:1"])?;
    let running = start_embedded(&cluster)?;
    let train = |task: u32| {
        let checkpoints = format!("--checkpoint_dir={}", directory.display());
        let flags = words(&["--train_steps=40", &format!("--task_index={task}"), &checkpoints, extra]);
        let target = Target::from(running.master("worker", task)?);
        crnn::train(target, &cluster, &Flags::new(flags))
    };
    let (chief, worker) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| train(1));
        (train(0), worker.join().unwrap())
    });
    match worker {
        // The chief ends the queue of tokens when it is done.
        Err(status) if status.code() == Code::OutOfRange && extra == "--issync=1" => {}
        other => drop(other?),
    }
    chief
}

fn check_strips(mode: &str) -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let losses = strips(directory.path(), mode)?;
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last.is_finite() && last < 0.8 * first, "{losses:?}");
    Ok(())
}

#[test]
fn crnn_reads_strips_asynchronously() -> Result<()> {
    check_strips("--issync=0")
}

#[test]
fn crnn_reads_strips_synchronously() -> Result<()> {
    check_strips("--issync=1")
}

/// Flags for some steps of a model in a directory.
fn model_flags(directory: &std::path::Path, steps: i64) -> Flags {
    Flags::new(words(&[&format!("--train_steps={steps}"), &format!("--model_dir={}", directory.display())]))
}

#[test]
fn wide_and_deep_tells_incomes_apart() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let measured = wide_deep::train(&model_flags(directory.path(), 400))?.unwrap();
    // The whole training reaches 0.9.
    assert!(measured.get("auc")? > 0.86, "{measured}");
    Ok(())
}

#[test]
fn a_canned_estimator_learns_and_exports_the_best_model() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let measured = estimator::train(&model_flags(directory.path(), 200))?.unwrap();
    assert!(measured.get("auc")? > 0.7, "{measured}");
    assert!(directory.path().join("export/best/best_metrics.json").is_file());
    Ok(())
}

#[test]
fn an_estimator_with_its_own_model_function_learns() -> Result<()> {
    let directory = tempfile::tempdir().unwrap();
    let measured = custom_estimator::train(&model_flags(directory.path(), 200))?;
    assert!(measured.get("accuracy")? > 0.77, "{measured}");
    Ok(())
}
