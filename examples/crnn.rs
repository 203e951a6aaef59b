//! Strips of digits read as a whole: convolutions, a bidirectional LSTM over the columns, CTC, Adadelta, replicas that
//! train synchronously or not, and checkpoints that they go on from.

use ferroflow::data::mnist::{Digits, Mnist};
use ferroflow::distributed::ClusterSpec;
use ferroflow::layers::rnn::{BidirectionalDynamicRnn, LstmCell};
use ferroflow::layers::{Activation, Apply, Conv2D, Dense, MaxPooling2D, Padding};
use ferroflow::ops::ctc::ctc_loss;
use ferroflow::train::*;
use ferroflow::{Result, flags::Flags, prelude::*, session::Target, variable::create_global_step};

/// Digits in a strip, strips in a batch, and columns that the recurrent layers see: a quarter of the pixels.
const DIGITS: usize = 3;
const BATCH: usize = 16;
const COLUMNS: i64 = 7 * DIGITS as i64;

/// Returns strips, the positions of their labels in a sparse matrix, and the labels.
fn strips(digits: &Digits, first: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let images = digits.all()?.0;
    let (mut strips, mut indices, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for strip in 0..BATCH {
        let digit = |position: usize| (first + strip * DIGITS + position) % digits.len();
        for (row, position) in (0..28 * DIGITS).map(|part| (part / DIGITS, part % DIGITS)) {
            strips.extend_from_slice(&images.as_slice::<f32>()?[digit(position) * 784 + row * 28..][..28]);
        }
        indices.extend((0..DIGITS).map(|position| [strip as i64, position as i64]));
        labels.extend((0..DIGITS).map(|position| i32::from(digits.label(digit(position)).unwrap_or(0))));
    }
    let strips = Tensor::from_slice(&[BATCH as i64, 28, 28 * DIGITS as i64, 1], &strips)?;
    Ok((strips, indices.try_into()?, labels.try_into()?))
}

/// Adds the network: `[columns, batch, classes]` of strips. The classes are the digits and the blank.
fn logits(strips: &Output) -> Output {
    let convolved = [8, 12].into_iter().fold(strips.clone(), |images, filters| {
        let conv = Conv2D::new(filters, 3).padding(Padding::Same).activation(Activation::Relu);
        images.apply(&conv).apply(&MaxPooling2D::new(2, 2))
    });
    let columns = convolved.transpose([2, 0, 1, 3]).reshape([COLUMNS, BATCH as i64, 7 * 12]);
    let (forward, backward) = (LstmCell::new(24), LstmCell::new(24));
    let ((ahead, back), _) = BidirectionalDynamicRnn::new(&forward, &backward).time_major(true).run(&columns);
    ahead.concat(&back, 2).apply(&Dense::new(11))
}

/// Trains as one worker; returns the losses of its steps.
pub fn train(target: Target, cluster: &ClusterSpec, flags: &Flags) -> Result<Vec<f32>> {
    let (g, task, workers) = (Graph::new(), flags.get("task_index", 0)?, cluster.num_tasks("worker") as i32);
    let (x, indices, labels, cost, step, train, sync) =
        ReplicaDeviceSetter::for_worker(cluster, task).scope(&g, |g| {
            let x = g.placeholder::<f32>([BATCH as i64, 28, 28 * DIGITS as i64, 1]);
            let (indices, labels) = (g.placeholder::<i64>((None, 2)), g.placeholder::<i32>([-1]));
            let cost = ctc_loss(&indices, &labels, &logits(&x), &g.constant([COLUMNS as i32; BATCH])).mean();
            let (step, adadelta) = (create_global_step(g), AdadeltaOptimizer::new(flags.get("learning_rate", 1.0)?));
            if flags.get("issync", 0)? != 1 {
                let train = adadelta.minimize(&cost, Some(&step))?;
                return Ok((x, indices, labels, cost, step, train, None));
            }
            let sync = SyncReplicasOptimizer::new(adadelta, workers, Some(workers))?;
            let train = sync.minimize(&cost, Some(&step))?;
            Ok::<_, Status>((x, indices, labels, cost, step, train, Some(sync.make_session_run_hook(task == 0, None)?)))
        })?;
    let builder = MonitoredSession::training(&g).target(target).is_chief(task == 0);
    let builder = builder.checkpoint_dir(&flags.text("checkpoint_dir", "/tmp/crnn"));
    let mut session = sync.into_iter().fold(builder, |builder, hook| builder.hook(hook)).build()?;
    let (digits, mut losses, mut global_step) = (Mnist::builtin()?.train, Vec::new(), 0);
    while global_step < flags.get("train_steps", 400)? {
        let first = (losses.len() * workers as usize + task as usize) * BATCH * DIGITS;
        let (strip, at, label) = strips(&digits, first)?;
        let run = RunArgs::new().feed(&x, strip).feed(&indices, at).feed(&labels, label).target(&train);
        let values = session.run(&run.fetch(&cost).fetch(&step))?;
        losses.push(values[0].to_scalar()?);
        global_step = values[1].to_scalar::<i64>()?;
    }
    session.close().map(|()| losses)
}

fn main() -> Result<()> {
    let flags = Flags::from_env();
    let losses = flags.run_task(|server, cluster| train(Target::from(server), cluster, &flags))?;
    losses.into_iter().for_each(|losses| println!("loss {:?} after {} steps", losses.last(), losses.len()));
    Ok(())
}
