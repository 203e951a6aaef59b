//! The program of the README: fits a line.

use ferroflow::prelude::*;
use ferroflow::train::{GradientDescentOptimizer, global_variables_initializer};

fn main() -> ferroflow::Result<()> {
    let g = Graph::new();
    let (x, y) = (g.placeholder::<f32>([-1]), g.placeholder::<f32>([-1]));
    let w = Variable::new(&g, "w", &g.constant(0f32));
    let b = Variable::new(&g, "b", &g.constant(0f32));
    let loss = (&x * w.value() + b.value() - &y).square().mean();
    let train = GradientDescentOptimizer::new(0.1).minimize(&loss, None)?;

    let session = Session::new(&g)?;
    session.run_ops(&[&global_variables_initializer(&g)?])?;
    for _ in 0..200 {
        session.runner().feed(&x, [0f32, 1.0, 2.0]).feed(&y, [1f32, 3.0, 5.0]).target(&train).run()?;
    }
    println!("y = {:.2} x + {:.2}", session.eval::<f32>(w.value())?, session.eval::<f32>(b.value())?);
    Ok(())
}
