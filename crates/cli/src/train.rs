//! `ferroflow train`: trains a classifier of digits on a cluster inside this process, one ps and two workers by default.

use crate::Failure;
use clap::Args;
use cluster::{ClusterSpec, EmbeddedCluster};
use ferroflow::data::mnist::{IMAGE_PIXELS, Mnist, NUM_CLASSES};
use ferroflow::session::runtime;
use ferroflow::train::{
    AdamOptimizer, Coordinator, Optimizer, ReplicaDeviceSetter, Saver, SyncReplicasOptimizer,
    global_variables_initializer, latest_checkpoint, local_variables_initializer,
};
use ferroflow::variable::create_global_step;
use ferroflow::{
    DType, Graph, Operation, Output, PartialShape, Result, Session, Status, Tensor, Variable, initializers,
};
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What to train and how.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// What to train; digits are all there is.
    #[arg(default_value = "mnist", value_parser = ["mnist"])]
    what: String,
    /// How many parameter servers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    ps: u32,
    /// How many workers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// Ends at this global step.
    #[arg(long = "train_steps", default_value_t = 3000, value_parser = clap::value_parser!(i64).range(1..))]
    train_steps: i64,
    /// Digits in a batch.
    #[arg(long = "batch_size", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    batch_size: u64,
    /// Adam's learning rate.
    #[arg(long = "learning_rate", default_value_t = 0.01)]
    learning_rate: f64,
    /// Units of the hidden layer.
    #[arg(long = "hidden_units", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=1_000_000))]
    hidden_units: i64,
    /// Averages the gradients of all workers before each update.
    #[arg(long = "sync_replicas", alias = "issync", num_args = 0..=1, default_missing_value = "true",
        default_value = "false", require_equals = true, value_parser = parse_bool, action = clap::ArgAction::Set)]
    sync_replicas: bool,
    /// How many gradients make an update, with --sync_replicas; as many as there are workers if not given.
    #[arg(long = "replicas_to_aggregate", value_parser = clap::value_parser!(i32).range(1..))]
    replicas_to_aggregate: Option<i32>,
    /// A directory with the full MNIST set as idx files, gzipped or not; without it, the digits that come along.
    #[arg(long = "data_dir")]
    data_dir: Option<String>,
    /// A directory for checkpoints: training goes on from the latest one there, and ends with a new one.
    #[arg(long)]
    logdir: Option<String>,
}

/// Trains, and prints the accuracy on the test digits as its last line.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    let digits = match &flags.data_dir {
        Some(directory) => Mnist::from_dir(directory)?,
        None => Mnist::builtin()?,
    };
    println!(
        "{} digits to train on, {} to test on; {} ps and {} worker(s) in this process, {} updates",
        digits.train.len(),
        digits.test.len(),
        flags.ps,
        flags.workers,
        if flags.sync_replicas { "synchronous" } else { "asynchronous" }
    );
    let cluster = Arc::new(start_cluster(flags)?);
    let start = Instant::now();
    let (reports, incoming) = channel();
    let (initialized, waiting) = gates(flags.workers as usize);
    let mut threads = Vec::new();
    for (task, gate) in waiting.into_iter().enumerate() {
        let worker =
            Worker { task: task as u32, flags: flags.clone(), cluster: cluster.clone(), digits: digits.clone() };
        let (reports, initialized) = (reports.clone(), initialized.clone());
        let name = format!("worker {task}");
        let spawned = std::thread::Builder::new().name(name).spawn(move || {
            let result = worker.run(&gate, &initialized, &reports);
            if let Err(status) = &result {
                // The others may wait for this worker forever.
                let _ = reports.send(Report::Failed(status.clone().context(format!("worker {}", worker.task))));
            }
            result
        });
        threads.push(spawned.map_err(|error| Failure::new(format!("can't start a worker: {error}")))?);
    }
    drop((reports, initialized));
    show_progress(&incoming, flags.train_steps, start)?;
    let mut outcome = None;
    for (task, thread) in threads.into_iter().enumerate() {
        let result = thread.join().unwrap_or_else(|_| Err(Status::internal("the worker panicked")));
        match result.map_err(|status| status.context(format!("worker {task}")))? {
            Some(trained) => outcome = Some(trained),
            None => continue,
        }
    }
    let Some(trained) = outcome else { return Err(Failure::new("no worker evaluated the model")) };
    let seconds = start.elapsed().as_secs_f64();
    println!("{} steps in {seconds:.1} s, {:.0} steps/s", trained.steps, trained.steps as f64 / seconds);
    println!("test loss {:.4}", trained.loss);
    if let Some(checkpoint) = &trained.checkpoint {
        println!("checkpoint {checkpoint}; look into it with: ferroflow checkpoint ls {checkpoint}");
    }
    println!("test accuracy {:.1} %", 100.0 * trained.accuracy);
    Ok(())
}

/// Reads booleans as TensorFlow's flags take them.
fn parse_bool(text: &str) -> std::result::Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" => Ok(true),
        "false" | "f" | "0" | "no" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

fn start_cluster(flags: &Flags) -> Result<EmbeddedCluster> {
    // The addresses only name the tasks: nothing listens.
    let addresses = |job: &str, count: u32| (0..count).map(|task| format!("{job}{task}:1")).collect::<Vec<_>>();
    let spec = ClusterSpec::new()
        .with_job("ps", &addresses("ps", flags.ps))?
        .with_job("worker", &addresses("worker", flags.workers))?;
    EmbeddedCluster::start(&spec, ops::registry(), runtime()?)
}

/// Opens when the chief has initialized the variables; one receiver for each worker.
fn gates(workers: usize) -> (Vec<Sender<()>>, Vec<Receiver<()>>) {
    (0..workers).map(|_| channel()).unzip()
}

/// What a worker has to say.
enum Report {
    Step { task: u32, step: i64, loss: f32 },
    Failed(Status),
}

/// Prints how it goes until all workers are done, or until one fails.
fn show_progress(reports: &Receiver<Report>, train_steps: i64, start: Instant) -> Result<()> {
    const INTERVAL: Duration = Duration::from_secs(1);
    let mut shown = Instant::now();
    let mut share: Vec<u64> = Vec::new();
    for report in reports {
        let (task, step, loss) = match report {
            Report::Step { task, step, loss } => (task as usize, step, loss),
            Report::Failed(status) => return Err(status),
        };
        if share.len() <= task {
            share.resize(task + 1, 0);
        }
        share[task] += 1;
        if shown.elapsed() >= INTERVAL {
            shown = Instant::now();
            let rate = step as f64 / start.elapsed().as_secs_f64();
            let total: u64 = share.iter().sum();
            let shares: Vec<String> =
                share.iter().map(|steps| format!("{:.0} %", 100.0 * *steps as f64 / total as f64)).collect();
            println!(
                "step {} of {train_steps}, loss {:.4}, {rate:.0} steps/s, workers' shares {}",
                step,
                loss,
                shares.join(" ")
            );
            let _ = std::io::stdout().flush();
        }
    }
    Ok(())
}

/// What came of the training.
struct Trained {
    steps: i64,
    loss: f32,
    accuracy: f32,
    checkpoint: Option<String>,
}

struct Worker {
    task: u32,
    flags: Flags,
    cluster: Arc<EmbeddedCluster>,
    digits: Mnist,
}

/// The model's graph, as each worker builds it for itself.
struct Model {
    graph: Graph,
    images: Output,
    labels: Output,
    loss: Output,
    accuracy: Output,
    global_step: Variable,
    train: Operation,
    init: Operation,
    local_init: Operation,
    saver: Saver,
    sync: Option<SyncOps>,
}

struct SyncOps {
    local_init: Operation,
    runner: ferroflow::train::QueueRunner,
    init_tokens: Operation,
}

impl Worker {
    fn is_chief(&self) -> bool {
        self.task == 0
    }

    fn run(
        &self,
        gate: &Receiver<()>,
        initialized: &[Sender<()>],
        reports: &Sender<Report>,
    ) -> Result<Option<Trained>> {
        let model = self.build()?;
        let master = self.cluster.master("worker", self.task)?;
        let session = Session::on_master(&model.graph, master, proto::ConfigProto::default())?;
        let coordinator = Coordinator::new();
        session.run_ops(&[&model.local_init])?;
        if self.is_chief() {
            self.initialize(&model, &session)?;
            if let Some(sync) = &model.sync {
                session.run_ops(&[&sync.local_init])?;
                sync.runner.create_threads(&session, &coordinator)?;
                session.run_ops(&[&sync.init_tokens])?;
            }
            for sender in initialized {
                // A worker that has failed already doesn't wait.
                let _ = sender.send(());
            }
        } else if gate.recv().is_err() {
            return Err(Status::aborted("the chief failed before the variables had values"));
        } else if let Some(sync) = &model.sync {
            session.run_ops(&[&sync.local_init])?;
        }
        let steps = self.train(&model, &session, reports)?;
        coordinator.request_stop(None);
        if !self.is_chief() {
            return Ok(None);
        }
        let trained = self.evaluate(&model, &session, steps)?;
        session.close()?;
        Ok(Some(trained))
    }

    fn build(&self) -> Result<Model> {
        let graph = Graph::new();
        let flags = &self.flags;
        let setter = ReplicaDeviceSetter::new(flags.ps).worker_device(&format!("/job:worker/task:{}", self.task))?;
        let (images, labels, loss, accuracy, global_step) = setter.scope(&graph, |_| {
            let global_step = create_global_step(&graph);
            let units = flags.hidden_units;
            let weights = |name: &str, rows: i64, columns: i64, stddev: f64, seed: i64| -> Result<Variable> {
                let shape = ferroflow::Shape::new(&[rows, columns])?;
                let first = initializers::truncated_normal(0.0, stddev, Some(seed));
                let value = first(&graph, &shape, DType::Float)?;
                Ok(Variable::new(&graph, name, &value))
            };
            let biases = |name: &str, len: i64| -> Result<Variable> {
                let zeros = Tensor::zeros(DType::Float, ferroflow::Shape::new(&[len])?)?;
                Ok(Variable::new(&graph, name, &graph.constant_tensor(&zeros)))
            };
            let (pixels, classes) = (IMAGE_PIXELS as i64, NUM_CLASSES as i64);
            let hid_w = weights("hid_w", pixels, units, 1.0 / (IMAGE_PIXELS as f64).sqrt(), 1)?;
            let hid_b = biases("hid_b", units)?;
            let sm_w = weights("sm_w", units, classes, 1.0 / (units as f64).sqrt(), 2)?;
            let sm_b = biases("sm_b", classes)?;
            let images = ops::array::placeholder(&graph, DType::Float, &PartialShape::from_dims(&[-1, pixels]));
            let labels = ops::array::placeholder(&graph, DType::Float, &PartialShape::from_dims(&[-1, classes]));
            let hidden = ops::nn::relu(&ops::nn::xw_plus_b(&images, hid_w.value(), hid_b.value()));
            let logits = ops::nn::xw_plus_b(&hidden, sm_w.value(), sm_b.value());
            let losses = ops::nn::softmax_cross_entropy_with_logits(&labels, &logits);
            let loss = ops::math::reduce_mean(&losses, None, false);
            let right = ops::math::equal(&ops::math::argmax(&logits, 1), &ops::math::argmax(&labels, 1));
            let accuracy = ops::math::reduce_mean(&ops::math::cast(&right, DType::Float), None, false);
            Ok::<_, Status>((images, labels, loss, accuracy, global_step))
        })?;
        let adam = AdamOptimizer::new(flags.learning_rate);
        let (train, sync) = setter.scope(&graph, |_| {
            if !flags.sync_replicas {
                return Ok((adam.minimize(&loss, Some(&global_step))?, None));
            }
            let workers = flags.workers as i32;
            let aggregate = flags.replicas_to_aggregate.unwrap_or(workers);
            let optimizer = SyncReplicasOptimizer::new(adam, aggregate, Some(workers))?;
            let train = optimizer.minimize(&loss, Some(&global_step))?;
            let local_init =
                if self.is_chief() { optimizer.chief_init_op()? } else { optimizer.local_step_init_op()? };
            let sync = SyncOps {
                local_init,
                runner: optimizer.chief_queue_runner()?,
                init_tokens: optimizer.init_tokens_op(None)?,
            };
            Ok::<_, Status>((train, Some(sync)))
        })?;
        let saver = Saver::new(&graph)?;
        let init = global_variables_initializer(&graph)?;
        let local_init = local_variables_initializer(&graph)?;
        Ok(Model { graph, images, labels, loss, accuracy, global_step, train, init, local_init, saver, sync })
    }

    fn initialize(&self, model: &Model, session: &Session) -> Result<()> {
        session.run_ops(&[&model.init])?;
        let Some(logdir) = &self.flags.logdir else { return Ok(()) };
        if let Some(checkpoint) = latest_checkpoint(logdir)? {
            model.saver.restore(session, &checkpoint)?;
            println!("goes on from {checkpoint}");
        }
        Ok(())
    }

    fn train(&self, model: &Model, session: &Session, reports: &Sender<Report>) -> Result<i64> {
        let mut batches = self.digits.train.batches(u64::from(self.task));
        let mut step = session.eval::<i64>(model.global_step.value())?;
        while step < self.flags.train_steps {
            let (images, labels) = batches.next_batch(self.flags.batch_size as usize)?;
            let values = session
                .runner()
                .feed(&model.images, images)
                .feed(&model.labels, labels)
                .fetch(&model.loss)
                .fetch(model.global_step.value())
                .target(&model.train)
                .run();
            let values = match values {
                Ok(values) => values,
                // With synchronous updates, the chief ends the token queue when it is done.
                Err(status) if self.flags.sync_replicas && !self.is_chief() && is_over(&status) => break,
                Err(status) => return Err(status),
            };
            let loss = values[0].to_scalar::<f32>()?;
            if !loss.is_finite() {
                return Err(Status::invalid_argument(format!("the loss is {loss} at step {step}")));
            }
            step = values[1].to_scalar::<i64>()?;
            let _ = reports.send(Report::Step { task: self.task, step, loss });
        }
        Ok(step)
    }

    fn evaluate(&self, model: &Model, session: &Session, steps: i64) -> Result<Trained> {
        let (images, labels) = self.digits.test.all()?;
        let run = session.runner().feed(&model.images, images).feed(&model.labels, labels);
        let values = run.fetch(&model.loss).fetch(&model.accuracy).run()?;
        let checkpoint = match &self.flags.logdir {
            None => None,
            Some(logdir) => {
                std::fs::create_dir_all(logdir)
                    .map_err(|error| Status::permission_denied(format!("can't make {logdir}: {error}")))?;
                let prefix = format!("{}/model.ckpt", logdir.trim_end_matches('/'));
                Some(model.saver.save(session, &prefix, Some(steps))?)
            }
        };
        Ok(Trained { steps, loss: values[0].to_scalar()?, accuracy: values[1].to_scalar()?, checkpoint })
    }
}

fn is_over(status: &Status) -> bool {
    use ferroflow::Code;
    matches!(status.code(), Code::Cancelled | Code::OutOfRange | Code::Aborted)
}
