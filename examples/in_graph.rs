//! Replication inside one graph: one client, a tower of the model on every worker, the mean of their gradients applied to
//! variables on a parameter server.

use ferroflow::data::mnist::Mnist;
use ferroflow::distributed::{ClusterSpec, start_embedded};
use ferroflow::layers::{Apply, Dense};
use ferroflow::ops::math::add_n;
use ferroflow::prelude::*;
use ferroflow::train::{GradientDescentOptimizer, ReplicaDeviceSetter, global_variables_initializer};
use ferroflow::{Grad, Result, initializers::zeros};

/// Trains for some steps on a cluster with a ps and two workers; returns the mean loss before and after.
pub fn train(steps: usize) -> Result<(f32, f32)> {
    let cluster = ClusterSpec::new().with_job("ps", &["ps0:1"])?.with_job("worker", &["worker0:1", "worker1:1"])?;
    let (g, running) = (Graph::new(), start_embedded(&cluster)?);
    let (model, optimizer) = (Dense::new(10).kernel_initializer(zeros()), GradientDescentOptimizer::new(0.5));
    let (x, y) = (g.placeholder::<f32>((None, 784)), g.placeholder::<f32>((None, 10)));
    let towers = x.split(2, 0).into_iter().zip(y.split(2, 0)).zip(0..).map(|((x, y), worker)| {
        ReplicaDeviceSetter::for_worker(&cluster, worker).scope(&g, |_| {
            let loss = x.apply(&model).softmax_cross_entropy(Labels(&y)).mean();
            Ok::<_, Status>((optimizer.compute_gradients(&loss, &Default::default())?, loss))
        })
    });
    let (gradients, losses): (Vec<_>, Vec<Output>) = towers.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let averaged = model.variables(&g).into_iter().enumerate().map(|(index, variable)| {
        let parts = gradients.iter().filter_map(|tower| Some(tower[index].0.as_ref()?.to_dense()));
        (Some(Grad::Dense(add_n(&parts.collect::<Vec<_>>()) / 2.0)), variable)
    });
    let train = optimizer.apply_gradients(&averaged.collect::<Vec<_>>(), None, None)?;
    let session = Session::on_master(&g, running.master("worker", 0)?, ferroflow::SessionConfig::new())?;
    session.run_ops(&[&global_variables_initializer(&g)])?;
    let (loss, mut batches, mut seen) = (add_n(&losses) / 2.0, Mnist::builtin()?.train.batches(0), Vec::new());
    for _ in 0..steps {
        let (images, labels) = batches.next_batch(200)?;
        seen.push(session.runner().feed(&x, images).feed(&y, labels).target(&train).fetch(&loss).run_as::<(f32,)>()?.0);
    }
    Ok((seen[0], seen[steps - 1]))
}

fn main() -> Result<()> {
    train(300).map(|(first, last)| println!("mean loss of the towers: {first:.4} at first, {last:.4} in the end"))
}
