//! One program as chief, worker, parameter servers and evaluator, by `TF_CONFIG`: all end by themselves.

use ferroflow::data::Dataset;
use ferroflow::estimator::*;
use ferroflow::prelude::*;
use ferroflow::train::{Every, GradientDescentOptimizer, Queue, latest_checkpoint};
use ferroflow::variable::get_global_step;
use std::process::{Child, Command, Stdio};

/// The environment variable that makes this program a task.
const MODEL_DIR: &str = "FERROFLOW_TEST_MODEL_DIR";

/// The environment variable that has the worker wait in its first step for what never comes.
const WAITS: &str = "FERROFLOW_TEST_WAITS";

const STEPS: i64 = 60;

fn input(g: &Graph) -> Input {
    let rows = Dataset::from_tensor_slices(g, ([1f32, 2.0, 3.0], [3f32, 5.0, 7.0]));
    Input::new(&rows.repeat(-1).batch(3, true), &["x"]).label()
}

/// Returns a number that is never there.
fn never(g: &Graph) -> Output {
    let types: &[DType] = &[DType::Float];
    let shapes: &[PartialShape] = &[PartialShape::scalar()];
    let queue = g.op("FIFOQueueV2").attr("component_types", types).attr("shapes", shapes).output();
    Queue::new(queue).dequeue(types).output(0)
}

/// What the program of a task does. Without the variable this is no task, and there is nothing to do.
#[test]
fn one_task() -> ferroflow::Result<()> {
    let Ok(model_dir) = std::env::var(MODEL_DIR) else { return Ok(()) };
    let config = RunConfig { save_checkpoints: Some(Every::Steps(20)), ..RunConfig::from_env(&model_dir)? };
    let is_worker = config.task().starts_with("/job:worker");
    let line =
        move |features: &Features, labels: Option<&Output>, mode: Mode, _: &()| -> ferroflow::Result<EstimatorSpec> {
            let x = features.dense("x")?;
            let g = x.graph();
            let (slope, offset) =
                (Variable::new(g, "slope", &g.constant(0f32)), Variable::new(g, "offset", &g.constant(0f32)));
            if mode == Mode::Train {
                assert_eq!([slope.op().device(), offset.op().device()], ["/job:ps/task:1", "/job:ps/task:0"]);
            }
            let y = &x * slope.value() + offset.value();
            let waits = mode == Mode::Train && is_worker && std::env::var(WAITS).is_ok();
            let y = if waits { y + &never(g) } else { y };
            let spec = EstimatorSpec::new(mode).prediction("y", &y);
            let Some(labels) = labels else { return Ok(spec) };
            let loss = (&y - labels).square().mean();
            let train = GradientDescentOptimizer::new(0.02).minimize(&loss, get_global_step(g)?.as_ref())?;
            Ok(spec.loss(&loss).train_op(&train))
        };
    let model = Estimator::new(line, (), config)?;
    let serving = build_raw_serving_input_receiver_fn(&[("x", DType::Float, PartialShape::from([-1]))]);
    let mut eval = EvalSpec { steps: Some(2), ..EvalSpec::new(input) };
    eval.exporters.push(Box::new(FinalExporter::new("final", serving)));
    let measured = train_and_evaluate(&model, TrainSpec::new(input, Some(STEPS)), eval)?;
    println!("{} is done: {}", model.config().task(), measured.map_or("-".to_owned(), |measured| measured.to_string()));
    Ok(())
}

struct Task(Child);

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the tasks of a job with these environment variables until all have ended; returns what they printed.
fn run(directory: &std::path::Path, tasks: &[(&str, u32)], environment: &[(&str, &str)]) -> String {
    let addresses = cluster::unused_addresses(4).unwrap();
    let cluster = format!(
        r#"{{"chief": ["{}"], "worker": ["{}"], "ps": ["{}", "{}"]}}"#,
        addresses[0], addresses[1], addresses[2], addresses[3]
    );
    let start = |&(job, index): &(&str, u32)| {
        let told = format!(r#"{{"cluster": {cluster}, "task": {{"type": "{job}", "index": {index}}}}}"#);
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.args(["--exact", "one_task", "--nocapture"]).env(MODEL_DIR, directory);
        let command = command.env("TF_CONFIG", told).envs(environment.iter().copied());
        Task(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let tasks: Vec<Task> = tasks.iter().map(start).collect();
    let mut said = String::new();
    for mut task in tasks {
        use std::io::Read;
        // They print so little that no pipe is ever full.
        let status = task.0.wait().unwrap();
        let mut text = String::new();
        task.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        task.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(status.success(), "{status}: {text}\n{said}");
        said.push_str(&text);
    }
    said
}

#[test]
fn a_worker_that_waits_in_a_step_ends_when_the_chief_has() {
    let directory = tempfile::tempdir().unwrap();
    let tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("chief", 0)];
    let said = run(directory.path(), &tasks, &[(WAITS, "1")]);
    for task in ["/job:chief/task:0", "/job:worker/task:0", "/job:ps/task:0"] {
        assert!(said.contains(&format!("{task} is done")), "{task}: {said}");
    }
}

#[test]
fn chief_worker_parameter_servers_and_evaluator_end_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("evaluator", 0), ("chief", 0)];
    let said = run(directory.path(), &tasks, &[]);
    for task in ["/job:chief/task:0", "/job:worker/task:0", "/job:ps/task:0", "/job:ps/task:1", "/job:evaluator/task:0"]
    {
        assert!(said.contains(&format!("{task} is done")), "{task}: {said}");
    }
    let step: i64 = latest_checkpoint(directory.path().to_str().unwrap())
        .unwrap()
        .unwrap()
        .rsplit('-')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(step >= STEPS, "{step}");
    assert!(said.contains(&format!("global_step = {step}")), "{said}");
    assert_eq!(std::fs::read_dir(directory.path().join("export/final")).unwrap().count(), 1);
}
