//! The models in ferroflow.

use ferroflow::layers::rnn::{BasicLstmCell, static_rnn};
use ferroflow::layers::{Activation, Apply, Conv2D, Dense, Flatten, MaxPooling2D, Padding};
use ferroflow::prelude::*;
use ferroflow::train::{AdamOptimizer, GradientDescentOptimizer, global_variables_initializer};
use measure::{BATCH, CLASSES, PIXELS, Task, measure};
use std::error::Error;

fn mlp(images: &Output) -> Output {
    images.apply(&Dense::new(100).activation(Activation::Relu)).apply(&Dense::new(CLASSES as i64))
}

fn cnn(images: &Output) -> Output {
    let conv = |filters| Conv2D::new(filters, 5).padding(Padding::Same).activation(Activation::Relu);
    images
        .reshape([-1, 28, 28, 1])
        .apply(&conv(32))
        .apply(&MaxPooling2D::new(2, 2))
        .apply(&conv(64))
        .apply(&MaxPooling2D::new(2, 2))
        .apply(&Flatten::new())
        .apply(&Dense::new(512).activation(Activation::Relu))
        .apply(&Dense::new(CLASSES as i64))
}

fn lstm(images: &Output) -> Output {
    let rows = images.reshape([-1, 28, 28]).unstack(28, 1);
    let (outputs, _) = static_rnn(&BasicLstmCell::new(128), &rows);
    outputs[27].apply(&Dense::new(CLASSES as i64))
}

fn main() -> Result<(), Box<dyn Error>> {
    let task = Task::from_arguments()?;
    let g = Graph::new();
    let images = g.placeholder::<f32>([BATCH as i64, PIXELS as i64]);
    let labels = g.placeholder::<i32>([BATCH as i64]);
    let descent = |rate| -> Box<dyn Optimizer> { Box::new(GradientDescentOptimizer::new(rate)) };
    let (logits, optimizer): (Output, Box<dyn Optimizer>) = match task.model.as_str() {
        "mlp" => (mlp(&images), Box::new(AdamOptimizer::new(0.001))),
        "cnn" => (cnn(&images), descent(0.01)),
        "lstm" => (lstm(&images), descent(0.1)),
        _ => return Err(task.unknown()),
    };
    let loss = logits.sparse_softmax_cross_entropy(Labels(&labels)).mean();
    let train = optimizer.minimize(&loss, None)?;

    let session = Session::new(&g)?;
    session.run_ops(&[&global_variables_initializer(&g)])?;
    let step = session.make_callable(&[&images, &labels], &[&loss], &[&train])?;
    let kinds: Vec<i32> = task.labels.iter().map(|&label| label.into()).collect();
    let batch = [Tensor::from_slice(&[BATCH as i64, PIXELS as i64], &task.images)?, Tensor::vector(&kinds)];
    measure(|| step.call(&batch)?[0].to_scalar::<f32>())
}
