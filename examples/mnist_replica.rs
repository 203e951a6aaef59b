//! Digits, trained by workers that each have their own graph, asynchronously or with `--sync_replicas`; the flags are
//! those of TensorFlow's `mnist_replica.py`.

#[path = "support/mod.rs"]
pub mod support;

use ferroflow::data::mnist::Mnist;
use ferroflow::distributed::{ClusterSpec, join, start_server};
use ferroflow::ops::{math, nn};
use ferroflow::session::Target;
use ferroflow::train::{
    AdamOptimizer, Optimizer, ReplicaDeviceSetter, Supervisor, SyncReplicasOptimizer, global_variables_initializer,
};
use ferroflow::variable::create_global_step;
use ferroflow::{Graph, Result, Status};
use std::time::{Duration, Instant};
use support::{Flags, dense, rows};

/// How often a worker tells of its steps.
const TELLING: Duration = Duration::from_secs(1);

/// Trains as one worker; returns how many steps it did itself and the cross entropy on the validation digits.
pub fn train(target: Target, cluster: &ClusterSpec, flags: &Flags) -> Result<(u64, f32)> {
    let task_index: u32 = flags.get("task_index", 0)?;
    let is_chief = task_index == 0;
    let num_workers = cluster.num_tasks("worker") as i32;
    let hidden_units = flags.get("hidden_units", 100)?;
    let (g, mnist) = (Graph::new(), Mnist::builtin()?);
    let setter = ReplicaDeviceSetter::new(cluster.num_tasks("ps") as u32)
        .ps_device("/job:ps/cpu:0")?
        .worker_device(&format!("/job:worker/task:{task_index}"))?;
    let opt = AdamOptimizer::new(flags.get("learning_rate", 0.01)?);
    let (x, y_, cross_entropy, global_step, train_step, sync) = setter.scope(&g, |_| {
        let global_step = create_global_step(&g);
        let (x, y_) = (rows(&g, 784), rows(&g, 10));
        let hid = nn::relu(&dense(&g, &x, "hid", 784, hidden_units)?);
        let y = nn::softmax(&dense(&g, &hid, "sm", hidden_units, 10)?);
        let log = math::log(&ferroflow::train::clip_by_value(&y, 1e-10, 1.0)?);
        let cross_entropy = -math::reduce_sum(&(&y_ * &log), None, false);
        let (train_step, sync) = if flags.get("sync_replicas", false)? {
            let to_aggregate = flags.get("replicas_to_aggregate", num_workers)?;
            let opt = SyncReplicasOptimizer::new(opt, to_aggregate, Some(num_workers))?;
            let train_step = opt.minimize(&cross_entropy, Some(&global_step))?;
            (train_step, Some(opt))
        } else {
            (opt.minimize(&cross_entropy, Some(&global_step))?, None)
        };
        Ok::<_, Status>((x, y_, cross_entropy, global_step, train_step, sync))
    })?;
    let init_op = global_variables_initializer(&g)?;
    let mut builder = Supervisor::builder(&g).is_chief(is_chief).init_op(&init_op).recovery_wait_secs(1.0);
    let mut chief_parts = None;
    if let Some(opt) = &sync {
        let local_init = if is_chief { opt.chief_init_op()? } else { opt.local_step_init_op()? };
        builder = builder.local_init_op(&local_init).ready_for_local_init_op(&opt.ready_for_local_init_op()?);
        if is_chief {
            chief_parts = Some((opt.chief_queue_runner()?, opt.init_tokens_op(None)?));
        }
    }
    let config = proto::ConfigProto {
        allow_soft_placement: true,
        device_filters: vec!["/job:ps".to_owned(), format!("/job:worker/task:{task_index}")],
        ..Default::default()
    };
    let supervisor = builder.global_step(&global_step).config(config).build()?;
    println!("Worker {task_index}: {} the session", if is_chief { "initializes" } else { "waits for" });
    supervisor.managed_session(target, |session| {
        if let Some((queue_runner, init_tokens_op)) = &chief_parts {
            supervisor.start_queue_runners(session, Some(std::slice::from_ref(queue_runner)))?;
            session.run_ops(&[init_tokens_op])?;
        }
        let train_steps: i64 = flags.get("train_steps", 1000)?;
        let batch_size = flags.get("batch_size", 100)?;
        let mut batches = mnist.train.batches(u64::from(task_index));
        let (mut local_step, mut told) = (0, Instant::now());
        loop {
            let (batch_xs, batch_ys) = batches.next_batch(batch_size)?;
            let run = session.runner().feed(&x, batch_xs).feed(&y_, batch_ys).target(&train_step);
            let step: i64 = run.fetch(global_step.value()).run()?[0].to_scalar()?;
            local_step += 1;
            if told.elapsed() >= TELLING {
                println!("Worker {task_index}: training step {local_step} done (global step: {step})");
                told = Instant::now();
            }
            if step >= train_steps {
                break;
            }
        }
        let (images, labels) = mnist.validation.all()?;
        let run = session.runner().feed(&x, images).feed(&y_, labels).fetch(&cross_entropy);
        Ok((local_step, run.run()?[0].to_scalar()?))
    })
}

fn main() -> Result<()> {
    let flags = Flags::from_env();
    let cluster =
        ClusterSpec::new().with_job("ps", &flags.list("ps_hosts"))?.with_job("worker", &flags.list("worker_hosts"))?;
    let job = flags.text("job_name", "");
    let server = start_server(&cluster, &job, flags.get("task_index", 0)?)?;
    if job == "ps" {
        return join(&server);
    }
    let (steps, cross_entropy) = train(Target::from(&server), &cluster, &flags)?;
    println!("after {steps} steps of this worker, validation cross entropy = {cross_entropy}");
    Ok(())
}
