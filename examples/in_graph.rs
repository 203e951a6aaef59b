//! Replication inside one graph: one client, a tower of the model on every worker, the mean of their gradients applied to
//! variables on a parameter server.

#[path = "support/mod.rs"]
pub mod support;

use ferroflow::data::mnist::Mnist;
use ferroflow::distributed::{ClusterSpec, start_embedded};
use ferroflow::ops::{math, nn};
use ferroflow::session::Target;
use ferroflow::train::{GradientDescentOptimizer, GradientOptions, Optimizer, global_variables_initializer};
use ferroflow::{Grad, Graph, Output, Result, Tensor, Variable};
use support::{biases, rows, weights};

/// A copy of the model on one worker.
struct Tower {
    x: Output,
    y: Output,
    loss: Output,
}

fn tower(g: &Graph, w: &Variable, b: &Variable) -> Tower {
    let (x, y) = (rows(g, 784), rows(g, 10));
    let logits = nn::xw_plus_b(&x, w.value(), b.value());
    let loss = math::reduce_mean(&nn::softmax_cross_entropy_with_logits(nn::Labels(&y), &logits), None, false);
    Tower { x, y, loss }
}

/// Trains for some steps on a cluster with a ps and two workers; returns the mean loss before and after.
pub fn train(steps: usize) -> Result<(f32, f32)> {
    let cluster = ClusterSpec::new().with_job("ps", &["ps0:1"])?.with_job("worker", &["worker0:1", "worker1:1"])?;
    let running = start_embedded(&cluster)?;
    let (g, digits) = (Graph::new(), Mnist::builtin()?);
    let (w, b) = g.device("/job:ps/task:0", |_| {
        Ok::<_, ferroflow::Status>((weights(&g, "w", &[784, 10], 0.01)?, biases(&g, "b", 10)?))
    })?;
    let optimizer = GradientDescentOptimizer::new(0.5);
    let variables = vec![w.clone(), b.clone()];
    let (mut towers, mut gradients) = (Vec::new(), vec![Vec::new(); variables.len()]);
    for task in 0..cluster.num_tasks("worker") {
        let tower = g.device(&format!("/job:worker/task:{task}"), |_| tower(&g, &w, &b));
        let options = GradientOptions { variables: Some(variables.clone()), ..Default::default() };
        for (index, (gradient, _)) in optimizer.compute_gradients(&tower.loss, &options)?.into_iter().enumerate() {
            if let Some(Grad::Dense(gradient)) = gradient {
                gradients[index].push(gradient);
            }
        }
        towers.push(tower);
    }
    let train_op = g.device("/job:ps/task:0", |_| {
        let mean = |of: &Vec<Output>| {
            let count = g.constant_tensor(&Tensor::scalar(of.len() as f32));
            Grad::Dense(math::add_n(of) / &count)
        };
        let averaged: Vec<_> =
            gradients.iter().zip(&variables).map(|(of, variable)| (Some(mean(of)), variable.clone())).collect();
        optimizer.apply_gradients(&averaged, None, None)
    })?;
    let losses: Vec<&Output> = towers.iter().map(|tower| &tower.loss).collect();

    let session = Target::from(running.master("worker", 0)?).session(&g, &Default::default())?;
    session.run_ops(&[&global_variables_initializer(&g)?])?;
    let mut batches = digits.train.batches(0);
    let (mut first, mut last) = (None, f32::NAN);
    for _ in 0..steps {
        let mut run = session.runner().target(&train_op);
        for tower in &towers {
            let (images, labels) = batches.next_batch(100)?;
            run = run.feed(&tower.x, images).feed(&tower.y, labels);
        }
        for loss in &losses {
            run = run.fetch(loss);
        }
        let values = run.run()?;
        last = values.iter().map(|loss| loss.to_scalar::<f32>()).sum::<Result<f32>>()? / values.len() as f32;
        first.get_or_insert(last);
    }
    session.close()?;
    Ok((first.unwrap_or(last), last))
}

fn main() -> Result<()> {
    let (first, last) = train(300)?;
    println!("mean loss of the towers: {first:.4} at first, {last:.4} in the end");
    Ok(())
}
