//! A trainer as the guide to distributed TensorFlow writes it: replicated between graphs, asynchronous, with Adagrad, a
//! saver, summaries and a supervisor.
//!
//! ```text
//! trainer --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=ps --task_index=0
//! trainer --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0
//! trainer --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1
//! ```

#[path = "support/mod.rs"]
pub mod support;

use ferroflow::data::mnist::Mnist;
use ferroflow::distributed::{ClusterSpec, Server, join, start_server};
use ferroflow::ops::{math, nn};
use ferroflow::train::global_variables_initializer;
use ferroflow::train::{AdagradOptimizer, Optimizer, ReplicaDeviceSetter, Saver, Supervisor};
use ferroflow::variable::create_global_step;
use ferroflow::{Graph, Result, Status, summary};
use std::sync::Arc;
use support::{Flags, dense, rows};

/// Trains as one worker; returns the global step and the loss at the end.
pub fn train(server: &Server, cluster: &ClusterSpec, flags: &Flags) -> Result<(i64, f32)> {
    let task_index: u32 = flags.get("task_index", 0)?;
    let (g, digits) = (Graph::new(), Mnist::builtin()?);
    let setter = ReplicaDeviceSetter::new(cluster.num_tasks("ps") as u32)
        .worker_device(&format!("/job:worker/task:{task_index}"))?;
    let (x, y, loss, global_step, train_op, saver, init_op) = setter.scope(&g, |_| {
        let (x, y) = (rows(&g, 784), rows(&g, 10));
        let hidden = nn::relu(&dense(&g, &x, "hidden", 784, 64)?);
        let logits = dense(&g, &hidden, "softmax", 64, 10)?;
        let loss = math::reduce_mean(&nn::softmax_cross_entropy_with_logits(nn::Labels(&y), &logits), None, false);
        let global_step = create_global_step(&g);
        let train_op = AdagradOptimizer::new(0.05).minimize(&loss, Some(&global_step))?;
        summary::scalar("global_step", global_step.value())?;
        let (saver, init_op) = (Arc::new(Saver::new(&g)?), global_variables_initializer(&g)?);
        Ok::<_, Status>((x, y, loss, global_step, train_op, saver, init_op))
    })?;
    let supervisor = Supervisor::builder(&g)
        .is_chief(task_index == 0)
        .logdir(&flags.text("logdir", "/tmp/train_logs"))
        .init_op(&init_op)
        .saver(saver)
        .global_step(&global_step)
        .save_model_secs(600)
        .build()?;
    let last_step = flags.get("train_steps", 1_000_000)?;
    supervisor.managed_session(server, |session| {
        let mut batches = digits.train.batches(u64::from(task_index));
        let (mut step, mut last_loss) = (0, f32::NAN);
        while !supervisor.should_stop() && step < last_step {
            let (images, labels) = batches.next_batch(100)?;
            let run = session.runner().feed(&x, images).feed(&y, labels).target(&train_op);
            let values = run.fetch(&loss).fetch(global_step.value()).run()?;
            (last_loss, step) = (values[0].to_scalar()?, values[1].to_scalar()?);
        }
        if supervisor.is_chief() {
            supervisor.save(session)?;
        }
        Ok((step, last_loss))
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
    let (step, loss) = train(&server, &cluster, &flags)?;
    println!("loss {loss:.4} at step {step}");
    Ok(())
}
