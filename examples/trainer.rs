//! A trainer as the guide to distributed TensorFlow writes it: replicated between graphs, asynchronous, with Adagrad, a
//! saver, summaries and a supervisor. Flags: `--ps_hosts --worker_hosts --job_name --task_index --logdir --train_steps`.

use ferroflow::distributed::{ClusterSpec, Server};
use ferroflow::layers::{Activation, Apply, Dense};
use ferroflow::train::{AdagradOptimizer, ReplicaDeviceSetter, Supervisor};
use ferroflow::{Result, data::mnist::Mnist, flags::Flags, prelude::*, summary, variable::create_global_step};

/// Trains as one worker; returns the global step and the loss at the end.
pub fn train(server: &Server, cluster: &ClusterSpec, flags: &Flags) -> Result<(i64, f32)> {
    let (g, task) = (Graph::new(), flags.get("task_index", 0)?);
    let (x, y, loss, step, train) = ReplicaDeviceSetter::for_worker(cluster, task).scope(&g, |g| {
        let (x, y) = (g.placeholder::<f32>((None, 784)), g.placeholder::<f32>((None, 10)));
        let logits = x.apply(&Dense::new(64).activation(Activation::Relu)).apply(&Dense::new(10));
        let (loss, step) = (logits.softmax_cross_entropy(Labels(&y)).mean(), create_global_step(g));
        summary::scalar("global_step", &step);
        let train = AdagradOptimizer::new(0.05).minimize(&loss, Some(&step))?;
        Ok::<_, Status>((x, y, loss, step, train))
    })?;
    let builder = Supervisor::builder(&g).is_chief(task == 0).logdir(&flags.text("logdir", "/tmp/train_logs"));
    let supervisor = builder.global_step(&step).save_model_secs(600).build()?;
    supervisor.managed_session(server, |session| {
        let (mut batches, mut last) = (Mnist::builtin()?.train.batches(u64::from(task)), (0, f32::NAN));
        while !supervisor.should_stop() && last.0 < flags.get("train_steps", 1_000_000)? {
            let (images, labels) = batches.next_batch(100)?;
            let run = session.runner().feed(&x, images).feed(&y, labels).target(&train);
            last = run.fetch(&step).fetch(&loss).run_as()?;
        }
        supervisor.is_chief().then(|| supervisor.save(session)).transpose()?;
        Ok(last)
    })
}

fn main() -> Result<()> {
    let flags = Flags::from_env();
    println!("(step, loss): {:?}", flags.run_task(|server, cluster| train(server, cluster, &flags))?);
    Ok(())
}
