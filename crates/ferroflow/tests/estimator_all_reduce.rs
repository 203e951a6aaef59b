//! Estimators whose workers train by all-reduce: as processes with a `TF_CONFIG` without parameter servers, and as threads of this one.

use ferroflow::data::Dataset;
use ferroflow::distributed::{ClusterSpec, Server, ServerConfig, TfConfig, WorkerGroup, start_server_with, stop};
use ferroflow::estimator::*;
use ferroflow::feature_column::numeric_column;
use ferroflow::prelude::*;
use ferroflow::session::Target;
use ferroflow::train::{Every, GradientDescentOptimizer, SyncReplicasOptimizer, latest_checkpoint};
use ferroflow::variable::get_global_step;
use std::process::{Child, Command, Stdio};

/// The environment variable that makes this program a task.
const MODEL_DIR: &str = "FERROFLOW_TEST_MODEL_DIR";

const STEPS: i64 = 40;

fn input(g: &Graph) -> Input {
    let rows = Dataset::from_tensor_slices(g, ([1f32, 2.0, 3.0], [3f32, 5.0, 7.0]));
    Input::new(&rows.repeat(-1).batch(3, true), &["x"]).label()
}

fn line(features: &Features, labels: Option<&Output>, mode: Mode, own: &str) -> ferroflow::Result<EstimatorSpec> {
    let x = features.dense("x")?;
    let g = x.graph();
    let (slope, offset) = (Variable::new(g, "slope", &g.constant(0f32)), Variable::new(g, "offset", &g.constant(0f32)));
    if mode == Mode::Train {
        assert_eq!(slope.op().device(), own, "each worker has its own");
    }
    let y = &x * slope.value() + offset.value();
    let spec = EstimatorSpec::new(mode).prediction("y", &y);
    let Some(labels) = labels else { return Ok(spec) };
    let loss = (&y - labels).square().mean();
    let train = GradientDescentOptimizer::new(0.02).minimize(&loss, get_global_step(g)?.as_ref())?;
    Ok(spec.loss(&loss).train_op(&train))
}

/// The program of a task. Without the variable, this process is no task, and there is nothing to do.
#[test]
fn one_task() -> ferroflow::Result<()> {
    let Ok(model_dir) = std::env::var(MODEL_DIR) else { return Ok(()) };
    let config = RunConfig { save_checkpoints: Some(Every::Steps(20)), ..RunConfig::from_env(&model_dir)? };
    let own = config.task();
    let config = config.strategy(Strategy::AllReduce);
    let model = Estimator::new(|f, l, mode, own: &String| line(f, l, mode, own), own.clone(), config)?;
    let eval = EvalSpec { steps: Some(2), ..EvalSpec::new(input) };
    let measured = train_and_evaluate(&model, TrainSpec::new(input, Some(STEPS)), eval)?;
    println!("{own} is done: {}", measured.map_or("-".to_owned(), |measured| measured.to_string()));
    Ok(())
}

struct Task(Child);

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn chief_worker_and_evaluator_train_without_parameter_servers() {
    let directory = tempfile::tempdir().unwrap();
    let model_dir = directory.path().to_str().unwrap();
    let addresses = cluster::unused_addresses(2).unwrap();
    let start = |job: &str| {
        let cluster = format!(r#"{{"chief": ["{}"], "worker": ["{}"]}}"#, addresses[0], addresses[1]);
        let told = format!(r#"{{"cluster": {cluster}, "task": {{"type": "{job}", "index": 0}}}}"#);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args(["--exact", "one_task", "--nocapture"]).env(MODEL_DIR, directory.path());
        let command = command.env("TF_CONFIG", told).stdin(Stdio::null());
        Task(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let tasks = ["worker", "evaluator", "chief"].map(|job| (job, start(job)));
    // The chief first: the others wait for it, and are killed if it fails.
    for (job, mut task) in tasks.into_iter().rev() {
        use std::io::Read;
        // They print so little that no pipe is ever full.
        let status = task.0.wait().unwrap();
        let mut text = String::new();
        task.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        task.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(status.success() && text.contains(&format!("/job:{job}/task:0 is done")), "{job}: {status}: {text}");
    }
    let saved = latest_checkpoint(model_dir).unwrap().unwrap();
    assert!(saved.ends_with(&format!("model.ckpt-{STEPS}")), "{saved}");
    // All workers have the same rows, so the mean of their gradients is the gradient of one that trains alone.
    let alone = tempfile::tempdir().unwrap();
    let config = RunConfig::new(alone.path().to_str().unwrap());
    let single = Estimator::new(|f, l, mode, own: &String| line(f, l, mode, own), String::new(), config).unwrap();
    single.train(input, TrainOptions { max_steps: Some(STEPS), ..TrainOptions::default() }).unwrap();
    let config = RunConfig::new(model_dir);
    let together = Estimator::new(|f, l, mode, own: &String| line(f, l, mode, own), String::new(), config).unwrap();
    for name in ["slope", "offset"] {
        let value = |model: &Estimator| model.get_variable_value(name).unwrap().to_scalar::<f32>().unwrap();
        assert!((value(&single) - value(&together)).abs() < 1e-5, "{name}: {} {}", value(&single), value(&together));
    }
}

#[test]
fn a_canned_estimator_with_two_optimizers_is_saved_by_the_chief_alone() {
    let addresses = cluster::unused_addresses(2).unwrap();
    let cluster = ClusterSpec::new().with_job("chief", &addresses[..1]).unwrap();
    let cluster = cluster.with_job("worker", &addresses[1..]).unwrap();
    let start = |job: &str| -> Server {
        let config = ServerConfig::new(cluster.clone(), job, 0).unwrap();
        start_server_with(WorkerGroup::new(&cluster, job, 0).unwrap().server_config(config)).unwrap()
    };
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let jobs = ["chief", "worker"];
    let servers = jobs.map(start);
    let model = |place: usize| {
        let columns = [numeric_column("x").into()];
        let told = TfConfig { cluster: cluster.clone(), job: jobs[place].to_owned(), task_index: 0 };
        let config = RunConfig {
            tf_config: Some(told),
            master: Some(Target::from(&servers[place])),
            strategy: Strategy::AllReduce,
            ..RunConfig::new(directories[place].path().to_str().unwrap())
        };
        DNNLinearCombinedRegressor::new(&columns, &columns, &[4]).build(config).unwrap()
    };
    std::thread::scope(|scope| {
        let train = |place: usize| {
            let options = TrainOptions { max_steps: Some(STEPS), ..TrainOptions::default() };
            model(place).train(input, options)
        };
        let worker = scope.spawn(move || train(1));
        train(0).unwrap();
        worker.join().unwrap().unwrap();
    });
    let saved = directories.each_ref().map(|directory| latest_checkpoint(directory.path().to_str().unwrap()).unwrap());
    assert!(saved[0].as_ref().is_some_and(|path| path.ends_with(&format!("model.ckpt-{STEPS}"))), "{saved:?}");
    assert_eq!(saved[1], None);
    // Both optimizers have changed their variables; a bias is 0 at first.
    for name in ["linear/linear_model/bias_weights", "dnn/logits/bias"] {
        let bias = model(0).get_variable_value(name).unwrap().to_vec::<f32>().unwrap();
        assert!(bias[0] != 0.0 && bias[0].is_finite(), "{name}: {bias:?}");
    }
    assert_eq!(model(0).get_variable_value("global_step").unwrap().to_scalar::<i64>().unwrap(), STEPS);
    servers.iter().for_each(|server| stop(server).unwrap());
}

#[test]
fn what_does_not_go_with_it_is_named() {
    let told = |job: &str| {
        let cluster = r#"{"chief": ["localhost:1"], "worker": ["localhost:2"]}"#;
        TfConfig::parse(&format!(r#"{{"cluster": {cluster}, "task": {{"type": "{job}"}}}}"#)).unwrap()
    };
    let directory = tempfile::tempdir().unwrap();
    let config = RunConfig { tf_config: Some(told("chief")), ..RunConfig::new(directory.path().to_str().unwrap()) };
    let model =
        |config| Estimator::new(|f, l, mode, own: &String| line(f, l, mode, own), String::new(), config).unwrap();
    let status = model(config.clone()).train(input, TrainOptions::default()).unwrap_err();
    assert!(status.message().contains("RunConfig::strategy(Strategy::AllReduce)"), "{status}");
    let status =
        model(config.clone().strategy(Strategy::AllReduce).elastic(2, 3)).train(input, TrainOptions::default());
    assert!(status.unwrap_err().message().contains("the cluster has 2"));
    let config = RunConfig { master: Some(Target::Local), ..config.strategy(Strategy::AllReduce) };
    let synchronous = Estimator::new(
        |features, _, mode, ()| {
            let x = features.dense("x")?;
            let loss = (&x * Variable::new(x.graph(), "w", &x.graph().constant(1f32)).value()).square().mean();
            let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 2, Some(2))?;
            let train = optimizer.minimize(&loss, get_global_step(x.graph())?.as_ref())?;
            Ok(EstimatorSpec::new(mode).loss(&loss).train_op(&train))
        },
        (),
        config,
    );
    let status = synchronous.unwrap().train(input, TrainOptions::default()).unwrap_err();
    assert!(status.message().contains("SyncReplicasOptimizer needs parameter servers"), "{status}");
}
