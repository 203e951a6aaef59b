//! The program of the README with its other session: the MLP is trained on a running cluster, whose address is the first argument.

use ferroflow::data::mnist::Mnist;
use ferroflow::layers::{Activation, Apply, Dense};
use ferroflow::prelude::*;
use ferroflow::train::{AdamOptimizer, global_variables_initializer};

pub fn train() -> ferroflow::Result<f32> {
    let (g, digits) = (Graph::new(), Mnist::builtin()?);
    g.set_random_seed(1);
    let (x, y) = (g.placeholder::<f32>((None, 784)), g.placeholder::<f32>((None, 10)));
    let logits = x.apply(&Dense::new(100).activation(Activation::Relu)).apply(&Dense::new(10));
    let loss = logits.softmax_cross_entropy(Labels(&y)).mean();
    let step = AdamOptimizer::new(0.003).minimize(&loss, None)?;
    let accuracy = logits.argmax(1).equal(y.argmax(1)).cast(DType::Float).mean();

    let session = Session::connect(&g, &target())?;
    session.run_ops(&[&global_variables_initializer(&g)])?;
    let mut batches = digits.train.batches(0);
    for _ in 0..1000 {
        let (images, labels) = batches.next_batch(100)?;
        session.runner().feed(&x, images).feed(&y, labels).target(&step).run()?;
    }
    let (images, labels) = digits.test.all()?;
    Ok(session.runner().feed(&x, images).feed(&y, labels).fetch(&accuracy).run_as::<(f32,)>()?.0)
}

fn main() -> ferroflow::Result<()> {
    println!("test accuracy {:.1} %", 100.0 * train()?);
    Ok(())
}

/// The address of a task of the cluster, for who calls [`train`] and has no arguments to give.
pub static ADDRESS: std::sync::OnceLock<String> = std::sync::OnceLock::new();

fn target() -> String {
    let told = ADDRESS.get().cloned().or_else(|| std::env::args().nth(1));
    told.unwrap_or_else(|| "grpc://127.0.0.1:2223".to_owned())
}
