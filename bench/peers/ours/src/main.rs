//! The models in ferroflow.

use ferroflow::ops::{array, math, nn};
use ferroflow::train::{AdamOptimizer, GradientDescentOptimizer, Optimizer, global_variables_initializer};
use ferroflow::variable_scope::get_variable;
use ferroflow::{DType, Graph, Output, PartialShape, Result, Session, Tensor, initializers};
use measure::{BATCH, CLASSES, PIXELS, Task, measure};
use std::error::Error;

fn dense(g: &Graph, name: &str, input: &Output, from: usize, to: usize) -> Result<Output> {
    let w = get_variable(g, &format!("{name}/kernel"), &[from as i64, to as i64]).get();
    let b = get_variable(g, &format!("{name}/bias"), &[to as i64]).initializer(initializers::zeros()).get();
    Ok(nn::xw_plus_b(input, w.value(), b.value()))
}

fn mlp(g: &Graph, images: &Output) -> Result<Output> {
    let hidden = nn::relu(&dense(g, "hidden", images, PIXELS, 100)?);
    dense(g, "output", &hidden, 100, CLASSES)
}

fn cnn(g: &Graph, images: &Output) -> Result<Output> {
    let mut images = array::reshape_to(images, &[BATCH as i64, 28, 28, 1]);
    for (name, from, to) in [("first", 1, 32), ("second", 32, 64)] {
        let w = get_variable(g, &format!("{name}/kernel"), &[5, 5, from, to]).get();
        let b = get_variable(g, &format!("{name}/bias"), &[to]).initializer(initializers::zeros()).get();
        let convolved = nn::bias_add(&nn::conv2d(&images, w.value(), [1, 1], nn::Padding::Same), b.value());
        images = nn::max_pool(&nn::relu(&convolved), [2, 2], [2, 2], nn::Padding::Same);
    }
    let flat = array::reshape_to(&images, &[BATCH as i64, 7 * 7 * 64]);
    let hidden = nn::relu(&dense(g, "hidden", &flat, 7 * 7 * 64, 512)?);
    dense(g, "output", &hidden, 512, CLASSES)
}

fn recurrent(g: &Graph, images: &Output) -> Result<Output> {
    let w = get_variable(g, "lstm/kernel", &[28 + 128, 4 * 128]).get();
    let b = get_variable(g, "lstm/bias", &[4 * 128]).initializer(initializers::zeros()).get();
    let zero = g.constant_tensor(&Tensor::from_slice(&[BATCH as i64, 128], &[0f32; BATCH * 128])?);
    let (mut state, mut hidden) = (zero.clone(), zero);
    for row in array::unstack(&array::reshape_to(images, &[BATCH as i64, 28, 28]), 28, 1) {
        let joined = array::concat(&[row, hidden], 1);
        let gates = array::split(&nn::xw_plus_b(&joined, w.value(), b.value()), 4, 1);
        state = &state * math::sigmoid(&(&gates[2] + 1.0)) + math::sigmoid(&gates[0]) * math::tanh(&gates[1]);
        hidden = math::sigmoid(&gates[3]) * math::tanh(&state);
    }
    dense(g, "output", &hidden, 128, CLASSES)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let task = Task::from_arguments()?;
    let g = Graph::new();
    let shape = PartialShape::from_dims(&[BATCH as i64, PIXELS as i64]);
    let images = array::placeholder(&g, DType::Float, &shape);
    let labels = array::placeholder(&g, DType::Int32, &PartialShape::from_dims(&[BATCH as i64]));
    let (logits, optimizer): (Output, Box<dyn Optimizer>) = match task.model.as_str() {
        "mlp" => (mlp(&g, &images)?, Box::new(AdamOptimizer::new(0.001))),
        "cnn" => (cnn(&g, &images)?, Box::new(GradientDescentOptimizer::new(0.01))),
        "lstm" => (recurrent(&g, &images)?, Box::new(GradientDescentOptimizer::new(0.1))),
        _ => return Err(task.unknown()),
    };
    let loss =
        math::reduce_mean(&nn::sparse_softmax_cross_entropy_with_logits(nn::Labels(&labels), &logits), None, false);
    let train = optimizer.minimize(&loss, None)?;
    let session = Session::new(&g)?;
    session.run_ops(&[&global_variables_initializer(&g)])?;
    let step = session.make_callable(&[&images, &labels], &[&loss], &[&train])?;
    let kinds: Vec<i32> = task.labels.iter().map(|&label| label.into()).collect();
    let batch = [Tensor::from_slice(&[BATCH as i64, PIXELS as i64], &task.images)?, Tensor::vector(&kinds)];
    measure(|| step.call(&batch)?[0].to_scalar::<f32>())
}
