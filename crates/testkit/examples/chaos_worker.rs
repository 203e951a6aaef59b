//! A Rust worker of `cargo xtask chaos`: `chaos_worker --ps_hosts=… --worker_hosts=… --task_index=N`. It starts its task's server, and
//! trains until it reads a line from standard input. `tests/chaos/trainer.py` builds the same graph with TensorFlow.
//!
//! It prints a line `TOLD {…}` with the number of answered steps, that of attempts, and this worker's counters after the last step; a
//! line `WRONG …` if a counter is wrong; and a line `BACK {…}` if a counter went back to a checkpoint.

use ferroflow::train::{GradientDescentOptimizer, MonitoredSession, ReplicaDeviceSetter, RunArgs, RunContext};
use ferroflow::train::{RunValues, SessionRunHook};
use ferroflow::variable::{Variable, create_global_step};
use ferroflow::{Result, SessionConfig, distributed, flags::Flags, prelude::*, session::Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

const FEATURES: i64 = 64;
const BATCH: usize = 32;
const NUM_WORKERS: i64 = 4;

/// The interval at which the worker prints its progress.
const TELL_INTERVAL: Duration = Duration::from_millis(200);

/// Counts the attempts of a step: a step that failed with its session is tried again in another one.
struct Tries(Arc<AtomicI64>);

impl SessionRunHook for Tries {
    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(RunArgs::new())
    }

    fn after_run(&mut self, _context: &RunContext<'_>, _values: &RunValues) -> Result<()> {
        Ok(())
    }
}

/// The nodes of a step.
struct Step {
    x: Output,
    y: Output,
    train: Operation,
    counters: Vec<Output>,
    global_step: Variable,
}

/// Builds the graph. Each parameter server counts the steps of each worker and, in a last element, those of all, in one update.
fn build(g: &Graph, task: i64) -> Result<Step> {
    let on_ps = |task: u32, body: &dyn Fn(&Graph) -> Variable| g.device(&format!("/job:ps/task:{task}"), |g| body(g));
    let global_step = on_ps(0, &|g| create_global_step(g));
    let weights = on_ps(1, &|g| Variable::new(g, "weights", &g.constant_tensor(&zeros(&[FEATURES, 1]))));
    let bias = on_ps(0, &|g| Variable::new(g, "bias", &g.constant_tensor(&zeros(&[1]))));
    let counter = |ps: u32, name: &'static str| {
        on_ps(ps, &|g| {
            let zeros = Tensor::vector(&[0i64; NUM_WORKERS as usize + 1]);
            Variable::builder(g, name).trainable(false).build_constant(&zeros)
        })
    };
    let (here, there) = (counter(0, "counters"), counter(1, "there"));
    let (x, y) = (g.placeholder::<f32>((None, FEATURES)), g.placeholder::<f32>((None, 1)));
    let loss = (x.matmul(weights.value()) + bias.value() - &y).square().mean();
    let train = GradientDescentOptimizer::new(0.01).minimize(&loss, Some(&global_step))?;
    let rows = g.constant_tensor(&Tensor::vector(&[task, NUM_WORKERS]));
    let ones = g.constant_tensor(&Tensor::vector(&[1i64, 1]));
    let add = |counter: &Variable| {
        let add = g.op("ScatterAdd").input(counter.handle()).input(&rows).input(&ones).attr("use_locking", true);
        add.build().output(0)
    };
    Ok(Step { x, y, train, counters: vec![add(&here), add(&there)], global_step })
}

fn zeros(dims: &[i64]) -> Tensor {
    let count = dims.iter().product::<i64>() as usize;
    Tensor::from_slice(dims, &vec![0f32; count]).expect("the sizes fit")
}

/// Returns the batch with a number.
fn batch(number: i64) -> Result<(Tensor, Tensor)> {
    let value = |index: usize| ((number as usize * 31 + index * 17) % 101) as f32 / 101.0 - 0.5;
    let x: Vec<f32> = (0..BATCH * FEATURES as usize).map(value).collect();
    let y: Vec<f32> = x.chunks(FEATURES as usize).map(|row| row.iter().sum()).collect();
    Ok((Tensor::from_slice(&[BATCH as i64, FEATURES], &x)?, Tensor::from_slice(&[BATCH as i64, 1], &y)?))
}

fn train(target: Target, task: i64, is_over: &AtomicBool) -> Result<()> {
    let g = Graph::new();
    let setter = ReplicaDeviceSetter::new(2).worker_device(&format!("/job:worker/task:{task}"))?;
    let step = setter.scope(&g, |g| build(g, task))?;
    let tries = Arc::new(AtomicI64::new(0));
    let filters = ["/job:ps".to_owned(), format!("/job:worker/task:{task}")];
    let mut session = MonitoredSession::training(&g)
        .target(target)
        .config(SessionConfig::new().device_filters(filters))
        .is_chief(false)
        .recovery_wait_secs(1)
        .hook(Tries(tries.clone()))
        .build()?;
    let (mut answered, mut last, mut told) = (0, None::<(i64, Vec<i64>)>, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        let (x, y) = batch(answered)?;
        let run = RunArgs::new().feed(&step.x, x).feed(&step.y, y).target(&step.train);
        let run = step.counters.iter().fold(run, |run, counter| run.fetch(counter)).fetch(step.global_step.value());
        let values = session.run(&run)?;
        answered += 1;
        let tried = tries.load(Ordering::Relaxed);
        let own = |value: &Tensor| value.as_slice::<i64>().map(|counters| counters[task as usize]);
        let counters = vec![own(&values[0])?, own(&values[1])?];
        if let Some((tried_before, before)) = &last {
            let attempts = tried - tried_before;
            for (name, (old, new)) in ["counters", "there"].iter().zip(before.iter().zip(&counters)) {
                let gained = new - old;
                if gained > attempts {
                    println!("WRONG {name} went from {old} to {new} in {attempts} attempts");
                } else if gained < 1 {
                    println!("BACK {{\"variable\": \"{name}\", \"lost\": {}}}", 1 - gained);
                }
            }
        }
        let is_first_since_loss = last.as_ref().is_none_or(|(tried_before, _)| tried - tried_before > 1);
        if is_first_since_loss || told.elapsed() >= TELL_INTERVAL {
            tell(answered, tried, &counters, &values[2])?;
            told = Instant::now();
        }
        last = Some((tried, counters));
    }
    if let Some((tried, counters)) = last {
        tell(answered, tried, &counters, &Tensor::scalar(0i64))?;
    }
    session.close()
}

fn tell(answered: i64, tried: i64, counters: &[i64], global_step: &Tensor) -> Result<()> {
    let global_step = global_step.to_scalar::<i64>()?;
    println!(
        "TOLD {{\"answered\": {answered}, \"tried\": {tried}, \"counters\": {counters:?}, \"step\": {global_step}}}"
    );
    Ok(())
}

fn main() -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let flags = Flags::from_env();
    let task: u32 = flags.get("task_index", 0)?;
    let server = distributed::start_server(&flags.cluster()?, "worker", task)?;
    println!("server ready: /job:worker/task:{task} at {}", server.target());
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        over.store(true, Ordering::Relaxed);
    });
    train(Target::from(&server), i64::from(task), &is_over)?;
    println!("DONE");
    Ok(())
}
