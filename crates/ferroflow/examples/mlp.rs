//! Trains a classifier of digits in this process, with a loop written by hand.

use ferroflow::data::mnist::Mnist;
use ferroflow::ops::{array::placeholder, math, nn};
use ferroflow::train::{AdamOptimizer, Optimizer, global_variables_initializer};
use ferroflow::{DType, Graph, PartialShape, Result, Session, Shape, Tensor, Variable, initializers};

fn main() -> Result<()> {
    let (g, digits) = (Graph::new(), Mnist::builtin()?);
    let x = placeholder(&g, DType::Float, &PartialShape::from_dims(&[-1, 784]));
    let y = placeholder(&g, DType::Float, &PartialShape::from_dims(&[-1, 10]));
    let layer = |input: &_, name: &str, from: i64, to: i64| {
        let normal = initializers::truncated_normal(0.0, 1.0 / (from as f64).sqrt(), Some(1));
        let w = Variable::new(&g, &format!("{name}_w"), &normal(&g, &Shape::new(&[from, to])?, DType::Float)?);
        let zeros = g.constant_tensor(&Tensor::zeros(DType::Float, Shape::new(&[to])?)?);
        let b = Variable::new(&g, &format!("{name}_b"), &zeros);
        Ok::<_, ferroflow::Status>(nn::xw_plus_b(input, w.value(), b.value()))
    };
    let hidden = nn::relu(&layer(&x, "hidden", 784, 100)?);
    let logits = layer(&hidden, "softmax", 100, 10)?;
    let loss = math::reduce_mean(&nn::softmax_cross_entropy_with_logits(nn::Labels(&y), &logits), None, false);
    let train = AdamOptimizer::new(0.01).minimize(&loss, None)?;
    let right = math::equal(&math::argmax(&logits, 1), &math::argmax(&y, 1));
    let accuracy = math::reduce_mean(&math::cast(&right, DType::Float), None, false);

    let session = Session::new(&g)?;
    session.run_ops(&[&global_variables_initializer(&g)?])?;
    let mut batches = digits.train.batches(0);
    for _ in 0..500 {
        let (images, labels) = batches.next_batch(100)?;
        session.runner().feed(&x, images).feed(&y, labels).target(&train).run()?;
    }
    let (images, labels) = digits.test.all()?;
    let values = session.runner().feed(&x, images).feed(&y, labels).fetch(&accuracy).run()?;
    println!("test accuracy {:.1} %", 100.0 * values[0].to_scalar::<f32>()?);
    Ok(())
}
