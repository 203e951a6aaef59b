//! Digits, trained by workers that each have their own graph, asynchronously or with `--sync_replicas`; the flags are
//! those of TensorFlow's `mnist_replica.py`.

use ferroflow::distributed::ClusterSpec;
use ferroflow::layers::{Activation, Apply, Dense};
use ferroflow::train::{AdamOptimizer, MonitoredSession, ReplicaDeviceSetter, RunArgs, SyncReplicasOptimizer};
use ferroflow::variable::create_global_step;
use ferroflow::{Result, SessionConfig, data::mnist::Mnist, flags::Flags, prelude::*, session::Target};
use std::time::{Duration, Instant};

/// Trains as one worker; returns how many steps it did itself and the cross entropy on the validation digits.
pub fn train(target: Target, cluster: &ClusterSpec, flags: &Flags) -> Result<(u64, f32)> {
    let (g, task, workers) = (Graph::new(), flags.get("task_index", 0)?, cluster.num_tasks("worker") as i32);
    let (x, y_, cross_entropy, step, train, sync) = ReplicaDeviceSetter::for_worker(cluster, task).scope(&g, |g| {
        let (x, y_) = (g.placeholder::<f32>((None, 784)), g.placeholder::<f32>((None, 10)));
        let hidden = x.apply(&Dense::new(flags.get("hidden_units", 100)?).activation(Activation::Relu).name("hid"));
        let y = hidden.apply(&Dense::new(10).activation(Activation::Softmax).name("sm"));
        let cross_entropy = -(&y_ * y.clip(1e-10, 1.0).log()).sum();
        let (step, adam) = (create_global_step(g), AdamOptimizer::new(flags.get("learning_rate", 0.01)?));
        if !flags.get("sync_replicas", false)? {
            let train = adam.minimize(&cross_entropy, Some(&step))?;
            return Ok((x, y_, cross_entropy, step, train, None));
        }
        let count = flags.get("replicas_to_aggregate", workers)?;
        let sync = SyncReplicasOptimizer::new(adam, count, Some(workers))?;
        let train = sync.minimize(&cross_entropy, Some(&step))?;
        Ok::<_, Status>((x, y_, cross_entropy, step, train, Some(sync.make_session_run_hook(task == 0, None)?)))
    })?;
    let filters = ["/job:ps".to_owned(), format!("/job:worker/task:{task}")];
    let config = SessionConfig::new().allow_soft_placement(true).device_filters(filters);
    let builder =
        MonitoredSession::training(&g).target(target).config(config).is_chief(task == 0).recovery_wait_secs(1);
    let mut session = sync.into_iter().fold(builder, |builder, hook| builder.hook(hook)).build()?;
    let (mnist, mut local_step, mut global_step) = (Mnist::builtin()?, 0, 0);
    let (mut batches, mut told) = (mnist.train.batches(u64::from(task)), Instant::now());
    while global_step < flags.get("train_steps", 1000)? {
        let (images, labels) = batches.next_batch(flags.get("batch_size", 100)?)?;
        let run = RunArgs::new().feed(&x, images).feed(&y_, labels).target(&train).fetch(&step);
        global_step = session.run(&run)?[0].to_scalar::<i64>()?;
        local_step += 1;
        if told.elapsed() >= Duration::from_secs(1) {
            println!("Worker {task}: training step {local_step} done (global step: {global_step})");
            told = Instant::now();
        }
    }
    let (images, labels) = mnist.validation.all()?;
    let raw = session.raw_session()?;
    let (loss,) = raw.runner().feed(&x, images).feed(&y_, labels).fetch(&cross_entropy).run_as()?;
    session.close().map(|()| (local_step, loss))
}

fn main() -> Result<()> {
    let flags = Flags::from_env();
    if let Some((steps, loss)) = flags.run_task(|server, cluster| train(Target::from(server), cluster, &flags))? {
        println!("after {steps} steps of this worker, validation cross entropy = {loss}");
    }
    Ok(())
}
