//! Strips of digits read as a whole: convolutions, a bidirectional LSTM over the columns, CTC, Adadelta, replicas that
//! train synchronously or not, and an `init_fn` that restores.

#[path = "support/mod.rs"]
pub mod support;

use ferroflow::data::mnist::{Digits, Mnist};
use ferroflow::distributed::{ClusterSpec, join, start_server};
use ferroflow::ops::{array, ctc, math, nn};
use ferroflow::session::Target;
use ferroflow::train::{
    AdadeltaOptimizer, GradientOptions, Optimizer, ReplicaDeviceSetter, Saver, Supervisor, SyncReplicasOptimizer,
    global_variables_initializer, latest_checkpoint, local_variables_initializer,
};
use ferroflow::variable::create_global_step;
use ferroflow::{DType, Graph, Output, PartialShape, Result, Status, Tensor};
use std::sync::Arc;
use support::{Flags, biases, weights};

/// Digits in a strip.
const DIGITS: usize = 3;
/// Strips in a batch.
const BATCH: usize = 16;
/// Columns that the recurrent layers see: a quarter of the pixels.
const COLUMNS: i64 = 7 * DIGITS as i64;
/// Units of each LSTM.
const UNITS: i64 = 24;
/// The digits and the blank.
const CLASSES: i64 = 11;

/// Strips, the positions of their labels in a sparse matrix, and the labels.
fn strips(digits: &Digits, first: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let (images, _) = digits.all()?;
    let pixels = images.as_slice::<f32>()?;
    let mut strips = vec![0f32; BATCH * 28 * 28 * DIGITS];
    let (mut indices, mut labels) = (Vec::new(), Vec::new());
    for strip in 0..BATCH {
        for position in 0..DIGITS {
            let digit = (first + strip * DIGITS + position) % digits.len();
            for row in 0..28 {
                let to = (strip * 28 + row) * 28 * DIGITS + position * 28;
                strips[to..to + 28].copy_from_slice(&pixels[digit * 784 + row * 28..][..28]);
            }
            indices.extend([strip as i64, position as i64]);
            labels.push(i32::from(digits.label(digit).unwrap_or(0)));
        }
    }
    let wide = 28 * DIGITS as i64;
    Ok((
        Tensor::from_slice(&[BATCH as i64, 28, wide, 1], &strips)?,
        Tensor::from_slice(&[labels.len() as i64, 2], &indices)?,
        Tensor::vector(&labels),
    ))
}

/// Adds an LSTM over steps of `[batch, features]`.
fn lstm(g: &Graph, name: &str, steps: &[Output], features: i64) -> Result<Vec<Output>> {
    let w = weights(g, &format!("{name}_w"), &[features + UNITS, 4 * UNITS], 0.1)?;
    let b = biases(g, &format!("{name}_b"), 4 * UNITS)?;
    let zero = g.constant_tensor(&Tensor::from_slice(&[BATCH as i64, UNITS], &[0f32; BATCH * UNITS as usize])?);
    let (mut state, mut hidden) = (zero.clone(), zero);
    let mut outputs = Vec::with_capacity(steps.len());
    for step in steps {
        let joined = array::concat(&[step.clone(), hidden], 1);
        let gates = array::split(&nn::xw_plus_b(&joined, w.value(), b.value()), 4, 1);
        let forget = math::sigmoid(&(&gates[2] + 1.0));
        state = &state * &forget + math::sigmoid(&gates[0]) * math::tanh(&gates[1]);
        hidden = math::sigmoid(&gates[3]) * math::tanh(&state);
        outputs.push(hidden.clone());
    }
    Ok(outputs)
}

/// Adds the network: `[columns, batch, classes]` of strips.
fn logits(g: &Graph, strips: &Output) -> Result<Output> {
    let mut layer = strips.clone();
    for (name, from, to) in [("conv1", 1, 8), ("conv2", 8, 12)] {
        let w = weights(g, &format!("{name}_w"), &[3, 3, from, to], (2.0 / (9 * from) as f64).sqrt())?;
        let b = biases(g, &format!("{name}_b"), to)?;
        let convolved = nn::relu(&nn::bias_add(&nn::conv2d(&layer, w.value(), [1, 1], "SAME"), b.value()));
        layer = nn::max_pool(&convolved, [2, 2], [2, 2], "SAME");
    }
    let features = 7 * 12;
    let columns = array::reshape_to(&array::transpose(&layer, &[2, 0, 1, 3]), &[COLUMNS, BATCH as i64, features]);
    let steps = array::unstack(&columns, COLUMNS as usize, 0);
    let backwards: Vec<Output> = steps.iter().rev().cloned().collect();
    let forward = lstm(g, "forward", &steps, features)?;
    let mut backward = lstm(g, "backward", &backwards, features)?;
    backward.reverse();
    let (w, b) = (weights(g, "out_w", &[2 * UNITS, CLASSES], 0.1)?, biases(g, "out_b", CLASSES)?);
    let both = |(f, b): (Output, Output)| array::concat(&[f, b], 1);
    let outputs: Vec<Output> = forward.into_iter().zip(backward).map(both).collect();
    let flat = nn::xw_plus_b(&array::concat(&outputs, 0), w.value(), b.value());
    Ok(array::reshape_to(&flat, &[COLUMNS, BATCH as i64, CLASSES]))
}

/// Trains as one worker; returns the losses of its steps.
pub fn train(target: Target, cluster: &ClusterSpec, flags: &Flags) -> Result<Vec<f32>> {
    let task_index: u32 = flags.get("task_index", 0)?;
    let is_chief = task_index == 0;
    let workers = cluster.num_tasks("worker") as i32;
    let g = Graph::new();
    let setter = ReplicaDeviceSetter::new(cluster.num_tasks("ps") as u32)
        .worker_device(&format!("/job:worker/task:{task_index}"))?;
    let is_sync = flags.get("issync", 0)? == 1;
    let (x, indices, labels, cost, global_step, train_op, sync) = setter.scope(&g, |_| {
        let global_step = create_global_step(&g);
        let of = |dtype, dims: &[i64]| array::placeholder(&g, dtype, &PartialShape::from_dims(dims));
        let x = of(DType::Float, &[BATCH as i64, 28, 28 * DIGITS as i64, 1]);
        let (indices, labels) = (of(DType::Int64, &[-1, 2]), of(DType::Int32, &[-1]));
        let lengths = g.constant_tensor(&Tensor::vector(&[COLUMNS as i32; BATCH]));
        let cost = math::reduce_mean(&ctc::ctc_loss(&indices, &labels, &logits(&g, &x)?, &lengths), None, false);
        let optimizer = AdadeltaOptimizer::new(flags.get("learning_rate", 1.0)?);
        let gradients = optimizer.compute_gradients(&cost, &GradientOptions::default())?;
        let (train_op, sync) = if is_sync {
            let optimizer = SyncReplicasOptimizer::new(optimizer, workers, Some(workers))?;
            (optimizer.apply_gradients(&gradients, Some(&global_step), None)?, Some(optimizer))
        } else {
            (optimizer.apply_gradients(&gradients, Some(&global_step), None)?, None)
        };
        Ok::<_, Status>((x, indices, labels, cost, global_step, train_op, sync))
    })?;
    let directory = flags.text("checkpoint_dir", "/tmp/crnn");
    let saver = Arc::new(Saver::new(&g)?);
    let (init, local_init) = (global_variables_initializer(&g)?, local_variables_initializer(&g)?);
    let restorer = saver.clone();
    let init_fn = move |session: &ferroflow::Session| {
        match latest_checkpoint(&directory)? {
            None => session.run_ops(&[&init])?,
            Some(checkpoint) => restorer.restore(session, &checkpoint)?,
        }
        session.run_ops(&[&local_init])
    };
    let mut builder = Supervisor::builder(&g).is_chief(is_chief).without_init_op().init_fn(init_fn);
    builder = builder.without_summary_op().saver(saver).global_step(&global_step).save_model_secs(50);
    let mut chief_parts = None;
    if let Some(optimizer) = &sync {
        let local = if is_chief { optimizer.chief_init_op()? } else { optimizer.local_step_init_op()? };
        builder = builder.local_init_op(&local).ready_for_local_init_op(&optimizer.ready_for_local_init_op()?);
        if is_chief {
            chief_parts = Some((optimizer.chief_queue_runner()?, optimizer.init_tokens_op(None)?));
        }
    }
    let supervisor = builder.build()?;
    let digits = Mnist::builtin()?.train;
    supervisor.managed_session(target, |session| {
        if let Some((runner, tokens)) = &chief_parts {
            supervisor.start_queue_runners(session, Some(std::slice::from_ref(runner)))?;
            session.run_ops(&[tokens])?;
        }
        let mut losses = Vec::new();
        let last_step: i64 = flags.get("train_steps", 400)?;
        loop {
            let first = (losses.len() * workers as usize + task_index as usize) * BATCH * DIGITS;
            let (strip, at, label) = strips(&digits, first)?;
            let run = session.runner().feed(&x, strip).feed(&indices, at).feed(&labels, label);
            let values = run.target(&train_op).fetch(&cost).fetch(global_step.value()).run()?;
            losses.push(values[0].to_scalar()?);
            if values[1].to_scalar::<i64>()? >= last_step {
                return Ok(losses);
            }
        }
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
    let losses = train(Target::from(&server), &cluster, &flags)?;
    println!("loss {:?} after {} steps of this worker", losses.last(), losses.len());
    Ok(())
}
