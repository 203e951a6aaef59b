//! The program of the README: fits a line.

use ferroflow::ops::{array::placeholder, math};
use ferroflow::train::{GradientDescentOptimizer, Optimizer, global_variables_initializer};
use ferroflow::{DType, Graph, PartialShape, Session, Tensor, Variable};

fn main() -> ferroflow::Result<()> {
    let g = Graph::new();
    let x = placeholder(&g, DType::Float, &PartialShape::from_dims(&[-1]));
    let y = placeholder(&g, DType::Float, &PartialShape::from_dims(&[-1]));
    let w = Variable::new(&g, "w", &g.constant_tensor(&Tensor::scalar(0f32)));
    let b = Variable::new(&g, "b", &g.constant_tensor(&Tensor::scalar(0f32)));
    let loss = math::reduce_mean(&math::square(&(&x * w.value() + b.value() - &y)), None, false);
    let train = GradientDescentOptimizer::new(0.1).minimize(&loss, None)?;

    let session = Session::new(&g)?;
    session.run_ops(&[&global_variables_initializer(&g)?])?;
    for _ in 0..200 {
        let (xs, ys) = (Tensor::vector(&[0f32, 1.0, 2.0]), Tensor::vector(&[1f32, 3.0, 5.0]));
        session.runner().feed(&x, xs).feed(&y, ys).target(&train).run()?;
    }
    println!("y = {:.2} x + {:.2}", session.eval::<f32>(w.value())?, session.eval::<f32>(b.value())?);
    Ok(())
}
